"""Filters on what only records tell: the units that pass are those whose message a listing of the log lets through."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rmqtool.formats.consume_queue import build_unit
from rmqtool.formats.dledger import ENTRY_HEADER_SIZE
from rmqtool.inspect.options import ListingOptions, RecordFilter
from rmqtool.inspect.registry import LISTINGS, list_location, split_filters
from rmqtool.scan.filters import Filters
from rmqtool.scan.rows import Rows
from tests.building import LogBuilder, write_log
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.golden import stores
from tests.inspect.listings import location_of, objects
from tests.unchanged import unchanged

QUEUES, BATCHES, INDEX = "consumequeue", "batchconsumequeue", "index"
EXTRAS, GROUP = "more/5.5.0-extras", "more/5.3.3-dledger"
PLACES: list[Any] = [
    pytest.param(*store.values, part, "commitlog", marks=store.marks)
    for store in stores.samples()
    for part in (QUEUES, BATCHES, INDEX)
]
PLACES += [(EXTRAS, part, "commitlog") for part in (QUEUES, INDEX, "timerlog")]
PLACES += [
    (name, "compaction/compactionCq/state/0", "compaction/compactionLog/state/0")
    for name in (EXTRAS, "more/5.5.0-compacted")
]
PLACES += [
    (name, part, "dledger-n0") for name in (GROUP, "more/4.9.7-dledger") for part in (QUEUES, "dledger-n0/index")
]


def found_at(path: Path, filters: Filters, **options: Any) -> tuple[list[dict[str, Any]], RecordFilter | None]:
    """The units that pass, and what could not be judged."""
    place = location_of(path)
    by_units, by_records = split_filters(place.kind, filters)
    judge = None if by_records == Filters() else RecordFilter(place, by_records)
    with unchanged(place.root):
        parts = list_location(place, ListingOptions(filters=by_units, by_record=judge, **options))
        rows = [row for part in parts if isinstance(part, Rows) for row in part.dicts()]
    return [row for row in rows if row["kind"] != "index_header"], judge


@cache
def messages_in(log: Path) -> list[dict[str, Any]]:
    """The messages of a log, listed once for its queues, its batch queues and its index."""
    return [line for line in objects(log) if line["kind"] == "message"]


def variants(messages: list[dict[str, Any]]) -> Iterator[Filters]:
    """Filters that let some of the messages through: of each sort that records may have to tell."""
    times = sorted(message["store_timestamp"] for message in messages)
    yield Filters(from_timestamp=times[len(times) // 3], to_timestamp=times[len(times) * 2 // 3])
    yield Filters(keys=tuple(sorted({key for message in messages for key in message["keys"]})[:2]) or ("none",))
    yield Filters(keys=(messages[len(messages) // 2]["unique_key"] or "none",), queue_ids=(0, 1))
    yield Filters(topics=(messages[0]["topic"],), queue_ids=(messages[0]["queue_id"],))
    yield Filters(tags=tuple({message["tags"] for message in messages if message["tags"]}) or ("none",))


def passes(filters: Filters, message: dict[str, Any]) -> bool:
    stored = message["store_timestamp"]
    return (
        (not filters.topics or message["topic"] in filters.topics)
        and (not filters.queue_ids or message["queue_id"] in filters.queue_ids)
        and (not filters.tags or message["tags"] in filters.tags)
        and (not filters.keys or bool({message["unique_key"], *message["keys"]} & set(filters.keys)))
        and (filters.from_timestamp is None or stored >= filters.from_timestamp)
        and (filters.to_timestamp is None or stored < filters.to_timestamp)
    )


@pytest.mark.one_in(3)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "part", "log"), PLACES)
def test_units_whose_messages_pass(golden_store: GoldenStore, name: str, part: str, log: str) -> None:
    """Unit by unit as the message says, in the order of the units; the units without one are counted."""
    store = golden_store(name)
    if not (store / part).is_dir():
        return
    listed = messages_in(store / log)
    messages = {line["physical_offset"]: line for line in listed}
    by_record = LISTINGS[location_of(store / part).kind].by_record
    units = [unit for unit in objects(store / part) if "header" not in unit["kind"]]
    for filters in variants(listed) if listed else ():
        asked = filters.only(by_record)
        if asked == Filters():
            continue
        judge = RecordFilter(location_of(store / part), asked)
        found = []
        for rows in list_location(location_of(store / part), ListingOptions(by_record=judge)):
            found += rows.dicts() if isinstance(rows, Rows) else []
        found = [unit for unit in found if "header" not in unit["kind"]]
        offsets = [offset_of(unit) for unit in units]
        assert found == [
            unit
            for unit, offset in zip(units, offsets, strict=True)
            if offset in messages and passes(asked, messages[offset])
        ]
        lost = sum(offset is not None and offset not in messages for offset in offsets)
        assert judge.deleted + judge.unread == lost


def offset_of(unit: dict[str, Any]) -> int | None:
    """The place of a unit's message; None for one that has none."""
    if unit["kind"] in ("pre_blank", "empty", "end_mark", "timer_blank", "bad_unit"):
        return None
    offset: int = unit["position"] + ENTRY_HEADER_SIZE if "term" in unit else unit["physical_offset"]
    return offset


