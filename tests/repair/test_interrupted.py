"""Commands after a repair or an undo that was cut, and what the one that is cut says itself."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import click
import pytest

from rmqtool import cli
from rmqtool.base.errors import Exit
from rmqtool.cli import run
from rmqtool.commands.ending import handle_signals
from rmqtool.transaction.home import interrupted
from rmqtool.transaction.system import SYSTEM, System
from rmqtool.transaction.transaction import Committed, Transaction
from rmqtool.transaction.undo import kept_transactions
from rmqtool.verify.verification import Verification
from tests.commands.running import rmqtool
from tests.rebuild.faults import memory
from tests.repair.whole import TRANSACTIONS, Whole, options, repair, through, undo, verified
from tests.transaction.faults import Faulty
from tests.transaction.small import tree
from tests.unchanged import unchanged

pytestmark = pytest.mark.slow

STATUSES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
STAGED, MOVED = "set_size", "exchange"
"""Calls of a repair that was building its third transaction, or committing it."""


@pytest.fixture(scope="module")
def whole() -> Iterator[Whole]:
    with memory() as scratch:
        yield Whole(scratch)


def cut(whole: Whole, job: str, name: str) -> Path:
    """A store on which a job was killed before its last call of this name in the third of four transactions."""
    calls = whole.calls[job]
    half = len(calls) * 3 // 4 if job == "repair" else len(calls) // 2
    at = half - 1 - calls[:half][::-1].index(name)
    return whole.run(job, "kill-before", at)


def test_undo_takes_back_the_transactions_before_an_interrupted_one(whole: Whole) -> None:
    """As its question says; what the interrupted one was building had changed nothing."""
    root = cut(whole, "repair", STAGED)
    assert interrupted(root) == "staging"
    with unchanged(root):
        planned = rmqtool("undo", root, "--dry-run", "--json").document["result"]
    done = undo(root).document["result"]
    assert [each["command"] for each in done["transactions"]] == ["repair, continued", "repair"]
    assert done["transactions"] == planned["transactions"]
    assert tree(root) == whole.before


def test_an_undo_that_was_killed_goes_on(whole: Whole) -> None:
    """Not only to the end of the transaction that it was taking back."""
    root = cut(whole, "undo", "rename")
    assert kept_transactions(root)[-1].state == "undoing"
    found = undo(root)
    assert [each["command"] for each in found.document["result"]["recovered"]] == ["undo"]
    assert tree(root) == whole.before
    assert not (root / ".rmqtool").exists()


def test_what_a_killed_undo_was_removing_goes(whole: Whole) -> None:
    root = whole.copy(whole.template, "store")
    (root / ".rmqtool" / "trash").mkdir(parents=True)
    with unchanged(root):
        assert rmqtool("undo", root, "--dry-run").out.startswith("nothing to undo")
    assert rmqtool("undo", root, "--discard", "--yes").out.startswith("nothing to undo")
    assert not (root / ".rmqtool").exists()
    assert tree(root) == whole.before


def test_names_that_come_back_in_what_is_kept(whole: Whole) -> None:
    """Files of queues that stay were taken out of old/, but the disk has lost that with the power."""
    root = whole.copy(whole.done, "store")
    name = "consumequeue/orders/1/00000000000000000000"
    (old,) = (root / ".rmqtool").glob("*/old/consumequeue")
    back = old.parent / name
    assert not back.exists()
    os.link(root / name, back)
    assert undo(root).status == Exit.OK
    assert tree(root) == whole.before


@pytest.mark.parametrize(("job", "name", "text"), [
    ("repair", STAGED, "Repair the store"),
    ("repair", MOVED, "Complete the interrupted run of rmqtool"),
    ("undo", MOVED, "Complete the interrupted run of rmqtool"),
])  # fmt: skip
def test_other_commands_behind_it(whole: Whole, job: str, name: str, text: str) -> None:
    """Readers say so and change nothing; a rebuild ends it first, and all can be taken back."""
    root = cut(whole, job, name)
    assert verified(root)["result"]["plan"]["steps"][0]["text"].startswith(text)
    with unchanged(root):
        for command in ("inspect", "clean", "verify"):
            more = ("--dry-run",) if command == "clean" else ()
            assert "a run of rmqtool that writes was interrupted" in rmqtool(command, root, *more).out
        shown = rmqtool("repair", root, "--dry-run", *options(root))
        assert "nothing is written yet; next: rmqtool repair" in shown.err
    copy = whole.copy(root, "on")
    with through(SYSTEM):
        rebuilt = rmqtool("rebuild-cq", copy, "--yes", "--json", *options(copy)).document
    assert len(rebuilt["result"]["recovered"]) == 1
    assert interrupted(copy) is None
    for _ in range(TRANSACTIONS):
        undo(copy)
    assert tree(copy) == whole.before
    assert rmqtool("undo", root, "--discard", "--yes").status == Exit.OK
    assert not (root / ".rmqtool" / "staging").exists()
    assert kept_transactions(root) == []
    assert repair(root).status in (Exit.OK, Exit.FINDINGS)
    assert tree(root, details=False) == whole.after


def test_only_the_interrupted_run_is_left(whole: Whole) -> None:
    """A repair ends it, which has nothing else to do; it had changed nothing yet, so that a broker may start first."""
    root = whole.copy(whole.done, "store")
    rmqtool("undo", root, "--discard", "--yes")
    rmqtool("repair", root, "--acknowledge", "--yes")
    (root / ".rmqtool" / "staging").mkdir(parents=True)
    document = verified(root)
    (step,) = document["result"]["plan"]["steps"]
    assert (document["result"]["verdict"], document["result"]["plan"]["start_after"]) == ("dirty", None)
    assert step["command"].split()[:2] == ["rmqtool", "repair"]
    done = repair(root).document["result"]
    assert (done["state"], done["verdict"], len(done["recovered"])) == ("nothing", "clean", 1)
    assert not (root / ".rmqtool").exists()


@pytest.fixture
def signals() -> Iterator[None]:
    """Signals end the program as they do outside of tests."""
    before = {number: signal.getsignal(number) for number in STATUSES}
    hook = sys.unraisablehook
    handle_signals()
    yield
    sys.unraisablehook = hook
    for number, handler in before.items():
        signal.signal(number, handler)


class Signalled(Faulty):
    """A system during whose call number `at` a signal comes."""

    def __init__(self, number: signal.Signals, at: int) -> None:
        super().__init__(SYSTEM, "kill-before", at)
        self._number = number

    def _go_wrong(self, name: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        signal.raise_signal(self._number)
        return self._do(name, call, *arguments, **options)


def ended(job: str, root: Path, system: System = SYSTEM) -> tuple[int | str | None, str]:
    """Exit status and standard error of a job that a signal may end."""
    out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()
    with through(system), redirect_stdout(out), redirect_stderr(err):
        try:
            status: int | str | None = run([job, str(root), *([] if job == "undo" else options(root)), "--yes"])
        except SystemExit as stop:
            status = stop.code
    return status, err.getvalue()


@pytest.mark.usefixtures("signals")
@pytest.mark.one_in(2)
@pytest.mark.parametrize(("job", "number", "share"), [
    ("repair", signal.SIGINT, 0.6), ("repair", signal.SIGTERM, 0.1), ("repair", signal.SIGHUP, 0.7),
    ("undo", signal.SIGINT, 0.6), ("undo", signal.SIGTERM, 0.7), ("undo", signal.SIGHUP, 0.1),
])  # fmt: skip
def test_a_signal_during_a_call(whole: Whole, job: str, number: signal.Signals, share: float) -> None:
    """In the first transaction and in the third: the exit status is the signal's, and the last line is true."""
    root = whole.copy(whole.start_of(job), "store")
    before = len(kept_transactions(root))
    system = cast(System, Signalled(number, int(len(whole.calls[job]) * share)))
    status, err = ended(job, root, system)
    assert status == STATUSES[number]
    assert interrupted(root) is None
    changed = len(kept_transactions(root)) != before
    line = err.splitlines()[-1]
    if not changed:
        assert line == "interrupted: the store is as it was"
    elif job == "repair":
        assert "is written (undo takes it back); to continue: rmqtool repair " in line
    else:
        assert line.endswith(f"is put back; what is left: rmqtool undo {root} --dry-run")
    whole.check(root)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("verification", range(TRANSACTIONS + 1))
