"""Messages by key through the index files, as a broker and its client find them together.

The broker (`DefaultMessageStore#queryMessage`) compares hashes and times, the client (`MQAdminImpl#queryMessage`)
topic and key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rmqtool.base.times import rfc3339
from rmqtool.formats.properties import KEY_SEPARATOR
from rmqtool.query.by_place import Message, by_message_id, message_at
from rmqtool.query.notes import Notes
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.message_rows import BodyChoice
from rmqtool.scan.reader import scan_files
from rmqtool.store.index_query import FOREVER, MAX_MATCHES, IndexUnit
from rmqtool.store.snapshot import Snapshot


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

    def matches(self, message: Message) -> bool:
        """Whether a message has the key and one of the topics."""
        if self.topics and message["topic"] not in self.topics:
            return False
        return message["unique_key"] == self.key or (not self.unique and self.key in message["keys"])


def by_key(snapshot: Snapshot, query: KeyQuery, body: BodyChoice, notes: Notes) -> Iterator[Message]:
    """The messages in the order of the log; with `hash_matches` one for each index unit, with `key_matches`."""
    units = index_units(snapshot, query)
    limit = limit_of(snapshot, query)
    if len(units) >= limit:
        notes.add(f"{limit} index units are as many as were asked for: there may be older messages; --limit N")
    unfit = deleted = 0
    seen: set[int] = set()
    for unit in units:
        if unit.physical_offset in seen and not query.hash_matches:
            continue
        seen.add(unit.physical_offset)
        message = message_at(snapshot, unit.physical_offset, body)
        if message is None:
            deleted += unit.physical_offset < snapshot.log_min_offset
            if unit.physical_offset >= snapshot.log_min_offset:
                notes.add(f"an index unit leads to {unit.physical_offset}, where no record begins", lossy=True)
            continue
        matches = query.matches(message)
        unfit += not matches
        if query.hash_matches:
            yield {**message, "key_matches": matches}
        elif matches:
            yield message
    if deleted:
        notes.add(f"{deleted} index units lead to messages that have been deleted from the log")
    if unfit and not query.hash_matches:
        notes.add(f"{unfit} messages have another key of the same hash: left out; --hash-matches shows them")
    add_index_notes(snapshot, notes)


def by_any_id(snapshot: Snapshot, text: str, body: BodyChoice, notes: Notes) -> Iterator[Message]:
    """The message with an offset message id; else those whose unique key it is, for clients print both as the id."""
    has_message = False
    for message in by_message_id(snapshot, text, body, notes):
        has_message = True
        yield message
    if has_message:
        return
    for message in by_key(snapshot, KeyQuery(text.upper(), unique=True), body, notes):
        notes.add(f"{text} is the unique key of what is shown: --unique-key finds it at once")
        yield message


def index_units(snapshot: Snapshot, query: KeyQuery) -> list[IndexUnit]:
    """The index units of a query, ascending by physical offset; of several topics, the newest units up to the limit."""
    limit = limit_of(snapshot, query)
    topics = dict.fromkeys(query.topics or snapshot.topic_names)
    units = snapshot.index.query_topics(topics, query.key, limit, query.begin, query.end)
    units.sort(key=lambda unit: unit.physical_offset)
    return units[max(0, len(units) - limit) :]


def limit_of(snapshot: Snapshot, query: KeyQuery) -> int:
    """How many index units are collected: as asked, or as many as a broker collects (`maxMsgsNumBatch`)."""
    return query.limit if query.limit is not None else snapshot.store.conf.size("maxMsgsNumBatch") or MAX_MATCHES


def add_index_notes(snapshot: Snapshot, notes: Notes) -> None:
    """Note problems of index files, because of which keys may not be found."""
    for path, problem in snapshot.index.problems.items():
        notes.add(f"{snapshot.store.relative(path)}: {problem}; --scan looks at every message instead", lossy=True)


def why_not_found(snapshot: Snapshot, keys: Sequence[str]) -> str:
    """Why the index leads to no message with one of `keys`: what it covers, and how to search the rest."""
    asked = ", ".join(keys)
    nothing = f"no message has the key {asked}" if asked.strip() else "a key is not empty"
    if KEY_SEPARATOR in asked.strip():
        nothing += " (keys are separated by spaces: ask for one of them)"
    files = [file for file in snapshot.index.files if file.keys]
    if not files:
        return f"{nothing}: there is no index file with a unit; --scan looks at every message"
    first, last = files[0], files[-1]
    covers = (
        f"{nothing}; the index covers offsets {first.begin_physical_offset} to {last.end_physical_offset}, stored "
        f"{rfc3339(first.begin_timestamp)} to {rfc3339(last.end_timestamp)}; --scan looks at every message"
    )
    start = behind_index(snapshot, last.end_physical_offset)
    return covers if start is None else f"{covers}, --scan --from-offset {start} at those stored since"


def behind_index(snapshot: Snapshot, last_indexed: int) -> int | None:
    """Physical offset of the first message behind the last indexed one; None without one."""
    if message_at(snapshot, last_indexed) is None:
        return None
    events = scan_files(snapshot.log.files, last_indexed + 1, reading=snapshot.reading)
    return next((event.physical_offset for event in events if isinstance(event, RecordRun)), None)
