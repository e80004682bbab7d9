"""Index, timers, half messages and POP records in RocksDB against the log: each row leads to its message, and back.

Brokers since 5.4.0 may keep the first three in `rocksdbstore` (`IndexRocksDBStore`, `TimerMessageRocksDBStore`,
`TransMessageRocksDBStore`), those since 5.3.2 the last in `kvStore` (`PopConsumerRocksdbStore`). Rows of messages that
retention has deleted stay for a while, and are no fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from rmqtool.base.files import list_directory
from rmqtool.base.paths import has_directory, is_remote
from rmqtool.findings.report import Report
from rmqtool.formats.java import decode_text
from rmqtool.formats.layout import FormatError
from rmqtool.formats.rocksdb_rows import (
    INDEX_HOUR,
    INDEXED_TO,
    TIMELINE,
    TIMERS_INDEXED_TO,
    Row,
    index_entry,
    index_prefix,
    is_progress,
    pop_entry,
    timer_entry,
    timer_row,
    transaction_entry,
)
from rmqtool.rules.system_topics import HALF_TOPIC, ROCKSDB_HALF_TOPIC, TIMER_TOPIC
from rmqtool.scan.columns import record_batches
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.message_rows import message_dicts
from rmqtool.scan.reader import scan_files
from rmqtool.store.rocksdb import RocksDb, is_readable, require_room
from rmqtool.store.rocksdb_config import CONFIG_DATABASES
from rmqtool.store.rocksdb_queues import queue_database
from rmqtool.store.side_rows import POP_STORE, index_rows
from rmqtool.store.single_messages import SingleMessages
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CONFIG, SIDE_STORE, Store, is_rocksdb_directory
from rmqtool.verify.rocksdb_config import is_database, reported_database
from rmqtool.verify.rocksdb_index_rows import COLUMNS as INDEX_COLUMNS
from rmqtool.verify.rocksdb_index_rows import IndexRows, MessageRows
from rmqtool.verify.rocksdb_timer_rows import COLUMNS as TIMER_COLUMNS
from rmqtool.verify.rocksdb_timer_rows import TimerMessages, TimerRows

_DEFAULT = _INDEX = "default"  # a column family, as the others
_TIMER, _HALF, _POP = "timer", "trans", "popState"
_ROLLED_MS = 86_400_000  # a timer that waits longer may stand at another time first
_BLOCK = 1 << 15  # rows

SIDE_CODES = ("index.row", "timer.row", "store.half-row", "store.pop-row", "store.rocksdb-damaged")
"""Beginnings of the codes that these checks report."""

Message = Mapping[str, Any]
Decoder = Callable[[bytes, bytes], Row]
Problem = Callable[[bytes, Row], str | None]


def require_copies(store: Store) -> None:
    """Raise UnsupportedError where a database of a store on another machine is too large to be copied to this one."""
    if is_remote(store.root) and is_readable():
        names = (SIDE_STORE, POP_STORE, *(f"{CONFIG}/{name}" for name in CONFIG_DATABASES))
        for directory in (queue_database(store), *(store.root / name for name in names)):
            if directory and is_rocksdb_directory(directory):
                require_room(directory)


def check_side_stores(snapshot: Snapshot, report: Report) -> None:
    """Check every row of both databases; without the library, or while a broker writes, nothing."""
    root = snapshot.store.root
    if snapshot.holder is not None or not is_readable():
        return
    for name, check, families in (
        (SIDE_STORE, _check_side_store, (_INDEX, _TIMER, _HALF)),
        (POP_STORE, _check_pops, (_DEFAULT, _POP)),
    ):
        if is_database(root / name):
            with reported_database(snapshot, name, "store.rocksdb-damaged", report, families) as database:
                if database:
                    check(database, snapshot, report)
        elif has_directory(root / name) and not list_directory(root / name):
            report.add("store.rocksdb-damaged", file=name, details={"problem": "empty"})


def _check_side_store(database: RocksDb, snapshot: Snapshot, report: Report) -> None:
    rows = _Rows(database, snapshot, report)
    index, timers = rows.read_index(), rows.read_timers()
    rows.check(_HALF, transaction_entry, "store.half-row", rows.half_problem)
    if index or len(timers) or rows.timers_scanned > 0:
        rows.check_log(index, timers)


def _check_pops(database: RocksDb, snapshot: Snapshot, report: Report) -> None:
    rows = _Rows(database, snapshot, report)
    rows.check(_POP, pop_entry, "store.pop-row", rows.pop_problem)


class _Rows:
    """The rows of one database, and the messages that they lead to."""

    def __init__(self, database: RocksDb, snapshot: Snapshot, report: Report) -> None:
        self._database = database
        self._snapshot = snapshot
        self._report = report
        self._messages = SingleMessages(snapshot)

    def check(self, family: str, decode: Decoder, code: str, problem: Problem) -> None:
        """Check the rows of a family one by one."""
        if family in self._database.families:
            for key, value in self._database.rows(family):
                self._report.check(code)
                self._check_row(key, value, decode, code, problem)

    def _check_row(self, key: bytes, value: bytes, decode: Decoder, code: str, problem: Problem) -> None:
        try:
            row = decode(key, value)
            why = None if row.kind == "progress" else problem(key, row)
        except FormatError as error:
            why = str(error)
        if why:
            facts = {"key": decode_text(key), "why": why}
            self._report.add(code, file=self._database.directory.name, details=facts)

    @cached_property
    def timers_scanned(self) -> int:
        """The offset in the timer's queue before which each message has or had a row; -1 without timers."""
        return self._progress(_TIMER, TIMERS_INDEXED_TO)

    def read_index(self) -> IndexRows | None:
        """The sums of the index, None without a row; rows that no sum is of are checked here."""
        index = IndexRows(self._snapshot.log_min_offset, self._progress(_INDEX, INDEXED_TO))
        has_rows = False
        for keys, values in self._blocks(_INDEX, "index.row"):
            has_rows = has_rows or not all(map(is_progress, keys))
            for key, value in index.add(keys, values):
                self._check_row(key, value, index_entry, "index.row", self.index_problem)
        return index if has_rows else None

    def read_timers(self) -> TimerRows:
        """The rows of timers; those of another form, and those of the progress, are checked here."""
        timers = TimerRows(self._blocks(_TIMER, "timer.row"))
        for key, value in timers.odd:
            self._check_row(key, value, timer_entry, "timer.row", self.timer_problem)
        return timers

    def _blocks(self, family: str, code: str) -> Iterator[tuple[list[bytes], list[bytes]]]:
        for keys, values in self._database.blocks(family, _BLOCK) if family in self._database.families else ():
            self._report.check(code, len(keys))
            yield keys, values

    def index_problem(self, key: bytes, row: Row) -> str | None:
        """Why a row of the index is wrong."""
        offset = row.key["physical_offset"]
        if offset < self._snapshot.log_min_offset:
            return None
        message = self._messages.at(offset)
        if message is None or row.fields["store_timestamp"] != message["store_timestamp"]:
            return "no message, or one of another time" if message else f"no message at {offset}"
        return None if any(key == each for each, _ in _index_keys(message)) else "its message has no such key"

    def timer_problem(self, key: bytes, row: Row) -> str | None:  # noqa: ARG002
        """Why a row of the time line is wrong."""
        return self._led_to(row, (TIMER_TOPIC,), row.fields["physical_offset"], unique_key=row.key["unique_key"])

    def half_problem(self, key: bytes, row: Row) -> str | None:  # noqa: ARG002
        """Why a row of a half message is wrong."""
        return self._led_to(row, (HALF_TOPIC, ROCKSDB_HALF_TOPIC), row.key["physical_offset"], unique_key=None)

    def pop_problem(self, key: bytes, row: Row) -> str | None:  # noqa: ARG002
        """Why a record of a message that a POP consumer holds is wrong."""
        topic, queue_id, queue_offset = row.key["topic"], row.key["queue_id"], row.key["queue_offset"]
        queue = self._messages.queue(topic, queue_id)
        if queue is None or queue_offset < queue.range.max_offset:
            return None  # a topic may be deleted before its messages come back
        return f"queue offset {queue_offset} of {topic}, queue {queue_id}, which ends at {queue.range.max_offset}"

    def _led_to(self, row: Row, topics: tuple[str, ...], offset: int, *, unique_key: str | None) -> str | None:
        if offset < self._snapshot.log_min_offset:
            return None
        message = self._messages.at(offset)
        if message is None or message["topic"] not in topics:
            return f"no message of {topics[0]} at {offset}"
        if message["message_size"] != row.fields["message_size"]:
            return f"{row.fields['message_size']} bytes, the message has {message['message_size']}"
        return None if unique_key in (None, message["unique_key"]) else f"the message has {message['unique_key']!r}"

    def check_log(self, index: IndexRows | None, timers: TimerRows) -> None:
        """Compare index and time line with the messages that they have come past."""
        expected = MessageRows(index.first, index.indexed_to) if index and index.first >= 0 else None
        scanned, delivered = self.timers_scanned, self._progress(_TIMER, TIMELINE)
        waiting = TimerMessages(timers, scanned, delivered, _ROLLED_MS) if len(timers) or scanned > 0 else None
        names = list(dict.fromkeys([*INDEX_COLUMNS, *(TIMER_COLUMNS if waiting else ())]))
        for run in _runs(self._snapshot):
            for messages in record_batches(run, names):
                if expected:
                    expected.add(messages)
                if waiting:
                    waiting.add(messages)
        if index and expected:
            self._report.check("index.row-missing", expected.count)
            self._check_hours(index, index.sums.differing(expected.sums))
        if waiting:
            self._report_timers(timers, waiting)

    def _check_hours(self, index: IndexRows, hours: set[int]) -> None:
        """Look at the rows of these hours, and at the messages stored in them, one by one."""
        for hour in sorted(hours):
            for key, value in self._database.rows(_INDEX, index_prefix(hour)):
                if index.is_summed(key, value):
                    self._check_row(key, value, index_entry, "index.row", self.index_problem)
        for run in _runs(self._snapshot) if hours else ():
            timestamps = run.headers.field("store_timestamp")
            if np.isin(timestamps - timestamps % INDEX_HOUR, list(hours)).any():
                for message in message_dicts(run, "", "none"):
                    if index.first <= message["physical_offset"] <= index.indexed_to:
                        self._check_indexed(message)

    def _report_timers(self, timers: TimerRows, waiting: TimerMessages) -> None:
        self._report.check("timer.row-missing", waiting.count)
        unmatched = timers.unmatched(self._snapshot.log_min_offset)
        for key, value in self._database.rows(_TIMER) if unmatched else ():
            if not is_progress(key) and timer_row(key, value)[1] in unmatched:
                self._check_row(key, value, timer_entry, "timer.row", self.timer_problem)
        for timer in waiting.missing.values():
            self._report.add("timer.row-missing", details={"unique_key": timer.unique_key},
                             file=SIDE_STORE, offset=timer.physical_offset, topic=TIMER_TOPIC,
                             queue_id=timer.queue_id, queue_offset=timer.queue_offset)  # fmt: skip

    def _check_indexed(self, message: Message) -> None:
        for key, shown in _index_keys(message):
            if not self._has(_INDEX, key):
                self._report.add("index.row-missing", details={"key": shown}, file=SIDE_STORE, topic=message["topic"],
                                 offset=message["physical_offset"])  # fmt: skip

    def _has(self, family: str, key: bytes) -> bool:
        return self._database.some_rows(family, key, key + b"\0", 1)[0] == [key]

    def _progress(self, family: str, key: bytes) -> int:
        """How far a family has come; -1 where it does not say so."""
        if family not in self._database.families:
            return -1
        _, values = self._database.some_rows(family, key, key + b"\0", 1)
        return int.from_bytes(values[0], "big", signed=True) if values else -1


def _runs(snapshot: Snapshot) -> Iterator[RecordRun]:
    return (event for event in scan_files(snapshot.log.files, reading=snapshot.reading) if isinstance(event, RecordRun))


def _index_keys(message: Message) -> Iterator[tuple[bytes, str]]:
    """The keys of a message's rows, each with its name for people; none without a unique key."""
    nouns = {"U": "unique key", "K": "key", "T": "tag"}
    yield from ((row.key, f"{nouns[row.kind]} {row.text}") for row in index_rows(message))
