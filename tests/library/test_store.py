"""What Python programs import: the same answers as the commands', typed and bounded in memory."""

from __future__ import annotations

import inspect as python_inspect
import json
import os
import re
import tracemalloc
import warnings
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rmqtool
from rmqtool.base.errors import NotAStoreError, RmqtoolError, UsageError
from rmqtool.formats.message import TRANSACTION_PREPARED
from rmqtool.library.messages import Message, Messages
from rmqtool.library.store import Queue, Store
from rmqtool.store.message_reader import EXPORT_COLUMNS
from tests.building import LogBuilder
from tests.commands.running import ROOT
from tests.commands.running import rmqtool as run
from tests.unchanged import unchanged

EXAMPLE = ROOT / "examples" / "store"


@pytest.fixture(scope="module")
def store() -> Store:
    return rmqtool.open(EXAMPLE)


def listed(*options: str) -> list[dict[str, object]]:
    lines = run("inspect", EXAMPLE / "commitlog", "--json", *options).out.splitlines()
    return [row for row in map(json.loads, lines) if row["kind"] == "message"]


def test_messages_are_those_of_inspect(store: Store) -> None:
    """In the order of the log, with the same fields."""
    options = ("--topic", "payments", "--body-format", "base64")
    expected = listed(*options)
    found = list(store.messages(topic="payments"))
    assert len(found) == len(expected) > 10
    for message, row in zip(found, expected, strict=True):
        assert (message.physical_offset, message.message_id) == (row["physical_offset"], row["message_id"])
        assert (list(message.keys), message.tags, dict(message.properties)) == (
            row["keys"], row["tags"], row["properties"])  # fmt: skip
        assert message.store_timestamp.timestamp() * 1000 == pytest.approx(row["store_timestamp"])
        assert message.store_timestamp.utcoffset() is not None


def test_a_message_has_the_columns_of_an_export() -> None:
    """In their order: each new column is a new field."""
    assert tuple(python_inspect.signature(Message).parameters) == (*EXPORT_COLUMNS, "place")


