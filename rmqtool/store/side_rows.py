"""What brokers since 5.3.2 may keep in RocksDB instead of files: timers, half messages, and what POP consumers hold.

`MessageRocksDBStorage` since 5.4.0 and `PopConsumerRocksdbStore`. Each function gives None where there is no such
database, or nothing of the kind in it, and raises UnsupportedError without the library, UnreadableError for damage.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.errors import UnreadableError, UnsupportedError
from rmqtool.formats.layout import FormatError
from rmqtool.formats.rocksdb_rows import (
    INDEX_HOUR,
    INDEXED_TO,
    TIMELINE,
    TIMERS_INDEXED_TO,
    index_prefix,
    indexed_hour,
    indexed_message,
    pop_entry,
    progress_number,
    timer_row,
    transaction_row,
)
from rmqtool.store.rocksdb import RocksDb
from rmqtool.store.store import SIDE_STORE, Store, is_rocksdb_directory

POP_STORE = "kvStore"
TIMER_FAMILY, HALF_FAMILY, POP_FAMILY = "timer", "trans", "popState"
NO_TIMELINE_MS = 10_000  # MessageRocksDBStorage#getCheckpointForTimer: how far back a start goes without one
Offsets = NDArray[np.int64]


@dataclass(frozen=True)
class TimerRows:
    """Timer messages: when each is due, epoch ms, and its physical offset.

    What was due before `timeline` was delivered; None where no delivery was written down. `indexed_to` is the offset in
    the timer's queue up to which messages are rows.
    """

    dues: Offsets
    physical_offsets: Offsets
    timeline: int | None
    indexed_to: int


@dataclass(frozen=True)
class HalfRows:
    """Physical offsets of half messages without an answer, ascending, and how often each producer was asked.

    Messages after the physical offset `indexed_to` are no rows yet.
    """

    physical_offsets: Offsets
    check_times: Offsets
    indexed_to: int


@dataclass(frozen=True)
class HeldMessage:
    """A message that a POP consumer holds until `visible_timestamp`, epoch ms."""

    topic: str
    queue_id: int
    group: str
    queue_offset: int
    visible_timestamp: int


def timer_rows(store: Store) -> TimerRows | None:
    """The timers of a store."""
    found: list[tuple[int, int]] = []
    progress: dict[bytes, int] = {}
    for key, value in _rows(store, SIDE_STORE, TIMER_FAMILY):
        with _decoding(store.root / SIDE_STORE):
            if key in (TIMELINE, TIMERS_INDEXED_TO):
                progress[key] = progress_number(value)
            else:
                found.append(timer_row(key, value))
    if not found and not progress:
        return None
    dues, physical_offsets = _columns(found)
    return TimerRows(dues, physical_offsets, progress.get(TIMELINE), progress.get(TIMERS_INDEXED_TO, 0))


def half_rows(store: Store) -> HalfRows | None:
    """The half messages of a store."""
    found: list[tuple[int, int]] = []
    indexed_to = None
    for key, value in _rows(store, SIDE_STORE, HALF_FAMILY):
        with _decoding(store.root / SIDE_STORE):
            if key == INDEXED_TO:
                indexed_to = progress_number(value)
            else:
                found.append(transaction_row(key, value))
    if not found and indexed_to is None:
        return None
    physical_offsets, check_times = _columns(found)
    return HalfRows(physical_offsets, check_times, -1 if indexed_to is None else indexed_to)


def held_messages(store: Store) -> Iterator[HeldMessage]:
    """The messages that POP consumers hold, those that can be seen first before the others."""
    for key, value in _rows(store, POP_STORE, POP_FAMILY):
        with _decoding(store.root / POP_STORE):
            row = pop_entry(key, value).key
        yield HeldMessage(row["topic"], row["queue_id"], row["group"], row["queue_offset"], row["visible_timestamp"])


def _rows(store: Store, name: str, family: str) -> Iterator[tuple[bytes, bytes]]:
    if is_rocksdb_directory(store.root / name):
        with store.opened(store.root / name) as database:
            if family in database.families:
                yield from database.rows(family)


@contextmanager
def _decoding(directory: Path) -> Iterator[None]:
    """Decode a row; one that no broker writes is an error of the database."""
    try:
        yield
    except (FormatError, struct.error) as error:
        raise UnreadableError(f"a row is not of a broker: {error}", file=directory) from error


def _columns(pairs: list[tuple[int, int]]) -> tuple[Offsets, Offsets]:
    columns = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return columns[:, 0], columns[:, 1]


KeyType = Literal["K", "U"]
"""Of a key, or a unique key (`MessageConst.INDEX_KEY_TYPE`, `INDEX_UNIQUE_TYPE`)."""

INDEX_FAMILY = "default"
_OFFSET_SIZE = 8


class IndexRow(NamedTuple):
    """The row that a key of a message has: its kind, the key's text, and the key of the row."""

    kind: KeyType | Literal["T"]
    text: str
    key: bytes


