"""Messages of the timer and of delay levels: those that a start delivers, and those that it never would.

In the broker: `TimerMessageStore`, `Timeline`, `ScheduleMessageService`. Also messages that POP consumers took and did
not acknowledge (`PopReviveService`): a check point names the messages of one POP, an acknowledgement takes some of them
back. Both wait in a revive topic, and before that in the timer's; what is left of a check point at its time is
delivered again by way of a retry topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmqtool.base.errors import RmqtoolError, UnreadableError, UnsupportedError
from rmqtool.base.files import list_directory
from rmqtool.broker.check_points import Pop, Taken, in_flight
from rmqtool.broker.destinations import is_queue_id
from rmqtool.broker.dispatched_units import TIMER_QUEUE
from rmqtool.broker.timer_deliveries import TimerCopies, never_delivered
from rmqtool.broker.timer_start import (
    TIMER_LAG,
    NextRead,
    TimerQueue,
    TimerState,
    is_timer_elsewhere,
    next_timer_read,
    read_timer_queue,
    timer_state_of,
)
from rmqtool.clients.never_delivered import lacks_pop_store
from rmqtool.findings.finding import counted
from rmqtool.formats.properties import REAL_QUEUE_ID, REAL_TOPIC, TAGS, TIMER_DELETES, TIMER_DUE, TIMER_ROLL_TIMES
from rmqtool.pending.messages import (
    RETRY_TOPIC,
    Kind,
    Part,
    View,
    is_true,
    messages_at,
    messages_of,
    note_beyond,
    one_topic,
    part_from,
)
from rmqtool.rules.broker_conf import DelayLevels, known_levels
from rmqtool.rules.system_topics import REVIVE_GROUP, REVIVE_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from rmqtool.rules.versions import TIMER_DELETE_KEY_CONFIGURED, TIMER_DELETE_KEY_HAS_TOPIC, delivery_stops
from rmqtool.scan.windows import integers
from rmqtool.store.config_json import ConfigFile
from rmqtool.store.config_tables import DELAYS, load_delay_offsets
from rmqtool.store.rocksdb import holds_rows
from rmqtool.store.side_rows import NO_TIMELINE_MS, POP_STORE, HeldMessage, TimerRows, held_messages, timer_rows
from rmqtool.store.store import is_rocksdb_directory

_PROPERTIES = (REAL_TOPIC, REAL_QUEUE_ID, RETRY_TOPIC, TIMER_DUE, TIMER_DELETES)
_ELSEWHERE = "they are in RocksDB, or the broker's timer is turned off: not checked"
_SECOND = 1000
_TOPIC_OF_KEY = r"^[^+]*\+"  # Timeline#extractUniqKey


class Timers:
    """The timer's queue and what a start does with its messages."""

    def __init__(self, view: View) -> None:
        self._view = view

    @cached_property
    def state(self) -> TimerState:
        """The timer's files."""
        return timer_state_of(self._view.snapshot)

    @property
    def rows(self) -> TimerRows | None:
        """What is in RocksDB; None where the timer's files count, or it cannot be read."""
        return self._in_rocksdb[0]

    @cached_property
    def _in_rocksdb(self) -> tuple[TimerRows | None, str | None]:
        """The rows, and why timer messages cannot be looked at."""
        store, rows = self._view.snapshot.store, None
        if all(store.conf.is_on(name, default=True) for name in ("timerWheelEnable", "timerRocksDBEnable")):
            try:
                rows = timer_rows(store)
            except UnsupportedError:
                pass
            except RmqtoolError as error:
                return None, f"they are in RocksDB: {error.message}"
        return rows, _ELSEWHERE if rows is None and is_timer_elsewhere(store) else None

    @cached_property
    def delivered_until(self) -> int:
        """The time up to which due messages may have been delivered, epoch ms."""
        if self.rows is None:
            return self.state.delivered_until
        if self.rows.timeline is not None:
            return self.rows.timeline
        return (self._view.now - NO_TIMELINE_MS) // _SECOND * _SECOND

    @cached_property
    def _queue(self) -> TimerQueue | None:
        snapshot = self._view.snapshot
        queue = None
        with self._view.errors.scope():
            queue = read_timer_queue(self.state, snapshot.log.files)
        problem = self._in_rocksdb[1]
        if queue is not None and problem:
            self._view.notes.add_unread("timer messages", problem)
            return None
        return queue

    @cached_property
    def _next_read(self) -> NextRead | None:
        if self._queue is not None:
            with self._view.errors.scope():
                return next_timer_read(self.state, self._queue)
        return None

    def delivered(self, properties: Sequence[str], *, bodies: bool = False) -> Iterator[pa.Table]:
        """The messages that a start reads from its queue, or reaches through the wheel or RocksDB."""
        read = np.zeros(0, dtype=np.int64)
        if self._next_read is not None and self._queue is not None:
            in_wheel = self._next_read.logged & (self._next_read.slots >= self.state.first_slot(self._view.now))
            is_reached = (in_wheel | self._is_read_again) & ~self._is_stuck
            read = self._queue.physical_offsets[is_reached]
            yield from self._read(is_reached, properties, bodies=bodies)
        if self.rows is not None:
            waiting_ones = self.rows.physical_offsets[self.rows.dues >= self.delivered_until]
            yield from self._read_rows(np.setdiff1d(waiting_ones, read), properties, bodies=bodies)

    def missed(self) -> Iterator[pa.Table]:
        """The messages that it neither reads from its queue nor reaches, though they were not due."""
        if self.rows is not None:
            if self.rows.timeline is None:  # a start goes on at its own time, and leaves out what was due before
                skipped = self.rows.physical_offsets[self.rows.dues < self.delivered_until]
                yield from self._read_rows(np.unique(skipped), _PROPERTIES)
            return
        if self._next_read is None or self._queue is None:
            return
        slots, read_until = self._next_read.slots, self.state.read_until
        is_skipped = self._next_read.logged & (slots >= read_until) & (slots < self.state.first_slot(self._view.now))
        is_unknown = ~self._next_read.logged
        yield from self._read(self._is_stuck, _PROPERTIES)
        is_missed = (is_skipped | is_unknown) & ~self._is_read_again & ~self._is_stuck
        for messages in self._read(is_missed, (*_PROPERTIES, TIMER_ROLL_TIMES)):
            due = integers(messages.column(TIMER_DUE))
            waiting_ones = messages.filter(pc.greater_equal(due, read_until + TIMER_LAG))
            if waiting_ones.num_rows:
                is_replaced = [self._copies.is_replaced(*copy) for copy in _copies_in(waiting_ones)]
                waiting_ones = waiting_ones.filter(pc.invert(pa.array(is_replaced)))
            yield waiting_ones

    @cached_property
    def _copies(self) -> TimerCopies:
        copies = TimerCopies()
        for messages in self._read(np.ones_like(self._is_read_again), (TIMER_DUE, TIMER_ROLL_TIMES)):
            copies.add(_copies_in(messages.filter(messages.column(TIMER_ROLL_TIMES).is_valid())))
        return copies

    @property
    def _is_read_again(self) -> NDArray[np.bool_]:
        begin = self._next_read.begin if self._next_read else 0
        begin = max(begin, self.rows.indexed_to if self.rows else 0)
        offsets = self._queue.queue_offsets if self._queue else np.zeros(0, dtype=np.int64)
        is_read: NDArray[np.bool_] = offsets >= begin
        return is_read

    @cached_property
    def _is_stuck(self) -> NDArray[np.bool_]:
        """Those that a start would deliver, were it not for the size of one; with timers in RocksDB it reads any."""
        snapshot = self._view.snapshot
        if self._queue is None or self._next_read is None or self.rows is not None:
            return np.zeros_like(self._is_read_again)
        read_until, conf = self.state.read_until, snapshot.store.conf
        return never_delivered(self._queue, self._next_read, read_until, conf, snapshot.release)

    def _read(self, rows: NDArray[np.bool_], properties: Sequence[str], *, bodies: bool = False) -> Iterator[pa.Table]:
        queue = self._view.snapshot.queue(TIMER_TOPIC, 0)
        if queue is None or self._queue is None:
            return
        rows = rows & (self._queue.queue_offsets >= queue.range.min_offset)
        rows &= self._queue.queue_offsets < queue.range.max_offset
        part = Part(queue.queue, 0, 0, properties, bodies)
        yield from messages_at(self._view, part, self._queue.queue_offsets[rows], self._queue.physical_offsets[rows])

    def _read_rows(
        self, offsets: NDArray[np.int64], names: Sequence[str], *, bodies: bool = False
    ) -> Iterator[pa.Table]:
        """The messages of rows of RocksDB, which lead to the log whether or not the queue holds their units."""
        queue = self._view.snapshot.queue(TIMER_TOPIC, 0)
        if queue is not None:
            yield from messages_at(self._view, Part(queue.queue, 0, 0, names, bodies), None, offsets)
        elif len(offsets):
            what = f"{counted(len(offsets), 'timer message')} in RocksDB"
            self._view.notes.add_unread(what, f"the queue of {TIMER_TOPIC} is missing")


