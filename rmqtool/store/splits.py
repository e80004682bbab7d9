"""Parts of commit logs that can be read apart from each other, and together give every record once.

A border may be any byte. `scan_files` looks for a sound record before a part begins, and reads on after its end what
begins in it. So the parts need only meet, and who cuts is free in where:

* `split_source` cuts each file by itself, into what export and Spark hand to other machines with the few files that a
  scan of it must know; where little is in them, splits of several files are one;
* `log_parts` cuts what processes of one machine share, large parts first; small files are one part;
* `parts_from_end` are for a reader that goes backwards and keeps what begins in one part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Literal, Protocol

from rmqtool.base.errors import UnreadableError
from rmqtool.base.files import UNLIMITED, InputFile, ReadPolicy, stored_sizes
from rmqtool.base.mapped_files import MappedFile
from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.store.commit_log import data_end, log_range, log_start, retry_on_deletion, written_end
from rmqtool.store.lock import lock_holder
from rmqtool.store.missing import require_log
from rmqtool.store.store import NamedStore

SPLIT_SIZE = 128 << 20
"""Default size of a split, bytes."""

PART_SIZE = 64 << 20
"""Least size of a part, bytes: small, that processes end together, and large against what each begins with."""

_JOINED_SHARE = 4  # splits become one up to this fraction of a split's size: enough are left for several processes
_PLANNING_THREADS = 16  # planning waits for disks
_LARGEST = 4  # no part is more than a quarter of the log, unless all have the least size
_MAX_PARTS = 256  # of the least size; in a larger log that size grows
_MAX_EVEN_PARTS = 2048
_MAX_ORDERED_PARTS = 1024  # and a fifth more, as the last ones are small
_FINE = 16  # this fraction of the log is cut finely where results are taken in order
_PROBE_SIZE = 64 << 10  # bytes after a border that must not all be zeros


Place = Literal["local", "tiered", "compacted"]
"""Where a message is: in the commit log, in the tier, or in a compacted log."""


@dataclass(frozen=True)
class OtherLog:
    """The log of one queue, and the messages of it that count: from queue offset `first` to before `stop`.

    Of a record that is there twice the `units` lead to the one that counts; a compacted log has none twice.
    """

    place: Place
    topic: str
    queue_id: int
    first: int
    stop: int
    units: tuple[MappedFile, ...] = ()

    @property
    def name(self) -> str:
        """What tells it from other logs of a store."""
        return f"{self.place}/{self.topic}/{self.queue_id}"


@dataclass(frozen=True)
class Source:
    """The part of one store's log that is read: physical offsets from `start` to before `stop`.

    `end` is the end of the last whole record of a `live` store, and of all data of another one or of a gap after it;
    `min_offset` is where the log begins. `files` are all that begin before `end`, in offset order; `last` is the last
    one that holds something. An `other` log than the commit log has physical offsets of its own.
    """

    name: str
    root: Path
    files: tuple[MappedFile, ...]
    last: MappedFile | None
    start: int
    stop: int
    min_offset: int
    end: int
    live: bool = False
    other: OtherLog | None = None


@dataclass(frozen=True)
class Split:
    """What begins at physical offsets from `start` to before `stop`; `files` is all that a scan of it must know.

    Of an `other` log than the commit log it is a part of that.
    """

    store: str
    root: Path
    files: tuple[MappedFile, ...]
    start: int
    stop: int
    live: bool = False
    other: OtherLog | None = None

    @property
    def size(self) -> int:
        """Bytes of the log that it covers."""
        return self.stop - self.start


class HasSplit(Protocol):
    """A task about one split."""

    @property
    def split(self) -> Split:
        """The split."""


def find_sources(stores: Sequence[NamedStore], starts: Sequence[int], stop: int = MAX_OFFSET) -> list[Source]:
    """The logs of several stores from ``starts[i]`` to before `stop`, as they are now; raises UnreadableError."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_PLANNING_THREADS) as pool:
        return list(pool.map(lambda store, start: find_source(store, start, stop), stores, starts))


def find_source(named: NamedStore, start: int = 0, stop: int = MAX_OFFSET) -> Source:
    """The log of one store from `start` to before `stop`, as it is now; raises UnreadableError, or where it is gone."""
    require_log(named.store)
    return retry_on_deletion(lambda: _find_source(named, start, stop))


