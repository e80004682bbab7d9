"""Index, timers, half messages and POP records in RocksDB against the log: each row leads to its message, and back.

Brokers since 5.4.0 may keep the first three in `rocksdbstore` (`IndexRocksDBStore`, `TimerMessageRocksDBStore`,
`TransMessageRocksDBStore`), those since 5.3.2 the last in `kvStore` (`PopConsumerRocksdbStore`). Rows of messages that
retention has deleted stay for a while, and are no fault.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmqtool.base.files import list_directory
from rmqtool.base.paths import has_directory, is_remote
from rmqtool.findings.report import Report
from rmqtool.formats.java import decode_text
from rmqtool.formats.layout import FormatError
from rmqtool.formats.properties import TIMER_DELETES, TIMER_DUE
from rmqtool.formats.rocksdb_rows import (
    INDEX_HOUR,
    INDEXED_TO,
    TIMELINE,
    TIMER_VALUE_DTYPE,
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
from rmqtool.scan.columns import PROPERTY_COLUMN, record_batches
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.message_rows import message_dicts
from rmqtool.scan.reader import scan_files
from rmqtool.store.config_tables import CONFIG_DATABASES
from rmqtool.store.rocksdb import RocksDb, is_readable, require_room
from rmqtool.store.rocksdb_queues import queue_database
from rmqtool.store.side_rows import POP_STORE, index_rows
from rmqtool.store.single_messages import SingleMessages
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CONFIG, SIDE_STORE, Store, is_rocksdb_directory
from rmqtool.verify.config_checks import is_database, reported_database

INDEX_COLUMNS = ("topic", "unique_key", "keys", "tags", "store_timestamp", "physical_offset", "transaction")
"""The columns of messages that `MessageRows` needs."""

_NUMBER = 8  # bytes
_SHORTEST = 2 * _NUMBER + len("@@U@@")  # of keys; those of the progress are shorter
_FORM = re.compile(rb"(?s).{8}@.*@[KTU]@.*@.{8}")  # of a key; no more is known of rows of deleted messages
_MIX = np.uint64(0x9E3779B97F4A7C15)
_INDEXED = ("none", "prepared", "commit")

RawRow = tuple[bytes, bytes]
Hashes = NDArray[np.uint64]
Integers = NDArray[np.int64]


@dataclass
class HourSums:
    """Counts and sums, modulo 2**64, of hashes by hour, epoch ms."""

    counts: dict[int, int] = field(default_factory=dict)
    sums: dict[int, int] = field(default_factory=dict)

    def add(self, hours: Integers, hashes: Hashes) -> None:
        """Add hashes, each of one hour."""
        if not len(hours):
            return
        is_one = hours[0] == hours[-1] and (hours == hours[0]).all()
        for hour in (int(hours[0]),) if is_one else np.unique(hours).tolist():
            chosen = hashes if is_one else hashes[hours == hour]
            self.counts[hour] = self.counts.get(hour, 0) + len(chosen)
            self.sums[hour] = (self.sums.get(hour, 0) + int(chosen.sum(dtype=np.uint64))) % (1 << 64)

    def differing(self, other: HourSums) -> set[int]:
        """The hours whose hashes are not those of `other`."""
        hours = self.counts.keys() | other.counts.keys()
        return {
            hour
            for hour in hours
            if (self.counts.get(hour), self.sums.get(hour)) != (other.counts.get(hour), other.sums.get(hour))
        }


class IndexRows:
    """The rows of the index as they are read; `log_start` is the physical offset where the log begins.

    `first` is the least physical offset after it that a row has, -1 without one. Rows of another form, and those that
    are behind `indexed_to`, are in no sum.
    """

    def __init__(self, log_start: int, indexed_to: int) -> None:
        self.sums = HourSums()
        self.first = -1
        self._log_start = log_start
        self.indexed_to = indexed_to

    def add(self, keys: list[bytes], values: list[bytes]) -> list[RawRow]:
        """Add a block of rows, those of the progress too; the rows that must be looked at one by one."""
        sizes = np.fromiter(map(len, keys), np.intp, len(keys))
        is_odd = sizes < _SHORTEST
        if len(b"".join(values)) != _NUMBER * len(values):
            is_odd |= np.fromiter(map(len, values), np.intp, len(values)) != _NUMBER
        if is_odd.any():
            kept = np.flatnonzero(~is_odd).tolist()
            odd = [(keys[row], values[row]) for row in np.flatnonzero(is_odd).tolist()]
            keys, values, sizes = [keys[row] for row in kept], [values[row] for row in kept], sizes[~is_odd]
            return odd + (self._add(keys, values, sizes) if keys else [])
        return self._add(keys, values, sizes)

    def is_summed(self, key: bytes, value: bytes) -> bool:
        """Whether a row is in the sums; the others were looked at when they were added."""
        has_form = len(key) >= _SHORTEST and len(value) == _NUMBER
        return has_form and self._log_start <= int.from_bytes(key[-_NUMBER:], "big", signed=True) <= self.indexed_to

    def _add(self, keys: list[bytes], values: list[bytes], sizes: NDArray[np.intp]) -> list[RawRow]:
        hours, offsets = _numbers_of(keys, sizes)
        is_live = offsets >= self._log_start
        compared = is_live & (offsets <= self.indexed_to)
        if is_live.any():
            least = int(offsets[is_live].min())
            self.first = least if self.first < 0 else min(self.first, least)
        hashes = _hashes(keys, np.frombuffer(b"".join(values), ">u8"))
        if compared.all():
            self.sums.add(hours, hashes)
            return []
        self.sums.add(hours[compared], hashes[compared])
        others = np.flatnonzero(~compared).tolist()
        return [(keys[row], values[row]) for row in others if is_live[row] or not _FORM.fullmatch(keys[row])]


class MessageRows:
    """The rows that messages from physical offset `first` to `last`, included, have in the index."""

    def __init__(self, first: int, last: int) -> None:
        self.sums = HourSums()
        self.count = 0
        self._first = first
        self._last = last

    def add(self, messages: pa.RecordBatch) -> None:
        """Add messages with INDEX_COLUMNS."""
        offsets = np.asarray(messages.column("physical_offset"))
        if offsets[-1] < self._first or offsets[0] > self._last:
            return
        unique_keys = messages.column("unique_key").fill_null("")
        is_indexed = (offsets >= self._first) & (offsets <= self._last) & np.asarray(pc.not_equal(unique_keys, ""))
        is_indexed &= np.asarray(pc.is_in(messages.column("transaction"), value_set=pa.array(_INDEXED)))
        if not is_indexed.all():
            messages = messages.filter(pa.array(is_indexed))
        if len(messages):
            timestamps = np.asarray(messages.column("store_timestamp"))
            self._add_rows(messages, timestamps - timestamps % INDEX_HOUR)

    def _add_rows(self, messages: pa.RecordBatch, hours: Integers) -> None:
        topics, unique_keys = _bytes(messages.column("topic")), _bytes(messages.column("unique_key"))
        begins = pc.binary_join_element_wise(_packed(hours), topics, b"@")
        ends = pc.binary_join_element_wise(unique_keys, _packed(np.asarray(messages.column("physical_offset"))), b"@")
        times = np.asarray(messages.column("store_timestamp")).view(np.uint64)
        self._sum(hours, pc.binary_join_element_wise(begins, ends, b"@U@"), times)
        tags = messages.column("tags").fill_null("")
        with_tags = np.asarray(pc.not_equal(tags, "")).nonzero()[0]
        words = messages.column("keys")
        parents = np.asarray(pc.list_parent_indices(words))
        for kind, texts, rows in ((b"@T@", tags.take(with_tags), with_tags), (b"@K@", words.flatten(), parents)):
            if len(rows):
                inner = pc.binary_join_element_wise(begins.take(rows), _bytes(texts), kind)
                keys = pc.binary_join_element_wise(inner, ends.take(rows), b"@")
                is_distinct = len(rows) < 2 or bool((np.diff(rows) > 0).all())
                self._sum(hours[rows], keys, times[rows], is_distinct=is_distinct)

    def _sum(
        self, hours: Integers, keys: pa.BinaryArray, times: NDArray[np.uint64], *, is_distinct: bool = True
    ) -> None:
        hashes = _hashes(keys.to_pylist(), times)
        if not is_distinct:  # a key that a message has twice has one row
            hashes, chosen = np.unique(hashes, return_index=True)
            hours = hours[chosen]
        self.count += len(hashes)
        self.sums.add(hours, hashes)


def _hashes(keys: list[bytes], times: NDArray[np.uint64]) -> Hashes:
    """A hash of each key with its time, so that times that changed places are other sums."""
    hashes = np.fromiter(map(hash, keys), np.int64, len(keys)).view(np.uint64)
    hashes ^= times * _MIX
    hashes ^= hashes >> np.uint64(29)
    hashes *= _MIX
    return hashes


def _numbers_of(keys: list[bytes], sizes: NDArray[np.intp]) -> tuple[Integers, Integers]:
    """The first and the last number of each key."""
    data = b"".join(keys)
    windows: NDArray[np.void] = np.ndarray((len(data) - _NUMBER + 1,), f"V{_NUMBER}", data, strides=(1,))
    ends = np.cumsum(sizes)
    first, last = (windows[positions].view(">i8").astype(np.int64) for positions in (ends - sizes, ends - _NUMBER))
    return first, last


def _packed(numbers: Integers) -> pa.BinaryArray:
    data = pa.py_buffer(np.ascontiguousarray(numbers.astype(">i8")))
    bounds = pa.py_buffer(np.arange(len(numbers) + 1, dtype=np.int32) * np.int32(_NUMBER))
    return pa.BinaryArray.from_buffers(pa.binary(), len(numbers), [None, bounds, data])


def _bytes(texts: pa.StringArray) -> pa.BinaryArray:
    return texts.cast(pa.binary())


_DUE, _DELETES = PROPERTY_COLUMN + TIMER_DUE, PROPERTY_COLUMN + TIMER_DELETES
TIMER_COLUMNS = (
    *("topic", "queue_id", "queue_offset", "physical_offset", "message_size", "unique_key", "store_timestamp"),
    *("transaction", _DUE, _DELETES),
)
"""The columns of messages that `TimerMessages` needs."""

_TIME_SIZE = 8  # bytes
_WHOLE_NUMBER = r"^[0-9]{1,18}$"
_SOUND = ("none", "commit")


class Timer(NamedTuple):
    """A message that waits and has no row."""

    unique_key: str
    physical_offset: int
    queue_id: int
    queue_offset: int


class TimerRows:
    """The rows of timer messages: the hash of each key, and offset, size and hash of the unique key of each message."""

    def __init__(self, blocks: Iterable[tuple[list[bytes], list[bytes]]]) -> None:
        """`blocks` are keys and values; those of another form, as those of the progress are, are in `odd`."""
        self.odd: list[RawRow] = []
        found = [self._columns(keys, values) for keys, values in blocks]
        columns = [np.concatenate([np.zeros(0, np.int64), *column]) for column in zip(*found, strict=True)]
        keys, offsets, sizes, unique_keys = columns or [np.zeros(0, np.int64)] * 4
        order = np.argsort(offsets, kind="stable")
        self._keys = np.sort(keys)
        self._offsets, self._sizes, self._unique_keys = offsets[order], sizes[order], unique_keys[order]
        self._fits = np.zeros(len(order), dtype=np.bool_)

    def _columns(self, keys: list[bytes], values: list[bytes]) -> tuple[Integers, Integers, Integers, Integers]:
        size = TIMER_VALUE_DTYPE.itemsize
        good = [
            len(key) >= _TIME_SIZE and len(value) == size and not is_progress(key)
            for key, value in zip(keys, values, strict=True)
        ]
        if not all(good):
            self.odd += [row for row, is_good in zip(zip(keys, values, strict=True), good, strict=True) if not is_good]
            keys, values = list(compress(keys, good)), list(compress(values, good))
        rows = np.frombuffer(b"".join(values), TIMER_VALUE_DTYPE)
        offsets, sizes = rows["physical_offset"].astype(np.int64), rows["message_size"].astype(np.int64)
        return _hashed(keys), offsets, sizes, _hashed(key[_TIME_SIZE:] for key in keys)

    def __len__(self) -> int:
        return len(self._offsets)

    def match(self, offsets: Integers, sizes: Integers, unique_keys: Integers) -> None:
        """Note the rows that lead to one of these messages, which ascend."""
        low, high = np.searchsorted(self._offsets, (offsets[0], offsets[-1] + 1)).tolist()
        at = np.searchsorted(offsets, self._offsets[low:high])
        self._fits[low:high] |= (
            (offsets[at] == self._offsets[low:high])
            & (sizes[at] == self._sizes[low:high])
            & (unique_keys[at] == self._unique_keys[low:high])
        )

    def unmatched(self, log_start: int) -> set[int]:
        """Physical offsets after `log_start` in rows that lead to no such message."""
        return set(self._offsets[~self._fits & (self._offsets >= log_start)].tolist())

    def have(self, keys: Integers) -> NDArray[np.bool_]:
        """Whether there are rows of these keys, by their hashes."""
        if not len(self._keys):
            return np.zeros(len(keys), dtype=np.bool_)
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.asarray(self._keys[at] == keys)


class TimerMessages:
    """The timer messages of the log, compared with `rows` as they come.

    Those before the offset `scanned` in the timer's queue have rows, once they are due at `delivered`, epoch ms, or
    later, and less than `longest` ms from when they were stored. `missing` are those without, by key.
    """

    def __init__(self, rows: TimerRows, scanned: int, delivered: int, longest: int) -> None:
        self.missing: dict[bytes, Timer] = {}
        self.count = 0
        self._rows = rows
        self._scanned, self._delivered, self._longest = scanned, delivered, longest

    def add(self, messages: pa.RecordBatch) -> None:
        """Add messages with TIMER_COLUMNS, of all topics."""
        is_timer = pc.equal(messages.column("topic"), TIMER_TOPIC)
        if not is_timer.true_count:
            return
        messages = messages.filter(
            pc.and_(is_timer, pc.is_in(messages.column("transaction"), value_set=pa.array(_SOUND)))
        )
        if not len(messages):
            return
        unique_keys = messages.column("unique_key").fill_null("").cast(pa.binary()).to_pylist()
        sizes = np.asarray(messages.column("message_size")).astype(np.int64)
        self._rows.match(np.asarray(messages.column("physical_offset")), sizes, _hashed(unique_keys))
        self._look_for_rows(messages, unique_keys)

    def _look_for_rows(self, messages: pa.RecordBatch, unique_keys: list[bytes]) -> None:
        dues = messages.column(_DUE).fill_null("")
        is_number = np.asarray(pc.match_substring_regex(dues, _WHOLE_NUMBER))
        times = np.asarray(pc.if_else(pa.array(is_number), dues, "0").cast(pa.int64()))
        is_read = np.asarray(messages.column("queue_offset")) < self._scanned
        deletes = messages.column(_DELETES).fill_null("")
        is_delete = is_read & np.asarray(pc.not_equal(deletes, ""))
        waits = is_read & is_number & ~is_delete & (times >= self._delivered)
        waits &= times <= np.asarray(messages.column("store_timestamp")) + self._longest
        waits &= np.fromiter(map(len, unique_keys), np.intp, len(unique_keys)) > 0
        self.count += int(np.count_nonzero(waits))
        keys = [
            struct.pack(">q", due) + unique_key for due, unique_key in zip(times.tolist(), unique_keys, strict=True)
        ]
        lacks = waits & ~self._rows.have(_hashed(keys))
        for row in np.flatnonzero(lacks | is_delete).tolist():
            if is_delete[row]:
                names = deletes[row].as_py()
                self.missing = {key: each for key, each in self.missing.items() if each.unique_key not in names}
            else:
                columns = ("physical_offset", "queue_id", "queue_offset")
                numbers = (int(messages.column(name)[row].as_py()) for name in columns)
                self.missing[keys[row]] = Timer(unique_keys[row].decode(errors="replace"), *numbers)


def _hashed(texts: Iterable[bytes]) -> Integers:
    return np.fromiter(map(hash, texts), np.int64)


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
            return "no message, or one from another time" if message else f"no message at {offset}"
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
            if self._database.some_rows(_INDEX, key, key + b"\0", 1)[0] != [key]:
                self._report.add("index.row-missing", details={"key": shown}, file=SIDE_STORE, topic=message["topic"],
                                 offset=message["physical_offset"])  # fmt: skip

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
