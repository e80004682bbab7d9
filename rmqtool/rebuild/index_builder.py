"""Index files as the broker builds them (`IndexService#buildIndex`, `IndexFile#putKey`)."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.files import InputFile
from rmqtool.base.limits import sized
from rmqtool.broker.dispatched_units import group
from rmqtool.broker.dispatcher import IndexKeys
from rmqtool.broker.field_damage import Suspects
from rmqtool.formats.index_file import (
    SLOT_DTYPE,
    UNIT_DTYPE,
    UNIT_SIZE,
    IndexHeader,
    file_size,
    slot_position,
    unit_position,
)
from rmqtool.formats.layout import build, decode_units
from rmqtool.rebuild.existing import IndexWriter
from rmqtool.store.index_files import WESTERNMOST, Geometry, IndexFile

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


_UNITS_AT_ONCE = 1 << 16
_LEAST_AT_ONCE = 1 << 13

_MOST_OF_ONE = 1 << 10  # units of one message
_MAX_DIFFERENCES = 64  # messages that differ; more, and the index is that of another log, and no witness


class _Units(NamedTuple):
    """Consecutive units of one file; `first` is the number of the first one."""

    file: IndexFile
    first: int
    units: NDArray[np.void]

    def rows(self, rows: slice) -> _Units:
        return _Units(self.file, self.first + (rows.start or 0), self.units[rows])


class _Message(NamedTuple):
    """What the index has of one message: the hashes of its keys, in their order."""

    physical_offset: int
    hashes: tuple[int, ...]


class _UnsoundError(Exception):
    """A file contradicts its own units."""


class IndexComparison:
    """Compares the keys of the log, in order, with those in the `existing` files."""

    def __init__(self, existing: Sequence[IndexFile], geometry: Geometry, log_min_offset: int) -> None:
        self.existing = existing
        self._log_min_offset = log_min_offset
        self._blocks = _blocks(existing, geometry)
        self._rest: _Units | None = None
        self._begun = False  # whether a unit was met that points into the log
        self._matches: bool = True
        self._is_unsound = False
        self._differences = 0
        self._follows = True  # whether the units that come next are those of the next keys
        self._of_file: tuple[IndexFile, list[_Message]] | None = None  # what the file that is being read may prove
        self.suspects = Suspects()

    def matches(self, names: Sequence[str]) -> bool:
        """Whether the files hold exactly the compared keys; a rebuild would write the files `names`."""
        has_files = bool(self.existing) or not names
        rest = self._next(_MOST_OF_ONE) if self._follows else None
        if rest is not None:
            self._matches = False
            for offset in dict.fromkeys(rest.units["physical_offset"].tolist()):
                self._suspect(rest, _message_at(rest.units, offset))
        self._confirm()
        return has_files and self._matches

    def compare(self, keys: IndexKeys) -> None:
        """Compare keys with the units that follow; after a difference with those of the next messages."""
        done = 0
        while self._follows and done < len(keys):
            block = self._next(len(keys) - done)
            if block is None:
                self._matches = self._follows = False
            elif _units_match(block, keys, done):
                done += len(block.units)
            else:
                self._matches = False
                done += self._pass_difference(block, keys, done)
                if self._differences > _MAX_DIFFERENCES:
                    self._follows = False
                    self._of_file, self.suspects = None, Suspects()
        if not self._follows:
            self.close()

    def _pass_difference(self, block: _Units, keys: IndexKeys, start: int) -> int:
        """Pass the first message whose units and keys differ in a block; returns how many keys are done."""
        units, stop = block.units, start + len(block.units)
        offsets = keys.physical_offsets[start:stop]
        differs = (units["key_hash"] != keys.key_hashes[start:stop]) | (units["physical_offset"] != offsets)
        if not differs.any():
            return len(units)  # times or ends of the file
        self._differences += 1
        row = int(np.argmax(differs))
        stored, derived = int(units["physical_offset"][row]), int(offsets[row])
        first = min(stored, derived)
        while row and int(offsets[row - 1]) == first:  # the message's keys before
            row -= 1
        self._push_back(block.rows(slice(row, None)))
        if stored <= derived and (rest := self._next(_MOST_OF_ONE)) is not None:
            message = _message_at(rest.units, stored)
            self._suspect(rest, message)
            self._push_back(rest.rows(slice(len(message.hashes), None)))
        if derived > stored:
            return row
        count = int(np.searchsorted(keys.physical_offsets[start + row :], derived, "right"))
        return row + count

    def _push_back(self, block: _Units) -> None:
        """Take units again that were taken, or some of them: they are read next."""
        if self._rest is not None and len(self._rest.units) and len(block.units):
            joined = np.concatenate([each.view("V20") for each in (block.units, self._rest.units)])
            block = _Units(block.file, block.first, joined.view(block.units.dtype))
        self._rest = block if len(block.units) else self._rest

    def _suspect(self, block: _Units, message: _Message) -> None:
        """Note what a file has of a message; it counts once the whole file is read, and sound."""
        if self._of_file is None or self._of_file[0] is not block.file:
            self._confirm()
            self._of_file = block.file, []
        self._of_file[1].append(message)

    def _confirm(self) -> None:
        """Take over what a file has proven: what is read now is of the next one, or all is read."""
        for message in self._of_file[1] if self._of_file and not self._is_unsound else ():
            self.suspects.add_keys(message.physical_offset, message.hashes)
        self._of_file = None

    def close(self) -> None:
        """Close the file that was read."""
        self._blocks.close()

    def _next(self, limit: int) -> _Units | None:
        """At most `limit` of the next units, without those that point below the log; None at the end."""
        try:
            while self._rest is None or not len(self._rest.units):
                self._rest = next(self._blocks)
                if not self._begun:
                    below = self._rest.units["physical_offset"] < self._log_min_offset
                    count = len(below) if below.all() else int(np.argmin(below))
                    self._begun = count < len(below)
                    self._rest = self._rest.rows(slice(count, None))
        except StopIteration:
            return None
        except _UnsoundError:
            self._matches = self._follows = False
            self._is_unsound = True
            self._of_file = None
            return None
        block, self._rest = self._rest.rows(slice(0, limit)), self._rest.rows(slice(limit, None))
        return block


def _message_at(units: NDArray[np.void], physical_offset: int) -> _Message:
    """What units have of the message at an offset: those that follow each other."""
    rows = units["physical_offset"] == physical_offset
    begin = int(np.argmax(rows))
    count = len(rows) - begin if rows[begin:].all() else int(np.argmin(rows[begin:]))
    return _Message(physical_offset, tuple(units["key_hash"][begin : begin + count].tolist()))


def _units_match(block: _Units, keys: IndexKeys, start: int) -> bool:
    rows, units, file = slice(start, start + len(block.units)), block.units, block.file
    timestamps = keys.store_timestamps[rows]
    if (units["key_hash"] != keys.key_hashes[rows]).any():
        return False
    if (units["physical_offset"] != keys.physical_offsets[rows]).any():
        return False
    seconds = np.clip(seconds_between(file.begin_timestamp, timestamps), 0, MAX_SECONDS)
    differ = units["seconds_since_begin"] != seconds
    if block.first == 1:  # its seconds count from the end of the file before, which may be deleted
        differ[0] = False
        if int(timestamps[0]) != file.begin_timestamp:
            return False
    is_end = block.first + len(units) - 1 == file.keys
    return not differ.any() and (not is_end or int(timestamps[-1]) == file.end_timestamp)


def _blocks(files: Sequence[IndexFile], geometry: Geometry) -> Generator[_Units, None, None]:
    """All units of all files; raises _UnsoundError where a file does not fit its units."""
    for index_file in files:
        if index_file.size != file_size(geometry.slots, geometry.units) or index_file.keys >= geometry.units:
            raise _UnsoundError
        if not index_file.keys:
            continue
        slots = np.zeros(geometry.slots, dtype=np.int32)
        with InputFile(index_file.path) as file:
            at_once = sized(_UNITS_AT_ONCE, _LEAST_AT_ONCE)
            for first in range(1, index_file.keys + 1, at_once):
                count = min(at_once, index_file.keys + 1 - first)
                units = decode_units(UNIT_DTYPE, file.read(unit_position(geometry.slots, first), count * UNIT_SIZE))
                _check(index_file, units, slots, first, count)
                yield _Units(index_file, first, units)
            _check_slots(file, slots)
        # Releases before 4.7.1 count each put, later ones each newly used slot, and both may have written this file.
        if not np.count_nonzero(slots) <= index_file.hash_slot_count <= index_file.keys:
            raise _UnsoundError
        del slots  # or it would be in memory together with that of the next file


def _check(file: IndexFile, units: NDArray[np.void], slots: NDArray[np.int32], first: int, count: int) -> None:
    """Raise _UnsoundError unless units follow each other in their slots, and the header has the first and the last."""
    hashes, offsets = units["key_hash"].astype(np.int32), units["physical_offset"]
    if len(units) != count or (hashes < 0).any() or (units["previous"] != link(slots, first, hashes)).any():
        raise _UnsoundError
    if first == 1 and int(offsets[0]) != file.begin_physical_offset:
        raise _UnsoundError
    if first + count > file.keys and int(offsets[-1]) != file.end_physical_offset:
        raise _UnsoundError


def _check_slots(file: InputFile, slots: NDArray[np.int32]) -> None:
    for low in range(0, len(slots), _SLOTS_AT_ONCE):
        expected = slots[low : low + _SLOTS_AT_ONCE].astype(SLOT_DTYPE).tobytes()
        if file.read(slot_position(low), len(expected)) != expected:
            raise _UnsoundError
