"""The next start of a broker, predicted from what the scan has seen anyway (`rmqtool.recovery`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rmqtool.catalogue import finding
from rmqtool.dispatch.units import QueueName
from rmqtool.files import Reading
from rmqtool.findings import Finding, counted
from rmqtool.recovery import FileWalk, LogWalks, Recovery, RecoveryRules, Start, start_findings
from rmqtool.recovery.by_release import alike, label
from rmqtool.rules.releases import Releases
from rmqtool.store import Store
from rmqtool.verify.queue_state import QueueState
from rmqtool.verify.report import Report
from rmqtool.versions import Version

_CODES = ("start.data-loss", "start.other-mode-data-loss", "start.refuses", "start.hangs", "start.queue-loss")
_DEPENDS = "start.depends-on-release"


@dataclass(frozen=True)
class Prediction:
    """What a start of some releases does, and what an operator must know of it."""

    versions: tuple[Version, ...]
    start: Start
    findings: tuple[Finding, ...]

    @property
    def answer(self) -> object:
        """What differs from release to release, where it matters."""
        start = self.start
        codes = frozenset(found.code for found in self.findings)
        return start.refuses is None, start.hangs, start.max_offset_after, start.messages_lost, codes

    @property
    def sentence(self) -> str:
        """The answer, behind the label of its releases."""
        if self.start.hangs or self.start.refuses:
            return "never ready" if self.start.hangs else f"refuses to start: {self.start.refuses}"
        lost = counted(self.start.messages_lost, "message")
        text = (
            f"ends the log at {self.start.max_offset_after}, {lost if self.start.messages_lost else 'no message'} lost"
        )
        more = [found.message for found in self.findings if found.code != "start.data-loss"]
        return "; ".join([text, *more[:1]])


@dataclass(frozen=True)
class Predictor:
    """Predicts starts from the `walks` of the newest release through the log; `states` are the queues by the log."""

    store: Store
    walks: Sequence[FileWalk]
    reading: Reading
    states: Mapping[QueueName, QueueState]

    def predict(self, releases: Releases) -> list[Prediction]:
        """What a start of each release would do, that of the newest first; one for all that agree.

        Raises RmqtoolError.
        """
        newest, *older = alike(releases, self.store.conf)
        undamaged = [walk for walk in self.walks if walk.is_undamaged]  # the same to every release
        found = [self._predict(newest, self.walks), *(self._predict(group, undamaged) for group in older)]
        return list(_different(found))

    def _predict(self, versions: tuple[Version, ...], walks: Sequence[FileWalk]) -> Prediction:
        rules = RecoveryRules.of(versions[-1], self.store.conf)
        recovery = Recovery(self.store, rules, LogWalks(rules, walks, self.reading), self.reading)
        start = recovery.predict()
        states = self.states.items()
        ends = {(name.topic, name.queue_id): state.next_offset for name, state in states if not state.restarts}
        return Prediction(versions, start, tuple(start_findings(recovery, start, ends)))


def _different(predictions: Sequence[Prediction]) -> Iterator[Prediction]:
    by_answer: dict[object, list[Prediction]] = {}
    for prediction in predictions:
        by_answer.setdefault(prediction.answer, []).append(prediction)
    for first, *others in by_answer.values():
        versions = tuple(version for each in (first, *others) for version in each.versions)
        yield Prediction(versions, first.start, first.findings)


def report_starts(predictions: Sequence[Prediction], report: Report, is_clean: bool) -> None:
    """The findings that all releases share, and one where they differ: a warning where the store is not clean."""
    for code in (*_CODES, _DEPENDS):
        report.check(code)
    newest, *others = predictions
    for found in newest.findings:
        if all(found.code in {theirs.code for theirs in other.findings} for other in others):
            report.take(found)
    if others:
        message = "; ".join(f"{label(each.versions)}: {each.sentence}" for each in predictions)
        report.take(finding(_DEPENDS, message, store=report.root, severity="info" if is_clean else None))
