"""Parts of commit logs that can be read apart from each other, and together give every record once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from rmqtool.base.files import InputFile, ReadPolicy
from rmqtool.base.mapped_files import MappedFile
from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.store.commit_log import log_range, written_end
from rmqtool.store.lock import lock_holder
from rmqtool.store.named_stores import NamedStore

SPLIT_SIZE = 128 << 20
"""Default size of a split, bytes."""

_PLANNING_THREADS = 16  # planning waits for disks


@dataclass(frozen=True)
class Source:
    """The part of one store's log that is read: physical offsets from `start` to before `stop`.

    `end` is the end of the last whole record of a `live` store, and of all data of another one or of a gap behind it;
    `min_offset` is where the log begins. `files` are all that begin before `end`, in offset order; `last` is the last
    one that holds something.
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


@dataclass(frozen=True)
class Split:
    """What begins at physical offsets from `start` to before `stop`; `files` is all that a scan of it must know."""

    store: str
    root: Path
    files: tuple[MappedFile, ...]
    start: int
    stop: int
    live: bool = False

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
    """Look at stores, several at once: what of each is there from ``starts[i]`` to before `stop` at this moment."""
    with ThreadPoolExecutor(_PLANNING_THREADS) as pool:
        return list(pool.map(lambda store, start: find_source(store, start, stop), stores, starts))


def find_source(named: NamedStore, start: int = 0, stop: int = MAX_OFFSET) -> Source:
    """What of one store is there from `start` to before `stop` at this moment; raises UnreadableError."""
    store = named.store
    live = lock_holder(store.root) is not None
    # Absolute: workers of a cluster have another working directory.
    files = tuple(replace(file, path=file.path.absolute()) for file in store.commit_log().files if file.size)
    end = _end_of(files, ReadPolicy(drop_page_cache=live), live=live)
    last = max((file for file in files if file.start_offset < end), key=lambda file: file.start_offset, default=None)
    if not live:
        # The broker allocates a file ahead only when the one before it is there: a gap is a loss, whatever follows.
        gaps = (after.start_offset + 1 for before, after in pairwise(files) if before.end_offset < after.start_offset)
        end = max(end, *gaps, 0)
    min_offset = files[0].start_offset if files else 0
    first, held = max(start, min_offset), tuple(file for file in files if file.start_offset < end)
    return Source(
        named.name, store.root.absolute(), held, last, first, max(first, min(stop, end)), min_offset, end, live
    )


def whole_records_end(named: NamedStore, near: int | None = None) -> int:
    """End of the last whole record of a log, bytes; `near` is the physical offset of a record near it, if known."""
    live = lock_holder(named.store.root) is not None
    return _records_end(named.store.commit_log().files, ReadPolicy(drop_page_cache=live), live=live, near=near)


def split_source(source: Source, size: int = SPLIT_SIZE) -> Iterator[Split]:
    """Cut a source at multiples of `size` within each file; the splits meet and cover all of it.

    What lies in two files that overlap belongs to the later one, as for the broker, which finds a file by dividing
    an offset. Bytes that no file holds belong to the first split of the file behind them.
    """
    last = () if source.last is None else (source.last,)
    previous: MappedFile | None = None
    for file, end in zip(source.files, _ends(source.files), strict=True):
        begin = file.start_offset if previous is None else previous.end_offset
        before = () if previous is None else (previous,)
        known = (*before, file, *(one for one in last if one.start_offset > file.start_offset))
        previous = MappedFile(file.path, file.start_offset, end - file.start_offset)
        borders = (begin, *range(file.start_offset + size, end, size), end)
        for low, high in pairwise(borders):
            start, stop = max(low, source.start), min(high, source.stop)
            if start < stop:
                yield Split(source.name, source.root, known, start, stop, source.live)


def _ends(files: Sequence[MappedFile]) -> list[int]:
    """Where each file's own part ends: with it, or where the next one begins, bytes."""
    following = [*(file.start_offset for file in files[1:]), MAX_OFFSET]
    return [max(file.start_offset, min(file.end_offset, end)) for file, end in zip(files, following, strict=False)]


def _end_of(files: Sequence[MappedFile], reading: ReadPolicy, *, live: bool) -> int:
    """End of the log: of its last whole record, which may be zeros; unless a broker writes, of all data behind it."""
    end = _records_end(files, reading, live=live)
    if live:
        return end
    for mapped in reversed(files):
        with InputFile(mapped.path, reading) as file:
            data_end = file.data_end()
            if data_end:
                return max(end, mapped.start_offset + data_end)
    return end


def _records_end(files: Sequence[MappedFile], reading: ReadPolicy, *, live: bool, near: int | None = None) -> int:
    """End of the last whole record; of a log to which a broker appends all before it are whole by then, bytes."""
    return written_end(files, near, reading) if live else log_range(files, near, reading).max_offset
