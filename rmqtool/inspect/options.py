"""The options of a listing: filters, order and shape, and how files are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqtool.base.errors import NotAStoreError, UnreadableError
from rmqtool.base.files import UNLIMITED, InputFile, ReadPolicy
from rmqtool.base.mapped_files import MappedFile, list_mapped_files
from rmqtool.base.paths import absolute
from rmqtool.inspect.locate import FileGroup, Location
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.scan.filters import Filters, Mask
from rmqtool.scan.message_rows import MessageShape
from rmqtool.scan.pointed_records import Heads, Offsets, passing_records, read_heads
from rmqtool.scan.rows import Rows, make_rows
from rmqtool.store.paths import COMPACTION_LOG, COMPACTION_QUEUE
from rmqtool.store.store import DLEDGER_DATA, open_store
from rmqtool.store.tiered import SegmentKind, list_segments

_OF_HEADS = ("store_timestamp",)  # filters that need no more of a record than its head


@dataclass
class RecordFilter:
    """Filters that records must pass, and how many units could not be judged so far: those do not pass.

    `deleted` counts units that point before the first file of their log, as the broker's cleaner leaves them, `unread`
    others without a sound record of the size that they store.
    """

    location: Location
    filters: Filters
    conf: BrokerConf = field(default_factory=BrokerConf)
    reading: ReadPolicy = UNLIMITED
    deleted: int = 0
    unread: int = 0
    _logs: dict[tuple[Path, ...], tuple[MappedFile, ...]] = field(default_factory=dict)

    @property
    def has_log(self) -> bool:
        """Whether there is a log with the units' records."""
        return any(self._log(group) for group in self.location.groups)

    def select(self, group: FileGroup, asked: Mask, offsets: NDArray[Any], sizes: NDArray[Any] | None = None) -> Mask:
        """Which of the units that are `asked` about have a record that passes.

        `offsets` are physical, `sizes` those of the whole records where units store them; each as long as `asked`.
        """
        selected = np.zeros(len(asked), dtype=np.bool_)
        rows = np.flatnonzero(asked)
        if not len(rows):
            return selected
        distinct, of_row = np.unique(offsets[rows].astype(np.int64), return_inverse=True)
        wanted = None if sizes is None else sizes[rows]
        try:
            selected[rows] = self._select(group, distinct, of_row, wanted)
        except UnreadableError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            self._logs.clear()  # the broker's cleaner has deleted a file since the log was listed
            selected[rows] = self._select(group, distinct, of_row, wanted)
        return selected

    def _select(
        self, group: FileGroup, distinct: Offsets, of_row: NDArray[np.intp], sizes: NDArray[Any] | None
    ) -> Mask:
        """Which units, that point to ``distinct[of_row]``, have a record that passes; counts those without one."""
        files = self._log(group, int(distinct[-1]))
        heads = read_heads(files, distinct, self.reading)
        fits = np.ones(len(of_row), dtype=np.bool_) if sizes is None else heads.message_sizes[of_row] == sizes
        meant = np.zeros(len(distinct), dtype=np.bool_)
        meant[of_row[fits]] = True
        # A record of another size is not read: its size may be damaged, and lead far.
        passed, sound = self._judge(files, replace(heads, is_record=heads.is_record & meant))
        is_sound = sound[of_row] & fits
        first = files[0].start_offset if files else 0
        is_deleted = ~is_sound & (distinct[of_row] < first) & (distinct[of_row] >= 0)
        self.deleted += int(is_deleted.sum())
        self.unread += int((~is_sound).sum() - is_deleted.sum())
        return is_sound & passed[of_row]

    def _judge(self, files: tuple[MappedFile, ...], heads: Heads) -> tuple[Mask, Mask]:
        """Which records pass, and which are sound."""
        if self.filters.columns != _OF_HEADS:
            return passing_records(files, heads, self.filters, self.reading)
        return self.filters.in_time(heads.store_timestamps), heads.is_record

    def _log(self, group: FileGroup, offset: int = -1) -> tuple[MappedFile, ...]:
        """The files of the log that a group's units point to, listed again when `offset` is past the last one."""
        directories = self._directories(group)
        files = self._logs.get(directories)
        if files is None or (files and offset >= files[-1].end_offset):
            is_of_tier = any(each.name == _TIERED_LOG for each in directories)
            listed = list_segments(directories[0]) if is_of_tier else list_mapped_files(*directories)
            files = self._logs[directories] = listed.files
        return files

    def _directories(self, group: FileGroup) -> tuple[Path, ...]:
        folders = sorted({absolute(file.path.parent) for file in group.files})
        if self.location.kind == "compaction-queue":
            return tuple(log for folder in folders for log in _log_beside(folder, self.location.root))
        if all(folder.name == _TIERED_QUEUE for folder in folders) and folders:
            return tuple(folder.with_name(_TIERED_LOG) for folder in folders)
        if self.location.kind == "dledger-index":
            return tuple(folder.parent / DLEDGER_DATA for folder in folders)
        return self._log_of_store

    @cached_property
    def _log_of_store(self) -> tuple[Path, ...]:
        try:
            store = open_store(self.location.root, self.conf)
        except NotAStoreError:
            return ()
        return store.log_directories


