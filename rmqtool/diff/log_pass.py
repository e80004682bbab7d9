"""One pass over two logs: what differs, where they part, and how much of each is behind that place.

Each byte is read once. From the first difference on a `Walk` scans the records of each log while the bytes are
compared, for where the logs have parted all that follows is to be counted; where they agree again, that is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.errors import UnreadableError
from rmqtool.base.files import InputFile, OpenFiles, ReadPolicy, RecentFile, RecentReads
from rmqtool.base.mapped_files import MappedFile, file_at
from rmqtool.base.paths import Place as FilePlace
from rmqtool.diff.records import (
    MAX_EXTENTS,
    MAX_IN_EXTENT,
    SIDES,
    Difference,
    Name,
    Parting,
    Place,
    Side,
    Tail,
    Tally,
    place_in,
)
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import LONGEST_BLANK, Event, scan_files

_NO_OFFSETS = np.empty(0, np.int64)


class Walk:
    """A scan from `start` to the end of a log, event by event, as far as is asked for; offsets asked for ascend.

    Files that cannot be read are passed over, and noted. `recent` is shared with who reads the same bytes.
    """

    def __init__(self, side: Side, start: int, recent: RecentReads | None = None) -> None:
        self._side = side
        self._open = partial(RecentFile, recent=recent or RecentReads())
        self._events = self._scan(max(start, side.start))
        self._event: Event | None = next(self._events, None)
        self._tallies: list[Tally] = []
        self._passed: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []  # offsets and ends of records

    @staticmethod
    def around(side: Side, offset: int, recent: RecentReads) -> Walk:
        """A walk that begins early enough to find the record or blank that covers an offset."""
        return Walk(side, offset - LONGEST_BLANK, recent)

    @property
    def is_counting(self) -> bool:
        """Whether there is a tally."""
        return bool(self._tallies)

    def place_at(self, offset: int) -> Place:
        """What covers an offset; nothing where neither a record, a blank nor damage does."""
        self.pass_to(offset + 1)
        return Place("nothing", offset) if self._event is None else place_in(self._side, self._event, offset)

    def pass_to(self, offset: int) -> None:
        """Go on to the event that reaches to an offset, or beyond it."""
        while self._event is not None and self._event.physical_offset + self._event.size < offset:
            self._step()

    def finish(self, progress: Callable[[int], None] | None = None) -> None:
        """Go on to the end of the log; `progress` gets the physical offset up to which it is done."""
        while self._event is not None:
            if progress:
                progress(self._event.physical_offset + self._event.size)
            self._passed.clear()
            self._step()

    def count(self, tally: Tally) -> None:
        """Let a tally count from here on; where it begins must not have been passed."""
        self._tallies.append(tally)
        if isinstance(self._event, RecordRun):
            tally.add(self._event)

    def count_no_more(self, tally: Tally) -> None:
        """Let a tally go."""
        self._tallies.remove(tally)

    def forget_before(self, offset: int) -> None:
        """Records that end before an offset are not asked for again."""
        self._passed = [(offsets, ends) for offsets, ends in self._passed if ends[-1] > offset]

    def records_between(self, start: int, end: int) -> NDArray[np.int64]:
        """Where whole records begin from `start` to before `end`, of those not forgotten."""
        current = [_extents_of(self._event)] if isinstance(self._event, RecordRun) else []
        found = [offsets[(offsets >= start) & (ends <= end)] for offsets, ends in (*self._passed, *current)]
        return np.concatenate([_NO_OFFSETS, *found])

    def _step(self) -> None:
        if isinstance(self._event, RecordRun):
            self._passed.append(_extents_of(self._event))
        self._event = next(self._events, None)
        if isinstance(self._event, RecordRun):
            for tally in self._tallies:
                tally.add(self._event)

    def _scan(self, start: int | None) -> Iterator[Event]:
        while start is not None:
            behind: list[int] = []
            yield from self._scan_readable(start, behind)
            start = max(behind, default=None)

    def _scan_readable(self, start: int, behind: list[int]) -> Iterator[Event]:
        """Scan up to a file that cannot be read; where that one ends goes to `behind`."""
        side = self._side
        try:
            yield from scan_files(side.files, start, side.end, side.snapshot.reading, open_file=self._open)
        except UnreadableError as error:
            side.unread.append(error)
            behind += [each.end_offset for each in side.files if str(each.path) == error.file]


def _extents_of(run: RecordRun) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the records of a run begin and end; kept when its block is filled again."""
    return run.physical_offsets, run.physical_offsets + run.message_sizes


