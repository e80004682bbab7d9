"""Files that cannot be read: each is reported once, and the others are verified."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from rmqtool.base.errors import UnreadableError
from rmqtool.base.files import ReadPolicy, unreadable
from rmqtool.base.mapped_files import MappedFile
from rmqtool.base.paths import path_of
from rmqtool.base.tolerant import is_wrong_type
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding
from rmqtool.scan.reader import MANY_RECORDS, Event, scan_files
from rmqtool.store.commit_log import written_end
from rmqtool.store.rocksdb import DamagedDatabaseError
from rmqtool.store.store import CONSUME_QUEUE, INDEX, SEPARATE_ROCKSDB_QUEUES, Store

INDEX_UNREAD = -1
"""Stands for the number of an index unit when the index could not be read."""


@dataclass
class UnreadFiles:
    """The read errors by file, and the queues that were not read completely, of which no findings are reported."""

    errors: dict[str, UnreadableError] = field(default_factory=dict)
    queues: set[QueueName] = field(default_factory=set)
    partly: set[str] = field(default_factory=set)  # files of which a check did without what it could not read

    def note(self, error: UnreadableError) -> None:
        """Keep the first error of each file."""
        self.errors.setdefault(error.file or "", error)

    def note_unreported(self, failed: Iterable[UnreadableError], reported: Container[str]) -> bool:
        """Keep errors that no check has reported, but for those of the files `reported` elsewhere; whether any is new.

        A check that can do without some bytes hides that a disk fails, and may have found less than there is.
        """
        known = len(self.errors)
        for error in failed:
            file = error.file or ""
            if file not in self.errors and file not in reported:
                self.partly.add(file)
                self.note(error)
        return len(self.errors) > known

    def scope(self) -> AbstractContextManager[None]:
        """Read a piece of the store, which ends at an error; `check_file_types` reports files of a wrong type."""
        return _Scope(self)

    def queue(self, name: QueueName) -> AbstractContextManager[None]:
        """Read a queue, of which no findings are reported after an error."""
        return _Scope(self, name)

    def extend(self, later: UnreadFiles) -> None:
        """Add the errors of another part of the verification."""
        for error in later.errors.values():
            self.note(error)
        self.queues |= later.queues
        self.partly |= later.partly

    def any_in(self, store: Store, *directories: str) -> bool:
        """Whether a file or directory at or below one of these gave an error."""
        names = [store.relative(path_of(file)) for file in self.errors if file]
        return any(f"{name}/".startswith(f"{directory}/") for name in names for directory in directories)

    def index_in(self, store: Store) -> bool:
        """Whether the index was not read completely."""
        return self.any_in(store, INDEX)

    def files(self, reported: Container[str] = ()) -> list[str]:
        """The files but for those `reported` elsewhere."""
        return sorted(file for file in self.errors if file not in reported)

    def findings(self, store: Store, reported: Container[str] = ()) -> list[Finding]:
        """One for each file but for those `reported` elsewhere."""
        return [self._finding(store, self.errors[file]) for file in self.files(reported)]

    def _finding(self, store: Store, error: UnreadableError) -> Finding:
        file = store.relative(path_of(error.file)) if error.file else None
        if isinstance(error, DamagedDatabaseError) and file in (CONSUME_QUEUE, SEPARATE_ROCKSDB_QUEUES):
            names = [f"{name.topic} {name.queue_id}" for name in sorted(self.queues)]
            details = {"why": error.message, "queues": names}
            return finding("consumequeue.database", store=store.root, file=file, details=details)
        facts = {"problem": "partly" if error.file in self.partly else "", "why": error.message, "hint": error.hint}
        return finding("store.unreadable", store=store.root, file=file, offset=error.offset, details=facts)


class _Scope(AbstractContextManager[None]):
    """Notes an error in `unread`, with the queue that was read; a class, for it is entered for each of many queues."""

    __slots__ = ("_name", "_unread")

    def __init__(self, unread: UnreadFiles, name: QueueName | None = None) -> None:
        self._unread = unread
        self._name = name

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if isinstance(error, OSError) and error.filename is not None:
            named = unreadable(path_of(error.filename), None, error)
            named.__cause__ = error
            error = named
            if not isinstance(error, UnreadableError):
                raise error
        if error is None or is_wrong_type(error):
            return error is not None
        if not isinstance(error, UnreadableError):
            return False
        self._unread.note(error)
        if self._name is not None:
            self._unread.queues.add(self._name)
        return True


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
