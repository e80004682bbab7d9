"""Listings of files of units: consume queues, index, timer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqtool.base.errors import UnsupportedError, WrongKindError
from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import MappedFile, list_mapped_files
from rmqtool.base.times import with_times
from rmqtool.base.tolerant import skip_unreadable
from rmqtool.formats import consume_queue, index_file, timer_wheel
from rmqtool.formats.consume_queue import EXT_HEADER, MAX_EXT_UNIT_SIZE, ExtUnit, decode_ext_units, ext_address
from rmqtool.formats.file_name import start_offset_of
from rmqtool.formats.index_file import HEADER_SIZE, SLOT_DTYPE, UNIT_DTYPE, unit_position
from rmqtool.formats.java import string_hash
from rmqtool.formats.properties import tags_code
from rmqtool.formats.tiered import base_of
from rmqtool.inspect.locate import FileGroup, Location, as_hint, detect_kind, name_of, require_kind
from rmqtool.inspect.options import BLOCK_UNITS, ListingOptions, UnitBlock, all_of, read_units
from rmqtool.rules.system_topics import SCHEDULE_TOPIC
from rmqtool.scan.filters import Filters, Mask
from rmqtool.scan.rows import Rows, make_rows, names_taken, one_row, times_of
from rmqtool.scan.windows import constant_strings
from rmqtool.store.index_files import Geometry, IndexFile, geometries_by_size, geometry_of, read_header
from rmqtool.store.paths import TIMER_LOG
from rmqtool.store.timer_wheel import precision_of, used_slots

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
        queue_offsets: Any = block.indices + mapped.start_offset // consume_queue.UNIT_SIZE
        if (
            start_offset_of(mapped.path.name) is None and base_of(mapped.path.name) is None
        ):  # a copy, whose name does not say where it begins
            queue_offsets = pa.nulls(len(units), pa.int64())
        columns = _columns(group, queue_offsets, units) | _meaning_of_tags_codes(group, units["tags_code"], codes)
        yield options.rows(names_taken(_KINDS, codes), columns, units, kept, QUEUE_OPTIONAL)


def list_batch_queues(location: Location, options: ListingOptions) -> Iterator[Rows]:
    """The units of batch queues, and of compactions' queues with the marks that end their files."""
    for group, _, block in _blocks(location, options, consume_queue.BATCH_UNIT_DTYPE):
        units = block.units
        codes = np.where(consume_queue.is_batch_written(units), _MESSAGE, _EMPTY)
        codes[consume_queue.is_end_mark(units)] = _OTHER
        times = units["store_timestamp"].astype(np.int64)
        kept = _kept(group, units, codes == _MESSAGE, options, times)
        columns = _columns(group, units["base_queue_offset"], units)
        columns |= {"store_timestamp": times, "store_time": times_of(pa.array(times))}
        columns |= {name: units[name] for name in ("batch_size", "compacted_offset", "reserved")}
        yield options.rows(names_taken(_BATCH_KINDS, codes), columns, units, kept)


def _blocks(
    location: Location, options: ListingOptions, dtype: np.dtype[np.void]
) -> Iterator[tuple[FileGroup, MappedFile, UnitBlock]]:
    """The units of all queues that the filters let through."""
    for group, mapped in _wanted_files(location, options):
        for block in read_units(mapped, dtype, options.reading, reverse=options.reverse):
            yield group, mapped, block


def _wanted_files(location: Location, options: ListingOptions) -> Iterator[tuple[FileGroup, MappedFile]]:
    """The files of all queues that the filters on topic and queue let through."""
    topics, ids = options.filters.topic_choice, options.filters.queue_ids
    for group in reversed(location.groups) if options.reverse else location.groups:
        is_chosen = group.queue_id is None or not ids or group.queue_id in ids
        if is_chosen and (group.topic is None or group.topic in topics):
            for mapped in reversed(group.files) if options.reverse else group.files:
                require_kind(mapped.path, location.kind)
                yield group, mapped


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
    return options.kept(group, masks, has_message, units["physical_offset"], units["message_size"])


def _columns(group: FileGroup, queue_offsets: Any, units: NDArray[np.void]) -> dict[str, Any]:
    own = {name: units[name] for name in ("physical_offset", "message_size", "tags_code")}
    return {**_of_queue(group, len(units)), "queue_offset": queue_offsets, **own}


def _of_queue(group: FileGroup, count: int) -> dict[str, Any]:
    return {
        "topic": pa.nulls(count, pa.string()) if group.topic is None else constant_strings(group.topic, count),
        "queue_id": pa.nulls(count, pa.int32()) if group.queue_id is None else np.full(count, group.queue_id, np.int32),
    }


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


