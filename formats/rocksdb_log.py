"""The write-ahead log of a RocksDB database: blocks of 32 KiB, records with a masked CRC-32C (`log::Reader`)."""

from __future__ import annotations

_BLOCK = 1 << 15
_HEADER, _LONG_HEADER = 7, 11  # CRC, size, type; since a file is used again, a number of the log, too
_FIRST_LONG_TYPE = 5
_TYPES = range(1, 9)
_MASK_DELTA = 0xA282EAD8
_POLYNOMIAL = 0x82F63B78


def _table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        table.append(crc)
    return table


_TABLE = _table()


def crc32c(data: bytes | memoryview) -> int:
    """CRC-32C (Castagnoli) of `data`."""
    crc, table = 0xFFFFFFFF, _TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def first_damage(data: bytes) -> int | None:
    """Where the first record that is not whole begins, bytes; None where all are.

    Zeros to the end are no damage: the file may have been allocated ahead.
    """
    position = 0
    while position < len(data):
        left = _BLOCK - position % _BLOCK
        if left < _HEADER:
            position += left
            continue
        stop = _end_of_record(data, position)
        if stop is None:
            return position if data[position:].strip(b"\0") else None
        position = stop
    return None


def goes_on(data: bytes, damage: int) -> bool:
    """Whether a whole record stands behind a damaged one: it is no end that a kill has torn."""
    behind = damage + _HEADER + int.from_bytes(data[damage + 4 : damage + 6], "little")
    blocks = range((damage // _BLOCK + 1) * _BLOCK, len(data), _BLOCK)
    return any(_end_of_record(data, position) is not None for position in (behind, *blocks))


def _end_of_record(data: bytes, position: int) -> int | None:
    """Where the record at `position` ends, None where there is no whole one."""
    if position + _HEADER > len(data):
        return None
    size, kind = int.from_bytes(data[position + 4 : position + 6], "little"), data[position + 6]
    header = _LONG_HEADER if kind >= _FIRST_LONG_TYPE else _HEADER
    stop = position + header + size
    if kind not in _TYPES or stop > min(len(data), position + _BLOCK - position % _BLOCK):
        return None
    crc = crc32c(memoryview(data)[position + 6 : stop])
    masked = ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF
    return stop if masked == int.from_bytes(data[position : position + 4], "little") else None
