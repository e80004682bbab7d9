"""The CRC of a whole record in its last property, ``__CRC32#`` (`MessageDecoder#createCrc32`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from rmqtool.formats.crc import CRC32_PROPERTY, CRC32_PROPERTY_SIZE, CRC_MASK, stored_record_crc
from rmqtool.scan.block import Positions
from rmqtool.scan.frames import RecordRun

_LOW_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
_CRC32_HALVES = np.frombuffer(CRC32_PROPERTY, dtype="<u4")


class WrongCrc(NamedTuple):
    """The CRC of a record's bytes, and the one that its property holds, None where that is no number."""

    computed: int
    stored: int | None


def wrong_property_crcs(frames: RecordRun, rows: Positions) -> Iterator[tuple[int, WrongCrc]]:
    """Those of `rows`, as `rows_with_property_crc` gives them, whose property does not hold the record's CRC."""
    view, crc32 = frames.block.view, isal_zlib.crc32
    starts = frames.positions[rows]
    ends = starts + frames.message_sizes[rows]
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        stored = stored_record_crc(bytes(view[end - CRC32_PROPERTY_SIZE : end]))
        computed = crc32(view[start : end - CRC32_PROPERTY_SIZE]) & CRC_MASK
        if stored != computed:
            yield row, WrongCrc(computed, stored)


def rows_with_property_crc(frames: RecordRun) -> Positions:
    """Rows of records whose last 20 bytes begin with ``__CRC32#``, of which one byte may differ."""
    rows = np.flatnonzero(frames.properties_sizes >= CRC32_PROPERTY_SIZE)
    positions = (frames.positions + frames.message_sizes)[rows] - CRC32_PROPERTY_SIZE
    names: NDArray[np.uint64] = frames.block.gather("<u8", positions)
    halves = names.view("<u4").reshape(-1, 2)
    likely = halves == _CRC32_HALVES  # one half is equal even when one byte differs
    if not likely.any():
        return rows[:0]
    other = names ^ np.uint64(int.from_bytes(CRC32_PROPERTY, "little"))
    bytes_other = np.bitwise_count((((other & _LOW_BITS) + _LOW_BITS) | other) & ~_LOW_BITS)
    matches: Positions = rows[bytes_other <= 1]
    return matches
