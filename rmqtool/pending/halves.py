"""Half messages that no op message ends (`TransactionalMessageServiceImpl#check`)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmqtool.base.errors import RmqtoolError
from rmqtool.broker.half_messages import ended_halves, skipped_halves
from rmqtool.findings.finding import counted
from rmqtool.formats.properties import (
    CHECK_IMMUNITY,
    ENDED_HALF,
    HALF_OFFSET,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
)
from rmqtool.pending.messages import Kind, View, messages_of, part_from
from rmqtool.rules.system_topics import HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC, TRANSACTION_GROUP
from rmqtool.scan.windows import integers
from rmqtool.store.queue_units import LoadedQueue
from rmqtool.store.side_rows import HalfRows, half_rows

_PROPERTIES = (REAL_TOPIC, REAL_QUEUE_ID, PRODUCER_GROUP, HALF_OFFSET, CHECK_IMMUNITY)
_TIMEOUT_MS = 6_000  # BrokerConfig#transactionTimeOut
_CHECK_MAX = 15  # BrokerConfig#transactionCheckMax: what was asked for more often is given up, not asked for again


def pending_halves(view: View) -> Iterator[pa.RecordBatch]:
    """The half messages without an answer; due is when the broker asks their producers first."""
    any_half = False
    for rows in (*_in_files(view), *_in_rocksdb(view)):
        any_half |= rows.num_rows > 0
        yield rows
    if any_half:
        why = "the broker asks their producers again: what they answer, no file says"
        view.notes.add_uncertain("whether half messages are committed or rolled back", why)


def lost_halves(view: View) -> Iterator[pa.RecordBatch]:
    """The half messages before the committed offset that wait for an answer: no broker asks for it."""
    for skipped in skipped_halves(view.snapshot):
        for messages in messages_of(view, part_from(skipped.queue, int(skipped.offsets[0]), _PROPERTIES)):
            is_skipped = np.isin(np.asarray(messages.column("queue_offset")), skipped.offsets)
            yield _rows(view, skipped.queue, messages.filter(pa.array(is_skipped)), "lost-half")


def _in_files(view: View) -> Iterator[pa.RecordBatch]:
    for queue in view.queues(HALF_TOPIC, is_whole=True):
        ended, superseded = _ended(view, queue.queue.queue_id), _superseded(view, queue)
        for messages in messages_of(view, part_from(queue, _start(view, queue), _PROPERTIES)):
            own, first = np.asarray(messages.column("queue_offset")), _first_offsets(messages)
            is_done = np.isin(own, ended) | np.isin(first, ended) | np.isin(own, superseded)
            yield _rows(view, queue, messages.filter(pa.array(~is_done)))


def _in_rocksdb(view: View) -> Iterator[pa.RecordBatch]:
    """Half messages of a topic of their own, of which RocksDB knows those that wait (`TransMessageRocksDBStore`)."""
    for queue in view.queues(ROCKSDB_HALF_TOPIC, is_whole=True):
        if (known := _half_rows(view)) is None:
            continue
        times = view.snapshot.store.conf.size("transactionCheckMax") or _CHECK_MAX
        waiting_ones, ended = known.physical_offsets[known.check_times <= times], _ended_in_rocksdb(view)
        for messages in messages_of(view, part_from(queue, 0, _PROPERTIES)):
            offsets = np.asarray(messages.column("physical_offset"))
            waits = np.isin(offsets, waiting_ones) | (offsets > known.indexed_to)
            yield _rows(view, queue, messages.filter(pa.array(waits & ~np.isin(offsets, ended))))


def _half_rows(view: View) -> HalfRows | None:
    why = "no row of them is in RocksDB"
    try:
        if known := half_rows(view.snapshot.store):
            return known
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


def _rows(view: View, queue: LoadedQueue, messages: pa.Table, kind: Kind = "half") -> pa.RecordBatch:
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
                    view.notes.add_unread(what, "damaged or missing: half messages may be done that it names")
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
