"""What stands where two logs differ: another record, damage of one side, or filler that means nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from rmqtool.base.errors import UnreadableError
from rmqtool.diff.log_bytes import DifferingExtent, first_difference
from rmqtool.diff.side import SIDES, Name, Side
from rmqtool.formats.message import BLANK_SIZE
from rmqtool.scan.events import Blank
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.inert_records import LOST_TOPIC
from rmqtool.scan.message_rows import message_dicts
from rmqtool.scan.reader import LONGEST_BLANK, Event, scan_files
from rmqtool.scan.redaction import Redaction

PlaceKind = Literal["message", "header", "blank", "damage", "nothing"]

MAX_EXTENTS = 100
"""Extents of which the records are read, besides the last one."""

_IN_EXTENT = 10  # differences of one extent
_SHOWN = ("topic", "queue_id", "queue_offset", "unique_key", "store_timestamp", "body_crc_ok")


@dataclass(frozen=True)
class Place:
    """What covers an offset in one log; `message` are a few fields of a record, `reason` is that of damage.

    A header is that of a DLedger entry, whose message stands behind it.
    """

    kind: PlaceKind
    offset: int
    size: int = 0
    message: dict[str, Any] | None = None
    reason: str | None = None

    @property
    def end(self) -> int:
        """Physical offset behind it."""
        return self.offset + self.size

    @property
    def is_inert(self) -> bool:
        """Whether it is an inert record, which a repair or a salvage has put in place of what was lost."""
        topic = self.message["topic"].encode() if self.message else b""
        return bool(topic) and LOST_TOPIC.startswith(topic)

    def redacted(self, redaction: Redaction) -> Place:
        """The same without what of the message is not to be shown."""
        return replace(self, message=redaction.value(self.message))

    @property
    def is_damaged(self) -> bool:
        """Whether it shows by itself that it is not what was written."""
        return self.kind == "damage" or bool(self.message and not self.message["body_crc_ok"])


@dataclass(frozen=True)
class Difference:
    """What the two logs hold at `offset`, the first byte that differs.

    Where it `is_moved` offsets of B are not those of A, of which `offset` is one.
    """

    offset: int
    a: Place
    b: Place
    is_moved: bool = False

    def redacted(self, redaction: Redaction) -> Difference:
        """The same without what of the messages is not to be shown."""
        return replace(self, a=self.a.redacted(redaction), b=self.b.redacted(redaction))

    @property
    def is_filler(self) -> bool:
        """Whether only bytes behind a blank's first eight differ, which nobody reads, or a header of the same entry."""
        if self.a.kind != self.b.kind or (self.a.offset, self.a.size) != (self.b.offset, self.b.size):
            return False
        return self.a.kind == "header" or (self.a.kind == "blank" and self.offset >= self.a.offset + BLANK_SIZE)

    @property
    def damaged(self) -> tuple[Name, ...]:
        """The sides that are damaged here."""
        return tuple(name for name, place in zip(SIDES, (self.a, self.b), strict=True) if place.is_damaged)

    @property
    def start(self) -> int:
        """Where the first of the two begins."""
        return self.a.offset if self.is_moved else min(self.a.offset, self.b.offset)


@dataclass(frozen=True)
class Parting:
    """The differences, of which the first are listed, and from which on the logs never agree again, if so."""

    differences: tuple[Difference, ...] = ()
    extents: int = 0
    diverged: Difference | None = None

    def redacted(self, redaction: Redaction) -> Parting:
        """The same without what of messages is not to be shown."""
        differences = tuple(difference.redacted(redaction) for difference in self.differences)
        diverged = self.diverged and self.diverged.redacted(redaction)
        return replace(self, differences=differences, diverged=diverged)

    @property
    def both_lost(self) -> bool:
        """Whether inert records stand in one log where the other is damaged."""
        return any(each.damaged and (each.a.is_inert or each.b.is_inert) for each in self.differences)

    @cached_property
    def damaged(self) -> tuple[Name, ...]:
        """The sides that are damaged somewhere."""
        return tuple(name for name in SIDES if any(name in difference.damaged for difference in self.differences))


