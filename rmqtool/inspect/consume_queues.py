"""Units of consume queues: simple ones, batch queues and those of compactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqtool.base.mapped_files import MappedFile
from rmqtool.formats import batch_consume_queue, consume_queue
from rmqtool.formats.file_name import start_offset_of
from rmqtool.formats.properties import tags_code
from rmqtool.inspect.file_kind import require_kind
from rmqtool.inspect.locate import FileGroup, Location
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
