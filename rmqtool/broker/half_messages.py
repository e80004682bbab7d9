"""Half messages: those that are done, and those that are passed over (`TransactionalMessageServiceImpl#check`).

Op messages name the queue offsets of half messages that were committed or rolled back. A broker looks at half messages
from the committed offset of its own group on: of those before it, it asks no producer again. Half messages that wait in
RocksDB have rows; a start goes on where these end (`TransMessageRocksDBStore#getDispatchFromPhyOffset`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import UNLIMITED, ReadPolicy
from rmqtool.base.mapped_files import MappedFile, read_at
from rmqtool.formats.properties import CHECK_TIMES, ENDED_HALF, HALF_OFFSET, UNIQUE_KEY
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.system_topics import (
    HALF_TOPIC,
    OP_TOPIC,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_TOPIC,
    TRANSACTION_GROUP,
)
from rmqtool.rules.versions import BEYOND_MAX_TO_MAX
from rmqtool.scan.block import Damage
from rmqtool.scan.columns import COLUMNS, PROPERTY_COLUMN, ColumnRun, message_schema, record_batches
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.pointed_records import read_heads, sound_records
from rmqtool.scan.reader import scan_files
from rmqtool.scan.windows import integers
from rmqtool.store.config_tables import reads_no_offsets
from rmqtool.store.consume_queues import Queue
from rmqtool.store.lock import has_abort
from rmqtool.store.queue_units import LoadedQueue
from rmqtool.store.rocksdb import is_readable
from rmqtool.store.side_rows import half_rows
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.unit_files import open_units, written_units

_OFFSETS = re.compile(rb"\d{1,18}")
_PIECE = 4096  # half messages that are looked at at once, from the committed offset back
_MOST_SCANNED = 256 << 20  # of the log, where the queue of op messages is missing, or copies may be, bytes
_MOST_DAMAGED = 64 << 20  # of one damage of the log that is searched for copies, bytes
_CHECK_MAX = 15  # BrokerConfig#transactionCheckMax
_RESERVED_HOURS = 72  # MessageStoreConfig#fileReservedTime
_HOUR_MS = 3_600_000
_DIGITS = 9
Offsets = NDArray[np.int64]


class EndedHalves(NamedTuple):
    """Queue offsets of half messages that were committed or rolled back; `unread` op messages may name more."""

    offsets: Offsets
    unread: int


class SkippedHalves(NamedTuple):
    """Half messages of a queue that wait for an answer before the `committed` offset, by their queue offsets.

    There is no such offset where RocksDB should have rows of them.
    """

    queue: LoadedQueue
    committed: int | None
    offsets: Offsets


def ended_halves(
    op_queue: Queue, start: int, stop: int, log: Sequence[MappedFile], reading: ReadPolicy = UNLIMITED
) -> EndedHalves:
    """What the op messages from queue offset `start` to before `stop` name; raises UnreadableError."""
    found, read = [np.zeros(0, dtype=np.int64)], 0
    for _, units in written_units(op_queue, start, stop, reading):
        targets = np.unique(units["physical_offset"].astype(np.int64))
        for _, frames in sound_records(log, read_heads(log, targets, reading), reading):
            bodies = COLUMNS["stored_body"].read(ColumnRun(frames)).to_pylist()
            found.append(np.array(_OFFSETS.findall(b",".join(bodies))).astype(np.int64))
            read += len(frames)
    return EndedHalves(np.unique(np.concatenate(found)), max(0, stop - start) - read)


def skipped_halves(snapshot: Snapshot) -> Iterator[SkippedHalves]:
    """The half messages that no broker looks at again, by queue; raises UnreadableError.

    Where op messages are missing nothing is known. All before a committed offset are done unless it was moved: they
    are read from it back, and no further than to a piece in which none waits.
    """
    yield from _without_rows(snapshot)
    if reads_no_offsets(snapshot.store, snapshot.release):
        return  # it looks at all of them
    committed = {
        (each.topic, each.queue_id): each.offset
        for each in snapshot.committed.offsets
        if each.group == TRANSACTION_GROUP
    }
    for queue_id in [each.queue_id for each in snapshot.queues if each.topic == HALF_TOPIC]:  # not those of all topics
        queue, offset = snapshot.queue(HALF_TOPIC, queue_id), committed.get((HALF_TOPIC, queue_id), 0)
        if queue is None or queue.queue.kind != "simple" or offset <= max(0, queue.range.min_offset):
            continue
        is_beyond = offset > queue.range.max_offset and snapshot.release < BEYOND_MAX_TO_MAX
        if is_beyond and queue.range.min_offset == 0:  # where the broker begins at 0
            continue
        if (key := (skipped_halves, queue_id)) not in snapshot.kept:
            snapshot.kept[key] = _skipped(snapshot, queue, offset)
        skipped = snapshot.kept[key]
        if len(skipped):
            yield SkippedHalves(queue, offset, skipped)


def makes_no_rows(snapshot: Snapshot) -> bool:
    """Whether a start makes no rows of half messages where RocksDB has none: after a clean stop.

    Those of a running broker may be in its memory; what a start after a crash makes is not known.
    """
    return is_readable() and snapshot.broker_runs is False and not has_abort(snapshot.store.root)


def _without_rows(snapshot: Snapshot) -> Iterator[SkippedHalves]:
    queue_ids = snapshot.queue_ids(ROCKSDB_HALF_TOPIC)
    if not queue_ids or not makes_no_rows(snapshot):
        return
    if _without_rows not in snapshot.kept:
        try:
            is_known = half_rows(snapshot.store) is not None
        except RmqtoolError:  # of the database: it is reported as damaged
            is_known = True
        columns = ("queue_id", "queue_offset")
        snapshot.kept[_without_rows] = None if is_known else halves_in_rocksdb(snapshot, -1, columns)[0]
    halves = snapshot.kept[_without_rows]
    for queue_id in queue_ids if halves is not None else ():
        queue, own = snapshot.queue(ROCKSDB_HALF_TOPIC, queue_id), halves.filter(pc.equal(halves["queue_id"], queue_id))
        if queue is not None and own.num_rows:
            yield SkippedHalves(queue, None, np.sort(np.asarray(own["queue_offset"])))


def halves_in_rocksdb(snapshot: Snapshot, after: int, names: Sequence[str]) -> tuple[pa.Table, set[int]]:
    """Half messages that RocksDB is to have, and that were stored after a physical offset and not ended after it.

    Their physical offsets and other fields, and the physical offsets of all that were ended after it.
    """
    op = f"{PROPERTY_COLUMN}{ENDED_HALF}"
    ended = {*integers(_stored_after(snapshot, ROCKSDB_OP_TOPIC, after, (op,))[op]).drop_null().to_pylist()}
    halves = _stored_after(snapshot, ROCKSDB_HALF_TOPIC, after, names)
    return halves.filter(pc.invert(pc.is_in(halves["physical_offset"], pa.array(ended, pa.int64())))), ended


def _stored_after(snapshot: Snapshot, topic: str, after: int, names: Sequence[str]) -> pa.Table:
    """Some fields of the messages in the queues of a topic that were stored after a physical offset."""
    columns, batches = ("physical_offset", *names), list[pa.RecordBatch]()
    for queue in filter(None, (snapshot.queue(topic, queue_id) for queue_id in snapshot.queue_ids(topic))):
        with open_units(queue.queue, snapshot.reading) as units:
            start = max(0, queue.range.min_offset, units.bisect(after + 1))
        batches += _led_to(snapshot, queue.queue, start, queue.range.max_offset, columns)
    return pa.Table.from_batches(batches, message_schema(columns))


def _led_to(
    snapshot: Snapshot, queue: Queue, start: int, stop: int, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """Fields of the messages to which a part of a queue leads; the first one is ``physical_offset``."""
    log, reading, field = snapshot.log.files, snapshot.reading, message_schema(columns).field(0)
    for _, units in written_units(queue, start, stop, reading):
        heads = read_heads(log, np.unique(units["physical_offset"].astype(np.int64)), reading)
        for rows, frames in sound_records(log, heads, reading):
            offsets = pa.array(heads.offsets[rows])  # positions of a run are not those of the log
            yield from (batch.set_column(0, field, offsets) for batch in record_batches(frames, columns))


def _skipped(snapshot: Snapshot, queue: LoadedQueue, committed: int) -> Offsets:
    """Those before the committed offset that wait; units of their later copies, or copies, may be damaged."""
    first, stop = max(0, queue.range.min_offset), min(committed, queue.range.max_offset)
    waiting: dict[int, _Names] = {}
    while first < stop:
        start = max(first, stop - _PIECE)
        found = _waiting(snapshot, queue, _halves(snapshot, queue.queue, start, stop))
        if not found:
            break
        waiting |= found
        stop = start
    if waiting and (unit := queue.unit_at(min(waiting))):
        start = max(unit.physical_offset, snapshot.log_range.max_offset - _MOST_SCANNED)
        waiting = _without_copy(waiting, _logged(snapshot, queue, start))
        for damage in _damaged(snapshot, start) if waiting else ():
            waiting = {offset: each for offset, each in waiting.items() if not each.stands_in(damage)}
    return np.array(sorted(waiting), dtype=np.int64)


class _Names(NamedTuple):
    """By what a copy of a half message is known: its unique key, and its queue offset or that which it had first."""

    unique_key: str | None
    offsets: tuple[int, ...]

    def stands_in(self, damage: bytes) -> bool:
        """Whether damage of the log has the unique key."""
        return self.unique_key is not None and self.unique_key.encode() in damage


def _waiting(snapshot: Snapshot, queue: LoadedQueue, halves: pa.Table) -> dict[int, _Names]:
    """The half messages that no op message ends, that have no later copy, and are not given up, by queue offset.

    A broker that asks a producer puts a copy of its half message after the others, and goes on from there.
    """
    ended = _ended_since(snapshot, queue.queue.queue_id, halves) if halves.num_rows else None
    if ended is None:
        return {}
    offsets = np.asarray(halves.column("queue_offset"))
    rows = ~np.isin(offsets, ended) & ~np.isin(_firsts(halves), ended) & ~_given_up(snapshot.store.conf, halves)
    if not rows.any():
        return {}
    unique_keys = halves.column(UNIQUE_KEY).filter(pa.array(rows)).to_pylist()
    keys = zip(unique_keys, _firsts(halves)[rows].tolist(), strict=True)
    names = {
        offset: _Names(key, (offset,) if first < 0 else (offset, first))
        for offset, (key, first) in zip(offsets[rows].tolist(), keys, strict=True)
    }
    return _without_copy(names, _halves(snapshot, queue.queue, int(offsets[rows][0]), queue.range.max_offset))


def _without_copy(names: Mapping[int, _Names], halves: pa.Table) -> dict[int, _Names]:
    """The half messages without a later copy in `halves`."""
    offsets = halves.column("queue_offset").to_pylist()
    newest = dict(zip(_firsts(halves).tolist(), offsets, strict=True))
    by_key = dict(zip(halves.column(UNIQUE_KEY).to_pylist(), offsets, strict=True))
    return {
        offset: each
        for offset, each in names.items()
        if max(by_key.get(each.unique_key or "", 0), *(newest.get(name, 0) for name in each.offsets)) <= offset
    }


def _logged(snapshot: Snapshot, queue: LoadedQueue, start: int) -> pa.Table:
    """The half messages of a queue that the log has from a physical offset on."""
    names = ("queue_offset", *(f"{PROPERTY_COLUMN}{name}" for name in (UNIQUE_KEY, HALF_OFFSET)))
    found = _in_log(snapshot, HALF_TOPIC, queue.queue.queue_id, start, names)
    return found.rename_columns([name.removeprefix(PROPERTY_COLUMN) for name in names])


def _damaged(snapshot: Snapshot, start: int) -> Iterator[bytes]:
    """What the log has from a physical offset on in the place of sound records."""
    for event in scan_files(snapshot.log.files, start, reading=snapshot.reading):
        if isinstance(event, Damage):  # which at the end of the log goes on to that of its file
            size = min(event.size, _MOST_DAMAGED)
            yield read_at(snapshot.log.files, event.physical_offset, size, snapshot.reading)


def _ended_since(snapshot: Snapshot, queue_id: int, halves: pa.Table) -> Offsets | None:
    """What op messages end that were stored after the first of the half messages; None where some cannot be read."""
    op_queue = snapshot.queue(OP_TOPIC, queue_id) if queue_id in snapshot.queue_ids(OP_TOPIC) else None
    if op_queue is None:
        return _ended_in_log(snapshot, queue_id, int(pc.min(halves.column("physical_offset")).as_py()))
    start, stop = max(0, op_queue.range.min_offset), op_queue.range.max_offset
    with open_units(op_queue.queue, snapshot.reading) as units:
        start = max(start, units.bisect(int(pc.min(halves.column("physical_offset")).as_py())))
    ended = ended_halves(op_queue.queue, start, stop, snapshot.log.files, snapshot.reading)
    return None if ended.unread else ended.offsets


def _ended_in_log(snapshot: Snapshot, queue_id: int, start: int) -> Offsets | None:
    """What op messages in the log end, from a physical offset on; None where that is too much to read."""
    if snapshot.log_range.max_offset - start > _MOST_SCANNED:
        return None
    bodies = b",".join(_in_log(snapshot, OP_TOPIC, queue_id, start, ("stored_body",)).column("stored_body").to_pylist())
    return np.unique(np.array(_OFFSETS.findall(bodies)).astype(np.int64))


def _in_log(snapshot: Snapshot, topic: str, queue_id: int, start: int, names: Sequence[str]) -> pa.Table:
    """Some fields of a queue's messages in the log from a physical offset on."""
    end, found = snapshot.log_range.max_offset, []
    schema = message_schema(("topic", "queue_id", *names))
    for event in scan_files(snapshot.log.files, start, end, snapshot.reading):
        for batch in record_batches(event, schema.names) if isinstance(event, RecordRun) else ():
            is_here = pc.and_(pc.equal(batch.column("topic"), topic), pc.equal(batch.column("queue_id"), queue_id))
            found.append(batch.filter(is_here))
    return pa.Table.from_batches(found, schema).select(list(names))


