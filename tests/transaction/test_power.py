"""Power fails at every call: whatever the disk has kept, a broker can start, and the next run ends the transaction."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, cast

import pytest

from rmqtool.base.errors import RmqtoolError
from rmqtool.transaction import staging
from rmqtool.transaction.home import interrupted
from rmqtool.transaction.system import SYSTEM, System
from rmqtool.transaction.undo import Undo, kept_transactions
from tests.sampling import ALL
from tests.transaction.disk import Contents, Disk, Recorder, write_contents
from tests.transaction.small import JOBS, SYSTEMS, NoLinks, Tree, make_store, part, tree, trim, undo

pytestmark = pytest.mark.slow

CASES = [
    pytest.param(job, kind, marks=() if job == "repair-one" or kind == "all" else pytest.mark.rare)
    for job, kind in product(JOBS, SYSTEMS)
]
"""A repair of one directory on every file system, one of several places on the best."""

_SAMPLE = 1 if ALL in os.environ else 3
"""Of so many different stores that crashes leave one is looked at."""


def record(root: Path, system: System, action: Callable[[Path, System], Any]) -> tuple[Disk, Recorder]:
    """Do it for real; the disk before, and the calls."""
    disk, recorder = Disk(root), Recorder(system)
    action(root, cast(System, recorder))
    return disk, recorder


def assert_safe_at_every_call(
    scratch: Path, disk: Disk, recorder: Recorder, job: str, states: list[Tree], system: System, *, may_lack: bool
) -> int:
    """Crash after every call, in each way; the number of different stores that this leaves."""
    chance = random.Random(1)
    seen: list[Contents] = []
    for number, (name, arguments) in enumerate(recorder.calls):
        disk.play(name, arguments)
        for kept, with_bytes in disk.crashes(chance):
            contents = disk.after(kept, with_bytes=with_bytes)
            if contents in seen:
                continue
            seen.append(contents)
            if len(seen) % _SAMPLE:
                continue
            root = scratch / "crashed"
            write_contents(contents, root)
            now = tree(root, details=False)
            # Without links several queues change one by one: then only all of them together are old or new at the end.
            for step in JOBS[job].steps if job == "repair-one" or not isinstance(system, NoLinks) else ():
                found = part(now, step)
                assert (may_lack and not found) or found in [part(state, step) for state in states], (
                    number,
                    name,
                    step,
                )
            with Undo(root, system):
                pass
            assert tree(root, details=False) in states, (number, name, arguments, kept)
            assert interrupted(root) is None
            assert all(one.state == "done" for one in kept_transactions(root))
            shutil.rmtree(root)
    return len(seen)


@pytest.mark.parametrize(("job", "kind"), CASES)
def test_power_fails_during_a_transaction_and_its_undo(scratch: Path, job: str, kind: str) -> None:
    system = SYSTEMS[kind]()
    lack = kind in ("no-exchange", "plain")
    root = make_store(scratch / "store")
    before = tree(root, details=False)
    disk, recorder = record(root, system, JOBS[job].run)
    after = tree(root, details=False)
    stores = assert_safe_at_every_call(scratch, disk, recorder, job, [before, after], system, may_lack=lack)
    assert stores > 40
    disk, recorder = record(root, system, undo)
    assert tree(root, details=False) == before
    assert_safe_at_every_call(scratch, disk, recorder, job, [before, after], system, may_lack=lack)


class SyncsAll(System):
    """A file system that is synced as a whole, for certain or not."""

    def __init__(self, certain: bool) -> None:
        self.certain = certain

    def sync_all(self, path: str) -> bool:
        return self.certain


@pytest.mark.parametrize("certain", [True, False])
def test_power_fails_where_all_is_synced_at_once(scratch: Path, monkeypatch: pytest.MonkeyPatch, certain: bool) -> None:
    """One call for the whole file system in place of one for each file and directory, where that call is enough."""
    monkeypatch.setattr(staging, "_MANY", 0)
    root = make_store(scratch / "store")
    before = tree(root, details=False)
    system = SyncsAll(certain)
    disk, recorder = record(root, system, JOBS["repair-one"].run)
    after = tree(root, details=False)
    assert (sum(name == "sync_all" for name, _ in recorder.calls) == 2) == certain
    assert_safe_at_every_call(scratch, disk, recorder, "repair-one", [before, after], system, may_lack=False)


def test_power_fails_during_a_deletion(scratch: Path) -> None:
    """Files vanish from the oldest on, whatever the disk has kept."""
    root = make_store(scratch / "store")
    before = tree(root, details=False)
    disk, recorder = record(root, SYSTEM, trim)
    after = tree(root, details=False)
    gone = [name for name in before if name not in after]
    allowed = [{name: entry for name, entry in before.items() if name not in gone[:count]} for count in range(4)]
    chance = random.Random(1)
    for name, arguments in recorder.calls:
        disk.play(name, arguments)
        for kept, with_bytes in disk.crashes(chance):
            crashed = scratch / "crashed"
            write_contents(disk.after(kept, with_bytes=with_bytes), crashed)
            assert tree(crashed, details=False) in allowed
            with Undo(crashed):
                pass
            assert tree(crashed, details=False) in (before, after)
            shutil.rmtree(crashed)


def test_the_model_finds_missing_syncs(scratch: Path) -> None:
    """Without a single sync the same crashes leave stores that are neither old nor new."""

    class Unsynced(Recorder):
        def __getattr__(self, name: str) -> Any:
            return (lambda descriptor: None) if name == "sync" else super().__getattr__(name)

    root = make_store(scratch / "store")
    before = tree(root, details=False)
    disk, recorder = Disk(root), Unsynced(SYSTEM)
    JOBS["repair"].run(root, cast(System, recorder))
    after = tree(root, details=False)
    with pytest.raises((AssertionError, RmqtoolError)):
        assert_safe_at_every_call(scratch, disk, recorder, "repair", [before, after], SYSTEM, may_lack=False)
