"""The records of one log, scanned as a comparison passes by: what is where, and how much there is from a place on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.errors import UnreadableError
from rmqtool.base.files import RecentFile, RecentReads
from rmqtool.diff.records import Place, Tally, place_in
from rmqtool.diff.side import Side
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
        return Place("nothing", offset) if self._event is None else place_in(self._event, offset)

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