def _given_up(conf: BrokerConf, halves: pa.Table) -> NDArray[np.bool_]:
    """Those that a broker asks for no more: often enough, or too old (`#needDiscard`, `#needSkip`)."""
    checked = integers(halves.column(CHECK_TIMES), _DIGITS).fill_null(0)
    most = conf.size("transactionCheckMax") or _CHECK_MAX
    oldest = (conf.size("fileReservedTime") or _RESERVED_HOURS) * _HOUR_MS
    stored = np.asarray(halves.column("store_timestamp"))
    age = int(stored.max()) - np.asarray(halves.column("born_timestamp"))
    return (np.asarray(checked) >= most) | (age > oldest)


def _halves(snapshot: Snapshot, queue: Queue, start: int, stop: int) -> pa.Table:
    """Some fields of the half messages of a part of the queue."""
    properties = (f"{PROPERTY_COLUMN}{name}" for name in (UNIQUE_KEY, CHECK_TIMES, HALF_OFFSET))
    names = ("physical_offset", "queue_offset", "store_timestamp", "born_timestamp", *properties)
    batches = _led_to(snapshot, queue, start, stop, names)
    table = pa.Table.from_batches(batches, message_schema(names)).combine_chunks()
    table = table.rename_columns([name.removeprefix(PROPERTY_COLUMN) for name in names])
    offsets = np.asarray(table.column("queue_offset"))
    return table.filter(pa.array((offsets >= start) & (offsets < stop))).sort_by("queue_offset")


def _firsts(halves: pa.Table) -> Offsets:
    """The queue offset that each half message had first, -1 of those that are not copies within its immunity."""
    return np.asarray(integers(halves.column(HALF_OFFSET), _DIGITS).fill_null(-1))
