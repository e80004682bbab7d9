"""The messages of a part of a queue as columns; those that wait as rows of one shape, and what is not known of them.

Retries, dead letters, and half messages that no op message ends (`TransactionalMessageServiceImpl#check`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.tolerant import ReadErrors
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.half_messages import ended_halves, makes_no_rows, skipped_halves
from rmqtool.clients.queue_view import QueueViews
from rmqtool.findings.finding import counted
from rmqtool.formats.properties import (
    CHECK_IMMUNITY,
    ENDED_HALF,
    HALF_OFFSET,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
)
from rmqtool.rules.system_topics import (
    DEAD_LETTER_PREFIX,
    HALF_TOPIC,
    OP_TOPIC,
    RETRY_PREFIX,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_TOPIC,
    TRANSACTION_GROUP,
)
from rmqtool.scan.columns import PROPERTY_COLUMN, message_schema, record_batches
from rmqtool.scan.filters import ANY, Filters
from rmqtool.scan.pointed_records import read_heads, sound_records
from rmqtool.scan.windows import constant_strings, integers
from rmqtool.store.config_tables import CONSUMER_OFFSET
from rmqtool.store.consume_queues import Queue
from rmqtool.store.message_reader import make_query, read_messages
from rmqtool.store.other_logs import other_sources
from rmqtool.store.queue_units import LoadedQueue
from rmqtool.store.side_rows import HalfRows, half_rows
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.splits import split_source
from rmqtool.store.store import NamedStore
from rmqtool.store.unit_files import open_units, written_units

Kind = Literal["delay", "lost-delay", "timer", "lost-timer", "half", "lost-half", "pop", "retry", "dead-letter"]
"""What a message waits for. delay: a delay level. lost-delay: a delay level, and no broker delivers it: the level is
not configured, or the message does not say where to. timer: the timer. lost-timer: the timer, and no start delivers it.
half: a half message without an answer. lost-half: one that no broker asks for. pop: taken by a POP consumer and not
acknowledged. retry: tried again when its group consumes it. dead-letter: given up, which nobody delivers."""

KINDS: tuple[Kind, ...] = get_args(Kind)
OWED: tuple[Kind, ...] = ("delay", "timer", "half", "pop", "retry")

SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("level", pa.int32()),
        ("due_timestamp", pa.int64()),
        ("to_topic", pa.string()),
        ("to_queue_id", pa.int32()),
        ("group", pa.string()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("physical_offset", pa.int64()),
        ("unique_key", pa.string()),
        ("keys", pa.list_(pa.string())),
        ("store_timestamp", pa.int64()),
        ("reconsume_times", pa.int32()),
    ]
)
"""A message that waits: when it is due (null: when its group consumes), where it goes, for whom, where it stands."""

_QUEUE_ID_DIGITS = 9


def waiting(kind: Kind, messages: pa.Table, **columns: Any) -> pa.RecordBatch:
    """Rows of SCHEMA from columns by their names: those of `messages`, or others instead; null where there is none.

    A column is an array as long as `messages`, or one value for all rows.
    """
    given = {"kind": kind, **columns}
    arrays = []
    for name in SCHEMA.names:
        kind_of = SCHEMA.field(name).type
        if name in given:
            arrays.append(_column(given[name], messages.num_rows, kind_of))
        elif name in messages.column_names:
            arrays.append(_column(messages.column(name), messages.num_rows, kind_of))
        else:
            arrays.append(pa.nulls(messages.num_rows, kind_of))
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _column(value: Any, count: int, kind: pa.DataType) -> pa.Array:
    if value is None:
        return pa.nulls(count, kind)
    if isinstance(value, str):
        return constant_strings(value, count)
    if isinstance(value, int):
        return pa.array(np.full(count, value), kind)
    if isinstance(value, pa.ChunkedArray):
        value = value.combine_chunks()
    return (value if isinstance(value, pa.Array) else pa.array(value)).cast(kind)


def one_topic(topic: str, messages: pa.Table) -> pa.ChunkedArray:
    """A column of one topic for all messages."""
    return pa.chunked_array([constant_strings(topic, messages.num_rows)])


def is_true(mask: pa.ChunkedArray | pa.Array) -> NDArray[np.bool_]:
    """An Arrow mask as NumPy's, false where it is null."""
    filled = mask.fill_null(False)
    return np.asarray(filled)


