"""What a broker returns of a queue of a tier to a consumer that pulls from its first message on.

Segments are read as the metadata have them, whatever the files hold (`FlatAppendFile`, `MessageStoreFetcherImpl`,
`MessageFormatUtil#splitMessageBuffer`; up to 5.2 `TieredFlatFile`, `TieredMessageFetcher`, `MessageBufferUtil`). A pull
that fails returns the same offset again and again: the consumer gets nothing that follows, not even local messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.files import OpenFiles
from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.pull import PULLED, Answer, Status, Subscription, limits_of
from rmqtool.formats.consume_queue import UNIT_DTYPE, UNIT_SIZE
from rmqtool.formats.layout import decode_units, integer_at, position_of
from rmqtool.formats.message import MAGIC_CODE_V1, MAGIC_CODE_V2, MAGIC_POSITION, PREFIX_DTYPE
from rmqtool.formats.tiered import CODA_MAGIC, CODA_SIZE
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import TIER_REWRITTEN, Version
from rmqtool.scan.block import PADDING, Block
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.pointed_records import records_at
from rmqtool.store.tiered import DELETED, QUEUE_KINDS, Row, SegmentKind, Tier, TieredQueue

_QUEUE_OFFSET_AT = position_of(PREFIX_DTYPE, "queue_offset")
_FIRST_RECORD = _QUEUE_OFFSET_AT + 8  # bytes that are read of it
_READ_FOR_ONE = 32  # messages that are read ahead for a pull of one
NO_UNITS = np.zeros(0, UNIT_DTYPE)


class ReadAhead(NamedTuple):
    """How much a broker reads of a tier at once, by its settings: messages and bytes; up to 5.2 some times a pull.

    Where it is not `is_cached`, each pull reads what it asks for; else its answer ends after the `transferred` bytes.
    """

    messages: int
    size: int
    factor: int
    is_cached: bool
    transferred: int

    @classmethod
    def of(cls, conf: BrokerConf, version: Version) -> ReadAhead:
        """That of a broker of a release."""
        is_older = version < TIER_REWRITTEN
        count = conf.number("readAheadMessageCountThreshold") or (2048 if is_older else 4096)
        size = conf.number("readAheadMessageSizeThreshold") or (128 << 20 if is_older else 16 << 20)
        factor = conf.number("readAheadMinFactor") or 2
        is_cached = is_older or conf.is_on("readAheadCacheEnable", default=True)
        return cls(count, size, factor, is_cached, limits_of(conf).bytes_in_memory)


class FlatSegment(NamedTuple):
    """A segment as a start takes it from the metadata: of a file that is shorter the rest is read as zeros."""

    base: int
    size: int
    file: MappedFile | None

    @property
    def end(self) -> int:
        """Where it ends in its flat file, bytes."""
        return self.base + self.size


@dataclass(frozen=True)
class FlatFile:
    """The segments of a commit log or a consume queue that a broker knows after a start."""

    kind: SegmentKind
    segments: tuple[FlatSegment, ...]
    is_older: bool
    open_files: OpenFiles

    @property
    def min_offset(self) -> int:
        """Where it begins, bytes; 0 without a segment."""
        return self.segments[0].base if self.segments else 0

    @property
    def commit_offset(self) -> int:
        """Where it ends, bytes; 0 without a segment."""
        return self.segments[-1].end if self.segments else 0

    def read(self, offset: int, length: int) -> bytes | None:
        """Bytes of at most two segments; None where the read fails."""
        if self._index_of(offset) < 0 or (self.is_older and offset > self.commit_offset):
            return None
        parts = [self._read_segment(*part) for part in self._parts(offset, length)]
        return None if None in parts else b"".join(filter(None, parts))

    def _index_of(self, offset: int) -> int:
        return sum(each.base <= offset for each in self.segments) - 1

    def _parts(self, offset: int, length: int) -> list[tuple[FlatSegment, int, int]]:
        """The segments that a read takes bytes from, with the position and length in each."""
        index = self._index_of(offset)
        first, following = self.segments[index], self.segments[index + 1 : index + 2]
        if offset + length <= first.end or not following:
            return [(first, offset - first.base, length)]
        in_first = first.end - offset
        return [(first, offset - first.base, in_first), (following[0], 0, length - in_first)]

    def breaks(self, offset: int, length: int) -> list[tuple[int, int]]:
        """Where such a read does not return what the log had there, from and to in its bytes.

        Up to 5.2 what a shorter file does not have is left out: what follows it moves up.
        """
        found, at, parts = list[tuple[int, int]](), 0, self._parts(offset, length)
        for segment, position, wanted in parts:
            held = min(segment.size, segment.file.size) if segment.file else 0
            got = min(wanted, max(0, held - position))
            returned = got if self.is_older else wanted
            if got < wanted:
                found.append((at + got, at + returned))
            at += returned
            if segment is not parts[-1][0] and segment.end != parts[-1][0].base:
                found.append((at, at))
        return found

    def _read_segment(self, segment: FlatSegment, position: int, length: int) -> bytes | None:
        """As `FileSegment#readAsync` and `PosixFileSegment#read0`."""
        if position < 0 or length <= 0 or position >= segment.size:
            return None
        if position + length > segment.size:
            length = segment.size - position
            if self.is_older and self.kind == "CONSUME_QUEUE" and length % UNIT_SIZE:
                return None
        file = segment.file
        held = min(length, max(0, file.size - position)) if file else 0
        data = self.open_files.get(file.place).read(position, held) if file and held else b""
        return data if self.is_older else data.ljust(length, b"\0")


def _flat_file_of(
    tier: Tier, queue: TieredQueue, kind: SegmentKind, version: Version, open_files: OpenFiles
) -> FlatFile:
    """A flat file after a start, which looks at the size of the last file (`recoverFileSize`).

    Up to 5.2 also at those of others that do not end where the next begins (`checkAndFixFileSize`). Since then a log
    without a segment begins at 0, where a file may be (`FlatCommitLogFile#initOffset`).
    """
    is_older = version < TIER_REWRITTEN
    files = {file.start_offset: file for file in queue.files[kind].files}
    rows = [row for _, row in sorted(tier.rows(queue, kind).items()) if not (is_older and row.status == DELETED)]
    if not rows and not is_older and kind == "COMMIT_LOG":
        rows = [Row(0, 0)]
    segments = list[FlatSegment]()
    for number, row in enumerate(rows):
        file, size = None if row.is_elsewhere and not is_older else files.get(row.base), row.size
        held = file.size if file else 0
        is_last = number == len(rows) - 1
        if is_last or (is_older and row.base + size != rows[number + 1].base == row.base + held):
            size = held
        segments.append(FlatSegment(row.base, size, file))
    return FlatFile(kind, tuple(segments), is_older, open_files)


class _Fetched(NamedTuple):
    """Messages that one read of the tier returns: where they begin in its bytes, and how many units it has read.

    `leading` are the units of the messages. At the `breaks`, from and to, its bytes are not those of the log: of a
    shorter file, or between segments.
    """

    data: bytes
    positions: NDArray[np.intp]
    leading: NDArray[np.void]
    units: int
    breaks: Sequence[tuple[int, int]] = ()

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The sizes of the messages, bytes."""
        return self.leading["message_size"].astype(np.int64)

    def whole_records(self, block: Block, rows: NDArray[np.intp]) -> Iterator[RecordRun]:
        """The records in some rows that are whole; `block` has the bytes."""
        starts, sizes = self.positions[rows], self.sizes[rows]
        is_whole = np.ones(len(rows), np.bool_)
        for begin, end in self.breaks:
            is_whole &= (starts >= end) | (starts + sizes <= begin)
        yield from records_at(block, starts[is_whole], sizes[is_whole])


