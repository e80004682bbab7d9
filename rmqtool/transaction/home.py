"""The directory ``STORE/.rmqtool``: its transactions, and the leftovers of interrupted runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rmqtool.base.errors import UnsupportedError
from rmqtool.base.files import list_directory
from rmqtool.base.numbers import byte_size
from rmqtool.base.remote_path import RemotePath
from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding, Severity
from rmqtool.transaction.attributes import Neighbours, read_attributes, set_attributes
from rmqtool.transaction.journal import Journal, State, UnknownRunError, number_of, read_journal, read_state
from rmqtool.transaction.paths import HOME, StorePaths
from rmqtool.transaction.system import SYSTEM, System, is_directory, remove_tree, sync_path

STAGING, TRASH = "staging", "trash"
NEW, OLD, UNDO, UNDONE = "new", "old", "undo", "undone"
LOSS, LOSSES = "loss.json", "losses"
"""The record of a transaction's loss, and the directory of those whose transaction was discarded."""

_RECORD = ".json"

Outcome = Literal["finished", "rolled_back", "abandoned"]


@dataclass(frozen=True)
class Recovered:
    """The outcome of an interrupted run; `id` and `command` are None where it had not begun to write."""

    id: str | None
    command: str | None
    outcome: Outcome

    @property
    def text(self) -> str:
        """One sentence for people."""
        what = f"the interrupted {self.command} {self.id}" if self.id else "an interrupted run"
        return {
            "finished": f"{what} is finished now",
            "rolled_back": f"{what} is rolled back: the store is as before it",
            "abandoned": f"{what} cannot be finished: somebody else has written to the store meanwhile. What it had "
            f"replaced is in {HOME}/{self.id}/{OLD}; verify the store, and repair it again",
        }[self.outcome]


class Home:
    """Everything below ``.rmqtool``; made when the first transaction begins, gone with the last."""

    def __init__(self, paths: StorePaths, neighbours: Neighbours, system: System) -> None:
        self.path = paths.home
        self.paths = paths
        self._neighbours = neighbours
        self._system = system

    @property
    def staging(self) -> str:
        """Where a transaction is built that has no journal yet."""
        return os.path.join(self.path, STAGING)

    def directory(self, name: str) -> str:
        """The directory of one transaction."""
        return os.path.join(self.path, name)

    def make(self) -> None:
        """Make the directory; it belongs to the store's owner and to nobody else."""
        status = self._system.lstat(self.path)
        if status is None:
            self._system.make_directory(self.path)
            root = os.stat(self.paths.root)
            owner = read_attributes(self._system, self.paths.root, root)
            set_attributes(self._system, self.path, type(owner)(owner.uid, owner.gid, 0o700, owner.labels))
            sync_path(self._system, self.paths.root)

    def check(self) -> None:
        """Raise UnsupportedError when something else has our name."""
        if self._system.lstat(self.path) and not is_directory(self._system, self.path):
            raise UnsupportedError("not a directory: rmqtool keeps its journal there", file=self.path)

    def names_by_number(self) -> dict[int, str]:
        """The transactions by number, the oldest first."""
        return transactions(Path(self.paths.root))

    def next_number(self) -> int:
        """The number of the next transaction: above all that are here, or have left a record of a loss."""
        losses = list_directory(Path(self.path) / LOSSES) if is_directory(self._system, self.path) else []
        recorded = [number_of(entry.name.removesuffix(_RECORD)) or 0 for entry in losses]
        return max([*recorded, *self.names_by_number()], default=0) + 1

    def journal(self, name: str) -> Journal:
        """The journal of one transaction."""
        return read_journal(Path(self.directory(name)), self.paths)

    def state(self, name: str) -> State:
        """The state of one transaction."""
        return read_state(Path(self.directory(name)))

    def drop(self, name: str) -> None:
        """Forget a transaction in one step, then remove its files."""
        trash = self.directory(TRASH)
        remove_tree(self._system, trash)
        self._system.rename(self.directory(name), trash)
        sync_path(self._system, self.path)
        self.clear()

    def keep_loss(self, name: str) -> None:
        """Move a transaction's record of a loss, if it has one, to where it stays without the transaction."""
        record, losses = os.path.join(self.directory(name), LOSS), self.directory(LOSSES)
        if not self._system.lstat(record):
            return
        if not self._system.lstat(losses):
            self._system.make_directory(losses)
            sync_path(self._system, self.path)
        self._system.rename(record, os.path.join(losses, name + _RECORD))
        for directory in (losses, self.directory(name)):
            sync_path(self._system, directory)

    def forget_loss(self, name: str) -> None:
        """Remove the record of a transaction that is taken back, where a discard was interrupted that kept it."""
        record = os.path.join(self.directory(LOSSES), name + _RECORD)
        if self._system.lstat(record):
            self._system.unlink(record)
            sync_path(self._system, self.directory(LOSSES))

    def clear(self) -> None:
        """Remove files that belong to no transaction, and the whole directory when nothing else is there."""
        for name in (STAGING, TRASH):
            remove_tree(self._system, self.directory(name))
        losses = self.directory(LOSSES)
        if is_directory(self._system, losses) and not self._system.list(losses):
            self._system.remove_directory(losses)
        if is_directory(self._system, self.path):
            if self._system.list(self.path):
                sync_path(self._system, self.path)
                return
            self._system.remove_directory(self.path)
        sync_path(self._system, self.paths.root)