def list_ext(location: Location, options: ListingOptions) -> Iterator[Rows]:
    """The units of all queues; one whose sizes do not fit is a ``bad_unit`` and the last one read of its file."""
    tags = [tags_code(tag) for tag in options.filters.tags]
    for group, mapped in _wanted_files(location, options):
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
    for unit in decode_ext_units(file.read(position, _WINDOW + MAX_EXT_UNIT_SIZE)):
        if unit.position >= _WINDOW:
            break
        units.append((position + unit.position, unit))
        end = unit.position + unit.size
    goes_on = end >= _WINDOW and units[-1][1].is_sound
    return units, position + end if goes_on else file.size


def _rows(group: FileGroup, mapped: MappedFile, placed: list[_UnitAt], *, with_hex: bool) -> Rows:
    units, offsets = [unit for _, unit in placed], [mapped.start_offset + position for position, _ in placed]
    times = pa.array([unit.store_timestamp for unit in units], pa.int64())
    columns = {
        **_of_queue(group, len(units)),
        "ext_offset": pa.array(offsets, pa.int64()),
        "address": pa.array(map(ext_address, offsets), pa.int64()),
        "size": pa.array([unit.size for unit in units], pa.int32()),
        "tags_code": pa.array([unit.tags_code for unit in units], pa.int64()),
        "store_timestamp": times,
        "store_time": times_of(times),
        "filter_bit_map": pa.array([unit.filter_bit_map.hex() for unit in units], pa.string()),
    }
    if with_hex:
        heads = (EXT_HEADER.pack(unit.size, unit.tags_code, unit.store_timestamp, len(unit.filter_bit_map))
                 for unit in units)  # fmt: skip
        texts = [(head + unit.filter_bit_map).hex() for head, unit in zip(heads, units, strict=True)]
        columns["hex"] = pa.array(texts, pa.string())
    return make_rows(pa.array(["ext_unit" if unit.is_sound else "bad_unit" for unit in units], pa.string()), columns)


_OF_HEADER = (
    "begin_timestamp", "end_timestamp", "begin_physical_offset", "end_physical_offset", "hash_slot_count",
    "index_count", "keys",
)  # fmt: skip
HEADER_COLUMNS = (*with_times(dict.fromkeys(_OF_HEADER)), "slots", "capacity")
HASHED = frozenset({"topic", "key", "tag"})
"""The filters whose hash a unit has, when it is given a topic with a key or a tag."""

_TAG_TYPE = "T#"  # MessageConst.INDEX_TAG_TYPE: since 5.4.0 tags are keys of their own


def list_index(location: Location, options: ListingOptions) -> Iterator[Rows]:
    """The header of each file, then its units in the order in which they were put."""
    for mapped, header, geometry in _files(location, options):
        name = location.relative(mapped.path)
        yield header_row(name, header, geometry)
        if geometry:
            count = _unit_count(header, geometry)
            start = unit_position(geometry.slots, 1)
            for block in read_units(mapped, UNIT_DTYPE, options.reading, start, count, reverse=options.reverse):
                units = block.units
                hashes = units["key_hash"].astype(np.int64)
                columns: dict[str, Any] = {
                    "file": constant_strings(name, len(units)),
                    "number": block.indices + 1,
                    "slot": hashes % geometry.slots,
                    **{field: units[field] for field in UNIT_DTYPE.names or ()},
                }
                passed = _passing(units, header, options.filters)
                kept = options.by_records(location.groups[0], passed, units["physical_offset"])
                yield options.rows("index_unit", columns, units, kept)


def list_slots(location: Location, options: ListingOptions) -> Iterator[Rows]:
    """The header of each file, then its used hash slots: newest unit and length of the chain."""
    for mapped, header, geometry in _files(location, options):
        name = location.relative(mapped.path)
        yield header_row(name, header, geometry)
        if geometry:
            yield from _slot_rows(name, mapped, header, geometry, options)


def count_units(location: Location, options: ListingOptions) -> dict[str, int]:
    """How many headers there are, and how many units they count, at most those that the files have room for."""
    files = [(header, geometry) for _, header, geometry in _files(location, options)]
    units = sum(_unit_count(header, geometry) for header, geometry in files if geometry)
    return {"index_header": len(files), "index_unit": units}


def header_row(name: str, header: IndexFile, geometry: Geometry | None) -> Rows:
    """The header of a file; without a key the geometry cannot be derived."""
    sizes = {"slots": geometry.slots if geometry else None, "capacity": geometry.units - 1 if geometry else None}
    values = {each: getattr(header, each) for each in _OF_HEADER}
    return one_row("index_header", {"file": name, **with_times(values), **sizes}, counted=False)


