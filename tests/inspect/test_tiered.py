"""Segments of tiered storage, listed as the commit log and the consume queues of a store are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.verify.tiered_damages import FIRST, LOG, METADATA, UNITS


@pytest.fixture(params=["5.1.4", "5.3.3", "5.5.1"])
def store(request: pytest.FixtureRequest, golden_store: GoldenStore) -> Path:
    return golden_store(f"more/{request.param}-tiered")


def test_messages_and_units(store: Path) -> None:
    """All messages of a queue, forwards and backwards, and the units that lead to them; one segment alone."""
    listed = rmqtool("inspect", store / LOG, "--json").lines
    messages = [line for line in listed if line["kind"] == "message"]
    assert [message["queue_offset"] for message in messages] == list(range(120))
    assert {line["kind"] for line in listed} <= {"message", "blank"}  # a coda is one
    units = rmqtool("inspect", store / UNITS, "--json").lines
    places = [(message["queue_offset"], message["physical_offset"], message["message_size"]) for message in messages]
    assert [(unit["queue_offset"], unit["physical_offset"], unit["message_size"]) for unit in units] == places
    assert rmqtool("inspect", store / UNITS, "--json", "--reverse").lines == units[::-1]
    assert rmqtool("inspect", store / UNITS / FIRST, "--json").lines == units[:50]
    first = rmqtool("inspect", store / LOG / FIRST, "--json").of_kind("message")
    assert first == messages[: len(first)]
    assert len(first) > 80


def test_filters_and_others(store: Path) -> None:
    """Units by what their messages have; metadata are a config file; of an index a sentence says where keys are."""
    [unit] = rmqtool("inspect", store / UNITS, "--key", "k102", "--json").lines
    assert unit["queue_offset"] == 51
    assert rmqtool("inspect", store / UNITS, "--tag", "Tag1", "--limit", "2", "--json").lines[1]["queue_offset"] == 5
    assert "broker-a/history/0" in rmqtool("inspect", store / METADATA).out
    index = store / LOG.parents[2] / "rmq_sys_INDEX" / "0" / "INDEX"
    if index.is_dir():  # 5.1.4 had not uploaded it
        found = rmqtool("inspect", index)
        assert (found.status, "query --key" in found.err) == (4, True)
