"""The broker's walks through the log: where the scan of a start begins, each file, and where it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np

from rmqtool.base.files import UNLIMITED, InputFile, ReadPolicy
from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatcher import Dispatcher
from rmqtool.broker.record_parser import NOTHING_WRITTEN, parse_at
from rmqtool.formats import message
from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.formats.layout import integer_at
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.scan.block import BLOCK_SIZE, Blank, Block, Positions, chain
from rmqtool.scan.frames import RecordRun, sound_prefix
from rmqtool.scan.reader import Event, scan_files

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
        counts = self._records, self._broker_only_records, self._readable, self._readable_behind
        return FileWalk(self._mapped, outcome, self._position, why, *counts, self._data_end, self._start)

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
            unknown |= frames.headers.field("magic_code") == message.MAGIC_CODE_V2
        if not self._rules.knows_ipv6:
            unknown |= (frames.headers.field("sys_flag") & message.HOST_BITS) != 0
        if not unknown.any():
            return suspects
        unknown[suspects] = True
        return np.flatnonzero(unknown)


def suspects_of(frames: RecordRun, dispatcher: Dispatcher, *, check_crc: bool = True) -> Positions:
    """Rows whose body has another CRC, or whose properties a broker may not be able to read."""
    malformed = dispatcher.dispatch(frames).malformed_rows
    if not check_crc:
        return malformed
    wrong = frames.wrong_bodies.copy()
    wrong[malformed] = True
    return np.flatnonzero(wrong)


class LogWalker:
    """The walks through the files of a log, from the events of one scan over all of them.

    `feed` it all events in order; `finish` returns the walks of the files in which an event began. Files of zeros have
    no event, and where files overlap an event does not show its file: these are walked when they are asked for. A scan
    from physical offset `start` to `stop` inside a file gives pieces of walks, which `join_walks` joins.
    """

    def __init__(
        self, files: Sequence[MappedFile], rules: RecoveryRules, start: int = 0, stop: int = MAX_OFFSET
    ) -> None:
        overlap = any(before.end_offset > after.start_offset for before, after in pairwise(files))
        self._files = iter(() if overlap else files)
        self._rules = rules
        self._start = start
        self._stop = stop
        self._mapped: MappedFile | None = None
        self._open: InputFile | None = None
        self._walker: FileWalker | None = None
        self._walks: list[FileWalk] = []

    def feed(self, event: Event, suspects: Positions = NO_ROWS) -> None:
        """Take the next event of the scan; `suspects` as of `suspects_of`."""
        while self._mapped is None or event.physical_offset >= self._mapped.end_offset:
            self._finish_file()
            self._mapped = next(self._files, None)
            if self._mapped is None:
                return
        if event.physical_offset < self._mapped.start_offset or self._mapped.size == 0:
            return  # the event lies in no file
        if self._walker is None:
            self._open = InputFile(self._mapped.path)
            base = self._mapped.start_offset
            begin = event.physical_offset - base if base < self._start else 0
            self._walker = FileWalker(self._open, self._mapped, self._rules, start=begin)
        self._walker.feed(event, suspects)

    def leave_out(self, physical_offset: int) -> None:
        """Drop the walk of the file that holds this offset, which cannot be read: it is walked when it is asked for."""
        if self._mapped is not None and self._mapped.holds(physical_offset):
            if self._open is not None:
                self._open.close()
            self._walker = self._open = None

    def finish(self) -> list[FileWalk]:
        """The walks, once all events are fed."""
        self._finish_file()
        return self._walks

    def _finish_file(self) -> None:
        if self._walker is not None and self._open is not None and self._mapped is not None:
            goes_on = self._stop < self._mapped.end_offset
            self._walks.append(self._walker.leave() if goes_on else self._walker.finish())
            self._open.close()
        self._walker = self._open = None


def join_walks(walks: list[FileWalk], later: Sequence[FileWalk]) -> None:
    """Add the walks through a later part of the log, which may begin inside the file of the last walk.

    Pieces that do not meet are kept apart, and their file is walked when it is asked for.
    """
    rest = list(later)
    if walks and rest and walks[-1].mapped == rest[0].mapped:
        whole = walks[-1].joined(rest[0])
        if whole is not None:
            walks[-1] = whole
            rest = rest[1:]
    walks.extend(rest)


def walk_file(mapped: MappedFile, rules: RecoveryRules, reading: ReadPolicy = UNLIMITED) -> FileWalk:
    """Scan one file, and walk through it."""
    dispatcher = Dispatcher(DispatchRules(rules.version))
    with InputFile(mapped.path, reading) as file:
        walker = FileWalker(file, mapped, rules)
        for event in scan_files([mapped], reading=reading):
            walker.feed(event, suspects_of(event, dispatcher) if isinstance(event, RecordRun) else NO_ROWS)
        return walker.finish()


class LogWalks:
    """The walks through all files of a log: those that are known, and the others when they are asked for."""

    def __init__(self, rules: RecoveryRules, known: Iterable[FileWalk] = (), reading: ReadPolicy = UNLIMITED) -> None:
        self._rules = rules
        self._reading = reading
        self._walks = {walk.mapped.path: walk for walk in known if walk.is_whole}

    def of(self, mapped: MappedFile) -> FileWalk:
        """The walk through one file."""
        walk = self._walks.get(mapped.path)
        if walk is None:
            walk = self._walks[mapped.path] = walk_file(mapped, self._rules, self._reading)
        return walk

    def undamaged(self) -> list[FileWalk]:
        """The walks so far that are the same to every release."""
        return [walk for walk in self._walks.values() if walk.is_undamaged]


NO_FILE_FOLLOWS = "no file follows"
"""Why a log ends with a file that leads on to another one."""


@dataclass(frozen=True)
class LogEnd:
    """Where a recovery scan ends the log: index of the file, physical offset, and the reason."""

    file_number: int
    offset: int
    why: str
    out_of_memory: bool = False

    @property
    def refusal(self) -> str:
        """Why a broker whose heap is too small does not start."""
        return f"OutOfMemoryError, unless the heap has that much in one piece: at offset {self.offset} {self.why}"


def end_of(files: Sequence[MappedFile], first: int, walks: LogWalks) -> LogEnd:
    """The end of a scan that begins in file `first`: the walks are followed from file to file."""
    for file_number in range(first, len(files)):
        walk = walks.of(files[file_number])
        if walk.outcome == "next" and file_number + 1 < len(files):
            continue
        why = NO_FILE_FOLLOWS if walk.outcome == "next" else walk.why
        return LogEnd(file_number, files[file_number].start_offset + walk.end, why, walk.outcome == "out-of-memory")
    raise ValueError("a log without files has no end")


def readable_behind(files: Sequence[MappedFile], end: LogEnd, walks: LogWalks) -> int:
    """Readable messages from the end on, in the file where the log ends and in all later ones."""
    walk = walks.of(files[end.file_number])
    return walk.readable_behind + sum(walks.of(mapped).readable for mapped in files[end.file_number + 1 :])


Checkpoint = Mapping[str, int]

NORMAL_FILES = 3  # before 5.3.2 a clean start scans the last three
_MARGIN = 3000  # StoreCheckpoint#getMinTimestamp, ms


EndsAt = Callable[[MappedFile], bool]
"""Whether a search that goes back file by file ends at one."""


def normal_start(
    files: Sequence[MappedFile], max_physical: int, checkpoint: Checkpoint, rules: RecoveryRules, extra: EndsAt | None
) -> int:
    """Index of the file where a clean start begins to scan; `max_physical` is that of all consume queues.

    `extra` says where else something must be found, where the queues need not go beyond a file.
    """
    if not rules.dispatches_when_clean:
        return max(0, len(files) - NORMAL_FILES)

    def has_units(file: MappedFile) -> bool:
        if rules.tries_first_records:
            return _has_units(file, max_physical, checkpoint, rules)
        return file.start_offset <= max_physical

    return _last_ending(files, rules, has_units, extra)


def abnormal_start(
    files: Sequence[MappedFile], checkpoint: Checkpoint, rules: RecoveryRules, dispatched_end: int | None,
    extra: EndsAt | None,
) -> int:  # fmt: skip
    """Index of the file where a start after a crash begins to scan; `extra` as above.

    With queues in RocksDB `dispatched_end`, which stands in their database, decides instead of the checkpoint.
    """

    def is_old_enough(file: MappedFile) -> bool:
        if dispatched_end is None:
            return _is_old_enough(file, checkpoint, rules)
        return _has_units(file, dispatched_end, checkpoint, rules)

    return _last_ending(files, rules, is_old_enough, extra)


def _last_ending(files: Sequence[MappedFile], rules: RecoveryRules, ends_at: EndsAt, extra: EndsAt | None) -> int:
    """Index of the newest file at which both searches end, or of the last one that is looked at."""
    for read, file_number in enumerate(range(len(files) - 1, 0, -1), 1):
        file = files[file_number]
        if ends_at(file) and (extra is None or extra(file)):
            return file_number
        if rules.limits_recovered_files and read >= rules.recovered_files:
            return file_number
    return 0


def _has_units(mapped: MappedFile, max_physical: int, checkpoint: Checkpoint, rules: RecoveryRules) -> bool:
    """Whether the file's first record is sound and not after the queues."""
    with InputFile(mapped.path) as file:
        first = parse_at(file, 0, rules, check_crc=rules.check_crc)
    if not first.is_record or first.store_timestamp == 0:
        return False
    if rules.index_safe and first.store_timestamp > checkpoint["index_message_timestamp"]:
        return False
    return first.physical_offset <= max_physical


