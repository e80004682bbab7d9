"""Looking a key up in the index that brokers since 5.4.0 may keep in RocksDB (`IndexRocksDBStore`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

from rmqtool.base.errors import UnreadableError, UnsupportedError
from rmqtool.formats.rocksdb_rows import INDEX_HOUR, INDEXED_TO, index_prefix, indexed_hour, indexed_message
from rmqtool.store.rocksdb import RocksDb
from rmqtool.store.store import SIDE_STORE, Store, is_rocksdb_directory

KeyType = Literal["K", "U"]
"""Of a key, or a unique key (`MessageConst.INDEX_KEY_TYPE`, `INDEX_UNIQUE_TYPE`)."""

_FAMILY = "default"
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
        self._directory = store.root / SIDE_STORE

    def offsets(
        self, topics: Sequence[str], key_types: Sequence[KeyType], key: str, begin: int, end: int
    ) -> Iterator[int]:
        """Physical offsets of messages with a key, stored from `begin` to `end`, both included, epoch ms.

        Hour by hour, oldest first. Where a key holds ``@`` there may be messages with another key among them.
        """
        if not is_rocksdb_directory(self._directory):
            return
        with self._noting(), RocksDb(self._directory) as database:
            for hour in _hours(database, begin, end):
                for prefix in (index_prefix(hour, topic, kind, key) for topic in topics for kind in key_types):
                    for row in database.rows(_FAMILY, prefix):
                        physical_offset, store_timestamp = indexed_message(*row)
                        if begin <= store_timestamp <= end:
                            yield physical_offset

    def last_offset(self) -> int | None:
        """The physical offset of the last message in the index; None without one, or where it cannot be read."""
        if not is_rocksdb_directory(self._directory):
            return None
        row: tuple[bytes, bytes] | None = None
        with self._noting(), RocksDb(self._directory) as database:
            row = next(database.rows(_FAMILY, INDEXED_TO), None)
        return indexed_message(*row)[1] if row else None

    def held(self, rows: Sequence[IndexRow]) -> HeldRows | None:
        """Which of some rows are there; None without an index in RocksDB, or where it cannot be read."""
        found: list[HeldRows] = []
        if not is_rocksdb_directory(self._directory):
            return None
        with self._noting(), RocksDb(self._directory) as database:
            progress = next(database.rows(_FAMILY, INDEXED_TO), None)
            first = next((key for key, _ in database.rows(_FAMILY)), b"")
            held = tuple(database.some_rows(_FAMILY, row.key, row.key + b"\0", 1)[0] == [row.key] for row in rows)
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
        first = next((key for key, _ in database.rows(_FAMILY, start=index_prefix(hour))), b"")
        hour = indexed_hour(first)
        if hour is not None and hour <= end:
            yield hour
            hour += INDEX_HOUR
