"""One question for messages, by what people have of them, and its answer with notes on what was not found.

By their content messages are found in all records of the log, in its order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import MappedFile, file_at
from rmqtool.query.by_key import KeyQuery, by_any_id, by_key, why_not_found
from rmqtool.query.by_place import Message, Notes, by_offset, by_queue_offset
from rmqtool.scan.block import Damage
from rmqtool.scan.columns import record_batches
from rmqtool.scan.filters import Filters
from rmqtool.scan.frames import RecordRun, sound_prefix
from rmqtool.scan.message_rows import BodyChoice, message_dicts
from rmqtool.scan.properties import read_properties
from rmqtool.scan.reader import scan_files
from rmqtool.scan.single_record import find_next, single_record_at
from rmqtool.store.commit_log import readable_end
from rmqtool.store.index_files import FOREVER
from rmqtool.store.missing import why_nothing
from rmqtool.store.snapshot import Snapshot

By = Literal["offset", "msg-id", "queue-offset", "unique-key", "key", "time", "scan"]
"""What messages are found by: the names of the options of `rmqtool query`."""

Progress = Callable[[int, int], None]
"""Is called with the bytes that are read, and with all there are to read."""


@dataclass(frozen=True)
class Lookup:
    """A question for messages.

    `number` is the physical offset, the queue offset in `queue`, or the time, epoch ms; `text` the id or unique key.
    Keys, and what else has to hold, are in `filters`; `conditions` and `body_contains` count for time and scan only.
    """

    by: By
    number: int = 0
    text: str = ""
    queue: tuple[str, int] = ("", 0)
    filters: Filters = field(default_factory=Filters)
    conditions: tuple[Condition, ...] = ()
    body_contains: bytes | None = None
    limit: int | None = None
    hash_matches: bool = False


def look_up(
    snapshot: Snapshot, lookup: Lookup, body: BodyChoice, notes: Notes, progress: Progress | None = None
) -> Iterator[Message]:
    """The messages; `notes` say in the end why there are none, or what may hide more. Only a scan has a progress."""
    has_message = False
    for message in _found(snapshot, lookup, body, notes, progress):
        has_message = True
        yield message
    if not has_message and not notes.lines:
        notes.add(_why_nothing(snapshot, lookup))


def _found(
    snapshot: Snapshot, lookup: Lookup, body: BodyChoice, notes: Notes, progress: Progress | None
) -> Iterator[Message]:
    match lookup.by:
        case "offset":
            return by_offset(snapshot, lookup.number, body, notes)
        case "msg-id":
            return by_any_id(snapshot, lookup.text, body, notes)
        case "queue-offset":
            return by_queue_offset(snapshot, lookup.queue, lookup.number, body, notes)
        case "unique-key" | "key":
            return _by_keys(snapshot, lookup, body, notes)
        case _:
            return _by_content(snapshot, lookup, body, notes, progress)


def _by_keys(snapshot: Snapshot, lookup: Lookup, body: BodyChoice, notes: Notes) -> Iterator[Message]:
    filters, is_unique = lookup.filters, lookup.by == "unique-key"
    keys = (lookup.text,) if is_unique else filters.keys
    has_message = False
    for key in keys:
        key_query = KeyQuery(
            key,
            filters.topics,
            unique=is_unique,
            limit=lookup.limit,
            begin=filters.from_timestamp or 0,
            end=FOREVER if filters.to_timestamp is None else filters.to_timestamp,
            hash_matches=lookup.hash_matches,
            excluded_topics=filters.excluded_topics,
        )
        for message in by_key(snapshot, key_query, body, notes):
            has_message = True
            yield message
    if not has_message and lookup.limit != 0:
        notes.add(why_not_found(snapshot, keys, filters.topics))


def _by_content(
    snapshot: Snapshot, lookup: Lookup, body: BodyChoice, notes: Notes, progress: Progress | None
) -> Iterator[Message]:

    scan = ScanQuery(lookup.filters, lookup.conditions, lookup.body_contains, lookup.limit)
    if lookup.by == "time":
        yield from by_time(snapshot, lookup.number, scan, body, notes)
        return
    first, size = max(snapshot.log_min_offset, scan.filters.start), snapshot.log.size

    def on_read(reached: int) -> None:
        if progress is not None:
            progress(reached - first, size)

    on_read(first)
    yield from by_scan(snapshot, scan, body, notes, on_read)


def _why_nothing(snapshot: Snapshot, lookup: Lookup) -> str:
    if lookup.by not in ("scan", "time") or lookup.limit == 0:
        return "nothing is shown"
    start = lookup.number if lookup.by == "time" else None
    return why_nothing(snapshot, replace(lookup.filters, from_timestamp=start or lookup.filters.from_timestamp))


_OPERATORS = ("!=", "=", "~")

ScanProgress = Callable[[int], None]
"""Is called with the physical offset that the scan has reached, bytes."""


@dataclass(frozen=True)
class Condition:
    """A condition on one property: it equals a text (``=``), does not (``!=``), or holds it somewhere (``~``)."""

    name: str
    operator: str
    text: str

    def mask(self, values: pa.StringArray) -> NDArray[np.bool_]:
        """Which values fulfil the condition; null, where there is no such property, fulfils ``!=`` only."""
        test = pc.match_substring if self.operator == "~" else pc.equal
        holds = np.asarray(test(values, self.text).fill_null(False))
        return ~holds if self.operator == "!=" else holds


def parse_condition(text: str) -> Condition:
    """Parse ``NAME=TEXT``, ``NAME!=TEXT`` or ``NAME~TEXT``; raise ValueError."""
    operators_at = [(text.find(operator), operator) for operator in _OPERATORS if operator in text]
    if not operators_at:
        raise ValueError(f"{text!r} is not a condition; examples: NAME=TEXT, NAME!=TEXT, NAME~TEXT (holds it)")
    position, operator = min(operators_at)
    name = text[:position].strip()
    if not name:
        raise ValueError(f"{text!r} names no property before {operator}")
    return Condition(name, operator, text[position + len(operator) :])


@dataclass(frozen=True)
class ScanQuery:
    """A search by content: all conditions must hold. `body_contains` is searched in the decompressed body."""

    filters: Filters = field(default_factory=Filters)
    conditions: tuple[Condition, ...] = ()
    body_contains: bytes | None = None
    limit: int | None = None


def by_scan(
    snapshot: Snapshot, query: ScanQuery, body: BodyChoice, notes: Notes, progress: ScanProgress = lambda _: None
) -> Iterator[Message]:
    """The messages that a scan finds."""
    left = query.limit
    if left == 0:
        return
    files = snapshot.log.files
    stop = min(query.filters.stop, readable_end(files, snapshot.reading, live=snapshot.holder is not None))
    for event in scan_files(files, query.filters.start, stop, snapshot.reading):
        progress(event.physical_offset + event.size)
        if isinstance(event, Damage) and not (event.tail and snapshot.holder):
            notes.add("the log has damage: messages that were stored there cannot be found", lossy=True)
        selected = _select(event, query) if isinstance(event, RecordRun) else None
        if selected is None:
            continue
        shown = selected if left is None else selected[:left]
        mapped = file_at(snapshot.log.files, shown.physical_offset)
        if mapped is not None:
            yield from message_dicts(shown, snapshot.store.relative(mapped.path), body)
        if left is not None:
            left -= len(shown)
            if left <= 0:
                notes.add(f"the first {query.limit} are shown: there may be more")
                return


def _select(frames: RecordRun, query: ScanQuery) -> RecordRun | None:
    """The records of a run that a query wants; bodies are read only of those that pass the rest."""
    selected = query.filters.select(frames)
    if selected is not None and query.conditions:
        selected = _kept(selected, _fulfil(selected, query.conditions))
    if selected is not None and query.body_contains is not None:
        selected = _kept(selected, _bodies_hold(selected, query.body_contains))
    return selected


def _kept(frames: RecordRun, mask: NDArray[np.bool_]) -> RecordRun | None:
    if mask.all():
        return frames
    return sound_prefix(frames.block, frames.positions[mask]) if mask.any() else None


def _fulfil(frames: RecordRun, conditions: tuple[Condition, ...]) -> NDArray[np.bool_]:
    properties = read_properties(frames)
    mask = np.ones(len(frames), dtype=np.bool_)
    for condition in conditions:
        mask &= condition.mask(properties.column(condition.name.encode()))
    return mask


def _bodies_hold(frames: RecordRun, wanted: bytes) -> NDArray[np.bool_]:
    batches = record_batches(frames, ["body"])
    return np.concatenate([np.asarray(pc.match_substring(batch.column(0), wanted)) for batch in batches])


DEFAULT_LIMIT = 10
"""Messages that are shown unless a limit is given."""

_NEAR = 1 << 20  # from here on a scan is as fast as halving further, bytes


def by_time(snapshot: Snapshot, timestamp: int, query: ScanQuery, body: BodyChoice, notes: Notes) -> Iterator[Message]:
    """The first messages stored at `timestamp`, epoch ms, or later; the clock is taken never to have gone back."""
    start = max(query.filters.from_offset, offset_before(snapshot, timestamp))
    filters = replace(query.filters, from_timestamp=timestamp, from_offset=start)
    limit = DEFAULT_LIMIT if query.limit is None else query.limit
    yield from by_scan(snapshot, replace(query, filters=filters, limit=limit), body, notes)


def offset_before(snapshot: Snapshot, timestamp: int) -> int:
    """A physical offset before which every message was stored before `timestamp`."""
    files = snapshot.log.files
    low, high = 0, len(files)  # files before `low` begin before the moment
    while low < high:
        middle = (low + high) // 2
        first = _time_from(snapshot, files[middle], 0)
        low, high = (middle + 1, high) if first is not None and first[1] < timestamp else (low, middle)
    return _offset_in(snapshot, files[low - 1], timestamp) if low else 0


def _offset_in(snapshot: Snapshot, mapped: MappedFile, timestamp: int) -> int:
    low, high = 0, mapped.size
    while high - low > _NEAR:
        middle = (low + high) // 2
        first = _time_from(snapshot, mapped, middle)
        if first is None or first[1] >= timestamp:
            high = middle
        else:
            low = max(first[0], middle)
    return mapped.start_offset + low


def _time_from(snapshot: Snapshot, mapped: MappedFile, position: int) -> tuple[int, int] | None:
    """Position and store time of the first record of a file at or after `position`."""
    with InputFile(mapped.path, snapshot.reading) as file:
        position = find_next(file, mapped.start_offset, position, mapped.header_size)
    offset = mapped.start_offset + position + mapped.header_size
    record = single_record_at([mapped], offset) if position < mapped.size else None
    return None if record is None else (position, record.number("store_timestamp"))
