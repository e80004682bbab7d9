"""A flipped bit in a field that no CRC covers: it is named, and no repair takes away what is served."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.real_broker.harness import GEOMETRY
from tests.repair.damaged_fields import Record, flip, keys, records_of, served, with_lengths
from tests.verify.small_store import QUEUE_FILE_SIZE, TOPICS, StoreBuilder, small_store

pytestmark = pytest.mark.slow

STORES = ("4.7.1-shop", "4.9.7-shop", "5.3.3-shop", "more/5.3.3-rocksdb", "5.3.3-crc32-property")

FLIPS = (
    ("topic", "topic", 1),
    ("queue_id", "queue_id", 1),
    ("queue_id", "queue_id", 64),
    ("queue_offset", "queue_offset", 1),
    ("queue_offset", "queue_offset", 64),
    ("sys_flag", "sys_flag", 4),  # prepared: a broker dispatches no such record
    ("sys_flag", "sys_flag", 12),  # rolled back
    ("UNIQ_KEY", "UNIQ_KEY", 2),
    ("UNIQ_KEY name", "UNIQ_KEY", 2),
    ("UNIQ_KEY separator", "UNIQ_KEY", 4),
    ("KEYS", "KEYS", 1),
    ("KEYS", "KEYS", 128),
    ("KEYS name", "KEYS", 16),
    ("KEYS separator", "KEYS", 2),
    ("TAGS", "TAGS", 16),
    ("TAGS name", "TAGS", 1),
    ("TAGS separator", "TAGS", 32),
)
"""The field that is damaged, the one that the finding names, and the bits that change."""

STRUCTURE = (
    *(("message_size", mask, at) for mask, at in ((1, -1), (0x40, 1), (0x80, 0))),
    *(("magic_code", mask, -1) for mask in (1, 4, 0xFF)),
    *(("physical_offset", mask, at) for mask, at in ((0x80, 0), (0x33, -1))),
    *(("body_crc", 4, -1), ("body_size", 1, -1), ("body_size", 0x80, 0)),
    *(("topic_size", 1, -1), ("topic_size", 0x20, -1), ("properties_size", 1, -1), ("properties_size", 0x80, 0)),
)
"""A field by which a record is found and taken for whole, and bits of one of its bytes that change."""

_OF_BROKERS = ("RMQ_", "SCHEDULE_", "%")
UNCOVERED = ("flag", "born_timestamp", "born_host", "store_host", "reconsume_times", "prepared_transaction_offset")
"""Fields that nothing else in the store knows."""


def _run(command: str, store: Path, *options: str) -> dict[str, Any]:
    document: dict[str, Any] = rmqtool("--json", command, store, *options).document
    return document


def _healthy_verdict(store: Path) -> set[str]:
    return {each["code"] for each in _run("verify", store)["findings"] if each["severity"] != "info"}


def _chosen(records: list[Record], field: str) -> Record:
    """A record from the middle of a queue that has the field; no system topic."""
    fitting = [
        each for each in records if field in each.fields and not each.topic.startswith(("RMQ_", "SCHEDULE_", "%"))
    ]
    fitting = [each for each in fitting if each.fields[field][1] and each.queue_offset]
    if not fitting:
        pytest.skip("no message of this store has the field")
    return fitting[len(fitting) // 2]


@pytest.mark.one_in(6)
@pytest.mark.parametrize(("field", "named", "mask"), FLIPS, ids=str)
@pytest.mark.parametrize("name", STORES)
def test_witnesses_count_against_a_damaged_field(
    unpacked: GoldenStore, tmp_path: Path, name: str, field: str, named: str, mask: int
) -> None:
    """The finding names the field; queue and index lead where they did, also after a repair and a rebuild."""
    if "rocksdb" in name:
        pytest.importorskip("rocksdict")
    store = copied(unpacked(name), tmp_path / "store")
    records = records_of(store)
    record = _chosen(records, field)
    flip(store, record, field, mask)
    queues, index = served(store, records), keys(store)

    verified = _run("verify", store)
    fields = [each for each in verified["findings"] if each["code"] == "commitlog.field"]
    assert [(each["details"]["field"], each["offset"]) for each in fields] == [(named, record.physical_offset)]
    assert verified["result"]["verdict"] == "corrupt"

    for command in ("repair", "rebuild-cq", "rebuild-index"):
        _run(command, store, "--yes")
        assert served(store, records) == queues, command
        assert not index - keys(store), command
    assert _run("repair", store, "--yes")["result"]["state"] == "nothing"


@pytest.mark.slow
@pytest.mark.parametrize("to", ["store", "elsewhere"])
def test_queues_are_witnesses_of_an_index_that_is_gone(unpacked: GoldenStore, tmp_path: Path, to: str) -> None:
    """A rebuild of the index alone gives a message the key that it had, though only its queue still shows its topic."""
    store = copied(unpacked("4.9.7-shop"), tmp_path / "store")
    flip(store, _chosen(records_of(store), "topic"), "topic", 1)
    before = keys(store)
    for file in (store / "index").iterdir():
        file.unlink()
    conf = tmp_path / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in GEOMETRY.items()))
    options = ["--yes"] if to == "store" else ["--output", str(tmp_path / "made")]
    done = _run("rebuild-index", store, "--broker-conf", str(conf), "--broker-version", "4.9.7", *options)
    assert [each["details"]["field"] for each in done["findings"] if each["code"] == "commitlog.field"] == ["topic"]
    if to == "elsewhere":
        (store / "index").rmdir()
        copied(tmp_path / "made/index", store / "index")
    assert keys(store) == before


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("field", "mask", "at"), STRUCTURE, ids=str)
@pytest.mark.parametrize("name", ["4.9.7-shop", "5.3.3-crc32-property"])
def test_a_broken_record_is_put_right(
    unpacked: GoldenStore, tmp_path: Path, name: str, field: str, mask: int, at: int
) -> None:
    """Where the rest of the record and a second witness prove the field: byte for byte, and nothing is lost."""
    store = copied(unpacked(name), tmp_path / "store")
    record = with_lengths(_chosen(records_of(store), "topic"))
    before = (store / record.path).read_bytes()
    flip(store, record, field, mask, at)
    plan = _run("verify", store)["result"]["plan"]
    assert [step["lost"] for step in plan["steps"] if step["lost"]] == []
    assert plan["clients"]["unreachable"]["messages"] == 0
    result = _run("repair", store, "--yes")["result"]
    assert (store / record.path).read_bytes() == before
    assert result["proof"]["more_lost"] == []
    assert _run("repair", store, "--yes")["result"]["state"] == "nothing"


def test_two_broken_fields_of_one_record_stay(unpacked: GoldenStore, tmp_path: Path) -> None:
    """No one field makes it whole: a dummy record takes its place, and what it held is named."""
    store = copied(unpacked("4.9.7-shop"), tmp_path / "store")
    record = with_lengths(_chosen(records_of(store), "topic"))
    flip(store, record, "magic_code")
    flip(store, record, "topic_size")
    plan = _run("verify", store)["result"]["plan"]
    assert plan["clients"]["unreachable"]["messages"] > 0
    assert any(step["lost"] for step in plan["steps"])
    assert _run("repair", store, "--yes")["result"]["proof"]["more_lost"] == []


@pytest.mark.parametrize("field", UNCOVERED)
def test_what_nothing_else_knows_changes_nothing(unpacked: GoldenStore, tmp_path: Path, field: str) -> None:
    """No witness, no finding, and nothing to repair."""
    store = copied(unpacked("4.9.7-shop"), tmp_path / "store")
    before = _healthy_verdict(store)
    flip(store, _chosen(records_of(store), field), field)
    assert _healthy_verdict(store) == before
    assert _run("repair", store, "--yes")["result"]["state"] == "nothing"


def test_two_fields_of_one_record(unpacked: GoldenStore, tmp_path: Path) -> None:
    """A unit between its own, where no other record belongs, is right about both."""
    store = copied(unpacked("4.9.7-shop"), tmp_path / "store")
    records = records_of(store)
    record = _chosen(records, "topic")
    flip(store, record, "topic")
    flip(store, record, "queue_id")
    queues = served(store, records)
    found = [each for each in _run("verify", store)["findings"] if each["code"] == "commitlog.field"]
    assert [each["details"]["field"] for each in found] == ["topic, queue_id"]
    assert _run("repair", store, "--yes")["result"]["state"] == "nothing"
    assert served(store, records) == queues


@pytest.mark.parametrize("bits", [0x80, 0xC0])
def test_a_flag_makes_no_batch_queue(unpacked: GoldenStore, tmp_path: Path, bits: int) -> None:
    """Without topics.json one record with the bit of inner batches does not change the queues of its topic."""
    store = copied(unpacked("5.3.3-shop"), tmp_path / "store")
    for path in (store / "config").glob("topics.json*"):
        path.unlink()
    records = records_of(store)
    record = _chosen(records, "sys_flag")
    flip(store, record, "sys_flag", bits)
    queues = served(store, records)
    assert "consumequeue.missing-queue" not in _healthy_verdict(store)
    _run("repair", store, "--yes")
    assert served(store, records) == queues
    assert not (store / "batchconsumequeue" / record.topic).exists()
    assert "BatchCQ" not in (store / "config" / "topics.json").read_text().partition(record.topic)[2][:200]


def test_another_record_between_its_own(unpacked: GoldenStore, tmp_path: Path) -> None:
    """A unit that another record's took is wrong: record and queue of that one agree, and the queue is rebuilt."""
    store = copied(unpacked("4.9.7-shop"), tmp_path / "store")
    records = records_of(store)
    before = served(store, records)
    topic = _chosen(records, "topic").topic
    name = next(name for name in before if name[0] == topic and name[2] == 3)
    other = next(value for key, value in before.items() if key[0] == topic and key[1] != name[1])
    path = min((store / "consumequeue" / topic / str(name[1])).iterdir())
    size = next(each.size for each in records if each.physical_offset == other[0])
    data = path.read_bytes()
    unit = other[0].to_bytes(8, "big") + size.to_bytes(4, "big") + other[1].to_bytes(8, "big", signed=True)
    path.write_bytes(data[: 3 * 20] + unit + data[4 * 20 :])
    assert "commitlog.field" not in _healthy_verdict(store)
    assert _run("repair", store, "--yes")["result"]["state"] == "done"
    assert served(store, records) == before


