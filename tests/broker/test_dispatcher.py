"""What is derived from the records of golden stores is what the releases have written, and what they find by key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatched_units import QueueName, QueueUnits
from rmqtool.broker.dispatcher import TAGS, Dispatcher, IndexKeys
from rmqtool.formats.index_file import key_hash
from rmqtool.formats.java import string_hash
from rmqtool.rules.versions import Version, parse_version
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from rmqtool.store.config_tables import load_topics
from rmqtool.store.delays_seen import delay_levels_of_store
from rmqtool.store.store import open_store
from tests.building import LogBuilder
from tests.conftest import GoldenStore
from tests.golden import stores
from tests.scan.reference_reader import read_log

STORES = [name for name in stores.names() if not name.endswith(("-empty", "-shop"))]
PRE_BLANK = 0x7FFFFFFF


def dispatch(root: Path, version: Version) -> tuple[dict[QueueName, QueueUnits], list[IndexKeys]]:
    """The units of each queue, and the keys of each run, of a whole store."""
    store = open_store(root)
    rules = DispatchRules.of(version, store.conf, delay_levels_of_store(store), has_light_queues=True)
    dispatcher = Dispatcher(rules, load_topics(store).with_batch_queues)
    units, keys = [], []
    for event in scan_files(store.commit_log().files):
        if isinstance(event, RecordRun):
            dispatched = dispatcher.dispatch(event)
            assert not len(dispatched.malformed_rows)
            units.append(dispatched.units)
            keys.append(dispatched.keys)
    found = QueueUnits.concatenate(units)
    return {dispatcher.queues[number]: part for number, part in found.by_queue()}, keys


def fields_of(units: QueueUnits, kind: str) -> list[list[Any]]:
    """Units as the oracle lists them."""
    columns: list[NDArray[Any]] = [units.physical_offsets, units.message_sizes, units.tags_codes]
    if kind == "batch":
        columns += [units.store_timestamps, units.queue_offsets, units.batch_sizes]
    return [list(row) for row in zip(*(column.tolist() for column in columns), strict=True)]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", STORES)
def test_units_are_those_of_the_release(name: str, golden_store: GoldenStore) -> None:
    """Every unit of every queue that points into the log, in its place; and no more."""
    oracle = stores.oracle(name)
    mine, _ = dispatch(golden_store(name), parse_version(name.partition("-")[0]))
    start = oracle["commit_log"]["min_offset"]
    seen = 0
    for queue in oracle["queues"]:
        numbered = enumerate(queue["units"], queue["first_unit"])
        theirs = [(number, unit) for number, unit in numbered if unit[0] >= start and unit[1] != PRE_BLANK]
        units = mine.pop(QueueName(queue["topic"], queue["queue_id"]), None)
        found = [] if units is None else fields_of(units, queue["kind"])
        if name.endswith("-killed"):  # the queue may end before the log does
            found = found[: len(theirs)]
        assert found == [unit for _, unit in theirs]
        if units is not None and queue["kind"] == "simple":
            assert units.queue_offsets[: len(theirs)].tolist() == [number for number, _ in theirs]
        seen += len(theirs)
    assert mine == {}
    assert seen


@pytest.mark.slow
@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", STORES)
def test_keys_are_those_of_one_record_at_a_time(name: str, golden_store: GoldenStore) -> None:
    """Unique key, keys, tags since 5.4, in this order; of none that was rolled back."""
    version = parse_version(name.partition("-")[0])
    _, keys = dispatch(golden_store(name), version)
    expected = []
    for message in read_log(open_store(golden_store(name)).commit_log().files):
        if not isinstance(message, dict) or message["transaction"] == "rollback":
            continue
        texts = [message["unique_key"], *message["keys"]]
        if version >= Version(5, 4, 0) and message["tags"]:
            texts.append(f"T#{message['tags']}")
        hashes = [key_hash(message["topic"], text) for text in texts if text]
        expected += [(value, message["physical_offset"], message["store_timestamp"]) for value in hashes]
    columns = ("key_hashes", "physical_offsets", "store_timestamps")
    found = [np.concatenate([getattr(part, column) for part in keys]).tolist() for column in columns]
    assert list(zip(*found, strict=True)) == expected
    assert any((part.kinds == TAGS).any() for part in keys) == (version >= Version(5, 4, 0) and "single" not in name)


def test_units_as_bytes() -> None:
    """Both forms as the formats declare them."""
    column = np.array([7], dtype=np.int64)
    small = column.astype(np.int32)
    count = small.astype(np.int16)
    units = QueueUnits(small, column, column * 2, small * 3, column * 4, column * 5, column * 6, count, count, small)
    assert units.as_consume_queue().tolist() == [(14, 21, 28)]
    assert units.as_batch_consume_queue().tolist() == [(14, 21, 35, 42, 7, 7, -1, 0)]


def test_units_by_queue_keep_their_order() -> None:
    """Also with more queues than sixteen bits can count."""
    rng = np.random.default_rng(3)
    numbers = rng.integers(0, 200_000, 5_000).astype(np.int32)
    zeros = np.zeros(len(numbers), dtype=np.int64)
    rows = np.arange(len(numbers), dtype=np.int32)
    counts = numbers.astype(np.int16)
    units = QueueUnits(numbers, zeros, zeros, numbers, zeros, zeros, zeros, counts, counts, rows)
    seen = []
    for number, part in units.by_queue():
        assert set(part.queues.tolist()) == {number}
        assert part.rows.tolist() == sorted(part.rows.tolist())
        seen += part.rows.tolist()
    assert sorted(seen) == rows.tolist()


def test_light_queues_cost_nothing_of_what_records_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a topic, and there may be 200,000: only topics of records have prefixes of keys and tables of queues."""
    names = [f"%LMQ%{number}" for number in range(60)]
    properties = {"INNER_MULTI_DISPATCH": ",".join(names), "INNER_MULTI_QUEUE_OFFSET": ",".join("0" * len(names))}
    store = LogBuilder(1 << 16).add_all([{"properties": {**properties, "KEYS": "k", "TAGS": "t"}}]).write(tmp_path)
    hashed: list[str] = []

    def hashing(text: str) -> int:
        hashed.append(text)
        return string_hash(text)

    monkeypatch.setattr("rmqtool.broker.dispatcher.string_hash", hashing)
    dispatcher = Dispatcher(DispatchRules(multi_dispatch=True, lmq=True))
    for event in scan_files(open_store(store).commit_log().files):
        if isinstance(event, RecordRun):
            dispatched = dispatcher.dispatch(event)
            assert len(dispatched.units) == 1 + len(names)
            topic = dispatcher.topics[0]
            assert dispatched.keys.key_hashes.tolist() == [key_hash(topic, "k"), key_hash(topic, "T#t")]
            dispatcher.dispatch(event)
    assert hashed == [f"{topic}#", f"{topic}#T#"]
    assert {name.topic for name in dispatcher.queues} == {topic, *names}
