"""What a transaction stages beside whole files, and that it leaves nothing open."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.base.errors import UnsupportedError, UnwritableError
from rmqtool.transaction.home import interrupted
from rmqtool.transaction.system import SYSTEM, System
from rmqtool.transaction.transaction import Transaction
from tests.transaction.faults import recover
from tests.transaction.small import FILES, make_store, put, rename, repair, repair_one, tree, undo

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


def test_what_is_as_before_is_not_kept(store: Path) -> None:
    with Transaction(store, "test") as transaction:
        file = transaction.file("checkpoint", size=10, mtime_ns=(store / "checkpoint").stat().st_mtime_ns)
        file.write(b"checkpoint", 0)
        transaction.put("checkpoint")
        put(transaction, "new", b"new")
        assert transaction.commit().changed == ("new",)
    assert not [*(store / ".rmqtool").rglob("checkpoint")]


class Failing(System):
    """A disk that makes so many exchanges, or syncs no directory once the staged files have become a transaction."""

    def __init__(self, exchanges: int = 99, failures: int = 99, *, syncs: bool = True) -> None:
        self._exchanges = exchanges
        self._failures = failures
        self._syncs = syncs
        self._is_begun = False

    def exchange(self, one: str, other: str) -> None:
        self._exchanges -= 1
        if self._exchanges < 0 and self._failures:
            self._failures -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO), one)
        super().exchange(one, other)

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self._is_begun |= source.endswith("/staging")

    def open_to_sync(self, path: str) -> int:
        if self._is_begun and not self._syncs:
            self._is_begun = False
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return super().open_to_sync(path)


@pytest.mark.parametrize("system", [Failing(0), Failing(1, 1), Failing(syncs=False)])
def test_a_failed_commit_is_taken_back(store: Path, system: System) -> None:
    before = tree(store)
    with pytest.raises(UnwritableError) as caught:
        repair(store, system)
    assert "half-way" not in str(caught.value.hint)
    assert tree(store) == before
    assert not (store / ".rmqtool").exists()


def test_a_commit_that_stops_half_way_is_ended_by_the_next_run(store: Path) -> None:
    before = tree(store)
    with pytest.raises(UnwritableError) as caught:
        repair(store, Failing(1))
    assert "half-way" in str(caught.value.hint)
    assert tree(store) != before
    recover(store, SYSTEM)
    assert interrupted(store) is None
    undo(store, SYSTEM)
    assert tree(store) == before
