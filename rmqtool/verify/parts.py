"""The parts of a verification, which depend on the store alone: any number of processes gives the same result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rmqtool.base.mapped_files import MappedFile
from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.store.splits import PART_SIZE
from rmqtool.verify.index_sequence import FileUnits, IndexUnits
from rmqtool.verify.read_errors import INDEX_UNREAD, UnreadFiles


@dataclass(frozen=True)
class LogPart:
    """The records that begin at physical offsets from `start` to before `stop`, and the numbers of their index units.

    While a broker writes, parts are not compared with each other: the units of each end at `index_stop`.
    """

    start: int
    stop: int
    index_start: int = 0
    index_stop: int | None = None


@dataclass(frozen=True)
class IndexPart:
    """Index files from index `first` to before `stop`."""

    first: int
    stop: int


AnyPart = LogPart | IndexPart


def with_index(parts: Sequence[tuple[int, int]], units: IndexUnits, read_errors: UnreadFiles) -> list[LogPart]:
    """Parts of the log that meet and cover all of it, each with the number of its first index unit."""
    firsts = [INDEX_UNREAD] * len(parts)
    with read_errors.scope():
        firsts = [0, *(units.first_from(start) for start, _ in parts[1:])]
    return [LogPart(start, stop, first) for (start, stop), first in zip(parts, firsts, strict=True)]


def live_parts(files: Sequence[MappedFile], units: IndexUnits, *, is_whole: bool) -> list[LogPart]:
    """One part, or one for each file: a growing log has no other fixed borders."""
    starts = [file.start_offset for file in files] if not is_whole and len(files) > 1 else [0]
    firsts = [0, *(units.first_from(start) for start in starts[1:]), units.total]
    ends = [*starts[1:], MAX_OFFSET]
    return [
        LogPart(start, end, first, max(first, stop))
        for start, end, first, stop in zip(starts, ends, firsts[:-1], firsts[1:], strict=True)
    ]


def index_parts(files: Sequence[FileUnits], least: int = PART_SIZE) -> list[IndexPart]:
    """The parts of the index: small files are checked together."""
    parts: list[IndexPart] = []
    first = size = 0
    for stop, file in enumerate(files, 1):
        size += file.file.size
        if size >= least or stop == len(files):
            parts.append(IndexPart(first, stop))
            first, size = stop, 0
    return parts


def order_of(parts: Sequence[AnyPart]) -> list[int]:
    """The order in which the parts are begun, by their indices.

    Index files go before the log: one can be the longest part of all, and the other processes would wait for it. The
    log's parts are begun in their order, so that few results wait to be merged.
    """
    return sorted(range(len(parts)), key=lambda number: isinstance(parts[number], LogPart))


def order_of_one_process(parts: Sequence[AnyPart], files: Sequence[FileUnits], numbers: Sequence[int]) -> list[int]:
    """The order in which one process does the parts with these indices.

    Index files come after the parts of the log that read their units, which are not read again then.
    """

    def place(number: int) -> tuple[int, bool]:
        part = parts[number]
        if isinstance(part, LogPart):
            return number, True
        end = files[part.stop - 1].start + files[part.stop - 1].units
        return sum(isinstance(each, LogPart) and each.index_start < end for each in parts), False

    return sorted(numbers, key=place)
