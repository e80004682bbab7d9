"""A small rebuild, and its undo, whose system calls fail; see tests/faults/writing.py.

However a run is killed or fails, the store is as before or the next run ends what was begun.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import cast

from rmqtool.rebuild.apply import apply_plan
from rmqtool.rebuild.options import Part, RebuildOptions
from rmqtool.rebuild.plan import make_plan
from rmqtool.rebuild.source import open_source
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import Version
from rmqtool.store.store import open_store
from rmqtool.transaction.home import interrupted
from rmqtool.transaction.system import SYSTEM, System
from rmqtool.transaction.transaction import Transaction
from tests.building import LogBuilder
from tests.copies import copied
from tests.transaction.disk import Contents, Disk, Recorder, write_contents
from tests.transaction.faults import FAULTS, Fault, assert_before_or_after, points, recover, run_with
from tests.transaction.small import SYSTEMS, Tree, tree, undo

_CONF = BrokerConf({"mappedFileSizeConsumeQueue": "60", "maxHashSlotNum": "3", "maxIndexNum": "8"})
_MEMORY = Path("/dev/shm")
_PARTS: frozenset[Part] = frozenset(["queues", "index"])

JOBS = ("rebuild", "undo of a rebuild")
"""What is tried, by its name."""


def make_store(root: Path) -> Path:
    """Three queues of some files: one to create, one with a wrong unit and one that is sound; no index; a crash."""
    fields = (
        {"queue_id": number % 3, "queue_offset": number // 3, "properties": {"KEYS": f"k{number}"}}
        for number in range(15)
    )
    LogBuilder().add_all(fields).write(root)
    rebuild(root, SYSTEM)
    shutil.rmtree(root / "consumequeue" / "orders" / "0")
    shutil.rmtree(root / "index")
    shutil.rmtree(root / ".rmqtool")
    with (root / "consumequeue" / "orders" / "1" / f"{60:020d}").open("r+b") as file:
        file.write(b"\x01")
    (root / "abort").touch()
    return root


def rebuild(root: Path, system: System) -> None:
    """Rebuild queues and index in one transaction."""
    store = open_store(root, _CONF)
    with Transaction(store, "rebuild-cq", system) as transaction:
        plan = make_plan(open_source(store, RebuildOptions(_PARTS, version=Version(5, 3, 3))))
        apply_plan(plan, transaction)


@contextmanager
def memory() -> Iterator[Path]:
    """A directory in memory, where a sync takes no time."""
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as directory:
        yield Path(directory)


@dataclass(frozen=True)
class Trial:
    """A job on copies of one store; the store before and after the rebuild, and the calls of the job."""

    name: str
    template: Path
    job: Callable[[Path, System], None]
    before: Tree
    after: Tree
    calls: list[str]
    system: System

    def names(self) -> list[str]:
        """The names of its calls."""
        return self.calls

    def places(self, fault: str) -> list[int]:
        """The calls at which a fault makes a difference; none for a fault that is not for them."""
        return points(self.calls, fault) if fault in FAULTS else []

    def trial(self, fault: str, at: int) -> str:
        """Let a fault come at a call: the store is as before, or done."""
        root = self._copy()
        _, outcome = run_with(self.system, cast(Fault, fault), at, partial(self.job, root))
        recover(root, self.system)
        assert_before_or_after(root, self.before, self.after, self.system)
        return outcome

    def without_power(self, chance: random.Random, every: int) -> Iterator[Callable[[], object]]:
        """What a power failure may leave of it: the store is as before, or done."""
        root = self._copy()
        disk, recorder = Disk(root), Recorder(self.system)
        self.job(root, cast(System, recorder))
        states = [tree(each, details=False) for each in (self.template, root)]
        for contents in disk.states(recorder.calls, chance, every):
            yield partial(self._check, contents, states)

    def _check(self, contents: Contents, states: Sequence[Tree]) -> str:
        root = self.template.with_name("store")
        shutil.rmtree(root, ignore_errors=True)
        write_contents(contents, root)
        recover(root, self.system)
        assert interrupted(root) is None
        found = tree(root, details=False)
        assert found in states
        return "before" if found == states[0] else "done"

    def _copy(self) -> Path:
        root = self.template.with_name("store")
        shutil.rmtree(root, ignore_errors=True)
        return copied(self.template, root)


@cache
def trials(scratch: Path) -> dict[str, Trial]:
    """A rebuild, and the undo of one."""
    system = SYSTEMS["all"]()
    template = make_store(scratch / "template")
    done = copied(template, scratch / "done")
    before = tree(template)
    calls, outcome = run_with(system, None, -1, partial(rebuild, done))
    after = tree(done)
    assert outcome == "done"
    assert after != before
    undone = copied(done, scratch / "undone")
    calls_of_undo, outcome = run_with(system, None, -1, partial(undo, undone))
    assert outcome == "done"
    rebuilding, undoing = JOBS
    return {
        rebuilding: Trial(rebuilding, template, rebuild, before, after, calls.names, system),
        undoing: Trial(undoing, done, undo, before, after, calls_of_undo.names, system),
    }


def writer(name: str, scratch: Path) -> Trial:
    """One of the jobs, in a directory that all have in common."""
    return trials(scratch)[name]
