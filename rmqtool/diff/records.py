"""The two sides of a comparison, and what stands where their logs differ: another record, damage, or mere filler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, Literal

import numpy as np
import pyarrow.compute as pc

from rmqtool.base.errors import RmqtoolError, UnreadableError
from rmqtool.base.mapped_files import MappedFile, file_at
from rmqtool.formats.message import BLANK_SIZE
from rmqtool.scan.block import Blank
from rmqtool.scan.columns import record_batches
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.inert_records import LOST_TOPIC
from rmqtool.scan.message_rows import message_dicts
from rmqtool.scan.reader import Event, scan_files
from rmqtool.scan.redaction import Redaction
from rmqtool.store.commit_log import data_end, log_range, written_end
from rmqtool.store.dledger_node import Entry, committed_index, entry_of
from rmqtool.store.missing import missing_log
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.tiered import Tier, Unreadable, tier_of

Name = Literal["a", "b"]
SIDES: tuple[Name, Name] = ("a", "b")

_PAGE = 4096  # bytes; the sizes that are set for log files are multiples of it


@dataclass(frozen=True)
class Node:
    """A node of a DLedger group: its name, its last entry, and up to which Raft index its checkpoint says committed."""

    name: str
    last: Entry | None
    committed: int | None

    @property
    def uncommitted(self) -> int:
        """Entries after the committed one; 0 where the checkpoint does not say."""
        return 0 if self.last is None or self.committed is None else max(0, self.last.index - self.committed)


@dataclass(frozen=True)
class Side:
    """A store and the range of its log, whose end is past the last whole record; bytes.

    `data_end` is past the last byte that is not zero. `unread` collects errors, and more than one step adds to it.
    """

    name: Name
    snapshot: Snapshot
    files: tuple[MappedFile, ...]
    start: int
    end: int
    data_end: int
    node: Node | None = None
    unread: list[RmqtoolError] = field(default_factory=list)
    redaction: Redaction | None = None

    def shown(self, message: dict[str, Any]) -> dict[str, Any]:
        """A message without what of it is not to be shown."""
        redacted: dict[str, Any] = self.redaction.value(message) if self.redaction else message
        return redacted

    def leave_tier_out(self) -> None:
        """Say that messages that only the tier has are not compared."""
        if isinstance(tier_of(self.snapshot.store), Tier):
            self.unread.append(RmqtoolError(_TIER, file=self.snapshot.store.root, hint=_TIER_HINT))

    @property
    def cut_files(self) -> list[MappedFile]:
        """The files of a size that no broker gives them."""
        size = max((file.size for file in self.files), default=0)
        is_odd = len(self.files) == 1 and bool(size % _PAGE)
        return [file for file in self.files if is_odd or file.size != size]

    @property
    def is_empty(self) -> bool:
        """Whether the log holds no record."""
        return self.end <= self.start


_TIER = "messages that only the tier of this store has are not compared"
_TIER_HINT = "leave out --by-message to compare them; rmqtool export --tiered-path exports them"


def side_of(name: Name, snapshot: Snapshot, redaction: Redaction | None = None) -> Side:
    """Measure the log as it is now; of a running broker's only what is whole. Raises UnreadableError."""
    missing = missing_log(snapshot)
    unread: list[RmqtoolError] = [missing] if missing else []
    if isinstance(tier := tier_of(snapshot.store), Unreadable):
        hint = f"rmqtool diff takes --tiered-path-{name}"
        unread.append(RmqtoolError(f"tiered storage is not read: {tier.why}", file=snapshot.store.root, hint=hint))
    files, reading = snapshot.log.files, snapshot.reading
    start = files[0].start_offset if files else 0
    node = _node_of(snapshot)
    if snapshot.holder is not None:
        end = written_end(files, reading=reading) if files else start
        return Side(name, snapshot, files, start, end, end, node, unread, redaction)
    end = log_range(files, reading=reading).max_offset if files else start
    return Side(name, snapshot, files, start, end, max(end, data_end(files, reading)), node, unread, redaction)


def _node_of(snapshot: Snapshot) -> Node | None:
    directory = snapshot.store.dledger_directory
    if directory is None:
        return None
    last = log_range(snapshot.log.files, reading=snapshot.reading).last_record_offset
    entry = entry_of(snapshot.log.files, last) if last is not None else None
    return Node(directory.name, entry, committed_index(directory))


PlaceKind = Literal["message", "header", "blank", "damage", "nothing"]

MAX_EXTENTS = 100
"""Extents of which the differences are kept."""

MAX_IN_EXTENT = 10
"""Differences of one extent."""

