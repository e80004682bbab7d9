"""``--topic 'order*'`` and ``--exclude-topic``: every listing and question chooses as if the topics were named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.errors import Exit
from tests.commands.running import inspect, rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied

STORE = "5.3.3-shop"


def _order(topic: str) -> bool:
    return topic.startswith("order")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        (["--topic", "order*"], _order),
        (["--topic", "*", "--exclude-topic", "order*"], lambda topic: not _order(topic)),
        (["--exclude-topic", "orders"], lambda topic: topic != "orders"),
    ],
)
@pytest.mark.parametrize(
    ("part", "kind", "topic_of"),
    [
        ("commitlog", "message", lambda unit: unit["topic"]),
        ("consumequeue", "message", lambda unit: unit["topic"]),
        ("config", "config_entry", lambda unit: unit["name"].split("@")[0] if unit["table"] else ""),
    ],
)
def test_listings(
    golden_store: GoldenStore,
    options: list[str],
    chosen: Callable[[str], bool],
    part: str,
    kind: str,
    topic_of: Callable[[Any], str],
) -> None:
    store = golden_store(STORE)
    every = inspect(store, "--json", part=part, every=1).of_kind(kind)
    expected = [unit for unit in every if chosen(topic_of(unit))]
    assert 0 < len(expected) < len(every)
    assert inspect(store, "--json", *options, part=part, every=1).of_kind(kind) == expected


def test_index_units(golden_store: GoldenStore) -> None:
    """A pattern has no hash: the messages tell."""
    store = golden_store(STORE)
    named = inspect(store, "--json", "--topic", "orders", part="index").of_kind("index_unit")
    assert named
    assert inspect(store, "--json", "--topic", "or*rs", part="index").of_kind("index_unit") == named
    assert inspect(store, "--slots", "--topic", "or*", "--key", "k", part="index").status == Exit.USAGE


def test_query(golden_store: GoldenStore) -> None:
    """Keys are looked up in all topics of a pattern; one queue needs one name."""
    store = golden_store(STORE)
    log = inspect(store, "--json", "--topic", "orders", part="commitlog").of_kind("message")
    key = next(message["keys"][0] for message in log if message["keys"])
    found = [rmqtool("query", store, "--json", "--key", key, "--topic", topic).lines for topic in ("orders", "order*")]
    assert found[0]
    assert found[0] == found[1]
    without = rmqtool("query", store, "--key", key, "--topic", "order*", "--exclude-topic", "orders")
    assert without.status == Exit.FINDINGS
    assert rmqtool("query", store, "--at", "-2h", "--topic", "order*").status == Exit.USAGE
    assert (
        rmqtool("query", store, "--pull", "--topic", "o*", "--queue", "0", "--queue-offset", "0").status == Exit.USAGE
    )


@pytest.mark.slow
def test_rebuild(golden_store: GoldenStore, tmp_path: Path) -> None:
    """The plan has the queues of the pattern, and its command line repeats the options."""
    store = tmp_path / "store"
    copied(golden_store(STORE), store)
    (store / "consumequeue/orders/0").joinpath("0" * 20).unlink()
    planned = rmqtool("rebuild-cq", store, "--dry-run", "--topic", "or*", "--exclude-topic", "pay*")
    assert planned.status == Exit.OK
    assert "--topic 'or*' --exclude-topic 'pay*'" in planned.err
    assert "match the log already" in rmqtool("rebuild-cq", store, "--dry-run", "--exclude-topic", "or*").out


def test_no_topic_of_that_pattern(golden_store: GoldenStore) -> None:
    found = inspect(golden_store(STORE), "--topic", "ordres*", part="commitlog")
    assert found.status == Exit.FINDINGS
    assert "no topic is named ordres* (did you mean orders?)" in found.err


def test_an_exclusion_that_leaves_nothing_out(golden_store: GoldenStore) -> None:
    """A listing, and an export, that is more than was meant says so."""
    said = "--exclude-topic leaves nothing out: there is no topic ordres (did you mean orders?)"
    assert said in inspect(golden_store(STORE), "--exclude-topic", "ordres", part="commitlog").err
    assert said not in inspect(golden_store(STORE), "--exclude-topic", "orders", part="commitlog").err
