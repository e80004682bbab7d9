"""Index files: their paths, headers and geometry (`IndexService`, `IndexFile`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np

from rmqtool.base.errors import UnsupportedError
from rmqtool.base.files import InputFile, list_directory
from rmqtool.base.paths import DirectoryEntry, entry_path
from rmqtool.base.tolerant import ReadScope, skip_unreadable
from rmqtool.formats.index_file import (
    DEFAULT_SLOTS,
    DEFAULT_UNITS,
    HEADER_DTYPE,
    HEADER_SIZE,
    SLOT_DTYPE,
    UNIT_SIZE,
    decode_units,
    file_size,
    slot_position,
    unit_position,
)
from rmqtool.store.store import INDEX, Store

_NUMERIC_NAME = re.compile(r"\d+", re.ASCII)
_SLOT_SIZE = SLOT_DTYPE.itemsize
_PROBED_UNITS = 64  # units whose chains must fit before a geometry is accepted
_MAX_NEWER_UNITS = 1000  # units in one slot that a broker puts between the header's reading and theirs
_TRIES = 10  # with a header that a broker writes meanwhile


@dataclass(frozen=True)
class IndexFile:
    """One index file and its header."""

    path: Path
    size: int
    begin_timestamp: int
    end_timestamp: int
    begin_physical_offset: int
    end_physical_offset: int
    hash_slot_count: int
    index_count: int

    @property
    def keys(self) -> int:
        """Units in the file: their numbers begin at 1, and a file never written says 0 (`IndexHeader#load`)."""
        return max(self.index_count, 1) - 1

    def units(self, geometry: Geometry) -> int:
        """Units that are really there: a broker maps a file that is cut as long as all, with zeros for the rest."""
        return min(self.keys, max(0, (self.size - unit_position(geometry.slots, 1)) // UNIT_SIZE))


WESTERNMOST = timedelta(hours=-12)
"""The time zone of the names that a rebuild gives, which is never ahead of a broker's; no broker lives there."""

_SLACK_MS = 600_000  # between the first message and the first key


def is_of_rebuild(file: IndexFile) -> bool:
    """Whether a rebuild wrote this file, as its name shows: what it holds is then no evidence of a broker's release."""
    try:
        named = datetime.strptime(file.path.name[:14], "%Y%m%d%H%M%S").replace(tzinfo=timezone.utc) - WESTERNMOST
    except (ValueError, OverflowError):
        return False
    return -1000 <= file.begin_timestamp - int(named.timestamp() * 1000) <= _SLACK_MS


@dataclass(frozen=True)
class Geometry:
    """Hash slots and units that an index file has room for; neither is stored in it."""

    slots: int
    units: int


def index_paths(store: Store) -> list[Path]:
    """Paths of the index files in name order; names that are no number are skipped, as the broker does."""
    entries = list_directory(store.root / INDEX)
    return [entry_path(entry) for entry in entries if _NUMERIC_NAME.fullmatch(entry.name) and entry.is_file()]


def list_index_files(store: Store, scope: ReadScope = nullcontext) -> list[IndexFile]:
    """The files of `index_paths` with their headers; each file is read in a `scope`."""
    files: list[IndexFile] = []
    entries: list[DirectoryEntry] = []
    with scope():
        entries = list_directory(store.root / INDEX)
    for entry in entries:
        with scope():
            if _NUMERIC_NAME.fullmatch(entry.name) and entry.is_file():
                files.append(read_header(entry_path(entry)))
    return files


def read_header(path: Path) -> IndexFile:
    """Read one header; fields beyond a short file's end read as 0, for the broker extends it with zeros."""
    with InputFile(path) as file:
        fields = np.frombuffer(file.read(0, HEADER_SIZE).ljust(HEADER_SIZE, b"\0"), HEADER_DTYPE)[0]
        return IndexFile(path, file.size, *(int(fields[name]) for name in HEADER_DTYPE.names or ()))


