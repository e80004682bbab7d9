"""CRCs of many slices of a block at once: those of bodies, and those of whole records in ``__CRC32#``."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from zlib_ng import zlib_ng

from rmqtool.formats.crc import CRC32_PROPERTY_SIZE, CRC_MASK
from rmqtool.scan.block import Block, Positions
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.property_crc import NO_NUMBER

_COPIED = 640  # up to this mean size a copy takes less time than a view of Python, bytes
_BATCH, _BATCH_SIZE = 512, 256 << 10  # bytes objects at a time, and bytes: they stay in the processor's cache
_INLINE = 12  # Arrow keeps views up to this size inside the view itself


class WrongCrc(NamedTuple):
    """The CRC of a record's bytes, and the one that its property holds, None where that is no number."""

    computed: int
    stored: int | None


def wrong_bodies(frames: RecordRun) -> NDArray[np.bool_]:
    """Which bodies do not have the stored CRC; the broker does not check that of an empty body."""
    computed = crcs_of(frames.block, frames.body_positions, frames.body_sizes)
    wrong: NDArray[np.bool_] = computed != frames.headers.field("body_crc").view(np.uint32)
    wrong &= frames.body_sizes != 0
    return wrong


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
