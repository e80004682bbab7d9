"""Where a broker keeps consume queues: in files, in RocksDB, or in both (`storeType`, `rocksdbCQDoubleWriteEnable`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rmqtool.rules.versions import ROCKSDB_QUEUES, Version
from rmqtool.store.rocksdb_queues import queue_database
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import (
    CONSUME_QUEUE,
    SEPARATE_ROCKSDB_QUEUES,
    Store,
    holds_rocksdb,
    is_rocksdb_directory,
)


@dataclass(frozen=True)
class QueuePlaces:
    """Whether queues are written to files, to RocksDB, or both; `database` is where the one is, or would be."""

    files: bool
    rocksdb: bool
    database: Path

    @property
    def has_database(self) -> bool:
        """Whether there is a database that can be opened."""
        return holds_rocksdb(self.database)


def queue_places(snapshot: Snapshot, release: Version) -> QueuePlaces:
    """The places of a store's queues.

    The broker.conf counts where the files leave it open: files stay behind where a broker began to use RocksDB.
    """
    store = snapshot.store
    has_files = any(queue.database is None for queue in snapshot.queues)
    path = _database_path(store)
    both = store.writes_queues_twice
    lost = store.is_of_rocksdb_type and not has_files and release >= ROCKSDB_QUEUES
    if not (is_rocksdb_directory(path) or both or lost):
        return QueuePlaces(files=True, rocksdb=False, database=path)
    return QueuePlaces(both or (has_files and not store.is_of_rocksdb_type), rocksdb=True, database=path)


def _database_path(store: Store) -> Path:
    separate = store.conf.is_on("useSeparateStorePathForRocksdbCQ")
    names = (SEPARATE_ROCKSDB_QUEUES, CONSUME_QUEUE) if separate else (CONSUME_QUEUE, SEPARATE_ROCKSDB_QUEUES)
    return queue_database(store) or store.root / names[0]
