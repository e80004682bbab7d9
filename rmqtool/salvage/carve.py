"""What proves itself in one file: records by frame, body CRC and `__CRC32#`, and blanks.

Every byte may begin a record: the first one that proves itself is taken, and the search goes on after it. Its own
physical offset says where it belongs, wherever it stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import unpack_from
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmqtool.base.files import UNLIMITED, Closing, InputFile, Progress, ReadPolicy, no_progress
from rmqtool.formats.dledger import ENTRY_DTYPE, ENTRY_HEADER_SIZE, MAGIC_ENTRY
from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.formats.message import (
    BLANK_SIZE,
    HEAD,
    MAGIC_CODE_BLANK,
    MAGIC_POSITION,
    MIN_MESSAGE_SIZE,
    PREFIX_DTYPE,
    SIZE_AND_MAGIC,
)
from rmqtool.rules.system_topics import is_system_topic
from rmqtool.salvage.inputs import Input, SalvagedFiles
from rmqtool.scan.block import BLOCK_SIZE, MAX_MESSAGE_SIZE, RECORDS_AFTER_DAMAGE, Block, Positions, chain
from rmqtool.scan.frames import RecordRun, in_whole_entries, sound_prefix, wrong_property_crcs
from rmqtool.scan.inert_records import inert_rows
from rmqtool.scan.single_record import MAGIC_CODES, Probe, blank_of_entries, skip_zeros

EXTENT_DTYPE = np.dtype(
    [
        ("physical_offset", "i8"),  # where it belongs in the log, bytes
        ("size", "i8"),  # bytes; of a blank up to the end of its log file
        ("input", "i4"),  # number of the file
        ("position", "i8"),  # in that file, bytes
        ("records", "i8"),  # BLANK for a blank, INERT for a record that a repair put in place of a lost one
        ("first_time", "i8"),  # store times of the first and the last record, epoch ms
        ("last_time", "i8"),
        ("last_size", "i4"),  # size of the last record, bytes
        ("is_odd", "?"),  # whether all of them are odd (odd_records.py)
        ("header_size", "i4"),  # of DLedger's header before each record, which is part of the extent, or 0, bytes
        ("term", "i8"),  # Raft term of all of them; NO_TERM where no header says it
        ("first_index", "i8"),  # Raft index of the first record, or -1
    ]
)

BLANK, INERT = 0, -1
NO_TERM = -1

Extents = NDArray[np.void]
"""Rows of EXTENT_DTYPE."""


class Entry(NamedTuple):
    """What DLedger's header says of a record; its size is 0 where there is none."""

    header_size: int = 0
    term: int = NO_TERM
    raft_index: int = -1


NO_ENTRY = Entry()

NO_EXTENTS: Extents = np.empty(0, EXTENT_DTYPE)


