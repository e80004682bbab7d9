"""Undo: put the replaced files back, or discard them."""

from __future__ import annotations

import os
from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from rmqtool.base.errors import ChangedError
from rmqtool.base.signals import deferred_signals
from rmqtool.base.visible import quote
from rmqtool.store.lock import LOCK_FILE, has_abort
from rmqtool.transaction.home import (
    JOURNAL,
    OLD,
    UNDO,
    UNDONE,
    Journal,
    PathChange,
    State,
    Step,
    prepare_state,
    read_journal,
    read_state,
    transactions,
    write_state,
)
from rmqtool.transaction.mover import ForeignError
from rmqtool.transaction.paths import HOME, StorePaths, parents_of
from rmqtool.transaction.session import Session
from rmqtool.transaction.staging import Staging
from rmqtool.transaction.system import is_directory, manifest_of, remove_tree, reported, size_of

CONTINUED = ", continued"
"""Ends the command of a transaction that undo takes back together with the one before."""

_CONVERSION = "rebuild-cq --to "


def conversion_command(target: str) -> str:
    """The command of a transaction that brings a store to the other `storeType`."""
    return f"{_CONVERSION}{target}"


@dataclass(frozen=True)
class Kept:
    """A transaction whose replaced files are kept; `options` are those that the next commands need, too."""

    id: str
    command: str
    state: State
    changes: tuple[PathChange, ...]
    options: tuple[str, ...] = ()

    @property
    def backup_bytes(self) -> int:
        """Sizes of the replaced files together."""
        return sum(size_of(change.before) for change in self.changes)

    @property
    def is_conversion(self) -> bool:
        """Whether it brought the store to the other `storeType`, so that the broker had to get other settings."""
        return self.command.startswith(_CONVERSION)


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
    paths = StorePaths(root)
    places = [root / HOME / name for name in transactions(root).values()]
    return [_kept(read_journal(place, paths), read_state(place)) for place in places]


def was_killed(root: Path) -> bool:
    """Whether the last broker was killed: `abort` is there, or was taken out by us since; reads only.

    Each start of a broker writes its `lock` (`DefaultMessageStore#start`).
    """
    if has_abort(root):
        return True
    if not (root / HOME).is_dir():
        return False  # also where something else has our name
    started, places = _modified(root / LOCK_FILE), (root / HOME / name for name in transactions(root).values())
    return any(has_abort(place / OLD) and _modified(place / JOURNAL) > started for place in places)


def _modified(path: Path) -> int:
    """Time of modification, ns; 0 without the file."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


class Undo(Session):
    """Holds a store, as `Transaction` does, and undoes transactions, the last one first."""

    def check(self) -> Kept | None:
        """The transaction that `put_back` takes back, None without one; raise ChangedError when it can't.

        Reads only; a store that is not held may be asked too.
        """
        name = next(reversed(self._home.names_by_number().values()), None)
        return self._check(name) if name else None

    def check_run(self, run: Sequence[Kept]) -> None:
        """Raise ChangedError when the transactions of a run, the newest first, can't all be taken back; as `check`."""
        newer: set[str] = set()  # paths that are put back first: what is there now says nothing about an older one
        for kept in run:
            self._check(kept.id, newer)
            newer.update(change.path for change in kept.changes)

    def _check(self, name: str, newer: Set[str] = frozenset()) -> Kept:
        with reported(self._paths.root, "cannot read"):
            kept = _kept(self._home.journal(name), self._home.state(name))
            if kept.state == "abandoned":
                raise ChangedError(
                    f"{name} was interrupted, and then another process wrote to the store: it can't be taken back",
                    file=self._home.directory(name),
                    hint=f"the replaced files are in {HOME}/{name}/{OLD}; verify the store, then drop it (--discard)",
                )
            for step in self._home.journal(name).steps:
                self._check_step(name, step, newer)
        return kept

    def put_back(self) -> Kept | None:
        """Put back the files that the last transaction replaced; all of them, or none and an error."""
        kept = self.check()
        if kept is None:
            return None
        with reported(self._home.directory(kept.id)):
            journal = self._home.journal(kept.id)
            self._prepare(kept.id, journal)
            prepare_state(self._system, self._home.directory(kept.id), "done")
            self._guard.refuse_newcomers()
            with deferred_signals():
                write_state(self._system, self._home.directory(kept.id), "undoing")
                try:
                    self._settler.undo(kept.id, journal, fresh=True)
                except ForeignError as error:
                    raise ChangedError("another process writes to the store", file=self._paths.root) from error
        self._guard.outlast_newcomers()
        self._guard.remember()
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

    def _check_step(self, name: str, step: Step, newer: Set[str]) -> None:
        above_newer = {parent for path in newer for parent in parents_of(path)}
        for change in step.changes:
            live = self._paths.path(change.path)
            is_newer = change.path in above_newer or not newer.isdisjoint((change.path, *parents_of(change.path)))
            if not is_newer and manifest_of(self._system, live) != change.after:
                raise self._changed(live, "has changed since")
            old = os.path.join(self._home.directory(name), OLD, change.path)
            if manifest_of(self._system, old) != change.before:
                raise self._spoilt(name, old)
        if not step.whole:
            self._check_alone(step, newer | above_newer)

    def _check_alone(self, step: Step, newer: Set[str]) -> None:
        """Raise ChangedError when a directory that the step made holds other entries, which an undo would remove."""
        changed = {change.path for change in step.changes} | newer
        above = {parent for path in changed for parent in parents_of(path)}
        pending = [step.path] if step.path in above else []
        while pending:
            name = pending.pop()
            for entry in self._system.list(self._paths.path(name)):
                child = f"{name}/{entry.name}"
                if child in above and is_directory(self._system, entry.path):
                    pending.append(child)
                elif child not in changed:
                    raise self._changed(entry.path, "is new")

    def _changed(self, path: str, what: str) -> ChangedError:
        discard = f"rmqtool undo {quote(self._paths.root)} --discard"
        return ChangedError(
            f"{what}: nothing is put back",
            file=path,
            hint="a broker has run on the store since, or something wrote to it: the repair can no longer be taken "
            f"back. The replaced files only take space; to free it: {discard}",
        )

    def _spoilt(self, name: str, old: str) -> ChangedError:
        if not self._system.lstat(os.path.join(self._home.directory(name), OLD)):
            return ChangedError(
                "is missing, with all replaced files: nothing is put back",
                file=old,
                hint=f"somebody removed {HOME}/{name}/{OLD}: restore it, or drop this repair: "
                f"rmqtool undo {quote(self._paths.root)} --discard",
            )
        return ChangedError(
            "has changed since it was replaced: nothing is put back",
            file=old,
            hint=f"the disk, or somebody, changed a kept file. The other replaced files are still in "
            f"{HOME}/{name}/{OLD}: docs/undo.md says how to put files back by hand. Do not use --discard before",
        )

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
        assembler = self._assembler
        assembler.thin_out(step, old)  # again: a loss of power may have brought names back
        assembler.add_replaced(old, target)
        assembler.add_kept(step, target)
        assembler.finish_directories(step.path, target)


def _kept(journal: Journal, state: State) -> Kept:
    changes = tuple(change for step in journal.steps for change in step.changes)
    return Kept(journal.id, journal.command, state, changes, journal.options)
