"""Which messages consumers get of the queues after a start, and which of those that they had they do not get."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.prediction import QueueChange, StartPrediction
from rmqtool.clients.losses import UnreachableQueue
from rmqtool.rules.system_topics import LMQ_PREFIX
from rmqtool.rules.versions import ROWS_ONE_BY_ONE, Version
from rmqtool.store.queue_units import QueueRange


class QueueEvidence(Protocol):
    """What the log and the units of a queue prove; offsets are queue offsets.

    The log has messages from `first_offset` to before `next_offset`, of which `had` still belong to the queue.
    """

    name: QueueName
    records: int
    had: int
    first_offset: int
    next_offset: int

    @property
    def unit_end(self) -> int:
        """The end of its last unit: before `next_offset` where that has only the first offset of a batch."""

    @property
    def damaged(self) -> Sequence[int] | None:
        """Queue offsets of messages that are not whole."""

    @property
    def missing_messages(self) -> int:
        """Messages without a unit."""

    @property
    def misled_messages(self) -> int:
        """Messages with a unit that does not lead to them, or to more or less than them."""

    def messages_of(self, units: int) -> int:
        """How many messages so many units have, by their average."""

    def right_between(self, start: int, stop: int) -> int:
        """How many units from `start` to before `stop` lead to their whole messages."""

    def right_at(self, units: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of some units do."""

    def first_gap(self, start: int, stop: int) -> int:
        """The first offset from `start` to before `stop` without such a unit; `stop` where there is none."""


@dataclass(frozen=True)
class ServedQueue:
    """What a broker serves of a queue: offsets from `min_offset` to before `max_offset`.

    The start derives the units of `derived` of them from the log, the last `misplaced` of these at other offsets than
    their messages have; they are the last ones, but for `revived` units that were there.
    """

    min_offset: int
    max_offset: int
    derived: int = 0
    misplaced: int = 0
    revived: int = 0

    @property
    def derived_end(self) -> int:
        """Where the derived ones end."""
        return self.max_offset - self.revived

    @property
    def right_until(self) -> int:
        """Up to which queue offset the units may lead to the messages of their offsets, but for revived ones."""
        return self.derived_end - self.misplaced

    def keeps(self, queue_offset: int) -> bool:
        """Whether a unit that was there stands at a queue offset."""
        is_derived = self.derived_end - self.derived <= queue_offset < self.derived_end
        return self.min_offset <= queue_offset < self.max_offset and not is_derived

    def served(self, queue: QueueEvidence, *, in_batches: bool) -> int:
        """How many messages of the queue consumers get."""
        if in_batches:  # whose units are not numbered by queue offset, and whose minimum the next cleaning corrects
            end = queue.next_offset if self.max_offset >= queue.unit_end else self.max_offset
            within = max(0, end - queue.first_offset)
            outside = queue.next_offset - queue.first_offset - within  # where those without a unit are looked for first
            gone = max(0, queue.next_offset - queue.first_offset - queue.had)  # from the log
            missing = queue.missing_messages + queue.misled_messages - queue.messages_of(self.derived)
            return max(0, within - max(0, gone + missing - outside))
        derived_from = self.derived_end - self.derived
        derived = min(self.right_until, queue.next_offset) - max(derived_from, queue.first_offset)
        kept = queue.right_between(self.min_offset, derived_from)
        return kept + max(0, derived) + queue.right_between(self.derived_end, self.max_offset)


_NOTHING = ServedQueue(0, 0)


def served_queues(
    ranges: Mapping[QueueName, QueueRange], start: StartPrediction | None, *, twice: bool
) -> dict[QueueName, ServedQueue]:
    """The queues after a start, or as they stand; of queues that are written `twice` the files are read."""
    served = {name: ServedQueue(each.min_offset, each.max_offset) for name, each in ranges.items()}
    for name, change in read_changes(start, twice=twice) if start else ():
        served[name] = ServedQueue(change.min_offset, change.served_end, change.dispatched, change.misplaced,
                                   change.revived)  # fmt: skip
    return served


def read_changes(start: StartPrediction, *, twice: bool) -> Iterator[tuple[QueueName, QueueChange]]:
    """The queues that a start changes, as consumers read them; where they are written `twice`, those in files.

    Light queues are then in RocksDB only.
    """
    for change in start.queues:
        if not (twice and change.in_rocksdb) or change.topic.startswith(LMQ_PREFIX):
            yield QueueName(change.topic, change.queue_id), change


def read_change(name: QueueName, start: StartPrediction, *, twice: bool) -> QueueChange | None:
    """How a start changes a queue, as consumers read it; None for one that it leaves as it is."""
    return dict(read_changes(start, twice=twice)).get(name)


def unreachable_queues(
    queues: Iterable[QueueEvidence],
    served: Mapping[QueueName, ServedQueue],
    in_damage: Mapping[QueueName, int],
    is_batch: Callable[[QueueEvidence], bool],
) -> Iterator[UnreachableQueue]:
    """The queues of which consumers had messages that they do not get, each with the first of these.

    `in_damage` counts messages of which the log holds only damage; `is_batch` says of which queues units are not
    numbered by queue offset.
    """
    for queue in queues:
        now = served.get(queue.name, _NOTHING)
        lost = in_damage.get(queue.name, 0)
        in_batches = is_batch(queue)
        messages = queue.had + lost - now.served(queue, in_batches=in_batches)
        if messages > 0:
            begins_later = now.min_offset > queue.first_offset
            first = queue.first_offset if begins_later else queue.first_gap(queue.first_offset, now.right_until)
            first = max(first, queue.first_offset)
            damaged = len(queue.damaged or ())
            not_whole = min(messages, lost + (queue.messages_of(damaged) if in_batches else damaged))
            yield UnreachableQueue(queue.name.topic, queue.name.queue_id, first, messages, not_whole)


def unreachable_batches(
    queue: QueueEvidence, rows: NDArray[np.int64], end: int, now: ServedQueue, version: Version
) -> UnreachableQueue | None:
    """The messages of a batch queue in RocksDB that consumers do not get any more; None where there are none.

    They had those at the queue offsets `rows`, in a queue that ended at `end`: a batch is got at its first offset only.
    """
    had = _read(rows, end, version)
    right = queue.right_at(rows)
    kept = right & (rows >= now.min_offset) & (rows < now.max_offset)
    kept[kept] = _read(rows[kept], now.max_offset, version)
    lost = had & ~kept
    sizes = np.diff(rows, append=max(queue.next_offset, int(rows[-1]) + 1 if len(rows) else 0))
    without_row = queue.missing_messages if version < ROWS_ONE_BY_ONE else 0
    messages, not_whole = int(sizes[lost].sum()) + without_row, int(sizes[lost & ~right].sum())
    first = int(rows[lost][0]) if lost.any() else queue.first_gap(queue.first_offset, queue.next_offset)
    return UnreachableQueue(*queue.name, first, messages, not_whole) if messages else None


def _read(rows: NDArray[np.int64], end: int, version: Version) -> NDArray[np.bool_]:
    """Which rows a pull gets: one that reads them singly fails where the next queue offset has none."""
    if version < ROWS_ONE_BY_ONE:
        return np.ones(len(rows), np.bool_)
    followed: NDArray[np.bool_] = np.append(rows, end)[1:] == rows + 1
    return followed
