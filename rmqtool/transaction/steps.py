"""From changes to steps: the paths that are exchanged in one rename, and the trees for that.

Where more than one queue changes, the whole `consumequeue` is exchanged at once. The new tree holds the files that
stay as hard links, so it costs no space, and nothing is read or written; once it is in place the old tree is thinned
down to what was replaced.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Sequence

from rmqtool.transaction.attributes import Neighbours, read_attributes, set_attributes
from rmqtool.transaction.journal import Kind, PathChange, Step
from rmqtool.transaction.paths import StorePaths, parents_of
from rmqtool.transaction.staging import Staging
from rmqtool.transaction.system import NO_LINKS, System, is_directory

WHOLE_DIRECTORIES = frozenset({"consumequeue", "batchconsumequeue", "index"})


class Planner:
    """Makes the steps of one transaction from its changes."""

    def __init__(self, paths: StorePaths, staging: Staging, system: System) -> None:
        self._paths = paths
        self._staging = staging
        self._system = system

    def plan(self, changes: Sequence[PathChange]) -> tuple[Step, ...]:
        """The steps, in the order of the changes; a step that covers several stands where the first of them stood."""
        together = self._exchanged_whole(changes)
        groups: dict[str, list[PathChange]] = {}
        for change in changes:
            top = change.path.partition("/")[0]
            groups.setdefault(top if top in together else self._highest_missing(change), []).append(change)
        return tuple(
            Step(path, _kind(path, group, together), tuple(group), path in together) for path, group in groups.items()
        )

    def _exchanged_whole(self, changes: Sequence[PathChange]) -> set[str]:
        counts = Counter(change.path.partition("/")[0] for change in changes if "/" in change.path)
        several = {top for top, count in counts.items() if count > 1 and top in WHOLE_DIRECTORIES}
        return {top for top in several if is_directory(self._system, self._paths.path(top)) and self._can_link(top)}

    def _can_link(self, name: str) -> bool:
        """Whether the file system gives a file a second name."""
        file = self._any_file(self._paths.path(name))
        if file is None:
            return True  # nothing to link
        probe = self._staging.path("link")
        try:
            self._system.link(file, probe)
        except OSError as error:
            if error.errno in NO_LINKS:
                return False
            raise
        self._system.unlink(probe)
        return True

    def _any_file(self, path: str) -> str | None:
        if not is_directory(self._system, path):
            return path
        return next((file for entry in self._system.list(path) if (file := self._any_file(entry.path))), None)

    def _highest_missing(self, change: PathChange) -> str:
        """The change's own path, or the first directory above it that has to be made for it."""
        above = parents_of(change.path)
        return next((path for path in above if not self._system.lstat(self._paths.path(path))), change.path)


class Assembler:
    """Completes a staged directory so that it can take the place of the one in the store."""

    def __init__(self, paths: StorePaths, neighbours: Neighbours, system: System) -> None:
        self._paths = paths
        self._neighbours = neighbours
        self._system = system

    def add_kept(self, step: Step, target: str) -> None:
        """Link into `target` all files that a whole step does not change."""
        self._add(step.path, target, {change.path for change in step.changes})
        if not self._system.lstat(target):
            self._system.make_directory(target)  # all in it was taken out; it stays itself

    def _add(self, name: str, target: str, changed: set[str]) -> None:
        entries = self._system.list(self._paths.path(name))
        kept = [entry for entry in entries if f"{name}/{entry.name}" not in changed]
        if entries and not kept:
            return  # all in here changes: the staged tree says whether the directory stays
        if not self._system.lstat(target):
            self._system.make_directory(target)
        for entry in kept:
            path = os.path.join(target, entry.name)
            if is_directory(self._system, entry.path):
                self._add(f"{name}/{entry.name}", path, changed)
            else:
                self._system.link(entry.path, path)

    def finish_directories(self, name: str, path: str) -> int:
        """Give a staged directory and those in it their attributes and times; return its time.

        A directory that replaces one keeps its time; a new one gets the latest of its entries', or that of its parent:
        the clock is not used.
        """
        times = [0]
        for entry in self._system.list(path):
            child = f"{name}/{entry.name}" if name else entry.name
            status = self._system.lstat(entry.path)
            if status and stat.S_ISDIR(status.st_mode):
                times.append(self.finish_directories(child, entry.path))
            elif status:
                times.append(status.st_mtime_ns)
        if not name:
            return 0
        set_attributes(self._system, path, self._neighbours.attributes_for(name, directory=True))
        live = self._system.lstat(self._paths.path(name))
        mtime_ns = live.st_mtime_ns if live and stat.S_ISDIR(live.st_mode) else max(times)
        self._system.set_mtime(path, mtime_ns)
        return mtime_ns

    def add_replaced(self, old: str, target: str) -> None:
        """Link into `target` the files that a whole step has replaced; `old` is the thinned tree that holds them."""
        if is_directory(self._system, old):
            self._double_tree(old, target)

    def _double_tree(self, source: str, target: str) -> None:
        status = self._system.lstat(source)
        if status is None or not stat.S_ISDIR(status.st_mode):
            self._system.link(source, target)
            return
        self._system.make_directory(target)
        for entry in self._system.list(source):
            self._double_tree(entry.path, os.path.join(target, entry.name))
        set_attributes(self._system, target, read_attributes(self._system, source, status))
        self._system.set_mtime(target, status.st_mtime_ns)

    def thin_out(self, step: Step, tree: str) -> None:
        """Leave only the replaced files in the tree that a whole step has taken out of the store.

        A name that the store no longer has is kept: only names that the store has as well are removed. A directory that
        was empty is kept, too: in the store it may have files now, and would vanish with them at an undo.
        """
        if is_directory(self._system, tree):
            self._thin_out(step.path, tree, {change.path for change in step.changes})

    def _thin_out(self, name: str, tree: str, changed: set[str]) -> bool:
        """Thin out one directory; return whether it had entries before."""
        status = self._system.lstat(tree)
        entries = self._system.list(tree)
        for entry in entries:
            child = f"{name}/{entry.name}"
            if child in changed:
                continue
            if is_directory(self._system, entry.path):
                if self._thin_out(child, entry.path, changed) and not self._system.list(entry.path):
                    self._system.remove_directory(entry.path)
            elif self._system.lstat(self._paths.path(child)):
                self._system.unlink(entry.path)
        if status:
            self._system.set_mtime(tree, status.st_mtime_ns)  # undo gives it back
        return bool(entries)


def _kind(path: str, changes: Sequence[PathChange], together: set[str]) -> Kind:
    if path in together:
        return "replace"
    if changes[0].before is None:
        return "create"
    return "remove" if changes[0].after is None else "replace"
