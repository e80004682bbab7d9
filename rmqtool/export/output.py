"""The place that an export writes to: readers see either all files of a run or none.

Workers write below `_temporary/`. A commit first writes down what it will do (`_temporary/commit.json`), then renames
the files, writes `_manifest.json`, removes what is replaced and writes `_SUCCESS`. A commit that was interrupted is
finished by the next export into the same directory; anything else in `_temporary/` is thrown away.

On another machine nothing can be renamed safely: the manifest says what is in it.
Workers write files under their final names, each attempt under its own, which no manifest names yet. A commit looks
whether all of them are there, writes down what it will do (`_commit.json`), writes `_manifest.json`, removes what is
replaced, and writes `_SUCCESS` last. Whoever goes by the manifest reads one whole export at any moment. A commit that
was interrupted is finished by the next run, which also removes files that no manifest names.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmqtool.base.errors import RmqtoolError, UnreadableError, UsageError, notice
from rmqtool.base.files import Closing
from rmqtool.base.new_files import sync, whole_file
from rmqtool.base.remote_files import files_in, read_remote, remove_remote, write_remote
from rmqtool.base.remote_path import RemotePath
from rmqtool.export.options import DELTA, ICEBERG, Mode, Target
from rmqtool.export.sink import DataFile, output_errors, unwritable

MANIFEST = "_manifest.json"
SUCCESS = "_SUCCESS"
MANIFEST_SCHEMA = "rmqtool.export-manifest/1"

_NEEDED = {"rows", "columns", "source", "files", "damaged", "runs"}  # of a manifest, by those who read it
TEMPORARY = "_temporary"
JOURNAL, REMOTE_JOURNAL = f"{TEMPORARY}/commit.json", "_commit.json"
FINISHED = "the interrupted export is finished now: its messages are in the output, and it need not be run again"


def read_manifest(output: Path) -> dict[str, Any] | None:
    """The manifest of what was exported to `output`; None without one. Raises UnreadableError."""
    path = output / MANIFEST
    try:
        if isinstance(path, RemotePath):
            return parse_manifest(read_remote(path), path)
        return parse_manifest(path.read_bytes(), path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UnreadableError(f"cannot read the manifest: {error}", file=path) from error


def manifest_there(path: Path) -> dict[str, Any] | None:
    """The manifest that a run would find in an output: of a commit that was interrupted it finishes first, or stored.

    Raises UnreadableError.
    """
    return interrupted_manifest(path) or read_manifest(path)


def interrupted_manifest(path: Path) -> dict[str, Any] | None:
    """The manifest of a commit that has begun and not ended; None without one."""
    with suppress(FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError, UnreadableError):
        journal = read_remote(path / REMOTE_JOURNAL) if isinstance(path, RemotePath) else (path / JOURNAL).read_bytes()
        return parse_manifest(json.dumps(json.loads(journal)["manifest"]).encode(), path)
    return None


def follow_table(path: Path, manifest: dict[str, Any]) -> None:
    """Make the table of an output, if it has one, hold what the manifest names; doing it again changes nothing."""
    table = manifest.get("table")
    if table is None:
        return
    from rmqtool.export import tables
    from rmqtool.export.options import options_of

    schema = options_of(manifest).schema
    if table == DELTA:
        tables.follow_delta(path, manifest, schema)
    else:
        tables.follow_iceberg(path, table.removeprefix(ICEBERG), manifest, schema)


def _mend_table(path: Path, manifest: dict[str, Any]) -> None:
    """Make the table of an output one that can be read, should power have failed in its commit."""
    if manifest.get("table") == DELTA:
        from rmqtool.export.tables import drop_torn_version

        drop_torn_version(path)


def check_table(path: Path, table: str | None) -> None:
    """Raise RmqtoolError where an output cannot be this table."""
    from rmqtool.export import tables

    if table == DELTA:
        tables.check_delta(path)
    elif table is not None and table.startswith(ICEBERG):
        tables.check_iceberg(path, table.removeprefix(ICEBERG))
    elif table is not None:
        raise UsageError(f"no table is called {table!r}", hint=f"{DELTA} or {ICEBERG}NAMESPACE.TABLE")


def parse_manifest(data: bytes, path: Path) -> dict[str, Any]:
    """The manifest in a file's content; raises UnreadableError."""
    try:
        manifest: Any = json.loads(data.decode("utf-8"))
    except ValueError as error:
        raise UnreadableError(f"cannot read the manifest: {error}", file=path) from error
    if not isinstance(manifest, dict) or manifest.get("schema") != MANIFEST_SCHEMA or not manifest.keys() >= _NEEDED:
        raise UnreadableError(f"not a manifest of {MANIFEST_SCHEMA}", file=path)
    known: dict[str, Any] = manifest
    return known


