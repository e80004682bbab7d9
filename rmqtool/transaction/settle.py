"""Brings a journal's steps to an end: all of them done, or none; after a kill as well as after an error."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rmqtool.base.errors import RmqtoolError, UnreadableError
from rmqtool.base.signals import Deferred
from rmqtool.transaction.home import NEW, OLD, UNDO, UNDONE, Home, Outcome, Recovered
from rmqtool.transaction.journal import Deletion, Journal, State, Step, read_times, write_state
from rmqtool.transaction.mover import Mover, Progress, StepPaths
from rmqtool.transaction.steps import Assembler
from rmqtool.transaction.system import System, is_directory, remove_tree, reported, sync_path

Moves = Sequence[tuple[Step, StepPaths]]


class ForeignError(Exception):
    """Somebody else has written to the paths of a step."""


class Settler:
    """Carries out the steps and deletions of journals."""

    def __init__(self, home: Home, mover: Mover, assembler: Assembler, system: System) -> None:
        self._home = home
        self._mover = mover
        self._assembler = assembler
        self._system = system

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

    def moves(self, name: str, journal: Journal) -> Moves:
        """The steps with the paths that they work on."""
        return [(step, self._step_paths(name, step, NEW, OLD)) for step in journal.steps]

    def undo_moves(self, name: str, journal: Journal) -> Moves:
        """The steps that undo them, the last first."""
        return [
            (step.reversed(), self._step_paths(name, step, UNDO if step.whole else OLD, UNDONE))
            for step in reversed(journal.steps)
        ]

    def _step_paths(self, name: str, step: Step, source: str, aside: str) -> StepPaths:
        directory = self._home.directory(name)
        return StepPaths(
            self._home.paths.path(step.path),
            os.path.join(directory, source, step.path),
            os.path.join(directory, aside, step.path),
        )

    def _settle(self, moves: Moves, *, fresh: bool) -> OSError | UnreadableError | None:
        """Carry out all; or, after an error, take all back and return the error."""
        try:
            for move, progress in self._progress(moves, fresh=fresh):
                self._mover.carry_out(*move, progress=progress)
        except (OSError, UnreadableError) as error:
            self._take_back(moves, check=not fresh)
            return error
        return None

    def _progress(self, moves: Moves, *, fresh: bool = False) -> list[tuple[tuple[Step, StepPaths], Progress]]:
        progresses: list[Progress] = ["todo" if fresh else self._mover.progress(*move) for move in moves]
        if "foreign" in progresses:
            raise ForeignError
        return list(zip(moves, progresses, strict=True))

    def _take_back(self, moves: Moves, *, check: bool) -> None:
        moves_with_progress = self._progress(moves)
        if check and not all(
            self._mover.is_after(move[0]) for move, progress in moves_with_progress if progress == "done"
        ):
            raise ForeignError
        for move, progress in reversed(moves_with_progress):
            self._mover.take_back(*move, progress)

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
