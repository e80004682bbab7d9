"""The rows of timer messages in RocksDB against the log, both ways (`TimerMessageRocksDBStore`).

Each row is four numbers here, whatever its message; only rows and messages that do not fit are looked at one by one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import compress
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmqtool.formats.properties import TIMER_DELETES, TIMER_DUE
from rmqtool.formats.rocksdb_rows import TIMER_VALUE_DTYPE, is_progress
from rmqtool.rules.system_topics import TIMER_TOPIC
from rmqtool.scan.columns import PROPERTY_COLUMN

_DUE, _DELETES = PROPERTY_COLUMN + TIMER_DUE, PROPERTY_COLUMN + TIMER_DELETES
COLUMNS = (
    *("topic", "queue_id", "queue_offset", "physical_offset", "message_size", "unique_key", "store_timestamp"),
    *("transaction", _DUE, _DELETES),
)
"""The columns of messages that `TimerMessages` needs."""

_TIME_SIZE = 8  # bytes
_WHOLE_NUMBER = r"^[0-9]{1,18}$"
_SOUND = ("none", "commit")

Row = tuple[bytes, bytes]
Integers = NDArray[np.int64]


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
        self.odd: list[Row] = []
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
        return _hashes(keys), offsets, sizes, _hashes(key[_TIME_SIZE:] for key in keys)

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
        """Add messages with COLUMNS, of all topics."""
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
        self._rows.match(np.asarray(messages.column("physical_offset")), sizes, _hashes(unique_keys))
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
        lacks = waits & ~self._rows.have(_hashes(keys))
        for row in np.flatnonzero(lacks | is_delete).tolist():
            if is_delete[row]:
                self._cancel(deletes[row].as_py())
            else:
                names = ("physical_offset", "queue_id", "queue_offset")
                numbers = (int(messages.column(name)[row].as_py()) for name in names)
                self.missing[keys[row]] = Timer(unique_keys[row].decode(errors="replace"), *numbers)

    def _cancel(self, deletes: str) -> None:
        for key in [key for key, timer in self.missing.items() if timer.unique_key in deletes]:
            del self.missing[key]


def _hashes(texts: Iterable[bytes]) -> Integers:
    return np.fromiter(map(hash, texts), np.int64)
