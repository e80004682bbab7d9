"""A copy on another machine: objects that are written as a whole and never changed, and the manifest that names them.

Nothing can be appended or renamed there. An object has the data of one file, without the zeros after it, or that of
many small files. Each run writes objects of its own names; those that no manifest names go once the new one is there.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from rmqtool.base.errors import ChangedError, RmqtoolError, UnreachableError, UsageError, notice
from rmqtool.base.files import InputFile, Progress, ReadPolicy
from rmqtool.base.filesystems import one_line
from rmqtool.base.remote_files import WITH_DIRECTORIES, RemoteSink, files_in, read_remote, remove_remote, write_remote
from rmqtool.base.remote_path import RemotePath, located, unread_there
from rmqtool.copy.manifest import MANIFEST, CopiedFile, Difference, Manifest, read_manifest
from rmqtool.copy.notes import note_lines, noted_files
from rmqtool.copy.transfer import Content, Hashed, pieces
from rmqtool.transaction.paths import HOME

_NEXT_MANIFEST = f"{HOME}/manifest-next.json"
_OBJECTS, _NOTES = f"{HOME}/objects", f"{HOME}/notes"
_PACK = ".pack-"
_SMALL = 1 << 20  # bytes of data up to which files share an object
_MOST_PACKED = 256 << 20  # bytes of such an object
_FLUSHED = 16 << 20  # bytes that may be on their way, and in memory
_BLOCK = 4 << 20  # bytes
_NOTED = 256 << 20  # bytes that are copied between two notes
_NOTE_SECONDS = 20
_TRIES, _PAUSE = 3, 2.0  # of an object, seconds
_ZEROS = bytes(_BLOCK)


class RemoteCopy:
    """The copy at `root`, which may not be there yet; raises RmqtoolError."""

    def __init__(self, root: RemotePath) -> None:
        self.root = root
        self.manifest = read_remote_manifest(root)
        self.list_again()

    def list_again(self) -> None:
        """See what is there now."""
        with _reading(self.root):
            self._sizes = dict(files_in(self.root))

    @property
    def strangers(self) -> list[str]:
        """What is there that no copy has."""
        return [name for name in self._sizes if not name.startswith(f"{HOME}/")]

    def has(self, file: CopiedFile) -> bool:
        """Whether the data of a file is there, by its size."""
        return file.object is None or self._sizes.get(file.object, -1) >= file.at + file.used

    def read(self, file: CopiedFile, position: int, size: int) -> bytes:
        """Some bytes of a file's data."""
        if file.object is None:
            return b""
        with InputFile(self.root / file.object) as opened:
            return opened.read(file.at + position, size)

    def noted(self, head: dict[str, object]) -> dict[str, CopiedFile]:
        """What interrupted runs have copied of the store that `head` names, and is there."""
        found: dict[str, CopiedFile] = {}
        for name in sorted(self._sizes):
            if name.startswith(f"{_NOTES}/"):
                with _reading(self.root), suppress(FileNotFoundError):
                    found |= noted_files(read_remote(self.root / name), head) or {}
        return {name: file for name, file in found.items() if self.has(file)}

    def contents(self, reading: ReadPolicy, progress: Progress) -> Iterator[tuple[CopiedFile, Iterator[bytes]]]:
        """Each file of the manifest with its data, in the order of the objects; raises RmqtoolError."""
        files = sorted(self.manifest.files, key=lambda file: (file.object or "", file.at)) if self.manifest else []
        opened: InputFile | None = None
        name: str | None = None
        try:
            for file in files:
                if file.object != name:
                    if opened:
                        opened.close()
                    opened, name = None, file.object
                if name and opened is None and self.has(file):
                    opened = InputFile(self.root / name, reading)
                yield file, _parts(opened, file, progress) if opened else iter(())
        finally:
            if opened:
                opened.close()


def read_remote_manifest(root: RemotePath) -> Manifest | None:
    """The manifest of a copy on another machine; None without one. Raises RmqtoolError."""
    return read_manifest(root) or read_manifest(root, _NEXT_MANIFEST)


def _parts(opened: InputFile, file: CopiedFile, progress: Progress) -> Iterator[bytes]:
    for start in range(0, file.used, _BLOCK):
        data = opened.read(file.at + start, min(_BLOCK, file.used - start))
        progress(len(data))
        yield data


