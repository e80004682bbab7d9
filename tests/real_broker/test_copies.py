"""Copies of running brokers lose nothing that was acknowledged: a few; `tests.real_broker.copies` makes more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real_broker.copies import LOAD, ROCKSDB, copies, judge
from tests.real_broker.harness import Harness

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@pytest.mark.parametrize(
    ("version", "more", "options"),
    [
        pytest.param("4.9.7", {}, [], marks=pytest.mark.rare),
        ("5.3.3", {}, ["--raw"]),
        pytest.param("5.5.0", {}, [], marks=pytest.mark.rare),
        ("5.5.0", ROCKSDB, []),
    ],
)
def test_a_copy_of_a_running_broker(
    harness: Callable[[str], Harness], tmp_path: Path, version: str, more: dict[str, str], options: list[str]
) -> None:
    """The broker that starts on it has each message by its place, in its queue, and by its key."""
    broker, settings = harness(version), {**LOAD, **more}
    [made] = copies(broker, tmp_path, 1, settings, options)
    [judged] = judge(broker, [made], settings)
    assert (made.status, judged.wrong) == (0, {})
    assert judged.before > 1000
