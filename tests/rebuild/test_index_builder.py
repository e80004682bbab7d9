"""Index files against the broker's rule, put by put."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.broker.dispatcher import IndexKeys
from rmqtool.formats.index_file import HEADER_DTYPE, IndexHeader, IndexUnit, file_size, unit_position
from rmqtool.formats.layout import build
from rmqtool.rebuild.index_builder import IndexBuilder, index_file_name
from rmqtool.store.index_files import Geometry
from tests.building import START_TIME

GEOMETRY = Geometry(slots=7, units=12)
SIZE = file_size(GEOMETRY.slots, GEOMETRY.units)


class Files:
    """A writer that keeps whole files."""

    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {}
        self.finished: list[int] = []

    def begin(self, name: str) -> None:
        assert len(self.finished) == len(self.files)
        assert name not in self.files
        self.files[name] = bytearray(SIZE)

    def put(self, position: int, data: bytes | memoryview) -> None:
        file = list(self.files.values())[-1]
        file[position : position + len(data)] = data
        assert len(file) == SIZE

    def finish(self, timestamp: int) -> None:
        self.finished.append(timestamp)


def keys_of(hashes: list[list[int]], times: list[int]) -> tuple[IndexKeys, np.ndarray, np.ndarray]:
    """Keys of records at 0, 100, 200 ...: those of record i are ``hashes[i]``."""
    counts = [len(found) for found in hashes]
    rows = np.repeat(np.arange(len(hashes)), counts)
    offsets, timestamps = np.arange(len(hashes)) * 100, np.array(times, dtype=np.int64)
    flat = np.array([value for found in hashes for value in found], dtype=np.int32)
    kinds = np.zeros(len(flat), dtype=np.uint8)
    return IndexKeys(flat, offsets[rows], timestamps[rows], kinds, rows.astype(np.int32)), offsets, timestamps


class JavaIndex:
    """`IndexFile#putKey` and `IndexService#buildIndex`, one put at a time."""

    def __init__(self, count_every_put: bool) -> None:
        self.files: list[bytearray] = []
        self.headers: list[dict[str, int]] = []
        self._count_every_put = count_every_put

    def build(self, physical_offset: int, timestamp: int, hashes: list[int]) -> None:
        self._current()
        for value in hashes:
            self._put(value, physical_offset, timestamp)

    def images(self) -> list[bytes]:
        return [
            build(IndexHeader, head) + bytes(file[40:]) for head, file in zip(self.headers, self.files, strict=True)
        ]

    def _current(self) -> tuple[dict[str, int], bytearray]:
        if not self.headers or self.headers[-1]["index_count"] >= GEOMETRY.units:
            before = self.headers[-1] if self.headers else dict.fromkeys(HEADER_DTYPE.names or (), 0)
            end, offset = before["end_timestamp"], before["end_physical_offset"]
            head = {"begin_timestamp": end, "end_timestamp": end, "begin_physical_offset": offset}
            self.headers.append({**head, "end_physical_offset": offset, "hash_slot_count": 0, "index_count": 1})
            self.files.append(bytearray(SIZE))
        return self.headers[-1], self.files[-1]

    def _put(self, value: int, physical_offset: int, timestamp: int) -> None:
        head, file = self._current()
        slot = 40 + value % GEOMETRY.slots * 4
        previous = int.from_bytes(file[slot : slot + 4], "big")
        begin = head["begin_timestamp"]
        seconds = min(max((timestamp - begin) // 1000, 0), (1 << 31) - 1) if begin > 0 else 0
        place = unit_position(GEOMETRY.slots, head["index_count"])
        unit = {"key_hash": value, "physical_offset": physical_offset}
        file[place : place + 20] = build(IndexUnit, {**unit, "seconds_since_begin": seconds, "previous": previous})
        file[slot : slot + 4] = head["index_count"].to_bytes(4, "big")
        if head["index_count"] <= 1:
            head["begin_physical_offset"], head["begin_timestamp"] = physical_offset, timestamp
        head["hash_slot_count"] += self._count_every_put or previous == 0
        head["index_count"] += 1
        head["end_physical_offset"], head["end_timestamp"] = physical_offset, timestamp


RECORDS = st.lists(
    st.tuples(st.lists(st.integers(0, (1 << 31) - 1) | st.integers(0, 9), max_size=4), st.integers(0, 9000)),
    max_size=60,
)


@pytest.mark.slow
@given(RECORDS, st.integers(0, 60), st.booleans())
def test_files_are_those_of_the_java_class(
    records: list[tuple[list[int], int]], split: int, count_every_put: bool
) -> None:
    """Any keys and times, in one run or two: the same bytes as put by put."""
    times = [START_TIME + time for _, time in records]
    java = JavaIndex(count_every_put)
    for row, (hashes, _) in enumerate(records):
        java.build(row * 100, times[row], hashes)
    writer = Files()
    builder = IndexBuilder(writer, GEOMETRY, count_every_put=count_every_put)
    only_names = IndexBuilder(None, GEOMETRY, count_every_put=count_every_put)
    keys, offsets, timestamps = keys_of([hashes for hashes, _ in records], times)
    for rows in (slice(0, split), slice(split, None)):
        part = np.isin(keys.rows, np.arange(len(records))[rows])
        for each in (builder, only_names):
            each.add(keys[part], offsets[rows], timestamps[rows])
    builder.finish()

    assert [bytes(file) for file in writer.files.values()] == java.images()
    assert builder.names == only_names.names == list(writer.files) == sorted(set(writer.files))
    assert (builder.units, builder.end_timestamp) == (only_names.units, only_names.end_timestamp)


def test_record_without_keys_makes_a_file() -> None:
    """A broker makes the first file for the first record, and one after a full file for the record after."""
    builder = IndexBuilder(Files(), GEOMETRY, count_every_put=False)
    full = [[number] for number in range(GEOMETRY.units - 1)]
    builder.add(*keys_of([[], *full, []], [START_TIME + 1000 * row for row in range(len(full) + 2)]))
    builder.finish()

    assert builder.names == [index_file_name(START_TIME), index_file_name(START_TIME + 1000 * (len(full) + 1))]


def test_no_record_no_file() -> None:
    """An empty log gives no index file."""
    builder = IndexBuilder(Files(), GEOMETRY, count_every_put=False)
    builder.finish()

    assert builder.names == []


@pytest.mark.parametrize(
    ("timestamp", "name"),
    [
        (1_700_000_000_123, "20231114101320123"),  # 22:13:20.123 UTC is 10:13:20 at UTC-12
        (0, "19691231120000000"),
        (-5, "19691231120000000"),
        (1 << 62, "99991229120000000"),
        (-(1 << 62), "19691231120000000"),
    ],
)
def test_name_is_the_first_messages_time_in_the_westernmost_zone(timestamp: int, name: str) -> None:
    """Whatever the broker's zone, files that it makes later have later names."""
    assert index_file_name(timestamp) == name