def timed(view: View, timers: Timers) -> Iterator[pa.RecordBatch]:
    """The messages that wait for the timer; not those that were recalled, nor the check points of POP consumers."""
    recalled = _recalled(timers)
    with_topic = timers.rows is None and _keys_have_topic(view)
    ways = (with_topic, with_topic if timers.rows else not with_topic)  # RocksDB goes by the unique key alone
    delivered = doubtful = 0
    for messages in timers.delivered(_PROPERTIES):
        due = integers(messages.column(TIMER_DUE))
        is_users = pc.and_(messages.column(TIMER_DELETES).is_null(), pc.invert(_is_revived(messages)))
        own, other = (
            is_true(pc.is_in(_delete_keys(messages, due, timers.state.precision, with_topic=with_topic), recalled))
            for with_topic in ways
        )
        kept = is_true(is_users) & ~own
        doubtful += int(np.count_nonzero(kept & other))
        delivered += int(np.count_nonzero(kept & is_true(pc.less(due, timers.delivered_until))))
        yield _rows(view, "timer", messages.filter(pa.array(kept)))
    if delivered:
        what = f"a delivery of {counted(delivered, 'timer message')}"
        view.notes.add_uncertain(what, "due before the broker stopped, and read from the queue again by a start")
    if doubtful:
        why = f"it is read by some releases, not by {view.snapshot.release}: --broker-version names one"
        view.notes.add_uncertain(f"a recall of {counted(doubtful, 'timer message')}", why)


