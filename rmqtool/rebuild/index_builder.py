"""Index files as the broker builds them (`IndexService#buildIndex`, `IndexFile#putKey`)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqtool.broker.dispatched_units import group
from rmqtool.broker.index_keys import IndexKeys
from rmqtool.formats.index_file import SLOT_DTYPE, UNIT_DTYPE, IndexHeader, slot_position, unit_position
from rmqtool.formats.layout import build
from rmqtool.rebuild.sinks import IndexWriter
from rmqtool.store.index_files import WESTERNMOST, Geometry

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_LATEST = 253402128000000  # the year 9999 ends a day later, epoch ms
_NO_SLOTS = np.empty(0, dtype=np.int32)
_SLOTS_AT_ONCE = 1 << 18  # a copy of all slots of a usual file would take 20 MB
MAX_SECONDS = (1 << 31) - 1
"""The longest time that a unit can store, seconds."""

Numbers = NDArray[Any]


def index_file_name(timestamp: int) -> str:
    """Name of an index file whose first message was stored at `timestamp`, epoch ms: ``yyyyMMddHHmmssSSS``.

    A broker takes its local time. Files are loaded by name, so ours must not sort after those that it creates later:
    the time is that of UTC-12, which is never ahead of the broker's.
    """
    time = _EPOCH + timedelta(milliseconds=clamp_timestamp(timestamp)) + WESTERNMOST
    return f"{time:%Y%m%d%H%M%S}{time.microsecond // 1000:03d}"


def clamp_timestamp(timestamp: int) -> int:
    """A store timestamp, epoch ms, within the range of a file name: a damaged one may be any number."""
    return min(max(timestamp, 0), _LATEST)


@dataclass
class _Open:
    """The file that is being filled."""

    slots: NDArray[np.int32]  # number of the newest unit of each slot; empty without a writer
    begin_timestamp: int
    end_timestamp: int
    begin_physical_offset: int
    end_physical_offset: int
    used_slots: int = 0
    count: int = 1  # number of the next unit


class IndexBuilder:
    """Puts keys into index files, one after the other."""

    def __init__(self, writer: IndexWriter | None, geometry: Geometry, *, count_every_put: bool) -> None:
        """Without a `writer` only the files' names are derived; `count_every_put` is the rule before 4.7.1."""
        self.names: list[str] = []  # of the files
        self.units = 0
        self.end_timestamp = 0  # of the last put
        self._writer = writer
        self._geometry = geometry
        self._count_every_put = count_every_put  # in the header, instead of the used slots
        self._file: _Open | None = None
        self._name_timestamp = -1

    def add(self, keys: IndexKeys, physical_offsets: Numbers, store_timestamps: Numbers) -> None:
        """Put the keys of a run of records with these physical offsets and store timestamps.

        A broker creates a file for the first record that it dispatches, whether that has keys or not.
        """
        done = 0
        while True:
            if self._is_full():
                behind = keys.physical_offsets[done] if done < len(keys) else None
                row = self._next_record(physical_offsets, behind)
                if row is None:
                    return
                self._begin(int(store_timestamps[row]))
            if done == len(keys):
                return
            done += self._put(keys, done)

    def finish(self) -> None:
        """Complete the last file."""
        if self._file is not None:
            self._complete(self._file)
            self._file = None

    def _is_full(self) -> bool:
        return self._file is None or self._file.count >= self._geometry.units

    def _next_record(self, physical_offsets: Numbers, next_key: int | None) -> int | None:
        """Row of the record for which the next file is created: it may have no keys."""
        last = -1 if self._file is None else self._file.end_physical_offset
        row = int(np.searchsorted(physical_offsets, last, side="right"))
        if next_key is not None and next_key == last:
            row = int(np.searchsorted(physical_offsets, last))
        return row if row < len(physical_offsets) else None

    def _begin(self, timestamp: int) -> None:
        before = self._file
        if before is not None:
            self._complete(before)
            before.slots = _NO_SLOTS  # those of a usual file take 20 MB, as those of the next will
        self._name_timestamp = max(clamp_timestamp(timestamp), self._name_timestamp + 1)
        self.names.append(index_file_name(self._name_timestamp))
        slots = _NO_SLOTS
        if self._writer:
            self._writer.begin(self.names[-1])
            slots = np.zeros(self._geometry.slots, dtype=np.int32)
        seeds = (max(before.end_timestamp, 0), max(before.end_physical_offset, 0)) if before else (0, 0)
        self._file = _Open(slots, seeds[0], seeds[0], seeds[1], seeds[1])

    def _put(self, keys: IndexKeys, start: int) -> int:
        """Put keys from `start` on until the file is full; return how many."""
        file = self._file
        if file is None:
            raise RuntimeError("no index file is open")
        count = min(len(keys) - start, self._geometry.units - file.count)
        rows = slice(start, start + count)
        timestamps = keys.store_timestamps[rows]
        if self._writer:
            self._put_units(self._writer, file, keys, rows)
        if file.count == 1:
            file.begin_physical_offset = int(keys.physical_offsets[start])
            file.begin_timestamp = int(timestamps[0])
        file.count += count
        file.end_physical_offset = int(keys.physical_offsets[start + count - 1])
        file.end_timestamp = self.end_timestamp = int(timestamps[-1])
        self.units += count
        return count

    def _put_units(self, writer: IndexWriter, file: _Open, keys: IndexKeys, rows: slice) -> None:
        units = np.empty(rows.stop - rows.start, dtype=UNIT_DTYPE)
        units["key_hash"] = keys.key_hashes[rows]
        units["physical_offset"] = keys.physical_offsets[rows]
        units["seconds_since_begin"] = self._seconds(file, keys.store_timestamps[rows])
        units["previous"] = previous = link(file.slots, file.count, keys.key_hashes[rows])
        writer.put(unit_position(self._geometry.slots, file.count), units.view("u1").data)
        file.used_slots += len(units) if self._count_every_put else int((previous == 0).sum())

    @staticmethod
    def _seconds(file: _Open, timestamps: Numbers) -> Numbers:
        """Seconds since the header's begin timestamp; the first unit's count from the end of the file before."""
        begin = file.begin_timestamp if file.count > 1 else int(timestamps[0])
        seconds = seconds_between(begin, timestamps)
        if file.count == 1:
            seconds[:1] = seconds_between(file.begin_timestamp, timestamps[:1])
        if seconds.min() < 0 or seconds.max() > MAX_SECONDS:
            np.clip(seconds, 0, MAX_SECONDS, out=seconds)
        return seconds

    def _complete(self, file: _Open) -> None:
        if self._writer is None:
            return
        for low in range(0, len(file.slots), _SLOTS_AT_ONCE):
            data = file.slots[low : low + _SLOTS_AT_ONCE].astype(SLOT_DTYPE)
            self._writer.put(slot_position(low), data.view("u1").data)
        header = {
            "begin_timestamp": file.begin_timestamp,
            "end_timestamp": file.end_timestamp,
            "begin_physical_offset": file.begin_physical_offset,
            "end_physical_offset": file.end_physical_offset,
            "hash_slot_count": file.used_slots,
            "index_count": file.count,
        }
        self._writer.put(0, build(IndexHeader, header))
        self._writer.finish(file.end_timestamp)


