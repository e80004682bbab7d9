"""The next start of a broker, predicted from the results of the scan (`rmqtool.broker.recovery`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.log_walk import FileWalk, LogWalks
from rmqtool.broker.prediction import StartPrediction
from rmqtool.broker.queue_recovery import KnownQueues
from rmqtool.broker.recovery import Recovery
from rmqtool.broker.start_findings import alike, label, start_findings
from rmqtool.findings.catalogue import CATALOGUE, finding
from rmqtool.findings.finding import Finding, Severity
from rmqtool.findings.report import Report
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.rules.versions import Version
from rmqtool.store.snapshot import Snapshot
from rmqtool.verify.queue_progress import QueueProgress

_CODES = ("start.data-loss", "start.other-mode-data-loss", "start.refuses", "start.other-directory", "start.hangs",
          "start.queue-loss", "start.rows-lost")  # fmt: skip
_OF_QUEUES = ("start.queue-loss", "start.rows-lost")
_MAX_READ = 256 << 20  # bytes that the predictions for older releases may read again
_PER_QUEUE = 16 << 10  # bytes that reading a queue's ends costs
_DEPENDS = "start.depends-on-release"


@dataclass(frozen=True)
class Prediction:
    """The predicted start of some releases, with its findings."""

    versions: tuple[Version, ...]
    start: StartPrediction
    findings: tuple[Finding, ...]
    log_only: bool = False  # whether the queues were left out

    @property
    def answer(self) -> object:
        """The results by which predictions are compared."""
        start = self.start
        codes = frozenset(each.code for each in self.findings)
        return start.refuses is None, start.hangs, start.max_offset_after, start.messages_lost, codes

    def has(self, code: str) -> bool:
        """Whether a start has a finding of a code, or may have one that was not checked."""
        return code in {each.code for each in self.findings} or (self.log_only and code in _OF_QUEUES)

    @property
    def is_bad(self) -> bool:
        """Whether a start fails or loses something."""
        return any(each.severity == "error" for each in self.findings)

    @property
    def sentence(self) -> str:
        """The prediction in words, which begin with its releases."""
        return CATALOGUE[_DEPENDS].sentence({"starts": [self.facts]})

    @property
    def facts(self) -> dict[str, Any]:
        """What a finding has of it."""
        codes = dict.fromkeys(each.code for each in self.findings if each.code != "start.data-loss")
        return {
            "problem": "hangs" if self.start.hangs else "refuses" if self.start.refuses else "", "also": [*codes],
            "releases": label(self.versions), "refuses": self.start.refuses, "hangs": self.start.hangs,
            "max_offset_after": self.start.max_offset_after, "messages_lost": self.start.messages_lost,
            "findings": [{"code": each.code, "details": dict(each.details)} for each in self.findings],
        }  # fmt: skip


def predict(
    snapshot: Snapshot, walks: Sequence[FileWalk], states: Mapping[QueueName, QueueProgress], recovered: KnownQueues
) -> list[Prediction]:
    """The predicted starts of all releases, the newest first; one for all that agree.

    `walks` are those of the newest release through the log, `states` the queues by the log, `recovered` queues as their
    own recovery leaves them, as far as that is known; it takes the others. For a large store only the newest and the
    oldest release are predicted, the latter for the log alone. Raises RmqtoolError.
    """
    newest, *older = alike(snapshot.releases, snapshot.store.conf)
    size = sum(walk.data_end for walk in walks) + len(states) * _PER_QUEUE
    log_only = len(older) * size > _MAX_READ
    undamaged = [walk for walk in walks if walk.is_undamaged]  # the same to every release
    ends = {(name.topic, name.queue_id): state.unit_end for name, state in states.items()
            if not state.restarts and not state.may_jump}  # fmt: skip

    def of_releases(versions: tuple[Version, ...], known: Sequence[FileWalk], *, log_only: bool) -> Prediction:
        rules = RecoveryRules.of(versions[-1], snapshot.store.conf)
        recovery = Recovery(snapshot, rules, LogWalks(rules, known, snapshot.reading), recovered)
        start = recovery.predict(log_only=log_only)
        return Prediction(versions, start, tuple(start_findings(recovery, start, ends)), log_only)

    others = older[-1:] if log_only else older
    each = [of_releases(newest, walks, log_only=False)]
    each += (of_releases(group, undamaged, log_only=log_only) for group in others)
    return list(_different(each))


def _different(predictions: Sequence[Prediction]) -> Iterator[Prediction]:
    by_answer: dict[object, list[Prediction]] = {}
    for prediction in predictions:
        by_answer.setdefault(prediction.answer, []).append(prediction)
    for first, *others in by_answer.values():
        versions = tuple(version for each in (first, *others) for version in each.versions)
        yield replace(first, versions=versions)


def report_starts(predictions: Sequence[Prediction], report: Report, *, is_clean: bool) -> None:
    """Report the findings that all releases share, and one where they differ.

    The latter is information when the store is clean otherwise, and an error when no release starts without loss.
    """
    for code in (*_CODES, _DEPENDS):
        report.check(code)
    newest, *others = predictions
    for each in newest.findings:
        if all(other.has(each.code) for other in others):
            report.add_finding(each)
    if others:
        severity: Severity | None = "info" if is_clean else None
        if all(each.is_bad for each in predictions):
            severity = "error"
        elif not is_clean and any(each.is_bad for each in predictions):
            report.doubt("what a start does", "what a start does: of some releases that fit it loses messages or fails")
        facts = {"starts": [each.facts for each in predictions]}
        report.add_finding(finding(_DEPENDS, store=report.root, severity=severity, details=facts))