_BLOCK_SIZE = 4 << 20
_PAGE_SIZE = 4 << 10

NEAR = 64 << 10
"""Differing bytes no farther apart than this are one extent."""

Progress = Callable[[int], None]
"""Called with the number of bytes of each log that are compared."""


@dataclass(frozen=True)
class DifferingExtent:
    """Physical offsets of the first differing byte, after the last one, and of all of them."""

    start: int
    end: int
    offsets: NDArray[np.int64]

    def next(self, offset: int) -> int | None:
        """The first differing byte from an offset on."""
        row = int(np.searchsorted(self.offsets, offset))
        return int(self.offsets[row]) if row < len(self.offsets) else None


def samples(a: Side, b: Side, start: int, end: int) -> list[tuple[int, int]]:
    """The first page of each file from `start` to before `end`, and the last page before it."""
    begins = {start, *(file.start_offset for side in (a, b) for file in side.files if start < file.start_offset < end)}
    begins.add(max(start, end - _PAGE_SIZE))
    return [(begin, min(begin + _PAGE_SIZE, end)) for begin in sorted(begins)]


class _RecentFiles(OpenFiles):
    """Open files of one log; others read the same bytes after and ahead of them."""

    def __init__(self, reading: ReadPolicy, recent: RecentReads) -> None:
        super().__init__(reading)
        self._recent = recent

    def opened(self, path: FilePlace, listed: int = 0) -> InputFile:  # noqa: ARG002 - these are read as far as they go
        """A file, opened."""
        return RecentFile(path, self._reading, self._recent)


