"""Looking a key up in the index files (`IndexService#queryOffset`, `IndexFile#selectPhyOffset`).

The broker compares hashes only: a unit that it finds for a key may be of another key with the same hash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

from rmqtool.base.errors import EndingError, RmqtoolError, UnsupportedError
from rmqtool.base.files import InputFile
from rmqtool.formats.index_file import (
    SLOT_DTYPE,
    UNIT_SIZE,
    decode_units,
    key_hash,
    slot_position,
    unit_position,
)
from rmqtool.store.index_files import Geometry, IndexFile, geometries_by_size, geometry_of, index_paths, read_header
from rmqtool.store.store import Store

MAX_MATCHES = 64
"""Index units that a broker collects for one query (`maxMsgsNumBatch`)."""

FOREVER = (1 << 63) - 1
"""An end of a time window that leaves nothing out, epoch ms."""

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
        return [file for file in map(self._header, self.paths) if file is not None]

    def _header(self, path: Path) -> IndexFile | None:
        try:
            return read_header(path)
        except EndingError:
            raise
        except RmqtoolError as error:
            self.problems[path] = error.message
            return None

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
                self._collect(file, units_by_topic, hashes, limit, (begin, end))
            if file.begin_timestamp < begin:
                break
        return [unit for units in units_by_topic.values() for unit in units]

    def _collect(
        self,
        file: IndexFile,
        units_by_topic: dict[str, list[IndexUnit]],
        hashes: dict[str, int],
        limit: int,
        window: tuple[int, int],
    ) -> None:
        with self._reading(file) as read:
            for topic, units in units_by_topic.items():
                wanted = limit - len(units)
                if wanted > 0:
                    units.extend(islice(self._select(file, read(hashes[topic]), hashes[topic], window), wanted))

    def chain(self, file: IndexFile, stored_hash: int) -> Iterator[IndexUnit]:
        """All units of the slot that a hash falls into, newest first, whatever their hashes.

        A link leads to an older unit, or the chain has ended: one that leads elsewhere is a problem, and the end.
        """
        with self._reading(file) as read:
            yield from read(stored_hash)

    @contextmanager
    def _reading(self, file: IndexFile) -> Iterator[Callable[[int], Iterable[IndexUnit]]]:
        """A file open for reading, as a function from a hash to its chain; an error is a problem of the file."""
        geometry = self.geometry(file)
        opened = None if geometry is None else self._opened(file)
        if geometry is None or opened is None:
            yield lambda _: ()
            return
        try:
            with opened:
                slots = geometry.slots
                yield lambda stored_hash: _Chain(opened, file, geometry, stored_hash % slots, self.problems)
        except EndingError:
            raise
        except RmqtoolError as error:
            self.problems[file.path] = error.message

    def _opened(self, file: IndexFile) -> InputFile | None:
        try:
            return InputFile(file.path)
        except EndingError:
            raise
        except RmqtoolError as error:
            self.problems[file.path] = error.message
            return None

    def geometry(self, file: IndexFile) -> Geometry | None:
        """Slots and units of a file; None when they cannot be derived or the file has no unit."""
        if file.path not in self._geometries:
            self._geometries[file.path] = self._find_geometry(file)
        return self._geometries[file.path]

    def _find_geometry(self, file: IndexFile) -> Geometry | None:
        if file.keys == 0:
            return None
        try:
            geometry = self._proven(file)
        except EndingError:
            raise
        except RmqtoolError as error:
            self.problems[file.path] = error.message
            return self._unproven(file)
        self._configured = self._configured or (geometry.slots, geometry.units)
        return geometry

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
            self.problems[file.path] = "its newest units are not where its hash slots lead"
        return geometry

    def _select(
        self, file: IndexFile, units: Iterable[IndexUnit], stored_hash: int, window: tuple[int, int]
    ) -> Iterator[IndexUnit]:
        begin, end = window
        for unit in units:
            if unit.seconds_since_begin < 0:
                self.problems[file.path] = f"unit {unit.unit_index} has a time before the file's begin"
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
        unit_index, before = self._newest(), FOREVER
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

    def _newest(self) -> int:
        size = SLOT_DTYPE.itemsize
        data = self._opened.read(slot_position(self._slot), size)
        return int.from_bytes(data, "big", signed=True)

    def _problem(self, unit_index: int, before: int) -> str:
        """The problem with a link to unit `unit_index` from unit `before`, or from the slot."""
        where = f"hash slot {self._slot}" if before == FOREVER else f"unit {before}"
        if unit_index == before:
            return f"{where} leads to itself"
        if before < unit_index <= self._file.keys:
            return f"{where} leads to unit {unit_index}, which is newer: the chain never ends"
        return f"{where} leads to unit {unit_index}, but units 1 to {self._file.keys} are there"

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
        self._window = decode_units(data).tolist()
