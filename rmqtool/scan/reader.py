"""The scan itself: from the bytes of commit log files to runs of records, blanks and damage, in order.

Memory is one block. Damage ends nothing: the scan goes on at the next record that tells its own position.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rmqtool.files import InputFile, RateLimit
from rmqtool.mapped_files import MappedFile
from rmqtool.scan.block import BLOCK_SIZE, Block
from rmqtool.scan.chain import chain
from rmqtool.scan.events import Blank, Damage, Reason
from rmqtool.scan.frames import Frames, prove
from rmqtool.scan.probe import Place, find_next, skip_zeros

Event = Frames | Blank | Damage
"""What a scan yields."""

LONGEST_BLANK = 8 << 20
"""A blank is shorter than the record or batch that did not fit: twice the default 4 MiB of both, bytes."""

_PAGE_SIZE = 4096
_MAX_OFFSET = (1 << 63) - 1


def scan_files(
    files: Sequence[MappedFile], start: int = 0, stop: int = _MAX_OFFSET, rate_limit: RateLimit | None = None
) -> Iterator[Event]:
    """Scan what begins at physical offsets from `start` to before `stop` (default: all of the log).

    `start` may be any byte: what a split leaves out at its head is what the split before it has read beyond its
    end, so splits that meet give each record, blank and damaged extent once. Frames must be used before the next
    step, for their block is filled again. Raises UnreadableError.
    """
    block = Block()
    previous_end = None
    for number, mapped in enumerate(files):
        if previous_end is not None and start <= previous_end < min(stop, mapped.start_offset):
            yield Damage(previous_end, mapped.start_offset - previous_end, "missing")
        previous_end = mapped.end_offset
        if mapped.end_offset <= start or mapped.start_offset >= stop:
            continue
        with InputFile(mapped.path, rate_limit) as file:
            yield from _FileScan(block, file, mapped.start_offset, files[number + 1 :]).events(start, stop)


class _FileScan:
    """The scan of one commit log file; positions are in the file, bytes."""

    def __init__(self, block: Block, file: InputFile, start_offset: int, later: Sequence[MappedFile]) -> None:
        self._block = block
        self._block_position = 0
        self._block_end = 0  # nothing of this file is in the block yet
        self._careful = False
        self._file = file
        self._start_offset = start_offset
        self._later = later

    def events(self, start: int, stop: int) -> Iterator[Event]:
        """What begins at physical offsets from `start` to before `stop`."""
        first = max(0, start - self._start_offset)
        end = min(self._file.size, stop - self._start_offset)
        position = self._first_record(first)
        while position < end:
            frames = self._frames(position)
            event = frames if frames is not None else self._other(position)
            if event is None:
                return
            if isinstance(event, Place):
                self._fill(position, event.size)
                continue
            position = event.physical_offset + event.size - self._start_offset
            owned = _owned(event, start, stop)
            if owned is not None:
                yield owned

    def _first_record(self, first: int) -> int:
        """Where to begin so that the blank at the file's end, whose filler may be old records, is seen as one."""
        if first > self._file.size - LONGEST_BLANK:
            first = max(0, first - LONGEST_BLANK)
        return find_next(self._file, self._start_offset, first) if first else 0

    def _fill(self, position: int, size: int) -> None:
        length = min(max(size, BLOCK_SIZE), self._file.size - position)
        self._block.fill(self._file, position, length, self._start_offset + position)
        self._block_position, self._block_end = position, position + self._block.length
        self._careful = False

    def _frames(self, position: int) -> Frames | None:
        """The sound records from `position` in the block; None when the first is not sound or not all there."""
        if not self._block_position <= position < self._block_end:
            self._fill(position, BLOCK_SIZE)
        positions = chain(self._block, position - self._block_position, self._careful)
        frames = prove(self._block, positions) if len(positions) else None
        return frames or None

    def _other(self, position: int) -> Blank | Damage | Place | None:
        """What stands where no sound record was seen; a Place asks to fill the block from there; None at the end."""
        place = Place(self._file, self._start_offset, position)
        if place.kind == "message" and not self._is_in_block(place):
            return place
        if place.kind == "blank":
            return Blank(self._start_offset + position, self._file.size - position)
        if place.kind == "zeroed" and self._is_end(position):
            return None
        self._careful = True
        after = skip_zeros(self._file, position + 1)
        return self._damage(place, find_next(self._file, self._start_offset, after))

    def _is_end(self, position: int) -> bool:
        """Whether the log has ended: zeros to the end of this file and in all later ones."""
        return self._file.next_data(position, self._file.size) == self._file.size and self._nothing_follows()

    def _is_in_block(self, place: Place) -> bool:
        """Whether the block was filled from here with all of the record, and filling it again can't help."""
        return place.position == self._block_position and place.position + place.size <= self._block_end

    def _damage(self, place: Place, after: int) -> Damage:
        reason: Reason = "lengths" if place.kind in ("message", "blank") else place.kind
        tail = after == self._file.size and self._nothing_follows()
        if tail:
            after = self._file.data_end(place.position)
            if place.kind in ("physical-offset", "lengths", "truncated"):
                reason = "torn"
            elif place.kind == "magic-code" and after <= -(-place.position // _PAGE_SIZE) * _PAGE_SIZE:
                reason = "leftover"
        return Damage(self._start_offset + place.position, after - place.position, reason, tail)

    def _nothing_follows(self) -> bool:
        """Whether all later files are zeros: allocated ahead by the broker, or empty."""
        for mapped in self._later:
            with InputFile(mapped.path) as file:
                if file.next_data(0, file.size) < file.size:
                    return False
        return True


def _owned(event: Event, start: int, stop: int) -> Event | None:
    """The part of an event that begins in the range."""
    if not isinstance(event, Frames):
        return event if start <= event.physical_offset < stop else None
    if start <= event.physical_offset and event.physical_offset + event.size <= stop:
        return event
    offsets = event.positions + event.block.start_offset
    low, high = np.searchsorted(offsets, (start, stop))
    return event[int(low) : int(high)] if high > low else None
