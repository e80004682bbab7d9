"""Looking a key up in the index that brokers since 5.4.0 may keep in RocksDB (`IndexRocksDBStore`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Literal

from rmqtool.base.errors import UnreadableError, UnsupportedError
from rmqtool.formats.rocksdb_rows import INDEX_HOUR, INDEXED_TO, index_prefix, indexed_hour, indexed_message
from rmqtool.store.rocksdb import RocksDb
from rmqtool.store.store import SIDE_STORE, Store, holds_rocksdb

KeyType = Literal["K", "U"]
"""Of a key, or a unique key (`MessageConst.INDEX_KEY_TYPE`, `INDEX_UNIQUE_TYPE`)."""

_FAMILY = "default"


class RocksDbIndex:
    """The index in a store's RocksDB database, which is empty in most stores.

    `problem` is why entries may be missing from what was found, None without one.
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
        if not holds_rocksdb(self._directory):
            return
        try:
            with RocksDb(self._directory) as database:
                for hour in _hours(database, begin, end):
                    for prefix in (index_prefix(hour, topic, kind, key) for topic in topics for kind in key_types):
                        for row in database.rows(_FAMILY, prefix):
                            physical_offset, store_timestamp = indexed_message(*row)
                            if begin <= store_timestamp <= end:
                                yield physical_offset
        except (UnsupportedError, UnreadableError) as error:
            self.problem = f"{SIDE_STORE}: {error.message}"

    def last_offset(self) -> int | None:
        """The physical offset of the last message in the index; None without one, or where it cannot be read."""
        if not holds_rocksdb(self._directory):
            return None
        with suppress(UnsupportedError, UnreadableError), RocksDb(self._directory) as database:
            row = next(database.rows(_FAMILY, INDEXED_TO), None)
            return indexed_message(*row)[1] if row else None
        return None


def _hours(database: RocksDb, begin: int, end: int) -> Iterator[int]:
    """The hours that hold entries, epoch ms."""
    hour: int | None = begin - begin % INDEX_HOUR
    while hour is not None and hour <= end:
        first = next((key for key, _ in database.rows(_FAMILY, start=index_prefix(hour))), b"")
        hour = indexed_hour(first)
        if hour is not None and hour <= end:
            yield hour
            hour += INDEX_HOUR
