"""A verification as SARIF 2.1.0, which code hosts and editors show: a rule for each code, a result for each finding."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from rmqtool import __version__
from rmqtool.findings.catalogue import CATALOGUE
from rmqtool.findings.finding import Finding
from rmqtool.verify.outcome import Outcome

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
    return {"artifactLocation": {"uri": quote(file), "uriBaseId": _STORE}}
