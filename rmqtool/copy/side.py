"""Half messages and keys that a broker keeps in RocksDB beside its queues: what a copy has to have of them.

The newest rows of a running broker are in its memory. A start makes those after `lastOffsetPy` again, from ten files of
the log at most, but none where RocksDB has written nothing yet (`CommitLogDispatchStore#getDispatchFromPhyOffset`).
"""

from __future__ import annotations

from collections.abc import Iterator

from rmqtool.broker.half_messages import halves_in_rocksdb
from rmqtool.formats.properties import REAL_TOPIC, UNIQUE_KEY
from rmqtool.formats.rocksdb_rows import (
    INDEXED_TO,
    is_progress,
    new_transaction_row,
    progress_value,
    transaction_row,
)
from rmqtool.rebuild.staged import RowChange, change_rows, write_database
from rmqtool.rules.system_topics import ROCKSDB_HALF_TOPIC
from rmqtool.scan.columns import PROPERTY_COLUMN
from rmqtool.store.rocksdb import is_readable
from rmqtool.store.side_rows import HALF_FAMILY, INDEX_FAMILY, TIMER_FAMILY, RocksDbIndex, half_rows
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import SIDE_STORE, is_rocksdb_directory

_REAL_TOPIC, _UNIQUE_KEY = (f"{PROPERTY_COLUMN}{name}" for name in (REAL_TOPIC, UNIQUE_KEY))


def needs_rows(snapshot: Snapshot) -> bool:
    """Whether half messages of a store are in RocksDB alone: only the library can complete their rows."""
    return bool(snapshot.queue_ids(ROCKSDB_HALF_TOPIC))


def complete_side_rows(snapshot: Snapshot, last_record: int) -> None:
    """Write into a copy, in place, the rows of half messages that it lacks, and let a start make those of its index.

    `last_record` is the physical offset of the last record of its log. Raises RmqtoolError.
    """
    directory = snapshot.store.root / SIDE_STORE
    if not is_readable():
        return
    changes = [*_halves(snapshot, last_record), *_index(snapshot)]
    if not changes:
        return
    if not is_rocksdb_directory(directory):  # it was deleted
        directory.mkdir(exist_ok=True)
        write_database(directory, {name: {} for name in (TIMER_FAMILY, HALF_FAMILY)})
    change_rows(directory, changes)
    (directory / "LOCK").unlink(missing_ok=True)


def _halves(snapshot: Snapshot, last_record: int) -> Iterator[RowChange]:
    """Half messages after those that RocksDB knows get rows, and what was answered after them loses its own."""
    known = half_rows(snapshot.store) if needs_rows(snapshot) else None
    after = known.indexed_to if known else -1
    halves, ended = halves_in_rocksdb(snapshot, after, ("message_size", _REAL_TOPIC, _UNIQUE_KEY))
    if not (halves.num_rows or ended):
        return
    rows = dict(
        new_transaction_row(offset, topic or "", unique_key or "", size)
        for offset, size, topic, unique_key in zip(*(column.to_pylist() for column in halves.columns), strict=True)
    )

    def is_gone(key: bytes, value: bytes) -> bool:
        return not is_progress(key) and transaction_row(key, value)[0] in ended

    yield RowChange(HALF_FAMILY, b"", is_gone, {**rows, INDEXED_TO: progress_value(last_record)})


def _index(snapshot: Snapshot) -> Iterator[RowChange]:
    """An index that RocksDB has not written yet: a start makes it, but for a message at offset 0, which is no place."""
    store = snapshot.store
    if store.conf.is_on("indexRocksDBEnable") and RocksDbIndex(store).last_offset() is None:
        begin = max(1, snapshot.log_min_offset - 1)  # it takes what comes after that
        yield RowChange(INDEX_FAMILY, b"", lambda *_: False, {INDEXED_TO: progress_value(begin)})