@dataclass(frozen=True)
class Note:
    """What was not looked at, or cannot be known, and why."""

    what: str  # What.
    why: str  # Why.


@dataclass
class Notes:
    """`unread` is what could not be read, for whatever reason; `uncertain` what no look at the files can tell.

    `at_most` is set where some of what is counted may be done.
    """

    unread: list[Note] = field(default_factory=list)
    uncertain: list[Note] = field(default_factory=list)
    at_most: bool = False

    def add_unread(self, what: str, why: str) -> None:
        """Note what could not be read, once."""
        self.unread += {Note(what, why)}.difference(self.unread)

    def add_uncertain(self, what: str, why: str) -> None:
        """Note what cannot be known, once."""
        self.uncertain += {Note(what, why)}.difference(self.uncertain)


RETRY_TOPIC, DEAD_LETTER_ORIGIN = "RETRY_TOPIC", "DLQ_ORIGIN_TOPIC"  # MessageConst.PROPERTY_...
_POP_SEPARATOR = "+"  # KeyBuilder.POP_RETRY_SEPARATOR_V2: not in the name of a group
_POP_SEPARATOR_V1 = "_"


def receivers(messages: pa.Table, topics: pa.ChunkedArray, groups: Iterable[str]) -> dict[str, Any]:
    """The columns `to_topic` and `group` of messages that are delivered to `topics`; `groups` are those known."""
    if not messages.num_rows:
        return {"to_topic": None, "group": None}
    distinct = pc.unique(topics).to_pylist()
    rows = pc.index_in(topics, pa.array(distinct, pa.string())).combine_chunks()
    owners = [owner_of(topic or "", groups) for topic in distinct]
    group, of_pop = (pa.array(column, pa.string()).take(rows) for column in zip(*owners, strict=True))
    origin = pc.coalesce(of_pop, topics)
    for name in (DEAD_LETTER_ORIGIN, RETRY_TOPIC):
        if name in messages.column_names:
            origin = pc.coalesce(messages.column(name), origin)
    return {"to_topic": pc.if_else(group.is_null(), topics, origin), "group": group}


def owner_of(topic: str, groups: Iterable[str]) -> tuple[str | None, str | None]:
    """The group of a retry or dead letter topic, None of others, and the topic that those of POP name after it."""
    prefix = next((prefix for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX) if topic.startswith(prefix)), None)
    if prefix is None:
        return None, None
    name = topic.removeprefix(prefix)
    known = [group for group in groups if name == group or name.startswith(group + _POP_SEPARATOR_V1)]
    if not known:
        group, _, of_pop = name.partition(_POP_SEPARATOR)
        return group, of_pop or None
    group = max(known, key=len)
    return group, name[len(group) + 1 :] or None


_OF_RECORDS = ("unique_key", "keys", "store_timestamp", "born_timestamp", "reconsume_times")
_CHECKED = ("queue_id", "queue_offset")
_BODY = "stored_body"
_PIECE = 1 << 14  # messages that are read at once
Offsets = NDArray[np.int64]


