"""Logs that are cut, and stores that are settled: the broker serves all that is left, and nothing else.

A few; `tests.real_broker.cuts` makes more.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands.running import rmqtool
from tests.real_broker.copies import LOAD, ROCKSDB, sent_messages
from tests.real_broker.cuts import MESSAGES, cut_and_judge, offsets_of, wrong_after
from tests.real_broker.harness import Harness

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@pytest.mark.parametrize(
    ("version", "more", "killed", "repeated"),
    [("4.9.7", {}, True, False), ("5.3.3", {}, False, True), ("5.5.0", ROCKSDB, False, True)],
)
def test_a_cut_log(
    harness: Callable[[str], Harness], tmp_path: Path, version: str, more: dict[str, str], killed: bool, repeated: bool
) -> None:
    """All before the cut is served, and nothing of the rest comes back, however often the broker starts."""
    broker, settings, base = harness(version), {**LOAD, **more}, tmp_path / "base"
    base.mkdir()
    broker.write_same(base, MESSAGES, settings, killed=killed)
    sent = sent_messages(base)
    [offset] = offsets_of(sent, 3, int(LOAD["mappedFileSizeCommitLog"]), 1)[2:]
    assert cut_and_judge(broker, base, sent, offset, settings, repeated=repeated) == {}


@pytest.mark.parametrize(("version", "more"), [("4.9.7", {}), ("5.3.3", {}), ("5.5.0", {}), ("5.5.0", ROCKSDB)])
def test_a_settled_store(harness: Callable[[str], Harness], tmp_path: Path, version: str, more: dict[str, str]) -> None:
    """A killed broker's store keeps all its keys, which a start after a crash would lose."""
    broker, settings, root = harness(version), {**LOAD, **more}, tmp_path / "store"
    root.mkdir()
    broker.write_same(root, MESSAGES, settings, killed=True)
    sent = sent_messages(root)
    assert rmqtool("repair", root, "--settle", "--yes", "--broker-version", version).status == 0
    assert not (root / "abort").exists()
    assert wrong_after(broker, root, sent, 1 << 62, settings) == {}