@pytest.mark.slow
def test_some_pass_and_some_do_not(golden_store: GoldenStore) -> None:
    """The order, the limit and the way back are those of the whole listing."""
    queue = golden_store("5.3.3-clean") / "consumequeue/orders/0"
    log = [line for line in objects(golden_store("5.3.3-clean") / "commitlog") if line["kind"] == "message"]
    filters = Filters(from_timestamp=log[len(log) // 2]["store_timestamp"])
    found, judge = found_at(queue, filters)
    assert 0 < len(found) < len(objects(queue))
    assert judge is not None
    assert not judge.deleted + judge.unread
    assert found_at(queue, filters, reverse=True)[0] == found[::-1]
    assert found_at(queue, filters, limit=3)[0] == found[:3]


def test_times_that_do_not_ascend(tmp_path: Path) -> None:
    """A clock that was set back, units twice and in any order: each unit is judged by its own record."""
    times = [50, 10, 40, 10, 30, 60, 20]
    log = LogBuilder().add_all([{"store_timestamp": time} for time in times])
    log.write(tmp_path)
    size = log.offsets[1]
    order = [3, 0, 0, 6, 5, 1, 2, 4, 3]
    queue = tmp_path / "consumequeue/orders/0"
    queue.mkdir(parents=True)
    units = [build_unit(log.offsets[number], size, 0) for number in order]
    (queue / ("0" * 20)).write_bytes(b"".join(units))
    found, _ = found_at(queue, Filters(from_timestamp=20, to_timestamp=50))
    assert [unit["physical_offset"] for unit in found] == [log.offsets[at] for at in order if 20 <= times[at] < 50]


def test_units_that_cannot_be_judged(tmp_path: Path) -> None:
    """Units before the log, after it, inside a record, and of another size than their record."""
    log = LogBuilder(start_offset=8192).add_all([{} for _ in range(5)])
    log.write(tmp_path)
    size = log.offsets[1] - log.offsets[0]
    units = [(0, size), (8000, size), (8192, size), (8192, size + 1), (8193, size), (log.end, size), (1 << 60, size)]
    queue = tmp_path / "consumequeue/orders/0"
    queue.mkdir(parents=True)
    (queue / ("0" * 20)).write_bytes(b"".join(build_unit(*unit, 0) for unit in units))
    for filters in (Filters(from_timestamp=0), Filters(keys=("none",))):
        found, judge = found_at(queue, filters)
        assert judge is not None
        assert (judge.deleted, judge.unread) == (2, 4)
        assert [unit["queue_offset"] for unit in found] == ([] if filters.keys else [2])


def test_a_log_that_a_broker_goes_on_with(tmp_path: Path) -> None:
    """Units that point into a file that was begun since the log was listed."""
    log = LogBuilder().add_all([{} for _ in range(5)])
    log.write(tmp_path)
    queue = tmp_path / "consumequeue/orders/0"
    queue.mkdir(parents=True)
    size, first = log.offsets[1], list(log.offsets)
    (queue / ("0" * 20)).write_bytes(b"".join(build_unit(offset, size, 0) for offset in first))
    place = location_of(queue)
    judge = RecordFilter(place, Filters(from_timestamp=0))
    assert judge.has_log
    log.roll()
    log.add_all([{} for _ in range(5)]).write(tmp_path)
    (queue / ("0" * 20)).write_bytes(b"".join(build_unit(offset, size, 0) for offset in log.offsets))
    [rows] = list_location(location_of(queue), ListingOptions(by_record=judge))
    assert isinstance(rows, Rows)
    assert (len(rows), judge.unread) == (10, 0)


def test_a_log_that_the_cleaner_shortens(tmp_path: Path) -> None:
    """A file that was deleted since the log was listed has taken its messages with it."""
    log = LogBuilder().add_all([{"body": bytes(500)} for _ in range(20)])
    log.write(tmp_path)
    queue = tmp_path / "consumequeue/orders/0"
    queue.mkdir(parents=True)
    size = log.offsets[1]
    (queue / ("0" * 20)).write_bytes(b"".join(build_unit(offset, size, 0) for offset in log.offsets))
    judge = RecordFilter(location_of(queue), Filters(from_timestamp=0))
    assert judge.has_log
    (tmp_path / "commitlog" / ("0" * 20)).unlink()
    [rows] = list_location(location_of(queue), ListingOptions(by_record=judge))
    assert isinstance(rows, Rows)
    gone = sum(offset < 4096 for offset in log.offsets)
    assert (len(rows), judge.deleted, judge.unread) == (20 - gone, gone, 0)


def test_a_record_whose_size_leads_far(tmp_path: Path) -> None:
    """Its own unit has no record of its size; the units of those that it would cover are judged as before."""
    log = LogBuilder(file_size=1 << 16).add_all([{"properties": {"KEYS": "k"}} for _ in range(300)])
    image = bytearray(log.images()[0])
    size = log.offsets[1]
    image[log.offsets[3] : log.offsets[3] + 4] = (size * 200).to_bytes(4, "big")
    write_log(tmp_path, {0: bytes(image)})
    queue = tmp_path / "consumequeue/orders/0"
    queue.mkdir(parents=True)
    (queue / ("0" * 20)).write_bytes(b"".join(build_unit(offset, size, 0) for offset in log.offsets))
    found, judge = found_at(queue, Filters(keys=("k",)))
    assert judge is not None
    assert judge.unread == 1
    assert [unit["queue_offset"] for unit in found] == [number for number in range(300) if number != 3]


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("5.3.3-clean", "consumequeue/orders/0"),
        (EXTRAS, "timerlog"),
        (EXTRAS, "compaction/compactionCq/state/0"),
        (GROUP, "dledger-n0/index"),
    ],
)
def test_without_a_log(unpacked: GoldenStore, tmp_path: Path, name: str, part: str) -> None:
    """Units that were copied without the log have nothing that could judge them."""
    copy = tmp_path / part
    copied(unpacked(name) / part, copy)
    assert not RecordFilter(location_of(copy), Filters(keys=("k",))).has_log
    assert RecordFilter(location_of(unpacked(name) / part), Filters(keys=("k",))).has_log
