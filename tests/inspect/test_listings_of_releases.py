"""Units of queues and hits of the index are those that the release itself finds, in every golden store."""

from __future__ import annotations

import pytest

from rmqtool.formats.java import string_hash
from rmqtool.inspect.options import ListingOptions
from rmqtool.inspect.registry import count_location, list_location
from rmqtool.scan.filters import Filters
from rmqtool.scan.rows import Rows
from tests.conftest import GoldenStore
from tests.golden import stores
from tests.inspect.listings import location_of, objects

STORES = [name for name in stores.names() if not name.endswith("-killed")]
KILLED = [name for name in stores.names() if name.endswith("-killed")]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", STORES)
def test_units_of_queues(golden_store: GoldenStore, name: str) -> None:
    """Every unit from the first file to the maximum, queue by queue and all queues together."""
    store = golden_store(name)
    together: list[list[int]] = []
    for queue in stores.oracle(name)["queues"]:
        batch = queue["kind"] == "batch"
        folder = store / ("batchconsumequeue" if batch else "consumequeue") / queue["topic"] / str(queue["queue_id"])
        found = objects(folder)
        names = ["physical_offset", "message_size", "tags_code"]
        names += ["store_timestamp", "queue_offset", "batch_size"] if batch else []
        units = [[unit[name] for name in names] for unit in found if unit["kind"] in ("message", "batch")]
        assert units[-len(queue["units"]) or len(units) :] == queue["units"]
        assert {(unit["topic"], unit["queue_id"]) for unit in found} <= {(queue["topic"], queue["queue_id"])}
        if not batch:
            together += units
            numbers = [unit["queue_offset"] for unit in found]
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
            assert not numbers or numbers[-1] == queue["max_offset"] - 1
    everything = [unit for unit in objects(store / "consumequeue") if unit["kind"] == "message"]
    assert sorted([unit["physical_offset"], unit["message_size"], unit["tags_code"]] for unit in everything) == sorted(
        together
    )


@pytest.mark.parametrize("name", KILLED)
def test_units_of_queues_of_a_killed_broker(golden_store: GoldenStore, name: str) -> None:
    """What was dispatched before the kill is the head of what the release has after it."""
    store = golden_store(name)
    for queue in stores.oracle(name)["queues"]:
        if queue["kind"] == "simple":
            found = objects(store / "consumequeue" / queue["topic"] / str(queue["queue_id"]))
            units = [[unit["physical_offset"], unit["message_size"], unit["tags_code"]] for unit in found]
            assert units == queue["units"][: len(units)]
            assert len(queue["units"]) - len(units) < 10


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_index_hits(golden_store: GoldenStore, name: str) -> None:
    """The units with the hash of a topic and key are exactly those that lead to what the release finds."""
    store = golden_store(name)
    if not (store / "index").is_dir():
        pytest.skip("no message, no index")
    place = location_of(store / "index")
    min_offset = stores.oracle(name)["commit_log"]["min_offset"]  # a broker finds nothing below it
    for query in stores.oracle(name)["index"]["queries"][::7]:
        filters = Filters(topics=(query["topic"],), keys=(query["key"],), from_offset=min_offset)
        found = set()
        for part in list_location(place, ListingOptions(filters=filters)):
            assert isinstance(part, Rows)
            if part.counted:
                found.update(part.batch.column("physical_offset").to_pylist())
        assert found == set(query["physical_offsets"]), query


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", STORES)
def test_index_headers_and_chains(golden_store: GoldenStore, name: str) -> None:
    """The headers are the release's; chains hold all units of a file, and each link points to an older one."""
    store = golden_store(name)
    if not (store / "index").is_dir():
        pytest.skip("no message, no index")
    headers = [found for found in objects(store / "index") if found["kind"] == "index_header"]
    said = stores.oracle(name)["index"]["files"]
    assert [(header["begin_timestamp"], header["index_count"]) for header in headers] == [
        (file["begin_timestamp"], file["index_count"]) for file in said
    ]
    slots = [found for found in objects(store / "index", slots=True) if found["kind"] == "index_slot"]
    for header in headers:
        own = [slot for slot in slots if slot["file"] == header["file"]]
        assert sum(slot["chain_length"] for slot in own) == header["keys"]
        assert all(slot["chain_ok"] for slot in own)
    counts = count_location(location_of(store / "index"), ListingOptions())
    assert counts == {"index_header": len(headers), "index_unit": sum(header["keys"] for header in headers)}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["5.5.0-clean", "4.4.0-trimmed"])
def test_reverse_is_the_same_backwards(golden_store: GoldenStore, name: str) -> None:
    """The log, all queues, a batch queue and the index, from their ends; and the end alone by a limit."""
    store = golden_store(name)
    for part in ("commitlog", "consumequeue", "consumequeue/orders/1", "batchconsumequeue"):
        if (store / part).is_dir():
            forwards = objects(store / part)
            assert objects(store / part, reverse=True) == forwards[::-1]
            if part == "commitlog":
                forwards = [found for found in forwards if found["kind"] == "message"]
            last = [found for found in objects(store / part, reverse=True, limit=3) if found["kind"] != "blank"]
            assert last == forwards[:-4:-1]
    units = [found for found in objects(store / "index") if found["kind"] == "index_unit"]
    backwards = [found for found in objects(store / "index", reverse=True) if found["kind"] == "index_unit"]
    assert backwards == units[::-1]


def test_tags_of_units(golden_store: GoldenStore) -> None:
    """A tag filters units by its hash, as consumers do."""
    store = golden_store("5.3.3-clean")
    records = {record["physical_offset"]: record for record in stores.oracle("5.3.3-clean")["records"]}
    tags = sorted({record["tags"] for record in records.values() if record["topic"] == "orders" and record["tags"]})
    found = objects(store / "consumequeue" / "orders", filters=Filters(tags=(tags[0],)))
    assert found
    same_hash = [tag for tag in tags if string_hash(tag) == string_hash(tags[0])]
    assert same_hash == ["Aa", "BB"]
    expected = [
        offset for offset, record in records.items() if record["topic"] == "orders" and record["tags"] in same_hash
    ]
    assert sorted(unit["physical_offset"] for unit in found) == expected
