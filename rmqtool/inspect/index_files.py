"""An index file: its header, its units, or its hash slots with the lengths of their chains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.errors import UnsupportedError, WrongKindError
from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import MappedFile
from rmqtool.base.times import rfc3339
from rmqtool.formats import index_file
from rmqtool.formats.index_file import HEADER_SIZE, SLOT_DTYPE, UNIT_DTYPE, unit_position
from rmqtool.inspect.locate import Location, as_hint, detect_kind, name_of, require_kind
from rmqtool.inspect.options import ListingOptions
from rmqtool.inspect.unit_blocks import BLOCK_UNITS, UnitBlock, all_of, hex_of, read_units
from rmqtool.scan.filters import Filters
from rmqtool.scan.rows import Rows, make_rows, one_row
from rmqtool.scan.text import constant_strings
from rmqtool.store.index_files import Geometry, IndexFile, geometries_by_size, geometry_of, read_header

HEADER_COLUMNS = (
    "begin_timestamp", "begin_time", "end_timestamp", "end_time", "begin_physical_offset", "end_physical_offset",
    "hash_slot_count", "index_count", "keys", "slots", "capacity",
)  # fmt: skip
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
                rows = make_rows("index_unit", _unit_columns(name, geometry, block, with_hex=options.with_hex))
                passed = _passing(block.units, header, options.filters)
                kept = options.by_records(location.groups[0], passed, block.units["physical_offset"])
                yield rows.filter(kept, reverse=options.reverse)


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
    values = {
        "file": name,
        "begin_timestamp": header.begin_timestamp,
        "begin_time": rfc3339(header.begin_timestamp),
        "end_timestamp": header.end_timestamp,
        "end_time": rfc3339(header.end_timestamp),
        "begin_physical_offset": header.begin_physical_offset,
        "end_physical_offset": header.end_physical_offset,
        "hash_slot_count": header.hash_slot_count,
        "index_count": header.index_count,
        "keys": header.keys,
        "slots": geometry.slots if geometry else None,
        "capacity": geometry.units - 1 if geometry else None,
    }
    return one_row("index_header", values, counted=False)


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


def _unit_columns(name: str, geometry: Geometry, block: UnitBlock, *, with_hex: bool) -> dict[str, Any]:
    units = block.units
    hashes = units["key_hash"].astype(np.int64)
    columns: dict[str, Any] = {
        "file": constant_strings(name, len(units)),
        "number": block.indices + 1,
        "slot": hashes % geometry.slots,
        **{field: units[field] for field in UNIT_DTYPE.names or ()},
    }
    return {**columns, "hex": hex_of(units)} if with_hex else columns


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
