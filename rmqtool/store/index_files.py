"""Index files: their paths, headers and geometry (`IndexService`, `IndexFile`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np

from rmqtool.base.errors import EndingError, RmqtoolError, UnsupportedError
from rmqtool.base.files import InputFile, list_directory
from rmqtool.base.paths import DirectoryEntry, entry_path
from rmqtool.base.tolerant import ReadScope, skip_unreadable
from rmqtool.formats.index_file import (
    DEFAULT_SLOTS,
    DEFAULT_UNITS,
    HEADER_DTYPE,
    HEADER_SIZE,
    SLOT_DTYPE,
    UNIT_DTYPE,
    UNIT_SIZE,
    file_size,
    key_hash,
    slot_position,
    unit_position,
)
from rmqtool.formats.layout import decode_units
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
        units = decode_units(UNIT_DTYPE, file.read(unit_position(geometry.slots, number), UNIT_SIZE))
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
    units = decode_units(UNIT_DTYPE, data)
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
        units = decode_units(UNIT_DTYPE, file.read(unit_position(slots, newest), UNIT_SIZE))
        if not len(units) or units["key_hash"][0] % slots != slot:
            return False
        newest = int(units["previous"][0])
    return newest == unit_index


def _slot(file: InputFile, slot: int) -> int:
    return int.from_bytes(file.read(slot_position(slot), _SLOT_SIZE), "big", signed=True)


MAX_MATCHES = 64
"""Index units that a broker collects for one query (`maxMsgsNumBatch`)."""

FOREVER = (1 << 63) - 1
"""An end of a time window that leaves nothing out, epoch ms."""

MAX_CHAIN_LENGTH = 100_000
"""Units of a chain that are read; it has four in a full file of default size."""

_ATTEMPTS = 8  # to catch an index file between two puts of a running broker
_WINDOW = 4096  # units of a long chain are read together with their neighbours, for the next link is mostly near


@dataclass(frozen=True)
class IndexUnit:
    """Unit `unit_index` (from 1) of an index file; `timestamp` is its store time, to the second, epoch ms."""

    file: Path
    unit_index: int
    slot: int
    key_hash: int
    physical_offset: int
    seconds_since_begin: int
    previous: int
    timestamp: int


class Index:
    """The index files of a store; a problem with a file is kept in `problems`, and the others are searched.

    `configured` are the hash slots and units that broker.conf gives; `live` says that a broker writes meanwhile.
    """

    def __init__(self, paths: Sequence[Path], configured: tuple[int, int] | None = None, *, live: bool = False) -> None:
        self.paths = paths
        self.problems: dict[Path, str] = {}
        self._configured = configured
        self._live = live
        self._geometries: dict[Path, Geometry | None] = {}

    @cached_property
    def files(self) -> list[IndexFile]:
        """The files whose headers can be read, oldest first."""
        files: list[IndexFile] = []
        for path in self.paths:
            with self._noting(path):
                files.append(read_header(path))
        return files

    @contextmanager
    def _noting(self, path: Path) -> Iterator[None]:
        """Keep an error as the problem of a file."""
        try:
            yield
        except EndingError:
            raise
        except RmqtoolError as error:
            self.problems[path] = error.message

    def query(self, topic: str, key: str, limit: int, begin: int = 0, end: int = FOREVER) -> list[IndexUnit]:
        """At most `limit` units with the hash of `key`, whose time is from `begin` to `end`, both included, epoch ms.

        Files newest first, each chain newest first, as the broker collects them.
        """
        return self.query_topics([topic], key, limit, begin, end)

    def query_topics(
        self, topics: Iterable[str], key: str, limit: int, begin: int = 0, end: int = FOREVER
    ) -> list[IndexUnit]:
        """The units that `query` finds in each of several topics, topic by topic; each file is opened once."""
        units_by_topic: dict[str, list[IndexUnit]] = {topic: [] for topic in topics}
        hashes = {topic: key_hash(topic, key) for topic in units_by_topic}
        for file in reversed(self.files):
            if is_time_matched(file, begin, end):
                with self._reading(file) as read:
                    for topic, units in units_by_topic.items():
                        found = self._select(file, read(hashes[topic]), hashes[topic], begin, end)
                        units.extend(islice(found, limit - len(units)))
            if file.begin_timestamp < begin:
                break
        return [unit for units in units_by_topic.values() for unit in units]

    def chain(self, file: IndexFile, stored_hash: int) -> Iterator[IndexUnit]:
        """All units of the slot that a hash falls into, newest first, whatever their hashes.

        A link leads to an older unit, or the chain has ended: one that leads elsewhere is a problem, and the end.
        """
        with self._reading(file) as read:
            yield from read(stored_hash)

    def has(self, stored_hash: int, physical_offset: int) -> bool:
        """Whether a key with a hash leads to a physical offset."""
        for file in self.files:
            if file.begin_physical_offset <= physical_offset <= file.end_physical_offset:
                units = islice(self.chain(file, stored_hash), MAX_CHAIN_LENGTH)
                if any((unit.key_hash, unit.physical_offset) == (stored_hash, physical_offset) for unit in units):
                    return True
        return False

    @contextmanager
    def _reading(self, file: IndexFile) -> Iterator[Callable[[int], Iterable[IndexUnit]]]:
        """A file open for reading, as a function from a hash to its chain; an error is a problem of the file."""
        geometry, opened = self.geometry(file), None
        with self._noting(file.path):
            opened = InputFile(file.path) if geometry else None
        if geometry is None or opened is None:
            yield lambda _: ()
            return
        with self._noting(file.path), opened:
            slots = geometry.slots
            yield lambda stored_hash: _Chain(opened, file, geometry, stored_hash % slots, self.problems)

    def geometry(self, file: IndexFile) -> Geometry | None:
        """Slots and units of a file; None when they cannot be derived or the file has no unit."""
        if file.path not in self._geometries:
            self._geometries[file.path] = self._find_geometry(file)
        return self._geometries[file.path]

    def _find_geometry(self, file: IndexFile) -> Geometry | None:
        if file.keys == 0:
            return None
        proven: list[Geometry] = []
        with self._noting(file.path):
            proven.append(self._proven(file))
        if not proven:
            return self._unproven(file)
        self._configured = self._configured or (proven[0].slots, proven[0].units)
        return proven[0]

    def _proven(self, file: IndexFile) -> Geometry:
        """The geometry that the newest units prove; the header is read again while a broker adds units."""
        for _ in range(_ATTEMPTS if self._live else 0):
            with suppress(UnsupportedError):
                return geometry_of(file, self._configured)
            file = read_header(file.path)
        return geometry_of(file, self._configured)

    def _unproven(self, file: IndexFile) -> Geometry | None:
        """A geometry that gives the file's size though its newest units do not prove it, perhaps because of damage."""
        geometry = next(geometries_by_size(file.size, self._configured), None)
        if geometry is None:
            return None
        if self._live:
            self.problems.pop(file.path)  # more likely the broker was faster
        else:
            self.problems[file.path] = "its newest entries are not where its hash slots lead"
        return geometry

    def _select(
        self, file: IndexFile, units: Iterable[IndexUnit], stored_hash: int, begin: int, end: int
    ) -> Iterator[IndexUnit]:
        for unit in units:
            if unit.seconds_since_begin < 0:
                self.problems[file.path] = f"entry {unit.unit_index} has a time before the file's begin"
                return
            if unit.key_hash == stored_hash and begin <= unit.timestamp <= end:
                yield unit
            if unit.timestamp < begin:
                return


