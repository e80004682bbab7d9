"""Filters pick the same messages as a plain comparison of each one."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqtool.scan.columns import record_batches
from rmqtool.scan.filters import Filters
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from tests.building import START_TIME, LogBuilder
from tests.conftest import GoldenStore
from tests.scan.reading import files_of

_SHOWN = ("topic", "queue_id", "physical_offset", "unique_key", "keys", "tags", "store_timestamp", "stored_body",
          "transaction")  # fmt: skip
STORES = ("5.5.0-clean", "4.4.0-killed")


def everything(
    store: Path, start: int = 0, stop: int = (1 << 63) - 1
) -> Iterator[tuple[RecordRun, list[dict[str, Any]]]]:
    for event in scan_files(files_of(store), start, stop):
        if isinstance(event, RecordRun):
            yield event, [row for batch in record_batches(event, _SHOWN) for row in batch.to_pylist()]


def passes(filters: Filters, row: dict[str, Any]) -> bool:
    """The filters as a sentence of plain Python."""
    return (
        (not filters.topics or row["topic"] in filters.topics)
        and (not filters.queue_ids or row["queue_id"] in filters.queue_ids)
        and (not filters.tags or row["tags"] in filters.tags)
        and (not filters.keys or bool({row["unique_key"], *row["keys"]} & set(filters.keys)))
        and (filters.from_timestamp is None or row["store_timestamp"] >= filters.from_timestamp)
        and (filters.to_timestamp is None or row["store_timestamp"] < filters.to_timestamp)
        and (not filters.transactions or row["transaction"] in filters.transactions)
    )


def selected(store: Path, filters: Filters) -> list[dict[str, Any]]:
    found = []
    for frames, _ in everything(store, filters.start, filters.stop):
        kept = filters.select(frames)
        if kept is not None:
            found += [row for batch in record_batches(kept, _SHOWN) for row in batch.to_pylist()]
    return found


def variants(rows: list[dict[str, Any]]) -> Iterator[Filters]:
    """Filters that take a part of `rows`, one of each kind and together."""
    times = sorted(row["store_timestamp"] for row in rows)
    middle = times[len(times) // 2]
    topics, tags = sorted({row["topic"] for row in rows}), sorted({row["tags"] for row in rows if row["tags"]})
    keys = sorted({key for row in rows for key in row["keys"]})
    unique_keys = [row["unique_key"] for row in rows if row["unique_key"]]
    yield Filters()
    yield Filters(transactions=("prepared", "commit"))
    yield Filters(topics=(topics[0],), transactions=("none",))
    yield Filters(topics=(topics[0],))
    yield Filters(topics=(topics[0], topics[-1], "no such topic"))
    yield Filters(topics=("no such topic",))
    yield Filters(queue_ids=(1,))
    yield Filters(queue_ids=(0, 2))
    yield Filters(tags=(tags[0],))
    yield Filters(tags=tuple(tags[:2]))
    yield Filters(keys=(keys[0],))
    yield Filters(keys=(unique_keys[0], keys[-1]))
    yield Filters(from_timestamp=middle)
    yield Filters(to_timestamp=middle)
    yield Filters(from_timestamp=times[0], to_timestamp=times[0] + 1)
    yield Filters(topics=tuple(topics[:4]), queue_ids=(0,), from_timestamp=times[3])


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_filters_take_what_a_plain_comparison_takes(golden_store: GoldenStore, name: str) -> None:
    """For each kind of filter, of real records; together they leave some out and some in."""
    store = golden_store(name)
    rows = [row for _, part in everything(store) for row in part]
    sizes = set()
    for filters in variants(rows):
        expected = [row for row in rows if passes(filters, row)]
        assert selected(store, filters) == expected, filters
        sizes.add(len(expected))
    assert {0, len(rows)} < sizes


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_a_mask_is_for_whole_batches(golden_store: GoldenStore, name: str) -> None:
    """The mask of a batch with the filter's columns, and of one with more, says the same."""
    rows = [row for _, part in everything(golden_store(name)) for row in part]
    for filters in variants(rows):
        for frames, part in everything(golden_store(name)):
            (batch,) = record_batches(frames, (*filters.columns, "message_size"))
            assert filters.mask(batch).tolist() == [passes(filters, row) for row in part]


def test_offsets_are_given_to_the_scan(tmp_path: Path) -> None:
    """Physical offsets bound the scan itself: the first is in, the last is not."""
    builder = LogBuilder().add_all([{}, {}, {}, {}])
    store = builder.write(tmp_path)
    filters = Filters(from_offset=builder.offsets[1], to_offset=builder.offsets[3])
    assert [row["physical_offset"] for row in selected(store, filters)] == builder.offsets[1:3]


def test_a_key_is_one_of_several_or_the_unique_key(tmp_path: Path) -> None:
    """Not a part of a key, and not a property of another name."""
    builder = LogBuilder().add_all(
        [
            {"properties": {"KEYS": "one two", "UNIQ_KEY": "u1"}},
            {"properties": {"KEYS": "one-two"}},
            {"properties": {"UNIQ_KEY": "two"}},
            {"properties": {"other": "two"}},
            {},
        ]
    )
    store = builder.write(tmp_path)
    found = [row["physical_offset"] for row in selected(store, Filters(keys=("two",)))]
    assert found == [builder.offsets[0], builder.offsets[2]]


def test_times_are_half_open(tmp_path: Path) -> None:
    """From is in, to is not; a store time before 1970 is a time too."""
    builder = LogBuilder().add_all([{"store_timestamp": time} for time in (-5, START_TIME, START_TIME + 1)])
    store = builder.write(tmp_path)
    between = Filters(from_timestamp=-5, to_timestamp=START_TIME + 1)
    assert [row["store_timestamp"] for row in selected(store, between)] == [-5, START_TIME]


def test_only_what_a_filter_needs_is_read() -> None:
    """A filter names its columns; without one nothing is read, and the numbers travel to other processes."""
    assert Filters(from_offset=5).columns == ()
    assert Filters(keys=("a",), to_timestamp=5).columns == ("unique_key", "keys", "store_timestamp")
    filters = Filters(topics=("a",), to_offset=9)
    assert pickle.loads(pickle.dumps(filters)) == filters
