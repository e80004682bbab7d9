"""Calls of a transaction and of an undo are cut or fail: the store is as before, or the next run ends it.

`make everything` does so with every call, `make test` with every fourth one; other ones with other faults.
"""

from __future__ import annotations

import shutil
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from rmqtool.transaction.system import SYSTEM, System
from tests.sampling import one_in
from tests.transaction.faults import (
    FAULTS,
    Fault,
    assert_before_or_after,
    points,
    recover,
    run_with,
)
from tests.transaction.small import JOBS, SYSTEMS, Tree, make_store, part, tree, trim, undo

pytestmark = pytest.mark.slow

OFTEN = ("kill-before", "fail-once")
TWIN = "kill-after"  # one call is all but the same as "kill-before" the next


def _is_rare(fault: Fault, job: str, kind: str) -> bool:
    """Every fault on the best file system; a kill and a failure of a repair of one directory on the others."""
    return fault == TWIN if kind == "all" else job != "repair-one" or fault not in OFTEN


CASES = [
    pytest.param(*case, marks=pytest.mark.rare if _is_rare(*case) else ()) for case in product(FAULTS, JOBS, SYSTEMS)
]


def assert_every_step_is_old_or_new(root: Path, job: str, states: list[Tree], *, may_lack: bool) -> None:
    """A broker could start now; where directories can't be exchanged, one may be missing for a moment."""
    now = tree(root)
    missing = 0
    for step in JOBS[job].steps:
        found = part(now, step)
        missing += not found
        assert (may_lack and not found) or found in [part(state, step) for state in states], step
    assert missing <= 1


@pytest.mark.one_in(9)
@pytest.mark.parametrize(("fault", "job", "kind"), CASES)
def test_fault_at_the_calls_of_a_transaction(scratch: Path, fault: Fault, job: str, kind: str) -> None:
    system = SYSTEMS[kind]()
    whole = kind in ("all", "no-exchange") or job == "repair-one"
    before, after, names = reference(scratch, job, system)
    for at in one_in(4, points(names, fault), f"{fault} {job} {kind}"):
        root = make_store(scratch / "store")
        _, outcome = run_with(system, fault, at, partial(JOBS[job].run, root))
        if whole:
            assert_every_step_is_old_or_new(root, job, [before, after], may_lack=kind in ("no-exchange", "plain"))
        if outcome == "failed" and fault.endswith("once"):
            assert tree(root) in (before, after), (at, names[at])
        recover(root, system)
        assert_before_or_after(root, before, after, system)
        shutil.rmtree(root)


def reference(scratch: Path, job: str, system: System) -> tuple[Tree, Tree, list[str]]:
    """The store before and after, and the calls on the way."""
    root = make_store(scratch / "reference")
    before = tree(root)
    faulty, outcome = run_with(system, None, -1, partial(JOBS[job].run, root))
    assert outcome == "done"
    after = tree(root)
    assert after != before
    shutil.rmtree(root)
    return before, after, faulty.names


@pytest.mark.one_in(9)
@pytest.mark.parametrize(("fault", "job", "kind"), CASES)
def test_fault_at_the_calls_of_an_undo(scratch: Path, fault: Fault, job: str, kind: str) -> None:
    system = SYSTEMS[kind]()
    whole = kind in ("all", "no-exchange") or job == "repair-one"
    before, after, _ = reference(scratch, job, system)
    done = make_store(scratch / "done")
    JOBS[job].run(done, SYSTEM if kind == "all" else system)
    copy(done, scratch / "counted")
    names = run_with(system, None, -1, partial(undo, scratch / "counted"))[0].names
    for at in one_in(4, points(names, fault), f"{fault} {job} {kind}"):
        root = copy(done, scratch / "store")
        run_with(system, fault, at, partial(undo, root))
        if whole:
            assert_every_step_is_old_or_new(root, job, [before, after], may_lack=kind in ("no-exchange", "plain"))
        recover(root, system)
        assert_before_or_after(root, before, after, system)
        shutil.rmtree(root)


def copy(source: Path, target: Path) -> Path:
    shutil.copytree(source, target, symlinks=True)
    return target


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_at_the_calls_of_a_deletion(scratch: Path, fault: Fault) -> None:
    """Files go in order; a killed run is finished by the next, a failed one leaves the rest."""
    root = make_store(scratch / "reference")
    before = tree(root)
    names = run_with(SYSTEM, None, -1, partial(trim, root))[0].names
    after = tree(root)
    gone = [name for name in before if name not in after]
    assert len(gone) == 3
    allowed = [{name: entry for name, entry in before.items() if name not in gone[:count]} for count in range(4)]
    for at in one_in(2, points(names, fault), f"{fault} deletion"):
        root = make_store(scratch / "store")
        _, outcome = run_with(SYSTEM, fault, at, partial(trim, root))
        assert tree(root) in allowed
        begun = tree(root) != before
        recover(root, SYSTEM)
        assert tree(root) in allowed
        if outcome != "failed":
            assert tree(root) in (before, after)
            assert tree(root) == after or not begun
        assert not (root / ".rmqtool").exists()
        shutil.rmtree(root)