def _find_source(named: NamedStore, start: int, stop: int) -> Source:
    store = named.store
    live = lock_holder(store.root) is not None
    # Absolute: workers of a cluster have another working directory.
    files = tuple(file.at(file.path.absolute()) for file in store.commit_log().files if file.size)
    end = _end_of(files, ReadPolicy(drop_page_cache=live), live=live)
    last = max((file for file in files if file.start_offset < end), key=lambda file: file.start_offset, default=None)
    if not live:
        # The broker allocates a file ahead only when the one before it is there: a gap is a loss, whatever follows.
        gaps = (after.start_offset + 1 for before, after in pairwise(files) if before.end_offset < after.start_offset)
        end = max(end, *gaps, 0)
    min_offset = log_start(files)
    first, held = max(start, min_offset), tuple(file for file in files if file.start_offset < end)
    return Source(
        named.name, store.root.absolute(), held, last, first, max(first, min(stop, end)), min_offset, end, live
    )


def whole_records_end(named: NamedStore, near: int | None = None) -> int:
    """End of the last whole record of a log, bytes; `near` is the physical offset of a record near it, if known."""
    live = lock_holder(named.store.root) is not None
    reading = ReadPolicy(drop_page_cache=live)
    return retry_on_deletion(lambda: _records_end(named.store.commit_log().files, reading, live=live, near=near))


def split_source(source: Source, size: int = SPLIT_SIZE) -> Iterator[Split]:
    """Cut a source at multiples of `size` within each file; the splits meet and cover all of it.

    Splits that follow one another and together hold at most a quarter of `size` are one, holes not counted: each costs
    some milliseconds, and an output file. What lies in two files that overlap belongs to the later one, as for the
    broker, which finds a file by dividing an offset. Bytes that no file holds belong to the first split of the file
    after them.
    """
    enough, overlap = size // _JOINED_SHARE, _overlap(source.files)
    pieces: list[Split] = []
    held = 0
    for split, stored in _cut(source, size, enough + 1):
        if pieces and (overlap or held + stored > enough):
            yield _join(pieces)
            pieces, held = [], 0
        pieces.append(split)
        held += stored
    if pieces:
        yield _join(pieces)


def _cut(source: Source, size: int, enough: int) -> Iterator[tuple[Split, int]]:
    """Splits of one file each, and how many bytes are stored in each, counted up to `enough`."""
    last = () if source.last is None else (source.last,)
    previous: MappedFile | None = None
    for file, end in zip(source.files, _ends(source.files), strict=True):
        begin = file.start_offset if previous is None else previous.end_offset
        before = () if previous is None else (previous,)
        known = (*before, file, *(one for one in last if one.start_offset > file.start_offset))
        previous = file.with_size(end - file.start_offset)
        cuts = pairwise((begin, *range(file.start_offset + size, end, size), end))
        wanted = [(max(low, source.start), min(high, source.stop)) for low, high in cuts]
        ranges = [(start, stop) for start, stop in wanted if start < stop]
        positions = [(max(0, low - file.start_offset), max(0, high - file.start_offset)) for low, high in ranges]
        stored = stored_sizes(file.path, positions, enough) if ranges else []
        for (start, stop), count in zip(ranges, stored, strict=True):
            yield Split(source.name, source.root, known, start, stop, source.live, source.other), count


def _join(splits: Sequence[Split]) -> Split:
    """One split of several that meet."""
    if len(splits) == 1:
        return splits[0]
    files = {file.start_offset: file for split in splits for file in split.files}
    return replace(splits[0], files=tuple(files[start] for start in sorted(files)), stop=splits[-1].stop)


def _overlap(files: Sequence[MappedFile]) -> bool:
    """Whether a file begins before the one before it ends: what begins at an offset is not one thing then."""
    return any(before.end_offset > after.start_offset for before, after in pairwise(files))


def _ends(files: Sequence[MappedFile]) -> list[int]:
    """Where each file's own part ends: with it, or where the next one begins, bytes."""
    following = [*(file.start_offset for file in files[1:]), MAX_OFFSET]
    return [max(file.start_offset, min(file.end_offset, end)) for file, end in zip(files, following, strict=False)]


