"""The outcome of a verification for programs: JSON, JUnit, and SARIF 2.1.0, which code hosts and editors show."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timezone
from itertools import islice
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote as percent_quoted
from xml.etree import ElementTree

from rmqtool import __version__
from rmqtool.broker.start_duration import StartDuration
from rmqtool.broker.start_findings import label
from rmqtool.findings.catalogue import CATALOGUE
from rmqtool.findings.finding import Finding
from rmqtool.verify.bad_extents import UNREAD
from rmqtool.verify.gaps import is_of_verify
from rmqtool.verify.outcome import Outcome

_MAX_EXTENTS = 10_000


def duration_json(duration: StartDuration | None) -> dict[str, Any] | None:
    """How long a start takes, as JSON; None where that is not known."""
    if duration is None:
        return None
    return {
        "seconds": [round(duration.low, 3), round(duration.high, 3)],
        "steps": [{**vars(step), "seconds": round(step.seconds, 3)} for step in duration.steps],
        "disk_bytes_per_second": duration.disk_rate,
        "machine_factor": round(duration.factor, 2),
        "shorter": list(duration.shorter),
    }


def outcome_json(outcome: Outcome, disk_rate: int | None = None) -> dict[str, Any]:
    """The `result` of ``verify STORE``."""
    start, clients = outcome.start, outcome.clients
    return {
        "note": outcome.note,
        "verdict": outcome.verdict,
        "complete": outcome.complete,
        "messages": outcome.total.totals.messages,
        "bytes": outcome.total.totals.bytes,
        "commit_log": {
            "files": len(outcome.snapshot.log.files),
            "min_offset": outcome.log_start,
            "max_offset": outcome.log_end,
        },
        "bad_extents": [
            {"physical_offset": offset, "size": size, "reason": reason}
            for offset, size, reason in outcome.total.extents
            if reason != UNREAD
        ],
        "map": [
            {"physical_offset": extent.physical_offset, "size": extent.size, "state": extent.state}
            for extent in islice(outcome.log_map, _MAX_EXTENTS)
        ],
        "messages_lost": [{"topic": topic, "messages": count} for topic, count in sorted(outcome.lost.items())],
        "releases": {
            "oldest": str(outcome.snapshot.releases.oldest),
            "newest": str(outcome.snapshot.releases.newest),
            "named": outcome.snapshot.releases.is_named,
            "evidence": list(outcome.snapshot.releases.evidence),
        },
        "start": {
            **start.as_json(),
            "clients": None if clients is None else clients.as_json(),
            "duration": duration_json(outcome.duration(disk_rate)),
        }
        if start
        else None,
        "starts": [
            {"releases": label(prediction.versions), "start": prediction.start.as_json()}
            for prediction in outcome.starts
        ],
        "start_not_predicted": outcome.start_not_predicted,
        "checks": outcome.checks,
        "unproven": outcome.unproven,
        "not_checked": [{"what": gap.what, "why": gap.why, "codes": list(gap.codes)} for gap in outcome.gaps],
    }


_SUITE = "rmqtool verify"
_FORBIDDEN = dict.fromkeys((*range(9), 11, 12, *range(14, 32), 65534, 65535), "�")


def junit_report(outcome: Outcome, seconds: float) -> str:
    """The report; a check fails when a finding of it is above information."""
    failed: dict[str, list[Finding]] = {}
    lines: list[str] = []
    for finding in outcome.findings:
        if finding.severity == "info":
            lines.append(f"{finding.code}: {finding.message}")
        else:
            failed.setdefault(finding.code, []).append(finding)
    codes = [code for code in CATALOGUE if code in failed or outcome.report.checked.get(code)]
    skipped = _skipped(outcome, codes)
    incomplete = outcome.is_interrupted
    counts = {"tests": str(len(codes) + len(skipped) + incomplete), "failures": str(len(failed)),
              "errors": str(int(incomplete)), "skipped": str(len(skipped))}  # fmt: skip
    suites = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(suites, "testsuite", {
        "id": "0", "package": "rmqtool", "name": _SUITE, "hostname": "localhost", "time": f"{seconds:.3f}",
        "timestamp": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S"), **counts,
    })  # fmt: skip
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in (("store", str(outcome.root)), ("verdict", outcome.verdict),
                        ("messages", str(outcome.total.totals.messages))):  # fmt: skip
        ElementTree.SubElement(properties, "property", {"name": name, "value": _clean(value)})
    for code in codes:
        case = _case(suite, code)
        if code in failed:
            shown = failed[code]
            attributes = {"type": shown[0].severity, "message": _clean(CATALOGUE[code].title)}
            ElementTree.SubElement(case, "failure", attributes).text = _clean("\n".join(map(_line, shown)))
    for name, message in skipped.items():
        ElementTree.SubElement(_case(suite, name), "skipped", {"message": _clean(message)})
    if incomplete:
        ElementTree.SubElement(_case(suite, "complete"), "error", {"type": "interrupted", "message": "interrupted"})
    ElementTree.SubElement(suite, "system-out").text = _clean("\n".join((*lines, *outcome.unproven)))
    ElementTree.SubElement(suite, "system-err")
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def _skipped(outcome: Outcome, checked: Sequence[str]) -> dict[str, str]:
    """The checks that were skipped, and why: left out by the user, or in need of files that are not read."""
    reasons: dict[str, str] = {}
    for gap in outcome.gaps:
        if gap.why == "interrupted":
            continue  # an error of its own
        hidden = [code for code in CATALOGUE if is_of_verify(code) and gap.hides(code)]
        names = hidden if gap.is_chosen and gap.codes else [gap.what]
        reasons.update((name, gap.text) for name in names if name not in checked and name not in reasons)
    return reasons


def _case(suite: ElementTree.Element, name: str) -> ElementTree.Element:
    kind = name.partition(".")[0] if name in CATALOGUE else "verification"
    return ElementTree.SubElement(suite, "testcase", {"name": name, "classname": f"rmqtool.{kind}", "time": "0"})


def _line(finding: Finding) -> str:
    location = " ".join(
        str(field) for field in (finding.file, finding.offset, finding.topic, finding.queue_id) if field is not None
    )
    count = f" ({finding.count} times)" if finding.count > 1 else ""
    return f"{location}: {finding.message}{count}; broker: {finding.effect}"


def _clean(text: str) -> str:
    """Text without the characters that XML forbids: control characters and lone surrogates."""
    return text.translate(_FORBIDDEN).encode("utf-8", "replace").decode()


_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_STORE = "STORE"


def sarif_report(outcome: Outcome) -> str:
    """The report; places are files below the store, and bytes in them (of the log: physical offsets)."""
    codes = list(dict.fromkeys(finding.code for finding in outcome.findings))
    notes = [{"level": "note" if gap.is_chosen else "warning", "message": {"text": gap.text}} for gap in outcome.gaps]
    run: dict[str, Any] = {
        "tool": {"driver": {"name": "rmqtool", "version": __version__, "semanticVersion": __version__,
                            "rules": [_rule(code) for code in codes]}},
        "originalUriBaseIds": {_STORE: {"uri": outcome.root.absolute().as_uri() + "/"}},
        "invocations": [{"executionSuccessful": outcome.complete, "toolExecutionNotifications": notes}],
        "properties": {"verdict": outcome.verdict, "messages": outcome.total.totals.messages},
        "results": [_result(finding, codes.index(finding.code)) for finding in outcome.findings],
    }  # fmt: skip
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(code: str) -> dict[str, Any]:
    entry = CATALOGUE[code]
    return {
        "id": code,
        "shortDescription": {"text": entry.title},
        "fullDescription": {"text": entry.what},
        "help": {"text": f"{entry.repair}\nrmqtool explain {code}"},
        "properties": {"fault": entry.fault},
    }


def _result(finding: Finding, rule: int) -> dict[str, Any]:
    place = {
        name: value
        for name in ("offset", "topic", "queue_id", "queue_offset", "remedy")
        if (value := getattr(finding, name)) is not None
    }
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{finding.message}; broker: {finding.effect}"},
        "occurrenceCount": finding.count,
        "properties": place,
    }
    if finding.file is not None:
        result["locations"] = [{"physicalLocation": _location(finding.file)}]
    return result


def _location(file: str) -> dict[str, Any]:
    if PurePosixPath(file).is_absolute():
        return {"artifactLocation": {"uri": PurePosixPath(file).as_uri()}}
    return {"artifactLocation": {"uri": percent_quoted(file), "uriBaseId": _STORE}}
