"""Undo: put the replaced files back, or discard them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from rmqtool.base.errors import ChangedError
from rmqtool.transaction.digest import manifest_of, size_of
from rmqtool.transaction.home import OLD, UNDO, UNDONE, Recovered, transactions
from rmqtool.transaction.journal import (
    Journal,
    PathChange,
    State,
    Step,
    prepare_state,
    read_journal,
    read_state,
    write_state,
)
from rmqtool.transaction.paths import HOME, StorePaths, parents_of
from rmqtool.transaction.report import reported
from rmqtool.transaction.session import Session
from rmqtool.transaction.settle import ForeignError
from rmqtool.transaction.signals import deferred_signals
from rmqtool.transaction.staging import Staging
from rmqtool.transaction.system import SYSTEM, System, is_directory, remove_tree

CONTINUED = ", continued"
"""Ends the command of a transaction that undo takes back together with the one before."""


@dataclass(frozen=True)
class Kept:
    """A transaction whose replaced files are kept."""

    id: str
    command: str
    state: State
    changes: tuple[PathChange, ...]

    @property
    def backup_bytes(self) -> int:
        """Sizes of the replaced files together."""
        return sum(size_of(change.before) for change in self.changes)


def last_run(kept: Sequence[Kept]) -> list[Kept]:
    """The transactions of the last run, the newest first: a repair may take several."""
    run: list[Kept] = []
    for transaction in reversed(kept):
        run.append(transaction)
        if not transaction.command.endswith(CONTINUED):
            break
    return run


def kept_transactions(root: Path) -> list[Kept]:
    """The transactions of a store, the oldest first, interrupted ones too; reads only."""
    paths = StorePaths(os.path.realpath(root), SYSTEM)
    kept = []
    for name in transactions(root).values():
        journal = read_journal(root / HOME / name, paths)
        kept.append(Kept(journal.id, journal.command, read_state(root / HOME / name), _changes(journal)))
    return kept


class Undo:
    """Holds a store, as `Transaction` does, and undoes transactions, the last one first."""

    def __init__(self, root: Path, system: System = SYSTEM) -> None:
        self._session = Session(root, system)
        self._system = system
        self._home = self._session.home
        self._paths = self._session.paths

    def __enter__(self) -> Undo:
        self._session.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.__exit__(kind, error, trace)

    @property
    def recovered(self) -> tuple[Recovered, ...]:
        """The interrupted runs that were ended first."""
        return tuple(self._session.recovered)

    def check(self) -> Kept | None:
        """The transaction that `put_back` takes back, None without one; raise ChangedError when it can't.

        Reads only; a store that is not held may be asked too.
        """
        name = self._last()
        if name is None:
            return None
        with reported(self._paths.root, "cannot read"):
            journal = self._home.journal(name)
            state = self._home.state(name)
            if state == "abandoned":
                raise ChangedError(
                    f"{name} was interrupted, and then somebody else wrote to the store: it can't be taken back",
                    file=self._home.directory(name),
                    hint=f"what it replaced is in {HOME}/{name}/{OLD}; verify the store, then let go of it (--discard)",
                )
            for step in journal.steps:
                self._check_step(name, step)
        return Kept(name, journal.command, state, _changes(journal))

    def put_back(self) -> Kept | None:
        """Put back the files that the last transaction replaced; all of them, or none and an error."""
        kept = self.check()
        if kept is None:
            return None
        with reported(self._home.directory(kept.id)):
            journal = self._home.journal(kept.id)
            self._prepare(kept.id, journal)
            prepare_state(self._system, self._home.directory(kept.id), "done")
            with deferred_signals():
                write_state(self._system, self._home.directory(kept.id), "undoing")
                try:
                    self._session.settler.undo(kept.id, journal, fresh=True)
                except ForeignError as error:
                    raise ChangedError("somebody else writes to the store", file=self._paths.root) from error
        return kept

    def discard(self) -> list[Kept]:
        """Remove all replaced files for good; records of losses stay until they are acknowledged."""
        with reported(self._home.path):
            discarded = kept_transactions(Path(self._paths.root))
            for kept in discarded:
                with deferred_signals():
                    self._home.keep_loss(kept.id)
                    self._home.drop(kept.id)
        return discarded

    def _last(self) -> str | None:
        return next(reversed(self._home.names_by_number().values()), None)

    def _check_step(self, name: str, step: Step) -> None:
        for change in step.changes:
            live = self._paths.path(change.path)
            if manifest_of(self._system, live) != change.after:
                raise _changed(live, "has changed since")
            old = os.path.join(self._home.directory(name), OLD, change.path)
            if manifest_of(self._system, old) != change.before:
                raise _changed(old, "is no longer what was replaced")
        if not step.whole:
            self._check_alone(step)

    def _check_alone(self, step: Step) -> None:
        """Raise ChangedError when a directory that the step made holds other entries, which an undo would remove."""
        changed = {change.path for change in step.changes}
        above = {parent for path in changed for parent in parents_of(path)}
        pending = [step.path] if step.path in above else []
        while pending:
            name = pending.pop()
            for entry in self._system.list(self._paths.path(name)):
                child = f"{name}/{entry.name}"
                if child in above and is_directory(self._system, entry.path):
                    pending.append(child)
                elif child not in changed:
                    raise _changed(entry.path, "is new")

    def _prepare(self, name: str, journal: Journal) -> None:
        """Build the trees that whole steps exchange; the store does not change yet."""
        directory = self._home.directory(name)
        undo, undone = (Staging(os.path.join(directory, tree), self._system) for tree in (UNDO, UNDONE))
        for tree in (undo, undone):
            remove_tree(self._system, tree.root)
            self._system.make_directory(tree.root)
        for step in journal.steps:
            undone.add_directory(os.path.dirname(step.path))
            if step.whole:
                self._build(step, os.path.join(directory, OLD, step.path), undo.path(step.path))
        undo.sync_directories(directory)

    def _build(self, step: Step, old: str, target: str) -> None:
        assembler = self._session.assembler
        assembler.thin_out(step, old)  # again: a loss of power may have brought names back
        assembler.add_replaced(old, target)
        assembler.add_kept(step, target)
        assembler.finish_directories(step.path, target)


def _changes(journal: Journal) -> tuple[PathChange, ...]:
    return tuple(change for step in journal.steps for change in step.changes)


def _changed(path: str, what: str) -> ChangedError:
    return ChangedError(
        f"{what}: nothing is put back",
        file=path,
        hint="a broker has run on the store since, or somebody wrote to it; keep what is there with --discard",
    )
