"""Frames: a run of sound records in a block, as columns of their fixed fields.

A record is sound when its magic code is V1 or V2, its stored physical offset is its own position, no length is
negative and the lengths add up to its size. The body's CRC is not part of that: `body_crc_ok` is a column.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from zlib_ng import zlib_ng

from rmqtool.formats.dledger import ENTRY_DTYPE, ENTRY_HEADER_SIZE, MAGIC_ENTRY
from rmqtool.formats.message import (
    CRC32_PROPERTY,
    CRC32_PROPERTY_SIZE,
    CRC_MASK,
    HEADER_DTYPES,
    HOST_BITS,
    MAGIC_CODE_V1,
    MAGIC_CODE_V2,
    PROPERTIES_SIZE_WIDTH,
    topic_size_width,
)
from rmqtool.formats.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from rmqtool.scan.block import PADDING, Block, Positions, block_size

_LOW_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
_CRC32_HALVES = np.frombuffer(CRC32_PROPERTY, dtype="<u4")
_CRC32_WORD = np.uint64(int.from_bytes(CRC32_PROPERTY, "little"))

_WORDS = np.dtype([("name", "<u8"), ("separator", "u1"), ("eight_digits", "<u8"), ("two_digits", "<u2"), ("end", "u1")])
"""The property as it stands, with its digits as numbers; they are least significant first, as these bytes are."""

NO_NUMBER = -1


class PropertyCrcs(NamedTuple):
    """What the property holds of those `rows` of a run whose last 20 bytes begin with its name.

    One byte of the name may differ. `stored` are the numbers as `stored_record_crc` reads them, -1 where it reads none.
    """

    rows: Positions
    stored: NDArray[np.int64]


def read_property_crcs(block: Block, ends: Positions, sizes: Positions) -> PropertyCrcs:
    """The properties ``__CRC32#`` of records that end at `ends`; all properties of record i take ``sizes[i]`` bytes."""
    properties = block.gather(_WORDS, ends - CRC32_PROPERTY_SIZE)
    rows = _named(properties["name"], sizes)
    return PropertyCrcs(rows, _numbers(properties if len(rows) == len(properties) else properties[rows]))


def _named(names: NDArray[np.uint64], sizes: Positions) -> Positions:
    if (names == _CRC32_WORD).all() and int(sizes.min(initial=CRC32_PROPERTY_SIZE)) >= CRC32_PROPERTY_SIZE:
        return np.arange(len(names))
    rows = np.flatnonzero(sizes >= CRC32_PROPERTY_SIZE)
    names = names[rows]
    halves = names.view("<u4").reshape(-1, 2)
    if not (halves == _CRC32_HALVES).any():  # one half is equal even when one byte differs
        return rows[:0]
    other = names ^ _CRC32_WORD
    bytes_other = np.bitwise_count((((other & _LOW_BITS) + _LOW_BITS) | other) & ~_LOW_BITS)
    matches: Positions = rows[bytes_other <= 1]
    return matches


def _numbers(properties: NDArray[np.void]) -> NDArray[np.int64]:
    numbers, sound = _decimal(properties["eight_digits"].astype(np.uint64))
    high = _two_digits().take(properties["two_digits"])
    sound &= high >= 0
    numbers += high
    sound &= properties["name"] == _CRC32_WORD
    sound &= properties["separator"] == NAME_VALUE_SEPARATOR
    sound &= properties["end"] == PROPERTY_SEPARATOR
    if not sound.all():
        numbers[~sound] = NO_NUMBER
    return numbers


@cache
def _two_digits() -> NDArray[np.int64]:
    """What the last two digits add to a number, by both bytes as one; -1 for bytes that are no digits."""
    values = np.full(1 << 16, -1, dtype=np.int64)
    for number in range(100):
        tens, ones = divmod(number, 10)
        values[(ord("0") + tens) << 8 | ord("0") + ones] = number * 10**8
    return values