def test_expected_values_are_known(unpacked: GoldenStore, tmp_path: Path) -> None:
    """Topic, queue id and key as they were."""
    store = copied(unpacked("4.9.7-shop"), tmp_path / "store")
    records = records_of(store)
    chosen = {field: _chosen(records, field) for field in ("topic", "KEYS")}
    data = {field: (store / each.path).read_bytes() for field, each in chosen.items()}
    for field, record in chosen.items():
        flip(store, record, field)
        found = _run("verify", store)["findings"]
        details = next(each["details"] for each in found if each["code"] == "commitlog.field")
        start, size = record.fields[field]
        was = data[field][start : start + size].decode()
        assert details["expected"] == (was.split(" ")[-1] if field == "KEYS" else was)
        flip(store, record, field)


def test_an_index_that_proves_nothing_gets_the_keys_that_the_queue_proves(
    unpacked: GoldenStore, tmp_path: Path
) -> None:
    """Only the index is made again, since a file of it was cut: the keys are those of the topic that was damaged."""
    store = copied(unpacked("5.5.0-clean"), tmp_path / "store")
    record = _chosen(records_of(store), "topic")
    flip(store, record, "topic")
    file = max((store / "index").iterdir())
    os.truncate(file, file.stat().st_size // 2)
    had = {key for key in keys(store) if key[1] == record.physical_offset}
    _run("repair", store, "--yes")
    assert had
    assert had <= {*keys(store)}


@pytest.mark.slow
def test_queues_that_have_changed_places_are_no_damaged_fields(unpacked: GoldenStore, tmp_path: Path) -> None:
    """Though one flipped bit leads from one number to the other: all their records say so; they are rebuilt."""
    store = copied(unpacked("4.9.7-shop"), tmp_path / "store")
    healthy = {place: offset for place, (offset, _) in served(store, records_of(store)).items()}
    levels = store / "consumequeue/SCHEDULE_TOPIC_XXXX"
    (levels / "2").rename(levels / "x")
    (levels / "16").rename(levels / "2")
    (levels / "x").rename(levels / "16")
    for command in ("rebuild-cq", "repair"):
        planned = _run(command, store, "--dry-run")
        assert "commitlog.field" not in {each["code"] for each in planned["findings"]}
        assert planned["result"]["state"] == "planned"
    assert _run("repair", store, "--yes")["result"]["proof"]["more_lost"] == []
    assert {place: offset for place, (offset, _) in served(store, records_of(store)).items()} == healthy


@pytest.mark.parametrize("knows", ["configuration", "log"])
@pytest.mark.parametrize("tags", [{}, {"TAGS": "red"}], ids=["plain", "tagged"])
def test_an_index_proves_a_topic_alone(tmp_path: Path, tags: dict[str, str], knows: str) -> None:
    """Queries find a message under the topic that it had, before a repair and after it, though all queues are gone."""
    builder = StoreBuilder()
    for number in range(6):
        builder.put(TOPICS[number % 2], properties={"KEYS": f"key-{number} all", "UNIQ_KEY": f"{number:032X}", **tags})
    store = small_store(tmp_path / "store", builder)
    flip(store, records_of(store)[3], "topic", 1, 0)
    shutil.rmtree(store / "consumequeue")
    if knows == "log":
        (store / "config/topics.json").unlink()
    conf = tmp_path / "broker.conf"
    conf.write_text(f"mappedFileSizeConsumeQueue={QUEUE_FILE_SIZE}\n")
    options = ("--broker-conf", str(conf))
    before = keys(store)
    assert _run("verify", store, *options)["result"]["start"]["clients"]["keys_not_found"] == 0
    assert _run("repair", store, "--yes", *options)["result"]["state"] == "done"
    assert keys(store) == before
    assert {place for place in served(store, records_of(store)) if place[0] == TOPICS[1]} == {
        (TOPICS[1], 0, number) for number in range(3)
    }
