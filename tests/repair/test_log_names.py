"""Log files under wrong names get those that their records tell; copies are taken out."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from rmqtool.formats.file_name import file_name
from rmqtool.formats.message import TRANSACTION_PREPARED
from rmqtool.repair.fields import RightFields
from rmqtool.rules.broker_conf import BrokerConf
from tests.building import START_TIME, write_log
from tests.repair.healing import carry_out, heal, left, plan
from tests.transaction.small import tree
from tests.verify.damages import log_file
from tests.verify.small_store import FILE_SIZE, StoreBuilder, small_log, small_store
from tests.verify.verifying import codes_of, verify


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return small_store(tmp_path / "store")


def rename(store: Path, names: dict[int, int]) -> None:
    """Let log files change names, by their start offsets."""
    folder = store / "commitlog"
    for start in names:
        (folder / file_name(start)).rename(folder / f"{start}.moved")
    for start, new in names.items():
        (folder / f"{start}.moved").rename(folder / file_name(new))


LAST = (len(small_log().files) - 1) * FILE_SIZE
RENAMED = {
    "two neighbours": {0: FILE_SIZE, FILE_SIZE: 0},
    "the first and the last": {0: LAST, LAST: 0},
    "three in turn": {0: FILE_SIZE, FILE_SIZE: 2 * FILE_SIZE, 2 * FILE_SIZE: 0},
    "a shifted name": {FILE_SIZE: FILE_SIZE + 100},
    "far behind": {FILE_SIZE: 100 * FILE_SIZE},
    "the first far behind": {0: 100 * FILE_SIZE},
    "the last far behind": {LAST: 100 * FILE_SIZE},
    "all by one": {start: start + FILE_SIZE for start in range(0, LAST + 1, FILE_SIZE)},
}


@pytest.mark.slow
@pytest.mark.parametrize("case", RENAMED)
def test_files_get_their_names_back(store: Path, case: str) -> None:
    """Every byte, time and mode is as it was."""
    before = tree(store)
    rename(store, RENAMED[case])
    [change] = [change for change in heal(store) if "renamed" in change.what or "get the names" in change.what]
    assert len(change.details) == len(RENAMED[case])
    assert change.size == 0
    assert tree(store) == before
    assert codes_of(verify(store)) == set()


@pytest.mark.slow
def test_a_checkpoint_is_judged_once_the_log_is_whole(tmp_path: Path) -> None:
    """It is newer than a log whose last file has another name, and right."""
    builder = StoreBuilder(file_size=FILE_SIZE)
    for number in range(30):
        builder.put("t", store_timestamp=START_TIME + 400 * number, sys_flag=TRANSACTION_PREPARED, body=bytes(300))
    store = small_store(tmp_path / "store", builder)
    before = tree(store)
    rename(store, {(len(builder.files) - 1) * FILE_SIZE: 100 * FILE_SIZE})
    assert "checkpoint.future" in codes_of(verify(store))
    [change] = heal(store)
    assert "renamed" in change.what
    assert tree(store) == before


@pytest.mark.slow
def test_sizes_and_strays_come_before_names(store: Path) -> None:
    """A file that has grown has another one's name, where an empty one stands; each is judged once it is done."""
    before = tree(store)
    rename(store, {0: FILE_SIZE, FILE_SIZE: 0})
    path = store / "commitlog" / file_name(FILE_SIZE)
    status = path.stat()
    os.truncate(path, FILE_SIZE + 10)
    os.utime(path, ns=(status.st_mtime_ns, status.st_mtime_ns))
    (store / "commitlog" / file_name(LAST + FILE_SIZE)).mkdir()
    carry_out(store, plan(store))
    heal(store)
    assert tree(store) == before


