"""Delayed messages of the levels: what clients had coming, against what comes after a start (`ScheduleMessageService`).

A level delivers its queue in order, from the offset in `delayOffset.json` on, each message at the time that its unit
holds in place of the tags code, or at once where that is later than the level's delay from now on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.prediction import StartPrediction
from rmqtool.clients.losses import Due
from rmqtool.clients.queue_view import QueueViews
from rmqtool.clients.queues import QueueEvidence, read_change
from rmqtool.formats.consume_queue import MAX_EXT_ADDRESS
from rmqtool.rules.broker_conf import known_levels
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.rules.system_topics import SCHEDULE_TOPIC
from rmqtool.rules.versions import (
    DELAY_OFFSET_IN_RANGE,
    delays_unknown_to_recovery,
    delivery_stops,
    notes_first_of_run,
    parse_version,
)
from rmqtool.scan.single_record import single_record_at
from rmqtool.store.config_tables import load_delay_offsets
from rmqtool.store.delays_seen import SeenDelays, observed_delays
from rmqtool.store.queue_units import LoadedQueue, QueueRange, reads_ext_units, with_ext_codes
from rmqtool.store.single_messages import Deliveries, LoggedLevels, SingleMessages
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.unit_files import open_units, written_units

_MOST_DERIVED = 4096  # messages of one level that are looked up one by one
_YEARS = 10 * 365 * 24 * 3600 * 1000  # ms: farther from the newest message no delivery time is

LogEvidence = Mapping[QueueName, QueueEvidence]
"""What the log proves of the queues of which it holds messages."""


@dataclass(frozen=True)
class DelayRequest:
    """What the comparison needs: `now` is when the broker is started, epoch ms, `newest` the newest store timestamp.

    `offsets` are the delay offsets by level; with None those of the store count. If they `are_proven`, a level goes on
    where the log shows that its deliveries end, whatever its offset. Of deliveries from `known_until` on
    `delayOffset.json` need not know, as after a kill. `beyond` counts the last units of queues that lead past the last
    file of the log.
    With `checks_times` each
    unit's time is compared with its record, as where a verification has found wrong ones; else only those that cannot
    be times at all. Messages before the physical offset `lacks_until` may be missing in the log. `is_rebuilt`
    asks about queues that this program derives again, with the times that they had. `undeliverable` are the queue
    offsets of messages that no broker can deliver. `led_to` counts units that lead to what the log has no more,
    `put_right` messages that are whole again.
    """

    now: int
    newest: int
    known_until: int
    checks_times: bool = False
    lacks_until: int = 0
    offsets: Mapping[int, int] | None = None
    are_proven: bool = False
    beyond: Mapping[QueueName, int] = field(default_factory=dict)
    is_rebuilt: bool = False
    undeliverable: Mapping[QueueName, Sequence[int]] = field(default_factory=dict)
    led_to: Mapping[QueueName, int] = field(default_factory=dict)
    put_right: Mapping[QueueName, int] = field(default_factory=dict)


def logged_levels(snapshot: Snapshot, log: LogEvidence) -> LoggedLevels:
    """The levels as the log has them."""
    views, known = QueueViews.of_snapshot(snapshot), known_levels(snapshot.store.conf)
    seen = cache(lambda: observed_delays(snapshot.store, snapshot.database))
    levels = {name.queue_id + 1: each for name, each in log.items() if name.topic == SCHEDULE_TOPIC and each.records}
    return LoggedLevels(
        {level: each.first_offset for level, each in levels.items()},
        {level: each.next_offset for level, each in levels.items()},
        views.logged_after,
        lambda level, queue_offset: views.logged_at(SCHEDULE_TOPIC, level - 1, queue_offset),
        lambda level: known.delays[min(level, known.highest) - 1] if known else seen().get(level, 0),
    )


def delayed_due(snapshot: Snapshot, start: StartPrediction, log: LogEvidence, request: DelayRequest) -> Due:
    """Count delayed messages that come early, late, never or again after the predicted `start`.

    Of one that is refused, as the files stand. What is overdue in both states comes at the same time. Raises
    RmqtoolError.
    """
    levels = _Levels(snapshot, start, log, request)
    return sum((each for name in levels.names() for each in levels.losses(name)), Due())


def come_again(snapshot: Snapshot, start: StartPrediction, log: LogEvidence, request: DelayRequest) -> int:
    """How many messages come again because the store's release does not note all that it delivers.

    Raises RmqtoolError.
    """
    if not notes_first_of_run(snapshot.release):
        return 0
    levels = _Levels(snapshot, start, log, request)
    return sum(each.again for name in levels.names() if levels.is_one_run(name) for each in levels.losses(name))


@dataclass(frozen=True)
class _After:
    """A level's queue once a broker has started: queue offsets, and those of units that it derives from the log.

    Units of `elsewhere` lead to messages whose own offsets are by `shift` higher.
    """

    first: int
    end: int
    derived: range
    elsewhere: range
    shift: int = 0

    def led_to(self, begin: int, first: int, stop: int) -> range:
        """The messages, of `first` to `stop`, that units `elsewhere` from offset `begin` on lead to."""
        places = self.elsewhere
        return range(max(max(begin, places.start) + self.shift, first), min(places.stop + self.shift, stop))

    def stored(self, first: int, stop: int) -> Iterator[tuple[int, int]]:
        """Where units between two offsets are those on disk."""
        before, after = min(self.derived.start, stop), max(self.elsewhere.stop, first)
        yield from (part for part in ((first, before), (after, stop)) if part[0] < part[1])


class _Levels:
    """The levels of one store, and what a start makes of them."""

    def __init__(self, snapshot: Snapshot, start: StartPrediction, log: LogEvidence, request: DelayRequest) -> None:
        self._snapshot = snapshot
        self._start = start
        self._log = log
        self._request = request
        messages = SingleMessages(snapshot)
        self._logged = logged_levels(snapshot, log)
        self._deliveries = Deliveries(messages, request.newest, request.known_until, request.lacks_until, self._logged,
                                      may_end_early=start.mode == "abnormal")  # fmt: skip
        offsets = load_delay_offsets(snapshot.store).by_level if request.offsets is None else request.offsets
        self._offsets = dict(offsets)
        if request.are_proven:
            ends = ((name.queue_id + 1, self._deliveries.end_of(name.queue_id + 1)) for name in self.names())
            self._offsets |= {level: end for level, end in ends if end is not None}
        self._by_run = {level.level: level for level in self._deliveries.levels(self._offsets)}
        known = known_levels(snapshot.store.conf)
        self._highest = known.highest if known else None
        self._seen = observed_delays(snapshot.store, snapshot.database) if known else {}

    def names(self) -> list[QueueName]:
        """The queues of all levels."""
        names = {name for name in (*self._log, *self._request.beyond) if name.topic == SCHEDULE_TOPIC}
        return sorted(
            names | {QueueName(SCHEDULE_TOPIC, number) for number in self._snapshot.queue_ids(SCHEDULE_TOPIC)}
        )

    def is_one_run(self, name: QueueName) -> bool:
        """Whether what a level delivers again was delivered in one run with what its offset notes."""
        run = self._by_run.get(name.queue_id + 1)
        return run is not None and self._deliveries.is_one_run(run)

    def losses(self, name: QueueName) -> Iterator[Due]:
        """What one level loses."""
        level = name.queue_id + 1
        queue = self._snapshot.queue(*name)
        after = self._after(name, queue)
        first, whole_end, end = self._had(name, queue, after)
        offset = self._offsets.get(level, 0)
        begin = max(offset, after.first)
        if self._is_corrected:
            begin = min(begin, max(after.derived.start if self._derives_late else after.end, after.first))
        delivered = self._delivered(level, offset) if self._request.newest else self._due_until(offset, queue)
        waits_from = max(first, delivered)
        if self._highest is not None and level > self._highest:
            yield Due(never=max(0, end - waits_from))
            return
        served_end = min(whole_end, after.end)
        undelivered = self._undelivered(name, max(waits_from, begin), served_end)
        if undelivered and self._stops:
            served_end, undelivered = undelivered[0], []
        again = range(max(first, begin), min(delivered, served_end))
        elsewhere = after.led_to(begin, first, min(delivered, whole_end))
        yield Due(again=len(again) - _common(again, after.elsewhere) + len(elsewhere))
        reached_from, state = max(waits_from, begin), self._log.get(name)
        reached = max(0, self._reached(name, reached_from, served_end, after) - len(undelivered))
        elsewhere = after.led_to(begin, waits_from, whole_end)
        if state and elsewhere:
            own = after.stored(max(reached_from, elsewhere.start), min(served_end, elsewhere.stop))
            elsewhere = elsewhere[sum(state.right_between(*part) for part in own) :]
            yield self._derived(level, elsewhere)
        yield Due(never=max(0, end - waits_from - reached - len(elsewhere)))
        if reached:
            yield self._moved(level, queue, range(reached_from, served_end), after, undelivered)

    def _reached(self, name: QueueName, first: int, end: int, after: _After) -> int:
        """How many whole messages the queue leads to, of queue offsets from `first` to before `end`."""
        state, request = self._log.get(name), self._request
        if end <= first:
            return 0
        if state is None:  # the log has damage in the place of all of them, unless they have been deleted in time
            whole = request.put_right.get(name, 0) if request.is_rebuilt else 0
            return min(end - first, whole) if self._damaged(name) else end - first
        if request.is_rebuilt:
            gaps = max(0, state.next_offset - state.first_offset - state.had) + len(state.damaged or ())
            gaps += request.led_to.get(name, 0) - request.put_right.get(name, 0)
            return end - first - min(max(0, gaps), end - first - state.right_between(first, end))
        kept = sum(state.right_between(*part) for part in after.stored(first, end))
        return kept + _common(after.derived, range(first, end))

    def _undelivered(self, name: QueueName, first: int, end: int) -> Sequence[int]:
        """The queue offsets, from `first` to before `end`, of messages without a destination."""
        return sorted(each for each in self._request.undeliverable.get(name, ()) if first <= each < end)

    @property
    def _stops(self) -> bool:
        """Whether a level stands still at such a message."""
        return delivery_stops(parse_version(self._start.version))

    @property
    def _derives_late(self) -> bool:
        """Whether the start derives units only once it has loaded the offsets of the levels."""
        rules = RecoveryRules.of(parse_version(self._start.version), self._snapshot.store.conf)
        return self._start.mode == "normal" and rules.dispatches_from_queues

    @property
    def _is_corrected(self) -> bool:
        """Whether a start moves an offset past the end of its queue to the end (`correctDelayOffset`)."""
        return parse_version(self._start.version) >= DELAY_OFFSET_IN_RANGE

    def _after(self, name: QueueName, queue: LoadedQueue | None) -> _After:
        change = read_change(name, self._start, twice=self._snapshot.has_queues_twice)
        if change:
            end, right_end = change.derived_end, change.derived_end - change.misplaced
            derived, elsewhere = range(end - change.dispatched, right_end), range(right_end, end)
            return _After(change.min_offset, change.served_end, derived, elsewhere, change.shift)
        known = queue.range if queue else QueueRange(0, 0)
        end = known.max_offset
        return _After(end if known.expired else max(0, known.min_offset), end, range(end, end), range(end, end))

    def _had(self, name: QueueName, queue: LoadedQueue | None, after: _After) -> tuple[int, int, int]:
        """The queue offsets of the first message that clients had, past the last one in the log, and past the last."""
        beyond = self._request.beyond.get(name, 0)
        if name in self._log:
            first, end = self._log[name].first_offset, self._log[name].next_offset
            if queue is None or not self._request.led_to.get(name):
                return first, end, end + beyond
            return min(first, max(0, queue.range.min_offset)), end, max(end + beyond, queue.range.max_offset)
        is_damaged = self._damaged(name) > 0
        if queue is None or not (beyond or is_damaged):  # without a log all is expired
            return after.first if self._request.newest else after.end, after.end, after.end
        end = queue.range.max_offset
        return max(0, queue.range.min_offset) if is_damaged else end - beyond, end - beyond, end

    def _damaged(self, name: QueueName) -> int:
        """How many units lead into damage of files of the log that are there."""
        return max(0, self._request.led_to.get(name, 0) - self._request.beyond.get(name, 0))

    def _delivered(self, level: int, offset: int) -> int:
        """The queue offset after the last message that clients have got, by the log; else as the file says."""
        end = self._deliveries.end_of(level)
        if end is not None:
            return end
        run = self._by_run.get(level)
        return offset + run.repeated - run.skipped if run else offset

    def _due_until(self, offset: int, queue: LoadedQueue | None) -> int:
        """The same without a log: what was due before its last message, as the checkpoint says, was delivered."""
        until = (self._snapshot.checkpoint or {}).get("physic_message_timestamp", 0)
        for numbers, units in written_units(queue.queue, max(0, offset), queue.range.max_offset) if queue else ():
            waits = (units["tags_code"] <= MAX_EXT_ADDRESS) | (units["tags_code"] >= until)
            if waits.any():
                return max(offset, int(numbers[np.argmax(waits)]))
            offset = int(numbers[-1]) + 1
        return offset

    def _moved(
        self, level: int, queue: LoadedQueue | None, reached: range, after: _After, undelivered: Sequence[int]
    ) -> Due:
        """Of messages that are reached, and delivered, those that come at another time."""
        delays, (seen, delay) = self._snapshot.delay_levels, self._delays_of(level)
        is_other = seen != delay
        due, counted = Due(), 0
        with open_units(queue.queue, self._snapshot.reading) if queue else nullcontext() as files:
            times = SeenDelays(files, delays, self._snapshot.log.files) if files else None
            for numbers, found in written_units(queue.queue, reached.start, reached.stop) if queue else ():
                store, units = self._snapshot.store, found
                if queue and reads_ext_units(store):
                    units = with_ext_codes(store, queue.queue, found)
                had = units["tags_code"].astype(np.int64)
                comes = had.copy()
                is_odd = np.abs(had - self._request.newest) > _YEARS
                is_derived = _within(numbers, after.derived) & (not self._request.is_rebuilt)
                for row in np.flatnonzero(is_odd | self._request.checks_times | (is_other & is_derived)).tolist():
                    written = self._stored_at(int(units["physical_offset"][row]))
                    if written is None:
                        continue
                    if times and not times.are_sound(int(numbers[row]), units[row : row + 1], np.array([written]))[0]:
                        had[row] = written + seen
                    if is_derived[row] or comes[row] <= MAX_EXT_ADDRESS:  # the broker computes these times again
                        comes[row] = written + delay
                if self._derives_hashes:
                    comes[is_derived] = 0
                if self._request.is_rebuilt:
                    comes = had
                here = ~_within(numbers, after.elsewhere)
                counted += int(np.count_nonzero(here))
                here &= ~np.isin(numbers, undelivered)
                due += self._compared(had[here], comes[here], delay)
        missing = len(reached) - _common(reached, after.elsewhere) - counted
        if missing > 0 and not self._request.is_rebuilt:
            end = min(reached.stop, after.derived.stop)
            due += self._derived(level, range(end - missing, end))
        return due

    @property
    def _derives_hashes(self) -> bool:
        """Whether what the start derives gets the hash of its tag for a time, and so is due at once."""
        return self._start.mode == "abnormal" and delays_unknown_to_recovery(parse_version(self._start.version))

    def _delays_of(self, level: int) -> tuple[int, int]:
        """The delay that a level had, and the one that it has, ms."""
        delays = self._snapshot.delay_levels
        delay = delays.delays[min(level, delays.highest) - 1]
        return self._seen.get(level, delay), delay

    def _derived(self, level: int, queue_offsets: range) -> Due:
        """Messages without a unit that are derived with other times than the delay that the level had gives."""
        seen, delay = self._delays_of(level)
        if seen == delay and not self._derives_hashes:
            return Due()
        at = (self._logged.physical_offset(level, offset) for offset in queue_offsets[:_MOST_DERIVED])
        stored = np.array([self._stored_at(each) or self._request.newest for each in at if each is not None], np.int64)
        comes = np.zeros_like(stored) if self._derives_hashes else stored + delay
        due = self._compared(stored + seen, comes, delay)
        rest = len(queue_offsets) - len(stored)
        return due + (Due(late=rest) if comes.size and comes[-1] > stored[-1] + seen else Due(early=rest))

    def _compared(self, had: NDArray[np.int64], comes: NDArray[np.int64], delay: int) -> Due:
        now = self._request.now
        comes = np.where(comes > now + delay, now, comes)  # ScheduleMessageService#correctDeliverTimestamp
        had, comes = np.maximum(had, now), np.maximum(comes, now)
        return Due(early=int(np.count_nonzero(comes < had)), late=int(np.count_nonzero(comes > had)))

    def _stored_at(self, physical_offset: int) -> int | None:
        record = single_record_at(self._snapshot.log.files, physical_offset)
        return None if record is None else record.number("store_timestamp")


def _within(numbers: NDArray[np.integer[Any]], places: range) -> NDArray[np.bool_]:
    return (numbers >= places.start) & (numbers < places.stop)


def _common(one: range, other: range) -> int:
    return len(range(max(one.start, other.start), min(one.stop, other.stop)))