def lost_timers(view: View, timers: Timers) -> Iterator[pa.RecordBatch]:
    """The messages of the timer that no start would deliver."""
    for messages in timers.missed():
        kept = pc.and_(messages.column(TIMER_DELETES).is_null(), pc.invert(_is_revived(messages)))
        yield _rows(view, "lost-timer", messages.filter(kept))


def _rows(view: View, kind: Kind, messages: pa.Table) -> pa.RecordBatch:
    due = integers(messages.column(TIMER_DUE))
    return view.rows(kind, TIMER_QUEUE, messages, messages.column(REAL_TOPIC), due_timestamp=due)


def _copies_in(messages: pa.Table) -> Iterator[tuple[str | None, int | None, int]]:
    """Unique key, time of delivery, and how often it was put off, of each message."""
    due, put_off = (integers(messages.column(name)) for name in (TIMER_DUE, TIMER_ROLL_TIMES))
    columns = messages.column("unique_key"), due, put_off.fill_null(0)
    return zip(*(column.to_pylist() for column in columns), strict=True)


def _is_revived(messages: pa.Table) -> pa.ChunkedArray:
    """Whether a message is a check point or an acknowledgement of a POP consumer, which waits here, too."""
    return pc.starts_with(messages.column(REAL_TOPIC), REVIVE_PREFIX).fill_null(False)


def _recalled(timers: Timers) -> pa.Array:
    """Slot and key of each message that a later one recalls (`RecallMessageProcessor`)."""
    found: list[pa.Array] = [pa.array([], pa.string())]
    for messages in timers.delivered((TIMER_DUE, TIMER_DELETES)):
        recalling = messages.filter(messages.column(TIMER_DELETES).is_valid())
        due, keys = integers(recalling.column(TIMER_DUE)), recalling.column(TIMER_DELETES)
        if timers.rows is not None:
            keys = pc.replace_substring_regex(keys, _TOPIC_OF_KEY, "")
        found.append(_in_slot(due, timers.state.precision, keys))
    return pa.concat_arrays(found)


