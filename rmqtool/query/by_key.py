"""Messages by key through the index, as a broker and its client find them together.

The broker (`DefaultMessageStore#queryMessage`) compares hashes and times, the client (`MQAdminImpl#queryMessage`)
topic and key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest

from rmqtool.base.times import rfc3339
from rmqtool.formats.layout import FormatError
from rmqtool.formats.message import parse_message_id
from rmqtool.formats.properties import KEY_SEPARATOR
from rmqtool.query.by_place import Message, Notes, by_message_id, message_at
from rmqtool.scan.filters import TopicChoice
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.message_rows import BodyChoice
from rmqtool.scan.reader import scan_files
from rmqtool.scan.single_record import oversized_record_at
from rmqtool.store.index_files import FOREVER, MAX_MATCHES
from rmqtool.store.missing import unknown_topic
from rmqtool.store.side_rows import KeyType, RocksDbIndex
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
    offsets = _indexed_offsets(snapshot, query, notes)
    limit = limit_of(snapshot, query)
    if len(offsets) >= limit:
        notes.add(f"{limit} index units are as many as were asked for: there may be older messages; --limit N")
    unfit = deleted = 0
    for offset in offsets if query.hash_matches else dict.fromkeys(offsets):
        message = message_at(snapshot, offset, body)
        if message is None:
            deleted += offset < snapshot.log_min_offset
            if offset >= snapshot.log_min_offset:
                notes.add(f"an index unit leads to {offset}, {_what_is_at(snapshot, offset)}", lossy=True)
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


def _what_is_at(snapshot: Snapshot, physical_offset: int) -> str:
    """Why no message is shown that begins there."""
    if oversized_record_at(snapshot.log.files, physical_offset) is None:
        return "where no record begins"
    return "a message that says a larger size than it has: a broker gives it to clients, which decode it"


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


def _indexed_offsets(snapshot: Snapshot, query: KeyQuery, notes: Notes) -> list[int]:
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


def needs_rocksdb(snapshot: Snapshot) -> bool:
    """Whether keys are likely to be in RocksDB: broker.conf says so, or no index file knows any."""
    is_on = snapshot.store.conf.is_on("indexRocksDBEnable")
    return is_on or not any(file.keys for file in snapshot.index.files)


def limit_of(snapshot: Snapshot, query: KeyQuery) -> int:
    """How many index units are collected: as asked, or as many as a broker collects (`maxMsgsNumBatch`)."""
    return query.limit if query.limit is not None else snapshot.store.conf.size("maxMsgsNumBatch") or MAX_MATCHES


def add_index_notes(snapshot: Snapshot, notes: Notes) -> None:
    """Note problems of index files, because of which keys may not be found."""
    for path, problem in snapshot.index.problems.items():
        notes.add(f"{snapshot.store.relative(path)}: {problem}; --scan looks at every message instead", lossy=True)


def why_not_found(snapshot: Snapshot, keys: Sequence[str], topics: Sequence[str] = ()) -> str:
    """Why the index leads to no message with one of `keys`: what it covers, and how to search the rest."""
    asked = ", ".join(keys)
    nothing = f"no message has the key {asked}" if asked.strip() else "a key is not empty"
    nothing += "".join(f"; {unknown}" for topic in topics if (unknown := unknown_topic(snapshot, topic)))
    if KEY_SEPARATOR in asked.strip():
        nothing += " (keys are separated by spaces: ask for one of them)"
    files = [file for file in snapshot.index.files if file.keys]
    in_rocksdb = RocksDbIndex(snapshot.store)
    last_offset = in_rocksdb.last_offset()
    if in_rocksdb.problem and needs_rocksdb(snapshot):
        return f"whether a message has the key {asked} is not known: --scan looks at every message"
    if files:
        first, last = files[0], files[-1]
        last_offset = max(last.end_physical_offset, last_offset or 0)
        nothing += (
            f"; the index covers offsets {first.begin_physical_offset} to {last_offset}, stored "
            f"{rfc3339(first.begin_timestamp)} to {rfc3339(last.end_timestamp)}"
        )
    elif last_offset is not None:
        nothing += f"; the index in RocksDB reaches to offset {last_offset}"
    else:
        return f"{nothing}: there is no index file with a unit; --scan looks at every message"
    covers = f"{nothing}; --scan looks at every message"
    start = behind_index(snapshot, last_offset)
    return covers if start is None else f"{covers}, --scan --from-offset {start} at those stored since"


def behind_index(snapshot: Snapshot, last_indexed: int) -> int | None:
    """Physical offset of the first message after the last indexed one; None without one."""
    if message_at(snapshot, last_indexed) is None:
        return None
    events = scan_files(snapshot.log.files, last_indexed + 1, reading=snapshot.reading)
    return next((event.physical_offset for event in events if isinstance(event, RecordRun)), None)
