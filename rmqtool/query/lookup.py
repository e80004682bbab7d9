"""One question for messages, by what people have of them, and its answer with notes on what was not found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from rmqtool.query.by_key import KeyQuery, by_any_id, by_key, why_not_found
from rmqtool.query.by_place import Message, Notes, by_offset, by_queue_offset
from rmqtool.scan.filters import Filters
from rmqtool.scan.message_rows import BodyChoice
from rmqtool.store.index_files import FOREVER
from rmqtool.store.missing import why_nothing
from rmqtool.store.snapshot import Snapshot

if TYPE_CHECKING:
    from rmqtool.query.by_scan import Condition

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
    from rmqtool.query.by_scan import ScanQuery, by_scan, by_time  # only a scan computes with columns

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