def check_mode(path: Path, manifest: dict[str, Any] | None, mode: Mode, *, is_empty: bool) -> None:
    """Raise UsageError where a run of this mode may not write to an output."""
    if manifest is None and not is_empty:
        message = "the output directory is not empty, and its contents are not from an export"
        raise UsageError(message, file=path, hint="give a directory that is new or empty")
    if manifest is not None and mode == "error":
        hint = (
            "--mode incremental adds new messages, --mode overwrite replaces the export, --mode append adds other "
            "stores"
        )
        raise UsageError("the output already has an export", file=path, hint=hint)


@dataclass(frozen=True)
class Commit:
    """Files that a run adds, and paths below the output that it removes."""

    manifest: dict[str, Any]
    files: Sequence[DataFile]
    removed: Sequence[str] = ()


class Output(Closing):
    """The output, locked while a run writes to it; files that are not committed are removed when it is closed.

    Raises UsageError where the mode forbids the directory, RmqtoolError when it cannot be written.
    """

    def __init__(self, path: Path, mode: Mode) -> None:
        self.path = path
        self._made: list[Path] = []
        self._folder = path / TEMPORARY
        try:
            self._made = [folder for folder in (path, *path.parents) if not folder.exists()]  # the innermost first
            path.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(path)
        except OSError as error:
            self._remove_made()
            raise unwritable(path, error) from error
        try:
            with output_errors(path):
                self._prepare(mode)
        except BaseException:
            self.close()
            raise

    def _prepare(self, mode: Mode) -> None:
        self._recover()
        self.manifest = read_manifest(self.path)
        check_mode(self.path, self.manifest, mode, is_empty=not os.listdir(self.path))
        run = uuid.uuid4().hex[:12]
        self.target = Target(self._folder.resolve() / run, run)
        self.target.folder.mkdir(parents=True)

    def _recover(self) -> None:
        """Finish a commit that was interrupted; remove files that were never committed."""
        with suppress(FileNotFoundError, ValueError):
            journal = json.loads((self.path / JOURNAL).read_text(encoding="utf-8"))
            if isinstance(journal, dict) and journal.keys() >= {"moves", "removed", "manifest"}:
                _mend_table(self.path, journal["manifest"])
                self._apply(journal)
                notice(FINISHED)
        if self._folder.is_dir():
            shutil.rmtree(self._folder)

    def commit(self, commit: Commit) -> None:
        """Make all files of a run visible."""
        moves = [[f"{TEMPORARY}/{self.target.run}/{file.temporary}", file.path] for file in commit.files]
        journal = {
            "moves": moves,
            "removed": list(commit.removed),
            "manifest": commit.manifest,
        }
        sources = {(self.path / source).parent for source, _ in moves}
        with output_errors(self.path):
            _sync_all({folder for source in sources for folder in _up_to(source, self.path)})
            _write_json(self.path / JOURNAL, journal)
            sync(self.path)
            for folder in self._made:
                with suppress(PermissionError):  # of whoever may write there, and not look
                    sync(folder.parent)
            self._apply(journal)

    def _apply(self, journal: dict[str, Any]) -> None:
        """Carry out a journal; doing it again changes nothing. What is done is on the disk before the next step."""
        (self.path / SUCCESS).unlink(missing_ok=True)
        sync(self.path)
        folders = {self.path}
        for source, target in journal["moves"]:
            path = self.path / target
            if path.parent not in folders:
                path.parent.mkdir(parents=True, exist_ok=True)
                folders.update(_up_to(path.parent, self.path))
            with suppress(FileNotFoundError):  # moved before the interruption
                os.replace(self.path / source, path)
                folders.add((self.path / source).parent)
        _sync_all(folders)
        _write_json(self.path / MANIFEST, journal["manifest"])
        follow_table(self.path, journal["manifest"])
        left = {self.path}
        for name in journal["removed"]:
            (self.path / name).unlink(missing_ok=True)
            left.update(_up_to((self.path / name).parent, self.path))
            _remove_empty((self.path / name).parent, self.path)
        _sync_all(left)
        (self.path / SUCCESS).touch()
        sync(self.path)
        (self.path / JOURNAL).unlink(missing_ok=True)

    def close(self) -> None:
        """Remove files that were not committed, and the directories that were made when nothing is in them."""
        if not (self.path / JOURNAL).exists():
            shutil.rmtree(self._folder, ignore_errors=True)
        self._remove_made()
        os.close(self._lock)

    def _remove_made(self) -> None:
        for folder in self._made:
            with suppress(OSError):  # what holds something, and all around it, stays
                folder.rmdir()


