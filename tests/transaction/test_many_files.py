"""Many files in one transaction: they are brought to the disk together, and each directory once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from rmqtool.transaction.system import System
from rmqtool.transaction.transaction import Transaction
from tests.transaction.small import make_store


class Counting(System):
    """Counts how often each path is synced, and the whole file system; nothing is waited for."""

    def __init__(self, *, is_trusted: bool) -> None:
        self.synced: Counter[str] = Counter()
        self.all_synced = 0
        self._is_trusted = is_trusted
        self._paths: dict[int, str] = {}

    def open_to_sync(self, path: str) -> int:
        descriptor = super().open_to_sync(path)
        self._paths[descriptor] = path
        return descriptor

    def open_to_write(self, path: str, *, create: bool) -> int:
        descriptor = super().open_to_write(path, create=create)
        self._paths[descriptor] = path
        return descriptor

    def sync(self, descriptor: int) -> None:
        self.synced[self._paths[descriptor]] += 1

    def sync_all(self, path: str) -> bool:
        self.all_synced += 1
        return self._is_trusted


def repaired(root: Path, queues: int, *, is_trusted: bool, has_queues: bool = True) -> Counting:
    """Make so many queues again in one transaction, beside those of a store or alone."""
    store, system = make_store(root), Counting(is_trusted=is_trusted)
    if not has_queues:
        (store / "consumequeue").rename(root.with_name(f"{root.name}-queues"))
    with Transaction(store, "test", system) as transaction:
        for number in range(queues):
            topic = f"consumequeue/many-{number}"
            transaction.file(f"{topic}/0/{0:020d}").write(b"unit", 0)
            if has_queues:
                transaction.put(topic)
        if not has_queues:
            transaction.put("consumequeue")
        transaction.commit()
    assert len(list((store / "consumequeue").glob("many-*/0/*"))) == queues
    return system


@pytest.mark.parametrize("has_queues", [True, False])
def test_files_are_synced_together(tmp_path: Path, has_queues: bool) -> None:
    """Where one call brings a whole file system to the disk, the number of calls does not grow with the files."""
    few, many = (
        repaired(tmp_path / str(queues), queues, is_trusted=True, has_queues=has_queues) for queues in (20, 60)
    )
    assert few.all_synced == many.all_synced == 2  # once for files, once for names
    assert few.synced.total() == many.synced.total() < 20


def test_elsewhere_each_file_and_directory_is_synced_once(tmp_path: Path) -> None:
    """Before they are put in place: where that call cannot be trusted it only makes the others quick."""
    system = repaired(tmp_path / "store", 20, is_trusted=False)
    staged = {path: count for path, count in system.synced.items() if "/staging/new/consumequeue/many-" in path}
    assert set(staged.values()) == {1}
    assert len(staged) == 3 * 20  # a topic, a queue and a file
