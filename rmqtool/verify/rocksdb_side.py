"""Index, timers, half messages and POP records in RocksDB against the log: each row leads to its message, and back.

Brokers since 5.4.0 may keep the first three in `rocksdbstore` (`IndexRocksDBStore`, `TimerMessageRocksDBStore`,
`TransMessageRocksDBStore`), those since 5.3.2 the last in `kvStore` (`PopConsumerRocksdbStore`). Rows of messages that
retention has deleted stay for a while, and are no fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rmqtool.base.files import list_directory
from rmqtool.base.paths import has_directory
from rmqtool.findings.report import Report
from rmqtool.formats.java import decode_text
from rmqtool.formats.layout import FormatError
from rmqtool.formats.properties import TIMER_DELETES, TIMER_DUE
from rmqtool.formats.rocksdb_rows import (
    INDEXED_TO,
    TIMELINE,
    TIMERS_INDEXED_TO,
    Row,
    index_entry,
    pop_entry,
    timer_entry,
    transaction_entry,
)
from rmqtool.rules.system_topics import HALF_TOPIC, ROCKSDB_HALF_TOPIC, TIMER_TOPIC
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.message_rows import message_dicts
from rmqtool.scan.reader import scan_files
from rmqtool.store.rocksdb import RocksDb, is_readable
from rmqtool.store.rocksdb_index import index_rows
from rmqtool.store.side_rows import POP_STORE
from rmqtool.store.single_messages import SingleMessages
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import SIDE_STORE
from rmqtool.transaction import was_killed
from rmqtool.verify.rocksdb_files import is_database, reported_database

_INDEX, _TIMER, _HALF, _POP = "default", "timer", "trans", "popState"  # column families
_ROLLED_MS = 86_400_000  # a timer that waits longer may stand at another time first
_OFFSET_SIZE = 8

SIDE_CODES = ("index.row", "timer.row", "store.half-row", "store.pop-row", "store.rocksdb-damaged")
"""Beginnings of the codes that these checks report."""

Message = Mapping[str, Any]
Decoder = Callable[[bytes, bytes], Row]
Problem = Callable[[bytes, Row], str | None]


def check_side_stores(snapshot: Snapshot, report: Report) -> None:
    """Check every row of both databases; without the library, or while a broker writes, nothing."""
    root = snapshot.store.root
    if snapshot.holder is not None or not is_readable():
        return
    killed = was_killed(root)
    for name, check in ((SIDE_STORE, _check_side_store), (POP_STORE, _check_pops)):
        if is_database(root / name):
            with reported_database(root / name, name, "store.rocksdb-damaged", report, killed=killed) as database:
                if database:
                    check(database, snapshot, report)
        elif has_directory(root / name) and not list_directory(root / name):
            report.add("store.rocksdb-damaged", "the directory is empty: a broker makes it with a database", file=name)


def _check_side_store(database: RocksDb, snapshot: Snapshot, report: Report) -> None:
    rows = _Rows(database, snapshot, report)
    indexed = rows.check(_INDEX, index_entry, "index.row", rows.index_problem)
    timed = rows.check(_TIMER, timer_entry, "timer.row", rows.timer_problem)
    rows.check(_HALF, transaction_entry, "store.half-row", rows.half_problem)
    if indexed or timed:
        rows.check_messages(indexed)


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
        self._first = -1  # the least physical offset that the index holds

    def check(self, family: str, decode: Decoder, code: str, problem: Problem) -> int:
        """Check the rows of a family; their number, without those that say how far it has come."""
        count = 0
        if family not in self._database.families:
            return count
        for key, value in self._database.rows(family):
            try:
                row = decode(key, value)
                count += row.kind != "progress"
                why = None if row.kind == "progress" else problem(key, row)
            except FormatError as error:
                why = str(error)
            self._report.check(code)
            if why:
                self._report.add(code, f"{decode_text(key)!r}: {why}", file=self._database.directory.name)
        return count

    def index_problem(self, key: bytes, row: Row) -> str | None:
        """Why a row of the index is wrong."""
        offset = row.key["physical_offset"]
        if offset < self._snapshot.log_min_offset:
            return None
        self._first = offset if self._first < 0 else min(self._first, offset)
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

    def check_messages(self, indexed: int) -> None:
        """Report messages whose rows are missing, of those that index and time line have come past."""
        indexed_to = self._progress(_INDEX, INDEXED_TO) if indexed else -1
        scanned, delivered = self._progress(_TIMER, TIMERS_INDEXED_TO), self._progress(_TIMER, TIMELINE)
        missing: dict[bytes, Message] = {}
        for message in _messages(self._snapshot):
            if self._first <= message["physical_offset"] <= indexed_to:
                self._check_indexed(message)
            if message["topic"] == TIMER_TOPIC and message["queue_offset"] < scanned:
                self._check_timed(message, delivered, missing)
        for message in missing.values():
            self._report.add("timer.row-missing", f"{message['unique_key']} has no row",
                             file=SIDE_STORE, offset=message["physical_offset"], topic=TIMER_TOPIC,
                             queue_id=message["queue_id"], queue_offset=message["queue_offset"])  # fmt: skip

    def _check_indexed(self, message: Message) -> None:
        for key, shown in _index_keys(message):
            self._report.check("index.row-missing")
            if not self._has(_INDEX, key):
                self._report.add("index.row-missing", f"{shown} has no row", file=SIDE_STORE, topic=message["topic"],
                                 offset=message["physical_offset"])  # fmt: skip

    def _check_timed(self, message: Message, delivered: int, missing: dict[bytes, Message]) -> None:
        """Add a timer that still waits and has no row to `missing`; take out those that it cancels."""
        due, deletes = message["properties"].get(TIMER_DUE, ""), message["properties"].get(TIMER_DELETES)
        if deletes:
            for key in [key for key in missing if decode_text(key[_OFFSET_SIZE:]) in deletes]:
                del missing[key]
        elif due.isdecimal() and message["unique_key"] and _waits(message, int(due), delivered):
            self._report.check("timer.row-missing")
            key = int(due).to_bytes(_OFFSET_SIZE, "big") + message["unique_key"].encode()
            if not self._has(_TIMER, key):
                missing[key] = message

    def _has(self, family: str, key: bytes) -> bool:
        return self._database.some_rows(family, key, key + b"\0", 1)[0] == [key]

    def _progress(self, family: str, key: bytes) -> int:
        """How far a family has come; -1 where it does not say so."""
        if family not in self._database.families:
            return -1
        _, values = self._database.some_rows(family, key, key + b"\0", 1)
        return int.from_bytes(values[0], "big", signed=True) if values else -1


def _messages(snapshot: Snapshot) -> Iterator[Message]:
    """All messages that are neither prepared nor rolled back."""
    for event in scan_files(snapshot.log.files, reading=snapshot.reading):
        if isinstance(event, RecordRun):
            yield from (each for each in message_dicts(event, "", "none") if each["transaction"] in ("none", "commit"))


def _index_keys(message: Message) -> Iterator[tuple[bytes, str]]:
    """The keys of a message's rows, each with its name for people; none without a unique key."""
    nouns = {"U": "unique key", "K": "key", "T": "tag"}
    yield from ((row.key, f"{nouns[row.kind]} {row.text}") for row in index_rows(message))


def _waits(message: Message, due: int, delivered: int) -> bool:
    """Whether a timer is not delivered yet, and stands at its own time."""
    return delivered <= due <= int(message["store_timestamp"]) + _ROLLED_MS