def geometry_of(index_file: IndexFile, configured: tuple[int, int] | None = None) -> Geometry:
    """The geometry that hashes and chains prove: as configured, the default, or derived from the end of the units.

    Raises UnsupportedError when none fits; then broker.conf must give it.
    """
    with InputFile(index_file.path) as file:
        keys = index_file.keys
        for _ in range(_TRIES):
            for guess in _guesses(file, keys, configured):
                if _fits(file, keys, guess.slots):
                    return guess
            counted = read_header(index_file.path).keys
            if counted == keys:
                break
            keys = counted
    raise UnsupportedError(
        "the file does not show its number of hash slots",
        file=index_file.path,
        hint="give --broker-conf with maxHashSlotNum and maxIndexNum",
    )


def geometry_or_none(index_file: IndexFile, configured: tuple[int, int] | None = None) -> Geometry | None:
    """The geometry of an index file as `geometry_of` finds it; None when none fits."""
    with suppress(UnsupportedError):
        return geometry_of(index_file, configured)
    return None


def geometries_by_size(size: int, configured: tuple[int, int] | None) -> Iterator[Geometry]:
    """The configured and the default geometry, where they give the file's size; units are not checked."""
    for slots, units in filter(None, (configured, (DEFAULT_SLOTS, DEFAULT_UNITS))):
        if file_size(slots, units) == size:
            yield Geometry(slots, units)


def stored_offset(path: Path, geometry: Geometry, number: int) -> int | None:
    """The physical offset in one unit of an index file; None when it cannot be read."""
    with skip_unreadable(), InputFile(path) as file:
        units = decode_units(file.read(unit_position(geometry.slots, number), UNIT_SIZE))
        return int(units["physical_offset"][0]) if len(units) else None
    return None


def _guesses(file: InputFile, keys: int, configured: tuple[int, int] | None) -> Iterator[Geometry]:
    """Geometries that give the file's size: as configured, the default, and those that fit the end of the units.

    Without a key no unit can prove a guess, and only the first two are tried.
    """
    yield from geometries_by_size(file.size, configured)
    end = file.data_end() if keys else 0
    # The last byte that is not zero is in the newest unit, or in one that the header does not count yet.
    max_slots = (end - file_size(0, keys) - 1) // _SLOT_SIZE
    for slots in range(max_slots, max_slots - 2 * UNIT_SIZE // _SLOT_SIZE, -1):
        units, rest = divmod(file.size - file_size(slots, 0), UNIT_SIZE)
        if slots > 0 and rest == 0:
            yield Geometry(slots, units)


def _fits(file: InputFile, keys: int, slots: int) -> bool:
    """Whether the newest units stand where slots and hashes of this geometry say, and link only to older ones."""
    first = max(1, keys - _PROBED_UNITS + 1)
    data = file.read(unit_position(slots, first), (keys + 1 - first) * UNIT_SIZE)
    units = decode_units(data)
    unit_indexes = np.arange(first, keys + 1)
    if len(units) != len(unit_indexes) or (units["key_hash"] < 0).any() or (units["previous"] < 0).any():
        return False
    if (units["previous"] >= unit_indexes).any():
        return False
    newest_by_slot = dict(zip((units["key_hash"] % slots).tolist(), unit_indexes.tolist(), strict=True))
    return all(_leads_to(file, slots, slot, unit_index, keys) for slot, unit_index in newest_by_slot.items())


def _leads_to(file: InputFile, slots: int, slot: int, unit_index: int, keys: int) -> bool:
    """Whether the newest of `keys` units in a slot is unit `unit_index`; a broker may have put more meanwhile."""
    newest = _slot(file, slot)
    for _ in range(_MAX_NEWER_UNITS):
        if newest <= keys:
            break
        units = decode_units(file.read(unit_position(slots, newest), UNIT_SIZE))
        if not len(units) or units["key_hash"][0] % slots != slot:
            return False
        newest = int(units["previous"][0])
    return newest == unit_index


def _slot(file: InputFile, slot: int) -> int:
    return int.from_bytes(file.read(slot_position(slot), _SLOT_SIZE), "big", signed=True)
