"""A small store out of a large one: what is chosen, where it goes, and what becomes of offsets that point to it."""

from __future__ import annotations

import csv
import json
import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import pack_into, unpack_from
from typing import Any

import pytest

from rmqtool.base.errors import Exit
from rmqtool.formats.checkpoint import CHECKPOINT_FILE_SIZE, TIMER_CHECK_SIZE, TimerCheck
from rmqtool.formats.layout import build, parse
from rmqtool.formats.message import CRC32_PROPERTY_SIZE, build_crc32_property, record_crc, stored_record_crc
from tests.building import LOG, START_TIME
from tests.commands.running import Result, rmqtool
from tests.salvage.damaged_logs import records_of, walked
from tests.unchanged import unchanged
from tests.verify.small_store import FILE_SIZE, StoreBuilder, finish, small_log, small_store

MAP = Path(".rmqtool", "selection", "queue-offsets.csv")
Message = dict[str, Any]


def listed(store: Path) -> list[Message]:
    """The messages of a store, in the order of its log."""
    lines = rmqtool("inspect", store / LOG, "--json").lines
    return [line for line in lines if line["kind"] == "message"]


def choose(store: Path, new: Path, *options: str | int) -> Result:
    """Make a store of chosen messages; the source stays as it is."""
    with unchanged(store):
        return rmqtool("salvage", store, "--output", new, "--json", *map(str, options))


def verified(store: Path) -> list[str]:
    """What verify finds of a store, but for what is no fault."""
    found = rmqtool("verify", store, "--json").document["findings"]
    return [f"{each['code']}: {each['message']}" for each in found if each["severity"] != "info"]


