"""What a verification found, and the plan that follows: for programs and for the commands that verify."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rmqtool.findings.finding import Finding
from rmqtool.findings.report import Verdict
from rmqtool.repair.diagnosis import Diagnosis, repairs_of, to_be_treated
from rmqtool.repair.plan import Plan, plan_of
from rmqtool.verify.outcome import Outcome


@dataclass(frozen=True)
class Verified:
    """What a verification found; the `outcome` is for rmqtool's own commands."""

    outcome: Outcome
    plan: Plan

    @classmethod
    def of(cls, outcome: Outcome, options: tuple[str, ...]) -> Verified:
        """The outcome with its plan; `options` are those that each command of the plan needs."""
        if not outcome.complete:
            return cls(outcome, Plan())
        diagnosis = diagnosis_of(outcome, options)
        return cls(outcome, plan_of(diagnosis, repairs_of(diagnosis)))

    @property
    def verdict(self) -> Verdict:
        """The verdict."""
        return self.outcome.verdict

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings, the worst first."""
        return self.outcome.findings

    @property
    def lost(self) -> Mapping[str, int]:
        """How many messages cannot be read, by topic."""
        return dict(self.outcome.lost)

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong and nothing was left out."""
        return self.verdict == "clean"


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