def link(slots: NDArray[np.int32], first: int, hashes: NDArray[np.int32]) -> NDArray[np.int32]:
    """For each unit from number `first` on, the one before it in its slot; `slots` are updated to the newest units."""
    unit_numbers = np.arange(first, first + len(hashes), dtype=np.int32)
    slot_indices = (hashes - hashes // len(slots) * len(slots)).astype(np.intp)
    previous = slots.take(slot_indices)
    slots[slot_indices] = unit_numbers
    newest = slots.take(slot_indices)
    repeated = np.flatnonzero(newest != unit_numbers)  # a later unit of this block has the same slot
    if len(repeated):
        linked = np.zeros(len(unit_numbers), dtype=np.bool_)
        linked[repeated] = True
        linked[newest[repeated] - first] = True
        _link_within(previous, slot_indices, unit_numbers, np.flatnonzero(linked))
    return previous


def seconds_between(begin: int, timestamps: Numbers) -> Numbers:
    """Seconds that units store for their messages' times after `begin`, not yet clipped to MAX_SECONDS."""
    return (timestamps - begin) // 1000 if begin > 0 else np.zeros(len(timestamps), dtype=np.int64)


def _link_within(previous: Numbers, slot_indices: Numbers, unit_numbers: Numbers, rows: Numbers) -> None:
    """Link each unit of `rows` to the one before it in its slot; `rows` hold all units of the block in these slots."""
    order = rows[group(slot_indices[rows])[0]]
    in_one_slot = np.flatnonzero(slot_indices[order[1:]] == slot_indices[order[:-1]])
    previous[order[in_one_slot + 1]] = unit_numbers[order[in_one_slot]]
