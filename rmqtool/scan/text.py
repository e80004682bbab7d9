"""Bytes to text as Java decodes it, a column at a time."""

from __future__ import annotations

import os
from functools import lru_cache

import numpy as np
import pyarrow as pa

from rmqtool.formats.java import decode_text

_USUAL_COUNT = 1 << 16  # records of a block, nearly always


def constant_strings(
    value: str, count: int, *, dictionary_encoded: bool = False
) -> pa.StringArray | pa.DictionaryArray:
    """One value `count` times, without a copy; `dictionary_encoded`: as a dictionary of one."""
    return _repeated(value, max(count, _USUAL_COUNT), dictionary_encoded=dictionary_encoded)[:count]


@lru_cache(maxsize=64)
def _repeated(value: str, count: int, *, dictionary_encoded: bool) -> pa.StringArray | pa.DictionaryArray:
    value = os.fsencode(value).decode("utf-8", "replace")  # names of files may be no text
    if dictionary_encoded:
        return pa.DictionaryArray.from_arrays(np.zeros(count, dtype=np.int32), [value])
    return pa.repeat(value, count)


def to_strings(values: pa.BinaryArray) -> pa.StringArray:
    """Decode UTF-8; bytes that are not UTF-8 become U+FFFD."""
    if is_utf8(values):
        return values.view(pa.string())
    return pa.array([None if value is None else decode_text(value) for value in values.to_pylist()], pa.string())


def is_utf8(values: pa.BinaryArray) -> bool:
    """Whether every value is UTF-8."""
    data = values.buffers()[2]
    if data is None or data.size == 0 or np.frombuffer(data, np.int8).min() >= 0:
        return True  # ASCII, which is checked ten times as fast
    try:
        values.view(pa.string()).validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