def remote_differences(copy: RemoteCopy, reading: ReadPolicy, progress: Progress) -> Iterator[Difference]:
    """What is not as the manifest says: each byte is read."""
    for file, parts in copy.contents(reading, progress):
        if not copy.has(file):
            yield Difference(file.path, "missing", file.size)
            continue
        found = hashlib.sha256()
        for part in parts:
            found.update(part)
        if found.hexdigest() != file.sha256:
            yield Difference(file.path, "content", file.sha256, found.hexdigest())


class Uploads:
    """What one run adds to a copy on another machine; `head` names the store in its notes."""

    def __init__(self, copy: RemoteCopy, head: dict[str, object], reading: ReadPolicy) -> None:
        self._copy, self._head, self._reading = copy, head, reading
        self._run = f"{time.time_ns() // 1_000_000}"
        self._noted = copy.noted(head)
        self._before = copy.manifest.by_path if copy.manifest else {}
        self._noting = threading.Lock()
        self._unnoted: list[CopiedFile] = []
        self._unnoted_bytes, self._notes, self._packs = 0, 0, 0
        self._last_note = time.monotonic()

    def known(self, name: str, is_same: Callable[[CopiedFile], bool]) -> tuple[CopiedFile | None, bool]:
        """A file that an interrupted run or the earlier copy has, and whether it is the earlier copy's."""
        for known, is_earlier in ((self._noted, False), (self._before, True)):
            file = known.get(name)
            if file and is_same(file) and self._copy.has(file):
                return file, is_earlier
        return None, False

    def put(self, name: str, path: Path, progress: Progress) -> tuple[Content, str | None]:
        """Write the data of a file of this machine as an object; its content, and the object's name."""
        there = f"{_OBJECTS}/{self._run}/{name}"
        content = self._tried(there, lambda sink: _send(path, sink, self._reading, progress))
        return content, there if content.used else None

    def note(self, file: CopiedFile) -> None:
        """Note a file that is there, for a run that goes on; for several threads."""
        with self._noting:
            self._unnoted.append(file)
            self._unnoted_bytes += file.used
            if self._unnoted_bytes >= _NOTED or time.monotonic() - self._last_note > _NOTE_SECONDS:
                self._notes += 1
                name = f"{_NOTES}/{self._run}-{self._notes:06}"
                with written_there(self._copy.root):
                    write_remote(self._copy.root / name, note_lines(self._head, self._unnoted))
                self._unnoted, self._unnoted_bytes, self._last_note = [], 0, time.monotonic()

    def put_all(self, root: Path, files: Sequence[CopiedFile], progress: Progress) -> Iterator[CopiedFile]:
        """Write files of this machine, small ones together; each as the manifest names it."""
        packed: list[CopiedFile] = []
        size = 0
        for file in files:
            before = self._before.get(file.path)
            if not file.used:
                yield file
            elif before and self._is_there(before, file):
                yield replace(file, object=before.object, at=before.at)
            elif file.used > _SMALL:
                content, there = self.put(file.path, root / file.path, progress)
                _require_same(root / file.path, file, content)
                yield replace(file, object=there)
            else:
                packed.append(file)
                size += file.used
                if size >= _MOST_PACKED:
                    yield from self._put_packed(root, packed, progress)
                    packed, size = [], 0
        if packed:
            yield from self._put_packed(root, packed, progress)

    def _is_there(self, before: CopiedFile, file: CopiedFile) -> bool:
        """Whether the earlier copy has the same data in an object of its own."""
        same = (before.used, before.sha256) == (file.used, file.sha256)
        return same and before.object is not None and _PACK not in before.object and self._copy.has(before)

    def _put_packed(self, root: Path, files: Sequence[CopiedFile], progress: Progress) -> Iterator[CopiedFile]:
        self._packs += 1
        there = f"{_OBJECTS}/{self._run}{_PACK}{self._packs}"

        def send(sink: RemoteSink) -> list[CopiedFile]:
            placed = []
            for file in files:
                placed.append(replace(file, object=there, at=sink.size))
                _require_same(root / file.path, file, _send(root / file.path, sink, self._reading, progress))
            return placed

        yield from self._tried(there, send)

    def _tried(self, there: str, send: Callable[[RemoteSink], Any]) -> Any:
        """Write one object, and once more as a whole where a request fails."""
        for attempt in range(_TRIES):
            with written_there(self._copy.root):
                try:
                    return _written(self._copy.root / there, send)
                except PermissionError:
                    raise
                except OSError:
                    if attempt == _TRIES - 1:
                        raise
            time.sleep(_PAUSE)
        raise AssertionError

    def commit(self, manifest: Manifest) -> None:
        """Write the manifest, which makes the copy the one that is there; what it does not name goes."""
        root = self._copy.root
        if _name_of(read_remote_manifest(root)) != _name_of(self._copy.manifest):
            raise ChangedError("another run has updated this copy in the meantime: this run changes nothing", file=root,
                               hint="only one machine at a time should write a copy")  # fmt: skip
        self._copy.list_again()
        for file in manifest.files:
            if not self._copy.has(file):
                raise ChangedError("objects of this run are gone: something else deletes them",
                                   file=root / str(file.object))  # fmt: skip
        with written_there(root):
            _write_manifest(root, manifest.encoded())
        try:
            self._remove_unnamed({file.object for file in manifest.files})
        except OSError as error:
            notice(f"{root}: the copy is complete, but old objects cannot be deleted: {one_line(error)}")

    def _remove_unnamed(self, named: set[str | None]) -> None:
        root = self._copy.root
        system, place = located(root)
        runs = {name.split("/")[2] for name in named if name}
        left = [name for name, _ in files_in(root) if name.startswith((f"{_OBJECTS}/", f"{_NOTES}/"))]
        for run in sorted({name.split("/")[2] for name in left if name.startswith(f"{_OBJECTS}/")} - runs):
            with suppress(FileNotFoundError):
                if _PACK not in run:
                    system.delete_dir(f"{place}/{_OBJECTS}/{run}")
                    left = [name for name in left if not name.startswith(f"{_OBJECTS}/{run}/")]
        for name in left:
            if name not in named:
                remove_remote(root / name)