class ExtentBuilder:
    """Collects extents of one file in the order of their positions; rows that follow on become one."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._rows = np.empty(16, EXTENT_DTYPE)
        self._count = 0

    def add_records(
        self,
        physical_offset: int,
        position: int,
        size: int,
        times: NDArray[Any],
        last_size: int,
        *,
        is_odd: bool,
        entry: Entry = NO_ENTRY,
    ) -> None:
        """Add records one after the other, `size` bytes in all with their headers; `times` are their store times.

        `entry` is that of the first one.
        """
        if self._count:
            last = self._rows[self._count - 1]
            follows = last["physical_offset"] + last["size"] == physical_offset
            follows = follows and last["position"] + last["size"] == position and last["is_odd"] == is_odd
            follows = follows and (last["header_size"], last["term"]) == (entry.header_size, entry.term)
            if entry.header_size:
                follows = follows and last["first_index"] + last["records"] == entry.raft_index
            if last["records"] > 0 and follows:
                last["size"] += size
                last["records"] += len(times)
                last["last_time"], last["last_size"] = times[-1], last_size
                return
        self._append(physical_offset, size, position, len(times), times[0], times[-1], last_size, is_odd, *entry)

    def add(self, kind: int, physical_offset: int, position: int, size: int) -> None:
        """Add a BLANK that reaches `size` bytes to the end of its log file, or an INERT record."""
        self._append(physical_offset, size, position, kind, 0, 0, 0, False, *NO_ENTRY)

    def extents(self) -> Extents:
        """All that was added."""
        return self._rows[: self._count].copy()

    def _append(self, physical_offset: int, size: int, position: int, *rest: Any) -> None:
        if self._count == len(self._rows):
            self._rows = np.resize(self._rows, 2 * self._count)
        self._rows[self._count] = (physical_offset, size, self._number, position, *rest)
        self._count += 1


def of_records(extents: Extents) -> Extents:
    """Those of records that were stored, not of blanks and dummy ones."""
    return extents[extents["records"] > 0]


def message_bytes(extents: Extents) -> int:
    """Bytes of the records, without headers before them."""
    return int((extents["size"] - np.maximum(extents["records"], 0) * extents["header_size"]).sum())


def ends(extents: Extents) -> NDArray[np.int64]:
    """Physical offsets after the extents, bytes."""
    behind: NDArray[np.int64] = extents["physical_offset"] + extents["size"]
    return behind


def shifts(extents: Extents) -> NDArray[np.int64]:
    """Physical offsets less positions: where their files begin in the log, if all of a file is in its place, bytes."""
    distances: NDArray[np.int64] = extents["physical_offset"] - extents["position"]
    return distances


def joined(*parts: Extents) -> Extents:
    """All extents by physical offset."""
    together = np.concatenate([NO_EXTENTS, *parts])
    return together[np.argsort(together["physical_offset"], kind="stable")]


_LEGAL = r"^[%|a-zA-Z0-9_\-]+$"  # what `TopicValidator` takes


def odd_rows(frames: RecordRun, topics: frozenset[str], doubtful: frozenset[int] = frozenset()) -> NDArray[np.bool_]:
    """Which records of a run have a topic that is no name or none of `topics`, or properties that are not text.

    A record with a CRC of its own is never odd. Without `topics` every name will do. Those at `doubtful` physical
    offsets are odd, too: queue or index of their own store show another topic, queue, flag or key.
    """
    odd = ~_are_named(_texts(frames.block.slices(frames.topic_positions, frames.topic_sizes)), topics)
    properties = _texts(frames.block.slices(frames.properties_positions, frames.properties_sizes))
    odd |= _mask(pc.or_kleene(pc.is_null(properties), pc.match_substring(properties, "\0")))
    odd[frames.property_crcs.rows] = False
    if doubtful:
        odd |= np.isin(frames.physical_offsets, np.fromiter(doubtful, np.int64, len(doubtful)))
    return odd


def _are_named(topics: pa.StringArray, known: frozenset[str]) -> NDArray[np.bool_]:
    encoded = topics.dictionary_encode()
    names = encoded.dictionary
    legal = _mask(pc.match_substring_regex(names, _LEGAL))
    if known:
        legal &= np.array([name in known or is_system_topic(name) for name in names.to_pylist()], dtype=np.bool_)
    named: NDArray[np.bool_] = np.append(legal, False)[np.asarray(pc.fill_null(encoded.indices, -1))]
    return named


def _texts(values: pa.BinaryArray) -> pa.StringArray:
    """The values as text, null where one is not UTF-8."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_text(value) for value in values.to_pylist()], pa.string())


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _mask(values: pa.BooleanArray) -> NDArray[np.bool_]:
    return np.array(pc.fill_null(values, True), dtype=np.bool_)


def proven_rows(frames: RecordRun) -> int:
    """How many records at the head of a run prove themselves: their body's CRC, and their own where they have one."""
    wrong = frames.wrong_bodies
    first_wrong = int(np.argmax(wrong)) if wrong.any() else len(frames)
    wrong_rows = (row for row, _ in wrong_property_crcs(frames[:first_wrong]))
    return next(wrong_rows, first_wrong)