def _decimal(words: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The numbers that eight ASCII digits form, the first the least significant; and whether all eight are digits.

    Neighbours are joined to pairs, pairs to fours, fours to eight: three steps for all texts instead of one for each.
    """
    zeros, tens = np.uint64(0x3030303030303030), np.uint64(0x0606060606060606)
    halves = np.uint64(0xF0F0F0F0F0F0F0F0)
    are_digits = (words & halves) == zeros
    are_digits &= ((words + tens) & halves) == zeros  # `:` and what follows would carry into the upper half
    values = words - zeros
    for bits, mask in ((8, 0x00FF00FF00FF00FF), (16, 0x0000FFFF0000FFFF), (32, 0x00000000FFFFFFFF)):
        power = np.uint64(10 ** (bits // 8))
        upper = (values >> np.uint64(bits)) & np.uint64(mask)
        upper *= power
        values &= np.uint64(mask)
        values += upper
    return values.view(np.int64), are_digits


_V4_HEADER = HEADER_DTYPES[0]
_NATIVE = {name: _V4_HEADER[name].newbyteorder("=") for name in _V4_HEADER.names or ()}
_TOPIC_WIDTH_V1 = topic_size_width(MAGIC_CODE_V1)
_TOPIC_WIDTH_V2 = topic_size_width(MAGIC_CODE_V2)


class Headers:
    """The fixed fields of the records at `positions`, gathered at once for each form of the two hosts."""

    def __init__(self, block: Block, positions: Positions) -> None:
        self._common = block.gather(_V4_HEADER, positions)
        self._others: list[tuple[Positions, NDArray[np.void]]] = []
        self._fields: dict[str, NDArray[Any]] = {}
        host_bits = self.field("sys_flag") & HOST_BITS
        self.sizes: NDArray[np.intp] | int = _V4_HEADER.itemsize
        if host_bits.any():
            self._gather_others(block, positions, host_bits)

    def _gather_others(self, block: Block, positions: Positions, host_bits: NDArray[Any]) -> None:
        sizes = np.full(len(positions), _V4_HEADER.itemsize, dtype=np.intp)
        for bits, dtype in HEADER_DTYPES.items():
            rows = np.flatnonzero(host_bits == bits)
            if bits and len(rows):
                self._others.append((rows, block.gather(dtype, positions[rows])))
                sizes[rows] = dtype.itemsize
        self.sizes = sizes

    def field(self, name: str) -> NDArray[Any]:
        """An integer field in native byte order, read-only: several columns and checks want the same."""
        values = self._fields.get(name)
        if values is None:
            values = self._fields[name] = self._read(name)
            values.flags.writeable = False
        return values

    def _read(self, name: str) -> NDArray[Any]:
        values = self._common[name].astype(_NATIVE[name])
        for rows, headers in self._others:
            values[rows] = headers[name]
        return values

    def hosts(self, name: str) -> list[tuple[Positions | slice, NDArray[np.void]]]:
        """A host field as (rows, raw bytes of one width), a group for each form of the hosts."""
        groups: list[tuple[Positions | slice, NDArray[np.void]]] = [
            (rows, headers[name]) for rows, headers in self._others
        ]
        if not groups:
            return [(slice(None), self._common[name])]
        plain = np.flatnonzero(self.sizes == _V4_HEADER.itemsize)
        return [*groups, (plain, self._common[name][plain])] if len(plain) else groups

    def __getitem__(self, rows: slice) -> Headers:
        sliced = object.__new__(Headers)
        sliced._common = self._common[rows]
        sliced._fields = {name: values[rows] for name, values in self._fields.items()}
        sliced.sizes = self.sizes if isinstance(self.sizes, int) else self.sizes[rows]
        start, stop, _ = rows.indices(len(self._common))
        sliced._others = []
        for others, headers in self._others:
            low, high = np.searchsorted(others, (start, stop))
            if high > low:
                sliced._others.append((others[low:high] - start, headers[low:high]))
        return sliced


class RecordRun:
    """A run of sound records, one after the other; columns are read from the block before it is filled again.

    Before each record stands a header of `header_size` bytes, or none.
    """

    def __init__(
        self, block: Block, positions: Positions, headers: Headers, sizes: dict[str, Positions], header_size: int = 0
    ) -> None:
        self.block = block
        self.positions = positions
        self.headers = headers
        self.message_sizes = sizes["message"]
        self.body_sizes = sizes["body"]
        self.topic_sizes = sizes["topic"]
        self.properties_sizes = sizes["properties"]
        self._topic_widths = sizes["topic_width"]
        self.header_size = header_size

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def physical_offset(self) -> int:
        """Where the run begins in the commit log, bytes."""
        return int(self.block.physical_offsets(self.positions[:1])[0])

    @property
    def begin(self) -> int:
        """Where the first record, or the header before it, begins in the commit log, bytes."""
        return self.physical_offset - self.header_size

    @property
    def size(self) -> int:
        """Size of the run from its first record on, bytes."""
        return int(self.positions[-1] + self.message_sizes[-1] - self.positions[0])

    @property
    def record_bytes(self) -> int:
        """Sizes of the records, without headers before them."""
        return int(self.message_sizes.sum())

    @cached_property
    def physical_offsets(self) -> NDArray[np.int64]:
        """Where the records begin in the commit log, bytes."""
        return self.block.physical_offsets(self.positions)

    @cached_property
    def body_positions(self) -> Positions:
        """Where the bodies begin in the block."""
        return self.positions + self.headers.sizes

    @cached_property
    def topic_positions(self) -> Positions:
        """Where the topics begin in the block, after their length."""
        return self.body_positions + self.body_sizes + self._topic_widths

    @cached_property
    def properties_positions(self) -> Positions:
        """Where the properties begin in the block, after their length."""
        return self.topic_positions + self.topic_sizes + PROPERTIES_SIZE_WIDTH

    @cached_property
    def property_crcs(self) -> PropertyCrcs:
        """What the records' last properties hold, ``__CRC32#``."""
        return read_property_crcs(self.block, self.positions + self.message_sizes, self.properties_sizes)

    @cached_property
    def wrong_bodies(self) -> NDArray[np.bool_]:
        """Which bodies do not have the stored CRC; the broker does not check that of an empty body.

        Computed once for all that look at a run, and not to be changed.
        """
        computed = crcs_of(self.block, self.body_positions, self.body_sizes)
        wrong: NDArray[np.bool_] = computed != self.headers.field("body_crc").view(np.uint32)
        wrong &= self.body_sizes != 0
        wrong.flags.writeable = False
        return wrong

    def __getitem__(self, rows: slice) -> RecordRun:
        names = ("message", "body", "topic", "properties")
        sizes = {name: getattr(self, f"{name}_sizes")[rows] for name in names}
        widths = self._topic_widths
        sizes["topic_width"] = widths if widths.ndim == 0 else widths[rows]
        return RecordRun(self.block, self.positions[rows], self.headers[rows], sizes, self.header_size)


def sound_prefix(block: Block, positions: Positions) -> RecordRun:
    """The sound records at the head of a chain; shorter than the chain when one is not sound."""
    headers = Headers(block, positions)
    magic_codes = headers.field("magic_code")
    message_sizes = headers.field("message_size").astype(np.intp)
    body_sizes = headers.field("body_size").astype(np.intp)
    ends = positions + message_sizes
    sound = magic_codes == MAGIC_CODE_V1
    is_v2 = None if sound.all() else magic_codes == MAGIC_CODE_V2  # no record, as nearly always
    if is_v2 is not None:
        sound |= is_v2
    sound &= headers.field("physical_offset") == block.physical_offsets(positions)
    topic_widths = _topic_widths(is_v2)
    room = message_sizes - (headers.sizes + topic_widths + PROPERTIES_SIZE_WIDTH)
    sound &= body_sizes >= 0
    sound &= body_sizes <= room
    sound &= ends <= block.length
    if not sound.all():
        count = int(np.argmin(sound))
        return sound_prefix(block, positions[:count])
    topic_sizes = _topic_sizes(block, positions + headers.sizes + body_sizes, is_v2)
    properties_sizes = room - body_sizes
    properties_sizes -= topic_sizes
    fits = topic_sizes >= 0
    fits &= properties_sizes >= 0
    stored = block.gather(">i2", ends - (np.where(fits, properties_sizes, 0) + PROPERTIES_SIZE_WIDTH))
    fits &= stored == properties_sizes
    sizes = {
        "message": message_sizes,
        "body": body_sizes,
        "topic": topic_sizes,
        "properties": properties_sizes,
        "topic_width": topic_widths,
    }
    frames = RecordRun(block, positions, headers, sizes)
    return frames if fits.all() else frames[: int(np.argmin(fits))]


def in_whole_entries(frames: RecordRun) -> RecordRun:
    """The records at the head of a run that are all of an entry of DLedger each, with its header before them."""
    headers = entry_headers(frames)
    whole = (headers["magic"] == MAGIC_ENTRY) & (headers["size"] == frames.message_sizes + ENTRY_HEADER_SIZE)
    frames.header_size = ENTRY_HEADER_SIZE
    return frames if whole.all() else frames[: int(np.argmin(whole))]


def entry_headers(frames: RecordRun) -> NDArray[np.void]:
    """The headers of the DLedger entries around the records."""
    return frames.block.gather(ENTRY_DTYPE, frames.positions - ENTRY_HEADER_SIZE)


def _topic_widths(is_v2: NDArray[np.bool_] | None) -> Positions:
    if is_v2 is None:
        return np.array(_TOPIC_WIDTH_V1, dtype=np.intp)
    return np.where(is_v2, _TOPIC_WIDTH_V2, _TOPIC_WIDTH_V1).astype(np.intp)


def _topic_sizes(block: Block, positions: Positions, is_v2: NDArray[np.bool_] | None) -> Positions:
    sizes = block.gather(">i1", positions).astype(np.intp)
    if is_v2 is not None:
        sizes[is_v2] = block.gather(">i2", positions[is_v2])
    return sizes


_COPIED = 640  # up to this mean size a copy takes less time than a view of Python, bytes
_BATCH, _BATCH_SIZE = 512, 256 << 10  # bytes objects at a time, and bytes: they stay in the processor's cache
_INLINE = 12  # Arrow keeps views up to this size inside the view itself


class WrongCrc(NamedTuple):
    """The CRC of a record's bytes, and the one that its property holds, None where that is no number."""

    computed: int
    stored: int | None


def wrong_property_crcs(frames: RecordRun) -> Iterator[tuple[int, WrongCrc]]:
    """The rows whose property ``__CRC32#`` does not hold the CRC of the record before it."""
    rows, stored = frames.property_crcs
    starts = frames.positions.take(rows)  # of few values faster than an index
    computed = crcs_of(frames.block, starts, frames.message_sizes.take(rows) - CRC32_PROPERTY_SIZE)
    for index in np.flatnonzero(stored != computed).tolist():
        number = int(stored[index])
        yield int(rows[index]), WrongCrc(int(computed[index]), None if number == NO_NUMBER else number)


def crcs_of(block: Block, positions: Positions, sizes: Positions) -> NDArray[np.uint32]:
    """CRC-32 of each of many slices of a block, sign bit cleared as `UtilAll#crc32` does; of no bytes: 0."""
    count, total = len(positions), int(sizes.sum())
    if count and total <= _COPIED * count and int(sizes.min()) > _INLINE:
        crcs = _copied(block, positions, sizes, min(_BATCH, _BATCH_SIZE * count // total))
    else:
        crcs = _viewed(block, positions, sizes)
    return np.array(array("I", crcs), dtype=np.uint32) & np.uint32(CRC_MASK)


def _viewed(block: Block, positions: Positions, sizes: Positions) -> list[int]:
    view, crc32 = block.view, zlib_ng.crc32
    ends = (positions + sizes).tolist()
    return [crc32(view[start:end]) for start, end in zip(positions.tolist(), ends, strict=True)]


def _copied(block: Block, positions: Positions, sizes: Positions, batch: int) -> list[int]:
    """For small slices most of the time is Python's: Arrow makes the bytes objects, `map` the calls."""
    count = len(positions)
    views = np.zeros((count, 4), dtype=np.int32)  # size, prefix, buffer number, position: an Arrow BinaryView
    views[:, 0] = sizes
    views[:, 3] = positions
    buffers = [None, pa.py_buffer(views), pa.py_buffer(block.data)]
    slices = pa.Array.from_buffers(pa.binary_view(), count, buffers)
    crcs: list[int] = []
    for start in range(0, count, batch):
        crcs.extend(map(zlib_ng.crc32, slices[start : start + batch].to_numpy(zero_copy_only=False).tolist()))
    return crcs


_SHARE = 4  # joined runs have a quarter of a block, and a small run has up to a quarter of that, and of the records


class JoinedRuns:
    """Holds copies of small runs, in their order, until `take` gives them as one run of at most `usual_records`."""

    def __init__(self, usual_records: int) -> None:
        self._usual_records = usual_records
        self._size = block_size() // _SHARE
        self._block: _JoinedBlock | None = None
        self._positions: list[Positions] = []
        self._records = 0
        self._end = 0  # physical offset after the last run

    def is_small(self, run: RecordRun) -> bool:
        """Whether a run is worth a copy."""
        return len(run) * _SHARE <= self._usual_records and run.size * _SHARE <= self._size

    def has_room(self, run: RecordRun) -> bool:
        """Whether a small run can be added: it fits, and stands after the others, as where no files overlap."""
        if self._block is None or not self._records:
            return True
        is_behind = run.physical_offset >= self._end
        fits = self._block.length + run.size <= self._size and self._records + len(run) <= self._usual_records
        return is_behind and fits

    def add(self, run: RecordRun) -> None:
        """Copy a run that `has_room`; its own block may be filled again then."""
        if self._block is None:
            self._block = _JoinedBlock(self._size)
        begin = int(run.positions[0])
        position = self._block.append(run.block.view[begin : begin + run.size], run.physical_offset)
        self._positions.append(run.positions + (position - begin))
        self._records += len(run)
        self._end = run.physical_offset + run.size

    def take(self) -> RecordRun | None:
        """Remove and return all that was added, to be used before the next `add`; None when that is nothing."""
        if self._block is None or not self._records:
            return None
        run = sound_prefix(self._block.completed(), np.concatenate(self._positions))
        self._positions, self._records = [], 0
        return run


class _JoinedBlock(Block):
    """Stretches of a log one after the other."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._is_complete = True
        self._begins: list[int] = []
        self._shifts: list[int] = []

    def append(self, data: memoryview, physical_offset: int) -> int:
        """Copy `data`, which stands at a physical offset, after the others; the first again after `completed`."""
        if self._is_complete:
            self._is_complete, self.length, self._begins, self._shifts = False, 0, [], []
        position, self.length = self.length, self.length + len(data)
        self.view[position : self.length] = data
        self._begins.append(position)
        self._shifts.append(physical_offset - position)
        return position

    def completed(self) -> Block:
        """The block with zeros after its data."""
        self._is_complete = True
        self.view[self.length : self.length + PADDING] = bytes(PADDING)
        return self

    def physical_offsets(self, positions: Positions) -> NDArray[np.int64]:
        """Where in the commit log the bytes at `positions` stand, by the stretch that each is in."""
        shifts: NDArray[np.int64] = np.array(self._shifts)[np.searchsorted(self._begins, positions, side="right") - 1]
        return positions + shifts
