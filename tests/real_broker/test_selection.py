"""Real brokers on stores of chosen messages: they start, serve all that was chosen, and go on writing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.errors import Exit
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.golden import stores
from tests.real_broker.answers import queue_of, reachable
from tests.real_broker.harness import GEOMETRY, VERSIONS, Harness

pytestmark = pytest.mark.broker

_RATE = 200  # messages per second
_OF_THE_HARNESS = {"config.topic-missing", "config.older-copy", "upgrade.setting"}
"""It writes past the table of topics, and with `enableLmq` 4.9.7 keeps offsets in another file than before."""


@pytest.mark.one_in(2)
@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("queue_offsets", "after"), [("keep", "clean"), ("keep", "crash"), ("new", "crash")])
def test_broker_serves_what_was_chosen(
    harness: Callable[[str], Harness],
    golden_store: GoldenStore,
    tmp_path: Path,
    version: str,
    queue_offsets: str,
    after: str,
) -> None:
    """All messages of two topics from the middle of the log on, at their old queue offsets or at new ones."""
    name = f"{version}-clean"
    (conf := tmp_path / "broker.conf").write_text("".join(f"{key}={value}\n" for key, value in GEOMETRY.items()))
    new, start = tmp_path / "new", 100_000
    filters = ("--topic", "orders", "--topic", "%RETRY%*", "--from-offset", str(start))
    options = ("--broker-version", version, "--broker-conf", conf)
    done = rmqtool("salvage", golden_store(name), *filters, "--queue-offsets", queue_offsets, "--output", new, "--json",
                   *options)  # fmt: skip
    assert done.status == Exit.OK
    log = done.document["result"]["commit_log"]
    if after == "crash":
        (new / "abort").touch()
        (new / "checkpoint").unlink()

    found = harness(version).recover(new)
    assert found["commit_log"] == {"min_offset": log["min_offset"], "max_offset": log["max_offset"]}
    expected = {queue_of(queue): chosen(queue, start) for queue in stores.oracle(name)["recovered"]["queues"]
                if queue["topic"] == "orders" or queue["topic"].startswith("%RETRY%")}  # fmt: skip
    served = {queue_of(queue): sorted(reachable(queue)) for queue in found["queues"]}
    assert sum(map(len, expected.values())) == log["messages"] > 0
    for queue, offsets in expected.items():
        numbers = [number for number, _ in served[queue]]
        assert numbers == (offsets if queue_offsets == "keep" else list(range(len(offsets))))
    assert {physical for pairs in served.values() for _, physical in pairs} == set(physical_offsets(new))

    write_more(harness(version), new)
    assert len(physical_offsets(new)) > log["messages"]
    verified = rmqtool("verify", new, "--json", *options).document
    wrong = [(each["code"], each["topic"]) for each in verified["findings"] if each["severity"] != "info"]
    assert {code for code, _ in wrong} <= _OF_THE_HARNESS, wrong
    assert [each["code"] for each in verified["findings"] if each["code"] == "store.selection"]


def chosen(queue: dict[str, Any], start: int) -> list[int]:
    """The queue offsets of a queue's messages from a physical offset on."""
    return [number for number, physical in sorted(reachable(queue)) if physical >= start]


def physical_offsets(store: Path) -> list[int]:
    """Where the messages of a store are, as its log has them."""
    lines = rmqtool("inspect", store / "commitlog", "--json").lines
    return [line["physical_offset"] for line in lines if line["kind"] == "message"]


def write_more(broker: Harness, store: Path) -> None:
    """Let a broker run on a store until it has written more, and stop it cleanly."""
    with broker.hold(store, messages_per_second=_RATE):
        until_written(store)


def until_written(store: Path) -> None:
    """Wait until the log is longer."""
    before = len(physical_offsets(store))
    while len(physical_offsets(store)) < before + _RATE:
        pass