def is_hashed(filters: Filters) -> bool:
    """Whether the filters name a topic with a key or a tag, of which units store the hash."""
    return bool(filters.topic_choice.names and (filters.keys or filters.tags))


def index_hashes(filters: Filters) -> list[int]:
    """The hashes that units store for the topics with keys and tags of the filters."""
    words = (*filters.keys, *(_TAG_TYPE + tag for tag in filters.tags))
    return [index_file.key_hash(topic, word) for topic in filters.topic_choice.names or () for word in words]


def _files(location: Location, options: ListingOptions) -> Iterator[tuple[MappedFile, IndexFile, Geometry | None]]:
    known = options.conf.index_geometry
    for mapped in reversed(location.files) if options.reverse else location.files:
        require_kind(mapped.path, "index")
        header = read_header(mapped.path)
        geometry = _geometry(mapped, header, known)
        known = (geometry.slots, geometry.units) if geometry else known
        yield mapped, header, geometry


def _geometry(mapped: MappedFile, header: IndexFile, known: tuple[int, int] | None) -> Geometry | None:
    """The geometry that units prove; for a damaged file the configured one or the default, if it fits the size."""
    try:
        return geometry_of(header, known)
    except UnsupportedError:
        geometry = next(geometries_by_size(mapped.size, known), None)
        if geometry or not header.keys:
            return geometry
        kind = detect_kind(mapped.path)
        if kind and kind != "index":
            message = f"this looks like {name_of(kind)}, not an index file"
            raise WrongKindError(message, file=mapped.path, hint=as_hint(kind)) from None
        raise


def _unit_count(header: IndexFile, geometry: Geometry) -> int:
    """Units that the header counts, at most those that there is room for."""
    return min(header.keys, max(0, geometry.units - 1))


def _passing(units: NDArray[np.void], header: IndexFile, filters: Filters) -> NDArray[np.bool_]:
    """Which units pass the filters; a unit's time is the header's begin and the unit's seconds, as in the broker."""
    masks: list[Any] = []
    if filters.keys or filters.tags:
        masks.append(np.isin(units["key_hash"], index_hashes(filters)))
    if filters.start or filters.to_offset is not None:
        masks += [units["physical_offset"] >= filters.start, units["physical_offset"] < filters.stop]
    if filters.from_timestamp is not None or filters.to_timestamp is not None:
        seconds = units["seconds_since_begin"].astype(np.int64)
        if filters.from_timestamp is not None:
            masks.append(seconds * 1000 >= _difference(filters.from_timestamp, header.begin_timestamp))
        if filters.to_timestamp is not None:
            masks.append(seconds * 1000 < _difference(filters.to_timestamp, header.begin_timestamp))
    return all_of(masks, len(units))


def _difference(one: int, other: int) -> int:
    """``one - other``, at the ends of 64 bits where it does not fit."""
    return max(-(1 << 63), min((1 << 63) - 1, one - other))


def _slot_rows(
    name: str, mapped: MappedFile, header: IndexFile, geometry: Geometry, options: ListingOptions
) -> Iterator[Rows]:
    """The used slots, BLOCK_UNITS at a time; only the file's slots and links are kept, 4 bytes for each."""
    count = _unit_count(header, geometry)
    with InputFile(mapped.path, options.reading) as file:
        heads = np.frombuffer(file.read(HEADER_SIZE, geometry.slots * SLOT_DTYPE.itemsize), SLOT_DTYPE).astype(np.int32)
    previous = np.zeros(count + 1, dtype=np.int32)
    for block in read_units(mapped, UNIT_DTYPE, options.reading, start=unit_position(geometry.slots, 1), count=count):
        previous[block.indices + 1] = block.units["previous"]
    lengths, broken = chain_lengths(previous)
    slots = np.flatnonzero(heads)
    if is_hashed(options.filters):
        slots = slots[np.isin(slots, np.array(index_hashes(options.filters)) % geometry.slots)]
    for start in range(0, len(slots), BLOCK_UNITS):
        chosen = slots[::-1][start : start + BLOCK_UNITS] if options.reverse else slots[start : start + BLOCK_UNITS]
        newest = heads[chosen]
        sound = (newest > 0) & (newest <= count)
        safe = np.where(sound, newest, 0)
        columns: dict[str, Any] = {
            "file": constant_strings(name, len(chosen)),
            "slot": chosen.astype(np.int32),
            "newest_unit": newest,
            "chain_length": lengths[safe],
            "chain_ok": sound & ~broken[safe],
        }
        yield make_rows("index_slot", columns)


