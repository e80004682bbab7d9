"""The manifest of a copy, written last: without it a copy is none. It says what each file is, and where it is from."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rmqtool.base.errors import UnreadableError, UnsupportedError
from rmqtool.base.files import UNLIMITED, Progress, ReadPolicy, list_directory, no_progress, read_all
from rmqtool.base.new_files import whole_file
from rmqtool.base.paths import entry_path
from rmqtool.copy.transfer import content_of
from rmqtool.store.store import CHECKPOINT
from rmqtool.transaction.paths import HOME

MANIFEST = f"{HOME}/manifest.json"
FORMAT = 1
_MOST = 1 << 30  # bytes
_SECOND = 10**9  # ns
_BY_PROCESS = ("lock",)  # what reading programs leave


@dataclass(frozen=True)
class Origin:
    """A file of the source as it was when it was copied: size, modification time and inode."""

    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> Origin:
        """That of a status."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ino)


@dataclass(frozen=True)
class CopiedFile:
    """One file of a copy; `used` is where its data ends, `sha256` of all up to there.

    `first` and `end` are offsets: of a log file bytes of the log, of a queue file units. `is_full`: the broker writes
    it no more, so that the same `origin` is the same file. On another machine its data is in an `object`, from `at` on.
    """

    path: str
    kind: str
    size: int
    used: int
    sha256: str
    mtime_ns: int
    first: int | None = None
    end: int | None = None
    is_full: bool = False
    origin: Origin | None = None
    object: str | None = None
    at: int = 0


@dataclass(frozen=True)
class Manifest:
    """A copy: where it is from, which part of the log it has, and its files; times are epoch ms, offsets bytes."""

    source: str
    host: str
    tool: str
    started: int
    ended: int
    settled: bool
    running: bool
    release: str
    min_offset: int
    end_offset: int
    last_record: int
    last_store_timestamp: int
    identity: str | None = None  # of whom it is, where not of the same broker
    files: Sequence[CopiedFile] = field(default=())
    format: int = FORMAT

    def write(self, root: Path) -> None:
        """Write it into a copy, on the disk as a whole; raises OSError."""
        path = root / MANIFEST
        path.parent.mkdir(exist_ok=True)
        with whole_file(path) as target:
            target.write(self.encoded())

    def encoded(self) -> bytes:
        """It as a JSON document, with a line for each file."""
        lines = ",\n".join(json.dumps(_document(file), ensure_ascii=False) for file in self.files)
        head = json.dumps({name: value for name, value in vars(self).items() if name != "files"}, ensure_ascii=False)
        return f'{head[:-1]}, "files": [\n{lines}\n]}}\n'.encode("utf-8", "surrogateescape")

    @property
    def by_path(self) -> dict[str, CopiedFile]:
        """Its files by their paths."""
        return {file.path: file for file in self.files}


def read_manifest(root: Path, name: str = MANIFEST) -> Manifest | None:
    """The manifest of a copy, None without one; raises UnreadableError, UnsupportedError."""
    path = root / name
    try:
        data = read_all(path, _MOST)
    except UnreadableError as error:
        if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            return None
        raise
    try:
        document: dict[str, Any] = json.loads(data.decode("utf-8", "surrogateescape"))
        if document["format"] != FORMAT:
            raise UnsupportedError(f"a manifest of format {document['format']}, not {FORMAT}", file=path)
        files = [copied_file(each) for each in document["files"]]
        return Manifest(**{**document, "files": tuple(files)})
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadableError(f"not a manifest of a copy: {error}", file=path) from error


def _document(file: CopiedFile) -> dict[str, Any]:
    """A file in a manifest; one that is no object is a file of its path."""
    document = asdict(file)
    if file.object is None:
        del document["object"], document["at"]
    return document


def copied_file(document: dict[str, Any]) -> CopiedFile:
    """A file of a document as manifests and notes have them; raises TypeError, KeyError."""
    origin = document["origin"]
    return CopiedFile(**{**document, "origin": origin and Origin(**origin)})


@dataclass(frozen=True)
class Difference:
    """A file that is not as the manifest says: ``missing``, ``extra``, of another ``size`` or other ``content``."""

    path: str
    problem: str
    expected: int | str | None = None
    found: int | str | None = None


def differences(root: Path, manifest: Manifest, reading: ReadPolicy, progress: Progress) -> Iterator[Difference]:
    """What is not as the manifest says: each byte is read."""
    expected = manifest.by_path
    for name in sorted(_names(root, "")):
        if name not in expected and name not in _BY_PROCESS:
            yield Difference(name, "extra")
    for file in manifest.files:
        path = root / file.path
        try:
            size = os.stat(path).st_size
        except (FileNotFoundError, NotADirectoryError):
            yield Difference(file.path, "missing", file.size)
            continue
        if size != file.size:
            yield Difference(file.path, "size", file.size, size)
            continue
        found = content_of(path, reading, progress)
        if (found.used, found.sha256) != (file.used, file.sha256):
            yield Difference(file.path, "content", file.sha256, found.sha256)


def is_unchanged(root: Path, manifest: Manifest) -> bool:
    """Whether no broker has run on a copy since it was made: its files have the sizes and times of the manifest.

    A copy that was itself moved without its times is known by what a broker changes: checkpoint and end of the log.
    """
    times_differ = False
    for file in manifest.files:
        try:
            status = os.stat(root / file.path)
        except OSError:
            return False
        if status.st_size != file.size:
            return False
        times_differ |= status.st_mtime_ns // _SECOND != file.mtime_ns // _SECOND
    return not times_differ or all(_has_content(root, file) for file in _written_by_each_start(manifest))


def _written_by_each_start(manifest: Manifest) -> list[CopiedFile]:
    logs = [file for file in manifest.files if file.kind == "log"]
    return [file for file in manifest.files if file.path == CHECKPOINT] + logs[-1:]


def _has_content(root: Path, file: CopiedFile) -> bool:
    found = content_of(root / file.path, UNLIMITED, no_progress)
    return (found.used, found.sha256) == (file.used, file.sha256)


def _names(root: Path, name: str) -> Iterator[str]:
    """The files of a copy, but those of our own directory."""
    for entry in list_directory(root / name if name else root):
        relative = f"{name}/{entry.name}" if name else entry.name
        if entry.is_dir():
            if relative != HOME:
                yield from _names(root, relative)
        else:
            yield entry_path(entry).relative_to(root).as_posix()
