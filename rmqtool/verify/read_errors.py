"""Files that cannot be read: each is reported once, and the others are verified."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rmqtool.base.errors import UnreadableError
from rmqtool.base.files import unreadable
from rmqtool.base.paths import path_of
from rmqtool.base.tolerant import skip_wrong_type
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding, counted
from rmqtool.store.rocksdb import DamagedDatabaseError
from rmqtool.store.store import CONSUME_QUEUE, INDEX, SEPARATE_ROCKSDB_QUEUES, Store

_MAX_NAMED = 5  # queues
INDEX_UNREAD = -1
"""Stands for the number of an index unit when the index could not be read."""


@dataclass
class UnreadFiles:
    """The read errors by file, and the queues that were not read completely, of which no findings are reported."""

    errors: dict[str, UnreadableError] = field(default_factory=dict)
    queues: set[QueueName] = field(default_factory=set)

    def note(self, error: UnreadableError) -> None:
        """Keep the first error of each file."""
        self.errors.setdefault(error.file or "", error)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Read a piece of the store, which ends at an error; `check_file_types` reports files of a wrong type."""
        try:
            with skip_wrong_type(), _named():
                yield
        except UnreadableError as error:
            self.note(error)

    @contextmanager
    def queue(self, name: QueueName) -> Iterator[None]:
        """Read a queue, of which no findings are reported after an error."""
        try:
            with skip_wrong_type(), _named():
                yield
        except UnreadableError as error:
            self.note(error)
            self.queues.add(name)

    def extend(self, later: UnreadFiles) -> None:
        """Add the errors of another part of the verification."""
        for error in later.errors.values():
            self.note(error)
        self.queues |= later.queues

    def any_in(self, store: Store, *directories: str) -> bool:
        """Whether a file or directory at or below one of these gave an error."""
        names = [store.relative(path_of(file)) for file in self.errors if file]
        return any(f"{name}/".startswith(f"{directory}/") for name in names for directory in directories)

    def index_in(self, store: Store) -> bool:
        """Whether the index was not read completely."""
        return self.any_in(store, INDEX)

    def findings(self, store: Store) -> list[Finding]:
        """One for each file."""
        return [self._finding(store, error) for _, error in sorted(self.errors.items())]

    def _finding(self, store: Store, error: UnreadableError) -> Finding:
        file = store.relative(path_of(error.file)) if error.file else None
        if isinstance(error, DamagedDatabaseError) and file in (CONSUME_QUEUE, SEPARATE_ROCKSDB_QUEUES):
            names = [f"{name.topic} {name.queue_id}" for name in sorted(self.queues)]
            shown = f"{', '.join(names[:_MAX_NAMED])}{' and others' if len(names) > _MAX_NAMED else ''}"
            message = (
                f"{error.message}; {counted(len(names), 'queue')} not compared: {shown}" if names else error.message
            )
            return finding("consumequeue.database", message, store=str(store.root), file=file)
        return _finding(store, error)


def _finding(store: Store, error: UnreadableError) -> Finding:
    hint = f" ({error.hint})" if error.hint else ""
    file = store.relative(path_of(error.file)) if error.file else None
    message = f"{error.message}: nothing of it is verified{hint}"
    return finding("store.unreadable", message, store=str(store.root), file=file, offset=error.offset)


@contextmanager
def _named() -> Iterator[None]:
    """Turn errors of the system that name a file into UnreadableError."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            raise
        raise unreadable(path_of(error.filename), None, error) from error
