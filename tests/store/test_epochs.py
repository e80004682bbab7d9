"""`epochFileCheckpoint`: bytes of real brokers of 5.3.3 under a controller, and what is no list of epochs."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.store.dledger_node import EPOCH_FILE, Epoch, load_epochs
from rmqtool.store.store import open_store

MASTER = b"2\n422900424\n1-0\n5-6740\n"
"""Of a broker that was master twice, and took 40 messages the first time (`Pair.java` of the harness)."""
SLAVE = b"1\n1725254278\n1-0\n"
NEXT_MASTER = b"3\n636543860\n1-0\n9-6740\n13-8430\n"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "commitlog").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("data", "epochs"),
    [(SLAVE, [(1, 0)]), (MASTER, [(1, 0), (5, 6740)]), (NEXT_MASTER, [(1, 0), (9, 6740), (13, 8430)])],
)
def test_golden(store: Path, data: bytes, epochs: list[tuple[int, int]]) -> None:
    (store / EPOCH_FILE).write_bytes(data)
    found = load_epochs(open_store(store))
    assert (found.entries, found.problem) == (tuple(Epoch(*epoch) for epoch in epochs), None)
    ends = [*(start for _, start in epochs[1:]), 9000]
    assert list(found.ends(9000).values()) == ends


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (MASTER.replace(b"6740", b"6741"), "wrong CRC"),
        (MASTER.replace(b"2\n", b"3\n", 1), "3 entries announced, 2 found"),
        (MASTER[:20], "wrong CRC"),
        (b"", "not a list of epochs"),
        (b"\0" * 23, "not a list of epochs"),
    ],
)
def test_a_broken_file(store: Path, data: bytes, says: str) -> None:
    """The copy counts then, as for a broker."""
    (store / EPOCH_FILE).write_bytes(data)
    alone = load_epochs(open_store(store))
    assert (alone.entries, says in str(alone.problem)) == ((), True)
    (store / f"{EPOCH_FILE}.bak").write_bytes(SLAVE)
    found = load_epochs(open_store(store))
    assert (found.entries, says in str(found.problem)) == ((Epoch(1, 0),), True)


def test_none(store: Path) -> None:
    found = load_epochs(open_store(store))
    assert (found.entries, found.problem) == ((), None)
