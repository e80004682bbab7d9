"""Files are deleted where not one byte is free: who cleans is called because the disk is full."""

from __future__ import annotations

import errno
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from rmqtool.base.errors import UnwritableError
from rmqtool.transaction.home import interrupted
from rmqtool.transaction.system import System
from rmqtool.transaction.transaction import Transaction
from tests.sampling import one_in
from tests.transaction.faults import points, recover, run_with
from tests.transaction.small import make_store, repair_one, tree, trim


class FullDisk(System):
    """A disk on which nothing new finds room until `deletions` files of the store are gone."""

    def __init__(self, deletions: int, number: int = errno.ENOSPC, first: str = "make_directory") -> None:
        self.left = deletions
        self._number = number
        self._first = first  # the call that finds no room: which one it is differs from file system to file system

    def _need_room(self, call: str) -> None:
        if self.left > 0 and call == self._first:
            raise OSError(self._number, os.strerror(self._number))

    def make_directory(self, path: str) -> None:
        self._need_room("make_directory")
        super().make_directory(path)

    def open_to_write(self, path: str, *, create: bool) -> int:
        if create:
            self._need_room("open_to_write")
        return super().open_to_write(path, create=create)

    def write(self, descriptor: int, data: memoryview, position: int) -> int:
        self._need_room("write")
        return super().write(descriptor, data, position)

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self.left -= ".rmqtool" not in path


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("first", ["make_directory", "open_to_write", "write"])
@pytest.mark.parametrize("deletions", [1, 2, 100])
def test_deletions_find_room(scratch: Path, deletions: int, first: str, number: int) -> None:
    """The first files go without a journal, the rest with one as soon as it finds room."""
    root = make_store(scratch / "store")
    (root / "lock").touch()
    before = tree(root)
    system = FullDisk(deletions, number, first)
    with Transaction(root, "test", system) as transaction:
        names = [name for name in sorted(before) if name.startswith("commitlog/")]
        for name in names:
            transaction.delete(name)
        committed = transaction.commit()
    assert (committed.state, committed.deleted) == ("done", tuple(names))
    assert (committed.id is None) == (deletions >= len(names))
    assert tree(root) == {name: entry for name, entry in before.items() if name not in names}
    assert not (root / ".rmqtool").exists()


def test_a_repair_still_needs_room(scratch: Path) -> None:
    """What is replaced must be kept: nothing of the store is touched."""
    root = make_store(scratch / "store")
    (root / "lock").touch()
    before = tree(root)
    with pytest.raises(UnwritableError, match="no space left"):
        repair_one(root, FullDisk(1))
    assert tree(root) == before
    assert not (root / ".rmqtool").exists()


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["kill-before", "kill-after", "fail-once"])
@pytest.mark.parametrize("deletions", [1, 2, 100])
def test_a_kill_at_a_call(scratch: Path, fault: Any, deletions: int) -> None:
    """Files go in order whatever happens, and a second run deletes what the first has left."""
    root = make_store(scratch / "reference")
    (root / "lock").touch()
    before = tree(root)
    names = run_with(FullDisk(deletions), None, -1, partial(trim, root))[0].names
    after = tree(root)
    gone = [name for name in before if name not in after]
    allowed = [{name: entry for name, entry in before.items() if name not in gone[:count]} for count in range(4)]
    for at in one_in(2, points(names, fault), f"{fault} {deletions}"):
        root = make_store(scratch / "store")
        (root / "lock").touch()
        run_with(FullDisk(deletions), fault, at, partial(trim, root))
        assert tree(root) in allowed
        recover(root, System())
        assert tree(root) in allowed
        assert interrupted(root) is None
        with Transaction(root, "test", cast(System, FullDisk(100))) as transaction:
            for name in gone:
                if (root / name).exists():
                    transaction.delete(name)
            transaction.commit()
        assert tree(root) == after
        shutil.rmtree(root)
