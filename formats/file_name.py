"""Names of mapped files: the start offset in 20 digits; index files: their creation time."""

from __future__ import annotations

import re
from functools import lru_cache

NAME_DIGITS = 20  # UtilAll#offset2FileName
_START_OFFSET = re.compile(r"[0-9]{20}", re.ASCII)
_INDEX_NAME = re.compile(r"[0-9]{17}", re.ASCII)
MAX_OFFSET = (1 << 63) - 1


def file_name(start_offset: int) -> str:
    """Name of the mapped file that starts at `start_offset`, bytes."""
    return f"{start_offset:0{NAME_DIGITS}d}"


@lru_cache(256)  # most of many queues have a file of the same name, and one number for it is enough
def start_offset_of(name: str) -> int | None:
    """Start offset that a mapped file's name gives, bytes; None when it is no such name."""
    if not _START_OFFSET.fullmatch(name):
        return None
    offset = int(name)
    return offset if offset <= MAX_OFFSET else None


def is_index_name(name: str) -> bool:
    """Whether `name` is an index file's: ``yyyyMMddHHmmssSSS`` in the broker's time zone."""
    return _INDEX_NAME.fullmatch(name) is not None