def chain_lengths(previous: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Units of the chain from each unit on to its oldest, and whether the chain has a link that leads nowhere older.

    `previous` has one number for each unit, the unused unit 0 among them. A chain ends at such a link, so that a
    cycle ends too. Each round doubles the number of links that are followed.
    """
    unit_indexes = np.arange(len(previous), dtype=np.int32)
    broken = (previous < 0) | ((previous >= unit_indexes) & (previous != 0))
    links = np.where(broken, 0, previous)
    lengths = np.ones(len(previous), dtype=np.int32)
    if len(previous):
        links[0], lengths[0], broken[0] = 0, 0, False
    while links.any():
        lengths += lengths[links]
        broken |= broken[links]
        links = links[links]
    return lengths, broken


_TIMER_KINDS = ("bad_unit", "timer_unit", "timer_blank")
_UNIT, _BLANK = 1, 2
_LARGEST = (1 << 63) - 1


def list_wheel(location: Location, options: ListingOptions) -> Iterator[Rows]:
    """The slots that have a time; `in_place` when the time belongs in this slot. Slots are never cleared."""
    log = list_mapped_files(location.root / TIMER_LOG, scope=skip_unreadable)
    for mapped in location.files:
        require_kind(mapped.path, "timerwheel")
        precision = precision_of(partial(used_slots, mapped.path, options.reading), log, options.conf, options.reading)
        for block in read_units(mapped, timer_wheel.SLOT_DTYPE, options.reading, reverse=options.reverse):
            used = block.units["time"] != 0
            slots, slot_indexes = block.units[used], block.indices[used]
            times = slots["time"].astype(np.int64)
            due = pa.array(times * precision, mask=np.abs(times) > _LARGEST // precision)
            columns: dict[str, Any] = {
                "file": constant_strings(location.relative(mapped.path), len(slots)),
                "slot": slot_indexes,
                "time": times,
                "due_timestamp": due,
                "due_time": times_of(due),
                **{name: slots[name] for name in ("first_position", "last_position", "count", "magic")},
                "in_place": times % timer_wheel.WHEEL_SLOTS == slot_indexes,
            }
            kept = options.filters.in_time(np.asarray(due.fill_null(_LARGEST)))
            yield options.rows("timer_slot", columns, slots, kept)


def list_timer_log(location: Location, options: ListingOptions) -> Iterator[Rows]:
    """The units of the timer log; one that the broker would not take for a unit is a ``bad_unit``."""
    for mapped in reversed(location.files) if options.reverse else location.files:
        require_kind(mapped.path, "timerlog")
        for block in read_units(mapped, timer_wheel.UNIT_DTYPE, options.reading, reverse=options.reverse):
            units = block.units
            codes = np.where(timer_wheel.is_written(units), _UNIT, 0)
            codes[timer_wheel.is_blank(units)] = _BLANK
            due = timer_wheel.dues(units)
            columns: dict[str, Any] = {
                "file": constant_strings(location.relative(mapped.path), len(units)),
                "position": mapped.start_offset + block.indices * timer_wheel.UNIT_SIZE,
                **{name: units[name] for name in ("size", "previous_position", "magic", "write_timestamp")},
                "write_time": times_of(pa.array(units["write_timestamp"].astype(np.int64))),
                "delay": units["delay"],
                "due_timestamp": due,
                "due_time": times_of(pa.array(due)),
                **{name: units[name] for name in ("physical_offset", "message_size", "topic_hash")},
                "rolled": (units["magic"] & timer_wheel.MAGIC_ROLL) != 0,
                "deleted": (units["magic"] & timer_wheel.MAGIC_DELETE) != 0,
            }
            kept = _kept_timers(location, units, due, codes == _UNIT, options)
            yield options.rows(names_taken(_TIMER_KINDS, codes), columns, units, kept)


def _kept_timers(
    location: Location, units: NDArray[np.void], due: NDArray[np.int64], is_unit: Mask, options: ListingOptions
) -> Mask:
    """Which units pass the filters: on the time when they are due, the topic's hash, and the record in the log."""
    filters = options.filters
    masks: list[Any] = []
    if filters.from_timestamp is not None or filters.to_timestamp is not None:
        masks += [is_unit, filters.in_time(due)]
    for topics, is_chosen in ((filters.topics, True), (filters.excluded_topics, False)):
        if topics:
            hashes = [string_hash(topic) for topic in topics]
            masks += [is_unit, np.isin(units["topic_hash"], hashes, invert=not is_chosen)]
    return options.kept(location.groups[0], masks, is_unit, units["physical_offset"], units["message_size"])
