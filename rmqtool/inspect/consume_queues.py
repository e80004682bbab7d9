"""Units of consume queues: simple ones, batch queues and those of compactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import MappedFile
from rmqtool.formats import batch_consume_queue, consume_queue
from rmqtool.formats.consume_queue_ext import HEADER, MAX_UNIT_SIZE, ExtUnit, address_of, decode_units
from rmqtool.formats.file_name import start_offset_of
from rmqtool.formats.properties import tags_code
from rmqtool.inspect.locate import FileGroup, Location, require_kind
from rmqtool.inspect.options import ListingOptions
from rmqtool.inspect.unit_blocks import UnitBlock, all_of, hex_of, read_units
from rmqtool.rules.system_topics import SCHEDULE_TOPIC
from rmqtool.scan.filters import Filters, Mask
from rmqtool.scan.rows import Rows, make_rows, names_taken, times_of
from rmqtool.scan.text import constant_strings

_KINDS = ("empty", "message", "pre_blank")
_BATCH_KINDS = ("empty", "batch", "end_mark")
_EMPTY, _MESSAGE, _OTHER = range(3)
QUEUE_OPTIONAL = ("delivery_timestamp", "delivery_time", "ext_offset")


def list_queues(location: Location, options: ListingOptions) -> Iterator[Rows]:
    """The units of simple consume queues, queue after queue; zeros after the last written unit are left out."""
    for group, mapped, block in _blocks(location, options, consume_queue.UNIT_DTYPE):
        units = block.units
        codes = np.where(consume_queue.is_written(units), _MESSAGE, _EMPTY)
        codes[consume_queue.is_pre_blank(units)] = _OTHER
        kept = _kept(group, units, codes == _MESSAGE, options)
        columns = _columns(group, _queue_offsets(mapped, block), units, options)
        columns |= _meaning_of_tags_codes(group, units["tags_code"], codes)
        rows = make_rows(names_taken(_KINDS, codes), columns, QUEUE_OPTIONAL)
        yield rows.filter(kept, reverse=options.reverse)


def list_batch_queues(location: Location, options: ListingOptions) -> Iterator[Rows]:
    """The units of batch queues, and of compactions' queues with the marks that end their files."""
    for group, _, block in _blocks(location, options, batch_consume_queue.UNIT_DTYPE):
        units = block.units
        codes = np.where(batch_consume_queue.is_written(units), _MESSAGE, _EMPTY)
        codes[batch_consume_queue.is_end_mark(units)] = _OTHER
        times = units["store_timestamp"].astype(np.int64)
        kept = _kept(group, units, codes == _MESSAGE, options, times)
        columns = _columns(group, units["base_queue_offset"], units, options)
        columns |= {"store_timestamp": times, "store_time": times_of(pa.array(times))}
        columns |= {name: units[name] for name in ("batch_size", "compacted_offset", "reserved")}
        yield make_rows(names_taken(_BATCH_KINDS, codes), columns).filter(kept, reverse=options.reverse)


def _blocks(
    location: Location, options: ListingOptions, dtype: np.dtype[np.void]
) -> Iterator[tuple[FileGroup, MappedFile, UnitBlock]]:
    """The units of all queues that the filters let through."""
    for group in reversed(location.groups) if options.reverse else location.groups:
        if not is_wanted(group, options.filters):
            continue
        for mapped in reversed(group.files) if options.reverse else group.files:
            require_kind(mapped.path, location.kind)
            for block in read_units(mapped, dtype, options.reading, reverse=options.reverse):
                yield group, mapped, block


def is_wanted(group: FileGroup, filters: Filters) -> bool:
    """Whether the filters on topic and queue let a queue's files through."""
    return (group.topic is None or group.topic in filters.topic_choice) and (
        group.queue_id is None or not filters.queue_ids or group.queue_id in filters.queue_ids
    )


def _kept(
    group: FileGroup,
    units: NDArray[np.void],
    has_message: Mask,
    options: ListingOptions,
    times: NDArray[Any] | None = None,
) -> Mask:
    """Which units the filters keep; those without a message pass none on tags, offsets and records."""
    filters = options.filters
    masks: list[Any] = [] if times is None else [filters.in_time(times)]
    if filters.tags:
        masks += [has_message, np.isin(units["tags_code"], [tags_code(tag) for tag in filters.tags])]
    if filters.start or filters.to_offset is not None:
        offsets = units["physical_offset"]
        masks += [has_message, offsets >= filters.start, offsets < filters.stop]
    if options.by_record:
        masks.append(has_message)
    return options.by_records(group, all_of(masks, len(units)), units["physical_offset"], units["message_size"])


def _queue_offsets(mapped: MappedFile, block: UnitBlock) -> Any:
    """The queue offset of each unit; null in a copy whose name is not a start offset."""
    if start_offset_of(mapped.path.name) is None:
        return pa.nulls(len(block.units), pa.int64())
    return block.indices + mapped.start_offset // consume_queue.UNIT_SIZE


def _columns(group: FileGroup, queue_offsets: Any, units: NDArray[np.void], options: ListingOptions) -> dict[str, Any]:
    count = len(units)
    columns: dict[str, Any] = {
        "topic": pa.nulls(count, pa.string()) if group.topic is None else constant_strings(group.topic, count),
        "queue_id": pa.nulls(count, pa.int32()) if group.queue_id is None else np.full(count, group.queue_id, np.int32),
        "queue_offset": queue_offsets,
        **{name: units[name] for name in ("physical_offset", "message_size", "tags_code")},
    }
    return {**columns, "hex": hex_of(units)} if options.with_hex else columns


def _meaning_of_tags_codes(group: FileGroup, stored: NDArray[Any], codes: NDArray[Any]) -> dict[str, Any]:
    """Columns for tags codes that are no hash: the delivery time, or the position of the ext unit."""
    tags = stored.astype(np.int64)
    is_ext = (tags <= consume_queue.MAX_EXT_ADDRESS) & (codes == _MESSAGE)
    columns: dict[str, Any] = {}
    if group.topic == SCHEDULE_TOPIC:
        times = pa.array(tags, mask=is_ext | (codes != _MESSAGE))
        columns = {"delivery_timestamp": times, "delivery_time": times_of(times)}
    if is_ext.any():
        offsets = (tags.view(np.uint64) + np.uint64(1 << 63)).view(np.int64)
        columns["ext_offset"] = pa.array(offsets, mask=~is_ext)
    return columns


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