class View:
    """A store as it is looked at, and what was not seen."""

    def __init__(self, snapshot: Snapshot, errors: ReadErrors, now: int, progress: Callable[[int], None]) -> None:
        """`errors` are those of the snapshot, `now` is epoch ms; `progress` is told how many bytes were read."""
        self.snapshot = snapshot
        self.errors = errors
        self.now = now
        self.notes = Notes()
        self._progress = progress
        self._read = 0

    def queues(self, prefix: str, *, is_whole: bool = False) -> Iterator[LoadedQueue]:
        """The queues with messages of topics that begin with `prefix`, or are it; none of them is a batch queue."""
        for queue in self.snapshot.queues:
            if (queue.topic == prefix if is_whole else queue.topic.startswith(prefix)) and queue.kind == "simple":
                loaded = None
                with self.errors.scope():
                    loaded = self.snapshot.queue(queue.topic, queue.queue_id)
                    self._note_holes(loaded)
                if loaded is not None and loaded.range.max_offset > max(loaded.range.min_offset, 0):
                    yield loaded
        for name in self._missing:
            if name.topic == prefix if is_whole else name.topic.startswith(prefix):
                self._note_holes_of(*name)

    def _note_holes(self, queue: LoadedQueue | None) -> None:
        """Note units after the first that is not written, which a start drops, and messages that have no unit."""
        if queue is None or self.snapshot.holder:
            return
        stored = queue.queue
        with open_units(stored, self.snapshot.reading) as units:
            behind = units.data_end - queue.range.max_offset
        if behind <= 0 and not QueueViews.of_snapshot(self.snapshot).passed_by_log(stored, queue.range):
            return
        if not self._note_holes_of(stored.topic, stored.queue_id) and behind > 0:
            what = f"{counted(behind, 'entry')} of {stored.topic}, queue {stored.queue_id}"
            self.notes.add_unread(what, f"the entry {queue.range.max_offset} before them is damaged")

    def _note_holes_of(self, topic: str, queue_id: int) -> bool:
        """Note the holes of a queue, and whether it has any."""
        holes = QueueViews.of_snapshot(self.snapshot).of(topic, queue_id).holes
        for hole in holes:
            what = f"{counted(hole.messages, 'message')} of {topic}, queue {queue_id}"
            self.notes.add_unread(what, hole.told)
        return bool(holes)

    @cached_property
    def _missing(self) -> list[QueueName]:
        """Queues of which the log has messages, and that are not there."""
        return [*QueueViews.of_snapshot(self.snapshot).missing()]

    def committed(self, group: str, queue: LoadedQueue) -> int | None:
        """The offset that a group has committed of a queue: that of the next message; None without one."""
        return self._offsets.get((group, queue.queue.topic, queue.queue.queue_id))

    def begin_of(self, queue: Queue | QueueName) -> int:
        """The queue offset from which on messages of a retry topic wait: what its group has committed, or 0."""
        group, _ = owner_of(queue.topic, self.groups)
        return self._offsets.get((group or "", queue.topic, queue.queue_id)) or 0

    @cached_property
    def _offsets(self) -> dict[tuple[str, str, int], int]:
        offsets, file = self.snapshot.committed.offsets, self.snapshot.committed.file
        if file.path is None or file.problem:
            what = "what groups have consumed, and which half messages are done"
            self.notes.add_uncertain(what, f"config/{CONSUMER_OFFSET}: {file.problem or 'it is missing'}")
            self.notes.at_most = True
        return {(each.group, each.topic, each.queue_id): each.offset for each in offsets}

    @cached_property
    def groups(self) -> frozenset[str]:
        """The groups that have committed an offset."""
        return frozenset(each.group for each in self.snapshot.committed.offsets)

    def rows(
        self, kind: Kind, queue: Queue | QueueName, messages: pa.Table, topics: pa.ChunkedArray | None = None,
        **columns: Any,
    ) -> pa.RecordBatch:  # fmt: skip
        """Messages of a queue that wait; with the `topics` that they are delivered to also for whom."""
        if topics is not None:
            columns = {**receivers(messages, topics, self.groups), **columns}
        if REAL_QUEUE_ID in messages.column_names:
            columns["to_queue_id"] = integers(messages.column(REAL_QUEUE_ID), _QUEUE_ID_DIGITS)
        return waiting(kind, messages, **columns, topic=queue.topic, queue_id=queue.queue_id)

    def advance(self, size: int) -> None:
        """Say that so many more bytes of messages were read."""
        self._read += size
        self._progress(self._read)


