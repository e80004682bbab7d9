"""The scan of a log that goes on behind files that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rmqtool.base.errors import UnreadableError
from rmqtool.base.files import ReadPolicy
from rmqtool.base.mapped_files import MappedFile
from rmqtool.scan.reader import MANY_RECORDS, Event, scan_files
from rmqtool.store.commit_log import written_end

_LIVE_SCANS = 2  # the second is of what has been written during the first


@dataclass(frozen=True)
class UnreadExtent:
    """An extent of one commit log file that could not be read, bytes, with the error."""

    physical_offset: int
    size: int
    error: UnreadableError

    @property
    def is_deleted(self) -> bool:
        """Whether the file was deleted, as by a running broker."""
        return isinstance(self.error.__cause__, FileNotFoundError)


def scan_readable(
    files: Sequence[MappedFile], start: int, stop: int, reading: ReadPolicy
) -> Iterator[Event | UnreadExtent]:
    """As `scan_files`; the rest of a file that cannot be read is one extent, and the scan goes on in the next file."""
    while True:
        at = start
        try:
            for event in scan_files(files, start, stop, reading, MANY_RECORDS):
                at = event.physical_offset + event.size
                yield event
            return
        except UnreadableError as error:
            file = _file_of(files, error)
            if file is None or file.end_offset <= at:
                raise
            first, last = max(file.start_offset, at), min(file.end_offset, stop)
            unread = UnreadExtent(first, last - first, error)
        if unread.size > 0:
            yield unread
        start = file.end_offset


def scan_live(end: WrittenEnd, start: int, stop: int) -> Iterator[Event | UnreadExtent]:
    """As `scan_readable` while a broker writes: only up to `end`, as far as records were whole before they are read."""
    at = start
    for _ in range(_LIVE_SCANS):
        readable = min(stop, end.find())
        yield from scan_readable(end.files, at, readable, end.reading)
        at = max(at, readable)
    for file, error in sorted(end.errors, key=lambda each: each[0].start_offset):
        first, last = max(file.start_offset, at), min(file.end_offset, stop)
        if first < last:
            yield UnreadExtent(first, last - first, error)
            at = last


@dataclass
class WrittenEnd:
    """`written_end` of the files of a log that can be read; `errors` are those of the others."""

    files: Sequence[MappedFile]
    reading: ReadPolicy
    errors: list[tuple[MappedFile, UnreadableError]] = field(default_factory=list)
    found: int = 0

    def find(self) -> int:
        """The maximum offset of the readable part of the log; 0 when no file can be read."""
        files, self.errors = list(self.files), []
        while files and (unreadable := self._unreadable(files)) is not None:
            files.remove(unreadable)
        return self.found

    def _unreadable(self, files: Sequence[MappedFile]) -> MappedFile | None:
        """The file for which the end of the log cannot be found; None when it is found."""
        try:
            self.found = written_end(files, reading=self.reading)
        except UnreadableError as error:
            file = _file_of(files, error)
            if file is None:
                raise
            if not isinstance(error.__cause__, FileNotFoundError):
                self.errors.append((file, error))
            return file
        return None


def _file_of(files: Sequence[MappedFile], error: UnreadableError) -> MappedFile | None:
    return next((file for file in files if str(file.path) == error.file), None)
