"""Body CRCs of a run of records."""

from __future__ import annotations

from array import array

import numpy as np
import pyarrow as pa
from isal import isal_zlib
from numpy.typing import NDArray

from rmqtool.formats.crc import CRC_MASK
from rmqtool.scan.block import Block, Positions
from rmqtool.scan.frames import RecordRun

_SMALL_BODY = 400  # mean size, bytes
_BATCH = 512  # bytes objects at a time: their memory stays in the processor's cache
_INLINE = 12  # Arrow keeps views up to this size inside the view itself


def wrong_bodies(frames: RecordRun) -> NDArray[np.bool_]:
    """Which bodies do not have the stored CRC; the broker does not check that of an empty body."""
    computed = body_crcs(frames.block, frames.body_positions, frames.body_sizes)
    wrong: NDArray[np.bool_] = computed != frames.headers.field("body_crc").view(np.uint32)
    wrong &= frames.body_sizes != 0
    return wrong


def body_crcs(block: Block, positions: Positions, sizes: Positions) -> NDArray[np.uint32]:
    """CRC-32 of each body, sign bit cleared as `UtilAll#crc32` does; of no bytes: 0."""
    count = len(positions)
    if count and int(sizes.sum()) < _SMALL_BODY * count and int(sizes.min()) > _INLINE:
        crcs = _small(block, positions, sizes)
    else:
        crcs = _large(block, positions, sizes)
    return np.array(array("I", crcs), dtype=np.uint32) & np.uint32(CRC_MASK)


def _large(block: Block, positions: Positions, sizes: Positions) -> list[int]:
    view, crc32 = block.view, isal_zlib.crc32
    ends = (positions + sizes).tolist()
    return [crc32(view[start:end]) for start, end in zip(positions.tolist(), ends, strict=True)]


def _small(block: Block, positions: Positions, sizes: Positions) -> list[int]:
    """For small bodies half of the time is Python's: Arrow makes the bytes objects, `map` the calls."""
    count = len(positions)
    views = np.zeros((count, 4), dtype=np.int32)  # size, prefix, buffer number, position: an Arrow BinaryView
    views[:, 0] = sizes
    views[:, 3] = positions
    buffers = [None, pa.py_buffer(views), pa.py_buffer(block.data)]
    bodies = pa.Array.from_buffers(pa.binary_view(), count, buffers)
    crcs: list[int] = []
    for start in range(0, count, _BATCH):
        crcs.extend(map(isal_zlib.crc32, bodies[start : start + _BATCH].to_numpy(zero_copy_only=False)))
    return crcs