def _keys_have_topic(view: View) -> bool:
    """Whether a recall names the topic, too (`TimerMessageStore#buildDeleteKey`)."""
    if view.snapshot.release >= TIMER_DELETE_KEY_CONFIGURED:
        return view.snapshot.store.conf.is_on("appendTopicForTimerDeleteKey")
    return view.snapshot.release >= TIMER_DELETE_KEY_HAS_TOPIC


def _delete_keys(messages: pa.Table, due: pa.Array, precision: int, *, with_topic: bool) -> pa.Array:
    """What a recall of each message would name, in its slot."""
    keys = messages.column("unique_key")
    if with_topic:
        keys = pc.binary_join_element_wise(messages.column(REAL_TOPIC), keys, "+")
    return _in_slot(due, precision, keys)


def _in_slot(due: pa.Array, precision: int, keys: pa.ChunkedArray) -> pa.Array:
    slots = pc.divide(due, precision).cast(pa.string())
    joined = pc.binary_join_element_wise(slots, keys, "/")
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined


_DELAYS: tuple[Kind, Kind] = ("delay", "lost-delay")
_OF_DELAYED = (REAL_TOPIC, REAL_QUEUE_ID, RETRY_TOPIC)


def delayed(view: View, *, are_lost: bool = False) -> Iterator[pa.RecordBatch]:
    """The messages from each level's offset on; their units have the time of delivery in place of the tags code.

    Those of levels that the broker does not have, and those that it cannot deliver, `are_lost`: they come alone, or the
    others do.
    """
    offsets, without_time = load_delay_offsets(view.snapshot.store), 0
    queues, kind = [*view.queues(SCHEDULE_TOPIC, is_whole=True)], _DELAYS[are_lost]
    if queues:
        _note_file(view, offsets.file)
    ends = {queue.queue.queue_id + 1: queue.range.max_offset for queue in queues}
    for level, offset in offsets.by_level.items():
        note_beyond(view, SCHEDULE_TOPIC, level - 1, ends.get(level, 0), offset)
    highest = known.highest if (known := known_levels(view.snapshot.store.conf)) else None
    for queue in queues:
        level = queue.queue.queue_id + 1
        is_stopped = highest is not None and level > highest
        for read in messages_of(view, part_from(queue, offsets.by_level.get(level, 0), _OF_DELAYED)):
            is_lost = ~_have_destination(read) | is_stopped
            if delivery_stops(view.snapshot.release):
                is_lost = np.logical_or.accumulate(is_lost)
                is_stopped = is_stopped or bool(is_lost.any())
            messages = read.filter(pa.array(is_lost == are_lost))
            due, unknown = _dues(messages, level, view.snapshot.delay_levels)
            without_time += unknown
            topics = messages.column(REAL_TOPIC)
            yield view.rows(kind, queue.queue, messages, topics, level=level, due_timestamp=due)
    if without_time:
        view.notes.add_uncertain(
            f"when {counted(without_time, 'delayed message')} would be delivered",
            "their entries have no time of delivery, as a recovery of 4.9.2 to 4.9.8 leaves them: a start delivers "
            "them at once; the times shown are those by their levels",
        )


def _have_destination(messages: pa.Table) -> NDArray[np.bool_]:
    """Which messages name the topic and queue to which a level delivers them."""
    topics, queue_ids = messages.column(REAL_TOPIC), messages.column(REAL_QUEUE_ID)
    numbers = [text for text in queue_ids.unique().to_pylist() if text and is_queue_id(text)]
    is_named = pc.and_(pc.greater(pc.binary_length(topics), 0), pc.is_in(queue_ids, pa.array(numbers, queue_ids.type)))
    found: NDArray[np.bool_] = np.asarray(pc.fill_null(is_named, False))
    return found


def _dues(messages: pa.Table, level: int, levels: DelayLevels) -> tuple[pa.Array, int]:
    """When each message is due, epoch ms, and of how many the unit does not say so."""
    due = np.asarray(messages.column("tags_code"))
    stored = np.asarray(messages.column("store_timestamp"))
    has_time = due >= stored
    by_level = stored + levels.delays[min(level, levels.highest) - 1]
    return pa.array(np.where(has_time, due, by_level)), int(np.count_nonzero(~has_time))


