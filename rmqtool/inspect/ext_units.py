"""Units of consume queue ext files, whose sizes differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import MappedFile
from rmqtool.formats.consume_queue_ext import HEADER, MAX_UNIT_SIZE, ExtUnit, address_of, decode_units
from rmqtool.formats.properties import tags_code
from rmqtool.inspect.consume_queues import is_wanted
from rmqtool.inspect.file_kind import require_kind
from rmqtool.inspect.locate import FileGroup, Location
from rmqtool.inspect.options import ListingOptions
from rmqtool.scan.rows import Rows, times_of

_WINDOW = 1 << 20  # bytes
_UnitAt = tuple[int, ExtUnit]
_COLUMNS = (
    ("kind", pa.string()), ("topic", pa.string()), ("queue_id", pa.int32()), ("ext_offset", pa.int64()),
    ("address", pa.int64()), ("size", pa.int32()), ("tags_code", pa.int64()), ("store_timestamp", pa.int64()),
    ("filter_bit_map", pa.string()), ("hex", pa.string()),
)  # fmt: skip


def list_ext(location: Location, options: ListingOptions) -> Iterator[Rows]:
    """The units of all queues; one whose sizes do not fit is a ``bad_unit`` and the last one read of its file."""
    for group in reversed(location.groups) if options.reverse else location.groups:
        if is_wanted(group, options.filters):
            for mapped in reversed(group.files) if options.reverse else group.files:
                require_kind(mapped.path, location.kind)
                yield from _file_rows(group, mapped, options)


def _file_rows(group: FileGroup, mapped: MappedFile, options: ListingOptions) -> Iterator[Rows]:
    tags = [tags_code(tag) for tag in options.filters.tags]
    with InputFile(mapped.path, options.reading) as file:
        for units in _windows(file, reverse=options.reverse):
            times = np.array([unit.store_timestamp for _, unit in units], dtype=np.int64)
            passed = zip(units, options.filters.in_time(times).tolist(), strict=True)
            kept = [row for row, keep in passed if keep and (not tags or row[1].tags_code in tags)]
            if kept:
                yield _rows(group, mapped, kept[::-1] if options.reverse else kept, with_hex=options.with_hex)


def _windows(file: InputFile, *, reverse: bool) -> Iterator[list[_UnitAt]]:
    """Units with their positions in the file, bytes; a window of the file at a time.

    Sizes lead forwards only: from the end a file is read twice, first to find where the windows begin.
    """
    starts, position = [], 0
    while position < file.size:
        starts.append(position)
        units, position = _window(file, position)
        if not reverse:
            yield units
    for start in reversed(starts) if reverse else ():
        yield _window(file, start)[0]


def _window(file: InputFile, position: int) -> tuple[list[_UnitAt], int]:
    """The units of the window that begins at `position`, and where the next one begins: after the last, the end."""
    units: list[_UnitAt] = []
    end = 0
    for unit in decode_units(file.read(position, _WINDOW + MAX_UNIT_SIZE)):
        if unit.position >= _WINDOW:
            break
        units.append((position + unit.position, unit))
        end = unit.position + unit.size
    goes_on = end >= _WINDOW and units[-1][1].is_sound
    return units, position + end if goes_on else file.size


def _rows(group: FileGroup, mapped: MappedFile, units: list[tuple[int, ExtUnit]], *, with_hex: bool) -> Rows:
    rows = [_row(group, mapped.start_offset + position, unit) for position, unit in units]
    schema = pa.schema(_COLUMNS)
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    if not with_hex:
        batch = batch.drop_columns(["hex"])
    at = batch.schema.get_field_index("store_timestamp") + 1
    return Rows(batch.add_column(at, "store_time", times_of(batch.column("store_timestamp"))))


def _row(group: FileGroup, offset: int, unit: ExtUnit) -> dict[str, Any]:
    head = HEADER.pack(unit.size, unit.tags_code, unit.store_timestamp, len(unit.filter_bit_map))
    return {
        "kind": "ext_unit" if unit.is_sound else "bad_unit",
        "topic": group.topic,
        "queue_id": group.queue_id,
        "ext_offset": offset,
        "address": address_of(offset),
        "size": unit.size,
        "tags_code": unit.tags_code,
        "store_timestamp": unit.store_timestamp,
        "filter_bit_map": unit.filter_bit_map.hex(),
        "hex": (head + unit.filter_bit_map).hex(),
    }
