"""The catalogue of findings: one table of what each code means, for every command, the docs and the tests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rmqtool.findings.clean import CLEANING, OWN_RUNS
from rmqtool.findings.commitlog_files import LOG_FILES, OTHER_LOGS
from rmqtool.findings.commitlog_records import LOG_LOSSES, MESSAGES, RECORDS
from rmqtool.findings.compaction import COMPACTION
from rmqtool.findings.config import CONFIG
from rmqtool.findings.consumequeue import CONSUME_QUEUE_FILES, CONSUME_QUEUES
from rmqtool.findings.finding import Entry, Finding, Remedy, Severity
from rmqtool.findings.index_and_checkpoint import DERIVED
from rmqtool.findings.rebuild import EXPORTS, REBUILDS
from rmqtool.findings.start import STARTS, UPGRADES
from rmqtool.findings.store import STORE
from rmqtool.findings.tiered import TIERED
from rmqtool.findings.timer import TIMER

__all__ = ["CATALOGUE", "Entry", "close_matches", "finding", "lookup"]

_FAULT = re.compile(r"[fF]0*(\d{1,2})", re.ASCII)

_TABLES = (
    *(STARTS, STORE, OTHER_LOGS, OWN_RUNS, LOG_FILES, LOG_LOSSES, RECORDS, MESSAGES),
    *(CONSUME_QUEUE_FILES, CONSUME_QUEUES, DERIVED, COMPACTION, TIERED, TIMER, CONFIG, UPGRADES),
    *(CLEANING, REBUILDS, EXPORTS),
)

CATALOGUE: Mapping[str, Entry] = MappingProxyType({entry.code: entry for entries in _TABLES for entry in entries})
"""Every code with its page, in the order in which they are listed."""


def finding(
    code: str,
    *,
    store: Path | str | None = None,
    severity: Severity | None = None,
    effect: str | None = None,
    remedy: Remedy | str | None = None,
    details: Mapping[str, Any] | None = None,
    **location: Any,
) -> Finding:
    """A finding of the catalogue: severity, fault, effect and remedy are its page's, unless given.

    The remedy is filled with the path `store` and the `location` (file, offset, topic, queue_id, queue_offset, count);
    where one of its fields is not known it is left out. One that is given is a `Remedy` to be filled as the
    page's is, or the text of a whole command. `details` are the facts; of them and the location the page makes the
    sentence.
    """
    entry = CATALOGUE[code]
    template = remedy.template if isinstance(remedy, Remedy) else entry.remedy
    next_command: Remedy | None
    if isinstance(remedy, str):
        next_command = Remedy.of_system(remedy)
    else:
        next_command = Remedy.filled(template, {**location, "store": store}) if template else None
    found = Finding(
        code=code,
        fault=entry.fault,
        severity=severity or entry.severity,
        message="",
        effect=effect or entry.effect,
        next_command=next_command,
        details=details or {},
        **location,
    )
    return replace(found, message=entry.sentence(found.facts))


def lookup(text: str) -> list[Entry]:
    """The pages of a code, of a fault's number (``F16``), or of all codes that begin with `text` (``commitlog``)."""
    fault = _FAULT.fullmatch(text)
    if fault:
        fault_number = f"F{int(fault[1]):02}"
        return [entry for entry in CATALOGUE.values() if entry.fault == fault_number]
    wanted = text.lower()
    if wanted in CATALOGUE:
        return [CATALOGUE[wanted]]
    return [entry for code, entry in CATALOGUE.items() if wanted and code.startswith(wanted)]


def why_no_code(prefix: str) -> str | None:
    """Why no finding can be chosen by a prefix, with the nearest codes; None where some code begins so."""
    if any(code.startswith(prefix) for code in CATALOGUE):
        return None
    near = ", ".join(close_matches(prefix))
    return f"no code begins with {prefix!r}{f'; did you mean {near}?' if near else ''}"


def close_matches(text: str) -> list[str]:
    """Codes that `text` may have been meant for, the closest first."""
    wanted = text.lower()
    names = {name: code for code in CATALOGUE for name in (code, code.partition(".")[2])}
    close = [names[name] for name in get_close_matches(wanted, names, n=5, cutoff=0.6)]
    inside = [code for code in CATALOGUE if len(wanted) > 2 and wanted in code]
    return list(dict.fromkeys([*close, *inside]))[:5]
