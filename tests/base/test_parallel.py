"""The pool of processes: parts are done once, errors and signals end it, and no process stays behind."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.child_process import ChildProcess
from rmqtool.base.errors import RmqtoolError
from rmqtool.base.parallel import READY, Job, WorkerPool, receive
from tests.commands.running import ROOT
from tests.decoding import assert_gone, pids_in

LONG = 60.0


@dataclass
class Squares(Job[int]):
    """The result of part n is n squared. Others may be slow or do one part wrong; we wait until `awaited` is there."""

    ours: int
    wrong: int | None = None
    began: Path | None = None
    awaited: Path | None = None
    slow: float = 0
    part: int | None = None

    def do(self, part: int) -> Iterator[tuple[int, int | None]]:
        self.part = part
        if os.getpid() != self.ours:
            if part == self.wrong:
                raise ValueError(f"part {part} fails")
            if self.began:
                self.began.touch()
            yield 1, None
            until = time.monotonic() + self.slow
            while time.monotonic() < until:  # Python would not hear a signal that comes right before a long sleep
                time.sleep(0.002)
        else:
            yield 1, None
            while self.awaited and not self.awaited.exists():
                time.sleep(0.001)
                yield 0, None
        self.part = None
        yield 2, part * part

    def unfinished(self) -> tuple[int, int] | None:
        return None if self.part is None else (self.part, -1)


def ready(pool: WorkerPool[int]) -> WorkerPool[int]:
    assert all(worker.steps.poll(LONG) for worker in pool.workers)
    return pool


@pytest.mark.slow
@pytest.mark.parametrize(
    ("in_order", "takes_part", "may_copy"),
    [  # of any two each combination, of all three the others as well in `make everything`
        pytest.param(*case, marks=() if sum(case) % 2 else pytest.mark.rare)
        for case in product((True, False), repeat=3)
    ],
)
def test_every_part_is_done_once(tmp_path: Path, *, may_copy: bool, takes_part: bool, in_order: bool) -> None:
    before = set(multiprocessing.active_children())
    began, order = tmp_path / "began", [3, *range(3), *range(4, 40)]
    make = partial(Squares, os.getpid(), began=began, awaited=began)
    with ready(WorkerPool[int](2, may_copy=may_copy)) as pool:
        pool.begin(make, order, make() if takes_part else None)
        steps = list(pool.steps_in_order(10) if in_order else pool.steps())
    results = [(step.part, step.result) for step in steps if step.result is not None]
    assert (results if in_order else sorted(results)) == [(n, n * n) for n in (order if in_order else sorted(order))]
    assert sum(step.size for step in steps) == 3 * len(order)
    assert sum(step.ended for step in steps) == len(order)
    assert {step.worker for step in steps} - {0}, "the others did none"
    assert takes_part or 0 not in {step.worker for step in steps}
    assert set(multiprocessing.active_children()) == before


@pytest.mark.slow
@pytest.mark.parametrize("in_order", [True, False])
def test_what_a_process_raises_is_raised_here(*, in_order: bool) -> None:
    with ready(WorkerPool[int](1)) as pool:
        pool.begin(partial(Squares, os.getpid(), wrong=5), range(10), None)
        with pytest.raises(ValueError, match="part 5 fails"):
            list(pool.steps_in_order(10) if in_order else pool.steps())


@pytest.mark.slow
@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_is_ended_from_outside(number: signal.Signals, *, in_order: bool) -> None:
    with ready(WorkerPool[int](1)) as pool:
        pool.begin(partial(Squares, os.getpid(), slow=LONG), range(2), None)
        assert pool.workers[0].process.pid is not None
        pool.workers[0].receive(partial(Squares, os.getpid(), slow=LONG))
        os.kill(pool.workers[0].process.pid, number)
        with pytest.raises(RmqtoolError, match="a worker process died"):
            list(pool.steps_in_order(10) if in_order else pool.steps())


def stopped_in_a_callback(ours: int) -> Squares:
    """Make a job; what the handler of a signal raises meanwhile is dropped, as in a callback of the import system."""

    def callback(_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)  # the handler has been called when this ends

    held = {1}
    there = weakref.ref(held, callback)
    del held
    assert there() is None
    return Squares(ours, slow=LONG)


@pytest.mark.slow
def test_a_stop_without_effect_is_heeded() -> None:
    """Once the job is made."""
    begin = time.monotonic()
    with ready(WorkerPool[int](1)) as pool:
        pool.begin(partial(stopped_in_a_callback, os.getpid()), range(2), None)
        with pytest.raises(RmqtoolError, match="a worker process died"):
            list(pool.steps())
    assert time.monotonic() - begin < LONG


@pytest.mark.slow
def test_what_is_known_when_it_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What each process knows of the part that it has begun is told, once; the others are gone then."""
    monkeypatch.setattr("rmqtool.base.parallel._STOP_SECONDS", LONG)
    before = set(multiprocessing.active_children())
    began = tmp_path / "began"
    make = partial(Squares, os.getpid(), slow=LONG, began=began, awaited=tmp_path / "never")
    with ready(WorkerPool[int](1)) as pool:
        pool.begin(make, range(9), make())
        steps = pool.steps()
        next(steps)  # this process has begun a part, too
        while not began.exists():
            next(steps)
        found = [(step.part, step.result) for step in pool.stop() if step.result is not None]
    assert sorted(found) == [(0, -1), (1, -1)]
    assert set(multiprocessing.active_children()) == before


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_within_a_message(monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    """While another thread shows progress: the message is read to its end, and so are those after it."""
    before = signal.signal(number, signal.default_int_handler)
    wanted = threading.Event()
    with ready(WorkerPool[int](1)) as pool:

        def send() -> None:
            wanted.wait(LONG)
            os.kill(os.getpid(), number)

        sender = threading.Thread(target=send)
        sender.start()
        pool.begin(partial(Squares, os.getpid()), range(40), None)
        steps = pool.steps()
        found = [next(steps)]
        read = os.readv

        def interrupted_read(pipe: int, buffers: Sequence[Any]) -> int:
            count = read(pipe, buffers)
            wanted.set()
            sender.join(LONG)
            return count

        monkeypatch.setattr(os, "readv", interrupted_read)
        with pytest.raises(KeyboardInterrupt):
            found += steps
        found += pool.stop()
    signal.signal(number, before)
    results = [step.result for step in found if step.result not in (None, -1)]
    assert len(found) > 1
    assert results == [n * n for n in range(len(results))]


@dataclass
class Deaf(Job[int]):
    """Starts a process that starts another, and does not hear that it is to end."""

    pids: Path

    def do(self, part: int) -> Iterator[tuple[int, int | None]]:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = ChildProcess(["sh", "-c", f"sleep 60 & echo $$ $! > {self.pids}; wait"])
        child.exchange(time.monotonic() + LONG)
        yield 1, part


@pytest.mark.slow
def test_what_a_process_has_started_that_does_not_end(tmp_path: Path) -> None:
    """It is ended with that process, once this has had its time."""
    pids = tmp_path / "pids"

    def interrupted() -> None:
        with ready(WorkerPool[int](1, patience=0.2)) as pool:
            pool.begin(partial(Deaf, pids), range(1), None)
            pool.workers[0].receive(partial(Deaf, pids))
            while not (pids.exists() and pids.read_text()):
                time.sleep(0.01)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(pids_in(pids)) == 2
    assert_gone(pids_in(pids))


def test_fewer_processes_where_the_system_gives_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        raise BlockingIOError(errno.EAGAIN, "no more")

    monkeypatch.setattr(os, "fork", fork)
    monkeypatch.setattr("rmqtool.base.parallel._is_copy_safe", lambda: True)  # whatever other tests have loaded
    make = partial(Squares, os.getpid())
    with WorkerPool[int](3) as pool:
        assert not pool.workers
        pool.begin(make, range(3), make())
        assert [step.result for step in pool.steps() if step.ended is False and step.result is not None] == [0, 1, 4]


@pytest.mark.slow
def test_what_a_process_says_first() -> None:
    """It is ready, and ends when there is nobody to tell what to do."""
    with WorkerPool[int](1) as pool:
        [worker] = pool.workers
        assert worker.steps.poll(LONG)
        assert receive(worker.steps.fileno()) == READY
        worker.jobs.close()
        worker.process.join(LONG)
        assert worker.process.exitcode == 0


ORPHANS = """
import os, sys
from functools import partial
from rmqtool.base.parallel import WorkerPool
from tests.base.test_parallel import Squares
if __name__ == "__main__":
    with WorkerPool(2, may_copy=sys.argv[1] == "True") as pool:
        print(*(worker.process.pid for worker in pool.workers), flush=True)
        pool.begin(partial(Squares, os.getpid(), slow=600), range(9), None)
        list(pool.steps())
"""


@pytest.mark.slow
@pytest.mark.parametrize("may_copy", [True, False])
def test_nobody_outlives_its_parent(tmp_path: Path, *, may_copy: bool) -> None:
    """A parent that is killed can't end the others, which may be busy with a part for minutes."""
    script = tmp_path / "orphans.py"
    script.write_text(ORPHANS)
    environment: dict[str, Any] = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script), str(may_copy)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment) as parent:
        assert parent.stdout is not None
        workers = [int(number) for number in parent.stdout.readline().split()]
        parent.kill()
    deadline = time.monotonic() + LONG
    while any(Path(f"/proc/{number}/stat").exists() and is_alive(number) for number in workers):
        assert time.monotonic() < deadline, "a process stays behind"
        time.sleep(0.02)
    assert len(workers) == 2


def is_alive(process: int) -> bool:
    """Whether a process runs; one that has ended stays listed until somebody asks for its status."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