def transactions(root: Path) -> dict[int, str]:
    """Names of the transactions of the store at `root` by number, the oldest first; reads only."""
    numbered = {entry.name: number_of(entry.name) for entry in list_directory(root / HOME)}
    return dict(sorted((number, name) for name, number in numbered.items() if number is not None))


def interrupted(root: Path) -> str | None:
    """The name of the first run that did not end, ``staging`` for one that had no journal yet, or None; reads only."""
    for name in transactions(root).values():
        if read_state(root / HOME / name) not in ("done", "abandoned"):
            return name
    return STAGING if (root / HOME / STAGING).is_dir() else None


def has_leftovers(root: Path) -> bool:
    """Whether a run was killed while it removed what it had let go of, which is no part of a run any more; reads only.

    The next run that writes to the store removes the rest.
    """
    names = {entry.name for entry in list_directory(root / HOME)}
    return TRASH in names or ((root / HOME).is_dir() and not names)


@dataclass(frozen=True)
class UnfinishedDeletion:
    """An interrupted transaction, and the files that it would still delete."""

    id: str
    command: str
    files: int
    size: int

    @property
    def text(self) -> str:
        """What it is, for people; the beginning of a sentence."""
        files = "1 file" if self.files == 1 else f"{self.files} files"
        return f"{self.command} {self.id} still has {files} of {byte_size(self.size)} to delete for good"

    @property
    def comes_first(self) -> str:
        """What is done before anything else, for a question."""
        return f"The interrupted {self.text}: that is done first ({self.to_keep_them})."

    @property
    def to_keep_them(self) -> str:
        """What keeps those files."""
        return f"to keep {'it' if self.files == 1 else 'them'}, move {HOME}/{self.id} out of the store first"


def unfinished_deletion(root: Path) -> UnfinishedDeletion | None:
    """The interrupted run that would still delete files; None without one."""
    if isinstance(root, RemotePath):
        return None  # nobody writes there
    name = interrupted(root)
    if name is None or name == STAGING:
        return None
    journal = read_journal(root / HOME / name, StorePaths(os.path.realpath(root), SYSTEM))
    left = [each for each in journal.deletions if each.is_still(SYSTEM.lstat(str(root / each.path)))]
    if not left:
        return None
    return UnfinishedDeletion(name, journal.command, len(left), sum(deletion.size for deletion in left))


def interrupted_findings(root: Path) -> Iterator[Finding]:
    """The finding for a run that was interrupted; the next run that writes brings it to its end."""
    try:
        name, deletion = interrupted(root), unfinished_deletion(root)
    except UnknownRunError as error:
        name, file = Path(str(error.file)).parts[-2:]
        yield finding("store.interrupted-run", severity="error", file=f"{HOME}/{name}/{file}", store=root,
                      details={"problem": "unknown"})  # fmt: skip
        return
    if name:
        facts = {"problem": "deletion", "deletion": deletion.text} if deletion else {"problem": "run"}
        severity: Severity | None = None if name == STAGING else "error"  # files may be half old and half new
        yield finding("store.interrupted-run", severity=severity, file=f"{HOME}/{name}", store=root, details=facts)
