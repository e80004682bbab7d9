"""The store of a real slave, which takes topics, groups and offsets over from its master."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands.running import rmqtool
from tests.real_broker.harness import Harness
from tests.unchanged import tree
from tests.verify.verifying import codes_of, verify

pytestmark = [pytest.mark.broker, pytest.mark.rare]

DEFECTS = {
    "5.3.3": {("commitlog.queue-offset-gap", "bulk"), ("consumequeue.shifted", "bulk")},
    "5.5.0": {("config.missing", None)},
}
"""5.3.3 takes over no topic with attributes, so that its queue is of another kind; 5.5.0 no committed offsets."""


@pytest.mark.parametrize("version", ["4.9.7", "5.1.4", "5.3.3", "5.5.0", "5.5.1"])
def test_a_slave(harness: Callable[[str], Harness], tmp_path: Path, version: str) -> None:
    """Nothing is wrong with it but what its release does wrong."""
    harness(version).write_slave(tmp_path)
    assert codes_of(verify(tmp_path / "master")) == set()
    found = [each for each in verify(tmp_path / "slave", version=version).findings if each.severity != "info"]
    assert {(each.code, each.topic) for each in found} == DEFECTS.get(version, set())


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3", "5.5.0"])
def test_a_slave_that_begins_with_a_copy(harness: Callable[[str], Harness], tmp_path: Path, version: str) -> None:
    """It goes on at the end of the copy; each byte it has then is the master's, which may write until it stops."""
    broker = harness(version)
    broker.write_slave(tmp_path / "before")
    (tmp_path / "before" / "master").rename(tmp_path / "master")
    assert rmqtool("copy", tmp_path / "master", "--output", tmp_path / "slave", "--as", "slave").status == 0
    copied = tree(tmp_path / "slave" / "commitlog")
    broker.write_slave(tmp_path)
    master, slave = tree(tmp_path / "master" / "commitlog"), tree(tmp_path / "slave" / "commitlog")
    assert len(copied) < len(slave)
    assert all(slave[name] == master[name] for name in copied)
    written = {name: data.rstrip(b"\0") for name, data in slave.items()}
    assert {name: master[name][: len(data)] for name, data in written.items() if data} == {
        name: data for name, data in written.items() if data
    }
