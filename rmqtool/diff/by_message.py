"""Messages of two stores, wherever they stand: as multisets, or those of a DLedger log and a plain one in order.

Each log is read once, both at the same time. Where both together have more messages than memory has room for,
multisets are read several times, each time for another part of the messages, chosen by a hash. In order, messages are
held against each other one by one, without the headers of entries and without physical offsets; where they differ, the
next one that both have is looked for: until it is found what was read of both stays in memory, 20 bytes a message.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from zlib_ng import zlib_ng

from rmqtool.base.errors import Exit, RmqtoolError
from rmqtool.base.limits import memory_is_short
from rmqtool.broker.queue_numbers import TopicNumbers
from rmqtool.diff.records import MAX_EXTENTS, SIDES, Difference, Name, Parting, Side, first_place
from rmqtool.formats.layout import position_of
from rmqtool.formats.message import PREFIX_DTYPE, TRANSACTION_PREPARED
from rmqtool.formats.properties import UNIQUE_KEY
from rmqtool.rules.system_topics import FILLED_BY_BROKERS
from rmqtool.scan.block import Damage
from rmqtool.scan.filters import Filters
from rmqtool.scan.frames import RecordRun, sound_prefix
from rmqtool.scan.message_rows import message_dicts
from rmqtool.scan.properties import read_properties
from rmqtool.scan.reader import scan_files
from rmqtool.scan.single_record import record_at
from rmqtool.scan.windows import WINDOW, mask_words, words_of

IDENTITY_DTYPE = np.dtype(
    [
        ("key", "u8"),  # hash of topic and unique key
        ("whole", "u8"),  # hash of these and of the CRC of the stored body
        ("topic", "i4"),  # number of the topic in its log
        ("physical_offset", "i8"),
    ]
)

Identities = NDArray[np.void]
"""Rows of IDENTITY_DTYPE, one for each message, in the order of the log."""

_FACTORS = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9], dtype=np.uint64)
_SHIFTS = np.array([32, 29], dtype=np.uint64)


class IdentityReader:
    """Reads the identities of one log's messages; `topics` are the names by number."""

    def __init__(self) -> None:
        self._numbers = TopicNumbers()
        self.topics = self._numbers.topics
        self._hashes = np.empty(0, dtype=np.uint64)

    def topic_numbers(self, frames: RecordRun) -> NDArray[np.int32]:
        """The number in `topics` of each record's topic."""
        return self._numbers.of(frames)

    def read(self, frames: RecordRun) -> Identities:
        """The identities of a run."""
        numbers = self._numbers.of(frames)
        identities = np.empty(len(frames), dtype=IDENTITY_DTYPE)
        identities["key"] = mixed(self._topic_hashes()[numbers], _unique_keys(frames))
        identities["whole"] = mixed(identities["key"], frames.headers.field("body_crc").astype(np.uint64))
        identities["topic"], identities["physical_offset"] = numbers, frames.physical_offsets
        return identities

    def _topic_hashes(self) -> NDArray[np.uint64]:
        """A hash of each topic's name, the same in every log."""
        new = [_hash(name.encode("utf-8", "surrogatepass")) for name in self.topics[len(self._hashes) :]]
        if new:
            self._hashes = np.append(self._hashes, np.array(new, dtype=np.uint64))
        return self._hashes


def _unique_keys(frames: RecordRun) -> NDArray[np.uint64]:
    """A hash of each unique key, in 64 bits; that of nothing where there is none."""
    keys = read_properties(frames).texts(UNIQUE_KEY.encode())
    hashes: NDArray[np.uint64] = keys.sizes.astype(np.uint64)
    for word in mask_words(words_of(keys.data, keys.starts, WINDOW), np.minimum(keys.sizes, WINDOW)).T:
        hashes = mixed(hashes, word)
    for row in np.flatnonzero(keys.sizes > WINDOW).tolist():
        hashes[row] = _hash(keys.text(row))
    return hashes