class Carver:
    """Carves one file; positions are in the file, bytes. `file_size` is that of a file of the log, bytes.

    With `topics` odd records are told apart (`odd_rows`).
    """

    def __init__(
        self, source: Input, file: InputFile, block: Block, file_size: int, topics: frozenset[str] | None = None
    ) -> None:
        self._topics = topics
        self._source = source
        self._file = file
        self._end = file.size
        self._block = block
        self._block_position = 0
        self._block_end = 0  # nothing of this file is in the block yet
        self._file_size = file_size
        self._shift = source.start_offset or 0  # physical offset less position, of the last record
        self._last = self._reached = -1  # the begin of the last record and the end of its run
        self._begin = 0
        self._steps = (0, ENTRY_HEADER_SIZE) if source.may_have_headers else (0,)  # from one record to the next
        self._max_records: int | None = None
        self._found = ExtentBuilder(source.number)

    def carve(self, start: int = 0, end: int | None = None, progress: Progress = no_progress) -> Extents:
        """What proves itself between two positions, in their order; `progress` gets the bytes that are done."""
        self._end = self._file.size if end is None else end
        position = done = start
        self._begin = start
        while position < self._end:
            candidate = self._next_magic(position)
            follows = candidate - self._reached in self._steps
            behind = self._take(candidate) if follows else self._take_swallowed()
            if behind is None:
                behind = self._take_swallowed() if follows else self._take(candidate)
            position = behind or candidate + 1
            if position - done >= BLOCK_SIZE:
                progress(min(position, self._end) - done)
                done = position
        progress(max(0, self._end - done))
        if self._end == self._file.size and self._source.may_have_headers:
            self._take_blank_of_entries()
        return self._found.extents()

    def _next_magic(self, position: int) -> int:
        """Where the next record or blank may begin, by its magic code; the file's size without one."""
        while position < self._end:
            self._require(position, SIZE_AND_MAGIC.size)
            begin = position - self._block_position + MAGIC_POSITION
            match = MAGIC_CODES.search(self._block.data, begin, self._block.length)
            if match:
                return self._block_position + match.start() - MAGIC_POSITION
            if self._block_end >= self._end:
                break
            behind = max(position + 1, self._block_end - SIZE_AND_MAGIC.size + 1)
            position = skip_zeros(self._file, behind, self._file.size)
        return self._end

    def _take(self, position: int) -> int | None:
        """Take the records, or the blank, at `position`; the position after them, None where nothing is proven."""
        self._require(position, HEAD.size)
        rest = self._block_end - position
        if rest < BLANK_SIZE:
            return None
        at = position - self._block_position
        size, magic_code = SIZE_AND_MAGIC.unpack_from(self._block.data, at)
        if magic_code == MAGIC_CODE_BLANK:
            return self._take_blank(position, size)
        if rest < HEAD.size or not MIN_MESSAGE_SIZE <= size <= min(MAX_MESSAGE_SIZE, self._end - position):
            return None
        physical_offset = HEAD.unpack_from(self._block.data, at)[2]
        shift = physical_offset - position
        if not 0 <= physical_offset <= MAX_OFFSET - size:
            return None
        header_size = self._header_before(position, size, physical_offset)
        if not self._require_record(position, size, shift, header_size):
            return None
        self._block.start_offset = self._block_position + shift
        return self._take_records(position, shift, header_size)

    def _header_before(self, position: int, size: int, physical_offset: int) -> int:
        """The size of the header of an entry that stands whole before a record, or 0."""
        start = position - ENTRY_HEADER_SIZE
        if not self._source.may_have_headers or start < max(self._begin, self._reached):
            return 0
        header = np.frombuffer(self._file.read(start, ENTRY_HEADER_SIZE), ENTRY_DTYPE)[0]
        expected = (MAGIC_ENTRY, size + ENTRY_HEADER_SIZE, physical_offset - ENTRY_HEADER_SIZE)
        is_whole = (header["magic"], header["size"], header["position"]) == expected
        return ENTRY_HEADER_SIZE if is_whole else 0

    def _take_swallowed(self) -> int | None:
        """Take the record that begins in the tail of the last one, which nothing follows, and goes on after it.

        Where bytes were taken out of a file a record without a CRC of its own has the begin of the next for its tail.
        """
        last, self._last = self._last, self._reached
        if last == self._reached:
            return None
        inside = self._file.read(last, self._reached - last + SIZE_AND_MAGIC.size)
        for match in MAGIC_CODES.finditer(inside, SIZE_AND_MAGIC.size):
            position = last + match.start() - MAGIC_POSITION
            (size,) = unpack_from(">i", inside, match.start() - MAGIC_POSITION)
            if position < self._reached < position + size and (behind := self._take(position)):
                return behind
        return None

    def _take_records(self, position: int, shift: int, header_size: int) -> int | None:
        start = position - self._block_position - header_size
        positions = chain(self._block, start, self._max_records, header_size)
        frames = sound_prefix(self._block, positions) if len(positions) else None
        if frames and header_size:
            frames = in_whole_entries(frames)
        count = proven_rows(frames) if frames else 0
        self._limit_next(positions, count)
        if frames is None or not count:
            return None
        inert = inert_rows(frames[:count])
        if inert:  # made by a repair in place of what was lost, which another source may have
            count = max(1, inert[0])
        is_odd = False
        if self._topics is not None and not (inert and inert[0] == 0):
            odd = odd_rows(frames[:count], self._topics, self._source.doubtful)
            is_odd = bool(odd[0])
            count = int(np.argmax(odd != is_odd)) or count
        entry, count = _entry(frames, count, header_size)
        taken, self._shift = frames[:count], shift
        if inert and inert[0] == 0:
            self._found.add(INERT, taken.physical_offset, position, taken.size)
            return position + taken.size
        self._last = self._block_position + int(taken.positions[-1])
        self._reached = position + taken.size
        times = taken.headers.field("store_timestamp")
        last_size, begin = int(taken.message_sizes[-1]) + header_size, position - header_size
        size = taken.size + header_size
        self._found.add_records(begin + shift, begin, size, times, last_size, is_odd=is_odd, entry=entry)
        return position + taken.size

    def _limit_next(self, positions: Positions, count: int) -> None:
        if count < len(positions):
            self._max_records = RECORDS_AFTER_DAMAGE
        elif self._max_records is not None:
            self._max_records *= 2

    def _take_blank(self, position: int, size: int) -> int | None:
        """Take a blank whose size leads to the end of its log file, where the records before it say it is."""
        physical_offset = self._shift + position
        if size < BLANK_SIZE or physical_offset < 0 or size != -physical_offset % self._file_size:
            return None
        self._found.add(BLANK, physical_offset, position, size)
        return position + (size if self._shift == self._source.start_offset else BLANK_SIZE)

    def _take_blank_of_entries(self) -> None:
        """Take the blank at the end of a file of entries, after its last record."""
        start = blank_of_entries(self._file, max(0, self._reached))
        if self._source.start_offset is not None and start < self._file.size:
            self._found.add(BLANK, self._source.start_offset + start, start, self._file.size - start)

    def _require_record(self, position: int, size: int, shift: int, header_size: int) -> bool:
        """Have the whole record in the block; False where its frame is no record's, and it is not read for nothing."""
        begin = position - header_size
        if self._block_position <= begin and position + size <= self._block_end:
            return True
        if position + size > self._block_end and Probe(self._file, shift, position).kind != "message":
            return False
        self._fill(begin, size + header_size)
        return True

    def _require(self, position: int, size: int) -> None:
        """Have `size` bytes from `position` in the block, as far as the file has them."""
        end = min(position + size, self._end)
        if not self._block_position <= position or end > self._block_end:
            self._fill(position, size)

    def _fill(self, position: int, size: int) -> None:
        length = min(max(size, BLOCK_SIZE), self._end - position)
        self._block.fill(self._file, position, length, self._shift + position)
        self._block_position, self._block_end = position, position + self._block.length
        self._max_records = None


