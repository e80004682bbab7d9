"""A copy of a whole broker that clients use: they go on where they were, and what waits for its time comes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real_broker.copies_of_clients import copies, judge
from tests.real_broker.harness import Harness

pytestmark = [pytest.mark.broker, pytest.mark.rare]


def test_clients_go_on(harness: Callable[[str], Harness], tmp_path: Path) -> None:
    """Orders, delayed messages, timers, half messages and tasks of POP consumers come, as if nothing had happened."""
    broker = harness("5.5.0")
    (made,), known = copies(broker, tmp_path, 1, {}, [])
    judged = judge(broker, made, tmp_path / "store", known, {})
    assert not judged.wrong
    assert all(judged.wanted[kind] for kind in ("reminders", "halves", "tasks")), judged.wanted
