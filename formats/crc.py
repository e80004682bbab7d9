"""The two checksums of a message: of its body, and of the whole record in the property ``__CRC32#``."""

from __future__ import annotations

import re
import zlib

CRC_MASK = 0x7FFFFFFF  # UtilAll#crc32 clears the sign bit
CRC32_PROPERTY = b"__CRC32#"
CRC32_DIGITS = 10
CRC32_PROPERTY_SIZE = 20  # name, 0x01, ten digits, 0x02: CommitLog.CRC32_RESERVED_LEN, since 5.2.0
_PROPERTY = re.compile(re.escape(CRC32_PROPERTY) + rb"\x01([0-9]{%d})\x02" % CRC32_DIGITS)


def body_crc(body: bytes) -> int:
    """CRC-32 of a stored body as `UtilAll#crc32` gives it; 0 for an empty body."""
    return zlib.crc32(body) & CRC_MASK


def build_crc32_property(crc: int) -> bytes:
    """The last 20 bytes of a record: digits stand least significant first (`MessageDecoder#createCrc32`)."""
    return CRC32_PROPERTY + b"\x01" + f"{crc:0{CRC32_DIGITS}d}"[::-1].encode() + b"\x02"


def stored_record_crc(record: bytes) -> int | None:
    """The CRC that the record's last 20 bytes carry, or None when there is no such property."""
    match = _PROPERTY.fullmatch(record[-CRC32_PROPERTY_SIZE:])
    return int(match[1][::-1]) if match else None


def record_crc(record: bytes) -> int:
    """CRC-32 over all of the record but its last 20 bytes, sign bit cleared."""
    return zlib.crc32(record[:-CRC32_PROPERTY_SIZE]) & CRC_MASK