FILTERS: dict[str, tuple[tuple[str | int, ...], Callable[[Message], object]]] = {
    "topic": (("--topic", "orders"), lambda each: each["topic"] == "orders"),
    "pattern": (("--topic", "*t", "--topic", "pay*"), lambda each: each["topic"] != "orders"),
    "without": (("--exclude-topic", "p*"), lambda each: each["topic"] != "payments"),
    "queue": (("--queue", 1), lambda each: each["queue_id"] == 1),
    "tag": (("--tag", "red"), lambda each: each["tags"] == "red"),
    "key": (("--key", "key-7", "--key", "key-20"), lambda each: not {"key-7", "key-20"}.isdisjoint(each["keys"])),
    "from": (("--from", START_TIME + 5000), lambda each: each["store_timestamp"] >= START_TIME + 5000),
    "to": (("--to", START_TIME + 5000), lambda each: each["store_timestamp"] < START_TIME + 5000),
    "offsets": (("--from-offset", 2000, "--to-offset", 9000), lambda each: 2000 <= each["physical_offset"] < 9000),
    "all": ((), lambda each: True),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("queue_offsets", ["keep", "new"])
def test_filters(tmp_path: Path, name: str, queue_offsets: str) -> None:
    """The messages that pass, whole and in order, in a store that verify finds clean; their offsets as asked for."""
    options, passes = FILTERS[name]
    if (name, queue_offsets) == ("all", "keep"):
        return  # an ordinary salvage
    builder = small_log()
    store, new = small_store(tmp_path / "store", builder), tmp_path / "new"
    done = choose(store, new, *options, "--queue-offsets", queue_offsets)
    assert done.status == Exit.OK
    before, found = listed(store), listed(new)
    expected = [each for each in before if passes(each)]
    result = done.document["result"]
    assert result["commit_log"]["messages"] == len(found) > 0
    assert result["selection"]["left_out_messages"] == len(before) - len(found)
    assert stripped(found) == stripped(expected)
    assert queue_offsets_of(found) == (queue_offsets_of(expected) if queue_offsets == "keep" else anew(expected))
    records, originals = walked(new / LOG), records_of(builder)
    assert list(records) == [each["physical_offset"] for each in found]
    for record, was, message in zip(records.values(), expected, found, strict=True):
        assert record == moved(originals[was["physical_offset"]], message["queue_offset"], message["physical_offset"])
    assert min(records) >= len(builder.files) * FILE_SIZE  # ids of the old store lead to nothing
    assert verified(new) == []


def stripped(messages: list[Message]) -> list[Message]:
    places = "queue_offset", "physical_offset", "message_id", "file", "properties"
    return [{name: value for name, value in each.items() if name not in places} for each in messages]


def queue_offsets_of(messages: list[Message]) -> list[int]:
    return [each["queue_offset"] for each in messages]


def anew(messages: list[Message]) -> list[int]:
    """The queue offsets of messages that are counted by queue."""
    counts, offsets = Counter[tuple[str, int]](), []
    for each in messages:
        queue = each["topic"], each["queue_id"]
        offsets.append(counts[queue])
        counts[queue] += 1
    return offsets


def moved(record: bytes, queue_offset: int, physical_offset: int) -> bytes:
    """A record at other offsets, with its own CRC where it has one."""
    data = bytearray(record)
    pack_into(">qq", data, 20, queue_offset, physical_offset)
    if stored_record_crc(record) is not None:
        data[-CRC32_PROPERTY_SIZE:] = build_crc32_property(record_crc(bytes(data)))
    return bytes(data)


@pytest.mark.budget(1)
def test_default_of_offsets(tmp_path: Path) -> None:
    """Single messages of a queue are counted again, whole stretches of it keep their offsets."""
    store = small_store(tmp_path / "store")
    for number, (options, expected) in enumerate({("--topic", "orders"): "keep", ("--tag", "red"): "new"}.items()):
        done = choose(store, tmp_path / f"new{number}", *options, "--dry-run")
        assert done.document["result"]["selection"]["queue_offsets"] == expected
        assert not (tmp_path / f"new{number}").exists()


@pytest.mark.slow
def test_random_choices(tmp_path: Path) -> None:
    """Map and committed offsets, of random messages: what was consumed stays consumed, and nothing else is."""
    for seed in range(3):
        chance = random.Random(seed)
        store, new = tmp_path / f"store{seed}", tmp_path / f"new{seed}"
        ends = random_store(store, chance)
        commits = {queue: chance.randrange(end + 1) for queue, end in ends.items()}
        write_offsets(store, commits)
        mode = chance.choice(["keep", "new"])
        assert choose(store, new, "--tag", "red", "--queue-offsets", mode).status == Exit.OK
        before = [each for each in listed(store) if each["tags"] == "red"]
        pairs = defaultdict(list)
        for old, each in zip(before, listed(new), strict=True):
            pairs[each["topic"], each["queue_id"]].append((old["queue_offset"], each["queue_offset"]))
        for queue, committed in offsets_in(new).items():
            for old, now in pairs[queue]:
                assert (old < commits[queue]) == (now < committed), (seed, queue)
        if mode == "new":
            assert [(queue, *pair) for queue in sorted(pairs) for pair in pairs[queue]] == sorted(mapped(new))
        assert verified(new) == []


def random_store(store: Path, chance: random.Random) -> dict[tuple[str, int], int]:
    """A store in which few messages are red; the ends of its queues."""
    builder = StoreBuilder(file_size=FILE_SIZE)
    for number in range(chance.randrange(60, 120)):
        tags = {"TAGS": "red"} if chance.random() < 0.4 else {}
        topic, queue_id = chance.choice(["orders", "payments"]), chance.randrange(2)
        builder.put(topic, queue_id, checked=chance.random() < 0.3, body=b"x" * chance.randrange(300),
                    store_timestamp=START_TIME + 10 * number, properties=tags)  # fmt: skip
    finish(builder.write(store))
    return builder.next_offsets


def write_offsets(store: Path, commits: dict[tuple[str, int], int]) -> None:
    table: dict[str, dict[str, int]] = defaultdict(dict)
    for (topic, queue_id), offset in commits.items():
        table[f"{topic}@group"][str(queue_id)] = offset
    (store / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))


def offsets_in(store: Path) -> dict[tuple[str, int], int]:
    table = json.loads((store / "config" / "consumerOffset.json").read_text())["offsetTable"]
    return {(name.partition("@")[0], int(queue_id)): offset
            for name, queues in table.items() for queue_id, offset in queues.items()}  # fmt: skip


def mapped(store: Path) -> Iterator[tuple[tuple[str, int], int, int]]:
    """Each message of the map: its queue, old and new queue offset."""
    with (store / MAP).open(newline="") as file:
        for row in csv.DictReader(file):
            for number in range(int(row["messages"])):
                queue = row["topic"], int(row["queue_id"])
                yield queue, int(row["old_queue_offset"]) + number, int(row["new_queue_offset"]) + number


