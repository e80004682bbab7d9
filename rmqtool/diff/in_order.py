"""A DLedger log and a plain one: the same messages in the same order, at other physical offsets.

Both are read once, at the same time, and their messages held against each other one by one, without the headers of
entries and without physical offsets. Where the messages differ, the next one that both
have is looked for: until it is found what was read of both stays in memory, 20 bytes for each message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from zlib_ng import zlib_ng

from rmqtool.diff.by_message import mixed
from rmqtool.diff.records import MAX_EXTENTS, SIDES, Difference, Name, Parting, Side, first_place
from rmqtool.formats.layout import position_of
from rmqtool.formats.message import PREFIX_DTYPE
from rmqtool.scan.block import Damage
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files

Progress = Callable[[int], None]

_OFFSET_AT = position_of(PREFIX_DTYPE, "physical_offset")  # in a message, bytes
_OFFSET_END = _OFFSET_AT + 8
_FIRST_WINDOW = 1 << 14  # messages in which the next common one is looked for; doubled until it is found
_ROW_DTYPE = np.dtype([("identity", "u8"), ("physical_offset", "i8"), ("size", "i4")])

Rows = NDArray[np.void]
"""Rows of _ROW_DTYPE, one for each message, in the order of the log."""


@dataclass
class Alignment:
    """How many messages both have in the same order, and where the first begins and the last ends in each log."""

    messages: int = 0
    starts: dict[Name, int] = field(default_factory=dict)
    ends: dict[Name, int] = field(default_factory=dict)
    before: dict[Name, int] = field(default_factory=lambda: {"a": 0, "b": 0})
    """Messages before the first common one: the other log has lost them at its beginning, or never had them."""


def align(a: Side, b: Side, progress: Progress) -> tuple[Alignment, Parting]:
    """Hold the messages of two logs against each other; `progress` gets the bytes of A that are done.

    Raises UnreadableError.
    """
    return _Aligner(_Log(a, progress), _Log(b)).aligned()


class _Log:
    """Messages of one log that are read and not yet compared; `damage` stands after so many messages."""

    def __init__(self, side: Side, progress: Progress | None = None) -> None:
        self.side = side
        self.rows: Rows = np.empty(0, _ROW_DTYPE)
        self.done = 0  # messages that were taken
        self.end = side.start  # of the last message that was taken
        self.damage: deque[int] = deque()
        self.is_over = False
        self._progress = progress
        self._runs = self._read()

    def fill(self, count: int) -> None:
        """Have so many messages, or all that there are."""
        parts, held = [self.rows], len(self.rows)
        while held < count and not self.is_over:
            run = next(self._runs, None)
            self.is_over = run is None
            if run is not None:
                parts.append(run)
                held += len(run)
        if len(parts) > 1:
            self.rows = np.concatenate(parts)

    def take(self, count: int) -> None:
        """Be done with so many messages."""
        if count:
            last = self.rows[count - 1]
            self.end = int(last["physical_offset"] + last["size"])
            self.rows = self.rows[count:]
            self.done += count

    def between(self, row: int, next_row: int) -> tuple[int, int]:
        """Physical offsets after the message before a row, and where a later row begins, or the log ends."""
        before = self.rows[row - 1] if row else None
        start = self.end if before is None else int(before["physical_offset"] + before["size"])
        is_there = next_row < len(self.rows)
        return start, int(self.rows[next_row]["physical_offset"]) if is_there else self.side.end

    def damage_before(self, row: int) -> list[int]:
        """The rows up to this one before which damage stands, which is done with then."""
        rows = []
        while self.damage and self.damage[0] - self.done <= row:
            rows.append(self.damage.popleft() - self.done)
        return rows

    def _read(self) -> Iterator[Rows]:
        count = 0
        for event in scan_files(self.side.files, stop=self.side.end, reading=self.side.snapshot.reading):
            if self._progress:
                self._progress(event.physical_offset + event.size - self.side.start)
            if isinstance(event, Damage) and not event.tail:
                self.damage.append(count)
            if isinstance(event, RecordRun):
                rows = _rows_of(event)
                count += len(rows)
                yield rows


@dataclass
class _Aligner:
    """Two logs, and what was found so far."""

    a: _Log
    b: _Log
    found: Alignment = field(default_factory=Alignment)
    differences: list[Difference] = field(default_factory=list)
    count: int = 0

    def aligned(self) -> tuple[Alignment, Parting]:
        """Go through both."""
        while self._has_both():
            common = self._common_rows()
            if not common and not self._skip_to_common():
                break
            self._take(common)
        both_go_on = len(self.a.rows) and len(self.b.rows) and self.found.messages
        rests = (0, len(self.a.rows)), (0, len(self.b.rows))
        diverged = self._difference(*rests) if both_go_on else None
        differences = [*self.differences, *([diverged] if diverged else [])]
        return self.found, Parting(tuple(differences), self.count + bool(diverged), diverged)

    def _has_both(self) -> bool:
        for log in (self.a, self.b):
            log.fill(1)
        return bool(len(self.a.rows) and len(self.b.rows))

    def _common_rows(self) -> int:
        """How many messages at the head of both are the same."""
        count = min(len(self.a.rows), len(self.b.rows))
        differs = self.a.rows["identity"][:count] != self.b.rows["identity"][:count]
        return int(np.argmax(differs)) if differs.any() else count

    def _take(self, count: int) -> None:
        """Take common messages, with what damage stands between them."""
        if not count:
            return
        behind_damage = {row for log in (self.a, self.b) for row in log.damage_before(count - 1)}
        for row in sorted(behind_damage):
            self._add((row, row), (row, row))
        found = self.found
        for name, log in zip(SIDES, (self.a, self.b), strict=True):
            if not found.messages:
                found.starts[name] = int(log.rows[0]["physical_offset"])
            log.take(count)
            found.ends[name] = log.end
        found.messages += count

    def _skip_to_common(self) -> bool:
        """Skip to the next message that both have; False where there is none."""
        window = _FIRST_WINDOW
        while True:
            for log in (self.a, self.b):
                log.fill(window)
            both, first, second = np.intersect1d(self.a.rows["identity"], self.b.rows["identity"], return_indices=True)
            if len(both):
                nearest = int(np.argmin(first))
                self._skip(int(first[nearest]), int(second[nearest]))
                return True
            if self.a.is_over and self.b.is_over:
                return False
            window *= 2

    def _skip(self, row_a: int, row_b: int) -> None:
        for name, log, row in zip(SIDES, (self.a, self.b), (row_a, row_b), strict=True):
            log.damage_before(row)
            if not self.found.messages:
                self.found.before[name] += row
        if self.found.messages:
            self._add((0, row_a), (0, row_b))
        self.a.take(row_a)
        self.b.take(row_b)

    def _add(self, rows_a: tuple[int, int], rows_b: tuple[int, int]) -> None:
        """Note a difference between two rows of each."""
        self.count += 1
        if len(self.differences) < MAX_EXTENTS:
            self.differences.append(self._difference(rows_a, rows_b))

    def _difference(self, rows_a: tuple[int, int], rows_b: tuple[int, int]) -> Difference:
        a, b = (first_place(log.side, *log.between(*rows)) for log, rows in ((self.a, rows_a), (self.b, rows_b)))
        return Difference(a.offset, a, b, is_moved=True)


def _rows_of(run: RecordRun) -> Rows:
    """The messages of a run."""
    rows = np.empty(len(run), _ROW_DTYPE)
    rows["physical_offset"], rows["size"] = run.physical_offsets, run.message_sizes
    view, crc = run.block.view, zlib_ng.crc32
    ends = (run.positions + run.message_sizes).tolist()
    crcs = [
        crc(view[start + _OFFSET_END : end], crc(view[start : start + _OFFSET_AT]))
        for start, end in zip(run.positions.tolist(), ends, strict=True)
    ]
    identities = np.array(crcs, np.uint64)
    for name in ("queue_offset", "store_timestamp"):
        identities = mixed(identities, run.headers.field(name).astype(np.uint64))
    rows["identity"] = identities
    return rows