def parting_of(a: Side, b: Side, extents: Sequence[DifferingExtent], end: int, *, all_compared: bool = True) -> Parting:
    """Read the records of the extents; `end` is where the common range ends.

    Logs of one broker agree byte by byte up to where they part, and never again. Where they do agree again, one of
    them was changed afterwards; that shows only where the bytes between the extents were `all_compared`.
    """
    found: list[Difference] = []
    diverged: Difference | None = None
    known_to = end
    for number in (*range(len(extents))[:MAX_EXTENTS], *range(len(extents))[MAX_EXTENTS:][-1:]):
        known_to = extents[number - 1].end if number else extents[0].start
        for difference in _differences_in(a, b, extents[number]):
            if diverged and all_compared and _agree(a, b, known_to, difference.start):
                diverged = None
            if diverged is None and not difference.damaged:
                diverged = difference
            found.append(difference)
            known_to = max(difference.a.end, difference.b.end)
        known_to = max(known_to, extents[number].end)
    if diverged and all_compared and _agree(a, b, known_to, end):
        diverged = None
    return Parting(tuple(found), len(extents) if found else 0, diverged)


def _differences_in(a: Side, b: Side, extent: DifferingExtent) -> Iterator[Difference]:
    """The first differences of one extent, without filler."""
    places = _Places(a, extent), _Places(b, extent)
    offset: int | None = extent.start
    count = 0
    while offset is not None and offset < extent.end and count < _IN_EXTENT:
        difference = Difference(offset, places[0].at(offset), places[1].at(offset))
        if not difference.is_filler:
            count += 1
            yield difference
        behind = max(difference.a.end, difference.b.end, offset + 1)
        offset = first_difference(a, b, behind, extent.end)


class _Places:
    """What covers offsets that ascend, from one scan of one log."""

    def __init__(self, side: Side, extent: DifferingExtent) -> None:
        # A record that covers the extent's beginning begins before it.
        start = max(side.start, extent.start - LONGEST_BLANK)
        header_size = max((file.header_size for file in side.files), default=0)  # the message is behind it
        self._events = _events(side, start, max(extent.end, extent.start + 1) + header_size)
        self._place = Place("nothing", extent.start)
        self._event: Event | None = None

    def at(self, offset: int) -> Place:
        """The place that covers `offset`; nothing where neither a record, a blank nor damage does."""
        while self._event is None or self._event.physical_offset + self._event.size <= offset:
            self._event = next(self._events, None)
            if self._event is None:
                return Place("nothing", offset)
        return _place(self._event, offset)


def first_place(side: Side, start: int, stop: int) -> Place:
    """What one log holds first between two offsets, but for the end of a file; nothing where there is nothing else."""
    events = _events(side, start, stop) if start < stop else iter(())
    event = next((event for event in events if not isinstance(event, Blank)), None)
    return Place("nothing", start) if event is None else _place(event, event.physical_offset)


def _place(event: Event, offset: int) -> Place:
    start = event.begin if isinstance(event, RecordRun) else event.physical_offset
    if start > offset:
        return Place("nothing", offset, start - offset)
    if isinstance(event, Blank):
        return Place("blank", event.physical_offset, event.size)
    if not isinstance(event, RecordRun):
        return Place("damage", event.physical_offset, event.size, reason=event.reason)
    header_size = event.header_size
    row = int(np.searchsorted(event.physical_offsets - header_size, offset, "right")) - 1
    begin = int(event.physical_offsets[row])
    if offset < begin:
        return Place("header", begin - header_size, header_size)
    message = next(message_dicts(event[row : row + 1], ""))
    shown = {name: message.get(name) for name in _SHOWN}
    return Place("message", message["physical_offset"], message["message_size"], shown)


def _agree(a: Side, b: Side, start: int, end: int) -> bool:
    """Whether a record begins at the same offset in both logs, which have the same bytes from `start` to `end`."""
    offsets = [_first_offsets(side, start, end) for side in (a, b)]
    return bool(np.intersect1d(*offsets).size)


def _first_offsets(side: Side, start: int, end: int) -> Any:
    """Where the first records from `start` on begin that end by `end`."""
    for event in _events(side, start, end) if start < end else ():
        if isinstance(event, RecordRun):
            return event.physical_offsets[event.physical_offsets + event.message_sizes <= end]
    return np.array([], np.int64)


def _events(side: Side, start: int, stop: int) -> Iterator[Event]:
    """A scan; one that comes to a file that cannot be read ends there."""
    try:
        yield from scan_files(side.files, start, stop, side.snapshot.reading)
    except UnreadableError as error:
        side.unread.append(error)
