"""Verify a store in a test, and that it is as before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rmqtool.findings.report import Selection
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import parse_version
from rmqtool.show.verify_reports import outcome_json
from rmqtool.store.store import open_store
from rmqtool.verify.outcome import Outcome, outcome_of
from rmqtool.verify.task import VerifyRequest
from rmqtool.verify.verification import Verification
from tests.unchanged import unchanged


def verify(store: Path, *, version: str | None = None, conf: BrokerConf | None = None, **options: Any) -> Outcome:
    """The outcome of a verification; options as those of `VerifyRequest`."""
    with unchanged(store):
        options["version"] = parse_version(version) if version else None
        verification = Verification(open_store(store, conf), VerifyRequest(**options))
        verification.run(lambda size: None)
        outcome = outcome_of(verification)
    json.dumps([finding.as_json() for finding in outcome.findings])  # details are facts that JSON has
    return outcome


def codes_of(outcome: Outcome, info: bool = False) -> set[str]:
    """The codes of the findings above information, or of all of them."""
    return {finding.code for finding in outcome.findings if info or finding.severity != "info"}


def only(*codes: str) -> Selection:
    """Only findings of these codes."""
    return Selection(codes)


def facts(outcome: Outcome) -> tuple[Any, list[str]]:
    """What is told, but for the order of findings; missing keys are told run by run, and counted in any case."""
    findings = [str(finding) for finding in outcome.findings if finding.code != "index.missing"]
    return json.loads(json.dumps(outcome_json(outcome), default=str)), sorted(findings)
