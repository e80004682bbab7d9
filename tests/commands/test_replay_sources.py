"""What `rmqtool replay` takes for a store or an export, and what it says of anything else."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from tests.building import LOG
from tests.commands.running import Result, rmqtool
from tests.replay.fake_cluster import FakeCluster
from tests.replay.rows import write_store


@pytest.fixture
def fake() -> Iterator[FakeCluster]:
    with FakeCluster(topics={"orders": 4}) as cluster:
        yield cluster


def replay(source: Path, fake: FakeCluster) -> Result:
    return rmqtool("replay", source, "--nameserver", fake.address)


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda path: path.mkdir(), "an empty directory"),
        (
            lambda path: [(path / name).mkdir(parents=True) for name in "edcba"],
            "a directory with a, b, c, d and 1 more",
        ),
        (lambda path: path.write_text("a, b"), "a file of 4 B that is not a Parquet file"),
        (lambda path: path.write_text('{"topicConfigTable":{}}'), "JSON"),
        (os.mkfifo, "neither a file nor a directory"),
    ],
)
def test_what_is_neither_store_nor_export(
    tmp_path: Path, fake: FakeCluster, make: Callable[[Path], object], found: str
) -> None:
    """What is expected is named, and what is there."""
    make(tmp_path / "source")
    answer = replay(tmp_path / "source", fake)
    assert answer.status == Exit.NOT_A_STORE
    assert "neither a store (a directory with commitlog/) nor an export" in answer.err
    assert f"found: {found}" in answer.err


def test_a_log_file_is_no_store(tmp_path: Path, fake: FakeCluster) -> None:
    """The store that it is a file of is named."""
    store = write_store(tmp_path / "store", 3)
    for file, is_ in ((store / LOG / f"{0:020d}", "a commit log file"), (store / LOG, "a directory with 000000000")):
        answer = replay(file, fake)
        assert (answer.status, f"found: {is_}" in answer.err) == (Exit.NOT_A_STORE, True)
        assert f"the store seems to be {file.parent if file.is_dir() else file.parent.parent}" in answer.err


def test_a_parquet_file_of_any_name(tmp_path: Path, fake: FakeCluster) -> None:
    rmqtool("export", write_store(tmp_path / "store", 3), "--output", tmp_path / "lake", "-q")
    (file,) = (tmp_path / "lake").rglob("*.parquet")
    file.rename(tmp_path / "edited")
    assert replay(tmp_path / "edited", fake).status == Exit.OK