def test_a_signal_during_a_verification(whole: Whole, monkeypatch: pytest.MonkeyPatch, verification: int) -> None:
    """After each transaction, too, and when it is only the closing verification that is cut."""
    root, left = whole.copy(whole.template, "store"), iter(range(verification + 1))
    verify = Verification.run

    def cut_short(self: Verification, *arguments: Any) -> None:
        if next(left) == verification:
            raise KeyboardInterrupt
        verify(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Verification, "run", cut_short)
        status, err = ended("repair", root)
    assert status == Exit.INTERRUPTED
    assert len(kept_transactions(root)) == verification
    assert (
        "is written (undo takes it back); to continue: rmqtool repair " if verification else "the store is as it was"
    ) in err.splitlines()[-1]
    whole.check(root)


@pytest.mark.parametrize("answer", ["no", "Ctrl-C", "SIGTERM"])
@pytest.mark.parametrize("question", [0, 2])
def test_the_end_at_a_question(whole: Whole, monkeypatch: pytest.MonkeyPatch, question: int, answer: str) -> None:
    """At the first nothing was changed; at the third two transactions are done, which are named."""
    root, left = whole.copy(whole.template, "store"), iter(range(question + 1))

    def asked(*arguments: Any, **options: Any) -> bool:
        if next(left) < question:
            return True
        if answer == "no":
            return False
        raise click.Abort if answer == "Ctrl-C" else SystemExit(143)

    monkeypatch.setattr(click, "confirm", asked)
    monkeypatch.setattr("rmqtool.commands.writing.require_answer", lambda *, yes: None)
    monkeypatch.setattr("tests.repair.test_interrupted.run", lambda words: cli.run([w for w in words if w != "--yes"]))
    status, err = ended("repair", root)
    assert status == (143 if answer == "SIGTERM" else 130)
    assert len(kept_transactions(root)) == question
    if question:
        assert "is written (undo takes it back); to continue: rmqtool repair " in err.splitlines()[-1]
    else:
        assert err.splitlines()[-1] in ("nothing was changed", "interrupted: the store is as it was")
    assert tree(root) == whole.before or question
    assert undo(root).status == Exit.OK
    assert tree(root) == whole.before


class Full(Faulty):
    """A disk that is full from a call on, and for good."""

    def __init__(self, at: int) -> None:
        super().__init__(SYSTEM, "full-on", at)


@pytest.mark.parametrize("transaction", [0, 2, 3])
def test_a_disk_that_is_full_half_way(whole: Whole, transaction: int) -> None:
    """In each transaction: what is done stays and is named, the rest is as it was, and there is room again later."""
    counting, ends = Faulty(SYSTEM), []
    commit = Transaction.commit

    def counted(self: Transaction) -> Committed:
        ends.append(len(counting.names))
        return commit(self)

    with patch.object(Transaction, "commit", counted):
        repair(whole.copy(whole.template, "store"), cast(System, counting))
    root = whole.copy(whole.template, "store")
    status, err = ended("repair", root, cast(System, Full(ends[transaction])))
    assert status == Exit.FAILED
    assert "no space left on device" in err
    assert "free space on the file system of the store and run the command again" in err
    assert len(kept_transactions(root)) == transaction
    assert ("is written (undo takes it back); to continue: rmqtool repair " in err) == bool(transaction)
    whole.check(root)
