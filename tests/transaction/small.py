"""A small store, and small transactions on it that use every kind of step."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rmqtool.transaction.system import System
from rmqtool.transaction.transaction import Transaction
from rmqtool.transaction.undo import Undo

FILES = {
    "commitlog/00000000000000000000": b"log 0",
    "commitlog/00000000000000001024": b"log 1",
    "commitlog/00000000000000002048": b"log 2",
    "consumequeue/A/0/00000000000000000000": b"A 0 old",
    "consumequeue/A/0/00000000000000000020": b"A 0 old, too long",
    "consumequeue/A/1/00000000000000000000": b"A 1 stays",
    "consumequeue/B/0/00000000000000000000": b"B 0 goes",
    "consumequeue/D/0/00000000000000000000": b"D 0 stays",
    "index/20240101000000000": b"index",
    "config/topics.json": b"{}",
    "checkpoint": b"checkpoint",
    "lock": b"lock",
}
ROOT = Path(__file__).parents[2]
MTIME_NS = 1_700_000_000_000_000_000
NEW_MTIME_NS = 1_710_000_000_123_000_000
OURS = (".rmqtool", "lock")  # what does not count when stores are compared

Tree = dict[str, tuple[object, ...]]


def make_store(root: Path) -> Path:
    """Write the store below `root`."""
    for number, (name, data) in enumerate(FILES.items()):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, ns=(MTIME_NS, MTIME_NS + number))
    return root


def tree(root: Path, *, details: bool = True) -> Tree:
    """Every entry of the store: content, and with `details` mode, owner and time; of ours nothing."""
    return dict(_entries(root, "", details=details))


def _entries(directory: Path, above: str, *, details: bool) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Those of a directory and below; without a Path for each: tests ask for thousands of trees."""
    for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
        if not above and entry.name in OURS:
            continue
        name, status = above + entry.name, entry.stat(follow_symlinks=False)
        content = None
        if stat.S_ISREG(status.st_mode):
            with open(entry.path, "rb") as file:
                content = file.read()
        more = (status.st_mode, status.st_uid, status.st_gid, None if content is None else status.st_mtime_ns)
        yield name, (content, *more) if details else (content,)
        if stat.S_ISDIR(status.st_mode):
            yield from _entries(Path(entry.path), f"{name}/", details=details)


def seen_by_others(root: Path) -> str:
    """The holder of the store's lock, as another process sees it."""
    ask = "import sys, pathlib, rmqtool.store.lock as lock; print(lock.lock_holder(pathlib.Path(sys.argv[1])))"
    command = [sys.executable, "-c", ask, str(root)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def repair(root: Path, system: System) -> None:
    """Replace, create and remove queues; replace single files."""
    with Transaction(root, "test", system) as transaction:
        put(transaction, "index/20240101000000000", b"new index")
        put(transaction, "consumequeue/A/0/00000000000000000000", b"A 0 new", at="consumequeue/A/0")
        put(transaction, "consumequeue/C/7/00000000000000000000", b"C 7 new", at="consumequeue/C/7")
        transaction.remove("consumequeue/B/0")
        put(transaction, "checkpoint", b"new checkpoint")
        transaction.commit()


def repair_one(root: Path, system: System) -> None:
    """Replace one queue, and nothing else."""
    with Transaction(root, "test", system) as transaction:
        put(transaction, "consumequeue/A/0/00000000000000000000", b"A 0 new", at="consumequeue/A/0")
        transaction.commit()


def trim(root: Path, system: System) -> None:
    """Delete for good."""
    with Transaction(root, "test", system) as transaction:
        transaction.delete("commitlog/00000000000000000000")
        transaction.delete("commitlog/00000000000000001024")
        transaction.delete("consumequeue/A/0/00000000000000000000")
        transaction.commit()


def part(found: Tree, path: str) -> Tree:
    """What a tree holds at and below `path`."""
    return {name: entry for name, entry in found.items() if f"{name}/".startswith(f"{path}/")}


def undo(root: Path, system: System) -> None:
    """Take the last repair back."""
    with Undo(root, system) as session:
        session.put_back()


def put(transaction: Transaction, name: str, data: bytes, at: str | None = None) -> None:
    """Stage one file and put it, or the directory `at` that holds it."""
    file = transaction.file(name, size=len(data), mtime_ns=NEW_MTIME_NS)
    file.write(data, 0)
    transaction.put(at or name)


@dataclass(frozen=True)
class Job:
    """A transaction, and the paths that change in one step: each is old or new at any moment."""

    run: Callable[[Path, System], None]
    steps: tuple[str, ...]


def rename(root: Path, system: System) -> None:
    """Let two log files change names, and give a third one a new name."""
    first, second, third, new = (f"commitlog/{start:020d}" for start in (0, 1024, 2048, 3072))
    with Transaction(root, "test", system) as transaction:
        for name, source in ((first, second), (second, first), (new, third)):
            transaction.link(name, source)
            transaction.put(name)
        transaction.remove(third)
        transaction.commit()


JOBS = {
    "repair": Job(repair, ("index/20240101000000000", "consumequeue", "checkpoint")),
    "repair-one": Job(repair_one, ("consumequeue/A/0",)),
    "rename": Job(rename, tuple(f"commitlog/{start:020d}" for start in (0, 1024, 2048, 3072))),
}


class NoExchange(System):
    """A file system that has no exchange."""

    def exchange(self, one: str, other: str) -> None:
        """Answer as NFS does."""
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), one)


class NoLinks(System):
    """A file system without second names."""

    def link(self, source: str, target: str) -> None:
        """Answer as FAT does."""
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), source)


class Plain(NoLinks, NoExchange):
    """A file system that has neither."""


SYSTEMS: dict[str, type[System]] = {
    "all": System,
    "no-exchange": NoExchange,
    "no-links": NoLinks,
    "plain": Plain,
}
