"""The next start of a broker, predicted from what the scan has seen anyway (`rmqtool.recovery`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rmqtool.dispatch.units import QueueName
from rmqtool.files import InputFile, Reading
from rmqtool.mapped_files import MappedFile
from rmqtool.recovery import NO_CHECKPOINT, FileWalk, FileWalker, LogWalks, Recovery, RecoveryRules, Start
from rmqtool.scan.block import Positions
from rmqtool.scan.reader import Event
from rmqtool.store import Store
from rmqtool.verify.queue_state import QueueState
from rmqtool.verify.report import Report

_NO_ROWS = np.empty(0, dtype=np.intp)


class Walks:
    """Feeds the broker's walk through each file with the events of the scan."""

    def __init__(self, files: Sequence[MappedFile], rules: RecoveryRules, reading: Reading) -> None:
        self.done: list[FileWalk] = []
        self._files = files
        self._rules = rules
        self._reading = reading
        self._mapped: MappedFile | None = None
        self._file: InputFile | None = None
        self._walker: FileWalker | None = None

    def feed(self, event: Event, suspects: Positions = _NO_ROWS) -> None:
        """Take the next event; `suspects` are rows of records that a broker may refuse."""
        if self._mapped is None or not self._mapped.start_offset <= event.physical_offset < self._mapped.end_offset:
            self.finish()
            self._begin(event.physical_offset)
        if self._walker is not None:
            self._walker.feed(event, suspects)

    def _begin(self, physical_offset: int) -> None:
        found = (file for file in self._files if file.start_offset <= physical_offset < file.end_offset)
        self._mapped = next(found, None)
        if self._mapped is not None:
            self._file = InputFile(self._mapped.path, self._reading)
            self._walker = FileWalker(self._file, self._mapped, self._rules)

    def finish(self) -> None:
        """The file is through."""
        if self._walker is not None:
            self.done.append(self._walker.finish())
        self.close()

    def close(self) -> None:
        """Leave the file as it is."""
        if self._file is not None:
            self._file.close()
        self._mapped = self._file = self._walker = None


def predict(
    store: Store, rules: RecoveryRules, walks: Sequence[FileWalk], reading: Reading, report: Report,
    states: Mapping[QueueName, QueueState], log_end: int,
) -> Start:  # fmt: skip
    """What a start would do, with a finding for each thing that is lost by it; raises RmqtoolError."""
    recovery = Recovery(store, rules, LogWalks(rules, walks, reading), reading)
    start = recovery.predict()
    for code in ("start.data-loss", "start.other-mode-data-loss", "start.refuses", "start.hangs", "start.queue-loss"):
        report.check(code)
    if start.refuses:
        report.add("start.refuses", f"a broker {start.version} would not start: {start.refuses}")
        return start
    if start.hangs:
        report.add("start.hangs", f"a broker {start.version} would wait for ever while it starts")
    if start.messages_lost:
        report.add("start.data-loss", _loss(start), offset=start.max_offset_after)
    else:
        _check_other_starts(recovery, start, report)
    if start.max_offset_after is not None and start.max_offset_after >= log_end:
        _check_queues(start, states, report)
    return start


def _loss(start: Start) -> str:
    files = f" and delete {len(start.files_deleted)} files" if start.files_deleted else ""
    return (
        f"a start of a broker {start.version} would end the commit log at {start.max_offset_after}{files}: "
        f"{start.messages_lost} readable messages behind it would be lost"
    )


def _check_other_starts(recovery: Recovery, start: Start, report: Report) -> None:
    kinds = (
        ("after a clean stop", recovery.predict(unclean=False)),
        ("after a kill", recovery.predict(unclean=True)),
        ("after a kill and without a checkpoint", recovery.predict(unclean=True, checkpoint=NO_CHECKPOINT)),
    )
    worst = max(kinds, key=lambda kind: kind[1].messages_lost)
    if worst[1].messages_lost:
        report.add("start.other-mode-data-loss", f"{worst[0]}, {_loss(worst[1])}", offset=worst[1].max_offset_after)


def _check_queues(start: Start, states: Mapping[QueueName, QueueState], report: Report) -> None:
    """Queues that a start leaves with another end than their messages have, though the log stays as it is."""
    for change in start.queues:
        state = states.get(QueueName(change.topic, change.queue_id))
        if state is None or state.restarts or change.max_offset == state.next_offset:
            continue
        message = f"after a start of a broker {start.version} it ends at {change.max_offset}, its messages end at " \
                  f"{state.next_offset}"  # fmt: skip
        report.add("start.queue-loss", message, topic=change.topic, queue_id=change.queue_id,
                   queue_offset=min(change.max_offset, state.next_offset))  # fmt: skip
