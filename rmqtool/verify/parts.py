"""How a verification is cut into parts: by the store alone, so that any number of processes gives the same result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rmqtool.base.errors import UnreadableError
from rmqtool.base.files import InputFile, ReadPolicy
from rmqtool.base.mapped_files import MappedFile
from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.verify.index_sequence import FileUnits, IndexUnits
from rmqtool.verify.read_errors import INDEX_UNREAD, UnreadFiles

PART_SIZE = 64 << 20
"""Least size of a part, bytes: small, that processes end together, and large against what each begins with."""

_LARGEST = 4  # no part is more than this part of a log, unless all are as small as can be
_MOST_PARTS = 256  # that are as small, in a log; of a larger log all parts are larger
_LOOK = 64 << 10  # bytes behind a border in which there must be something


@dataclass(frozen=True)
class LogPart:
    """What begins at physical offsets from `start` to before `stop`, and where its index units are expected.

    Where a broker writes, parts are not compared with each other: the units of each end at `index_stop`.
    """

    start: int
    stop: int
    index_start: int = 0
    index_stop: int | None = None


@dataclass(frozen=True)
class IndexPart:
    """Index files from number `first` to before `stop`."""

    first: int
    stop: int


AnyPart = LogPart | IndexPart


def log_start_of(files: Sequence[MappedFile]) -> int:
    """Where the log begins, bytes."""
    return files[0].start_offset if files else 0


def log_parts(
    files: Sequence[MappedFile],
    units: IndexUnits,
    reading: ReadPolicy,
    read_errors: UnreadFiles,
    least: int = PART_SIZE,
) -> list[LogPart]:
    """Cut the log into parts that meet and cover all of it; raises UnreadableError."""
    size = sum(file.size for file in files)
    starts = [0, *_borders(files, max(least, size // _MOST_PARTS), reading)]
    firsts = [INDEX_UNREAD] * len(starts)
    with read_errors.part():
        firsts = [0, *(units.first_from(start) for start in starts[1:])]
    ends = [*starts[1:], MAX_OFFSET]
    return [LogPart(start, end, first) for start, end, first in zip(starts, ends, firsts, strict=True)]


def live_parts(files: Sequence[MappedFile], units: IndexUnits, jobs: int) -> list[LogPart]:
    """One part for one process, else one for each file: a log that grows meanwhile has no other borders."""
    starts = [file.start_offset for file in files] if jobs > 1 and len(files) > 1 else [0]
    firsts = [0, *(units.first_from(start) for start in starts[1:]), units.total]
    ends = [*starts[1:], MAX_OFFSET]
    return [
        LogPart(start, end, first, max(first, stop))
        for start, end, first, stop in zip(starts, ends, firsts[:-1], firsts[1:], strict=True)
    ]


def index_parts(parts: Sequence[FileUnits], least: int = PART_SIZE) -> list[IndexPart]:
    """All index files; small ones are taken together."""
    found: list[IndexPart] = []
    first = size = 0
    for number, part in enumerate(parts, 1):
        size += part.file.size
        if size >= least or number == len(parts):
            found.append(IndexPart(first, number))
            first, size = number, 0
    return found


def order_of(parts: Sequence[AnyPart]) -> list[int]:
    """The order in which the parts are begun, by number.

    Index files go before the log: one can be the longest part of all, and begun last it would keep one process busy
    while the others have nothing left to do. The log's parts are begun in their order, so that few wait to be joined.
    """
    return sorted(range(len(parts)), key=lambda number: isinstance(parts[number], LogPart))


def _borders(files: Sequence[MappedFile], least: int, reading: ReadPolicy) -> Iterator[int]:
    """Physical offsets at which the log is cut, ascending: beginnings of files, and others within them."""
    if any(before.end_offset > after.start_offset for before, after in pairwise(files)):
        return  # what begins at an offset is not one thing then
    sizes = _Sizes(files, least)
    last = log_start_of(files)
    for file in files:
        if file.end_offset <= last + sizes.at(last) // 2:
            continue
        try:
            with InputFile(file.path, reading) as opened:
                place = file.start_offset
                while place < file.end_offset:
                    # Where nothing stands the log may have ended: what is to be told of its end, one part must see.
                    if 2 * (place - last) >= sizes.at(last) and _holds_something(opened, place - file.start_offset):
                        last = place
                        yield place
                    left = file.end_offset - place
                    place += -(-left // max(1, round(left / sizes.at(place))))
        except UnreadableError:
            continue  # one part meets what cannot be read


class _Sizes:
    """How large parts are: large at the log's beginning, for each has its costs; at its end processes end together."""

    def __init__(self, files: Sequence[MappedFile], least: int) -> None:
        self._start = log_start_of(files)
        self._end = files[-1].end_offset if files else 0
        self._least = least

    def at(self, offset: int) -> int:
        """Size of a part that begins at a physical offset, bytes."""
        left = self._end - offset
        whole = self._end - self._start
        times = 4 if 2 * left > whole else 2 if 4 * left > whole else 1
        return max(self._least, min(times * self._least, whole // _LARGEST))


def _holds_something(file: InputFile, position: int) -> bool:
    stop = min(position + _LOOK, file.size)
    return file.next_data(position, stop) < stop
