"""Random damages of log files and checkpoint: no repair loses a record, none fails, and undo gives back every byte."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from rmqtool.formats.file_name import file_name
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from rmqtool.store.store import open_store
from rmqtool.transaction.undo import Undo
from tests.repair.healing import carry_out, left, plan
from tests.transaction.small import tree
from tests.verify.small_store import FILE_SIZE, small_store

_MOST_ROUNDS = 5
Operation = Callable[[random.Random, Path], object]


def log_files(store: Path) -> list[Path]:
    """The files that have a start offset for a name."""
    return sorted(path for path in (store / "commitlog").iterdir() if path.name.isdigit() and path.is_file())


def start(chance: random.Random) -> str:
    """The name of a log file, of the grid or not."""
    return file_name(chance.choice([chance.randrange(6) * FILE_SIZE, chance.randrange(6 * FILE_SIZE), 1 << 20]))


def rename(chance: random.Random, store: Path) -> None:
    """Give a file another name; one of that name is lost."""
    path = chance.choice(log_files(store))
    path.rename(path.with_name(start(chance)))


def swap(chance: random.Random, store: Path) -> None:
    """Let two files change names."""
    one, other = chance.sample(log_files(store), 2)
    spare = one.with_name("spare")
    one.rename(spare)
    other.rename(one)
    spare.rename(other)


def resize(chance: random.Random, store: Path) -> None:
    """Cut a file, or let it grow by zeros."""
    path = chance.choice(log_files(store))
    os.truncate(path, chance.choice([0, chance.randrange(FILE_SIZE), FILE_SIZE + chance.randrange(9000)]))


def overwrite(chance: random.Random, store: Path) -> None:
    """Put zeros or other bytes into a file, often into its first record."""
    path = chance.choice(log_files(store))
    data = bytearray(path.read_bytes())
    at, size = chance.choice([chance.randrange(100), chance.randrange(len(data))]), chance.choice([1, 200, FILE_SIZE])
    data[at : at + size] = chance.choice([bytes(size), chance.randbytes(size)])[: len(data) - at]
    path.write_bytes(data)


def duplicate(chance: random.Random, store: Path) -> None:
    """Copy a file to another name."""
    path = chance.choice(log_files(store))
    shutil.copy(path, path.with_name(chance.choice([start(chance), f"{path.name}.bak"])))


OPERATIONS: tuple[Operation, ...] = (
    *(rename, swap, resize, overwrite, duplicate),
    lambda chance, store: chance.choice(log_files(store)).unlink(),
    lambda chance, store: (store / "commitlog" / start(chance)).touch(),
    lambda chance, store: (store / "commitlog" / start(chance)).mkdir(),
    lambda chance, store: (store / chance.choice(["commitlog/x", "consumequeue/orders/0/x"])).touch(),
    lambda chance, store: (store / "checkpoint").write_bytes(chance.randbytes(chance.choice([0, 10, 48, 4096]))),
    lambda chance, store: (store / "checkpoint").unlink(),
    lambda chance, store: (store / "abort").touch(),
)


def records(store: Path) -> set[int]:
    """Where the sound records begin."""
    files = [file for file in open_store(store).commit_log().files if file.size]
    runs = (event for event in scan_files(files) if isinstance(event, RecordRun))
    return {run.block.start_offset + position for run in runs for position in run.positions.tolist()}


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", range(12))
def test_no_record_is_lost(tmp_path: Path, seed: int) -> None:
    """Whatever is planned, until nothing is."""
    chance = random.Random(seed)
    store = small_store(tmp_path / "store")
    for _ in range(chance.randrange(1, 4)):
        with suppress(OSError, IndexError, ValueError, shutil.SameFileError):
            chance.choice(OPERATIONS)(chance, store)
    before, found, rounds = tree(store), records(store), 0
    while changes := plan(store):
        carry_out(store, changes)
        rounds += 1
        assert rounds <= _MOST_ROUNDS
    left(store)
    assert found <= records(store)
    with Undo(store) as undo:
        for _ in range(rounds):
            assert undo.put_back()
    assert tree(store) == before
