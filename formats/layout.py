"""The one door to construct: parse and build with our error, and dtypes derived from declarations."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from construct import Bytes, Construct, ConstructError, FormatField, Renamed, Struct, Tell
from numpy.typing import NDArray

_END = "end of"  # no field is called so


class FormatError(ValueError):
    """Bytes that do not fit a layout; the message names the field and what was expected."""


def parse(layout: Construct, data: bytes | bytearray | memoryview) -> Any:
    """Decode `data` from its first byte; raise FormatError when the layout does not fit."""
    try:
        return layout.parse(bytes(data))
    except ConstructError as error:
        raise FormatError(_one_line(error)) from error


def build(layout: Construct, values: Mapping[str, Any]) -> bytes:
    """Encode `values`; raise FormatError when a value does not fit its field."""
    try:
        return bytes(layout.build(dict(values)))
    except (ConstructError, KeyError) as error:
        raise FormatError(_one_line(error)) from error


def size_of(layout: Construct) -> int:
    """Size in bytes; raise FormatError when it depends on the content."""
    try:
        return int(layout.sizeof())
    except ConstructError as error:
        raise FormatError(_one_line(error)) from error


def dtype_of(layout: Struct, until: str | None = None, **context: Any) -> np.dtype[np.void]:
    """Derive the big-endian NumPy dtype of the fields before `until` (default: all of them).

    Integers map by width and sign, everything else to raw bytes (``V``, which keeps trailing zeros).
    `context` gives the fields that a width depends on, such as ``sys_flag``.
    """
    fields: list[tuple[str, str]] = []
    for field in layout.subcons:
        if field.name == until:
            break
        fields.append((field.name, _dtype_name(field, context)))
    return np.dtype(fields)


def decode_units(layout: np.dtype[np.void], data: bytes | bytearray | memoryview) -> NDArray[np.void]:
    """View `data` as whole units; a partial last unit is left out."""
    return np.frombuffer(data, layout, len(data) // layout.itemsize)


def position_of(layout: np.dtype[np.void], field: str) -> int:
    """Where a field begins, bytes."""
    fields = layout.fields
    if fields is None:
        raise TypeError(f"{layout} has no fields")
    return int(fields[field][1])


def integer_at(layout: np.dtype[np.void], field: str, data: bytes, start: int = 0) -> int:
    """One integer field of what begins at `start` of `data`."""
    position = start + position_of(layout, field)
    return int.from_bytes(data[position : position + layout[field].itemsize], "big", signed=True)


def struct_of(layout: np.dtype[np.void], *fields: str) -> struct.Struct:
    """The integers `fields`, in their order, from the first of them on: for one unit `struct` is faster than NumPy."""
    names = list(layout.names or ())
    between = names[names.index(fields[0]) : names.index(fields[-1]) + 1]
    sizes = {name: layout[name].itemsize for name in between}
    letters = {1: "b", 2: "h", 4: "i", 8: "q"}
    return struct.Struct(
        ">" + "".join(letters[sizes[name]] if name in fields else f"{sizes[name]}x" for name in between)
    )


def field_extents(layout: Struct, data: bytes) -> list[tuple[str, int, int, Any]]:
    """Name, start, end (bytes in `data`) and value of each field, up to the first that `data` does not hold whole."""
    for count in range(len(layout.subcons), 0, -1):
        try:
            parsed = _measured(layout, count).parse(data)
        except ConstructError:
            continue
        names = [field.name for field in layout.subcons[:count]]
        ends = [int(parsed[f"{_END} {name}"]) for name in names]
        starts = [0, *ends[:-1]]
        return [(name, start, end, parsed[name]) for name, start, end in zip(names, starts, ends, strict=True)]
    return []


@lru_cache(maxsize=64)
def _measured(layout: Struct, count: int) -> Struct:
    """The first `count` fields of a layout, and after each one where it ends."""
    return Struct(*(part for field in layout.subcons[:count] for part in (field, f"{_END} {field.name}" / Tell)))


def field_meanings(layout: Struct) -> dict[str, str]:
    """The meaning and unit of every field, as declared."""
    return {field.name: str(field.docs) for field in layout.subcons}


def _dtype_name(field: Construct, context: Mapping[str, Any]) -> str:
    inner = field
    while isinstance(inner, Renamed):
        inner = inner.subcon
    if isinstance(inner, FormatField):
        signed = inner.fmtstr[-1].islower()
        return f">{'i' if signed else 'u'}{inner.length}"
    if isinstance(inner, Bytes):
        return f"V{inner.sizeof(**context)}"
    raise TypeError(f"no dtype for field {field.name!r}")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
