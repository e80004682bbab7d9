"""Index files: which there are, what their headers say, and their geometry (`IndexService`, `IndexFile`)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rmqtool.base.errors import UnsupportedError
from rmqtool.base.files import InputFile, list_directory
from rmqtool.base.tolerant import ReadScope
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

_NUMBER = re.compile(r"\d+", re.ASCII)
_SLOT_SIZE = SLOT_DTYPE.itemsize
_PROBED_UNITS = 64  # units whose chains must fit before a guess is believed
_MOST_NEWER = 1000  # units in one slot that a broker puts between the header's reading and theirs
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


@dataclass(frozen=True)
class Geometry:
    """Hash slots and units that an index file has room for; neither is stored in it."""

    slots: int
    units: int


def index_paths(store: Store) -> list[Path]:
    """Paths of the index files in name order; names that are no number are skipped, as the broker does."""
    entries = list_directory(store.root / INDEX)
    return [Path(entry.path) for entry in entries if _NUMBER.fullmatch(entry.name) and entry.is_file()]


def list_index_files(store: Store, part: ReadScope = nullcontext) -> list[IndexFile]:
    """The index files in name order; names that are no number are skipped, as the broker does. Each is a `part`."""
    found: list[IndexFile] = []
    entries: list[os.DirEntry[str]] = []
    with part():
        entries = list_directory(store.root / INDEX)
    for entry in entries:
        with part():
            if _NUMBER.fullmatch(entry.name) and entry.is_file():
                found.append(read_header(Path(entry.path)))
    return found


def read_header(path: Path) -> IndexFile:
    """Read one header; what a short file lacks reads as 0, for the broker extends it with zeros."""
    with InputFile(path) as file:
        fields = np.frombuffer(file.read(0, HEADER_SIZE).ljust(HEADER_SIZE, b"\0"), HEADER_DTYPE)[0]
        return IndexFile(path, file.size, *(int(fields[name]) for name in HEADER_DTYPE.names or ()))


def geometry_of(index_file: IndexFile, configured: tuple[int, int] | None = None) -> Geometry:
    """Find the geometry: as configured, the default, or where the units end, when hashes and chains prove it.

    Raises UnsupportedError when nothing fits, which broker.conf would settle.
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
        "the number of hash slots cannot be told from the file",
        file=index_file.path,
        hint="give --broker-conf with maxHashSlotNum and maxIndexNum",
    )


def geometry_or_none(index_file: IndexFile, configured: tuple[int, int] | None = None) -> Geometry | None:
    """The same, None when nothing fits."""
    with suppress(UnsupportedError):
        return geometry_of(index_file, configured)
    return None


def geometries_by_size(size: int, configured: tuple[int, int] | None) -> Iterator[Geometry]:
    """As configured and the default, as far as they give the file's size; units need not prove them."""
    for slots, units in filter(None, (configured, (DEFAULT_SLOTS, DEFAULT_UNITS))):
        if file_size(slots, units) == size:
            yield Geometry(slots, units)


def _guesses(file: InputFile, keys: int, configured: tuple[int, int] | None) -> Iterator[Geometry]:
    """Slots and units that give the file's size: as configured, the default, and what the end of the units tells.

    Without a key there is nothing to prove a guess by, so that the last is left out.
    """
    yield from geometries_by_size(file.size, configured)
    end = file.data_end() if keys else 0
    # The last byte that is not zero is in the newest unit, or in one that the header does not count yet.
    most = (end - file_size(0, keys) - 1) // _SLOT_SIZE
    for slots in range(most, most - 2 * UNIT_SIZE // _SLOT_SIZE, -1):
        units, rest = divmod(file.size - file_size(slots, 0), UNIT_SIZE)
        if slots > 0 and rest == 0:
            yield Geometry(slots, units)


def _fits(file: InputFile, keys: int, slots: int) -> bool:
    """Whether the newest units stand where slots and hashes of this geometry say, and link only to older ones."""
    first = max(1, keys - _PROBED_UNITS + 1)
    data = file.read(unit_position(slots, first), (keys + 1 - first) * UNIT_SIZE)
    units = decode_units(data)
    numbers = np.arange(first, keys + 1)
    if len(units) != len(numbers) or (units["key_hash"] < 0).any() or (units["previous"] < 0).any():
        return False
    if (units["previous"] >= numbers).any():
        return False
    newest_by_slot = dict(zip((units["key_hash"] % slots).tolist(), numbers.tolist(), strict=True))
    return all(_leads_to(file, slots, slot, number, keys) for slot, number in newest_by_slot.items())


def _leads_to(file: InputFile, slots: int, slot: int, number: int, keys: int) -> bool:
    """Whether the newest of `keys` units in a slot is unit `number`; a broker may have put more meanwhile."""
    newest = _slot(file, slot)
    for _ in range(_MOST_NEWER):
        if newest <= keys:
            break
        units = decode_units(file.read(unit_position(slots, newest), UNIT_SIZE))
        if not len(units) or units["key_hash"][0] % slots != slot:
            return False
        newest = int(units["previous"][0])
    return newest == number


def _slot(file: InputFile, slot: int) -> int:
    return int.from_bytes(file.read(slot_position(slot), _SLOT_SIZE), "big", signed=True)
