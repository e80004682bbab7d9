"""What a transaction stages beside whole files, and that it leaves nothing open."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.base.errors import UnsupportedError, UnwritableError
from rmqtool.transaction.system import SYSTEM, System
from rmqtool.transaction.transaction import Transaction
from tests.transaction.small import FILES, make_store, put, rename, repair_one, tree, undo

QUEUE = "consumequeue/A/0"
RESERVE = 16 << 20
"""Bytes that stay free beside what is written."""


class WithRoom(System):
    """A disk with so many free bytes."""

    def __init__(self, free: int) -> None:
        self.free = free

    def free_bytes(self, path: str) -> int:
        return self.free


@pytest.fixture
def store(scratch: Path) -> Path:
    root = make_store(scratch / "store")
    (root / "lock").touch()
    return root


def open_files() -> set[str]:
    """What this process has open."""
    return {os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if _is_open(name)}


def _is_open(name: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{name}")


def test_files_change_names(store: Path) -> None:
    first, second, third, new = (store / f"commitlog/{start:020d}" for start in (0, 1024, 2048, 3072))
    rename(store, SYSTEM)
    assert [path.read_bytes() for path in (first, second, new)] == [b"log 1", b"log 0", b"log 2"]
    assert not third.exists()


@pytest.mark.parametrize(("name", "source"), [("../x", "checkpoint"), ("x", "../x"), ("x", "lock")])
def test_a_second_name_stays_in_the_store(store: Path, name: str, source: str) -> None:
    with Transaction(store, "test") as transaction, pytest.raises((UnwritableError, UnsupportedError)):
        transaction.link(name, source)


def test_an_empty_directory(store: Path) -> None:
    with Transaction(store, "test") as transaction:
        transaction.directory("consumequeue/E/0")
        transaction.put("consumequeue/E")
        transaction.commit()
    assert [*(store / "consumequeue/E").rglob("*")] == [store / "consumequeue/E/0"]


def test_a_file_that_is_not_written_is_zeros(store: Path) -> None:
    with Transaction(store, "test") as transaction:
        transaction.file("checkpoint", size=7)
        transaction.put("checkpoint")
        transaction.commit()
    assert (store / "checkpoint").read_bytes() == bytes(7)


def test_a_scratch_directory_is_gone_at_the_end(store: Path) -> None:
    before = tree(store)
    with Transaction(store, "test") as transaction:
        with transaction.scratch() as path:
            assert path.is_relative_to(store / ".rmqtool")
            (path / "file").write_bytes(b"of a library")
        assert not path.exists()
        with transaction.scratch() as path:
            shutil.rmtree(path)  # by the library itself
    assert tree(store) == before
    assert not (store / ".rmqtool").exists()


def test_a_file_of_no_name(store: Path) -> None:
    """It is there where it fits and a reserve stays free, once, and ends with the transaction."""
    system = WithRoom(RESERVE + 999)
    before = tree(store)
    with Transaction(store, "test", system) as transaction:
        assert transaction.unnamed_file(1000) is None
        descriptor = transaction.unnamed_file(999)
        assert descriptor is not None
        assert os.fstat(descriptor).st_nlink == 0
        system.free = 0
        assert transaction.unnamed_file(1000) == descriptor
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        os.fstat(descriptor)
    assert tree(store) == before


def test_a_reserve_stays_free(store: Path) -> None:
    with Transaction(store, "test", WithRoom(RESERVE + 999)) as transaction:
        transaction.require_space(999)
        with pytest.raises(UnwritableError):
            transaction.require_space(1000)


@pytest.mark.parametrize("name", [QUEUE, "checkpoint/x", "link", "nothing"])
def test_only_files_are_deleted(store: Path, name: str) -> None:
    (store / "link").symlink_to("checkpoint")
    with Transaction(store, "test") as transaction, pytest.raises(UnwritableError, match="not a regular file"):
        transaction.delete(name)


def _given_up(root: Path) -> None:
    with Transaction(root, "test") as transaction:
        put(transaction, "checkpoint", b"new")


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
@pytest.mark.parametrize("job", [_given_up, lambda root: repair_one(root, SYSTEM)])
def test_no_staged_file_stays_open(store: Path, job: Callable[[Path], None]) -> None:
    before = open_files()
    job(store)
    assert open_files() == before


class Broken(System):
    """A disk that makes no directory."""

    def make_directory(self, path: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)


def test_only_a_full_disk_deletes_without_a_journal(store: Path) -> None:
    before = tree(store)
    with Transaction(store, "test", Broken()) as transaction:
        transaction.delete(next(iter(FILES)))
        with pytest.raises(UnwritableError):
            transaction.commit()
    assert tree(store) == before


def test_undo_gives_directories_their_times_back(store: Path) -> None:
    directories = (store, store / "consumequeue/A", store / "commitlog")
    for number, path in enumerate(directories):
        os.utime(path, (1000 + number, 1000 + number))
    with Transaction(store, "test") as transaction:
        put(transaction, "new", b"new")
        put(transaction, f"commitlog/{3072:020d}", b"log 3")
        transaction.remove(QUEUE)
        transaction.commit()
    undo(store, SYSTEM)
    assert [path.stat().st_mtime for path in directories] == [1000, 1001, 1002]
