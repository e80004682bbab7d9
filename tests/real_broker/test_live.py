"""Inspecting a store while a real broker's store classes run and write on it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands.running import rmqtool
from tests.real_broker.harness import VERSIONS, Harness

pytestmark = pytest.mark.broker

_RATE = 1000  # messages per second that the broker writes meanwhile


def _overview(root: Path, *options: str) -> dict[str, Any]:
    found = rmqtool("inspect", root, *options, "--json")
    assert (found.status, found.err) == (0, "")
    result: dict[str, Any] = found.document["result"]
    return result


@pytest.mark.parametrize("version", VERSIONS)
def test_a_live_store(harness: Callable[[str], Harness], version: str, tmp_path: Path) -> None:
    """A running broker is seen with its process id, what it writes is no damage and no fault, its lock stays its own.

    Stopped, its store is clean too, and ends where the broker says.
    """
    broker = harness(version)
    root = tmp_path / "store"
    root.mkdir()
    broker.write(root, "single")
    with broker.hold(root, messages_per_second=_RATE) as pid:
        messages = []
        for _ in range(2):
            messages += [_seen_running(root, pid), _verified_clean(root)]
        assert messages == sorted(messages)
        assert messages[-1] > messages[0]
        listed = rmqtool("inspect", root / "commitlog", "--body", "none", "--json")
        assert (listed.status, listed.err) == (0, "")
        assert "damage" not in {line["kind"] for line in listed.lines}
    stopped = _overview(root, "--scan")
    assert not stopped["broker"]["running"]
    assert stopped["broker"]["last_exit"] == "clean"
    assert stopped["commit_log"]["messages"] >= messages[-1]
    verified = _verify(root)
    assert [finding for finding in verified["findings"] if finding["severity"] != "info"] == []
    maximum = broker.oracle(root)["commit_log"]["max_offset"]
    assert stopped["commit_log"]["max_offset"] == verified["result"]["start"]["max_offset_after"] == maximum


def _seen_running(root: Path, pid: int) -> int:
    """What an overview says while the broker writes; the messages that it counts."""
    overview = _overview(root, "--scan")
    assert overview["broker"]["running"]
    assert overview["broker"]["pid"] == pid
    assert overview["broker"]["last_exit"] == "unknown"
    assert overview["scan"]["damage"]["count"] == 0
    return int(overview["commit_log"]["messages"])


def _verified_clean(root: Path) -> int:
    """What grows meanwhile is not a fault, nor what is not dispatched yet; the messages that it counts."""
    document = _verify(root)
    if document["result"]["verdict"] != "clean":
        # A record may be read while it is written, however unlikely; what is wrong with a store stays wrong.
        first, document = _serious(document), _verify(root)
        assert first.isdisjoint(_serious(document))
    assert not _serious(document)
    assert document["result"]["verdict"] == "clean"
    assert document["result"]["start"] is None
    return int(document["result"]["messages"])


def _verify(root: Path) -> dict[str, Any]:
    document: dict[str, Any] = rmqtool("verify", root, "--json").document
    return document


def _serious(document: dict[str, Any]) -> set[tuple[str, str, int]]:
    findings = [finding for finding in document["findings"] if finding["severity"] != "info"]
    return {(finding["code"], finding["file"], finding["offset"]) for finding in findings}
