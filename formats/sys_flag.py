"""The bits of the sys flag (`MessageSysFlag`, `CompressionType`)."""

from __future__ import annotations

COMPRESSED = 0x1
MULTI_TAGS = 0x2
TRANSACTION_MASK = 0xC
TRANSACTION_NONE = 0x0
TRANSACTION_PREPARED = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC
BORN_HOST_V6 = 0x10  # since 4.6.0
STORE_HOST_V6 = 0x20  # since 4.6.0
NEED_UNWRAP = 0x40  # since 4.9.4
INNER_BATCH = 0x80  # since 4.9.4
COMPRESSION_TYPE_MASK = 0x700  # meaningful only with COMPRESSED, since 4.9.4

TRANSACTION_NAMES = ("none", "prepared", "commit", "rollback")
"""By ``(sys_flag & TRANSACTION_MASK) >> 2``."""

COMPRESSION_NAMES = ("zlib", "lz4", "zstd", "zlib", "unknown", "unknown", "unknown", "unknown")
"""By ``(sys_flag & COMPRESSION_TYPE_MASK) >> 8`` of a compressed body; older writers leave 0 and mean zlib."""


def transaction(sys_flag: int) -> str:
    """Name of the transaction type."""
    return TRANSACTION_NAMES[(sys_flag & TRANSACTION_MASK) >> 2]


def compression(sys_flag: int) -> str:
    """Name of the body's compression: none, zlib, lz4, zstd, or unknown (types that Java refuses)."""
    if not sys_flag & COMPRESSED:
        return "none"
    return COMPRESSION_NAMES[(sys_flag & COMPRESSION_TYPE_MASK) >> 8]
