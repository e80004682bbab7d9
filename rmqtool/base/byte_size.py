"""Sizes as people read them."""

from __future__ import annotations

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def byte_size(size: int) -> str:
    """A size for people, in IEC units with three significant digits."""
    value = float(size)
    for unit in _UNITS:
        if abs(value) < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{size} B" if unit == "B" else f"{value:.{max(0, 2 - len(str(int(value))) + 1)}f} {unit}"