def mixed(hashes: NDArray[np.uint64], words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The hashes with one word more each: multiplied and shifted so that each bit counts in all."""
    mixed: NDArray[Any] = hashes ^ words
    for factor, shift in zip(_FACTORS, _SHIFTS, strict=True):
        mixed = mixed * factor
        mixed ^= mixed >> shift
    return mixed


def _hash(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")


MessageVerdict = Literal["same", "unproven", "a-has-more", "b-has-more", "differs"]

MAX_HELD = 1 << (20 if memory_is_short() else 23)
"""Messages of each log that are in memory at once, 28 bytes each."""

Progress = Callable[[int], None]
"""Called with the number of bytes more of either log that are read."""


@dataclass
class Surplus:
    """The messages that one store has and the other has not, or has fewer times: by topic, and the first as listed.

    `repeated` of them the other has too, but not as often; for `other_body` it has the key with another body.
    """

    topics: dict[str, int] = field(default_factory=dict)
    repeated: int = 0
    other_body: int = 0
    first: list[int] = field(default_factory=list)  # physical offsets
    listed: list[dict[str, Any]] = field(default_factory=list)

    @property
    def messages(self) -> int:
        """All of them."""
        return sum(self.topics.values())

    @property
    def by_size(self) -> list[tuple[str, int]]:
        """The topics with their messages, most messages first."""
        return sorted(self.topics.items(), key=lambda item: (-item[1], item[0]))


@dataclass(frozen=True)
class Counts:
    """What one log holds: messages that are compared, those left out (None: not counted), bytes that are no record."""

    messages: int = 0
    left_out: int | None = 0
    damaged: int = 0


@dataclass(frozen=True)
class MessageComparison:
    """What was found; `in_both` counts messages that both have."""

    a: Side
    b: Side
    counts: dict[Name, Counts]
    in_both: int
    only: dict[Name, Surplus]
    engine: str = "local"

    @property
    def verdict(self) -> MessageVerdict:
        """What the stores are to each other."""
        match bool(self.only["a"].messages), bool(self.only["b"].messages):
            case True, True:
                return "differs"
            case True, False:
                return "a-has-more"
            case False, True:
                return "b-has-more"
        is_whole = not self.unread and not any(counts.damaged for counts in self.counts.values())
        return "same" if is_whole else "unproven"

    @property
    def unread(self) -> list[RmqtoolError]:
        """The errors of what could not be read."""
        return [*self.a.unread, *self.b.unread]

    @property
    def status(self) -> Exit:
        """The exit status."""
        return {"same": Exit.OK, "unproven": Exit.LOSSY}.get(self.verdict, Exit.FINDINGS)


def compares_topic(topic: str, filters: Filters) -> bool:
    """Whether messages of a topic are compared: one that brokers fill themselves only where it is asked for by name."""
    is_named = topic in filters.topics or not re.search(FILLED_BY_BROKERS, topic)
    return is_named and topic in filters.topic_choice


def compare_messages(a: Side, b: Side, filters: Filters, limit: int, progress: Progress) -> MessageComparison:
    """Compare the messages that pass `filters`; at most `limit` that only one side has are listed of each.

    Prepared and rolled back messages are left out. Raises UnreadableError.
    """
    logs = _Log(a, filters, progress), _Log(b, filters, progress)
    only: dict[Name, Surplus] = {"a": Surplus(), "b": Surplus()}
    in_both = part = 0
    with ThreadPoolExecutor(1) as pool:
        while part < max(log.parts for log in logs):
            other = pool.submit(logs[1].read, part)
            found, others = logs[0].read(part), other.result()
            parts = max(log.parts for log in logs)
            in_both += _compare_part(_of_part(found, part, parts), _of_part(others, part, parts), logs, only, limit)
            part += 1
    list_first(a, only["a"])
    list_first(b, only["b"])
    counts: dict[Name, Counts] = {"a": logs[0].counts, "b": logs[1].counts}
    return MessageComparison(a, b, counts, in_both, only)


class _Log:
    """Reads the identities of one log, of one of `parts` at a time."""

    def __init__(self, side: Side, filters: Filters, progress: Progress) -> None:
        self.parts = 1
        self.counts = Counts()
        self.reader = IdentityReader()
        self._side = side
        self._filters = filters
        self._progress = progress

    def read(self, part: int) -> Identities:
        """The identities of a part. The first reading counts, and makes more parts where memory has room for fewer."""
        chunks: list[Identities] = []
        messages = left_out = damaged = held = 0
        for event in scan_files(self._side.files, self._side.start, self._side.end, self._side.snapshot.reading):
            self._progress(event.size)
            if isinstance(event, Damage):
                damaged += 0 if event.tail else event.size
            if not isinstance(event, RecordRun):
                continue
            frames = self._compared(event)
            left_out += len(event) - (len(frames) if frames else 0)
            if frames is None:
                continue
            messages += len(frames)
            chunks.append(_of_part(self.reader.read(frames), part, self.parts))
            held += len(chunks[-1])
            while part == 0 and held > MAX_HELD:
                self.parts *= 2
                chunks = [_of_part(np.concatenate(chunks), 0, self.parts)]
                held = len(chunks[0])
        if part == 0:
            self.counts = Counts(messages, left_out, damaged)
        return np.concatenate(chunks) if chunks else np.empty(0, IDENTITY_DTYPE)

    def _compared(self, frames: RecordRun) -> RecordRun | None:
        """The records of a run that are compared."""
        low, high = np.searchsorted(frames.physical_offsets, (self._filters.start, self._filters.stop))
        chosen = self._filters.select(frames[int(low) : int(high)]) if high > low else None
        if chosen is None:
            return None
        numbers = self.reader.topic_numbers(chosen)
        takes = np.array([compares_topic(topic, self._filters) for topic in self.reader.topics])
        kept = takes[numbers] & ((chosen.headers.field("sys_flag") & TRANSACTION_PREPARED) == 0)
        if kept.all():
            return chosen
        return sound_prefix(chosen.block, chosen.positions[kept]) if kept.any() else None


def _of_part(identities: Identities, part: int, parts: int) -> Identities:
    """Those of one part, of a power of two of them."""
    if parts == 1:
        return identities
    kept: Identities = identities[(identities["key"] & np.uint64(parts - 1)) == part]
    return kept


def _compare_part(a: Identities, b: Identities, logs: tuple[_Log, _Log], only: dict[Name, Surplus], limit: int) -> int:
    """Add what only one side has to `only`; the number of messages that both have."""
    groups = [_grouped(each) for each in (a, b)]
    sides: tuple[tuple[Name, int], ...] = (("a", 0), ("b", 1))
    surplus: dict[Name, Identities] = {}
    for name, number in sides:
        rows, keys, nth = groups[number]
        _, other_keys, _ = groups[1 - number]
        low = np.searchsorted(other_keys, keys, "left")
        in_other = np.searchsorted(other_keys, keys, "right") - low
        is_more = nth >= in_other
        surplus[name] = rows[is_more]
        only[name].repeated += int((is_more & (in_other > 0)).sum())
    for name, number in sides:
        mine, others = surplus[name], surplus["b" if name == "a" else "a"]
        only[name].other_body += int(np.isin(mine["key"], others["key"]).sum())
        numbers, counts = np.unique(mine["topic"], return_counts=True)
        for topic, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            text = logs[number].reader.topics[topic]
            only[name].topics[text] = only[name].topics.get(text, 0) + count
        offsets = np.sort(mine["physical_offset"])[:limit].tolist()
        only[name].first = sorted([*only[name].first, *offsets])[:limit]
    return len(a) - len(surplus["a"])


def _grouped(identities: Identities) -> tuple[Identities, NDArray[Any], NDArray[np.intp]]:
    """The messages sorted by what they are, that as a column, and how many equal ones stand before each in the log."""
    rows = identities[np.argsort(identities["whole"], kind="stable")]
    keys = np.ascontiguousarray(rows["whole"])
    starts = np.append(True, keys[1:] != keys[:-1])[: len(rows)]
    firsts = np.flatnonzero(starts)
    nth = np.arange(len(rows)) - np.repeat(firsts, np.diff(np.append(firsts, len(rows))))
    return rows, keys, nth


def list_first(side: Side, surplus: Surplus) -> None:
    """Read the first messages of a surplus; raises UnreadableError."""
    runs = (record_at(side.files, offset) for offset in surplus.first)
    surplus.listed = [side.shown(next(message_dicts(run, ""))) for run in runs if run is not None]


_OFFSET_AT = position_of(PREFIX_DTYPE, "physical_offset")  # in a message, bytes
_OFFSET_END = _OFFSET_AT + 8
_FIRST_WINDOW = 1 << 14  # messages in which the next common one is looked for; doubled until it is found
_ROW_DTYPE = np.dtype([("identity", "u8"), ("physical_offset", "i8"), ("size", "i4")])

Rows = NDArray[np.void]
"""Rows of _ROW_DTYPE, one for each message, in the order of the log."""


@dataclass
class Alignment:
    """How many messages both have in the same order, and where the first begins and the last ends in each log."""

    messages: int = 0
    starts: dict[Name, int] = field(default_factory=dict)
    ends: dict[Name, int] = field(default_factory=dict)
    before: dict[Name, int] = field(default_factory=lambda: {"a": 0, "b": 0})
    """Messages before the first common one: the other log has lost them at its beginning, or never had them."""


def align(a: Side, b: Side, progress: Progress) -> tuple[Alignment, Parting]:
    """Hold the messages of two logs against each other; `progress` gets the bytes of A that are done.

    Raises UnreadableError.
    """
    return _Aligner(_OrderedLog(a, progress), _OrderedLog(b)).aligned()


class _OrderedLog:
    """Messages of one log that are read and not yet compared; `damage` stands after so many messages."""

    def __init__(self, side: Side, progress: Progress | None = None) -> None:
        self.side = side
        self.rows: Rows = np.empty(0, _ROW_DTYPE)
        self.done = 0  # messages that were taken
        self.end = side.start  # of the last message that was taken
        self.damage: deque[int] = deque()
        self.is_over = False
        self._progress = progress
        self._runs = self._read()

    def fill(self, count: int) -> bool:
        """Have so many messages, or all that there are; False without one."""
        parts, held = [self.rows], len(self.rows)
        while held < count and not self.is_over:
            run = next(self._runs, None)
            self.is_over = run is None
            if run is not None:
                parts.append(run)
                held += len(run)
        if len(parts) > 1:
            self.rows = np.concatenate(parts)
        return bool(len(self.rows))

    def take(self, count: int) -> None:
        """Be done with so many messages."""
        if count:
            last = self.rows[count - 1]
            self.end = int(last["physical_offset"] + last["size"])
            self.rows = self.rows[count:]
            self.done += count

    def between(self, row: int, next_row: int) -> tuple[int, int]:
        """Physical offsets after the message before a row, and where a later row begins, or the log ends."""
        before = self.rows[row - 1] if row else None
        start = self.end if before is None else int(before["physical_offset"] + before["size"])
        is_there = next_row < len(self.rows)
        return start, int(self.rows[next_row]["physical_offset"]) if is_there else self.side.end

    def damage_before(self, row: int) -> list[int]:
        """The rows up to this one before which damage stands, which is done with then."""
        rows = []
        while self.damage and self.damage[0] - self.done <= row:
            rows.append(self.damage.popleft() - self.done)
        return rows

    def _read(self) -> Iterator[Rows]:
        count = 0
        for event in scan_files(self.side.files, stop=self.side.end, reading=self.side.snapshot.reading):
            if self._progress:
                self._progress(event.physical_offset + event.size - self.side.start)
            if isinstance(event, Damage) and not event.tail:
                self.damage.append(count)
            if isinstance(event, RecordRun):
                rows = _rows_of(event)
                count += len(rows)
                yield rows


@dataclass
class _Aligner:
    """Two logs, and what was found so far."""

    a: _OrderedLog
    b: _OrderedLog
    found: Alignment = field(default_factory=Alignment)
    differences: list[Difference] = field(default_factory=list)
    count: int = 0

    def aligned(self) -> tuple[Alignment, Parting]:
        """Go through both."""
        while self.a.fill(1) and self.b.fill(1):
            common = self._common_rows()
            if not common and not self._skip_to_common():
                break
            self._take(common)
        both_go_on = len(self.a.rows) and len(self.b.rows) and self.found.messages
        rests = (0, len(self.a.rows)), (0, len(self.b.rows))
        diverged = self._difference(*rests) if both_go_on else None
        differences = [*self.differences, *([diverged] if diverged else [])]
        return self.found, Parting(tuple(differences), self.count + bool(diverged), diverged)

    def _common_rows(self) -> int:
        """How many messages at the head of both are the same."""
        count = min(len(self.a.rows), len(self.b.rows))
        differs = self.a.rows["identity"][:count] != self.b.rows["identity"][:count]
        return int(np.argmax(differs)) if differs.any() else count

    def _take(self, count: int) -> None:
        """Take common messages, with what damage stands between them."""
        if not count:
            return
        behind_damage = {row for log in (self.a, self.b) for row in log.damage_before(count - 1)}
        for row in sorted(behind_damage):
            self._add((row, row), (row, row))
        found = self.found
        for name, log in zip(SIDES, (self.a, self.b), strict=True):
            if not found.messages:
                found.starts[name] = int(log.rows[0]["physical_offset"])
            log.take(count)
            found.ends[name] = log.end
        found.messages += count

    def _skip_to_common(self) -> bool:
        """Skip to the next message that both have; False where there is none."""
        window = _FIRST_WINDOW
        while True:
            for log in (self.a, self.b):
                log.fill(window)
            both, first, second = np.intersect1d(self.a.rows["identity"], self.b.rows["identity"], return_indices=True)
            if len(both):
                nearest = int(np.argmin(first))
                self._skip(int(first[nearest]), int(second[nearest]))
                return True
            if self.a.is_over and self.b.is_over:
                return False
            window *= 2

    def _skip(self, row_a: int, row_b: int) -> None:
        for name, log, row in zip(SIDES, (self.a, self.b), (row_a, row_b), strict=True):
            log.damage_before(row)
            if not self.found.messages:
                self.found.before[name] += row
        if self.found.messages:
            self._add((0, row_a), (0, row_b))
        self.a.take(row_a)
        self.b.take(row_b)

    def _add(self, rows_a: tuple[int, int], rows_b: tuple[int, int]) -> None:
        """Note a difference between two rows of each."""
        self.count += 1
        if len(self.differences) < MAX_EXTENTS:
            self.differences.append(self._difference(rows_a, rows_b))

    def _difference(self, rows_a: tuple[int, int], rows_b: tuple[int, int]) -> Difference:
        a, b = (first_place(log.side, *log.between(*rows)) for log, rows in ((self.a, rows_a), (self.b, rows_b)))
        return Difference(a.offset, a, b, is_moved=True)


def _rows_of(run: RecordRun) -> Rows:
    """The messages of a run."""
    rows = np.empty(len(run), _ROW_DTYPE)
    rows["physical_offset"], rows["size"] = run.physical_offsets, run.message_sizes
    view, crc = run.block.view, zlib_ng.crc32
    ends = (run.positions + run.message_sizes).tolist()
    crcs = [
        crc(view[start + _OFFSET_END : end], crc(view[start : start + _OFFSET_AT]))
        for start, end in zip(run.positions.tolist(), ends, strict=True)
    ]
    identities = np.array(crcs, np.uint64)
    for name in ("queue_offset", "store_timestamp"):
        identities = mixed(identities, run.headers.field(name).astype(np.uint64))
    rows["identity"] = identities
    return rows