def _is_old_enough(mapped: MappedFile, checkpoint: Checkpoint, rules: RecoveryRules) -> bool:
    """`isMappedFileMatchedRecover`: whether all units of the file's first record were on disk at the checkpoint."""
    with InputFile(mapped.path) as file:
        if rules.tries_first_records:
            first = parse_at(file, 0, rules, check_crc=rules.check_crc)
            timestamp = first.store_timestamp if first.is_record else 0
            offset = first.physical_offset
        else:
            timestamp, offset = _first_timestamp(file, rules), 0
    if timestamp == 0:
        return False
    if rules.tries_first_records and rules.index_safe and timestamp > checkpoint["index_message_timestamp"]:
        return False
    if rules.starts_by_logics_offset:
        logics = checkpoint["logics_physical_offset"]
        return offset <= logics if logics > 0 else timestamp <= checkpoint["logics_message_timestamp"]
    return timestamp <= _limit(checkpoint, rules)


def _first_timestamp(file: InputFile, rules: RecoveryRules) -> int:
    """Store timestamp of the first record, of which only the magic code is checked; 0 without one."""
    head = file.read(0, message.MAX_HEADER_SIZE)
    magic_code = integer_at(message.PREFIX_DTYPE, "magic_code", head)
    if magic_code != message.MAGIC_CODE_V1 and not (magic_code == message.MAGIC_CODE_V2 and rules.knows_second_format):
        return 0
    bits = integer_at(message.PREFIX_DTYPE, "sys_flag", head) & message.BORN_HOST_V6 if rules.knows_ipv6 else 0
    return integer_at(message.HEADER_DTYPES[bits], "store_timestamp", head)


def _limit(checkpoint: Checkpoint, rules: RecoveryRules) -> int:
    times = checkpoint["physic_message_timestamp"], checkpoint["logics_message_timestamp"]
    limit = max(0, min(times) - _MARGIN)
    if rules.index_safe and not rules.tries_first_records:
        limit = min(limit, checkpoint["index_message_timestamp"])
    return limit