def _end_of(files: Sequence[MappedFile], reading: ReadPolicy, *, live: bool) -> int:
    """End of the log: of its last whole record, which may be zeros; unless a broker writes, of all data after it."""
    end = _records_end(files, reading, live=live)
    return end if live else max(end, data_end(files, reading))


def _records_end(files: Sequence[MappedFile], reading: ReadPolicy, *, live: bool, near: int | None = None) -> int:
    """End of the last whole record; of a log to which a broker appends all before it are whole by then, bytes."""
    return written_end(files, near, reading) if live else log_range(files, near, reading).max_offset


def log_parts(
    files: Sequence[MappedFile],
    reading: ReadPolicy = UNLIMITED,
    least: int = PART_SIZE,
    *,
    even: bool = False,
    in_order: bool = False,
) -> list[tuple[int, int]]:
    """Cut a log for several processes, by the log alone: physical offsets from and to, the first and the last open.

    The parts are large at the log's beginning and small at its end, or all `even`. Where results are taken `in_order`
    they are never much larger than `least`, since whoever is ahead has to wait, and those of the last sixteenth are a
    quarter of it.

    No other part is of less than half of `least` bytes, and where files overlap there is only one. The sizes are those
    of the data: the last file is allocated whole, and may be all there is.
    """
    if not files:
        return [(0, MAX_OFFSET)]
    end = known_end(files, reading)
    sizes = _Sizes(log_start(files), end, least, even=even, in_order=in_order)
    return list(pairwise([0, *_borders(files, end, reading, sizes), MAX_OFFSET]))


def known_end(files: Sequence[MappedFile], reading: ReadPolicy = UNLIMITED) -> int:
    """The end of a log's data, a physical offset; that of its last file where it cannot be read."""
    try:
        return data_end(files, reading)
    except UnreadableError:
        return files[-1].end_offset


def parts_from_end(files: Sequence[MappedFile], start: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
    """Parts of `size` bytes from physical offset `stop` back to `start`; zeros at the log's end are in the first."""
    start, top = max(start, files[0].start_offset) if files else stop, min(stop, data_end(files))
    while stop > start:
        first = max(start, min(top, stop) - size)
        yield first, stop
        stop = first


def _borders(files: Sequence[MappedFile], end: int, reading: ReadPolicy, sizes: _Sizes) -> Iterator[int]:
    """Physical offsets before `end` at which the log is cut, ascending: beginnings of files, and others within them."""
    if _overlap(files):
        return
    last = log_start(files)
    for file in files:
        stop = min(file.end_offset, end)
        if stop <= last + sizes.at(last) // 2:
            continue
        try:
            with InputFile(file.path, reading) as opened:
                offset = file.start_offset
                while offset < stop:
                    # Zeros before data are damage, after which the log may have ended: one part contains all of it.
                    if 2 * (offset - last) >= sizes.at(last) and _has_data(opened, offset - file.start_offset):
                        last = offset
                        yield offset
                    left = stop - offset
                    offset += -(-left // max(1, round(left / sizes.at(offset))))
        except UnreadableError:
            continue  # the unreadable file lies in one part


class _Sizes:
    """Sizes of parts: large at the log's beginning, since each has its costs, and small at its end, unless `even`.

    So the processes finish at the same time.
    """

    def __init__(self, start: int, end: int, least: int, *, even: bool, in_order: bool) -> None:
        """`start` and `end` are those of the log's data, physical offsets."""
        self._start = start
        self._end = end
        self._even = even
        self._in_order = in_order
        most_parts = _MAX_EVEN_PARTS if even else _MAX_ORDERED_PARTS if in_order else _MAX_PARTS
        self._least = max(least, (end - start) // most_parts)
        self._most = max(self._least, 2 * least if in_order else (end - start) // _LARGEST)

    def at(self, offset: int) -> int:
        """Size of a part that begins at a physical offset, bytes."""
        if self._even:
            return self._least
        left = self._end - offset
        whole = self._end - self._start
        if self._in_order and left <= whole // _FINE:
            return max(1, self._least // 4)
        times = 4 if 2 * left > whole else 2 if 4 * left > whole else 1
        return min(times * self._least, self._most)


def _has_data(file: InputFile, position: int) -> bool:
    stop = min(position + _PROBE_SIZE, file.size)
    return file.next_data(position, stop) < stop
