"""The state of one queue while its records are checked: its proven units, and its records without a unit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqtool.broker.dispatched_units import QueueName, QueueUnits
from rmqtool.broker.field_damage import SuspectUnit
from rmqtool.broker.prediction import StartPrediction
from rmqtool.findings.report import Report
from rmqtool.formats.message import MIN_MESSAGE_SIZE
from rmqtool.rules.system_topics import LMQ_PREFIX, is_read_by_tag
from rmqtool.verify.bad_extents import Extents, gaps_between

MAX_LOOKUPS = 4096
"""Wrong units of one queue whose records are read one by one; further ones are only counted."""

_MAX_OPTIONAL = 4096
_MAX_DAMAGED = 1 << 16
MAX_EXAMPLES = 16
"""Records without a unit that are kept as examples; all are counted."""


@dataclass(slots=True)
class MissingUnits:
    """Records without a unit: their count, and the first of them as (queue offset, physical offset)."""

    count: int = 0
    examples: list[tuple[int, int]] = field(default_factory=list)

    def add(self, offsets: list[tuple[int, int]], count: int) -> None:
        """Add `count` records; `offsets` are those of the first."""
        self.count += count
        self.examples.extend(offsets[: MAX_EXAMPLES - len(self.examples)])


@dataclass(slots=True)
class QueueProgress:
    """One queue in a part of the log.

    `proven` are ranges of unit numbers that match their records, start and stop in turns, and those that are explained
    otherwise: these are in `bad`, too. `missing` are records without a unit, by code of the finding. `first_offset` is
    the queue offset of the first record, `next_offset` that after the last one; `had` counts the queue offsets of the
    records since the queue's offsets began again last, and `damaged` are those of records that are not whole.
    `optional` are queue offsets of records without a unit, to which only older releases give one. `lost` counts queue
    offsets whose records can only have been in damage of the log. `missed_by_tag` are places of units, by their queue
    offset, that lead to messages of another tag than they say, with how many messages each has. Where a start let the
    offsets of a light queue begin again, `begun` are the first two messages that it put at the end, by their physical
    offsets and units, whose numbers count as queue offsets, and `repeated` those that got no unit. What is empty in
    most of many queues is None.
    """

    name: QueueName
    records: int = 0
    had: int = 0
    first_offset: int = 0
    next_offset: int = 0
    first_physical_offset: int = 0
    last_physical_offset: int = 0
    restarts: int = 0
    lost: int = 0
    proven: list[int] = field(default_factory=list)
    bad: list[int] | None = None
    damaged: list[int] | None = None
    missing: dict[str, MissingUnits] | None = None
    begun: list[tuple[int, SuspectUnit]] | None = None
    repeated: MissingUnits | None = None
    optional: set[int] | None = None
    missed_by_tag: dict[int, int] | None = None
    may_jump: bool = False  # a queue of batches in RocksDB, of whose last one a start knows the first offset only
    past_unit: int = 0  # offsets of the last batch that its unit in a file does not have (`QueueUnits.message_counts`)

    @property
    def unit_end(self) -> int:
        """The queue offset after the unit of the last record, where the queue ends."""
        return self.next_offset - self.past_unit

    def add_optional(self, offset: int) -> None:
        """Note a record without a unit to which only older releases give one."""
        self.optional = self.optional or set()
        if len(self.optional) < _MAX_OPTIONAL:
            self.optional.add(offset)

    def may_hold_all_to(self, offset: int) -> bool:
        """Whether older releases give units to all queue offsets from the next one to before `offset`."""
        held = self.optional or ()
        return offset - self.next_offset <= len(held) and set(held).issuperset(range(self.next_offset, offset))

    @property
    def proven_ranges(self) -> Iterator[tuple[int, int]]:
        """Start and stop of each proven range."""
        return zip(*_turns(self.proven), strict=True)

    def prove(self, start: int, stop: int, *, is_bad: bool = False) -> None:
        """Note that units `start` to before `stop` match their records, or, where they are bad, why they do not."""
        _extend(self.proven, start, stop)
        if is_bad:
            self.bad = self.bad or []
            _extend(self.bad, start, stop)

    def damage(self, offsets: Iterable[int]) -> None:
        """Note the queue offsets of records that are not whole."""
        self.damaged = [*(self.damaged or ()), *offsets][:_MAX_DAMAGED]

    def note_tag(self, units: QueueUnits, stored: NDArray[np.void], row: int, number: int) -> None:
        """Note a unit whose messages consumers of their tag do not get: brokers compare the low 32 bits of its code."""
        own, low = int(units.tags_hashes[row]), int(stored["tags_code"].astype(np.int32)[row])
        is_led_to = stored["message_size"][row] == units.message_sizes[row]
        if own and own != low and is_led_to and is_read_by_tag(self.name.topic):
            is_batch = "base_queue_offset" in (stored.dtype.names or ())
            self.miss_by_tag(int(units.queue_offsets[row]) if is_batch else number, int(units.batch_sizes[row]))

    def miss_by_tag(self, place: int, messages: int) -> None:
        """Note a unit that does not lead consumers of its tag to its messages."""
        self.missed_by_tag = self.missed_by_tag or {}
        if len(self.missed_by_tag) < _MAX_DAMAGED:
            self.missed_by_tag[place] = messages

    def right_between(self, start: int, stop: int) -> int:
        """How many units from `start` to before `stop` lead to their messages, as far as those are whole."""
        right = _within(self.proven, start, stop) - _within(self.bad or (), start, stop)
        return right - sum(start <= offset < stop for offset in self.damaged or ())

    def right_at(self, units: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of some units, that ascend, lead to their messages, as far as those are whole."""
        right = np.zeros(len(units), np.bool_)
        for ranges, value in ((self.proven, True), (self.bad or (), False)):
            for first, stop in np.searchsorted(units, np.array(ranges, np.int64)).reshape(-1, 2).tolist():
                right[first:stop] = value
        return right & ~np.isin(units, self.damaged or ())

    def add_missing(self, code: str, offsets: list[tuple[int, int]], count: int) -> None:
        """Note records without a unit."""
        self.missing = self.missing or {}
        self.missing.setdefault(code, MissingUnits()).add(offsets, count)

    def begin_again(self, physical_offset: int, unit: SuspectUnit) -> None:
        """Note a message with offset 0 at the end of a light queue."""
        self.begun = [*(self.begun or ()), (physical_offset, unit)][:2]

    def repeat(self, queue_offset: int, physical_offset: int, count: int) -> None:
        """Note messages of a light queue with offsets before its end, by the first of them."""
        self.repeated = self.repeated or MissingUnits()
        self.repeated.add([(queue_offset, physical_offset)], count)

    def first_gap(self, start: int, stop: int) -> int:
        """The first offset from `start` to before `stop` whose unit does not lead to its whole message, else `stop`."""
        gaps = [low for low, _ in self.unproven(start, stop)]
        gaps += [
            max(start, low) for low, high in zip(*_turns(self.bad or ()), strict=True) if low < stop and high > start
        ]
        gaps += [offset for offset in self.damaged or () if start <= offset < stop]
        return min(gaps, default=stop)

    @property
    def missing_messages(self) -> int:
        """Messages without a unit."""
        return self.messages_of(sum(each.count for each in (self.missing or {}).values()))

    @property
    def misled_messages(self) -> int:
        """Messages with a unit that does not lead to them, or to more or less than them."""
        starts, stops = _turns(self.bad or ())
        return self.messages_of(sum(stops) - sum(starts))

    def messages_of(self, units: int) -> int:
        """How many messages so many units have, by their average: a unit may be that of a batch."""
        return -(-units * self.had // self.records) if units and self.records else 0

    def restart(self) -> None:
        """Note that the queue's offsets begin again: missing units belong to a queue that was deleted."""
        self.restarts += 1
        self.had = 0
        self.missing = self.damaged = self.missed_by_tag = None

    def extend(self, later: QueueProgress) -> None:
        """Add the state of the same queue in a later part of the log."""
        if later.restarts:
            self.missing = self.damaged = self.missed_by_tag = None
        for start, stop in later.proven_ranges:
            self.prove(start, stop)
        if later.bad:
            self.bad = [*(self.bad or ()), *later.bad]
        if later.damaged:
            self.damage(later.damaged)
        for place, messages in (later.missed_by_tag or {}).items():
            self.miss_by_tag(place, messages)
        for code, missing in (later.missing or {}).items():
            self.add_missing(code, missing.examples, missing.count)
        for offset in later.optional or ():
            self.add_optional(offset)
        self._extend_light(later)
        if not later.records:
            return
        if not self.records:
            self.first_offset, self.first_physical_offset = later.first_offset, later.first_physical_offset
        self.records += later.records
        self.had = later.had if later.restarts else self.had + later.had
        self.lost += later.lost
        self.may_jump |= later.may_jump
        self.restarts += later.restarts
        self.next_offset, self.last_physical_offset = later.next_offset, later.last_physical_offset
        self.past_unit = later.past_unit

    def _extend_light(self, later: QueueProgress) -> None:
        for each in later.begun or ():
            self.begin_again(*each)
        if later.repeated:
            self.repeat(*later.repeated.examples[0], later.repeated.count)

    def with_whole(self, offsets: Iterable[int]) -> QueueProgress:
        """The same with messages at some queue offsets, taken for damage so far, whose units lead to them."""
        found = replace(self, proven=[*self.proven])
        for offset in offsets:
            found.lost -= found.lost > 0 and found.first_offset <= offset < found.next_offset
            found.prove(offset, offset + 1)
            found.first_offset = min(found.first_offset, offset) if found.records else offset
            found.next_offset = max(found.next_offset, offset + 1)
            found.records += 1
            found.had += 1
        return found

    def unproven(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Ranges of unit numbers from `start` to before `stop` that match no record."""
        return gaps_between(self.proven_ranges, start, stop)


def _extend(ranges: list[int], start: int, stop: int) -> None:
    """Add a range to `ranges`, start and stop in turns, which it may continue."""
    if ranges and ranges[-2] <= start <= ranges[-1]:
        ranges[-1] = max(ranges[-1], stop)
    else:
        ranges += (start, stop)


def _turns(ranges: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    return ranges[::2], ranges[1::2]


def _within(ranges: Sequence[int], start: int, stop: int) -> int:
    """How many numbers of `ranges`, which may overlap, are from `start` to before `stop`."""
    count, at = 0, start
    for low, high in sorted(zip(*_turns(ranges), strict=True)):
        if max(low, at) < min(high, stop):
            count += min(high, stop) - max(low, at)
            at = min(high, stop)
    return count


def report_jump(state: QueueProgress, offset: int, physical_offset: int, report: Report, extents: Extents) -> None:
    """Report a record whose queue offset does not follow that of the last record of its queue."""
    if offset == state.next_offset or state.may_jump:
        return
    given: dict[str, Any] = {"topic": state.name.topic, "queue_id": state.name.queue_id, "offset": physical_offset}
    if offset < state.next_offset:
        offsets = {"found": offset, "expected": state.next_offset}
        report.add("commitlog.queue-offset-restart", queue_offset=offset, details=offsets, **given)
        state.restart()
    elif extents.between(state.last_physical_offset, physical_offset):
        room = extents.damaged_between(state.last_physical_offset, physical_offset) // MIN_MESSAGE_SIZE
        state.lost += min(offset - state.next_offset, room)
    elif physical_offset >= extents.chosen_until and not state.may_hold_all_to(offset):
        skipped = offset - state.next_offset
        gap = {"queue_offsets": skipped, "first": state.next_offset}
        report.add("commitlog.queue-offset-gap", queue_offset=offset, details=gap, **given)


def is_derived(start: StartPrediction | None, state: QueueProgress) -> bool:
    """Whether the predicted start, after a kill, leaves a queue with all its messages in the log.

    Of batches in RocksDB it knows first offsets only: each of them gets its row. Without a prediction nothing is known.
    """
    if start is None or start.refuses or start.mode != "abnormal":
        return False
    here = [change for change in start.queues if (change.topic, change.queue_id) == state.name]
    if state.may_jump:
        return any(change.dispatched and not change.lost for change in here)
    in_files = [change for change in here if not change.in_rocksdb]
    return any(
        change.min_offset <= state.first_offset and change.max_offset == state.unit_end for change in in_files or here
    )


_DERIVED = "the next start, which recovers after the crash, derives the queue from the commit log"

_NEVER_IN_QUEUE = (
    "consumers of the light queue never get these messages, those of the messages' own topics do; a start takes "
    "nothing more away"
)

WHETHER_DELETED = (
    "whether topics were deleted",
    "whether topics were deleted: the log has messages of topics that are not configured, and no queue is left "
    "that would tell a topic that was deleted from one that is lost",
)


def report_missing_units(
    state: QueueProgress, deleted: Collection[str], report: Report, start: StartPrediction | None, *, live: bool
) -> None:
    """Report the missing units of one queue, except those that a running broker has yet to dispatch.

    Nobody misses those of `deleted` topics. A killed broker may not have created a queue yet: when the predicted
    `start` derives all of it, nothing is lost. Those `repeated` were never there, by the release.
    """
    name = state.name
    if state.repeated:
        offset, physical_offset = state.repeated.examples[0]
        report.add("commitlog.queue-offset-restart", severity="info", effect=_NEVER_IN_QUEUE, topic=name.topic,
                   queue_id=name.queue_id, queue_offset=offset, offset=physical_offset,
                   details={"problem": "light", "messages": state.repeated.count})  # fmt: skip
    for code, missing in (state.missing or {}).items():
        if live and code == "consumequeue.behind":
            continue
        offset, physical_offset = missing.examples[0]
        facts = {"problem": "no-unit", "messages": missing.count, "physical_offset": physical_offset}
        given: dict[str, Any] = {
            "count": missing.count, "topic": name.topic, "queue_id": name.queue_id, "details": facts,
        }  # fmt: skip
        if code == "consumequeue.missing-queue" and name.topic in deleted:
            report.add("commitlog.deleted-topic", offset=physical_offset, **given)
        elif code == "consumequeue.missing-queue" and is_derived(start, state):
            report.add(code, severity="warning", effect=_DERIVED, queue_offset=offset, **given)
        else:
            report.add(code, queue_offset=offset, **given)


def last_messages(topics: Iterable[str], states: Mapping[QueueName, QueueProgress]) -> dict[str, list[int]]:
    """Of topics the physical offsets of the last messages of their queues in the log."""
    lasts: dict[str, list[int]] = {topic: [] for topic in topics}
    for name, state in states.items():
        if name.topic in lasts:
            lasts[name.topic].append(state.last_physical_offset)
    return lasts


def lost_by_topic(
    led_to: Counter[QueueName], states: Mapping[QueueName, QueueProgress], deleted: Collection[str]
) -> Counter[str]:
    """The messages that were in damage: units lead there (`led_to`), or the queue offsets around it leave them out.

    Light queues count only where nothing else does, for they have what another queue has, too.
    """
    lost: Counter[str] = Counter()
    for name, count in led_to.items():
        lost[name.topic] += count
    for name, state in states.items():
        if state.lost > led_to[name] and (led_to[name] or name.topic not in deleted):
            lost[name.topic] += state.lost - led_to[name]
    ordinary = Counter({topic: count for topic, count in lost.items() if not topic.startswith(LMQ_PREFIX)})
    return ordinary or lost
