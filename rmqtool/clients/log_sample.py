"""The messages at the end of the commit log by queue: what the log proves of queues without a scan of all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.dispatcher import Dispatcher
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from rmqtool.scan.record_at import record_at
from rmqtool.store.snapshot import Snapshot

SAMPLE_BYTES = 64 << 20
"""So much of the log is read at most: it takes less than a second."""

_REMOTE_BYTES = 1 << 20  # where each read is a request


class LoggedMessages(NamedTuple):
    """Messages of one queue in log order: queue offsets, how many messages each record has, physical offsets."""

    queue_offsets: NDArray[np.int64]
    counts: NDArray[np.int64]
    physical_offsets: NDArray[np.int64]

    def behind(self, physical_offset: int) -> LoggedMessages:
        """Those that were stored after the record at a physical offset."""
        rows = self.physical_offsets > physical_offset
        return LoggedMessages(*(column[rows] for column in self))

    def within(self, first: int, stop: int) -> LoggedMessages:
        """Those of queue offsets from `first` to before `stop`."""
        rows = (self.queue_offsets >= first) & (self.queue_offsets < stop)
        return LoggedMessages(*(column[rows] for column in self))


NO_MESSAGES = LoggedMessages(*(np.zeros(0, np.int64) for _ in LoggedMessages._fields))


@dataclass(frozen=True)
class LogSample:
    """The messages of a part of the log by queue, from physical offset `begin` to before `end`."""

    begin: int
    end: int
    queues: Mapping[QueueName, LoggedMessages] = field(default_factory=dict)

    def of(self, name: QueueName) -> LoggedMessages:
        """Those of one queue."""
        return self.queues.get(name, NO_MESSAGES)


class LogReader:
    """Reads parts of a log, and single records, as messages of their queues."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._dispatcher = Dispatcher(DispatchRules.of_snapshot(snapshot), snapshot.topics.with_batch_queues)

    @property
    def most_bytes(self) -> int:
        """How much of the log is read at most."""
        files = self._snapshot.log.files
        return _REMOTE_BYTES if files and files[0].modified_ns is not None else SAMPLE_BYTES

    def newest(self) -> LogSample:
        """The newest part of the log, all of it where it is small."""
        snapshot = self._snapshot
        if not snapshot.log.files:
            return LogSample(0, 0)
        end = snapshot.log_range.max_offset
        return self.read(max(snapshot.log_min_offset, end - self.most_bytes), end)

    def read(self, begin: int, end: int) -> LogSample:
        """The messages of the records from physical offset `begin` to before `end`; raises UnreadableError."""
        found: dict[QueueName, list[LoggedMessages]] = {}
        for event in scan_files(self._snapshot.log.files, begin, end, self._snapshot.reading):
            if isinstance(event, RecordRun):
                for name, messages in self._messages(event):
                    found.setdefault(name, []).append(messages)
        queues = {
            name: LoggedMessages(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
            for name, parts in found.items()
        }
        return LogSample(begin, end, queues)

    def belongs(self, name: QueueName, queue_offset: int, physical_offset: int) -> bool:
        """Whether the record at a physical offset is the message at a queue offset of a queue."""
        frame = record_at(self._snapshot.log.files, physical_offset)
        found = dict(self._messages(frame)).get(name) if frame is not None else None
        return found is not None and queue_offset in found.queue_offsets.tolist()

    def count_at(self, name: QueueName, physical_offset: int) -> int:
        """How many queue offsets the record at a physical offset takes in a queue; 1 where it is none of it."""
        frame = record_at(self._snapshot.log.files, physical_offset)
        found = dict(self._messages(frame)).get(name) if frame is not None else None
        return int(found.counts[0]) if found is not None else 1

    def _messages(self, run: RecordRun) -> Sequence[tuple[QueueName, LoggedMessages]]:
        units = self._dispatcher.dispatch(run).units
        return [
            (
                QueueName(*self._dispatcher.queues[number]),
                LoggedMessages(of_queue.queue_offsets, of_queue.message_counts.astype(np.int64),
                               of_queue.physical_offsets),
            )
            for number, of_queue in units.by_queue()
        ]  # fmt: skip
