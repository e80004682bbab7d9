"""A store with damage in each of its parts, and repairs and undos of it that are cut: what must be true after that.

The repair takes four transactions: a stray log file; topics.json; damage in the log with queues and index; and the
timer's files, the offsets of the delay levels and the checkpoint.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

from rmqtool.base.errors import Exit
from rmqtool.formats.checkpoint import CHECKPOINT_FILE_SIZE
from rmqtool.rules.system_topics import SCHEDULE_TOPIC
from rmqtool.store.checkpoint import checkpoint_file
from rmqtool.store.lock import HELD_HERE
from rmqtool.transaction.home import STAGING, interrupted
from rmqtool.transaction.system import SYSTEM, System
from rmqtool.transaction.transaction import Transaction
from rmqtool.transaction.undo import Undo, kept_transactions
from tests.building import START_TIME, LogBuilder
from tests.commands.running import Result, rmqtool
from tests.copies import copied
from tests.rebuild.faults import rebuild
from tests.rebuild.log_damages import overwrite
from tests.transaction.disk import Contents, Disk, Recorder, write_contents
from tests.transaction.faults import Fault, Faulty, KilledError
from tests.transaction.small import Tree, tree
from tests.unchanged import unchanged

TRANSACTIONS = 4
CONF = "mappedFileSizeConsumeQueue=60\nmaxHashSlotNum=3\nmaxIndexNum=8\nmappedFileSizeCommitLog=4096\n"
_NOW = START_TIME // 1000 + 1_000_000  # a clock that stands still, seconds


def make_damaged(root: Path) -> Path:
    """Three queues and a delay level; log, queues, index, timer, topics.json, offsets and checkpoint are damaged."""
    log = LogBuilder().add_all(
        {"queue_id": number % 3, "queue_offset": number // 3, "properties": {"KEYS": f"k{number}"}}
        for number in range(15)
    )
    log.add(topic=SCHEDULE_TOPIC, properties={"DELAY": "1", "REAL_TOPIC": "orders", "REAL_QID": "0"})
    log.write(root)
    rebuild(root, SYSTEM)
    overwrite(root / "commitlog" / f"{0:020d}")
    for directory in ("consumequeue/orders/0", "index", ".rmqtool"):
        shutil.rmtree(root / directory)
    times = dict.fromkeys(("physic_message_timestamp", "logics_message_timestamp"), START_TIME + 10**12)
    files = {
        "commitlog/notes.txt": b"notes",
        "config/topics.json": b'{"topicConfigTable":{"ord',
        "config/consumerOffset.json": b'{"offsetTable":{"orders@billing":{0:1}}}',
        "config/delayOffset.json": b'{"offsetTable":{1:900}}',
        "timerlog/00000000000000000000": b"junk" * 26,
        "timerwheel": b"x" * 100,
        "checkpoint": checkpoint_file(times)[:CHECKPOINT_FILE_SIZE],
        "abort": b"",
        "lock": b"",
    }
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    root.with_suffix(".conf").write_text(CONF)
    return root


def options(root: Path) -> list[str]:
    """Those that every command on the store needs; its copies stand beside it."""
    return ["--broker-version", "5.3.3", "--broker-conf", str(root.parent / "damaged.conf")]


@contextmanager
def through(system: System) -> Iterator[None]:
    """Let commands write through a system, by a clock that stands still; nobody maps the store."""
    with (
        patch(
            "rmqtool.transaction.transaction.Transaction",
            lambda store, command, options: Transaction(store, command, system, options),
        ),
        patch("rmqtool.transaction.undo.Undo", lambda root: Undo(root, system)),
        patch("rmqtool.transaction.session._PROC", Path("/nowhere")),
        patch("time.time_ns", lambda: _NOW * 10**9),
        patch("time.time", lambda: float(_NOW)),
    ):
        yield


def repair(root: Path, system: System = SYSTEM) -> Result:
    """`rmqtool repair`."""
    with through(system):
        return rmqtool("repair", root, "--yes", "--json", *options(root))


def undo(root: Path, system: System = SYSTEM) -> Result:
    """`rmqtool undo`."""
    with through(system):
        return rmqtool("undo", root, "--yes", "--json")


JOBS = {"repair": repair, "undo": undo}


@dataclass
class Whole:
    """The damaged store, the store repaired, and what must be true of a copy on which a job was cut.

    `codes` are those that verify reports above information before, between and after the transactions.
    """

    scratch: Path
    template: Path = field(init=False)
    done: Path = field(init=False)
    before: Tree = field(init=False)
    after: Tree = field(init=False)
    codes: set[str] = field(init=False)
    seen: set[bytes] = field(default_factory=set)
    calls: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.template = make_damaged(self.scratch / "damaged")
        self.done = self.copy(self.template, "done")
        counting = Faulty(SYSTEM)
        found = repair(self.done, cast(System, counting))
        assert found.document["result"]["verdict"] == "clean"
        assert len(kept_transactions(self.done)) == TRANSACTIONS
        self.calls["repair"] = counting.names
        self.codes = {"store.interrupted-run"}.union(*(codes_of(verified(root)) for root in self._stages()))
        self.before, self.after = tree(self.template), tree(self.done, details=False)
        counting = Faulty(SYSTEM)
        undone = self.copy(self.done, "undone")
        assert undo(undone, cast(System, counting)).status == Exit.OK
        assert tree(undone) == self.before
        self.calls["undo"] = counting.names

    def _stages(self) -> Iterator[Path]:
        """The store after all transactions, after all but the last, and so on."""
        root = self.copy(self.done, "store")
        yield root
        for _ in range(TRANSACTIONS):
            with Undo(root) as session:
                session.put_back()
            yield root

    def copy(self, source: Path, name: str) -> Path:
        """A copy of a store, in place of the one of this name."""
        target = self.scratch / name
        shutil.rmtree(target, ignore_errors=True)
        return copied(source, target)

    def start_of(self, job: str) -> Path:
        """The store on which a job begins."""
        return self.template if job == "repair" else self.done

    def run(self, job: str, fault: Fault, at: int) -> Path:
        """Let a fault come at a call of a job; the store that it leaves."""
        root = self.copy(self.start_of(job), "store")
        faulty = Faulty(SYSTEM, fault, at)
        try:
            found = JOBS[job](root, cast(System, faulty))
        except KilledError:
            pass
        else:
            assert found.status in (Exit.OK, Exit.FINDINGS, Exit.FAILED)
            assert "bug in rmqtool" not in found.err
        faulty.clean_up()
        assert not HELD_HERE
        return root

    def crashes(self, job: str, chance: random.Random, share: int = 1) -> Iterator[Contents]:
        """What a power failure may leave behind each call of a job, or one of so many; each store once."""
        root = self.copy(self.start_of(job), "store")
        disk, recorder = Disk(root), Recorder(SYSTEM)
        JOBS[job](root, cast(System, recorder))
        yield from disk.states(recorder.calls, chance, share)

    def crashed(self, contents: Contents) -> Path:
        """Such a store."""
        root = self.scratch / "store"
        shutil.rmtree(root, ignore_errors=True)
        write_contents(contents, root)
        return root

    def check(self, root: Path) -> bool:
        """Assert that a store goes on from where it was cut, both ways; False where an equal one was checked."""
        digest = _digest(root)
        if digest in self.seen:
            return False
        self.seen.add(digest)
        self._check_verify(root)
        assert_undo_takes_all_back(self.copy(root, "back"), self.before)
        on = self.copy(root, "on")
        assert_repair_ends(on, self.after)
        assert_undo_takes_all_back(on, self.before, runs=TRANSACTIONS)
        return True

    def _check_verify(self, root: Path) -> None:
        """Nothing is worse than before, unless paths are half old and half new: then the plan is to end that."""
        document = verified(root)
        if interrupted(root) in (None, STAGING):
            assert codes_of(document) <= self.codes
        else:
            (step,) = document["result"]["plan"]["steps"]
            assert step["text"].startswith("Complete the interrupted run of rmqtool")
            assert step["command"].startswith("rmqtool repair ")


def assert_repair_ends(root: Path, after: Tree) -> None:
    """The next repair makes of the store what one that was not cut makes of it, and the one after it nothing."""
    found = repair(root)
    assert found.status in (Exit.OK, Exit.FINDINGS), found.err
    assert tree(root, details=False) == after
    assert interrupted(root) is None
    assert repair(root).document["result"]["state"] == "nothing"


def assert_undo_takes_all_back(root: Path, before: Tree, runs: int = 1) -> None:
    """At most so many runs of undo bring back every byte and time; nothing of ours is left."""
    for _ in range(runs):
        assert undo(root).status == Exit.OK
        if tree(root) == before:
            break
    assert tree(root) == before
    assert not kept_transactions(root)
    assert not (root / ".rmqtool").exists()


def codes_of(document: Any) -> set[str]:
    """The codes of findings above information."""
    return {each["code"] for each in document["findings"] if each["severity"] != "info"}


def verified(root: Path) -> Any:
    """What verify says; it changes nothing."""
    with through(SYSTEM), unchanged(root):
        return rmqtool("verify", root, "--json", *options(root)).document


def _digest(root: Path) -> bytes:
    """Of all that is in a store, and of its own directory."""
    found = sorted(root.rglob("*"))
    entries = [[str(path.relative_to(root)), path.is_dir() or path.read_bytes().hex()] for path in found]
    return blake2b(json.dumps(entries).encode()).digest()
