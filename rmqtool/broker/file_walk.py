"""The broker's walk through one commit log file, from its first byte to where it stops.

How the broker reads a file does not depend on the files before it: with one result for each file, the end of any
recovery scan is known. The walk is fed with the events of a scan: a caller who scans anyway reads nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatcher import Dispatcher
from rmqtool.broker.record_parser import NOTHING_WRITTEN, parse_at
from rmqtool.formats.message import HOST_BITS, MAGIC_CODE_V2
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.scan.block import BLOCK_SIZE, Block, Positions
from rmqtool.scan.chain import chain
from rmqtool.scan.crcs import wrong_bodies
from rmqtool.scan.events import Blank
from rmqtool.scan.frames import RecordRun, sound_prefix
from rmqtool.scan.reader import Event

Outcome = Literal["next", "end", "out-of-memory", "open"]
"""How a walk ends: it goes on in the next file, it stops, the heap is too small, or only a piece was walked so far."""
NO_ROWS = np.empty(0, dtype=np.intp)
_FIRST_PIECE = 16 << 10  # bytes


@dataclass(frozen=True)
class FileWalk:
    """The result of the walk through one file, from its first byte.

    `end` is the position after the last record that the broker accepts; `readable` counts the file's sound messages
    with the right CRC, `readable_behind` those from `end` on where the walk ends, `broker_only_records` records that
    only the broker takes for records; `data_end` is the position after the last record or damage. Positions are in the
    file, bytes. A file may be walked through in pieces: then this is one that begins at position `start`.
    """

    mapped: MappedFile
    outcome: Outcome
    end: int
    why: str
    records: int
    broker_only_records: int
    readable: int
    readable_behind: int
    data_end: int
    start: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether it covers the walk from the file's first byte to its end."""
        return self.start == 0 and self.outcome != "open"

    @property
    def is_undamaged(self) -> bool:
        """Whether every broker that can read its records goes through the whole file in the same way."""
        ends_well = self.outcome == "next" or self.why == NOTHING_WRITTEN
        return self.is_whole and ends_well and not self.broker_only_records and not self.readable_behind

    def joined(self, later: FileWalk) -> FileWalk | None:
        """The walk through two pieces that follow each other; None when the later one began where this did not end."""
        data_end, readable = max(self.data_end, later.data_end), self.readable + later.readable
        if self.outcome == "open":
            if later.start != self.end:
                return None
            return replace(
                later,
                start=self.start,
                records=self.records + later.records,
                broker_only_records=self.broker_only_records + later.broker_only_records,
                readable=readable,
                data_end=data_end,
            )
        if later.broker_only_records:
            return None  # what the broker does not reach is only what the scan has found
        behind = self.readable_behind + (0 if self.outcome == "next" else later.readable)
        return replace(self, readable=readable, readable_behind=behind, data_end=data_end)


