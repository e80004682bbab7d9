"""The CRC of a whole record in its last property, ``__CRC32#`` (`MessageDecoder#createCrc32`)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.formats.crc import CRC32_PROPERTY, CRC32_PROPERTY_SIZE
from rmqtool.formats.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from rmqtool.scan.block import Block, Positions
from rmqtool.scan.body_crc import crcs_of
from rmqtool.scan.frames import RecordRun

_LOW_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
_CRC32_HALVES = np.frombuffer(CRC32_PROPERTY, dtype="<u4")
_CRC32_WORD = np.uint64(int.from_bytes(CRC32_PROPERTY, "little"))

_WORDS = np.dtype([("name", "<u8"), ("separator", "u1"), ("eight_digits", "<u8"), ("two_digits", "<u2"), ("end", "u1")])
"""The property as it stands, with its digits as numbers; they are least significant first, as these bytes are."""

_NO_NUMBER = -1


class WrongCrc(NamedTuple):
    """The CRC of a record's bytes, and the one that its property holds, None where that is no number."""

    computed: int
    stored: int | None


def wrong_property_crcs(frames: RecordRun, rows: Positions) -> Iterator[tuple[int, WrongCrc]]:
    """Those of `rows`, as `rows_with_property_crc` gives them, whose property does not hold the record's CRC."""
    starts = frames.positions.take(rows)  # of few values faster than an index
    sizes = frames.message_sizes.take(rows) - CRC32_PROPERTY_SIZE
    stored = stored_crcs(frames.block, starts + sizes)
    computed = crcs_of(frames.block, starts, sizes)
    for index in np.flatnonzero(stored != computed).tolist():
        number = int(stored[index])
        yield int(rows[index]), WrongCrc(int(computed[index]), None if number == _NO_NUMBER else number)


def stored_crcs(block: Block, positions: Positions) -> NDArray[np.int64]:
    """The numbers in the properties at `positions`, as `stored_record_crc` reads them; -1 where there is none."""
    properties = block.gather(_WORDS, positions)
    numbers, sound = _decimal(properties["eight_digits"].astype(np.uint64))
    high = _two_digits().take(properties["two_digits"])
    sound &= high >= 0
    numbers += high
    sound &= properties["name"] == _CRC32_WORD
    sound &= properties["separator"] == NAME_VALUE_SEPARATOR
    sound &= properties["end"] == PROPERTY_SEPARATOR
    numbers[~sound] = _NO_NUMBER
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


def rows_with_property_crc(frames: RecordRun) -> Positions:
    """Rows of records whose last 20 bytes begin with ``__CRC32#``, of which one byte may differ."""
    rows = np.flatnonzero(frames.properties_sizes >= CRC32_PROPERTY_SIZE)
    positions = (frames.positions + frames.message_sizes).take(rows) - CRC32_PROPERTY_SIZE
    names: NDArray[np.uint64] = frames.block.gather("<u8", positions)
    if (names == _CRC32_WORD).all():
        return rows
    halves = names.view("<u4").reshape(-1, 2)
    likely = halves == _CRC32_HALVES  # one half is equal even when one byte differs
    if not likely.any():
        return rows[:0]
    other = names ^ _CRC32_WORD
    bytes_other = np.bitwise_count((((other & _LOW_BITS) + _LOW_BITS) | other) & ~_LOW_BITS)
    matches: Positions = rows[bytes_other <= 1]
    return matches
