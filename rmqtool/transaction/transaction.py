"""One repair or retention run: build aside, compare, swap; or delete for good."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rmqtool.base.errors import UnwritableError
from rmqtool.base.numbers import byte_size
from rmqtool.base.signals import Deferred, deferred_signals
from rmqtool.formats.file_name import start_offset_of
from rmqtool.store.store import Store
from rmqtool.transaction.home import (
    JOURNAL,
    LOSS,
    NEW,
    OLD,
    TIMES,
    Deletion,
    Journal,
    PathChange,
    State,
    Step,
    prepare_state,
    times_file,
    write_state,
)
from rmqtool.transaction.losses import Loss, record_file
from rmqtool.transaction.mover import ForeignError
from rmqtool.transaction.paths import parents_of, set_attributes
from rmqtool.transaction.session import Session
from rmqtool.transaction.staging import Check, StagedFile, Staging
from rmqtool.transaction.system import (
    SYSTEM,
    System,
    create_file,
    manifest_of,
    remove_tree,
    reported,
    size_of,
    sync_path,
)

_SCRATCH = "scratch"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_RESERVE = 16 << 20  # stays free beside what is written: directories, the journal; bytes


@dataclass(frozen=True)
class Committed:
    """The result of a commit: `id` is None when there was nothing to do; `backup_bytes` are kept until undo."""

    id: str | None
    state: Literal["nothing", "done"]
    changed: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    backup_bytes: int = 0


class Transaction(Session):
    """All changes that one command makes to a store: none of them, or all; see the package for how to use it."""

    def __init__(
        self, store: Store | Path, command: str, system: System = SYSTEM, options: tuple[str, ...] = ()
    ) -> None:
        root = store.root if isinstance(store, Store) else store
        self.command = command
        self.options = options
        self._logs = store.commit_log_directories if isinstance(store, Store) else ()
        super().__init__(root, system, self._logs)
        self._staging: Staging | None = None
        self._changes: dict[str, bool] = {}  # path -> whether something is staged for it
        self._above: set[str] = set()
        self._deletions: dict[str, Deletion] = {}
        self._losses: list[Loss] = []
        self._deleted: list[str] = []  # before there was room for a journal
        self._journaled = False
        self._unnamed: int | None = None

    def __exit__(self, *_: object) -> None:
        with ExitStack() as stack:  # the lock is released whatever fails before it
            stack.callback(super().__exit__)
            if self._unnamed is not None:
                stack.callback(self._system.close, self._unnamed)
            if self._staging and not self._journaled:
                self._drop(self._staging)

    def require_space(self, size: int) -> None:
        """Raise UnwritableError unless `size` bytes can still be written beside the store's files."""
        with reported(self._paths.root):
            free = self._system.free_bytes(self._paths.root)
        if free < size + _RESERVE:
            raise UnwritableError(
                f"{byte_size(size + _RESERVE)} are needed in addition to the existing files, {byte_size(max(0, free))} "
                "are free",
                file=self._paths.root,
                hint="free space on the file system of the store, or build queues and index elsewhere with rebuild-cq "
                "and rebuild-index --output DIR",
            )

    def file(self, name: str, *, size: int = 0, mtime_ns: int | None = None, check: Check | None = None) -> StagedFile:
        """Begin the file that `put` brings to `name`: `size` zero bytes to write over, without taking space.

        `mtime_ns` None: that of the file it replaces, or of a neighbour. `check` gets the path of the file once it is
        on the disk, to read it back; an error that it raises ends the transaction.
        """
        with reported(self._paths.path(name)):
            self._paths.check(name)
            file = self._stage().add_file(name, mtime_ns, check)
        if size:
            file.set_size(size)
        return file

    def link(self, name: str, source: str) -> None:
        """Begin `name` as a second name of the store's file `source`, which costs no space and keeps its time."""
        with reported(self._paths.path(name)):
            self._paths.check(name)
            self._paths.check(source)
            self._stage().add_link(name, self._paths.path(source))

    def directory(self, name: str) -> None:
        """Begin a directory that may stay empty."""
        with reported(self._paths.path(name)):
            self._paths.check(name)
            self._stage().add_directory(name)

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A directory on the store's disk for a library that writes files itself; gone at the end of the block."""
        self._stage()
        path = Path(self._home.staging, _SCRATCH)
        with reported(str(path)):
            path.mkdir()
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def unnamed_file(self, size: int) -> int | None:
        """A file of no name on the store's disk, which holds up to about `size` bytes and is gone with the transaction.

        Nothing in the store shows it, nor is anything left by a run that is killed. None where there is no room for
        it, or the file system has no such files.
        """
        try:
            if self._unnamed is None and self._system.free_bytes(self._paths.root) >= size + _RESERVE:
                self._unnamed = self._system.open_unnamed(self._paths.root)
        except OSError:
            return None
        return self._unnamed

    def put(self, name: str) -> None:
        """Replace or create `name` by the file or directory that is staged for it."""
        self._add(name, staged=True)

    def remove(self, name: str) -> None:
        """Take a file or directory out of the store; it is kept for undo."""
        self._add(name, staged=False)

    def record(self, loss: Loss) -> None:
        """Leave a record of a loss with the transaction, if it changes anything; undo takes it back."""
        self._losses.append(loss)

    def delete(self, path: str | Path) -> None:
        """Delete a file for good, in the order of the calls: a name in the store, or a file of its commit log."""
        name = self._deletable(path)
        with reported(self._paths.path(name)):
            status = self._system.lstat(self._paths.path(name))
        if status is None or not stat.S_ISREG(status.st_mode):
            raise UnwritableError("not a regular file: not deleted", file=self._paths.path(name))
        self._deletions[name] = Deletion(name, status.st_size, status.st_mtime_ns)

    def commit(self) -> Committed:
        """Sync, read back, compare; then swap and delete. Only now anything of the store changes.

        Raises UnwritableError; the store is then as before, unless the message says that the next run finishes.
        """
        with reported(self._paths.root):
            journal = self._prepare_where_it_fits()
        if journal is None:
            return Committed(None, "done" if self._deleted else "nothing", deleted=tuple(self._deleted))
        name = journal.id
        self._guard.refuse_newcomers()
        with deferred_signals() as deferred:
            with reported(self._paths.home):
                self._begin(name)
            self._settle(name, journal, deferred)
        self._guard.outlast_newcomers()
        changes = [change for step in journal.steps for change in step.changes]
        return Committed(
            name,
            "done",
            tuple(change.path for change in changes),
            (*self._deleted, *self._deletions),
            sum(size_of(change.before) for change in changes),
        )

    def _stage(self) -> Staging:
        if self._staging is None:
            self._home.make()
            self._system.make_directory(self._home.staging)
            self._staging = Staging(os.path.join(self._home.staging, NEW), self._system)
            self._system.make_directory(self._staging.root)
        return self._staging

    def _drop(self, staging: Staging) -> None:
        with deferred_signals(), reported(self._home.path, "cannot remove staged files (the next run will)"):
            staging.close()
            self._home.clear()

    def _add(self, name: str, *, staged: bool) -> None:
        with reported(self._paths.path(name)):
            self._paths.check(name)
        above = parents_of(name)
        if name in self._changes or name in self._above or not self._changes.keys().isdisjoint(above):
            raise ValueError(f"{name} is changed twice")
        self._above.update(above)
        self._changes[name] = staged

    def _deletable(self, path: str | Path) -> str:
        text = os.fspath(path)
        if os.path.isabs(text):
            if Path(text).parent not in self._logs or start_offset_of(os.path.basename(text)) is None:
                raise UnwritableError("outside the store and its commit log: not deleted", file=text)
            return text
        self._paths.check_name(text)
        return text

    def _prepare_where_it_fits(self) -> Journal | None:
        """As `_prepare`; where a disk is too full for a journal of deletions, the first files go without one.

        A run may end after any of them: their order is that of the cleaner, and the next run finds the rest to delete.
        """
        while self._staging or self._changes or self._deletions:
            try:
                return self._prepare()
            except OSError as error:  # noqa: PERF203 - each round deletes a file
                if self._changes or not self._deletions or error.errno not in _FULL:
                    raise
                with deferred_signals():
                    self._home.clear()
                    self._staging = None
                    self._deleted.append(next(iter(self._deletions)))
                    self._settler.delete(self._deletions.pop(self._deleted[-1]))
                    self._guard.remember()
        return None

    def _prepare(self) -> Journal | None:
        """Complete the tree below ``staging/``, journal included; None when nothing is to be done."""
        staging = self._stage()
        staging.close()
        for file in staging.files.values():
            if file.name not in self._changes and self._changes.keys().isdisjoint(parents_of(file.name)):
                raise ValueError(f"{file.name} is staged, but never put")
            self._finish_file(file, staging)
        staging.sync_files()
        staging.check_files()
        changes = self._compare(staging)
        if not changes and not self._deletions:
            return None
        steps = self._assemble(changes, staging)
        journal = self._journal(steps)
        create_file(self._system, os.path.join(self._home.staging, JOURNAL), journal.as_bytes())
        if steps:
            create_file(self._system, os.path.join(self._home.staging, TIMES), times_file(self._times(steps)))
        if self._losses:
            create_file(self._system, os.path.join(self._home.staging, LOSS), record_file(self._losses))
        states: tuple[State, ...] = ("done", "deleting") if self._deletions else ("done",)
        for state in states:
            prepare_state(self._system, self._home.staging, state)
        write_state(self._system, self._home.staging, "committing")
        return journal

    def _journal(self, steps: tuple[Step, ...]) -> Journal:
        deletions = tuple(self._deletions.values())
        return Journal(self._home.next_number(), self.command, steps, deletions, self.options)

    def _times(self, steps: tuple[Step, ...]) -> dict[str, int]:
        """The times of the directories whose entries the steps change, which an undo gives back."""
        times = {"": self._root_mtime_ns}
        for parent in sorted({os.path.dirname(step.path) for step in steps} - {""}):
            status = self._system.lstat(self._paths.path(parent))
            if status:
                times[parent] = status.st_mtime_ns
        return times

    def _finish_file(self, file: StagedFile, staging: Staging) -> None:
        path = staging.path(file.name)
        set_attributes(self._system, path, self._paths.attributes_for(file.name, directory=False))
        mtime_ns = self._mtime_of(file.name) if file.mtime_ns is None else file.mtime_ns
        self._system.set_mtime(path, mtime_ns)

    def _mtime_of(self, name: str) -> int:
        """Modification time of `name`, or else of the nearest directory above: the clock is not used."""
        status = self._system.lstat(self._paths.path(name))
        return status.st_mtime_ns if status else self._mtime_of(os.path.dirname(name))

    def _compare(self, staging: Staging) -> list[PathChange]:
        """The changes between store and staged files, both read back; staged files without a change are dropped."""
        changes = []
        for name, staged in self._changes.items():
            before = manifest_of(self._system, self._paths.path(name))
            after = manifest_of(self._system, staging.path(name)) if staged else None
            if staged and after is None:
                raise ValueError(f"nothing is staged for {name}")
            if before == after:
                remove_tree(self._system, staging.path(name))
            elif before and after and ("entries" in before) != ("entries" in after):
                raise UnwritableError(
                    "a file where a directory should be, or the other way round",
                    file=self._paths.path(name),
                    hint="move it away, and run this again",
                )
            else:
                changes.append(PathChange(name, before, after))
        return changes

    def _assemble(self, changes: list[PathChange], staging: Staging) -> tuple[Step, ...]:
        steps = self._assembler.plan(changes, staging.path("link"))
        for step in steps:
            if step.whole:
                self._assembler.add_kept(step, staging.path(step.path))
        self._assembler.finish_directories("", staging.root)
        old = Staging(os.path.join(self._home.staging, OLD), self._system)
        self._system.make_directory(old.root)
        for step in steps:
            old.add_directory(os.path.dirname(step.path))
        staging.sync_directories(self._home.staging)
        return steps

    def _begin(self, name: str) -> None:
        """Rename the staged transaction to `name`: from here on it is finished or taken back by the next run."""
        self._system.rename(self._home.staging, self._home.directory(name))
        self._journaled = True
        try:
            sync_path(self._system, self._home.path)
        except OSError:
            self._home.drop(name)
            raise

    def _settle(self, name: str, journal: Journal, deferred: Deferred) -> None:
        try:
            self._settler.commit(name, journal, deferred, fresh=True)
        except ForeignError as error:
            raise UnwritableError("another process writes to the store", file=self._paths.root) from error
        except UnwritableError as error:
            if os.path.lexists(self._home.directory(name)):
                error.hint = "stopped half-way: the next command that writes, or rmqtool undo, completes it"
            raise
