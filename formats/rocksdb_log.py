"""The logs of a RocksDB database: blocks of 32 KiB, records with a masked CRC-32C (`log::Reader`).

Those are its write-ahead logs, and its MANIFEST: a log of changes, each of numbered fields (`VersionEdit`).
"""

from __future__ import annotations

from collections.abc import Iterator

from .layout import FormatError

_BLOCK = 1 << 15
_HEADER, _LONG_HEADER = 7, 11  # CRC, size, type; since a file is used again, a number of the log, too
_FIRST_LONG_TYPE = 5
_TYPES = range(1, 9)
_FULL, _FIRST, _MIDDLE, _LAST = range(4)  # which parts of a record one of the log is, in both headers
_MASK_DELTA = 0xA282EAD8
_POLYNOMIAL = 0x82F63B78

_OLDEST_LOG = 10  # kMinLogNumberToKeep
_NUMBERS = (2, 3, 4, 9, _OLDEST_LOG, 203)  # logs, the next file, the last sequence number, the most families
_TEXTS = (1, 8193, 8201)  # the comparator, the id of the database, whether timestamps are kept
_MAX_DIGITS = 10  # of a number of 64 bits


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

    Zeros to the end are no damage: the file may have been allocated in advance.
    """
    return next((start for start, stop in _records(data) if stop is None), None)


def payloads(data: bytes) -> Iterator[bytes]:
    """What was written, record by record, those put together that are in parts; FormatError where one is not whole."""
    parts = b""
    is_begun = False
    for start, stop in _records(data):
        if stop is None:
            raise FormatError(f"no whole record at byte {start}")
        is_long = data[start + 6] >= _FIRST_LONG_TYPE
        part = data[start + 6] - (_FIRST_LONG_TYPE if is_long else 1)
        if is_begun != (part in (_MIDDLE, _LAST)):
            raise FormatError(f"the record at byte {start} is not the next part")
        parts += data[start + (_LONG_HEADER if is_long else _HEADER) : stop]
        is_begun = part in (_FIRST, _MIDDLE)
        if not is_begun:
            yield parts
            parts = b""
    if is_begun:
        raise FormatError("the last record ends in the middle")


def goes_on(data: bytes, damage: int) -> bool:
    """Whether a whole record stands after a damaged one: it is no end that a kill has torn."""
    behind = damage + _HEADER + int.from_bytes(data[damage + 4 : damage + 6], "little")
    blocks = range((damage // _BLOCK + 1) * _BLOCK, len(data), _BLOCK)
    return any(_end_of_record(data, position) is not None for position in (behind, *blocks))


def _records(data: bytes) -> Iterator[tuple[int, int | None]]:
    """Where each record begins and ends, up to the first that is not whole: that ends at None."""
    position = 0
    while position < len(data):
        left = _BLOCK - position % _BLOCK
        if left < _HEADER:
            position += left
            continue
        stop = _end_of_record(data, position)
        if stop is None:
            if data[position:].strip(b"\0"):
                yield position, None
            return
        yield position, stop
        position = stop


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


def oldest_log(manifest: bytes) -> int:
    """The number of the oldest log that the database needs, by the content of its MANIFEST; 0 where it says none.

    After a start it may be a number that no file has: the next one after the logs which that start has read.
    Raises FormatError where a record is not whole, or has other fields.
    """
    return max((_oldest_of(edit) for edit in payloads(manifest)), default=0)


def _oldest_of(edit: bytes) -> int:
    """The number in one change; the fields about tables and families, which follow it, are not read."""
    oldest = position = 0
    while position < len(edit):
        tag, position = _number(edit, position)
        if tag not in (*_NUMBERS, *_TEXTS):
            break
        value, position = _number(edit, position)
        if tag in _TEXTS:
            position += value
        elif tag == _OLDEST_LOG:
            oldest = max(oldest, value)
    if position > len(edit):
        raise FormatError("a text that is longer than its record")
    return oldest


def _number(edit: bytes, position: int) -> tuple[int, int]:
    """A number of 7 bits a byte, the lowest first, and where it ends."""
    value = 0
    for digit, byte in enumerate(edit[position : position + _MAX_DIGITS]):
        value |= (byte & 0x7F) << 7 * digit
        if byte < 0x80:
            return value, position + digit + 1
    raise FormatError("a number without an end")