_TIERED_QUEUE: SegmentKind = "CONSUME_QUEUE"
_TIERED_LOG: SegmentKind = "COMMIT_LOG"


def _log_beside(queue: Path, root: Path) -> Iterator[Path]:
    """The folder of the compaction's log that belongs to one of its queues."""
    for base in queue.parents:
        if base.name == COMPACTION_QUEUE and base.parent.parent == absolute(root):
            yield base.parent / COMPACTION_LOG / queue.relative_to(base)


@dataclass(frozen=True)
class ListingOptions:
    """Filters, order and shape of a listing; `with_hex` adds each unit's bytes in hex.

    `filters` can be decided from the units themselves, `by_record` only from the records that they point to.
    """

    filters: Filters = field(default_factory=Filters)
    by_record: RecordFilter | None = None
    limit: int | None = None
    reverse: bool = False
    with_hex: bool = False
    slots: bool = False  # of an index file the hash slots instead of the units
    shape: MessageShape = field(default_factory=MessageShape)
    conf: BrokerConf = field(default_factory=BrokerConf)
    reading: ReadPolicy = field(default_factory=ReadPolicy)
    live: bool = False  # a broker writes: a torn record at the log's end is not damage

    def kept(
        self, group: FileGroup, masks: list[Any], has_message: Mask, offsets: NDArray[Any], sizes: NDArray[Any]
    ) -> Mask:
        """Which units pass the masks, and the filters on physical offsets and on records, for which they need one."""
        if self.filters.start or self.filters.to_offset is not None:
            masks = [*masks, has_message, offsets >= self.filters.start, offsets < self.filters.stop]
        if self.by_record:
            masks = [*masks, has_message]
        return self.by_records(group, all_of(masks, len(offsets)), offsets, sizes)

    def rows(
        self, kinds: Any, columns: dict[str, Any], units: NDArray[np.void], kept: Mask, optional: Sequence[str] = ()
    ) -> Rows:
        """The rows of the units that are `kept`, in the order that is asked for, with their bytes where these are."""
        with_hex = {**columns, "hex": hex_of(units)} if self.with_hex else columns
        return make_rows(kinds, with_hex, optional).filter(kept, reverse=self.reverse)

    def by_records(
        self, group: FileGroup, kept: Mask, offsets: NDArray[Any], sizes: NDArray[Any] | None = None
    ) -> Mask:
        """Which of the units that are `kept` so far have a record that passes; see `RecordFilter.select`."""
        return kept if self.by_record is None else self.by_record.select(group, kept, offsets, sizes)


BLOCK_UNITS = 1 << 16
"""Units that are read at once."""

_FIRST_UNITS = 1 << 10  # so that the first lines of a large file are there at once


@dataclass(frozen=True)
class UnitBlock:
    """Consecutive units of a file; `first` is the index of the first one in the file."""

    first: int
    units: NDArray[np.void]

    @property
    def indices(self) -> NDArray[np.int64]:
        """The index of each unit in its file."""
        return np.arange(self.first, self.first + len(self.units), dtype=np.int64)


def read_units(
    mapped: MappedFile,
    dtype: np.dtype[np.void],
    reading: ReadPolicy,
    start: int = 0,
    count: int | None = None,
    *,
    reverse: bool = False,
) -> Iterator[UnitBlock]:
    """The units of a file from byte `start` on, up to its last byte that is not zero; `count` of them at most.

    With `reverse` the blocks come from the end, each in ascending order. A partial last unit is left out.
    """
    size = dtype.itemsize
    with InputFile(mapped.path, reading) as file:
        whole = max(0, file.size - start) // size
        used = min(whole, -(-max(0, file.data_end(min(start, file.size)) - start) // size))
        used = used if count is None else min(used, count)
        for first, last in _spans(used, reverse=reverse):
            data = file.read(start + first * size, (last - first) * size)
            yield UnitBlock(first, np.frombuffer(data, dtype, count=len(data) // size))


def _spans(count: int, *, reverse: bool) -> Iterator[tuple[int, int]]:
    """Parts of the numbers from 0 to before `count`."""
    at, step = 0, _FIRST_UNITS
    while at < count:
        end = min(count, at + step)
        yield (count - end, count - at) if reverse else (at, end)
        at, step = end, BLOCK_UNITS


def hex_of(units: NDArray[np.void]) -> pa.StringArray:
    """The bytes of each unit in hex."""
    size = units.dtype.itemsize
    text = np.ascontiguousarray(units).tobytes().hex().encode()
    ends = np.arange(0, (len(units) + 1) * 2 * size, 2 * size, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(units), [None, pa.py_buffer(ends), pa.py_buffer(text)])


def all_of(masks: list[Any], count: int) -> NDArray[np.bool_]:
    """Where all masks are true; everywhere without one."""
    rows = np.ones(count, dtype=np.bool_)
    for mask in masks:
        rows &= mask
    return rows
