"""A verification for programs: verdict, findings, what is lost, and the plan that verify ends with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rmqtool.findings.finding import Finding
from rmqtool.findings.report import Verdict
from rmqtool.repair.diagnosis import Diagnosis, repairs_of, to_be_treated
from rmqtool.repair.plan import Plan, plan_of
from rmqtool.rules.versions import Version
from rmqtool.store.store import Store
from rmqtool.verify.outcome import Outcome, outcome_of
from rmqtool.verify.request import VerifyRequest
from rmqtool.verify.verification import Verification
from rmqtool.verify.workers import workers_for


@dataclass(frozen=True)
class Verified:
    """What a verification found; `lost` counts by topic the messages that cannot be read."""

    verdict: Verdict
    findings: tuple[Finding, ...]
    lost: Mapping[str, int]
    plan: Plan

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong and nothing was left out."""
        return self.verdict == "clean"


def verified(store: Store, version: Version | None, jobs: int) -> Verified:
    """Verify all of a store with so many processes; the rules are those of `version`, by default the newest that fits.

    Raises RmqtoolError where the store cannot be listed.
    """
    with workers_for(store.root, jobs) as pool:
        verification = Verification(store, VerifyRequest(version, jobs=jobs))
        verification.run(lambda _: None, pool)
    outcome = outcome_of(verification)
    named = {"--broker-conf": store.conf.path, "--broker-version": str(version) if version else None}
    options = tuple(word for name, value in named.items() if value for word in (name, value))
    return Verified(outcome.verdict, outcome.findings, dict(outcome.lost), plan_for(outcome, options))


def plan_for(outcome: Outcome, options: tuple[str, ...]) -> Plan:
    """The plan that a verification ends with; `options` are those that each of its commands needs."""
    diagnosis = diagnosis_of(outcome, options)
    return plan_of(diagnosis, repairs_of(diagnosis)) if outcome.complete else Plan()


def diagnosis_of(outcome: Outcome, options: tuple[str, ...]) -> Diagnosis:
    """The outcome as a plan sees it; `options` are those that each command of the plan needs."""
    findings = to_be_treated(outcome.findings)
    return Diagnosis(
        snapshot=outcome.snapshot,
        findings=findings,
        lost=outcome.lost,
        mended=outcome.verdict == "dirty",
        options=options,
        damaged_bytes=outcome.damaged_bytes,
        lost_is_minimum=outcome.lost_is_minimum,
    )