class LogPair:
    """Reads the same range of both logs, each in a thread of its own: two disks are read at once.

    What was read last of each log is in `recent`, for those who look at its records.
    """

    def __init__(self, a: Side, b: Side, recent: Sequence[RecentReads]) -> None:
        self._sides = (a, b)
        self._open = tuple(
            _RecentFiles(side.snapshot.reading, reads) for side, reads in zip(self._sides, recent, strict=True)
        )
        self._buffers = tuple(np.zeros(_BLOCK_SIZE, np.uint8) for _ in self._sides)
        self._pool = ThreadPoolExecutor(1)
        self._unreadable: set[MappedFile] = set()

    def close(self) -> None:
        """Close all files."""
        self._pool.shutdown()
        for files in self._open:
            files.close()

    def blocks(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Ranges that lie within one file of each log, or in a gap of it, and are not too large for memory."""
        borders = {
            offset for side in self._sides for file in side.files for offset in (file.start_offset, file.end_offset)
        }
        cuts = [start, *sorted(border for border in borders if start < border < end), end]
        for low, high in pairwise(cuts):
            held = [file_at(side.files, low) for side in self._sides]
            if held == [None, None] or self._unreadable.intersection(held):
                continue
            if None in held:  # a file that is missing differs as a whole
                yield low, high
                continue
            for position in range(low, high, _BLOCK_SIZE):
                yield position, min(position + _BLOCK_SIZE, high)

    def differing(self, low: int, high: int) -> list[DifferingExtent] | None:
        """The extents of one block that differ; None where one of the two cannot be read."""
        files = [file_at(side.files, low) for side in self._sides]
        if self._unreadable.intersection(files):
            return None
        first, second = files
        if first is None or second is None:
            return [DifferingExtent(low, high, np.array([low]))]
        other = self._pool.submit(self._read, 1, second, low, high)
        data, other_data = self._read(0, first, low, high), other.result()
        if data is None or other_data is None:
            return None
        if np.array_equal(data.view(np.uint64), other_data.view(np.uint64)):
            return []
        offsets = np.flatnonzero(data != other_data) + low
        parts = np.split(offsets, np.flatnonzero(np.diff(offsets) > NEAR) + 1)
        return [DifferingExtent(int(part[0]), int(part[-1]) + 1, part) for part in parts]

    def _read(self, number: int, mapped: MappedFile, low: int, high: int) -> NDArray[Any] | None:
        """The bytes of one log, with zeros up to a whole word; None where they cannot be read."""
        size = high - low
        data = self._buffers[number][: -(-size // 8) * 8]
        try:
            file = self._open[number].get(mapped.path)
            done = file.read_into(data.data[:size], low - mapped.start_offset)
        except UnreadableError as error:
            self._sides[number].unread.append(error)
            self._unreadable.add(mapped)
            return None
        data[done:] = 0
        return data


@dataclass(frozen=True)
class DiffRequest:
    """What is asked for; with `fast` offsets, epochs and a page of each file only.

    `only` is the side whose own messages are listed, `limit` how many of each kind are listed.
    """

    fast: bool = False
    only: Name | None = None
    limit: int = 20


@dataclass(frozen=True)
class LogComparison:
    """What one pass has found; `tails` are of what only one log has after the common messages, `cuts` as asked for."""

    parting: Parting = field(default_factory=Parting)
    tails: dict[Name, Tail] = field(default_factory=dict)
    listed: list[dict[str, Any]] = field(default_factory=list)
    cuts: dict[Name, Tail] = field(default_factory=dict)


def compare_logs(a: Side, b: Side, request: DiffRequest, cuts: Mapping[Name, int], progress: Progress) -> LogComparison:
    """Compare the common range of two logs, and count what is behind it, and after an offset that `cuts` name.

    Logs of one broker agree byte by byte up to where they part, and never again. Where they do agree again, one of
    them was changed afterwards; that shows only where all bytes were compared. What cannot be read is noted.
    """
    with ThreadPoolExecutor(1) as pool:
        return _Pass(a, b, request, cuts, progress, pool).compare()


class _Pass:
    """The state of a pass; offsets are physical ones, and the same in both logs up to where they part."""

    def __init__(
        self,
        a: Side,
        b: Side,
        request: DiffRequest,
        cuts: Mapping[Name, int],
        progress: Progress,
        pool: ThreadPoolExecutor,
    ) -> None:
        self._sides: dict[Name, Side] = {"a": a, "b": b}
        self._request = request
        self._progress = progress
        self._pool = pool
        self._start, self._end = max(a.start, b.start), min(a.end, b.end)
        self._recent: dict[Name, RecentReads] = {name: RecentReads() for name in SIDES}
        self._walks: dict[Name, Walk] = {}
        self._waiting_cuts = dict(cuts)
        self._cuts: dict[Name, Tally] = {}
        self._tallies: dict[Name, Tally] = {}
        self._found: list[Difference] = []
        self._diverged: Difference | None = None
        self._extents = 0
        self._in_extent = 0  # differences of the last extent
        self._extent_end = self._start  # after the last byte that differs
        self._behind = 0  # the records there are seen
        self._same_from = 0  # up to where the comparison has come all bytes are the same

    def compare(self) -> LogComparison:
        """Do it."""
        a, b = self._sides["a"], self._sides["b"]
        ranges = [(self._start, self._end)] if self._start < self._end else []
        if ranges and self._request.fast:
            ranges = samples(a, b, self._start, self._end)
        with closing(LogPair(a, b, [*self._recent.values()])) as pair:
            for start, end in ranges:
                for low, high in pair.blocks(start, end):
                    self._compare_block(pair, low, high)
                    self._progress(high - self._start)
                if self._request.fast:
                    self._walks.clear()
        if not self._request.fast and self._start < self._end:
            self._check_agreement(self._end)
        self._count_rest()
        tails = {name: tally.tail for name, tally in self._tallies.items()}
        only = self._request.only
        listed = self._tallies[only].listed if only in self._tallies else []
        found = tuple(self._found)
        if self._diverged and self._diverged not in found:
            found = (*found, self._diverged)
        parting = Parting(found, self._extents if found else 0, self._diverged)
        return LogComparison(parting, tails, listed, {name: each.tail for name, each in self._cuts.items()})

    def _compare_block(self, pair: LogPair, low: int, high: int) -> None:
        if not self._request.fast:
            self._begin_cuts(low, high)
        extents = pair.differing(low, high)
        for extent in extents or ():
            self._see(extent)
        if extents is None:
            self._same_from = high
        if self._request.fast or not self._walks:
            return
        self._pass_to(high)
        if self._in_extent < MAX_IN_EXTENT or high - self._extent_end > NEAR:
            self._check_agreement(high)
        for walk in self._walks.values():
            walk.forget_before(self._same_from)

    def _see(self, extent: DifferingExtent) -> None:
        """Look at the records where bytes differ, but for those of an extent of which enough were seen."""
        if not self._extents or extent.start - self._extent_end > NEAR:
            self._extents += 1
            self._in_extent = 0
        offset = extent.next(self._behind)
        is_enough = self._request.fast and self._extents > MAX_EXTENTS
        while offset is not None and self._in_extent < MAX_IN_EXTENT and not is_enough:
            self._look_at(offset)
            offset = extent.next(self._behind)
        self._extent_end = extent.end
        self._same_from = max(self._same_from, extent.end)

    def _look_at(self, offset: int) -> None:
        for name in SIDES:
            self._walk_from(name, offset)
        difference = Difference(offset, self._walks["a"].place_at(offset), self._walks["b"].place_at(offset))
        self._behind = max(difference.a.end, difference.b.end, offset + 1)
        if not difference.is_filler:
            self._in_extent += 1
            if not self._request.fast:
                self._check_agreement(difference.start)
            if self._diverged is None and not difference.damaged:
                self._part_at(difference)
            if len(self._found) < MAX_EXTENTS * MAX_IN_EXTENT:
                self._found.append(difference)
        self._same_from = max(self._same_from, self._behind)

    def _part_at(self, difference: Difference) -> None:
        """Take it that the logs part here, and count what follows."""
        self._diverged = difference
        if not self._request.fast and difference.start > self._start:
            for name in SIDES:
                self._count(name, difference.start)

    def _check_agreement(self, end: int) -> None:
        """Where the same record was seen in both since the last difference, they have not parted."""
        if self._diverged is not None:
            first, second = (self._walks[name].records_between(self._same_from, end) for name in SIDES)
            if not np.intersect1d(first, second).size:
                return
            self._diverged = None
            while self._tallies:
                name, tally = self._tallies.popitem()
                self._walks[name].count_no_more(tally)
        if self._extents <= MAX_EXTENTS and end - self._extent_end > NEAR:  # else they are not made again and again
            self._walks = {name: walk for name, walk in self._walks.items() if walk.is_counting}

    def _begin_cuts(self, start: int, end: int) -> None:
        """Count from the cuts before `end` on; what is from `start` on is looked at, too."""
        for name, cut in [*self._waiting_cuts.items()]:
            if cut < end:
                del self._waiting_cuts[name]
                self._cuts[name] = Tally(self._sides[name], cut)
                self._walk_from(name, min(cut, start)).count(self._cuts[name])

    def _count(self, name: Name, start: int) -> None:
        limit = self._request.limit if name == self._request.only else 0
        self._tallies[name] = Tally(self._sides[name], start, limit)
        self._walk_from(name, start).count(self._tallies[name])

    def _walk_from(self, name: Name, start: int) -> Walk:
        """The walk over one log, begun at an offset where there is none."""
        if name not in self._walks:
            self._walks[name] = Walk.around(self._sides[name], start, self._recent[name])
        return self._walks[name]

    def _count_rest(self) -> None:
        """Count what follows the common range."""
        ends = [side.end for side in self._sides.values()]
        self._begin_cuts(max(ends), max(ends))
        one_is_empty = any(side.is_empty for side in self._sides.values())
        if not self._request.fast and self._diverged is None and (self._start < self._end or one_is_empty):
            for name, side in self._sides.items():
                if side.end > max(self._start, self._end):
                    self._count(name, max(self._start, self._end))
        for walk in self._walks.values():
            if walk.is_counting:
                walk.finish(lambda end: self._progress(max(0, end - self._start)))

    def _pass_to(self, end: int) -> None:
        """Let both walks go on at once."""
        first, *rest = self._walks.values()
        others = [self._pool.submit(walk.pass_to, end) for walk in rest]
        first.pass_to(end)
        for other in others:
            other.result()


def count_from(side: Side, start: int, limit: int = 0) -> Tally:
    """Count the messages of one log from an offset on, in a reading of its own."""
    walk, tally = Walk(side, start), Tally(side, start, limit)
    walk.count(tally)
    walk.finish()
    return tally
