"""The renames of a transaction, each from one state that a broker can start on to the next.

A step has three paths: `live`, the one in the store; `source`, what is staged for it; `aside`, where the replaced
goes. All lie on one file system, and every rename is synced before the next, so that no later one can reach the disk
without it. The entries at the three paths show how far an interrupted step is (for the digests see `system.py`):

| live | source | aside | |
|---|---|---|---|
| before | there | - | todo |
| after | there, the replaced | - | exchanged: only the move aside is missing |
| - | there | there | half: between two plain renames |
| there | - | there | done |

Why a broker can start in between: a directory or file changes in one exchange, so it is always the old or the new one.
Where a file system cannot exchange, a file is renamed over the old one, of which a second name or a copy was made
first: no moment without it either. Only a directory or link on such a file system is missing between two renames, for
the time of two syncs; a broker started in that moment would begin it again, and the next run of ours then finds a
directory that is neither old nor new, leaves it alone and says where the old one is.
A directory that is created or removed is there or not. Where several queues change, their common directory
is exchanged (a `whole` step, see `staging.py`): the broker takes the largest offset of all queues for what it has
dispatched already, so a store with some queues new and others old could lose the units of the old ones.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rmqtool.base.errors import RmqtoolError, UnreadableError
from rmqtool.base.signals import Deferred
from rmqtool.transaction.home import (
    NEW,
    OLD,
    UNDO,
    UNDONE,
    Deletion,
    Home,
    Journal,
    Outcome,
    Recovered,
    State,
    Step,
    read_times,
    write_state,
)
from rmqtool.transaction.paths import StorePaths, parents_of, read_attributes, set_attributes
from rmqtool.transaction.staging import Assembler
from rmqtool.transaction.system import (
    CANNOT,
    copy_data,
    is_directory,
    manifest_of,
    remove_tree,
    reported,
    same_entry,
    sync_path,
)

Progress = Literal["todo", "exchanged", "half", "done", "foreign"]

_CANNOT_EXCHANGE = CANNOT | {errno.EXDEV, errno.EPERM}  # EXDEV: overlayfs, for a directory of its lower layer


@dataclass(frozen=True)
class Move:
    """A step and its three paths."""

    step: Step
    live: str
    source: str
    aside: str

    def reversed(self) -> Move:
        """The move that undoes this one."""
        return Move(self.step.reversed(), self.live, self.aside, self.source)


class Mover:
    """Carries out steps, and finds out how far one that was interrupted is."""

    def __init__(self, paths: StorePaths) -> None:
        self._paths = paths
        self._system = paths.system

    def progress(self, move: Move) -> Progress:
        """How far a step is; `foreign` when somebody else has written to its paths."""
        live, source, aside = (self._system.lstat(path) is not None for path in (move.live, move.source, move.aside))
        if move.step.kind == "create":
            return {(False, True): "todo", (True, False): "done"}.get((live, source), "foreign")  # type: ignore[return-value]
        if move.step.kind == "remove":
            return {(True, False): "todo", (False, True): "done"}.get((live, aside), "foreign")  # type: ignore[return-value]
        if aside and live:
            is_copy = source and same_entry(self._system, move.live, move.aside)
            return "half" if is_copy else "foreign" if source else "done"
        if aside:
            return "half" if source else "foreign"
        return self._compare(move) if live and source else "foreign"

    def carry_out(self, move: Move, *, progress: Progress = "todo") -> None:
        """Do the rest of a step; everything is on the disk when this returns."""
        if progress == "done":
            return
        if move.step.kind == "create":
            self._rename(move.source, move.live)
        elif move.step.kind == "remove":
            self._rename(move.live, move.aside)
        elif progress == "half":
            self._rename(move.source, move.live)
        else:
            self._replace(move, exchanged=progress == "exchanged")

    def take_back(self, move: Move, progress: Progress) -> None:
        """Undo a step as far as it was done; the staged files are staged again."""
        if progress == "exchanged":
            self._system.exchange(move.live, move.source)
            self._sync_parents(move.live, move.source)
        elif progress == "half" and self._system.lstat(move.live):
            self._system.unlink(move.aside)
            self._sync_parents(move.aside)
        elif progress == "half":
            self._rename(move.aside, move.live)
        elif progress == "done":
            self.carry_out(move.reversed())

    def is_after(self, move: Move) -> bool:
        """Whether the store holds the state after the step."""
        changes = move.step.changes
        return all(manifest_of(self._system, self._paths.path(change.path)) == change.after for change in changes)

    def _replace(self, move: Move, *, exchanged: bool) -> None:
        if not exchanged:
            try:
                self._system.exchange(move.live, move.source)
            except OSError as error:
                if error.errno not in _CANNOT_EXCHANGE:
                    raise
                self._replace_plainly(move)
                return
            self._sync_parents(move.live, move.source)
        self._rename(move.source, move.aside)

    def _replace_plainly(self, move: Move) -> None:
        status = self._system.lstat(move.live)
        if status is not None and stat.S_ISREG(status.st_mode):
            self._double(move.live, move.aside)
        else:
            self._rename(move.live, move.aside)
        self._rename(move.source, move.live)

    def _double(self, source: str, target: str) -> None:
        """Give a file a second name, or make a copy where the file system has no links; whole, or not at all."""
        try:
            self._system.link(source, target)
        except OSError as error:
            if error.errno not in _CANNOT_EXCHANGE:
                raise
            self._copy(source, target)
        self._sync_parents(target)

    def _copy(self, source: str, target: str) -> None:
        status = self._system.lstat(source)
        if status is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        temporary = target + ".tmp"
        if self._system.lstat(temporary):
            self._system.unlink(temporary)
        descriptor = self._system.open_to_write(temporary, create=True)
        try:
            with self._system.open_input(source) as file:
                copy_data(self._system, file, descriptor)
            set_attributes(self._system, temporary, read_attributes(self._system, source, status))
            self._system.set_mtime(temporary, status.st_mtime_ns)
            self._system.sync(descriptor)
        finally:
            self._system.close(descriptor)
        self._system.rename(temporary, target)

    def _rename(self, source: str, target: str) -> None:
        self._system.rename(source, target)
        self._sync_parents(source, target)

    def _sync_parents(self, *paths: str) -> None:
        for parent in dict.fromkeys(map(os.path.dirname, paths)):
            sync_path(self._system, parent)

    def _compare(self, move: Move) -> Progress:
        """Distinguish before from after by the digests; all else must be the same in both trees."""
        step, changed = move.step, {change.path for change in move.step.changes}
        now = [manifest_of(self._system, self._paths.path(change.path)) for change in step.changes]
        parents = {parent for path in changed for parent in parents_of(path)}
        if step.whole and not self._same_trees(move.live, move.source, step.path, changed, parents):
            return "foreign"
        if now == [change.before for change in step.changes]:
            return "todo"
        return "exchanged" if now == [change.after for change in step.changes] else "foreign"

    def _same_trees(self, one: str, other: str, name: str, changed: set[str], parents: set[str]) -> bool:
        """Whether two trees hold the same entries, those that are `changed` left out."""
        entries = {
            entry.name for path in (one, other) if is_directory(self._system, path) for entry in self._system.list(path)
        }
        for entry in sorted(entries):
            child = f"{name}/{entry}"
            if child in changed:
                continue
            pair = f"{one}/{entry}", f"{other}/{entry}"
            directories = [is_directory(self._system, path) for path in pair]
            if child in parents or all(directories):
                if not self._same_trees(*pair, child, changed, parents):
                    return False
            elif not same_entry(self._system, *pair):
                return False
        return True


class ForeignError(Exception):
    """Somebody else has written to the paths of a step."""


class Settler:
    """Carries out the steps and deletions of journals."""

    def __init__(self, home: Home, assembler: Assembler) -> None:
        self._home = home
        self._mover = Mover(home.paths)
        self._assembler = assembler
        self._system = home.paths.system

    def commit(self, name: str, journal: Journal, deferred: Deferred | None = None, *, fresh: bool) -> Outcome:
        """Carry out all steps, or take them back; then delete. With `fresh` no step has begun.

        Raises ForeignError, UnwritableError when the steps can be neither done nor taken back now (the next run tries
        again), and, when `fresh`, the UnwritableError for which they were taken back.
        """
        with reported(self._home.paths.root):
            error = self._settle(self.moves(name, journal), fresh=fresh)
            if error:
                self._home.drop(name)
                return _rolled_back(error, fresh=fresh)
            if journal.deletions:
                self._write(name, "deleting")
                self._finish_deletions(name, journal, deferred)
            else:
                self.finish(name, journal)
        return "finished"

    def finish(self, name: str, journal: Journal) -> None:
        """End a transaction whose steps are done: keep the replaced files, and nothing else."""
        if not journal.steps:
            self._home.drop(name)
            return
        self._write(name, "done")
        self.tidy(name, journal)

    def tidy(self, name: str, journal: Journal) -> None:
        """Thin out ``old/``; once ``new/`` is gone, this is done."""
        directory = self._home.directory(name)
        for step in journal.steps:
            if step.whole:
                self._assembler.thin_out(step, os.path.join(directory, OLD, step.path))
        for rest in (UNDO, UNDONE, NEW):
            remove_tree(self._system, os.path.join(directory, rest))
        sync_path(self._system, directory)

    def undo(self, name: str, journal: Journal, *, fresh: bool) -> Outcome:
        """Put all replaced files back, or none; errors as in `commit`."""
        with reported(self._home.paths.root):
            error = self._settle(self.undo_moves(name, journal), fresh=fresh)
            if error:
                self._write(name, "done")
                self.tidy(name, journal)
                return _rolled_back(error, fresh=fresh)
            times = read_times(Path(self._home.directory(name)))
            self._give_back(times)
            self._home.forget_loss(name)
            self._home.drop(name)
            self._give_back({name: time for name, time in times.items() if not name})  # our directory may have gone
        return "finished"

    def _give_back(self, times: Mapping[str, int]) -> None:
        """Give the directories whose entries were changed the times that they had; one that refuses keeps its own."""
        for name, mtime_ns in times.items():
            with suppress(OSError, OverflowError, RmqtoolError):
                place = str(self._home.paths.root)
                if name:
                    self._home.paths.check(name)
                    place = self._home.paths.path(name)
                if is_directory(self._system, place):
                    self._system.set_mtime(place, mtime_ns)

    def recover(self, name: str) -> Recovered | None:
        """Bring one transaction to its end; None when it was there already."""
        state = self._home.state(name)
        if state == "abandoned":
            return None
        if state == "done" and not self._system.lstat(os.path.join(self._home.directory(name), NEW)):
            return None
        journal = self._home.journal(name)
        if state == "done":
            self.tidy(name, journal)
            return None
        try:
            outcome = self._resume(name, journal, state)
        except ForeignError:
            self._write(name, "abandoned")
            outcome = "abandoned"
        return Recovered(journal.id, "undo" if state == "undoing" else journal.command, outcome)

    def _resume(self, name: str, journal: Journal, state: State) -> Outcome:
        if state == "undoing":
            return self.undo(name, journal, fresh=False)
        if state == "committing":
            return self.commit(name, journal, fresh=False)
        with reported(self._home.paths.root):
            self._finish_deletions(name, journal, None)
        return "finished"

    def moves(self, name: str, journal: Journal) -> list[Move]:
        """The steps with the paths that they work on."""
        return [self._move(name, step, NEW, OLD) for step in journal.steps]

    def undo_moves(self, name: str, journal: Journal) -> list[Move]:
        """The steps that undo them, the last first."""
        steps = [step.reversed() for step in reversed(journal.steps)]
        return [self._move(name, step, UNDO if step.whole else OLD, UNDONE) for step in steps]

    def _move(self, name: str, step: Step, source: str, aside: str) -> Move:
        directory, live = self._home.directory(name), self._home.paths.path(step.path)
        return Move(step, live, *(os.path.join(directory, tree, step.path) for tree in (source, aside)))

    def _settle(self, moves: Sequence[Move], *, fresh: bool) -> OSError | UnreadableError | None:
        """Carry out all; or, after an error, take all back and return the error."""
        try:
            for move, progress in self._progress(moves, fresh=fresh):
                self._mover.carry_out(move, progress=progress)
        except (OSError, UnreadableError) as error:
            self._take_back(moves, check=not fresh)
            return error
        return None

    def _progress(self, moves: Sequence[Move], *, fresh: bool = False) -> list[tuple[Move, Progress]]:
        progresses: list[Progress] = ["todo" if fresh else self._mover.progress(move) for move in moves]
        if "foreign" in progresses:
            raise ForeignError
        return list(zip(moves, progresses, strict=True))

    def _take_back(self, moves: Sequence[Move], *, check: bool) -> None:
        moves_with_progress = self._progress(moves)
        if check and not all(
            self._mover.is_after(move) for move, progress in moves_with_progress if progress == "done"
        ):
            raise ForeignError
        for move, progress in reversed(moves_with_progress):
            self._mover.take_back(move, progress)

    def _finish_deletions(self, name: str, journal: Journal, deferred: Deferred | None) -> None:
        """Delete the remaining files; an error ends the run, a signal leaves the rest to the next run."""
        try:
            self._delete(journal.deletions, deferred)
        except OSError:
            self.finish(name, journal)
            raise
        if deferred is None or deferred.signal_number is None:
            self.finish(name, journal)

    def _delete(self, deletions: Sequence[Deletion], deferred: Deferred | None) -> None:
        """Delete in order, each on the disk before the next, so that the log never has a hole."""
        for deletion in deletions:
            if deferred and deferred.signal_number is not None:
                return
            self.delete(deletion)

    def delete(self, deletion: Deletion) -> None:
        """Delete one file that is still the one of the journal; it is gone from the disk when this returns."""
        path = self._home.paths.path(deletion.path)
        if deletion.is_still(self._system.lstat(path)):
            self._system.unlink(path)
            sync_path(self._system, os.path.realpath(os.path.dirname(path)))

    def _write(self, name: str, state: State) -> None:
        write_state(self._system, self._home.directory(name), state)


def _rolled_back(error: OSError | UnreadableError, *, fresh: bool) -> Outcome:
    if fresh:
        raise error
    return "rolled_back"
