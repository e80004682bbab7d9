"""One page of the catalogue: what a finding of a code means, wherever it is reported."""

from __future__ import annotations

from dataclasses import dataclass

from rmqtool.findings.finding import Severity


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What is the same in all findings of one code.

    `fault` is the number of a known fault of brokers, F01 to F59, or None; `effect` the sentence that a finding
    carries; `versions` pairs of releases and what these do, more exactly; `remedy` the next command, with the fields
    ``{store}``, ``{offset}``, ``{topic}`` and ``{queue_id}``, or None where no command helps; `not_detected` what this
    tool does not see of such a fault, or None.
    """

    code: str
    fault: str | None
    severity: Severity
    title: str
    what: str
    how: str
    effect: str
    versions: tuple[tuple[str, str], ...]
    repair: str
    remedy: str | None = None
    not_detected: str | None = None
