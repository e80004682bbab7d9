"""One of the two stores: its log's files and range, and what of it could not be read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.mapped_files import MappedFile
from rmqtool.store.commit_log import data_end, log_range, written_end
from rmqtool.store.snapshot import Snapshot

Name = Literal["a", "b"]
SIDES: tuple[Name, Name] = ("a", "b")

_PAGE = 4096  # bytes; the sizes that are set for log files are multiples of it


@dataclass(frozen=True)
class Side:
    """A store and the range of its log, whose end is behind the last whole record; bytes.

    `data_end` is behind the last byte that is not zero. `unread` collects errors, and more than one step adds to it.
    """

    name: Name
    snapshot: Snapshot
    files: tuple[MappedFile, ...]
    start: int
    end: int
    data_end: int
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
    files, reading = snapshot.log.files, snapshot.reading
    start = files[0].start_offset if files else 0
    if snapshot.holder is not None:
        end = written_end(files, reading=reading) if files else start
        return Side(name, snapshot, files, start, end, end)
    end = log_range(files, reading=reading).max_offset if files else start
    return Side(name, snapshot, files, start, end, max(end, data_end(files, reading)))
