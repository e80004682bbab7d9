"""The chain of records in a block: each record's size leads to the next.

Many lanes walk at once, each from a magic code that was found in the bytes; they prove each other, for a lane
that was started inside a body does not land on the start of the next. Where the proof fails, one slow walk.
"""

from __future__ import annotations

import math
import re

import numpy as np

from rmqtool.formats.message import MAGIC_CODE_V1, MAGIC_CODE_V2, MAGIC_POSITION, MIN_MESSAGE_SIZE, SIZE_AND_MAGIC
from rmqtool.scan.block import Block, Positions

_MAGIC_CODE = MAGIC_CODE_V1.to_bytes(4, "big", signed=True)
_MAGIC_PREFIX = re.compile(re.escape(_MAGIC_CODE[:3]))  # V1 and V2 differ in the last byte
_LANE_COST = 7  # starting a lane costs as much as a seventh of a step of all lanes
_MIN_STRIDE = 4 << 10
_MAX_STRIDE = 32 << 10  # bytes between the starts of two lanes
_FEW = 8  # records that are walked before lanes are begun


def chain(block: Block, start: int, limit: int | None = None, header_size: int = 0) -> Positions:
    """Positions of the records from `start` that lie in the block as a whole, as far as sizes lead.

    A header of `header_size` bytes stands before each; the first header is at `start`.

    The records are not proven: a size may have led astray, and the first may be none. With `limit` at most that many
    records, without lanes: after damage the next damage is near, and a walk far beyond it would be for nothing.
    """
    first = start + header_size
    if limit is None and first < block.length:
        few = _walk_carefully(block, first, _FEW, header_size)
        if len(few) < _FEW:
            return few  # after the last records of a file are zeros, in which lanes would search for long
        positions = _walk_in_lanes(block, first, header_size)
        if positions is not None:
            return positions
    return _walk_carefully(block, first, limit, header_size)


def _walk_carefully(block: Block, start: int, max_records: int | None, header_size: int) -> Positions:
    positions: list[int] = []
    position, limit, data = start, block.length, block.data
    while position + MIN_MESSAGE_SIZE <= limit and len(positions) != max_records:
        size, magic_code = SIZE_AND_MAGIC.unpack_from(data, position)
        if magic_code not in (MAGIC_CODE_V1, MAGIC_CODE_V2) or not MIN_MESSAGE_SIZE <= size <= limit - position:
            break
        positions.append(position)
        position += size + header_size
    return np.array(positions, dtype=np.intp)


def _walk_in_lanes(block: Block, start: int, header_size: int) -> Positions | None:
    """The chain, or None when the lanes do not prove each other."""
    stride = _stride(block, start)
    starts = _lane_starts(block, start, stride)
    ends = np.append(starts[1:], block.length + header_size)  # as if one more header were past the last record
    path = _step(block, starts, ends, 2 * stride // MIN_MESSAGE_SIZE, header_size)
    if path is None:
        return None
    inside = path < ends[:, None]
    landed = path[np.arange(len(starts)), inside.sum(axis=1)]
    if not (landed[:-1] == ends[:-1]).all():
        return None
    positions = path[inside]
    return positions if landed[-1] == ends[-1] else positions[:-1]  # the last one may be cut by the block's end


def _stride(block: Block, start: int) -> int:
    """Bytes between lanes: more lanes cost more to start, fewer take more steps; sizes follow the first record's."""
    length = block.length - start
    size = max(MIN_MESSAGE_SIZE, int(block.sizes[start]))
    lanes = math.isqrt(_LANE_COST * (length // size) + 1)
    return min(max(length // lanes, _MIN_STRIDE), _MAX_STRIDE)


def _lane_starts(block: Block, start: int, stride: int) -> Positions:
    starts = [start]
    position = start + stride
    while position < block.length:
        match = _MAGIC_PREFIX.search(block.data, position, block.length)  # finds faster than `mmap.find`
        if match is None:
            break
        starts.append(match.start() - MAGIC_POSITION)
        position = starts[-1] + stride
    return np.array(starts, dtype=np.intp)


def _step(block: Block, starts: Positions, ends: Positions, max_steps: int, header_size: int) -> Positions | None:
    """All lanes' positions, shape (lanes, steps); None when some lane is not through after `max_steps`.

    A size that leads out of the block ends its lane one byte after the block, however large it is.
    """
    sizes = block.sizes
    path = np.empty((max_steps, len(starts)), dtype=np.intp)
    path[0] = starts
    behind = np.array(block.length + header_size + 1)
    for step in range(1, max_steps):
        previous, current = path[step - 1], path[step]
        np.add(previous, sizes[previous], out=current)
        if header_size:
            current += header_size
        np.minimum(current, behind, out=current)
        if step % 4 == 0 and (current >= ends).all():
            return path[: step + 1].T
    return None