_SHOWN = ("topic", "queue_id", "queue_offset", "unique_key", "store_timestamp", "body_crc_ok")


@dataclass(frozen=True)
class Place:
    """What covers an offset in one log; `message` are a few fields of a record, `reason` is that of damage.

    A header is that of a DLedger entry, whose message stands after it.
    """

    kind: PlaceKind
    offset: int
    size: int = 0
    message: dict[str, Any] | None = None
    reason: str | None = None

    @property
    def end(self) -> int:
        """Physical offset after it."""
        return self.offset + self.size

    @property
    def is_inert(self) -> bool:
        """Whether it is a dummy record, which a repair or a salvage has put in place of what was lost."""
        topic = self.message["topic"].encode() if self.message else b""
        return bool(topic) and LOST_TOPIC.startswith(topic)

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

    @property
    def is_filler(self) -> bool:
        """Whether only bytes after a blank's first eight differ, which nobody reads, or a header of the same entry."""
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

    @property
    def both_lost(self) -> bool:
        """Whether dummy records stand in one log where the other is damaged."""
        return any(each.damaged and (each.a.is_inert or each.b.is_inert) for each in self.differences)

    @cached_property
    def damaged(self) -> tuple[Name, ...]:
        """The sides that are damaged somewhere."""
        return tuple(name for name in SIDES if any(name in difference.damaged for difference in self.differences))


def first_place(side: Side, start: int, stop: int) -> Place:
    """What one log holds first between two offsets, but for the end of a file; nothing where there is nothing else."""
    events = _events(side, start, stop) if start < stop else iter(())
    event = next((event for event in events if not isinstance(event, Blank)), None)
    return Place("nothing", start) if event is None else place_in(side, event, event.physical_offset)


def place_in(side: Side, event: Event, offset: int) -> Place:
    """The place that an event of a scan has at an offset before its end."""
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
    shown = side.shown({name: message.get(name) for name in _SHOWN})
    return Place("message", message["physical_offset"], message["message_size"], shown)


def _events(side: Side, start: int, stop: int) -> Iterator[Event]:
    """A scan; one that comes to a file that cannot be read ends there."""
    try:
        yield from scan_files(side.files, start, stop, side.snapshot.reading)
    except UnreadableError as error:
        side.unread.append(error)


@dataclass(frozen=True)
class Tail:
    """The messages of one log from `start` to before `end`, physical offsets; `topics` counts them by topic.

    Where it `is_older` the first was stored before the one in front of it. So is what a slave had before it was cut:
    bytes after the place where it goes on stay on the disk, and a start takes them for messages.
    """

    start: int
    end: int
    topics: tuple[tuple[str, int], ...] = ()
    is_older: bool = False

    @property
    def messages(self) -> int:
        """How many they are."""
        return sum(count for _, count in self.topics)

    @property
    def size(self) -> int:
        """Bytes of the log."""
        return self.end - self.start


class Tally:
    """Counts the messages that begin from `start` on, by topic; the first `limit` are listed, as JSON has them."""

    def __init__(self, side: Side, start: int, limit: int = 0) -> None:
        self._side = side
        self._start = start
        self._limit = limit
        self._topics: Counter[str] = Counter()
        self._stored_before: int | None = None  # of the message in front, epoch ms
        self._first_stored: int | None = None
        self.listed: list[dict[str, Any]] = []

    def add(self, run: RecordRun) -> None:
        """Count the messages of a run, each run of the log once."""
        first = int(np.searchsorted(run.physical_offsets, self._start))
        times = run.headers.field("store_timestamp")
        if first:
            self._stored_before = int(times[first - 1])
        if first == len(run):
            return
        if self._first_stored is None:
            self._first_stored = int(times[first])
        run = run[first:] if first else run
        (batch,) = record_batches(run, ["topic"])
        counts = pc.value_counts(batch.column(0)).to_pylist()
        self._topics.update({entry["values"]: entry["counts"] for entry in counts})
        if len(self.listed) < self._limit:
            mapped = file_at(self._side.files, run.physical_offset)
            file = self._side.snapshot.store.relative(mapped.path) if mapped else ""
            first_ones = islice(message_dicts(run, file), self._limit - len(self.listed))
            self.listed += map(self._side.shown, first_ones)

    @property
    def tail(self) -> Tail:
        """What was counted, with the log's end as its end."""
        before, first = self._stored_before, self._first_stored
        is_older = before is not None and first is not None and first < before
        return Tail(self._start, max(self._start, self._side.end), tuple(self._topics.most_common()), is_older)
