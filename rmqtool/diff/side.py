"""One of the two stores: its log's files and range, and what of it could not be read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.mapped_files import MappedFile
from rmqtool.store.commit_log import data_end, log_range, written_end
from rmqtool.store.dledger_node import Entry, committed_index, entry_of
from rmqtool.store.missing import missing_log
from rmqtool.store.snapshot import Snapshot

Name = Literal["a", "b"]
SIDES: tuple[Name, Name] = ("a", "b")

_PAGE = 4096  # bytes; the sizes that are set for log files are multiples of it


@dataclass(frozen=True)
class Node:
    """A node of a DLedger group: its name, its last entry, and up to which Raft index its checkpoint says committed."""

    name: str
    last: Entry | None
    committed: int | None

    @property
    def uncommitted(self) -> int:
        """Entries after the committed one; 0 where the checkpoint does not say."""
        return 0 if self.last is None or self.committed is None else max(0, self.last.index - self.committed)


@dataclass(frozen=True)
class Side:
    """A store and the range of its log, whose end is past the last whole record; bytes.

    `data_end` is past the last byte that is not zero. `unread` collects errors, and more than one step adds to it.
    """

    name: Name
    snapshot: Snapshot
    files: tuple[MappedFile, ...]
    start: int
    end: int
    data_end: int
    node: Node | None = None
    unread: list[RmqtoolError] = field(default_factory=list)

    @property
    def cut_files(self) -> list[MappedFile]:
        """The files of a size that no broker gives them."""
        size = max((file.size for file in self.files), default=0)
        is_odd = len(self.files) == 1 and bool(size % _PAGE)
        return [file for file in self.files if is_odd or file.size != size]

    @property
    def is_empty(self) -> bool:
        """Whether the log holds no record."""
        return self.end <= self.start


def side_of(name: Name, snapshot: Snapshot) -> Side:
    """Measure the log as it is now; of a running broker's only what is whole. Raises UnreadableError."""
    missing = missing_log(snapshot)
    unread: list[RmqtoolError] = [missing] if missing else []
    files, reading = snapshot.log.files, snapshot.reading
    start = files[0].start_offset if files else 0
    node = _node_of(snapshot)
    if snapshot.holder is not None:
        end = written_end(files, reading=reading) if files else start
        return Side(name, snapshot, files, start, end, end, node, unread)
    end = log_range(files, reading=reading).max_offset if files else start
    return Side(name, snapshot, files, start, end, max(end, data_end(files, reading)), node, unread)


def _node_of(snapshot: Snapshot) -> Node | None:
    directory = snapshot.store.dledger_directory
    if directory is None:
        return None
    last = log_range(snapshot.log.files, reading=snapshot.reading).last_record_offset
    entry = entry_of(snapshot.log.files, last) if last is not None else None
    return Node(directory.name, entry, committed_index(directory))
