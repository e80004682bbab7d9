"""Bytes to text as Java decodes it, a column at a time."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

from rmqtool.formats.java import decode_text

_USUAL_COUNT = 1 << 16  # records of a block, nearly always


def constant_strings(value: str, count: int) -> pa.StringArray:
    """One value `count` times, without a copy."""
    return _repeated(value, max(count, _USUAL_COUNT))[:count]


@lru_cache(maxsize=64)
def _repeated(value: str, count: int) -> pa.StringArray:
    return pa.repeat(value, count)


def to_strings(values: pa.BinaryArray) -> pa.StringArray:
    """Decode UTF-8; what is not becomes U+FFFD."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if value is None else decode_text(value) for value in values.to_pylist()], pa.string())
