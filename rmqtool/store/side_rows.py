"""What brokers since 5.3.2 may keep in RocksDB instead of files: timers, half messages, and what POP consumers hold.

`MessageRocksDBStorage` since 5.4.0 and `PopConsumerRocksdbStore`. Each function gives None where there is no such
database, or nothing of the kind in it, and raises UnsupportedError without the library, UnreadableError for damage.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.errors import UnreadableError
from rmqtool.formats.layout import FormatError
from rmqtool.formats.rocksdb_rows import (
    INDEXED_TO,
    TIMELINE,
    TIMERS_INDEXED_TO,
    pop_entry,
    progress_number,
    timer_row,
    transaction_row,
)
from rmqtool.store.rocksdb import RocksDb
from rmqtool.store.store import SIDE_STORE, Store, is_rocksdb_directory

POP_STORE = "kvStore"
_TIMERS, _HALVES, _POPS = "timer", "trans", "popState"
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
    for key, value in _rows(store.root / SIDE_STORE, _TIMERS):
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
    for key, value in _rows(store.root / SIDE_STORE, _HALVES):
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
    directory = store.root / POP_STORE
    for key, value in _rows(directory, _POPS):
        with _decoding(directory):
            row = pop_entry(key, value).key
        yield HeldMessage(row["topic"], row["queue_id"], row["group"], row["queue_offset"], row["visible_timestamp"])


def _rows(directory: Path, family: str) -> Iterator[tuple[bytes, bytes]]:
    if is_rocksdb_directory(directory):
        with RocksDb(directory) as database:
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
