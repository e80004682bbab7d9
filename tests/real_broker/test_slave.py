"""The store of a real slave, which takes topics, groups and offsets over from its master."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real_broker.harness import Harness
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