def _note_file(view: View, file: ConfigFile) -> None:
    if file.path is None:
        again = "a start delivers all messages of these levels, even those delivered before"
        why = f"{file.problem or 'it is missing'}: {again}"
        view.notes.add_uncertain(f"which delayed messages were delivered: config/{DELAYS}", why)
    elif file.problem:
        why = f"{file.problem}: its .bak is used, and messages delivered since are delivered again"
        view.notes.add_uncertain(f"which delayed messages were delivered last: config/{DELAYS}", why)


def popped(view: View, timers: Timers) -> Iterator[pa.RecordBatch]:
    """The messages of all check points that are not acknowledged, queue by queue."""
    taken, odd = in_flight(_bookkeeping(view, timers))
    if odd:
        view.notes.add_unread(f"{counted(odd, 'check point')} of POP consumers", "their JSON cannot be read")
    yield from _left_of(view, taken, _held(view))


def _bookkeeping(view: View, timers: Timers) -> Iterator[tuple[str, bytes]]:
    """Tag and body of each check point and acknowledgement that is not processed yet."""
    for messages in timers.delivered((TAGS, REAL_TOPIC), bodies=True):
        yield from _tagged(messages.filter(pc.starts_with(messages.column(REAL_TOPIC), REVIVE_PREFIX)))
    for queue in view.queues(REVIVE_PREFIX):
        last = view.committed(REVIVE_GROUP, queue)  # the last one, where others commit the next
        for messages in messages_of(view, part_from(queue, 0 if last is None else last + 1, (TAGS,), bodies=True)):
            yield from _tagged(messages)


def _tagged(messages: pa.Table) -> Iterable[tuple[str, bytes]]:
    return zip(messages.column(TAGS).to_pylist(), messages.column("stored_body").to_pylist(), strict=True)


def _left_of(view: View, taken: dict[Pop, Taken], held: Iterable[HeldMessage]) -> Iterator[pa.RecordBatch]:
    """The messages that are left of check points, and those of RocksDB, by queue and group."""
    by_queue: dict[tuple[str, int, str], dict[int, int]] = {}
    for pop, rest in taken.items():
        dues = by_queue.setdefault((pop.topic, pop.queue_id, pop.group), {})
        dues.update(dict.fromkeys(rest.offsets, rest.due))
    for each in held:
        by_queue.setdefault((each.topic, each.queue_id, each.group), {})[each.queue_offset] = each.visible_timestamp
    gone = 0
    for (topic, queue_id, group), dues in sorted(by_queue.items()):
        queue = None
        with view.errors.scope():
            queue = view.snapshot.queue(topic, queue_id)
        kept = sorted(offset for offset in dues if queue and queue.range.min_offset <= offset < queue.range.max_offset)
        gone += len(dues) - len(kept)
        units = [queue.unit_at(offset) for offset in kept] if queue else []
        numbers = np.array([offset for offset, unit in zip(kept, units, strict=True) if unit], dtype=np.int64)
        offsets = np.array([unit.physical_offset for unit in units if unit], dtype=np.int64)
        if not queue or not len(numbers):
            continue
        for messages in messages_at(view, Part(queue.queue, 0, 0, (RETRY_TOPIC,)), numbers, offsets):
            due = [dues[number] for number in messages.column("queue_offset").to_pylist()]
            yield view.rows("pop", queue.queue, messages, one_topic(topic, messages), due_timestamp=due, group=group)
    if gone:
        what = counted(gone, "message") + " that POP consumers took"
        view.notes.add_uncertain(what, "the queue no longer has them: they are not delivered again")


def _held(view: View) -> list[HeldMessage]:
    """What is in RocksDB, where brokers since 5.3.2 may keep it (popConsumerKVServiceEnable)."""
    store = view.snapshot.store
    try:
        if is_rocksdb_directory(store.root / POP_STORE):
            return [*held_messages(store)]
        problem = "an incomplete database"
    except UnreadableError as error:
        _note_rocksdb(view, error.message)
        return []
    except UnsupportedError as error:
        problem = error.message
    if lacks_pop_store(view.snapshot):
        _note_rocksdb(view, "it is missing, and its messages are never delivered again")
    with suppress(RmqtoolError):
        if any(map(holds_rows, list_directory(store.root / POP_STORE))):
            _note_rocksdb(view, problem)
    return []


def _note_rocksdb(view: View, problem: str) -> None:
    view.notes.add_unread("messages that POP consumers took", f"they are in RocksDB, {POP_STORE}/: {problem}")
