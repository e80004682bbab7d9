"""What is built aside, and takes its place in steps: each the paths that are exchanged in one rename.

Files are written at any position, synced together, and read back from the disk.

Where more than one queue changes, the whole `consumequeue` is exchanged at once. The new tree holds the files that
stay as hard links, so it costs no space, and nothing is read or written; once it is in place the old tree is thinned
down to what was replaced.
"""

from __future__ import annotations

import os
import stat
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rmqtool.base.limits import open_files_at_once
from rmqtool.transaction.home import Kind, PathChange, Step
from rmqtool.transaction.paths import StorePaths, parents_of, read_attributes, set_attributes
from rmqtool.transaction.system import NO_LINKS, System, copy_data, is_directory, reported, sync_path, write_all

MAX_OPEN = 32  # descriptors that stay open between writes
_MANY = 8  # from here on the file system is asked to write all at once

Check = Callable[[Path], None]


@dataclass(slots=True)
class StagedFile:
    """A file that is built at `place`, the text of a path: there may be one for each of many queues.

    `mtime_ns` None: it gets that of the file it replaces.
    """

    name: str
    place: str
    mtime_ns: int | None
    check: Check | None
    _pool: DescriptorPool

    def write(self, data: bytes | memoryview, position: int) -> None:
        """Write `data` at `position`, bytes; raise UnwritableError."""
        with reported(self.place):
            write_all(self._pool.system, self._pool.descriptor(self.place), data, position)

    def copy(self, source: Path) -> None:
        """Begin with the bytes of another file, which keep their holes."""
        with reported(self.place), self._pool.system.open_input(str(source)) as file:
            copy_data(self._pool.system, file, self._pool.descriptor(self.place))

    def set_size(self, size: int) -> None:
        """Cut or extend the file to `size` bytes; added bytes are zero and take no space."""
        with reported(self.place):
            self._pool.system.set_size(self._pool.descriptor(self.place), size)


class DescriptorPool:
    """The last files that were written stay open, `most` of them: one may write to 40,000 queues in any order."""

    def __init__(self, system: System, most: int) -> None:
        self.system = system
        self._open: OrderedDict[str, int] = OrderedDict()
        self._limit = open_files_at_once(most)

    def descriptor(self, path: str) -> int:
        """A descriptor of a staged file, opened again where it was closed meanwhile."""
        if path in self._open:
            self._open.move_to_end(path)
            return self._open[path]
        return self._add(path, create=False)

    def create(self, path: str) -> None:
        """Make a new, empty file."""
        self._add(path, create=True)

    def _add(self, path: str, *, create: bool) -> int:
        while len(self._open) >= self._limit:
            self.system.close(self._open.popitem(last=False)[1])
        self._open[path] = self.system.open_to_write(path, create=create)
        return self._open[path]

    def drop(self, path: str) -> None:
        """Remove a file."""
        if path in self._open:
            self.system.close(self._open.pop(path))
        self.system.unlink(path)

    def close(self) -> None:
        """Close all descriptors."""
        while self._open:
            self.system.close(self._open.popitem()[1])


class Staging:
    """The tree below ``.rmqtool/staging/new`` that mirrors the store."""

    def __init__(self, root: str, system: System, most_open: int = MAX_OPEN) -> None:
        self.root = root
        self.files: dict[str, StagedFile] = {}
        self._system = system
        self._pool = DescriptorPool(system, most_open)
        self._directories = {""}

    def path(self, name: str) -> str:
        """Where `name` is built."""
        return os.path.join(self.root, name)

    def add_file(self, name: str, mtime_ns: int | None, check: Check | None) -> StagedFile:
        """Begin a new, empty file."""
        self.add_directory(os.path.dirname(name))
        place = self.path(name)
        self._pool.create(place)
        self.files[name] = StagedFile(name, place, mtime_ns, check, self._pool)
        return self.files[name]

    def drop(self, file: StagedFile) -> None:
        """Take a file out again."""
        self._pool.drop(file.place)
        del self.files[file.name]

    def add_link(self, name: str, source: str) -> None:
        """Give a file of the store a second name, or copy it where the file system has no links."""
        self.add_directory(os.path.dirname(name))
        try:
            self._system.link(source, self.path(name))
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            self.add_file(name, os.lstat(source).st_mtime_ns, None).copy(Path(source))

    def add_directory(self, name: str) -> None:
        """Make a directory and those above it."""
        if name not in self._directories:
            self.add_directory(os.path.dirname(name))
            self._system.make_directory(self.path(name))
            self._directories.add(name)

    def close(self) -> None:
        """Close all files; nothing is written after this."""
        self._pool.close()

    def sync_files(self) -> None:
        """All files are on the disk when this returns, and out of the page cache."""
        all_synced = len(self.files) > _MANY and self._system.sync_all(self.root)
        for name in self.files:
            descriptor = self._system.open_to_sync(self.path(name))
            try:
                if not all_synced:
                    self._system.sync(descriptor)
                self._system.forget(descriptor)
            finally:
                self._system.close(descriptor)

    def check_files(self) -> None:
        """Let each file's check read it back."""
        for file in self.files.values():
            if file.check:
                file.check(Path(file.place))

    def sync_directories(self, path: str | None = None) -> None:
        """All names are on the disk when this returns, those of the innermost directories first."""
        path = self.root if path is None else path
        if len(self._directories) > _MANY and self._system.sync_all(path):
            return
        self._sync_directories(path)

    def _sync_directories(self, path: str) -> None:
        for entry in self._system.list(path):
            if is_directory(self._system, entry.path):
                self._sync_directories(entry.path)
        sync_path(self._system, path)


WHOLE_DIRECTORIES = frozenset({"consumequeue", "batchconsumequeue", "index"})


class Assembler:
    """Makes the steps of a transaction, and completes staged directories that take the place of those in the store."""

    def __init__(self, paths: StorePaths) -> None:
        self._paths = paths
        self._system = paths.system

    def plan(self, changes: Sequence[PathChange], probe: str) -> tuple[Step, ...]:
        """The steps, in the order of the changes; one that covers several stands where the first of them stood.

        At the path `probe` links are tried.
        """
        together = self._exchanged_whole(changes, probe)
        groups: dict[str, list[PathChange]] = {}
        for change in changes:
            top = change.path.partition("/")[0]
            groups.setdefault(top if top in together else self._highest_missing(change), []).append(change)
        return tuple(
            Step(path, _kind(path, group, together), tuple(group), path in together) for path, group in groups.items()
        )

    def _exchanged_whole(self, changes: Sequence[PathChange], probe: str) -> set[str]:
        counts = Counter(change.path.partition("/")[0] for change in changes if "/" in change.path)
        several = {top for top, count in counts.items() if count > 1 and top in WHOLE_DIRECTORIES}
        present = {top for top in several if is_directory(self._system, self._paths.path(top))}
        return {top for top in present if self._can_link(top, probe)}

    def _can_link(self, name: str, probe: str) -> bool:
        """Whether the file system gives a file a second name."""
        file = self._any_file(self._paths.path(name))
        if file is None:
            return True  # nothing to link
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
        set_attributes(self._system, path, self._paths.attributes_for(name, directory=True))
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