def _lock(path: Path) -> int:
    """A descriptor of the directory that holds its lock, where the file system has locks."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise RmqtoolError("another export is writing to this output", file=path) from error
    except OSError:
        return descriptor  # NFS locks only what is open for writing
    return descriptor


def as_json(value: dict[str, Any]) -> bytes:
    """A manifest or a journal as the bytes of its file."""
    return json.dumps(value, ensure_ascii=False, indent=1).encode()


def _write_json(path: Path, value: dict[str, Any]) -> None:
    with whole_file(path) as file:
        file.write(as_json(value))


def _up_to(folder: Path, root: Path) -> Iterator[Path]:
    """A folder and those above it, up to `root`."""
    while folder != root:
        yield folder
        folder = folder.parent
    yield root


def _sync_all(folders: Iterable[Path]) -> None:
    """Have the names in folders on the disk; those that were removed are in the folders above."""
    for folder in folders:
        with suppress(FileNotFoundError):
            sync(folder)


def _remove_empty(folder: Path, root: Path) -> None:
    """Remove the folders up to `root` that hold nothing any more."""
    while folder != root:
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent


OURS = re.compile(r"(.*/)?part-(empty|\d{5}-\d{20}(-tail)?(-\d{5})?)-[0-9a-f]{12}(-[0-9a-f]{8})?\.[a-z0-9.]+", re.ASCII)
_OTHER = "another run has written to this output meanwhile: this run has added nothing"


class RemoteOutput(Closing):
    """The output while a run writes to it; files that are not committed are removed when it is closed.

    No lock keeps other runs away. One that has changed the output meanwhile is noticed by the commit, which then fails.
    Raises UsageError where the mode forbids the place, RmqtoolError when it cannot be written.
    """

    def __init__(self, path: RemotePath, mode: Mode) -> None:
        self.path = path
        run = uuid.uuid4().hex[:12]
        self.target = Target(path, run, is_direct=True)
        with output_errors(path):
            self._recover()
            self._before = self._stored(MANIFEST)
            self.manifest = None if self._before is None else parse_manifest(self._before, path / MANIFEST)
            names = [name for name, _ in files_in(path)]
            check_mode(path, self.manifest, mode, is_empty=all(OURS.fullmatch(name) for name in names))
            self._remove([name for name in names if OURS.fullmatch(name) and name not in _paths(self.manifest)])

    def commit(self, commit: Commit) -> None:
        """Make all files of a run part of the export; raises RmqtoolError where one is missing."""
        journal = {"manifest": commit.manifest, "removed": list(commit.removed)}
        with output_errors(self.path):
            there = dict(files_in(self.path))
            if (
                any(there.get(file.path) != file.bytes for file in commit.files)
                or self._stored(MANIFEST) != self._before
            ):
                raise RmqtoolError(_OTHER, file=self.path, hint="run it again, one run at a time")
            write_remote(self._file(REMOTE_JOURNAL), as_json(journal))
            self._apply(journal)

    def close(self) -> None:
        """Remove files of this run that were not committed: those of attempts that failed, or of all."""
        with suppress(OSError, RmqtoolError):  # the next run removes them, too
            known = _paths(manifest_there(self.path))
            mark = f"-{self.target.run}"
            self._remove([name for name, _ in files_in(self.path) if mark in name and name not in known])

    def _recover(self) -> None:
        """Finish a commit that was interrupted: what it had written down, if that is whole."""
        data = self._stored(REMOTE_JOURNAL)
        if data is not None:
            with suppress(ValueError):
                self._apply(json.loads(data))
                notice(FINISHED)
            remove_remote(self._file(REMOTE_JOURNAL))

    def _apply(self, journal: dict[str, Any]) -> None:
        """Carry out a journal; doing it again changes nothing."""
        remove_remote(self._file(SUCCESS))
        write_remote(self._file(MANIFEST), as_json(journal["manifest"]))
        follow_table(self.path, journal["manifest"])
        self._remove(journal["removed"])
        write_remote(self._file(SUCCESS), b"")
        remove_remote(self._file(REMOTE_JOURNAL))

    def _remove(self, names: list[str]) -> None:
        for name in names:
            remove_remote(self._file(name))

    def _stored(self, name: str) -> bytes | None:
        try:
            return read_remote(self._file(name))
        except FileNotFoundError:
            return None

    def _file(self, name: str) -> RemotePath:
        return RemotePath(*self.path.parts, *name.split("/"))


def _paths(manifest: dict[str, Any] | None) -> set[str]:
    return {file["path"] for kind in ("files", "damaged") for file in (manifest or {}).get(kind, [])}
