"""One question for messages, by what people have of them, and its answer with notes on what was not found.

By key they are found through the index, as a broker and its client find them together: the broker
(`DefaultMessageStore#queryMessage`) compares hashes and times, the client (`MQAdminImpl#queryMessage`) topic and key.
By their content they are found in all records of the log, in its order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import nlargest
from itertools import islice
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import MappedFile, file_at
from rmqtool.base.times import rfc3339
from rmqtool.formats.layout import FormatError
from rmqtool.formats.message import parse_message_id
from rmqtool.formats.properties import KEY_SEPARATOR
from rmqtool.query.by_place import Message, Notes, by_message_id, by_offset, by_queue_offset, message_at
from rmqtool.query.tiered import (
    TieredView,
    tier_in_use,
    tiered_by_keys,
    tiered_dicts,
    tiered_message,
    tiered_runs,
    tiered_view,
    tiered_views,
)
from rmqtool.scan.block import Damage
from rmqtool.scan.columns import record_batches
from rmqtool.scan.filters import Filters, TopicChoice
from rmqtool.scan.frames import RecordRun, sound_prefix
from rmqtool.scan.message_rows import BodyChoice, message_dicts
from rmqtool.scan.properties import read_properties
from rmqtool.scan.reader import scan_files
from rmqtool.scan.single_record import find_next, oversized_record_at, single_record_at
from rmqtool.store.commit_log import readable_end
from rmqtool.store.index_files import FOREVER, MAX_MATCHES
from rmqtool.store.missing import unknown_topic, why_nothing
from rmqtool.store.side_rows import KeyType, RocksDbIndex
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
    if has_message or notes.lines:
        return
    if lookup.by not in ("scan", "time") or lookup.limit == 0:
        notes.add("nothing is shown")
        return
    start = lookup.number if lookup.by == "time" else None
    filters = replace(lookup.filters, from_timestamp=start or lookup.filters.from_timestamp)
    notes.add(why_nothing(snapshot, filters))


def _found(
    snapshot: Snapshot, lookup: Lookup, body: BodyChoice, notes: Notes, progress: Progress | None
) -> Iterator[Message]:
    match lookup.by:
        case "offset":
            return by_offset(snapshot, lookup.number, body, notes)
        case "msg-id":
            return by_any_id(snapshot, lookup.text, body, notes)
        case "queue-offset":
            return _by_queue_offset(snapshot, lookup, body, notes)
        case "unique-key" | "key":
            return _by_keys(snapshot, lookup, body, notes)
        case _:
            return _by_content(snapshot, lookup, body, notes, progress)


def _by_queue_offset(snapshot: Snapshot, lookup: Lookup, body: BodyChoice, notes: Notes) -> Iterator[Message]:
    view = tiered_view(snapshot, *lookup.queue, notes)
    message = tiered_message(snapshot, view, lookup.number, body) if view else None
    if message is not None:
        yield message
        return
    yield from by_queue_offset(snapshot, lookup.queue, lookup.number, body, notes)


def _by_keys(snapshot: Snapshot, lookup: Lookup, body: BodyChoice, notes: Notes) -> Iterator[Message]:
    filters, is_unique = lookup.filters, lookup.by == "unique-key"
    keys = (lookup.text,) if is_unique else filters.keys
    has_message = False
    for key in keys:
        end = FOREVER if filters.to_timestamp is None else filters.to_timestamp
        key_query = KeyQuery(key, filters.topics, is_unique, lookup.limit, filters.from_timestamp or 0, end,
                             lookup.hash_matches, filters.excluded_topics)  # fmt: skip
        for message in _joined_by_key(snapshot, key_query, body, notes):
            has_message = True
            yield message
    if not has_message and lookup.limit != 0:
        notes.add(why_not_found(snapshot, keys, filters.topics))


def _joined_by_key(snapshot: Snapshot, query: KeyQuery, body: BodyChoice, notes: Notes) -> Iterator[Message]:
    """The messages of the local store, and then those of the tier, as far as the limit is not reached."""
    count = 0
    for message in by_key(snapshot, query, body, notes):
        count += 1
        yield message
    if query.limit is None or count < query.limit:
        rest = None if query.limit is None else query.limit - count
        yield from _by_tiered_key(snapshot, replace(query, limit=rest), body, notes)


def _by_tiered_key(snapshot: Snapshot, query: KeyQuery, body: BodyChoice, notes: Notes) -> Iterator[Message]:
    """The messages that only the tier has."""
    topics = [*query.topic_choice.among(snapshot.topic_names)]
    for message in islice(tiered_by_keys(snapshot, topics, query.key, body, notes), query.limit):
        if query.matches(message) and query.begin <= message["store_timestamp"] <= query.end:
            yield message


def _by_content(
    snapshot: Snapshot, lookup: Lookup, body: BodyChoice, notes: Notes, progress: Progress | None
) -> Iterator[Message]:
    if not (lookup.filters.from_offset or lookup.filters.to_offset):  # which are offsets in the commit log
        for message in _by_tiered_content(snapshot, lookup, body, notes):
            yield message
            if lookup.limit is not None:
                lookup = replace(lookup, limit=lookup.limit - 1)
        if lookup.limit is not None and lookup.limit <= 0:
            return
    if lookup.by == "time":
        yield from by_time(snapshot, lookup, body, notes)
        return
    first, size = max(snapshot.log_min_offset, lookup.filters.start), snapshot.log.size

    def on_read(reached: int) -> None:
        if progress is not None:
            progress(reached - first, size)

    on_read(first)
    yield from by_scan(snapshot, lookup, body, notes, on_read)


def _by_tiered_content(snapshot: Snapshot, lookup: Lookup, body: BodyChoice, notes: Notes) -> Iterator[Message]:
    """The messages that only the tier has, queue by queue; at most as many as are asked for."""
    tier = tier_in_use(snapshot, notes)
    is_time = lookup.by == "time"
    limit = DEFAULT_LIMIT if is_time and lookup.limit is None else lookup.limit
    filters = replace(lookup.filters, from_timestamp=lookup.number) if is_time else lookup.filters
    chosen = replace(lookup, filters=filters)
    found = (
        message for view in (tiered_views(snapshot, tier) if tier else ()) if _is_chosen(view, filters)
        for run in tiered_runs(snapshot, view, notes) for selected in [_select(run, chosen)] if selected is not None
        for message in tiered_dicts(snapshot, view, selected, body)
    )  # fmt: skip
    yield from islice(found, limit)


def _is_chosen(view: TieredView, filters: Filters) -> bool:
    ids = filters.queue_ids
    return view.queue.topic in filters.topic_choice and (not ids or view.queue.queue_id in ids)


@dataclass(frozen=True)
class KeyQuery:
    """A search by key; without `topics` in all topics of the store. Times are epoch ms, both included.

    `unique` asks for the unique key only; `limit` counts index units, as the broker counts them.
    """

    key: str
    topics: Sequence[str] = ()
    unique: bool = False
    limit: int | None = None
    begin: int = 0
    end: int = FOREVER
    hash_matches: bool = False
    excluded_topics: Sequence[str] = ()

    @property
    def topic_choice(self) -> TopicChoice:
        """The topics that are searched."""
        return TopicChoice(tuple(self.topics), tuple(self.excluded_topics))

    def matches(self, message: Message) -> bool:
        """Whether a message has the key and one of the topics."""
        if message["topic"] not in self.topic_choice:
            return False
        return message["unique_key"] == self.key or (not self.unique and self.key in message["keys"])


def by_key(snapshot: Snapshot, query: KeyQuery, body: BodyChoice, notes: Notes) -> Iterator[Message]:
    """The messages in the order of the log; with `hash_matches` one for each index unit, with `key_matches`."""
    offsets = indexed_offsets(snapshot, query, notes)
    limit = limit_of(snapshot, query)
    if len(offsets) >= limit:
        notes.add(f"stopped at {limit} index entries: there may be older messages; --limit N")
    unfit = deleted = 0
    for offset in offsets if query.hash_matches else dict.fromkeys(offsets):
        message = message_at(snapshot, offset, body)
        if message is None:
            deleted += offset < snapshot.log_min_offset
            if offset >= snapshot.log_min_offset:
                notes.add(f"an index entry points to {offset}, {_what_is_at(snapshot, offset)}", lossy=True)
            continue
        matches = query.matches(message)
        unfit += not matches
        if query.hash_matches:
            yield {**message, "key_matches": matches}
        elif matches:
            yield message
    if deleted:
        notes.add(f"{deleted} index entries point to messages that have been deleted from the log")
    if unfit and not query.hash_matches:
        notes.add(f"{unfit} messages have another key of the same hash: left out; --hash-matches shows them")
    for path, problem in snapshot.index.problems.items():
        notes.add(f"{snapshot.store.relative(path)}: {problem}; --scan looks at every message instead", lossy=True)


def _what_is_at(snapshot: Snapshot, physical_offset: int) -> str:
    """Why no message is shown that begins there."""
    if oversized_record_at(snapshot.log.files, physical_offset) is None:
        return "where no record begins"
    return "a message that claims a larger size than it has: a broker serves it, and clients decode it"


def by_any_id(snapshot: Snapshot, text: str, body: BodyChoice, notes: Notes) -> Iterator[Message]:
    """The message with an offset message id; else those whose unique key it is, for clients print both as the id."""
    has_message, is_message_id, as_offset = False, _is_message_id(text), Notes()
    for message in by_message_id(snapshot, text, body, as_offset) if is_message_id else ():
        has_message = True
        yield message
    if has_message:
        return
    unique_key = text.upper() if is_message_id else text
    for message in by_key(snapshot, KeyQuery(unique_key, unique=True), body, notes):
        has_message = True
        notes.add(f"{text} is not an offset message id; found as unique key")
        yield message
    if not has_message:
        for line in as_offset.lines:
            notes.add(line, lossy=as_offset.lossy)
        notes.add(why_not_found(snapshot, [unique_key]))


def _is_message_id(text: str) -> bool:
    try:
        parse_message_id(text)
    except FormatError:
        return False
    return True


def indexed_offsets(snapshot: Snapshot, query: KeyQuery, notes: Notes) -> list[int]:
    """The physical offsets that the index gives, ascending; of several topics, the newest units up to the limit.

    A broker asks either the files or RocksDB; what only one of them knows is found here, too.
    """
    limit = limit_of(snapshot, query)
    topics = list(query.topic_choice.among(snapshot.topic_names))
    units = snapshot.index.query_topics(topics, query.key, limit, query.begin, query.end)
    offsets = [unit.physical_offset for unit in units]
    in_rocksdb = RocksDbIndex(snapshot.store)
    key_types: Sequence[KeyType] = ("U",) if query.unique else ("K", "U")
    found = in_rocksdb.offsets(topics, key_types, query.key, query.begin, query.end)
    offsets += set(nlargest(limit, found)).difference(offsets)
    if in_rocksdb.problem and needs_rocksdb(snapshot):
        notes.add(f"{in_rocksdb.problem}: keys may not be found; --scan looks at every message instead", lossy=True)
    offsets.sort()
    return offsets[max(0, len(offsets) - limit) :]


def indexed_range(snapshot: Snapshot) -> tuple[int, int]:
    """From where to before where in the log keys are in the index, physical offsets, as far as it says."""
    files = [file for file in snapshot.index.files if file.keys]
    last = RocksDbIndex(snapshot.store).last_offset()
    if last is not None:
        return 0, max(last, *(file.end_physical_offset for file in files), 0)
    return (files[0].begin_physical_offset, files[-1].end_physical_offset) if files else (0, 0)


def needs_rocksdb(snapshot: Snapshot) -> bool:
    """Whether keys are likely to be in RocksDB: broker.conf says so, or no index file knows any."""
    is_on = snapshot.store.conf.is_on("indexRocksDBEnable")
    return is_on or not any(file.keys for file in snapshot.index.files)


def limit_of(snapshot: Snapshot, query: KeyQuery) -> int:
    """How many index units are collected: as asked, or as many as a broker collects (`maxMsgsNumBatch`)."""
    return query.limit if query.limit is not None else snapshot.store.conf.size("maxMsgsNumBatch") or MAX_MATCHES


def why_not_found(snapshot: Snapshot, keys: Sequence[str], topics: Sequence[str] = ()) -> str:
    """Why the index leads to no message with one of `keys`: what it covers, and how to search the rest."""
    asked = ", ".join(keys)
    nothing = f"no message has the key {asked}" if asked.strip() else "a key must not be empty"
    nothing += "".join(f"; {unknown}" for topic in topics if (unknown := unknown_topic(snapshot, topic)))
    if KEY_SEPARATOR in asked.strip():
        nothing += " (keys are separated by spaces: give one of them)"
    files = [file for file in snapshot.index.files if file.keys]
    in_rocksdb = RocksDbIndex(snapshot.store)
    last_offset = in_rocksdb.last_offset()
    if snapshot.index.problems or (in_rocksdb.problem and needs_rocksdb(snapshot)):
        return f"whether a message has the key {asked} is not known: --scan looks at every message"
    if files:
        first, last = files[0], files[-1]
        last_offset = max(last.end_physical_offset, last_offset or 0)
        times = f"{rfc3339(first.begin_timestamp)} to {rfc3339(last.end_timestamp)}"
        nothing += f"; the index covers offsets {first.begin_physical_offset} to {last_offset}, stored {times}"
    elif last_offset is not None:
        nothing += f"; the index in RocksDB reaches to offset {last_offset}"
    else:
        return f"{nothing}: there is no index file with an entry; --scan looks at every message"
    covers = f"{nothing}; --scan looks at every message"
    is_there = message_at(snapshot, last_offset) is not None
    events = scan_files(snapshot.log.files, last_offset + 1, reading=snapshot.reading) if is_there else ()
    start = next((event.physical_offset for event in events if isinstance(event, RecordRun)), None)
    return covers if start is None else f"{covers}, --scan --from-offset {start} only at newer ones"


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
        raise ValueError(f"{text!r} is not a condition; examples: NAME=TEXT, NAME!=TEXT, NAME~TEXT (contains)")
    position, operator = min(operators_at)
    name = text[:position].strip()
    if not name:
        raise ValueError(f"{text!r} names no property before {operator}")
    return Condition(name, operator, text[position + len(operator) :])


def by_scan(
    snapshot: Snapshot, query: Lookup, body: BodyChoice, notes: Notes, progress: ScanProgress = lambda _: None
) -> Iterator[Message]:
    """The messages that a scan finds: all conditions must hold, `body_contains` in the decompressed body."""
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
                notes.add(f"stopped at --limit {query.limit}: there may be more")
                return


def _select(frames: RecordRun, query: Lookup) -> RecordRun | None:
    """The records of a run that a query wants; bodies are read only of those that pass the rest."""
    selected = query.filters.select(frames)
    if selected is not None and query.conditions:
        properties = read_properties(selected)
        masks = [each.mask(properties.column(each.name.encode())) for each in query.conditions]
        selected = _kept(selected, np.logical_and.reduce(masks))
    if selected is not None and query.body_contains is not None:
        batches = record_batches(selected, ["body"])
        holds = [np.asarray(pc.match_substring(batch.column(0), query.body_contains)) for batch in batches]
        selected = _kept(selected, np.concatenate(holds))
    return selected


def _kept(frames: RecordRun, mask: NDArray[np.bool_]) -> RecordRun | None:
    if mask.all():
        return frames
    return sound_prefix(frames.block, frames.positions[mask]) if mask.any() else None


DEFAULT_LIMIT = 10
"""Messages that are shown unless a limit is given."""

_NEAR = 1 << 20  # from here on a scan is as fast as halving further, bytes


def by_time(snapshot: Snapshot, query: Lookup, body: BodyChoice, notes: Notes) -> Iterator[Message]:
    """The first messages stored at a time, epoch ms, or later; the clock is taken never to have gone back."""
    start = max(query.filters.from_offset, offset_before(snapshot, query.number))
    filters = replace(query.filters, from_timestamp=query.number, from_offset=start)
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