def _written(path: RemotePath, send: Callable[[RemoteSink], Any]) -> Any:
    """Write an object; raises OSError. What could not be written as a whole is not there, or is in no manifest."""
    sink = RemoteSink(path)
    try:
        found = send(sink)
    except BaseException:
        sink.abandon()
        raise
    sink.close()
    return found


def _send(path: Path, sink: RemoteSink, reading: ReadPolicy, progress: Progress) -> Content:
    """Write the data of a file, up to its last byte that is not zero."""
    hashed, begin, flushed = Hashed(), sink.size, sink.size
    with InputFile(path, reading) as source:
        for position, data in pieces(source, source.size):
            hashed.add(data, position)
            while (gap := begin + position - sink.size) > 0:  # zeros in the middle
                sink.write(memoryview(_ZEROS)[: min(gap, _BLOCK)])
            sink.write(memoryview(data)[: hashed.used - position])
            if sink.size - flushed >= _FLUSHED:
                sink.flush_sent()
                flushed = sink.size
            progress(len(data))
        return hashed.content(source.size)


def _require_same(path: Path, file: CopiedFile, content: Content) -> None:
    if (content.used, content.sha256) != (file.used, file.sha256):
        raise ChangedError("the file was changed while it was copied", file=path)


def _write_manifest(root: RemotePath, data: bytes) -> None:
    """Write the manifest so that there is a whole one at any moment; raises OSError."""
    if root.scheme not in WITH_DIRECTORIES:
        write_remote(root / MANIFEST, data)
        return
    write_remote(root / _NEXT_MANIFEST, data)
    remove_remote(root / MANIFEST)
    (system, place), (_, goal) = located(root / _NEXT_MANIFEST), located(root / MANIFEST)
    system.move(place, goal)


def _name_of(manifest: Manifest | None) -> tuple[object, ...] | None:
    return (manifest.host, manifest.started, manifest.ended) if manifest else None


@contextmanager
def _reading(root: RemotePath) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise unread_there(root, None, error) from error


@contextmanager
def written_there(root: RemotePath) -> Iterator[None]:
    """Turn an OSError of writing on another machine into an RmqtoolError with a hint what to do."""
    try:
        yield
    except PermissionError as error:
        hint = "check the credentials and their permission to write"
        raise RmqtoolError(f"cannot write: {one_line(error)}", file=root, hint=hint) from error
    except OSError as error:
        hint = "run it again when that machine answers: it continues"
        raise UnreachableError(f"cannot write: {one_line(error)}", file=root, hint=hint) from error


def require_place(copy: RemoteCopy, *, update: bool) -> None:
    """Raise UsageError unless a copy can be made, or brought up to date, at its place."""
    root = copy.root
    if update and copy.manifest is None:
        raise UsageError("this is not a copy: it has no manifest; without --update a copy is made", file=root)
    if not update and copy.manifest:
        raise UsageError("there is a copy already", file=root, hint="--update updates it")
    if copy.strangers:
        raise UsageError("--output must be empty, or a copy", file=root)
