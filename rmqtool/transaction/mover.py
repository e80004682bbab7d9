"""The renames of a transaction, each from one state that a broker can start on to the next.

A step has three paths: `live`, the one in the store; `source`, what is staged for it; `aside`, where the replaced
goes. All lie on one file system, and every rename is synced before the next, so that no later one can reach the disk
without it. The entries at the three paths show how far an interrupted step is (for the digests see `digest.py`):

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
is exchanged (a `whole` step, see `steps.py`): the broker takes the largest offset of all queues for what it has
dispatched already, so a store with some queues new and others old could lose the units of the old ones.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from typing import Literal

from rmqtool.transaction.attributes import read_attributes, set_attributes
from rmqtool.transaction.digest import manifest_of, same_entry
from rmqtool.transaction.journal import Step
from rmqtool.transaction.paths import StorePaths, parents_of
from rmqtool.transaction.system import CANNOT, System, copy_data, is_directory, sync_path

Progress = Literal["todo", "exchanged", "half", "done", "foreign"]

_CANNOT_EXCHANGE = CANNOT | {errno.EXDEV, errno.EPERM}  # EXDEV: overlayfs, for a directory of its lower layer


@dataclass(frozen=True)
class StepPaths:
    """The three paths of a step."""

    live: str
    source: str
    aside: str

    def reversed(self) -> StepPaths:
        """The paths of the step that undoes this one."""
        return StepPaths(self.live, self.aside, self.source)


class Mover:
    """Carries out steps, and finds out how far one that was interrupted is."""

    def __init__(self, paths: StorePaths, system: System) -> None:
        self._paths = paths
        self._system = system

    def progress(self, step: Step, paths: StepPaths) -> Progress:
        """How far a step is; `foreign` when somebody else has written to its paths."""
        live, source, aside = (self._system.lstat(path) is not None for path in (paths.live, paths.source, paths.aside))
        if step.kind == "create":
            return {(False, True): "todo", (True, False): "done"}.get((live, source), "foreign")  # type: ignore[return-value]
        if step.kind == "remove":
            return {(True, False): "todo", (False, True): "done"}.get((live, aside), "foreign")  # type: ignore[return-value]
        if aside and live:
            return "half" if source and self._is_copy(paths) else "foreign" if source else "done"
        if aside:
            return "half" if source else "foreign"
        return self._compare(step, paths) if live and source else "foreign"

    def carry_out(self, step: Step, paths: StepPaths, *, progress: Progress = "todo") -> None:
        """Do the rest of a step; everything is on the disk when this returns."""
        if progress == "done":
            return
        if step.kind == "create":
            self._rename(paths.source, paths.live)
        elif step.kind == "remove":
            self._rename(paths.live, paths.aside)
        elif progress == "half":
            self._rename(paths.source, paths.live)
        else:
            self._replace(paths, exchanged=progress == "exchanged")

    def take_back(self, step: Step, paths: StepPaths, progress: Progress) -> None:
        """Undo a step as far as it was done; the staged files are staged again."""
        if progress == "exchanged":
            self._system.exchange(paths.live, paths.source)
            self._sync_parents(paths.live, paths.source)
        elif progress == "half" and self._system.lstat(paths.live):
            self._system.unlink(paths.aside)
            self._sync_parents(paths.aside)
        elif progress == "half":
            self._rename(paths.aside, paths.live)
        elif progress == "done":
            self.carry_out(step.reversed(), paths.reversed())

    def is_after(self, step: Step) -> bool:
        """Whether the store holds the state after the step."""
        return all(manifest_of(self._system, self._paths.path(change.path)) == change.after for change in step.changes)

    def _replace(self, paths: StepPaths, *, exchanged: bool) -> None:
        if not exchanged:
            try:
                self._system.exchange(paths.live, paths.source)
            except OSError as error:
                if error.errno not in _CANNOT_EXCHANGE:
                    raise
                self._replace_plainly(paths)
                return
            self._sync_parents(paths.live, paths.source)
        self._rename(paths.source, paths.aside)

    def _replace_plainly(self, paths: StepPaths) -> None:
        status = self._system.lstat(paths.live)
        if status is not None and stat.S_ISREG(status.st_mode):
            self._double(paths.live, paths.aside)
        else:
            self._rename(paths.live, paths.aside)
        self._rename(paths.source, paths.live)

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

    def _is_copy(self, paths: StepPaths) -> bool:
        return same_entry(self._system, paths.live, paths.aside)

    def _compare(self, step: Step, paths: StepPaths) -> Progress:
        """Distinguish before from after by the digests; all else must be the same in both trees."""
        now = [manifest_of(self._system, self._paths.path(change.path)) for change in step.changes]
        if step.whole and not self._same_besides(step, paths.live, paths.source, step.path):
            return "foreign"
        if now == [change.before for change in step.changes]:
            return "todo"
        return "exchanged" if now == [change.after for change in step.changes] else "foreign"

    def _same_besides(self, step: Step, one: str, other: str, name: str) -> bool:
        """Whether two trees hold the same entries, those of the step's changes left out."""
        changed = {change.path for change in step.changes}
        parents = {parent for path in changed for parent in parents_of(path)}
        return self._same_trees(one, other, name, changed, parents)

    def _same_trees(self, one: str, other: str, name: str, changed: set[str], parents: set[str]) -> bool:
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
