"""Asking a store while a real broker's store classes run and write on it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands.running import MAX_SECONDS, rmqtool
from tests.real_broker.harness import Harness

pytestmark = pytest.mark.broker

_RATE = 1000  # messages per second that the broker writes meanwhile
_LIVE = ("--topic", "live", "--queue", "0")


def _query(root: Path, *options: str) -> tuple[int, list[dict[str, Any]]]:
    """Exit status and lines."""
    found = rmqtool("query", root, *options, "--json", "--body", "none")
    return found.status, found.lines


def _wait_for_messages(root: Path, version: str) -> None:
    """Return when the broker has dispatched some."""
    deadline = time.monotonic() + MAX_SECONDS
    asked = ("--pull", *_LIVE, "--queue-offset", "10", "--broker-version", version)
    while not any(answer["status"] == "FOUND" for answer in _query(root, *asked)[1]):
        assert time.monotonic() < deadline, "it writes nothing"
        time.sleep(0.1)


@pytest.mark.parametrize("version", ["4.4.0", "5.5.0"])
def test_a_live_store(harness: Callable[[str], Harness], version: str, tmp_path: Path) -> None:
    """What is written meanwhile is found, traced and pulled, and nothing of it is called damage."""
    root = tmp_path / "store"
    root.mkdir()
    broker = harness(version)
    broker.write(root, "single")
    with broker.hold(root, messages_per_second=_RATE):
        _wait_for_messages(root, version)
        for _ in range(3):
            status, (answer,) = _query(root, "--pull", *_LIVE, "--queue-offset", "1", "--broker-version", version)
            assert (status, answer["status"]) == (0, "FOUND")
            newest = answer["max_offset"] - 1
            status, (message,) = _query(root, *_LIVE, "--queue-offset", str(newest), "--trace")
            assert status == 0
            assert message["places"]["consume_queue"]["state"] == "ok"
            assert message["places"]["contradictions"] == []
        status, lines = _query(root, "--key", "only", "--topic", "orders")
        assert (status, len(lines)) == (0, 1)
        assert _query(root, "--scan", "--topic", "live", "--limit", "5")[0] == 0