def _entry(frames: RecordRun, count: int, header_size: int) -> tuple[Entry, int]:
    """The entry of the first record, and how many of the first `count` records follow it by index in the same term."""
    if not header_size:
        return NO_ENTRY, count
    headers = frames.block.gather(ENTRY_DTYPE, frames.positions[:count] - header_size)
    first = Entry(header_size, int(headers["term"][0]), int(headers["index"][0]))
    follow = (headers["term"] == first.term) & (headers["index"] - np.arange(count) == first.raft_index)
    return first, count if follow.all() else int(np.argmin(follow))


class Sources(Closing):
    """All files, opened when they are needed; `file_size` is that of a file of the log, bytes."""

    def __init__(self, files: Sequence[Input], file_size: int, reading: ReadPolicy = UNLIMITED) -> None:
        self.files = files
        self.file_size = file_size
        self._open = SalvagedFiles(reading)
        self.block = Block()  # for whoever reads next

    def close(self) -> None:
        """Close all files."""
        self._open.close()

    def file(self, number: int) -> InputFile:
        """An open file."""
        return self._open.get(self.files[number].path)

    def unread(self, number: int) -> set[int]:
        """Positions of the pages of a file that could not be read, bytes."""
        return self._open.unread[self.files[number].path]

    def add_unread(self, number: int, positions: set[int]) -> None:
        """Note pages of a file that another process could not read."""
        self._open.unread[self.files[number].path] |= positions

    def carve(self, number: int, progress: Progress = no_progress, topics: frozenset[str] | None = None) -> Extents:
        """All that proves itself in a file, by position; with `topics` odd records are told apart."""
        return self._carver(number, topics).carve(progress=progress)

    def carve_between(self, extent: np.void, start: int, end: int) -> Extents:
        """The whole records of an extent between two physical offsets."""
        if start >= end:
            return NO_EXTENTS
        shift = int(extent["physical_offset"] - extent["position"])
        found = of_records(self._carver(int(extent["input"])).carve(start - shift, end - shift))
        within: Extents = found[shifts(found) == shift]
        return within

    def first_of(self, extent: np.void) -> Extents:
        """The first record of an extent."""
        start = int(extent["physical_offset"])
        return self.carve_between(extent, start, start + self.record_size(extent, start))

    def record_size(self, extent: np.void, physical_offset: int) -> int:
        """The size of the record of an extent that begins at an offset, with its header, bytes."""
        header_size = int(extent["header_size"])
        size, _ = SIZE_AND_MAGIC.unpack(self._read(extent, physical_offset + header_size, SIZE_AND_MAGIC.size))
        return int(size) + header_size

    def have_same_record(self, one: np.void, other: np.void, physical_offset: int) -> bool:
        """Whether two extents hold the same message at an offset, as its fixed fields show."""
        return self.equal(one, other, physical_offset + int(one["header_size"]), PREFIX_DTYPE.itemsize)

    def equal(self, one: np.void, other: np.void, physical_offset: int, size: int) -> bool:
        """Whether two extents hold the same bytes from an offset on."""
        return self._read(one, physical_offset, size) == self._read(other, physical_offset, size)

    def _carver(self, number: int, topics: frozenset[str] | None = None) -> Carver:
        return Carver(self.files[number], self.file(number), self.block, self.file_size, topics)

    def _read(self, extent: np.void, physical_offset: int, size: int) -> bytes:
        position = physical_offset - int(extent["physical_offset"]) + int(extent["position"])
        return self.file(int(extent["input"])).read(position, size)