class HeldRows(NamedTuple):
    """Which rows are there, up to which physical offset messages have rows, and from which hour on, epoch ms."""

    held: tuple[bool, ...]
    indexed_to: int | None
    first_hour: int | None


def index_rows(message: Mapping[str, Any]) -> Iterator[IndexRow]:
    """The rows of a message; none without a unique key, nor of one that is rolled back."""
    unique_key, timestamp = message["unique_key"], message["store_timestamp"]
    if not unique_key or message["transaction"] == "rollback":
        return
    hour, topic = timestamp - timestamp % INDEX_HOUR, message["topic"]
    end = int(message["physical_offset"]).to_bytes(_OFFSET_SIZE, "big")
    yield IndexRow("U", unique_key, index_prefix(hour, topic, "U", unique_key) + end)
    for word in dict.fromkeys(message["keys"]):
        yield IndexRow("K", word, index_prefix(hour, topic, "K", f"{word}@{unique_key}") + end)
    if tags := message["tags"]:
        yield IndexRow("T", tags, index_prefix(hour, topic, "T", f"{tags}@{unique_key}") + end)


class RocksDbIndex:
    """The index in a store's RocksDB database, which is empty in most stores.

    `problem` is why entries may be missing from what was found, None without one: also where the file is gone by which
    a broker knows the database.
    """

    def __init__(self, store: Store) -> None:
        self.problem: str | None = None
        self._store = store
        self._directory = store.root / SIDE_STORE

    def offsets(
        self, topics: Sequence[str], key_types: Sequence[KeyType], key: str, begin: int, end: int
    ) -> Iterator[int]:
        """Physical offsets of messages with a key, stored from `begin` to `end`, both included, epoch ms.

        Hour by hour, oldest first. Where a key holds ``@`` there may be messages with another key among them.
        """
        if not is_rocksdb_directory(self._directory):
            return
        with self._noting(), self._store.opened(self._directory) as database:
            for hour in _hours(database, begin, end):
                for prefix in (index_prefix(hour, topic, kind, key) for topic in topics for kind in key_types):
                    for row in database.rows(INDEX_FAMILY, prefix):
                        physical_offset, store_timestamp = indexed_message(*row)
                        if begin <= store_timestamp <= end:
                            yield physical_offset

    def last_offset(self) -> int | None:
        """The physical offset of the last message in the index; None without one, or where it cannot be read."""
        if not is_rocksdb_directory(self._directory):
            return None
        row: tuple[bytes, bytes] | None = None
        with self._noting(), self._store.opened(self._directory) as database:
            row = next(database.rows(INDEX_FAMILY, INDEXED_TO), None)
        return indexed_message(*row)[1] if row else None

    def held(self, rows: Sequence[IndexRow]) -> HeldRows | None:
        """Which of some rows are there; None without an index in RocksDB, or where it cannot be read."""
        found: list[HeldRows] = []
        if not is_rocksdb_directory(self._directory):
            return None
        with self._noting(), self._store.opened(self._directory) as database:
            progress = next(database.rows(INDEX_FAMILY, INDEXED_TO), None)
            first = next((key for key, _ in database.rows(INDEX_FAMILY)), b"")
            held = tuple(database.some_rows(INDEX_FAMILY, row.key, row.key + b"\0", 1)[0] == [row.key] for row in rows)
            found.append(HeldRows(held, indexed_message(*progress)[1] if progress else None, indexed_hour(first)))
        return next((each for each in found if (each.first_hour, each.indexed_to) != (None, None)), None)

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Keep the error of a database that cannot be read as the problem."""
        try:
            yield
        except (UnsupportedError, UnreadableError) as error:
            self.problem = f"{SIDE_STORE}: {error.message}"


def _hours(database: RocksDb, begin: int, end: int) -> Iterator[int]:
    """The hours that hold entries, epoch ms."""
    hour: int | None = begin - begin % INDEX_HOUR
    while hour is not None and hour <= end:
        first = next((key for key, _ in database.rows(INDEX_FAMILY, start=index_prefix(hour))), b"")
        hour = indexed_hour(first)
        if hour is not None and hour <= end:
            yield hour
            hour += INDEX_HOUR
