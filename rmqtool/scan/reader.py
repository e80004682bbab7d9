"""The scan itself: from the bytes of commit log files to runs of records, blanks and damage, in order.

Memory is one block. Damage does not end the scan: it goes on at the next record that stores its own position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

import numpy as np

from rmqtool.base.errors import UnreadableError
from rmqtool.base.files import UNLIMITED, InputFile, ReadPolicy
from rmqtool.base.mapped_files import MappedFile, check_unchanged
from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.scan.block import RECORDS_AFTER_DAMAGE, Blank, Block, Damage, Reason, block_size, chain
from rmqtool.scan.frames import RecordRun, in_whole_entries, sound_prefix
from rmqtool.scan.single_record import (
    Probe,
    find_next,
    has_wrong_magic_code,
    has_wrong_size,
    is_moved,
    is_sound,
    record_start,
)

Event = RecordRun | Blank | Damage
"""An event of a scan."""

OpenFile = Callable[[Path, ReadPolicy], InputFile]

LONGEST_BLANK = 8 << 20
"""A blank is shorter than the record or batch that did not fit: twice the default 4 MiB of both, bytes."""

USUAL_RECORDS = 4500
"""Records in a block: large records are read in larger blocks, so that calls per block cost little."""

MANY_RECORDS = 2 * USUAL_RECORDS
"""The same where bodies are not copied: a twentieth less to do; else a quarter more, for they leave the cache."""

_MAX_BLOCKS = 2  # are read at once then
_SMALL_REST = 64  # reading less than this fraction of a block again costs less than probing it
_PAGE_SIZE = 4096
_LEAST_READ = 16 << 10  # where a hole follows


def scan_files(
    files: Sequence[MappedFile],
    start: int = 0,
    stop: int = MAX_OFFSET,
    reading: ReadPolicy = UNLIMITED,
    usual_records: int = USUAL_RECORDS,
    open_file: OpenFile = InputFile,
    block: Block | None = None,
    look_back: int = LONGEST_BLANK,
) -> Iterator[Event]:
    """Scan what begins at physical offsets from `start` to before `stop` (default: all of the log).

    `start` may be any byte: what a split leaves out at its head is what the split before it has read beyond its
    end, so splits that meet give each record, blank and damaged extent once. Frames must be used before the next
    step, for their block is filled again. Blocks grow, to twice the size at most, until they have `usual_records`.
    `open_file` opens a file to be read by a policy. Scans that follow each other can share a `block` (`scan_block`).
    With a smaller `look_back` than usual, bytes, a split may begin inside a body that holds records, and then does not
    meet the one before it. Raises UnreadableError.
    """
    block, last = block or scan_block(), cache(partial(_last_with_data, files, reading, open_file))
    previous_end = None
    for file_number, mapped in enumerate(files):
        if previous_end is not None and start <= previous_end < min(stop, mapped.start_offset):
            yield Damage(previous_end, mapped.start_offset - previous_end, "missing")
        previous_end = mapped.end_offset
        if mapped.end_offset <= start or mapped.start_offset >= stop:
            continue
        with open_file(mapped.path, reading) as file:
            nothing_follows = partial(lambda number: number >= last(), file_number)
            scan = _FileScan(block, file, mapped, nothing_follows, usual_records, look_back)
            yield from scan.events(start, stop)
        check_unchanged(mapped)


def scan_block() -> Block:
    """The memory of one scan, or of several that follow each other: memory that is new costs time."""
    return Block(_MAX_BLOCKS * block_size())


def _last_with_data(files: Sequence[MappedFile], reading: ReadPolicy, open_file: OpenFile) -> int:
    """Number of the last file that holds something; those after it are allocated in advance by the broker, or empty.

    A file that cannot be read counts as zeros until it is scanned.
    """
    for file_number in reversed(range(len(files))):
        with suppress(UnreadableError), open_file(files[file_number].path, reading) as file:
            if file.next_data(0, file.size) < file.size:
                return file_number
    return -1


class _FileScan:
    """The scan of one commit log file; positions are in the file, bytes.

    Where headers stand before the records, as in the entries of DLedger, a position is that of a header.
    """

    def __init__(
        self,
        block: Block,
        file: InputFile,
        mapped: MappedFile,
        nothing_follows: Callable[[], bool],
        usual_records: int,
        look_back: int,
    ) -> None:
        self._block = block
        self._block_position = 0
        self._block_end = 0  # nothing of this file is in the block yet
        self._usual_size = self._block_size = block_size()  # the second is what is read next, bytes
        self._max_records: int | None = None  # records of the next run, after damage
        self._stored_end = 0  # up to here there is no large hole
        self._filled_for = -1  # where a record was seen that was not in the block
        self._file = file
        self._start_offset = mapped.start_offset
        self._header_size = mapped.header_size
        self._nothing_follows = nothing_follows
        self._usual_records = usual_records
        self._look_back = look_back
        self._end = file.size  # what begins there or behind is not wanted

    def events(self, start: int, stop: int) -> Iterator[Event]:
        """The events that begin at physical offsets from `start` to before `stop`."""
        first = max(0, start - self._start_offset)
        end = self._end = min(self._file.size, stop - self._start_offset)
        position = self._first_record(first, end)
        while position < end:
            frames = self._frames(position)
            event = frames if frames is not None else self._other(position)
            if event is None:
                return
            if isinstance(event, Probe):
                self._filled_for = position
                self._fill(position, event.size)
                continue
            position = event.physical_offset + event.size - self._start_offset
            owned = _owned(event, start, stop)
            if owned is not None:
                yield owned

    def _first_record(self, first: int, end: int) -> int:
        """Where to begin, bytes, so that a blank or a body that covers `first` is read before records inside it.

        Where none begins before `end`, zeros after it may be left unread.
        """
        may_be_blank = self._file.size - first <= LONGEST_BLANK
        first = max(0, first - (LONGEST_BLANK if may_be_blank else self._look_back))
        return find_next(self._file, self._start_offset, first, self._header_size, end) if first else 0

    def _fill(self, position: int, size: int = _LEAST_READ) -> None:
        """Fill the block from `position`, with at least `size` bytes and no large hole at its end."""
        wanted = self._end + _LEAST_READ - position  # the last record goes on past the end
        length = min(max(size, min(self._block_size, wanted)), self._file.size - position)
        if position + length > self._stored_end:
            self._stored_end = self._file.stored_end(position, position + length)
            length = min(length, max(size, self._stored_end - position))
        self._block.fill(self._file, position, length, self._start_offset + position)
        self._block_position, self._block_end = position, position + self._block.length
        self._max_records = None

    def _frames(self, position: int) -> RecordRun | None:
        """The sound records from `position` in the block; None when the first is not sound or not all there."""
        if not self._block_position <= position < self._block_end or self._is_cut(position):
            self._fill(position)
        positions = chain(self._block, position - self._block_position, self._max_records, self._header_size)
        frames = sound_prefix(self._block, positions) if len(positions) else None
        if frames and self._header_size:
            frames = in_whole_entries(frames)
        if self._max_records is not None:
            self._max_records *= 2
        elif frames:
            usual = self._usual_records * frames.size // len(frames)
            self._block_size = min(max(self._usual_size, usual), _MAX_BLOCKS * self._usual_size)
        return frames or None

    def _is_cut(self, position: int) -> bool:
        """Whether so little of the block is left that the record is assumed to go on after it."""
        rest, filled = self._block_end - position, self._block_end - self._block_position
        return rest < filled // _SMALL_REST and self._block_end < self._file.size

    def _other(self, position: int) -> Blank | Damage | Probe | None:
        """The event where the block has no sound record; a Probe asks to fill the block from there; None at the end."""
        probe = Probe(self._file, self._start_offset, position, self._header_size)
        if probe.kind == "message" and self._filled_for != position:
            return probe
        after = self._file.size
        if probe.kind != "blank" or not is_sound(probe):
            data = self._file.next_data(position + 1, self._file.size)  # read once: it may be all of the file
            if probe.kind == "zeroed" and data == self._file.size and self._nothing_follows():
                return None  # the log has ended: zeros to the end of this file and in all later ones
            start = record_start(position + 1, data)
            after = find_next(self._file, self._start_offset, start, self._header_size)
        if probe.kind == "blank" and after == self._file.size:
            return Blank(self._start_offset + position, after - position)
        self._max_records = RECORDS_AFTER_DAMAGE
        return self._damage(probe, after)

    def _damage(self, probe: Probe, after: int) -> Damage:
        reason: Reason
        match probe.kind:
            case "message" | "blank":
                reason = "lengths"
            case kind:
                reason = kind
        tail = after == self._file.size and self._nothing_follows()
        if tail:
            after = self._file.data_end(probe.position)
            is_sized = reason in ("lengths", "truncated") and has_wrong_size(probe)
            if is_sized or (reason == "magic-code" and has_wrong_magic_code(probe)):
                tail = False  # it was written to its end
            elif reason in ("lengths", "truncated") or (reason == "physical-offset" and not is_moved(probe)):
                reason = "torn"
            elif reason != "physical-offset" and after <= -(-probe.position // _PAGE_SIZE) * _PAGE_SIZE:
                reason = "leftover"
        return Damage(self._start_offset + probe.position, after - probe.position, reason, tail)


def _owned(event: Event, start: int, stop: int) -> Event | None:
    """The part of an event that begins in the range."""
    if not isinstance(event, RecordRun):
        return event if start <= event.physical_offset < stop else None
    if start <= event.physical_offset and event.physical_offset + event.size <= stop:
        return event
    offsets = event.physical_offsets
    low, high = np.searchsorted(offsets, (start, stop))
    return event[int(low) : int(high)] if high > low else None