@pytest.mark.slow
def test_swapped_names_beside_a_stray(store: Path) -> None:
    """Both at once: while only the stray was taken out, the plan asked to restore a file that is there."""
    before = tree(store)
    rename(store, {0: LAST, LAST: 0})
    (store / "commitlog" / "core.1234").write_bytes(b"not a log")
    assert len(heal(store)) == 2
    assert tree(store) == before


@pytest.mark.slow
def test_a_file_allocated_ahead_gives_way(store: Path) -> None:
    """The last file and the zeros after it have changed names."""
    before = tree(store)
    (store / "commitlog" / file_name(LAST)).rename(store / "commitlog" / file_name(LAST + FILE_SIZE))
    (store / "commitlog" / file_name(LAST)).write_bytes(bytes(FILE_SIZE))
    heal(store)
    assert tree(store) == before


@pytest.mark.slow
def test_a_copy_is_taken_out(store: Path) -> None:
    """Byte for byte a file that is in its place."""
    before = tree(store)
    shutil.copy(log_file(store, 1), store / "commitlog" / file_name(FILE_SIZE + 100))
    heal(store)
    assert tree(store) == before


@pytest.mark.slow
def test_a_copy_that_differs_is_left(store: Path) -> None:
    """Nobody knows which of the two is right."""
    copy = store / "commitlog" / file_name(FILE_SIZE + 100)
    shutil.copy(log_file(store, 1), copy)
    with copy.open("r+b") as file:
        file.seek(2000)
        file.write(b"other")
    assert plan(store) == []
    assert "decide" in " ".join(each.why for each in left(store))


@pytest.mark.slow
def test_the_second_of_two_directories_has_a_copy(store: Path) -> None:
    """The same name twice, of a log with several paths."""
    before = tree(store)
    (store / "second").mkdir()
    shutil.copy(log_file(store, 1), store / "second")
    conf = BrokerConf({"storePathCommitLog": f"{store}/commitlog,{store}/second"})
    [change] = heal(store, conf)
    assert change.details == (f"second/{file_name(FILE_SIZE)}",)
    (store / "second").rmdir()
    assert tree(store) == before


def test_a_file_of_another_broker_is_left(store: Path, tmp_path: Path) -> None:
    """Under the name that its records tell it would tear a new gap."""
    foreign = small_log()
    foreign.start_offset = 50 * FILE_SIZE
    other = write_log(tmp_path / "other", {start + 50 * FILE_SIZE: data for start, data in _shifted().items()})
    shutil.copy(log_file(other, 1), log_file(store, 1))
    assert not [change for change in plan(store) if "commitlog.physical-offset" in change.codes]


def _shifted() -> dict[int, bytes]:
    """The small log as another broker wrote it further on."""
    images = {}
    for start, data in small_log().images().items():
        image = bytearray(data)
        for offset in small_log().offsets:
            if start <= offset < start + FILE_SIZE:
                at = offset - start + 28
                image[at : at + 8] = (offset + 50 * FILE_SIZE).to_bytes(8, "big")
        images[start] = bytes(image)
    return images


def test_single_wrong_offsets_rename_nothing(store: Path) -> None:
    """A flipped position in the first record of a file is damage of that record."""
    with log_file(store, 1).open("r+b") as file:
        file.seek(28)
        file.write((3 * FILE_SIZE).to_bytes(8, "big"))
    assert [type(change) for change in plan(store)] == [RightFields]


def test_random_bytes_rename_nothing(store: Path) -> None:
    """Whatever the first page of a file is."""
    chance = random.Random(1)
    for number in range(3):
        with log_file(store, number).open("r+b") as file:
            file.write(chance.randbytes(200))
    assert not [change for change in plan(store) if "commitlog.physical-offset" in change.codes]


def test_a_renamed_file_keeps_its_holes(store: Path) -> None:
    """It is the same file under another name."""
    path = log_file(store, 1)
    inode = path.stat().st_ino
    rename(store, {FILE_SIZE: 100 * FILE_SIZE})
    heal(store)
    assert os.stat(path).st_ino == inode
