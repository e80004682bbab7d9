"""What the end of a log holds that goes: how many messages, and what a broker had delivered with them.

A delayed message, a timer or a half message that stands before the cut may have been delivered after it. Its delivery
goes, so that it has to be delivered again: known by its unique key, or by when it was due.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmqtool.base.files import Progress
from rmqtool.broker.check_points import ACKNOWLEDGEMENTS, CHECK_POINT
from rmqtool.formats.properties import ENDED_HALF, HALF_OFFSET, TIMER_DELETES, TIMER_DUE, TIMER_ROLL_TIMES, UNIQUE_KEY
from rmqtool.rules.system_topics import HALF_TOPIC, TIMER_TOPIC
from rmqtool.scan.columns import PROPERTY_COLUMN, record_batches
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from rmqtool.scan.windows import integers
from rmqtool.store.queue_units import LoadedQueue
from rmqtool.store.single_messages import SingleMessages
from rmqtool.store.snapshot import Snapshot

_PROPERTIES = (UNIQUE_KEY, TIMER_DUE, HALF_OFFSET, TIMER_ROLL_TIMES, TIMER_DELETES, ENDED_HALF)
_COLUMNS = (
    "topic", "queue_id", "reconsume_times", "store_timestamp", "tags",
    *(f"{PROPERTY_COLUMN}{name}" for name in _PROPERTIES),
)  # fmt: skip
_DIGITS = 18
_IN_ORDER = 64  # deliveries of a level may overtake so many others
_ROLLING_MS = 3000  # a message that is put off is stored so much later than its slot was read
_NEVER = 1 << 62


@dataclass(frozen=True)
class Tail:
    """The records from an offset on; times in epoch ms, offsets of half messages by their queues."""

    records: int = 0
    first_store_timestamp: int = _NEVER
    delivered_timer: int = _NEVER  # when the first timer message was due that was delivered, or put off, there
    keys: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))  # hashes, ascending
    copied_halves: tuple[tuple[int, int], ...] = ()  # queue and first queue offset of those that were asked for again
    ended_halves: frozenset[int] = frozenset()  # physical offsets of half messages in RocksDB that got their answer
    timer_keys: frozenset[str] = frozenset()  # unique keys of timer messages that were delivered, put off or taken back
    pops: tuple[int, ...] = ()  # physical offsets of check points and acknowledgements of POP consumers

    def has(self, unique_key: str | None, reconsume_times: int) -> bool:
        """Whether a record of it has a unique key, and was consumed as often: each retry has the same key."""
        if unique_key is None:
            return False
        wanted = hash((unique_key, reconsume_times))
        row = int(np.searchsorted(self.keys, wanted))
        return row < len(self.keys) and int(self.keys[row]) == wanted


def read_tail(snapshot: Snapshot, offset: int, progress: Progress) -> Tail:
    """Read the log from an offset on; raises UnreadableError."""
    records, first, timer = 0, _NEVER, _NEVER
    keys, halves, pops, timer_keys = array("q"), dict[int, int](), array("q"), set[str]()
    ended = set[int]()
    for event in scan_files(snapshot.log.files, offset, reading=snapshot.reading):
        if not isinstance(event, RecordRun):
            continue
        records += len(event)
        first = min(first, int(event.headers.field("store_timestamp").min()))
        for batch in record_batches(event, _COLUMNS):
            pairs = zip(
                _property(batch, UNIQUE_KEY).to_pylist(), batch.column("reconsume_times").to_pylist(), strict=True
            )
            keys.extend(hash(pair) for pair in pairs if pair[0] is not None)
            timer = min(timer, _delivered_timer(batch))
            timer_keys.update(_timer_keys(batch))
            ended.update(integers(_property(batch, ENDED_HALF).drop_null(), _DIGITS).drop_null().to_pylist())
            _add_halves(batch, halves)
            pops.extend(event.physical_offsets[_are_pops(batch)].tolist())
        progress(event.size)
    hashes = np.sort(np.frombuffer(keys, np.int64))
    before = frozenset(each for each in ended if each < offset)
    return Tail(records, first, timer, hashes, tuple(halves.items()), before, frozenset(timer_keys), tuple(pops))


def _property(batch: pa.RecordBatch, name: str) -> pa.Array:
    return batch.column(f"{PROPERTY_COLUMN}{name}")


def _delivered_timer(batch: pa.RecordBatch) -> int:
    """When the first of the timer messages was due that were delivered, or put off to a later slot."""
    is_queued = pc.equal(batch.column("topic"), TIMER_TOPIC)
    dues = integers(_property(batch, TIMER_DUE).filter(pc.invert(is_queued)).drop_null(), _DIGITS).drop_null()
    is_put_off = pc.and_(is_queued, pc.is_valid(_property(batch, TIMER_ROLL_TIMES)))
    put_off = pc.subtract(batch.column("store_timestamp").filter(is_put_off), _ROLLING_MS)
    return int(min((pc.min(times).as_py() for times in (dues, put_off) if len(times)), default=_NEVER))


def _timer_keys(batch: pa.RecordBatch) -> Iterator[str]:
    """The unique keys of the timer messages that were delivered or put off, or that others take back."""
    of_timer = _property(batch, UNIQUE_KEY).filter(pc.is_valid(_property(batch, TIMER_DUE)))
    yield from of_timer.drop_null().to_pylist()
    yield from (text.partition("+")[2] or text for text in _property(batch, TIMER_DELETES).drop_null().to_pylist())


def _are_pops(batch: pa.RecordBatch) -> NDArray[np.bool_]:
    """Which messages are check points and acknowledgements that begin to wait for their time: those put off do not."""
    is_tagged = pc.is_in(batch.column("tags"), pa.array([CHECK_POINT, *ACKNOWLEDGEMENTS]))
    is_new = pc.and_(pc.equal(batch.column("topic"), TIMER_TOPIC), pc.is_null(_property(batch, TIMER_ROLL_TIMES)))
    return np.asarray(pc.and_(is_tagged, is_new))


def _add_halves(batch: pa.RecordBatch, halves: dict[int, int]) -> None:
    is_copy = pc.and_(pc.equal(batch.column("topic"), HALF_TOPIC), pc.is_valid(_property(batch, HALF_OFFSET)))
    copies = batch.filter(is_copy)
    offsets = integers(_property(copies, HALF_OFFSET), _DIGITS).to_pylist()
    for queue_id, offset in zip(copies.column("queue_id").to_pylist(), offsets, strict=True):
        if offset is not None:
            halves[queue_id] = min(offset, halves.get(queue_id, offset))


def first_undone(queue: LoadedQueue, end: int, tail: Tail, messages: SingleMessages, *, by_time: bool = False) -> int:
    """The queue offset of the first message before `end` that was delivered in the tail, `end` without one.

    With `by_time` those count too that were due only when the tail had begun: their units hold that time.
    """

    def is_undone(offset: int) -> bool:
        message, due = messages.waiting(queue, offset)
        is_later = by_time and due is not None and due >= tail.first_store_timestamp
        return is_later or (message is not None and tail.has(message["unique_key"], message["reconsume_times"]))

    return first_before(queue, end, is_undone)


def first_before(queue: LoadedQueue, end: int, is_undone: Callable[[int], bool]) -> int:
    """The first of the queue offsets before `end` that are undone, `end` without one."""
    first, others, offset = end, 0, end
    while offset > max(0, queue.range.min_offset) and others < _IN_ORDER:
        offset -= 1
        if is_undone(offset):
            first, others = offset, 0
        else:
            others += 1
    return first
