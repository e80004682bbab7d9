"""The CRC of a whole record in its last property, ``__CRC32#`` (`MessageDecoder#createCrc32`)."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.formats.crc import CRC32_PROPERTY, CRC32_PROPERTY_SIZE
from rmqtool.formats.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from rmqtool.scan.block import Block, Positions

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
