"""Frames: a run of sound records in a block, as columns of their fixed fields.

A record is sound when its magic code is V1 or V2, its stored physical offset is its own position, no length is
negative and the lengths add up to its size. The body's CRC is not part of that: `body_crc_ok` is a column.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqtool.formats.dledger import ENTRY_DTYPE, ENTRY_HEADER_SIZE, MAGIC_ENTRY
from rmqtool.formats.message import (
    HEADER_DTYPES,
    HOST_BITS,
    MAGIC_CODE_V1,
    MAGIC_CODE_V2,
    PROPERTIES_SIZE_WIDTH,
    topic_size_width,
)
from rmqtool.scan.block import Block, Positions
from rmqtool.scan.property_crc import PropertyCrcs, read_property_crcs

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
