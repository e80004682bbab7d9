"""The store's index files, compared unit by unit with the keys of the log.

Files need not begin with the same keys as those that a rebuild writes: retention deletes an index file only when all
its messages are gone, and until then units below the log's minimum precede the others.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.files import InputFile
from rmqtool.base.memory import sized
from rmqtool.broker.field_damage import Suspects
from rmqtool.broker.index_keys import IndexKeys
from rmqtool.formats.index_file import (
    SLOT_DTYPE,
    UNIT_SIZE,
    decode_units,
    file_size,
    slot_position,
    unit_position,
)
from rmqtool.rebuild.index_builder import MAX_SECONDS, link, seconds_between
from rmqtool.store.index_files import Geometry, IndexFile

_UNITS_AT_ONCE = 1 << 16
_LEAST_AT_ONCE = 1 << 13
_SLOTS_AT_ONCE = 1 << 18
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
                units = decode_units(file.read(unit_position(geometry.slots, first), count * UNIT_SIZE))
                _check_links(units, slots, first, count)
                _check_ends(index_file, units, first)
                yield _Units(index_file, first, units)
            _check_slots(file, slots)
        # Releases before 4.7.1 count each put, later ones each newly used slot, and both may have written this file.
        if not np.count_nonzero(slots) <= index_file.hash_slot_count <= index_file.keys:
            raise _UnsoundError
        del slots  # or it would be in memory together with that of the next file


def _check_links(units: NDArray[np.void], slots: NDArray[np.int32], first: int, count: int) -> None:
    hashes = units["key_hash"].astype(np.int32)
    if len(units) != count or (hashes < 0).any() or (units["previous"] != link(slots, first, hashes)).any():
        raise _UnsoundError


def _check_ends(file: IndexFile, units: NDArray[np.void], first: int) -> None:
    """The header stores the physical offsets of the first and the last message."""
    offsets = units["physical_offset"]
    if first == 1 and int(offsets[0]) != file.begin_physical_offset:
        raise _UnsoundError
    if first + len(units) > file.keys and int(offsets[-1]) != file.end_physical_offset:
        raise _UnsoundError


def _check_slots(file: InputFile, slots: NDArray[np.int32]) -> None:
    for low in range(0, len(slots), _SLOTS_AT_ONCE):
        expected = slots[low : low + _SLOTS_AT_ONCE].astype(SLOT_DTYPE).tobytes()
        if file.read(slot_position(low), len(expected)) != expected:
            raise _UnsoundError
