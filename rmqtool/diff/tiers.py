"""The tiers of two stores, queue by queue: the messages that one store alone has, and those that differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.errors import UnreadableError
from rmqtool.diff.records import Side
from rmqtool.formats.consume_queue import UNIT_SIZE
from rmqtool.scan.pointed_records import read_heads, sound_records
from rmqtool.store.compaction import digests_of
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.tiered import Tier, TieredQueue, are_of, tier_of
from rmqtool.store.unit_files import open_units

_UNITS_AT_ONCE = 1 << 16
_MOST_RANGES = 100


@dataclass(frozen=True)
class TierRange:
    """The queue offsets that a tier has of a queue, the maximum exclusive."""

    min_offset: int
    max_offset: int


@dataclass
class OwnMessages:
    """Messages of a queue that one store has in its tier, and the other store has nowhere; the first 100 ranges."""

    messages: int = 0
    ranges: list[TierRange] = field(default_factory=list)

    def note(self, first: int, mask: NDArray[np.bool_]) -> None:
        """Note the queue offsets from `first` on whose messages are own ones."""
        edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]])))
        self.messages += int(np.count_nonzero(mask))
        for start, stop in (edges.reshape(-1, 2) + first).tolist():
            if self.ranges and self.ranges[-1].max_offset == start:
                self.ranges[-1] = TierRange(self.ranges[-1].min_offset, stop)
            elif len(self.ranges) < _MOST_RANGES:
                self.ranges.append(TierRange(start, stop))


@dataclass
class DifferingTier:
    """A queue whose tiers differ: None where a tier does not have it.

    `different` messages have the same queue offset and other bytes, the first of them at `first_different`.
    """

    topic: str
    queue_id: int
    a: TierRange | None
    b: TierRange | None
    only_a: OwnMessages = field(default_factory=OwnMessages)
    only_b: OwnMessages = field(default_factory=OwnMessages)
    different: int = 0
    first_different: int | None = None


def compare_tiers(a: Side, b: Side) -> Iterator[DifferingTier]:
    """The queues that differ: one store has messages of them that the other has neither in its tier nor in its log."""
    first, second = _queues_of(a), _queues_of(b)
    for key in sorted(first.keys() | second.keys()):
        try:
            found = _compare(_Queue(a.snapshot, *key, first.get(key)), _Queue(b.snapshot, *key, second.get(key)))
        except UnreadableError as error:
            a.unread.append(error)
            continue
        if found.only_a.messages or found.only_b.messages or found.different:
            yield found


def _queues_of(side: Side) -> dict[tuple[str, int], TieredQueue]:
    tier = tier_of(side.snapshot.store)
    return {(queue.topic, queue.queue_id): queue for queue in tier.queues} if isinstance(tier, Tier) else {}


@dataclass(frozen=True)
class _Queue:
    """One queue of a side, in its tier or not."""

    snapshot: Snapshot
    topic: str
    queue_id: int
    tiered: TieredQueue | None

    @property
    def held(self) -> TierRange | None:
        """The queue offsets of the tier."""
        return TierRange(self.tiered.min_offset, self.tiered.max_offset) if self.tiered else None

    @property
    def spans(self) -> Iterator[range]:
        """The queue offsets of each segment of units."""
        for file in self.tiered.units if self.tiered else ():
            yield range(file.start_offset // UNIT_SIZE, file.end_offset // UNIT_SIZE)

    def are_local(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which queue offsets the local queue has."""
        local = self.snapshot.queue(self.topic, self.queue_id)
        if local is None:
            return np.zeros(len(numbers), np.bool_)
        are: NDArray[np.bool_] = (numbers >= local.range.min_offset) & (numbers < local.range.max_offset)
        return are

    def digests(self, first: int, count: int) -> tuple[NDArray[np.bool_], NDArray[np.uint64]]:
        """Of which queue offsets from `first` on the tier has the whole message, and their `digests_of`."""
        has, digests = np.zeros(count, np.bool_), np.zeros(count, np.uint64)
        if self.tiered is None:
            return has, digests
        with open_units(self.tiered.queue, self.snapshot.reading) as units:
            stored = units.units(first, count)
        there = np.flatnonzero(stored["message_size"] > 0)
        offsets, rows = np.unique(stored["physical_offset"][there].astype(np.int64), return_index=True)
        for chosen, run in sound_records(self.tiered.log, read_heads(self.tiered.log, offsets), self.snapshot.reading):
            numbers = run.headers.field("queue_offset").astype(np.int64) - first
            is_own = are_of(run, self.topic, self.queue_id) & (numbers == there[rows[chosen]])
            has[numbers[is_own]], digests[numbers[is_own]] = True, digests_of(run)[is_own]
        return has, digests


def _compare(a: _Queue, b: _Queue) -> DifferingTier:
    found = DifferingTier(a.topic, a.queue_id, a.held, b.held)
    for first, count in _windows(sorted([*a.spans, *b.spans], key=lambda span: span.start)):
        numbers = np.arange(first, first + count)
        (has_a, digests_a), (has_b, digests_b) = a.digests(first, count), b.digests(first, count)
        found.only_a.note(first, has_a & ~has_b & ~b.are_local(numbers))
        found.only_b.note(first, has_b & ~has_a & ~a.are_local(numbers))
        differing = np.flatnonzero(has_a & has_b & (digests_a != digests_b))
        if len(differing):
            found.different += len(differing)
            found.first_different = (
                first + int(differing[0]) if found.first_different is None else found.first_different
            )
    return found


def _windows(spans: list[range]) -> Iterator[tuple[int, int]]:
    """The queue offsets of all spans, each once, in pieces: the first one and how many."""
    done = 0
    for span in spans:
        for first in range(max(done, span.start), span.stop, _UNITS_AT_ONCE):
            yield first, min(_UNITS_AT_ONCE, span.stop - first)
        done = max(done, span.stop)
