"""The statistics of a log are the same for any number of processes, whatever is wrong with it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rmqtool.base.errors import Exit, RmqtoolError
from rmqtool.base.parallel import WorkerPool
from rmqtool.inspect.log_statistics import LogStatistics, TimeDistribution
from rmqtool.inspect.whole_log import whole_log
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.building import LogBuilder
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.unchanged import unchanged

STORES = ["4.4.0-killed", "4.9.7-trimmed", "5.3.3-shop", "5.5.0-clean", "5.3.3-empty"]


def found(store: Path, jobs: int, least: int = 1 << 13) -> Any:
    """All that is known afterwards, and which files could not be read."""
    snapshot, unread, seen = Snapshot(open_store(store)), list[RmqtoolError](), list[int]()
    with unchanged(store), WorkerPool[LogStatistics](jobs - 1) as pool:
        statistics = whole_log(snapshot, unread, seen.append, pool, least)
    assert seen == sorted(seen) or unread
    known = {**vars(statistics), "sizes": statistics.sizes.bins(), "times": statistics.times.bins(40)}
    return known, [error.file for error in unread]


@pytest.mark.budget(2)
@pytest.mark.parametrize("name", STORES)
def test_golden_stores(name: str, golden_store: GoldenStore) -> None:
    assert found(golden_store(name), 1) == found(golden_store(name), 2)


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", range(6))
def test_damaged_logs(seed: int, unpacked: GoldenStore, tmp_path: Path) -> None:
    """Damage where parts meet, too; a lost file in the middle; bodies that are wrong."""
    store, chosen = copied(unpacked("5.5.0-clean"), tmp_path / "store"), random.Random(seed)
    files = sorted((store / "commitlog").iterdir())
    for _ in range(40):
        path = chosen.choice(files)
        data, size = bytearray(path.read_bytes()), chosen.choice((1, 20, 700, 9000))
        at = chosen.randrange(len(data) - size)
        data[at : at + size] = chosen.choice((bytes(size), chosen.randbytes(size)))
        path.write_bytes(data)
    if seed % 2:
        files[len(files) // 2].unlink()
    alone, together = found(store, 1), found(store, 3)
    assert alone[0]["damaged"].messages
    assert together == alone


@pytest.mark.budget(2)
def test_a_file_that_cannot_be_read(unpacked: GoldenStore, tmp_path: Path) -> None:
    """It is gone since the log was listed: all others count."""
    store = copied(unpacked("5.3.3-trimmed"), tmp_path / "store")
    file = sorted((store / "commitlog").iterdir())[1]
    snapshot = Snapshot(open_store(store))
    _ = snapshot.log
    file.unlink()
    unread: list[RmqtoolError] = []
    with WorkerPool[LogStatistics](1) as pool:
        statistics = whole_log(snapshot, unread, lambda _: None, pool, 1 << 13)
    assert [error.file for error in unread] == [str(file)]
    assert statistics.total.messages


def test_times_of_parts_have_the_width_of_all() -> None:
    """However they are cut: many batches, some of which are wider than others."""
    rng = np.random.default_rng(7)
    batches = [rng.integers(0, 60_000 * span, 3000) for span in (10, 5000, 300, 80_000, 600, 1)]
    whole = TimeDistribution()
    for batch in batches:
        whole.add(batch)
    for cut in range(1, len(batches)):
        parts = [TimeDistribution(), TimeDistribution()]
        for number, batch in enumerate(batches):
            parts[number >= cut].add(batch)
        parts[0].merge(parts[1])
        assert (parts[0].width, parts[0].bins(50)) == (whole.width, whole.bins(50))


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    """With real processes on a log that is worth them; --jobs without --scan is refused."""
    body = bytes(1 << 20)
    store = (
        LogBuilder(1 << 26).add_all({"body": body, "topic": f"t{n % 3}"} for n in range(130)).write(tmp_path / "store")
    )
    with unchanged(store):
        assert rmqtool("inspect", store, "--scan", "-j", "2").out == rmqtool("inspect", store, "--scan").out
        assert rmqtool("inspect", store, "-j", "2").status == Exit.USAGE