@dataclass(frozen=True)
class Part:
    """The messages of a queue from `start` to before `stop` (queue offsets), and what is wanted of them.

    `properties` are columns of their own; with `bodies` there is a column `stored_body`.
    """

    queue: Queue
    start: int
    stop: int
    properties: Sequence[str] = ()
    bodies: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the records, as a scan names them."""
        properties = (f"{PROPERTY_COLUMN}{name}" for name in self.properties)
        return (*_OF_RECORDS, *_CHECKED, *((_BODY,) if self.bodies else ()), *properties)


def part_from(queue: LoadedQueue, start: int, properties: Sequence[str] = (), *, bodies: bool = False) -> Part:
    """The messages of a queue from queue offset `start` on, or from its minimum where that is larger."""
    return Part(queue.queue, max(queue.range.min_offset, start, 0), queue.range.max_offset, properties, bodies)


def note_beyond(view: View, topic: str, queue_id: int, end: int, offset: int) -> None:
    """Note a queue that ends before an offset up to which its messages were delivered: messages may be missing."""
    if offset > end:
        what = f"messages of {topic}, queue {queue_id}"
        view.notes.add_unread(what, f"it ends at {end}, but {offset} were delivered: the end of the queue is missing")


def messages_of(view: View, part: Part) -> Iterator[pa.Table]:
    """The messages that units lead to, in the order of the queue, piece by piece; `tags_code` is that of the unit.

    Units that lead to no sound message of the queue are left out and noted.
    """
    found = deleted = 0
    with view.errors.scope():
        for numbers, units in written_units(part.queue, part.start, part.stop, view.snapshot.reading):
            offsets = units["physical_offset"].astype(np.int64)
            table = _records(view, part, numbers, offsets)
            table = table.append_column("tags_code", pa.array(units["tags_code"].astype(np.int64)))
            table = table.filter(table.column("found"))
            found += table.num_rows
            deleted += _deleted(view, offsets)
            if table.num_rows:
                yield table
    _note_missing(view, part.queue, max(0, part.stop - part.start) - found, deleted)


def messages_at(view: View, part: Part, numbers: Offsets | None, physical_offsets: Offsets) -> Iterator[pa.Table]:
    """The messages of these queue offsets, which begin at these physical offsets; as `messages_of`, without units.

    With `numbers` None their queue offsets are those that the records have.
    """
    found = 0
    with view.errors.scope():
        for at in range(0, len(physical_offsets), _PIECE):
            piece = slice(at, at + _PIECE)
            own = None if numbers is None else numbers[piece]
            table = _records(view, part, own, physical_offsets[piece])
            table = table.filter(table.column("found"))
            found += table.num_rows
            yield table
    _note_missing(view, part.queue, len(physical_offsets) - found, _deleted(view, physical_offsets))


def _deleted(view: View, physical_offsets: Offsets) -> int:
    """How many messages were in log files that the cleaner has deleted."""
    return int(np.count_nonzero((physical_offsets >= 0) & (physical_offsets < view.snapshot.log_min_offset)))


def _note_missing(view: View, queue: Queue, missing: int, deleted: int) -> None:
    of_queue = f"of {queue.topic}, queue {queue.queue_id}"
    if missing > deleted:
        what = f"{counted(missing - deleted, 'message')} {of_queue}"
        view.notes.add_unread(what, "an entry of the queue, or the message that it points to, is damaged or missing")
    if deleted:
        why = "their log files were deleted before they were due: they are never delivered"
        view.notes.add_uncertain(f"{counted(deleted, 'message')} {of_queue}", why)


def _records(view: View, part: Part, numbers: Offsets | None, offsets: Offsets) -> pa.Table:
    """A row for each of the physical offsets; `found` where a sound message of the queue begins there."""
    distinct, of_row = np.unique(offsets, return_inverse=True)
    files, reading = view.snapshot.log.files, view.snapshot.reading
    read, batches = [np.zeros(0, dtype=np.intp)], list[pa.RecordBatch]()
    with view.errors.scope():  # messages of a log file that cannot be read count as missing
        heads = read_heads(files, distinct, reading)
        for rows, frames in sound_records(files, heads, reading):
            batches += record_batches(frames, part.columns)
            read.append(rows)
            view.advance(int(heads.message_sizes[rows].sum()))
    order = np.concatenate(read)
    places = np.full(len(distinct), -1, dtype=np.int64)
    places[order] = np.arange(len(order))
    own = places[of_row]
    table = pa.Table.from_batches(batches, message_schema(part.columns)).take(pa.array(own, mask=own < 0))
    table = table.rename_columns([name.removeprefix(PROPERTY_COLUMN) for name in part.columns])
    queue_offsets = np.asarray(table.column("queue_offset").fill_null(-1))
    queue_ids = np.asarray(table.column("queue_id").fill_null(-1))
    is_own = queue_offsets >= 0 if numbers is None else queue_offsets == numbers
    is_found = is_own & (queue_ids == part.queue.queue_id)
    return table.append_column("found", pa.array(is_found)).append_column("physical_offset", pa.array(offsets))


_PROPERTIES = (RETRY_TOPIC, DEAD_LETTER_ORIGIN)


def retries(view: View) -> Iterator[pa.RecordBatch]:
    """The retries from the offset on that the group has committed; all of them where it has none."""
    yield from _of_other_logs(view, "retry", RETRY_PREFIX)
    for queue in view.queues(RETRY_PREFIX):
        yield from _of_queue(view, "retry", queue, view.begin_of(queue.queue))


def dead_letters(view: View) -> Iterator[pa.RecordBatch]:
    """All dead letters that are in the log, and those that only a tier has."""
    yield from _of_other_logs(view, "dead-letter", DEAD_LETTER_PREFIX)
    for queue in view.queues(DEAD_LETTER_PREFIX):
        yield from _of_queue(view, "dead-letter", queue, 0)


def _of_queue(view: View, kind: Kind, queue: LoadedQueue, start: int) -> Iterator[pa.RecordBatch]:
    for messages in messages_of(view, part_from(queue, start, _PROPERTIES)):
        yield view.rows(kind, queue.queue, messages, one_topic(queue.queue.topic, messages))


_OF_OTHER_LOGS = ("queue_offset", "unique_key", "keys", "store_timestamp", "reconsume_times")


def _of_other_logs(view: View, kind: Kind, prefix: str) -> Iterator[pa.RecordBatch]:
    """Messages of topics with a prefix that the local queues no longer have, as a broker serves them."""
    columns = (*_OF_OTHER_LOGS, *(f"{PROPERTY_COLUMN}{name}" for name in _PROPERTIES))
    query = make_query(columns, "none", Filters(), epoch_ms=True)
    for source in other_sources(NamedStore("", view.snapshot.store), Filters(topics=(f"{prefix}{ANY}",))):
        if source.other is None:
            continue
        queue = QueueName(source.other.topic, source.other.queue_id)
        start = view.begin_of(queue) if kind == "retry" else 0
        for split in split_source(source):
            for batch in read_messages(split, query, fails=False, way_out=""):
                names = [name.removeprefix(PROPERTY_COLUMN) for name in columns]
                table = pa.Table.from_batches([batch]).rename_columns(names)
                table = table.filter(pc.greater_equal(table.column("queue_offset"), start))
                if table.num_rows:
                    yield view.rows(kind, queue, table, one_topic(queue.topic, table))


_OF_HALVES = (REAL_TOPIC, REAL_QUEUE_ID, PRODUCER_GROUP, HALF_OFFSET, CHECK_IMMUNITY)
_TIMEOUT_MS = 6_000  # BrokerConfig#transactionTimeOut
_CHECK_MAX = 15  # BrokerConfig#transactionCheckMax: what was asked for more often is given up, not asked for again


def pending_halves(view: View) -> Iterator[pa.RecordBatch]:
    """The half messages without an answer; due is when the broker asks their producers first."""
    any_half = False
    for rows in (*_in_files(view), *_in_rocksdb(view)):
        any_half |= rows.num_rows > 0
        yield rows
    if any_half:
        why = "the broker asks their producers again: their answer is in no file"
        view.notes.add_uncertain("whether half messages are committed or rolled back", why)


def lost_halves(view: View) -> Iterator[pa.RecordBatch]:
    """Half messages before the committed offset, or without rows, that wait for an answer: no broker asks for it."""
    for skipped in skipped_halves(view.snapshot):
        for messages in messages_of(view, part_from(skipped.queue, int(skipped.offsets[0]), _OF_HALVES)):
            is_skipped = np.isin(np.asarray(messages.column("queue_offset")), skipped.offsets)
            yield _half_rows_of(view, skipped.queue, messages.filter(pa.array(is_skipped)), "lost-half")


def _in_files(view: View) -> Iterator[pa.RecordBatch]:
    for queue in view.queues(HALF_TOPIC, is_whole=True):
        ended, superseded = _ended(view, queue.queue.queue_id), _superseded(view, queue)
        for messages in messages_of(view, part_from(queue, _start(view, queue), _OF_HALVES)):
            own, first = np.asarray(messages.column("queue_offset")), _first_offsets(messages)
            is_done = np.isin(own, ended) | np.isin(first, ended) | np.isin(own, superseded)
            yield _half_rows_of(view, queue, messages.filter(pa.array(~is_done)))


def _in_rocksdb(view: View) -> Iterator[pa.RecordBatch]:
    """Half messages of a topic of their own, of which RocksDB knows those that wait (`TransMessageRocksDBStore`)."""
    for queue in view.queues(ROCKSDB_HALF_TOPIC, is_whole=True):
        if (known := _half_rows(view)) is None:
            continue
        times = view.snapshot.store.conf.size("transactionCheckMax") or _CHECK_MAX
        waiting_ones, ended = known.physical_offsets[known.check_times <= times], _ended_in_rocksdb(view)
        for messages in messages_of(view, part_from(queue, 0, _OF_HALVES)):
            offsets = np.asarray(messages.column("physical_offset"))
            waits = np.isin(offsets, waiting_ones) | (offsets > known.indexed_to)
            yield _half_rows_of(view, queue, messages.filter(pa.array(waits & ~np.isin(offsets, ended))))


def _half_rows(view: View) -> HalfRows | None:
    why = "no row of them is in RocksDB"
    try:
        if known := half_rows(view.snapshot.store):
            return known
        if makes_no_rows(view.snapshot):
            return None  # `lost_halves` has them
    except RmqtoolError as error:
        why = f"they are in RocksDB: {error.message}"
    view.notes.add_unread(f"half messages of {ROCKSDB_HALF_TOPIC}", why)
    return None


def _ended_in_rocksdb(view: View) -> NDArray[np.int64]:
    """Physical offsets of half messages that op messages name, whether their rows are gone yet or not."""
    found = (
        np.asarray(integers(messages.column(ENDED_HALF)).fill_null(-1))
        for queue in view.queues(ROCKSDB_OP_TOPIC)
        for messages in messages_of(view, part_from(queue, 0, (ENDED_HALF,)))
    )
    return np.concatenate([np.zeros(0, dtype=np.int64), *found])


def _half_rows_of(view: View, queue: LoadedQueue, messages: pa.Table, kind: Kind = "half") -> pa.RecordBatch:
    timeout = view.snapshot.store.conf.size("transactionTimeOut") or _TIMEOUT_MS
    seconds = integers(messages.column(CHECK_IMMUNITY)).fill_null(timeout // 1000)
    due = pc.add(messages.column("born_timestamp"), pc.multiply(seconds, 1000))
    to_topic, group = messages.column(REAL_TOPIC), messages.column(PRODUCER_GROUP)
    return view.rows(kind, queue.queue, messages, due_timestamp=due, to_topic=to_topic, group=group)


def _start(view: View, queue: LoadedQueue) -> int:
    return view.committed(TRANSACTION_GROUP, queue) or 0


def _ended(view: View, queue_id: int) -> NDArray[np.int64]:
    """Queue offsets of half messages that op messages name."""
    for queue in view.queues(OP_TOPIC, is_whole=True):
        if queue.queue.queue_id == queue_id:
            start, stop = max(queue.range.min_offset, _start(view, queue), 0), queue.range.max_offset
            with view.errors.scope():
                ended = ended_halves(queue.queue, start, stop, view.snapshot.log.files, view.snapshot.reading)
                if ended.unread:
                    what = f"{counted(ended.unread, 'message')} of {OP_TOPIC}, queue {queue_id}"
                    view.notes.add_unread(what, "damaged or missing: half messages that it names may be finished")
                return ended.offsets
    return np.zeros(0, dtype=np.int64)


def _superseded(view: View, queue: LoadedQueue) -> NDArray[np.int64]:
    """Queue offsets of half messages of which a later copy waits, as the broker puts them back in their queue."""
    firsts, copies = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for messages in messages_of(view, part_from(queue, _start(view, queue), (HALF_OFFSET,))):
        offsets = _first_offsets(messages)
        firsts.append(offsets[offsets >= 0])
        copies.append(np.asarray(messages.column("queue_offset"))[offsets >= 0])
    newest_first, copy = np.concatenate(firsts)[::-1], np.concatenate(copies)[::-1]
    originals, newest = np.unique(newest_first, return_index=True)
    return np.concatenate([originals, np.delete(copy, newest)])


def _first_offsets(messages: pa.Table) -> NDArray[np.int64]:
    """The queue offset that each half message had first, -1 of those that are not copies."""
    return np.asarray(integers(messages.column(HALF_OFFSET)).fill_null(-1))