def open_index(store: Store, *, live: bool = False) -> Index:
    """The index of a store; empty when there is no index file."""
    return Index(index_paths(store), store.conf.index_geometry, live=live)


def is_time_matched(file: IndexFile, begin: int, end: int) -> bool:
    """Whether a query from `begin` to `end` reads a file (`IndexFile#isTimeMatched`)."""
    return (
        (begin < file.begin_timestamp and end > file.end_timestamp)
        or file.begin_timestamp <= begin <= file.end_timestamp
        or file.begin_timestamp <= end <= file.end_timestamp
    )


class _Chain:
    """The units of one slot, read in windows that grow while links are short."""

    def __init__(
        self, opened: InputFile, file: IndexFile, geometry: Geometry, slot: int, problems: dict[Path, str]
    ) -> None:
        self._opened, self._file, self._geometry, self._slot = opened, file, geometry, slot
        self._problems = problems
        self._first = 0  # number of the window's first unit
        self._window: list[tuple[int, int, int, int]] = []

    def __iter__(self) -> Iterator[IndexUnit]:
        unit_index, before = _slot(self._opened, self._slot), FOREVER
        if unit_index > self._file.index_count:
            self._file = read_header(self._file.path)  # a broker that runs may have put it since
        while unit_index != 0:
            fields = self._unit(unit_index, before) if 0 < unit_index <= max(self._file.index_count, 1) else None
            if fields is None or unit_index >= before:
                self._problems[self._file.path] = self._problem(unit_index, before)
                return
            stored_hash, physical_offset, seconds, previous = fields
            timestamp = self._file.begin_timestamp + 1000 * seconds
            yield IndexUnit(
                self._file.path, unit_index, self._slot, stored_hash, physical_offset, seconds, previous, timestamp
            )
            unit_index, before = previous, unit_index

    def _problem(self, unit_index: int, before: int) -> str:
        """The problem with a link to unit `unit_index` from unit `before`, or from the slot."""
        where = f"hash slot {self._slot}" if before == FOREVER else f"entry {before}"
        if unit_index == before:
            return f"{where} points to itself"
        if before < unit_index <= self._file.keys:
            return f"{where} points to entry {unit_index}, which is newer: the chain never ends"
        return f"{where} points to entry {unit_index}, but entries 1 to {self._file.keys} are there"

    def _unit(self, unit_index: int, before: int) -> tuple[int, int, int, int] | None:
        if not self._first <= unit_index < self._first + len(self._window):
            self._fill(unit_index, wide=before - unit_index < _WINDOW)
        window_index = unit_index - self._first
        return self._window[window_index] if 0 <= window_index < len(self._window) else None

    def _fill(self, unit_index: int, *, wide: bool) -> None:
        # The first window is one unit: most chains are short and their units far from each other.
        count = min(_WINDOW, unit_index) if wide and self._window else 1
        self._first = unit_index + 1 - count
        data = self._opened.read(unit_position(self._geometry.slots, self._first), count * UNIT_SIZE)
        self._window = decode_units(UNIT_DTYPE, data).tolist()
