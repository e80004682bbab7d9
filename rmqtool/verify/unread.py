"""Files that give an error instead of their bytes: each is named once, and what can be read is verified."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rmqtool.catalogue import finding
from rmqtool.dispatch.units import QueueName
from rmqtool.errors import UnreadableError
from rmqtool.files import Reading, unreadable
from rmqtool.findings import Finding
from rmqtool.mapped_files import MappedFile
from rmqtool.scan.events import Damage
from rmqtool.scan.reader import Event, scan_files
from rmqtool.store import INDEX, Store
from rmqtool.verify.kinds import kinds_told

REASON = "unreadable"
"""Why nothing is known of an extent of the log."""


INDEX_UNREAD = -1
"""In the place of an index unit's number: the index gave an error."""


@dataclass(frozen=True)
class UnreadExtent:
    """Bytes of the commit log that gave an error; nothing is known of them."""

    physical_offset: int
    size: int


@dataclass
class Unread:
    """The errors by file, and the queues of which not all was read: nothing is said of these."""

    errors: dict[str, UnreadableError] = field(default_factory=dict)
    queues: set[QueueName] = field(default_factory=set)

    def note(self, error: UnreadableError) -> None:
        """Keep the first error of each file; raise it where nothing is wrong with the file, but with who reads it."""
        if isinstance(error.__cause__, PermissionError):
            raise error
        self.errors.setdefault(error.file or "", error)

    @contextmanager
    def part(self) -> Iterator[None]:
        """Read a part of the store: its error ends the part; what is of another kind `check_kinds` reports."""
        try:
            with kinds_told(), _named():
                yield
        except UnreadableError as error:
            self.note(error)

    @contextmanager
    def queue(self, name: QueueName) -> Iterator[None]:
        """Read a queue, of which nothing is said any more once it gives an error."""
        try:
            with kinds_told(), _named():
                yield
        except UnreadableError as error:
            self.note(error)
            self.queues.add(name)

    def extend(self, later: Unread) -> None:
        """Add what another part of the verification could not read."""
        for error in later.errors.values():
            self.note(error)
        self.queues |= later.queues

    def any_in(self, store: Store, *directories: str) -> bool:
        """Whether a file or directory at or below one of these gave an error."""
        names = [store.relative(Path(file)) for file in self.errors if file]
        return any(f"{name}/".startswith(f"{directory}/") for name in names for directory in directories)

    def index_in(self, store: Store) -> bool:
        """Whether not all of the index was read."""
        return self.any_in(store, INDEX)

    def findings(self, store: Store) -> list[Finding]:
        """One for each file."""
        return [_finding(store, error) for _, error in sorted(self.errors.items())]


def _finding(store: Store, error: UnreadableError) -> Finding:
    hint = f" ({error.hint})" if error.hint else ""
    file = store.relative(Path(error.file)) if error.file else None
    message = f"{error.message}: nothing of it is verified{hint}"
    return finding("store.unreadable", message, store=str(store.root), file=file, offset=error.offset)


@contextmanager
def _named() -> Iterator[None]:
    """Errors of the system that name a file are about what is read."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            raise
        raise unreadable(Path(error.filename), None, error) from error


def scan_readable(
    files: Sequence[MappedFile], start: int, stop: int, reading: Reading, unread: Unread
) -> Iterator[Event | UnreadExtent]:
    """As `scan_files`; a file that gives an error is left where it does, and the scan goes on with the next."""
    left, broken, at = list(files), list[MappedFile](), start
    while True:
        try:
            for event in scan_files(left, at, stop, reading):
                yield _known(event, broken)
                at = event.physical_offset + event.size
            break
        except UnreadableError as error:
            file = next((file for file in left if str(file.path) == error.file), None)
            if file is None:
                raise
            unread.note(error)
            left.remove(file)
            broken.append(file)
        if file.start_offset <= at < file.end_offset:
            end = min(file.end_offset, stop)
            yield UnreadExtent(at, end - at)
            at = end
    for file in broken:
        if at <= file.start_offset < stop:
            yield UnreadExtent(file.start_offset, min(file.end_offset, stop) - file.start_offset)


def _known(event: Event, broken: Sequence[MappedFile]) -> Event | UnreadExtent:
    """A file that was left out is no missing one."""
    is_hole = isinstance(event, Damage) and event.reason == "missing"
    if is_hole and any(file.start_offset == event.physical_offset for file in broken):
        return UnreadExtent(event.physical_offset, event.size)
    return event
