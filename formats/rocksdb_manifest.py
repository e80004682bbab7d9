"""The MANIFEST of a RocksDB database: a log of changes, each of numbered fields (`VersionEdit`)."""

from __future__ import annotations

from .layout import FormatError
from .rocksdb_log import payloads

_OLDEST_LOG = 10  # kMinLogNumberToKeep
_NUMBERS = (2, 3, 4, 9, _OLDEST_LOG, 203)  # logs, the next file, the last sequence number, the most families
_TEXTS = (1, 8193, 8201)  # the comparator, the id of the database, whether timestamps are kept
_MAX_DIGITS = 10  # of a number of 64 bits


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
