"""The rows of the index in RocksDB against the log, both ways at once (`IndexRocksDBStore#buildIndex`).

Rows and messages are hashed, and the hashes are summed by the hour that begins a row's key. Where count and sum of an
hour are those of its messages, each of its rows is of a message and each message has its rows, to the byte; only the
other hours are looked at row by row. So memory does not grow with the rows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmqtool.formats.rocksdb_rows import INDEX_HOUR

COLUMNS = ("topic", "unique_key", "keys", "tags", "store_timestamp", "physical_offset", "transaction")
"""The columns of messages that `MessageRows` needs."""

_NUMBER = 8  # bytes
_SHORTEST = 2 * _NUMBER + len("@@U@@")  # of keys; those of the progress are shorter
_FORM = re.compile(rb"(?s).{8}@.*@[KTU]@.*@.{8}")  # of a key; no more is known of rows of deleted messages
_MIX = np.uint64(0x9E3779B97F4A7C15)
_INDEXED = ("none", "prepared", "commit")

Row = tuple[bytes, bytes]
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

    def add(self, keys: list[bytes], values: list[bytes]) -> list[Row]:
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

    def _add(self, keys: list[bytes], values: list[bytes], sizes: NDArray[np.intp]) -> list[Row]:
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
        """Add messages with COLUMNS."""
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