@pytest.mark.slow
def test_end_of_queues(tmp_path: Path) -> None:
    """A committed offset does not lie past the end of its queue, or new messages would be skipped."""
    store, new = small_store(tmp_path / "store"), tmp_path / "new"
    write_offsets(store, {("orders", 0): 9, ("orders", 1): 2, ("payments", 0): 9, ("none", 0): 3})
    middle = listed(store)[len(listed(store)) // 2]["store_timestamp"]
    assert choose(store, new, "--to", middle, "--topic", "orders").status == Exit.OK
    end = 1 + max(each["queue_offset"] for each in listed(new) if each["queue_id"] == 0)
    assert end < 9
    assert offsets_in(new) == {("orders", 0): end, ("orders", 1): 2}
    assert rmqtool("verify", new).status == Exit.OK


@pytest.mark.slow
def test_queue_without_chosen_messages(tmp_path: Path) -> None:
    """It goes on at its offset, so that committed offsets stay right."""
    builder = StoreBuilder(file_size=FILE_SIZE)
    for number in range(30):
        builder.put("orders", number // 20, store_timestamp=START_TIME + number, body=b"x" * 300)
    store, new = finish(builder.write(tmp_path / "store")), tmp_path / "new"
    write_offsets(store, {("orders", 0): 20, ("orders", 1): 4})
    assert choose(store, new, "--from", START_TIME + 25).status == Exit.OK
    assert offsets_in(new) == {("orders", 0): 20, ("orders", 1): 4}
    queues = rmqtool("inspect", new, "--json").document["result"]["queues"]
    assert {queue["queue_id"]: (queue["min_offset"], queue["max_offset"]) for queue in queues} == {
        0: (20, 20),
        1: (5, 10),
    }
    assert verified(new) == []


@pytest.mark.slow
@pytest.mark.parametrize("damaged", [False, True])
def test_no_file_of_older_messages(tmp_path: Path, *, damaged: bool) -> None:
    """A queue begins with the file of its first message: verify would take older ones for those of a lost log."""
    builder = StoreBuilder(file_size=FILE_SIZE)
    for number in range(60):
        builder.put("orders", number % 2, store_timestamp=START_TIME + number, body=b"x" * 300)
    store, new = finish(builder.write(tmp_path / "store")), tmp_path / "new"
    if damaged:
        sorted((store / LOG).iterdir())[1].unlink()
    assert choose(store, new, "--from", START_TIME + 40).status == (Exit.FINDINGS if damaged else Exit.OK)
    for queue in (0, 1):
        names = sorted(path.name for path in (new / "consumequeue" / "orders" / str(queue)).iterdir())
        assert names == sorted(path.name for path in (store / "consumequeue" / "orders" / str(queue)).iterdir())[2:]
    assert [each.split(":")[0] for each in verified(new)] == (["store.recorded-loss"] if damaged else [])


@pytest.mark.slow
def test_config(tmp_path: Path) -> None:
    """Topics of the choice only, groups as they were, and no backup with the old state."""
    store, new = small_store(tmp_path / "store"), tmp_path / "new"
    config = store / "config"
    (config / "subscriptionGroup.json").write_text('{"subscriptionGroupTable":{"g":{"groupName":"g"}}}')
    shutil.copy2(config / "topics.json", config / "topics.json.bak")
    assert choose(store, new, "--topic", "orders").status == Exit.OK
    topics = json.loads((new / "config" / "topics.json").read_text())["topicConfigTable"]
    assert set(topics) == {"orders"}
    assert (new / "config" / "subscriptionGroup.json").read_bytes() == (config / "subscriptionGroup.json").read_bytes()
    assert not (new / "config" / "topics.json.bak").exists()


@pytest.mark.slow
@pytest.mark.parametrize("queue_offsets", ["keep", "new"])
def test_delays_and_timers(tmp_path: Path, queue_offsets: str) -> None:
    """Delay levels go on where they were; the timer reads again from the first message that still waits."""
    builder = StoreBuilder(file_size=FILE_SIZE)
    for number in range(40):
        due = START_TIME + 100_000 * number
        topic = "SCHEDULE_TOPIC_XXXX" if number % 2 else "rmq_sys_wheel_timer"
        properties = {"DELAY": "1", "REAL_TOPIC": "orders", "REAL_QID": "0"} if number % 2 else {
            "TIMER_OUT_MS": str(due), "REAL_TOPIC": "orders", "REAL_QID": "0"}  # fmt: skip
        builder.put(topic, 0, store_timestamp=START_TIME + number, body=b"x" * 200, properties=properties)
    store, new = finish(builder.write(tmp_path / "store")), tmp_path / "new"
    (store / "config" / "delayOffset.json").write_text('{"offsetTable":{1:15}}')
    fields = {"last_read_timestamp": START_TIME + 1_500_000, "last_timer_log_flush_position": 52,
              "last_timer_queue_offset": 18, "master_timer_queue_offset": 18, "state_version": 0,
              "version_timestamp": 0, "version_counter": 0}  # fmt: skip
    (store / "config" / "timercheck").write_bytes(build(TimerCheck, fields).ljust(CHECKPOINT_FILE_SIZE, b"\0"))
    assert choose(store, new, "--from-offset", builder.offsets[10], "--queue-offsets", queue_offsets).status == Exit.OK
    left_out = 5 if queue_offsets == "new" else 0
    assert json.loads((new / "config" / "delayOffset.json").read_text()) == {"offsetTable": {"1": 15 - left_out}}
    check = parse(TimerCheck, (new / "config" / "timercheck").read_bytes()[:TIMER_CHECK_SIZE])
    assert check.last_timer_queue_offset == check.master_timer_queue_offset == 8 - left_out  # of 0, 200 s, ... 1600 s
    assert check.last_timer_log_flush_position == 0
    assert check.last_read_timestamp == START_TIME + 1_500_000


@pytest.mark.slow
def test_half_messages_keep_their_offsets(tmp_path: Path) -> None:
    """Op messages name half messages by queue offset; POP's records name offsets that change, and are left out."""
    builder = StoreBuilder(file_size=FILE_SIZE)
    for topic in ("RMQ_SYS_TRANS_HALF_TOPIC", "orders", "rmq_sys_REVIVE_LOG_cluster"):
        for number in range(4):
            builder.put(topic, 0, queue_offset=7 + number, store_timestamp=START_TIME + number, body=b"x")
    store, new = finish(builder.write(tmp_path / "store")), tmp_path / "new"
    assert choose(store, new, "--queue-offsets", "new").status == Exit.OK
    found = defaultdict(list)
    for each in listed(new):
        found[each["topic"]].append(each["queue_offset"])
    assert found == {"RMQ_SYS_TRANS_HALF_TOPIC": [7, 8, 9, 10], "orders": [0, 1, 2, 3]}


@pytest.mark.budget(1)
def test_nothing_passes(tmp_path: Path) -> None:
    """Nothing is written, and it is said why."""
    store, new = small_store(tmp_path / "store"), tmp_path / "new"
    found = rmqtool("salvage", store, "--output", new, "--topic", "ordres")
    assert found.status == Exit.FINDINGS
    assert "there is no topic ordres" in found.err
    assert not new.exists()
    document = choose(store, new, "--topic", "ordres").document
    assert document["result"]["state"] == "nothing"


@pytest.mark.slow
def test_a_choice_is_no_loss(tmp_path: Path) -> None:
    """Verify names the choice as no fault; what was damaged in the source is a loss all the same."""
    store, new, other = small_store(tmp_path / "store"), tmp_path / "new", tmp_path / "other"
    assert choose(store, new, "--topic", "orders").status == Exit.OK
    document = rmqtool("verify", new, "--json").document
    [finding] = [each for each in document["findings"] if each["code"] == "store.selection"]
    assert finding["severity"] == "info"
    assert "by --topic orders" in finding["message"]
    path = store / LOG / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[1000:1600] = b"\xa5" * 600
    path.write_bytes(data)
    assert choose(store, other, "--topic", "orders").status == Exit.FINDINGS
    codes = {each["code"] for each in rmqtool("verify", other, "--json").document["findings"]}
    assert {"store.selection", "store.recorded-loss"} <= codes


@pytest.mark.slow
def test_is_small(tmp_path: Path) -> None:
    """The log takes what its messages take, not what lay between them."""
    store, new = small_store(tmp_path / "store", small_log(400)), tmp_path / "new"
    done = choose(store, new, "--key", "key-7", "--key", "key-390")
    log = done.document["result"]["commit_log"]
    assert (log["messages"], log["files"], len(list((new / LOG).iterdir()))) == (2, 1, 1)
    assert unpack_from(">q", (new / LOG / f"{log['min_offset']:020d}").read_bytes(), 28) == (log["min_offset"],)


@pytest.mark.slow
def test_wide_holes(tmp_path: Path) -> None:
    """Offsets stay also where many messages were left out between two of a queue: units that do no harm stand there."""
    builder = StoreBuilder(file_size=FILE_SIZE)
    for number in range(300):
        builder.put("orders", 0, store_timestamp=START_TIME + number, properties={"KEYS": f"key-{number}"})
    store, new = finish(builder.write(tmp_path / "store")), tmp_path / "new"
    assert choose(store, new, "--key", "key-3", "--key", "key-298", "--queue-offsets", "keep").status == Exit.OK
    assert queue_offsets_of(listed(new)) == [3, 298]
    [queue] = rmqtool("inspect", new, "--json").document["result"]["queues"]
    assert (queue["min_offset"], queue["max_offset"]) == (3, 299)
    assert verified(new) == []