class FileWalker:
    """Walks through one file: `feed` it the file's events in order, then `finish`.

    `on_frames` gets the runs of records that the broker accepts, and True when they store another physical offset than
    their own; `on_record` gets position and size of single records that only the broker takes for sound. The walk goes
    from position `start` to `limit`, by default through the whole file.
    """

    def __init__(
        self,
        file: InputFile,
        mapped: MappedFile,
        rules: RecoveryRules,
        *,
        start: int = 0,
        limit: int | None = None,
        on_frames: Callable[[RecordRun, bool], None] | None = None,
        on_record: Callable[[int, int], None] | None = None,
    ) -> None:
        self._file = file
        self._mapped = mapped
        self._rules = rules
        self._start = start
        self._limit = mapped.size if limit is None else limit
        self._on_frames = on_frames
        self._on_record = on_record
        self._dispatcher = Dispatcher(DispatchRules(rules.version))
        self._position = start
        self._outcome: Outcome | None = None
        self._why = ""
        self._records = self._broker_only_records = self._readable = self._readable_behind = self._data_end = 0

    @property
    def is_over(self) -> bool:
        """Whether the walk has ended; events that are fed from now on are only counted."""
        return self._outcome is not None

    def feed(self, event: Event, suspects: Positions = NO_ROWS) -> None:
        """Take the next event of the file; `suspects` are rows of frames whose CRC or properties may not pass."""
        start = event.physical_offset - self._mapped.start_offset
        stop = start + event.size
        if not isinstance(event, Blank):
            self._data_end = max(self._data_end, stop)
        if start > self._position:
            self._step(start)
        if isinstance(event, RecordRun):
            self._walk_run(event, self._with_unreadable(event, suspects), start, stop)
        else:
            self._step(stop)

    def finish(self) -> FileWalk:
        """The result; bytes without events are walked through too."""
        self._step(self._limit)
        if self._outcome is None and self._position < self._limit:
            self._walk_record()
        return self._walk(self._outcome or "end", self._why or "the file is full and has no blank")

    def leave(self) -> FileWalk:
        """The result where the piece of the file that was fed has ended, and the walk perhaps has not."""
        return self._walk(self._outcome or "open", self._why)

    def _walk(self, outcome: Outcome, why: str) -> FileWalk:
        return FileWalk(
            self._mapped,
            outcome,
            self._position,
            why,
            self._records,
            self._broker_only_records,
            self._readable,
            self._readable_behind,
            self._data_end,
            self._start,
        )

    def _walk_run(self, frames: RecordRun, suspects: Positions, start: int, stop: int) -> None:
        positions = frames.positions - frames.positions[0] + start
        sound = np.ones(len(frames), dtype=np.bool_)
        sound[suspects] = False
        self._readable += int(sound.sum())
        while not self.is_over and self._position < min(stop, self._limit):
            first = int(np.searchsorted(positions, self._position))
            if first == len(positions) or positions[first] != self._position:
                self._walk_record()  # the broker stands inside a record
                continue
            stops = suspects[suspects >= first]
            last = int(stops[0]) if len(stops) else len(frames)
            last = min(last, int(np.searchsorted(positions, self._limit)))
            if last > first:
                self._accept(frames[first:last], int(positions[last]) if last < len(frames) else stop)
            elif self._position < self._limit:
                self._walk_record()
        if self._outcome in ("end", "out-of-memory"):
            self._readable_behind += int(sound[positions >= self._position].sum())

    def _accept(self, frames: RecordRun, stop: int) -> None:
        self._records += len(frames)
        self._position = stop
        if self._on_frames:
            self._on_frames(frames, False)

    def _step(self, until: int) -> None:
        """Walk to position `until` as the broker does, record by record."""
        while not self.is_over and self._position < min(until, self._limit):
            self._walk_record()

    def _walk_record(self) -> None:
        parsed = parse_at(self._file, self._position, self._rules, check_crc=self._rules.check_crc)
        if parsed.is_record:
            shift = parsed.physical_offset - (self._mapped.start_offset + self._position)
            if self._on_record:
                self._on_record(self._position, parsed.size)
            self._advance(1, parsed.size, broker_only_records=shift != 0)
            if shift:
                self._walk_shifted(shift)
        elif parsed.is_blank:
            self._outcome = "next"
        else:
            self._outcome = "out-of-memory" if parsed.out_of_memory else "end"
            self._why = parsed.why

    def _walk_shifted(self, shift: int) -> None:
        """Accept the next records that are off by as much as the last one: usually all of a file from another log."""
        size = _FIRST_PIECE
        while self._position < self._limit:
            length = min(size, self._limit - self._position)
            block = Block(length)
            block.fill(self._file, self._position, length, self._mapped.start_offset + self._position + shift)
            positions = chain(block, 0)
            frames = sound_prefix(block, positions) if len(positions) else None
            if not frames:
                return
            suspects = self._with_unreadable(
                frames, suspects_of(frames, self._dispatcher, check_crc=self._rules.check_crc)
            )
            if len(suspects):
                frames = frames[: int(suspects[0])]
            if not len(frames):
                return
            if self._on_frames:
                self._on_frames(frames, True)
            self._advance(len(frames), frames.size, broker_only_records=True)
            size = min(8 * size, BLOCK_SIZE)

    def _advance(self, records: int, size: int, *, broker_only_records: bool) -> None:
        self._records += records
        self._broker_only_records += records if broker_only_records else 0
        self._position += size
        self._data_end = max(self._data_end, self._position)

    def _with_unreadable(self, frames: RecordRun, suspects: Positions) -> Positions:
        """`suspects` and the rows that this version cannot read."""
        unknown = np.zeros(len(frames), dtype=np.bool_)
        if not self._rules.knows_second_format:
            unknown |= frames.headers.field("magic_code") == MAGIC_CODE_V2
        if not self._rules.knows_ipv6:
            unknown |= (frames.headers.field("sys_flag") & HOST_BITS) != 0
        if not unknown.any():
            return suspects
        unknown[suspects] = True
        return np.flatnonzero(unknown)


def suspects_of(frames: RecordRun, dispatcher: Dispatcher, *, check_crc: bool = True) -> Positions:
    """Rows whose body has another CRC, or whose properties a broker may not be able to read."""
    malformed = dispatcher.dispatch(frames).malformed_rows
    if not check_crc:
        return malformed
    wrong = wrong_bodies(frames)
    wrong[malformed] = True
    return np.flatnonzero(wrong)
