"""Rows in RocksDB of index, timers, half messages and POP that lead past new ends, and those that come back.

A timer message that was delivered after the cut, and a half message that got its answer there, have no row any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.timer_start import read_timer_queue, timer_state_of
from rmqtool.cut.place import Place
from rmqtool.cut.queues import CutQueue
from rmqtool.cut.rows import NewSideRows
from rmqtool.cut.tail import Tail
from rmqtool.formats.properties import REAL_TOPIC, UNIQUE_KEY
from rmqtool.formats.rocksdb_rows import (
    INDEX_HOUR,
    INDEXED_TIME,
    INDEXED_TO,
    PROGRESS,
    TIMERS_INDEXED_TO,
    index_prefix,
    is_progress,
    new_transaction_row,
    pop_entry,
    progress_value,
    timer_row,
    transaction_row,
)
from rmqtool.rebuild.staged import RowChange
from rmqtool.repair.change import Change
from rmqtool.scan.single_record import properties_at
from rmqtool.store.side_rows import (
    HALF_FAMILY,
    INDEX_FAMILY,
    POP_FAMILY,
    POP_STORE,
    TIMER_FAMILY,
    RocksDbIndex,
    half_rows,
    held_messages,
    timer_rows,
)
from rmqtool.store.single_messages import SingleMessages
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import SIDE_STORE


class TimerRowsCut(NamedTuple):
    """How rows of the timer change, None where they stay, and where it goes on in its queue."""

    change: RowChange | None
    queue_offset: int


def timers_cut(snapshot: Snapshot, offset: int, queue_end: int | None, tail: Tail) -> TimerRowsCut | None:
    """What a cut at an offset changes of timers in RocksDB, None without any; their queue ends before `queue_end` then.

    The queue is read again from the first message on that was delivered after the cut: what is due of it a broker
    delivers at once, of the others it makes rows.
    """
    rows = timer_rows(snapshot.store)
    if rows is None:
        return None
    first = _first_again(snapshot, offset, {*tail.timer_keys})
    begin = min(each for each in (rows.indexed_to, queue_end, first) if each is not None)
    if begin == rows.indexed_to and not (rows.physical_offsets >= offset).any():
        return TimerRowsCut(None, begin)
    progress = {TIMERS_INDEXED_TO: progress_value(begin)}
    return TimerRowsCut(RowChange(TIMER_FAMILY, b"", _leads_past(offset, timer_row, 1), progress), begin)


def _leads_past(
    offset: int, decode: Callable[[bytes, bytes], tuple[int, int]], column: int
) -> Callable[[bytes, bytes], bool]:
    return lambda key, value: not is_progress(key) and decode(key, value)[column] >= offset


def _first_again(snapshot: Snapshot, offset: int, keys: set[str]) -> int | None:
    """The first queue offset of timer messages with these unique keys; of each the last one before the cut counts."""
    log, first = snapshot.log.files, None
    queue = read_timer_queue(timer_state_of(snapshot), log) if keys else None
    if queue is None:
        return None
    for row in np.flatnonzero(queue.physical_offsets < offset)[::-1].tolist():
        unique_key = (properties_at(log, int(queue.physical_offsets[row])) or {}).get(UNIQUE_KEY)
        if unique_key in keys:
            first = int(queue.queue_offsets[row])
            keys.remove(unique_key)
        if not keys:
            break
    return first


def side_changes(snapshot: Snapshot, place: Place, tail: Tail, timers: TimerRowsCut | None) -> Iterator[Change]:
    """The database of index, timers and half messages, where any of them changes."""
    found = (timers.change if timers else None, *_halves(snapshot, place, tail), *_index(snapshot, place, tail))
    rows = tuple(each for each in found if each)
    if rows:
        what = f"{SIDE_STORE}: without the rows of what is deleted"
        yield NewSideRows(codes=frozenset(), what=what, directory=snapshot.store.root / SIDE_STORE, rows=rows)


def pop_changes(snapshot: Snapshot, queues: Sequence[CutQueue]) -> Iterator[Change]:
    """The database of what POP consumers hold, without rows of messages that go."""
    store, ends = snapshot.store, {each.name: each.max_after for each in queues}

    def is_past(topic: str, queue_id: int, queue_offset: int) -> bool:
        return queue_offset >= ends.get(QueueName(topic, queue_id), queue_offset + 1)

    def is_gone(key: bytes, value: bytes) -> bool:
        row = pop_entry(key, value).key
        return is_past(row["topic"], row["queue_id"], row["queue_offset"])

    if any(is_past(each.topic, each.queue_id, each.queue_offset) for each in held_messages(store)):
        what = f"{POP_STORE}: without the rows of what is deleted"
        rows = (RowChange(POP_FAMILY, b"", is_gone, {}),)
        yield NewSideRows(codes=frozenset(), what=what, directory=store.root / POP_STORE, rows=rows)


def _halves(snapshot: Snapshot, place: Place, tail: Tail) -> Iterator[RowChange]:
    """Rows of half messages that go; those whose answer goes come back, as if nobody had asked for it yet."""
    rows, messages = half_rows(snapshot.store), SingleMessages(snapshot)
    if rows is None or not (tail.ended_halves or rows.indexed_to >= place.offset):
        return
    found = (messages.at(each) for each in sorted(tail.ended_halves))
    back = dict(
        new_transaction_row(
            each["physical_offset"],
            each["properties"].get(REAL_TOPIC, ""),
            each["unique_key"] or "",
            each["message_size"],
        )
        for each in found
        if each
    )
    progress = {INDEXED_TO: progress_value(min(rows.indexed_to, place.last_record))}
    yield RowChange(HALF_FAMILY, b"", _leads_past(place.offset, transaction_row, 0), {**back, **progress})


def _index(snapshot: Snapshot, place: Place, tail: Tail) -> Iterator[RowChange]:
    newest = RocksDbIndex(snapshot.store).last_offset()
    if newest is None or newest < place.offset:
        return
    start = index_prefix(tail.first_store_timestamp - tail.first_store_timestamp % INDEX_HOUR)
    last = {INDEXED_TO: place.last_record, INDEXED_TIME: place.last_store_timestamp}

    def is_gone(key: bytes, _: bytes) -> bool:
        return key not in PROGRESS and int.from_bytes(key[-8:], "big") >= place.offset

    yield RowChange(INDEX_FAMILY, start, is_gone, {key: progress_value(each) for key, each in last.items()})
