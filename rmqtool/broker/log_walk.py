"""The broker's walks through all files of a log, and where a scan from one of them on ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rmqtool.base.files import UNLIMITED, InputFile, ReadPolicy
from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatcher import Dispatcher
from rmqtool.broker.file_walk import NO_ROWS, FileWalk, FileWalker, suspects_of
from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.scan.block import Positions
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import Event, scan_files


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