def test_filters(store: Store) -> None:
    """One value or several, times in all forms, and all must pass."""
    everything = list(store.messages())
    assert store.messages().count() == len(everything)
    assert store.messages(topic=["orders", "payments"]).count() == sum(
        message.topic in ("orders", "payments") for message in everything
    )
    middle = everything[len(everything) // 2].store_timestamp
    later = [message for message in everything if message.store_timestamp >= middle]
    for moment in (middle, int(middle.timestamp() * 1000), middle.isoformat()):
        assert list(store.messages(since=moment)) == later
        assert store.messages(until=moment).count() == len(everything) - len(later)
    assert [message.queue_offset for message in store.messages(topic="orders", queue_id=0, key="ORD-1010")] == [
        message.queue_offset for message in everything
        if (message.topic, message.queue_id) == ("orders", 0) and "ORD-1010" in message.keys
    ]  # fmt: skip
    with pytest.warns(UserWarning, match="no topic no-such-topic"):
        assert store.messages(topic="no-such-topic").first() is None


def test_columns(store: Store) -> None:
    """Batches and tables have those that are asked for; an unknown one is named."""
    orders = store.messages(topic="orders")
    table = orders.to_arrow(["queue_offset", "body.item"])
    assert table.column_names == ["queue_offset", "body.item"]
    assert pa.Table.from_batches(orders.batches()).column_names == list(EXPORT_COLUMNS)
    with pytest.warns(UserWarning, match="no topic none"):
        assert store.messages(topic="none").to_arrow().num_rows == 0
    with pytest.raises(UsageError, match="no column is named 'bodies'"):
        orders.to_arrow(["bodies"])


def test_find(store: Store) -> None:
    """By whatever people have of a message; nothing found is an empty list."""
    message = next(each for each in store.messages(topic="orders") if each.keys)
    by_place = store.find(queue_offset=("orders", message.queue_id, message.queue_offset))
    assert by_place == store.find(offset=message.physical_offset) == [message]
    assert store.find(message_id=message.message_id) == store.find(message_id=str(message.unique_key)) == [message]
    assert message in store.find(key=message.keys[0], topic="orders")
    assert store.find(key="no-such-key") == store.find(offset=message.physical_offset + 1) == []
    with pytest.raises(UsageError, match="find one of"):
        store.find(key="a", offset=0)


QUERIES: list[tuple[dict[str, Any], list[str]]] = [
    ({"key": "ORD-1010", "topic": "orders"}, ["--key", "ORD-1010", "--topic", "orders"]),
    ({"key": "ORD-1010", "exclude_topic": "pay*", "limit": 1},
     ["--key", "ORD-1010", "--exclude-topic", "pay*", "--limit", "1"]),
    ({"key": "no-such-key", "topic": "ordes"}, ["--key", "no-such-key", "--topic", "ordes"]),
    ({"unique_key": "NONE"}, ["--unique-key", "NONE"]),
    ({"message_id": "C0000211109218B4AAC205265C000000"}, ["--id", "C0000211109218B4AAC205265C000000"]),
    ({"offset": 1}, ["--offset", "1"]),
    ({"queue_offset": ("orders", 0, 1 << 40)}, ["--topic", "orders", "--queue", "0", "--queue-offset", str(1 << 40)]),
    ({"body_contains": "cup", "limit": 2}, ["--body-contains", "cup", "--limit", "2"]),
    ({"body_contains": "cup", "since": "2030-01-01"}, ["--body-contains", "cup", "--from", "2030-01-01"]),
]  # fmt: skip


@pytest.mark.parametrize(("wanted", "options"), QUERIES, ids=[" ".join(options) for _, options in QUERIES])
def test_find_is_query(store: Store, wanted: dict[str, Any], options: list[str]) -> None:
    """The same messages, and the same words where there are none."""
    found, command = store.find(**wanted), run("query", EXAMPLE, "--json", "--time-zone", "UTC", *options)
    rows = [json.loads(line) for line in command.out.splitlines()]
    assert [each.physical_offset for each in found] == [row["physical_offset"] for row in rows]
    assert found.notes == tuple(command.err.splitlines())
    assert bool(found.notes) or found
    assert not found.may_be_more


@pytest.mark.slow
def test_find_by_body(store: Store) -> None:
    """The log is read, with a progress that ends with all of it; text and bytes mean the same."""
    steps: list[tuple[int, int]] = []
    found = store.find(body_contains="a blue cup", progress=lambda done, total: steps.append((done, total)))
    assert found == [each for each in store.messages() if each.body and b"a blue cup" in each.body] != []
    assert store.find(body_contains=b"a blue cup") == found
    assert steps[0][0] == 0 < steps[-1][0] <= steps[-1][1]
    with pytest.raises(UsageError, match="offset names one message"):
        store.find(offset=0, topic="orders")


def test_messages_that_no_consumer_sees_are_found(tmp_path: Path) -> None:
    """A prepared message by its place, though a loop leaves it out."""
    store = rmqtool.open(LogBuilder().add_all([{"sys_flag": TRANSACTION_PREPARED}, {}]).write(tmp_path / "store"))
    assert [message.transaction for message in store.messages()] == ["none"]
    assert store.messages(include=("prepared",)).count() == 2
    assert [message.transaction for message in store.find(offset=0)] == ["prepared"]


def test_queues_and_groups(store: Store) -> None:
    """Ranges and units are those of the messages; the lag is that of the overview."""
    for topic, queue_id in store.queues:
        queue = store.queue(topic, queue_id)
        units = list(queue.units())
        assert [unit.queue_offset for unit in units] == list(range(queue.range.min_offset, queue.range.max_offset))
    result = run("inspect", EXAMPLE, "--json").document["result"]
    lags = {(row["group"], row["topic"], row["queue_id"]): row["lag"] for row in result["consumers"]}
    assert {(each.group, each.topic, each.queue_id): each.lag for each in store.consumer_offsets} == lags
    with pytest.raises(UsageError, match=r"no topic ordes \(did you mean orders\?\)"):
        store.queue("ordes", 0)
    with pytest.raises(UsageError, match="topic orders has no queue 99"):
        store.queue("orders", 99)


@pytest.mark.slow
def test_verify_with_options(store: Store, tmp_path: Path) -> None:
    """As the command with the options of the same names; the progress ends with all bytes."""
    steps: list[tuple[int, int]] = []
    found = store.verify(
        only="start", topic="orders*", fast=True, progress=lambda done, total: steps.append((done, total))
    )
    options = ("--only", "start", "--topic", "orders*", "--fast")
    document = run("verify", EXAMPLE, *options, "--json").document
    assert [finding.as_json() for finding in found.findings] == document["findings"]
    assert found.verdict == document["result"]["verdict"]
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
    assert 0 < steps[-1][0] <= steps[-1][1]
    conf = tmp_path / "broker.conf"
    conf.write_text("fileReservedTime=1\n")
    opened = rmqtool.open(EXAMPLE, broker_conf=conf, broker_version="5.3.3", limit_rate=1 << 30)
    expected = run("verify", EXAMPLE, "--broker-conf", conf, "--broker-version", "5.3.3", "--json").document
    assert opened.verify().plan.as_json() == expected["result"]["plan"]


@pytest.mark.parametrize(
    "given", [{"only": "xyz"}, {"skip": "xyz"}, {"sample": 0}, {"sample": 2}, {"jobs": 0}, {"max_examples": 0}]
)
def test_verify_refuses_what_the_command_refuses(store: Store, given: dict[str, Any]) -> None:
    """A code that there is not would make every store look unproven, or clean."""
    with pytest.raises(UsageError):
        store.verify(**given)


@pytest.mark.parametrize("rate", [0, -5, 1.5e6, "64MB", True])
def test_a_rate_that_is_none(rate: Any) -> None:
    """It is refused where it is given, not where something is read."""
    with pytest.raises(UsageError, match="limit_rate is a whole number of at least 1 or a RateLimit, not "):
        rmqtool.open(EXAMPLE, limit_rate=rate)


def test_a_limit_below_zero(store: Store) -> None:
    """As the command refuses it."""
    with pytest.raises(UsageError, match="limit is a whole number of at least 0, not -1"):
        store.find(key="ORD-1003", limit=-1)


def test_clean_as_if(store: Store) -> None:
    """A plan takes what the options of the command take."""
    now = "2026-12-31T12:00:00Z"
    full = store.clean_plan(now=now, manual=True, settings={"fileReservedTime": "1"}, disk_used_percent=50)
    document = run("clean", EXAMPLE, "--dry-run", "--now", now, "--manual", "--file-reserved-time", "1",
                   "--disk-used-percent", "50", "--json").document  # fmt: skip
    result = document["result"]
    assert (full.min_offset, len(full.kept)) == (result["min_offset"], len(result["kept"]))
    assert full.trigger.manual
    assert full.trigger != store.clean_plan(now=now).trigger


def test_commands_open_stores_with_it() -> None:
    """One way in: a command opens by itself only a store that it has just written."""
    own = {}
    for path in (ROOT / "rmqtool" / "commands").glob("*.py"):
        calls = re.findall(r"\bopen_store\(([^()]*)\)", path.read_text(encoding="utf-8"))
        if calls:
            own[path.stem] = calls
    assert own == {"convert": ["new.directory"], "salvage": ["new.directory"]}


def test_commands_verify_with_it() -> None:
    """Those with a request of their own: verify, which goes on after a stop, and others, with all examples."""
    commands = (ROOT / "rmqtool" / "commands").glob("*.py")
    pattern = re.compile(r"\b(?:VerifyRequest|Verification)\(")
    found = sorted(path.stem for path in commands if pattern.search(path.read_text(encoding="utf-8")))
    assert found == ["copy", "repair", "salvage", "verify"]


def test_the_next_commands_open_the_store_so(damaged: Path, tmp_path: Path) -> None:
    """With all that it was opened with, as those of the command."""
    conf = tmp_path / "broker.conf"
    conf.write_text("fileReservedTime=1\n")
    options = ("--broker-conf", str(conf), "--broker-version", "5.3.3", "--limit-rate", "1048576", "--jobs", "2")
    expected = run("verify", damaged, *options, "--json").document["result"]["plan"]
    opened = rmqtool.open(damaged, broker_conf=conf, broker_version="5.3.3", limit_rate=1 << 20)
    assert opened.verify(jobs=2).plan.as_json() == expected
    repair = next(step["command"] for step in expected["steps"] if step["command"])
    assert all(word in repair for word in options)


@pytest.mark.slow
def test_verify_and_clean(store: Store) -> None:
    """The verdict, findings and plan of the command."""
    document = run("verify", EXAMPLE, "--json").document
    verified = store.verify()
    assert verified.verdict == document["result"]["verdict"]
    assert [finding.as_json() for finding in verified.findings] == document["findings"]
    assert verified.plan.as_json() == document["result"]["plan"]
    plan = store.clean_plan(now=datetime(2026, 12, 31, 4, tzinfo=timezone.utc), all_runs=True)
    assert len(plan.deleted) + len(plan.kept) == 1


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    root = LogBuilder().add_all([{}, {}, {}]).write(tmp_path / "store")
    [log] = (root / "commitlog").iterdir()
    data = bytearray(log.read_bytes())
    size = int.from_bytes(data[:4], "big")
    data[size + 4] ^= 0xFF  # the magic code of the second record
    log.write_bytes(data)
    return root


@pytest.mark.slow
def test_damage_is_raised_with_its_place_or_passed_over(damaged: Path) -> None:
    """Never is it left out unasked."""
    with unchanged(damaged):
        messages = rmqtool.open(damaged).messages()
        first = next(iter(messages))
        with pytest.raises(RmqtoolError, match="on_damage='skip' skips") as raised:
            list(messages)
        assert raised.value.offset == first.message_size
        left = [each.physical_offset for each in rmqtool.open(damaged).messages(on_damage="skip")]
        assert left == [0, 2 * first.message_size]
        assert not rmqtool.open(damaged).verify().is_clean
        found = rmqtool.open(damaged).find(body_contains="")
        assert ([each.physical_offset for each in found], found.may_be_more) == (left, True)
        assert found.notes == ("the log has damage: messages that were stored there cannot be found",)


def test_a_wrong_body_is_not_given_out(tmp_path: Path) -> None:
    """The error comes in the place of the message, not after it."""
    root = LogBuilder().add_all([{"body": b"x" * 50}]).write(tmp_path / "store")
    [log] = (root / "commitlog").iterdir()
    data = bytearray(log.read_bytes())
    data[data.index(b"x" * 50)] = 0
    log.write_bytes(data)
    with pytest.raises(RmqtoolError, match="with a CRC mismatch"):
        rmqtool.open(root).messages().first()
    assert rmqtool.open(root).messages(on_damage="skip").count() == 1


def test_errors(tmp_path: Path) -> None:
    """As the commands', of one family."""
    with pytest.raises(NotAStoreError):
        rmqtool.open(tmp_path)
    for options in ({"broker_version": "five"}, {"broker_conf": tmp_path / "no.conf"}):
        with pytest.raises(RmqtoolError):
            rmqtool.open(EXAMPLE, **options)
    with pytest.raises(UsageError, match="is not a time; examples:"):
        rmqtool.open(EXAMPLE).messages(since="tuesdayish")


@pytest.mark.slow
def test_memory_is_that_of_a_few_batches(tmp_path: Path) -> None:
    """A loop over 64 MiB of messages takes a few."""
    root = LogBuilder(file_size=8 << 20).add_all([{"body": os.urandom(1 << 20)}] * 64).write(tmp_path / "store")
    tracemalloc.start()
    assert sum(1 for _ in rmqtool.open(root).messages()) == 64
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 24 << 20


@pytest.mark.slow
def test_the_examples_of_the_page_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One after the other, as in a notebook."""
    monkeypatch.chdir(ROOT)
    names: dict[str, object] = {}
    for code in re.findall(r"```python\n(.*?)```", (ROOT / "docs/python.md").read_text(encoding="utf-8"), re.DOTALL):
        exec(code, names)
    assert "ORD-1010" in capsys.readouterr().out


PUBLIC = {
    Store: {
        "path",
        "topics",
        "queues",
        "queue",
        "consumer_offsets",
        "messages",
        "find",
        "sql",
        "verify",
        "clean_plan",
        "snapshot",
        "verification",
        "verified",
    },
    Queue: {"topic", "queue_id", "range", "units"},
    Messages: {"first", "count", "batches", "to_arrow", "to_pandas", "to_polars"},
}


@pytest.mark.parametrize("kind", PUBLIC)
def test_public_names_are_documented(kind: type) -> None:
    """What stays within a major version is on the page, and nothing else is public."""
    public = {name for name in vars(kind) if not name.startswith("_")}
    assert public <= PUBLIC[kind]
    page = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    assert [name for name in PUBLIC[kind] - {"path", "first"} if not re.search(rf"\b{name}\b", page)] == []


def test_a_topic_that_there_is_not_is_no_silent_nothing(store: Store) -> None:
    """A warning with the nearest names; none where the topic has messages, or other filters let nothing pass."""
    with pytest.warns(UserWarning, match=r"no topic ordrs \(did you mean orders\?\)"):
        assert store.messages(topic="ordrs").count() == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.messages(topic="orders").count() > 0
        assert store.messages(topic="orders", tag="no-such-tag").count() == 0
