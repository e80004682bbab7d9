"""Half messages that no op message ends (`TransactionalMessageServiceImpl#check`)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmqtool.broker.half_messages import ended_halves
from rmqtool.findings.finding import counted
from rmqtool.formats.properties import CHECK_IMMUNITY, HALF_OFFSET, PRODUCER_GROUP, REAL_QUEUE_ID, REAL_TOPIC
from rmqtool.pending.messages import View, messages_of, part_from
from rmqtool.pending.waiting import integers, waiting
from rmqtool.rules.system_topics import HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC, TRANSACTION_GROUP
from rmqtool.store.queue_units import LoadedQueue

_PROPERTIES = (REAL_TOPIC, REAL_QUEUE_ID, PRODUCER_GROUP, HALF_OFFSET, CHECK_IMMUNITY)
_TIMEOUT_MS = 6_000  # BrokerConfig#transactionTimeOut


def pending_halves(view: View) -> Iterator[pa.RecordBatch]:
    """The half messages without an answer; due is when the broker asks their producers first."""
    timeout = view.snapshot.store.conf.size("transactionTimeOut") or _TIMEOUT_MS
    any_half = False
    for queue in view.queues(HALF_TOPIC):
        if queue.queue.topic != HALF_TOPIC:
            continue
        ended, superseded = _ended(view, queue.queue.queue_id), _superseded(view, queue)
        for messages in messages_of(view, part_from(queue, _start(view, queue), _PROPERTIES)):
            own, first = np.asarray(messages.column("queue_offset")), _first_offsets(messages)
            is_done = np.isin(own, ended) | np.isin(first, ended) | np.isin(own, superseded)
            kept = messages.filter(pa.array(~is_done))
            any_half |= kept.num_rows > 0
            seconds = integers(kept.column(CHECK_IMMUNITY)).fill_null(timeout // 1000)
            yield waiting(
                "half",
                kept,
                due_timestamp=pc.add(kept.column("born_timestamp"), pc.multiply(seconds, 1000)),
                to_topic=kept.column(REAL_TOPIC),
                to_queue_id=integers(kept.column(REAL_QUEUE_ID), queue_ids=True),
                group=kept.column(PRODUCER_GROUP),
                topic=HALF_TOPIC,
                queue_id=queue.queue.queue_id,
            )
    if any_half:
        why = "the broker asks their producers again: what they answer, no file says"
        view.notes.add_uncertain("whether half messages are committed or rolled back", why)
    if any(queue.queue.topic == ROCKSDB_HALF_TOPIC for queue in view.queues(ROCKSDB_HALF_TOPIC)):
        why = "transRocksDBEnable keeps them in RocksDB: not looked at"
        view.notes.add_unread(f"half messages of {ROCKSDB_HALF_TOPIC}", why)


def _start(view: View, queue: LoadedQueue) -> int:
    return view.committed(TRANSACTION_GROUP, queue) or 0


def _ended(view: View, queue_id: int) -> NDArray[np.int64]:
    """Queue offsets of half messages that op messages name."""
    for queue in view.queues(OP_TOPIC):
        if queue.queue.topic == OP_TOPIC and queue.queue.queue_id == queue_id:
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