@dataclass(frozen=True)
class TieredReads:
    """The queue of a tier as a broker of a release reads it after a start."""

    log: FlatFile
    units: FlatFile
    ahead: ReadAhead

    @classmethod
    def of(cls, tier: Tier, queue: TieredQueue, version: Version, open_files: OpenFiles) -> TieredReads:
        """Those of a queue after a start of a release."""
        log, units = (_flat_file_of(tier, queue, kind, version, open_files) for kind in QUEUE_KINDS)
        return cls(log, units, ReadAhead.of(tier.store.conf, version))

    @property
    def is_older(self) -> bool:
        """Whether it is a release before the one that rewrote tiered storage."""
        return self.log.is_older

    @property
    def max_offset(self) -> int:
        """Queue offset after the last unit."""
        return self.units.commit_offset // UNIT_SIZE

    @property
    def min_offset(self) -> int:
        """Queue offset of the first message (`FlatMessageFile#getConsumeQueueMinOffset`)."""
        head = None
        if self.log.commit_offset - self.log.min_offset >= _FIRST_RECORD:
            head = self.log.read(self.log.min_offset, _FIRST_RECORD)
        is_read = head is not None and len(head) >= _FIRST_RECORD
        first = integer_at(PREFIX_DTYPE, "queue_offset", head.ljust(PREFIX_DTYPE.itemsize)) if head and is_read else -1
        return max(self.units.min_offset // UNIT_SIZE, first)

    def fetch(self, queue_offset: int, most: int) -> _Fetched | None:
        """One read of so many units (`getMessageFromTieredStoreAsync`); None where it fails."""
        units = self.units.read(queue_offset * UNIT_SIZE, most * UNIT_SIZE)
        if units is None or len(units) < UNIT_SIZE:
            return None
        first = integer_at(UNIT_DTYPE, "physical_offset", units)
        last = integer_at(UNIT_DTYPE, "physical_offset", units, len(units) - UNIT_SIZE)
        if last < first:
            return None if self.is_older else _nothing(len(units) // UNIT_SIZE)
        limit = self._limited(units, first)
        if limit is None:
            return None
        length = _end_of_last(units, limit) - first
        data = self.log.read(first, length)
        if data is None:
            return None
        if limit % UNIT_SIZE:
            return _nothing(limit // UNIT_SIZE)
        return self._split(decode_units(UNIT_DTYPE, units[:limit]), data, self.log.breaks(first, length))

    def _limited(self, units: bytes, first: int) -> int | None:
        """How many bytes of units lead to no more messages than are read at once; None where that fails."""
        limit = len(units)
        while limit > UNIT_SIZE and _end_of_last(units, limit) - first > self.ahead.size:
            limit -= UNIT_SIZE
            if limit < UNIT_SIZE:
                return None
        return limit

    def _split(self, units: NDArray[np.void], data: bytes, breaks: Sequence[tuple[int, int]]) -> _Fetched | None:
        """The messages at which units point that have their size (`splitMessageBuffer`)."""
        places, sizes = (units[name].astype(np.int64) for name in ("physical_offset", "message_size"))
        positions = (places - places[0]).astype(np.int32).astype(np.int64)
        is_end = positions + sizes > len(data)
        is_outside = (positions < 0) | (positions + MAGIC_POSITION + 4 > len(data))
        end, outside = _first(is_end), _first(is_outside & ~is_end)
        if outside < end and not self.is_older:
            return None
        positions, sizes = positions[: min(end, outside)], sizes[: min(end, outside)]
        padded = np.frombuffer(data + bytes(CODA_SIZE + MAGIC_POSITION + 4), np.uint8)
        is_coda = _integers_at(padded, positions + MAGIC_POSITION) == CODA_MAGIC
        positions = positions + np.where(is_coda, CODA_SIZE, 0)
        magic = _integers_at(padded, positions + MAGIC_POSITION)
        is_message = ((magic == MAGIC_CODE_V1) | (magic == MAGIC_CODE_V2)) & (_integers_at(padded, positions) == sizes)
        leading = units[: len(positions)][is_message]
        return _Fetched(data, positions[is_message].astype(np.intp), leading, len(units), breaks)

    def pull(self, queue_offset: int, most: int, subscription: Subscription) -> tuple[Answer, NDArray[np.void]] | None:
        """The answer to one pull of an offset in the tier, without its units, and these; None where the read fails."""
        if (outside := self._outside(queue_offset)) is not None:
            return outside, NO_UNITS
        return self._pull_older(queue_offset, most) if self.is_older else self._pull(queue_offset, most, subscription)

    def _pull_older(self, queue_offset: int, most: int) -> tuple[Answer, NDArray[np.void]] | None:
        """Up to 5.2 a broker does not filter messages of the tier by tags."""
        fetched = self.fetch(queue_offset, most * self.ahead.factor)
        if fetched is None:
            return None
        taken = fetched.leading[:most]
        status: Status = "FOUND" if len(taken) else "MESSAGE_WAS_REMOVING"
        return self._answer(status, queue_offset + (len(taken) or fetched.units)), taken

    def _pull(self, queue_offset: int, most: int, subscription: Subscription) -> tuple[Answer, NDArray[np.void]] | None:
        """With a cache more is read, and the answer ends where it is full; without one all that is read counts."""
        is_cached = self.ahead.is_cached
        count = most if not is_cached else _READ_FOR_ONE if most == 1 else self.ahead.messages
        fetched = self.fetch(queue_offset, min(count, self.ahead.messages, self.max_offset - queue_offset))
        if fetched is None:
            return (self._answer("NO_MATCHED_MESSAGE", queue_offset), NO_UNITS) if is_cached else None
        leading = fetched.leading
        is_wanted = np.array([subscription.takes_unit(code) for code in leading["tags_code"].tolist()], np.bool_)
        seen = _seen(is_wanted, fetched.sizes, most, self.ahead.transferred) if is_cached else fetched.units
        taken = leading[:seen][is_wanted[:seen]]
        return self._answer("FOUND" if len(taken) else "NO_MATCHED_MESSAGE", queue_offset + seen), taken

    def _outside(self, queue_offset: int) -> Answer | None:
        """The answer to a pull of an offset that is not in the tier (`MessageStoreFetcherImpl#getMessageAsync`)."""
        if self.max_offset <= 0:
            return self._answer("NO_MESSAGE_IN_QUEUE", queue_offset)
        if queue_offset < self.min_offset:
            return self._answer("OFFSET_TOO_SMALL", self.min_offset)
        if queue_offset < self.max_offset:
            return None
        is_next = queue_offset == self.max_offset
        return self._answer("OFFSET_OVERFLOW_ONE" if is_next else "OFFSET_OVERFLOW_BADLY", self.max_offset)

    def _answer(self, status: Status, next_begin_offset: int) -> Answer:
        return Answer(status, next_begin_offset, self.min_offset, self.max_offset)


@dataclass
class TieredConsumer:
    """A consumer that reads the queue of a tier on from `queue_offset`; no pull moves on one that `is_stuck`.

    Where a read fails and is not cached, the local queue answers with what it has: `local`, and `from_local`.
    """

    reads: TieredReads
    queue_offset: int
    local: range = range(0)
    is_stuck: bool = False
    from_local: list[range] = field(default_factory=list)

    def pull(self, stop: int) -> Iterator[RecordRun]:
        """The whole messages that it gets, until it is at `stop` or after it; what is no whole record is left out."""
        if self.reads.is_older:
            yield from self._pull_older(stop)
        else:
            yield from self._pull(stop) if self.reads.ahead.is_cached else self._pull_at_once(stop)

    def _pull_locally(self) -> bool:
        """Go on with what the local queue returns; without any the consumer is stuck."""
        taken = range(self.queue_offset, min(self.queue_offset + PULLED, self.local.stop))
        self.is_stuck = self.queue_offset not in self.local
        if not self.is_stuck:
            self.from_local.append(taken)
            self.queue_offset = taken.stop
        return not self.is_stuck

    def _pull(self, stop: int) -> Iterator[RecordRun]:
        """Messages go to a cache, one after the other from the offset on that was asked for."""
        block = Block()
        while self.queue_offset < stop:
            count = min(self.reads.ahead.messages, self.reads.max_offset - self.queue_offset)
            fetched = self.reads.fetch(self.queue_offset, count)
            if fetched is None or not len(fetched.positions):
                self.is_stuck = True
                return
            pulls = -(-(stop - self.queue_offset) // PULLED)
            rows = np.arange(min(len(fetched.positions), pulls * PULLED))
            block = _filled(block, fetched.data)
            yield from fetched.whole_records(block, rows)
            self.queue_offset += len(rows)

    def _pull_at_once(self, stop: int) -> Iterator[RecordRun]:
        """Each pull reads its own messages; what cannot be read is passed over."""
        block = Block()
        while self.queue_offset < stop:
            count = min(PULLED, self.reads.ahead.messages, self.reads.max_offset - self.queue_offset)
            fetched = self.reads.fetch(self.queue_offset, count)
            if fetched is None and self._pull_locally():
                continue
            if fetched is None or not fetched.units:
                self.is_stuck = True
                return
            block = _filled(block, fetched.data)
            yield from fetched.whole_records(block, np.arange(len(fetched.positions)))
            self.queue_offset += fetched.units

    def _pull_older(self, stop: int) -> Iterator[RecordRun]:
        """Messages go to a cache by the queue offsets that they have themselves; what has none is passed over.

        A pull that the cache answers has the next messages read ahead, and takes no more than follow each other.
        """
        block, fetched, numbers, is_cached = Block(), None, np.zeros(0, np.int64), False
        while self.queue_offset < stop:
            if fetched is not None and (numbers == self.queue_offset).any():
                is_cached = True
            else:
                fetched = self.reads.fetch(self.queue_offset, PULLED * self.reads.ahead.factor)
                if fetched is None:
                    is_cached = False
                    if self._pull_locally():
                        continue
                    return
                if not len(fetched.positions):
                    self.queue_offset += fetched.units
                    fetched, is_cached = None, False
                    continue
                numbers = _longs_at(np.frombuffer(fetched.data, np.uint8), fetched.positions + _QUEUE_OFFSET_AT)
                is_cached &= bool((numbers == self.queue_offset).any())
            rows = _consecutive(numbers, self.queue_offset) if is_cached else np.arange(len(numbers))
            block = _filled(block, fetched.data)
            yield from fetched.whole_records(block, rows[:PULLED])
            self.queue_offset += len(rows[:PULLED])


def _nothing(units: int) -> _Fetched:
    """A read of so many units that returns no message."""
    return _Fetched(b"", np.zeros(0, np.intp), NO_UNITS, units)


def _seen(is_wanted: NDArray[np.bool_], sizes: NDArray[np.int64], most: int, transferred: int) -> int:
    """How many messages of the cache a pull looks at, until it has as many wanted ones as it takes, or bytes."""
    counts, totals = np.cumsum(is_wanted), np.cumsum(sizes * is_wanted)
    is_full = is_wanted & ((counts >= most) | (totals >= transferred))
    return int(np.argmax(is_full)) + 1 if is_full.any() else len(is_wanted)


def _consecutive(numbers: NDArray[np.int64], first: int) -> NDArray[np.intp]:
    """The rows of the numbers from `first` on, one after the other, until one is not there."""
    order = np.argsort(numbers, kind="stable")
    order = order[np.searchsorted(numbers[order], first) :]
    wanted = first + np.arange(len(order))
    return order[: _first(numbers[order] != wanted)]


def _end_of_last(units: bytes, limit: int) -> int:
    """Where the message of the last unit ends, bytes."""
    at = limit - UNIT_SIZE
    return integer_at(UNIT_DTYPE, "physical_offset", units, at) + integer_at(UNIT_DTYPE, "message_size", units, at)


def _first(mask: NDArray[np.bool_]) -> int:
    """The first row of a mask that is set; their number without one."""
    return int(np.argmax(mask)) if mask.any() else len(mask)


def _integers_at(data: NDArray[np.uint8], positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """The integers of four bytes at positions."""
    return np.ndarray((max(0, len(data) - 3),), ">i4", data, strides=(1,))[positions].astype(np.int64)


def _longs_at(data: NDArray[np.uint8], positions: NDArray[np.intp]) -> NDArray[np.int64]:
    """The integers of eight bytes at positions."""
    return np.ndarray((max(0, len(data) - 7),), ">i8", data, strides=(1,))[positions].astype(np.int64)


def _filled(block: Block, data: bytes) -> Block:
    """A block that holds `data`."""
    block = block if len(data) <= block.size else Block(len(data))
    block.view[: len(data)] = data
    block.view[len(data) : len(data) + PADDING] = bytes(PADDING)
    block.start_offset, block.length = 0, len(data)
    return block
