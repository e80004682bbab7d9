"""One file, or one database, from a store that a broker writes: holes stay holes, each byte is hashed on its way."""

from __future__ import annotations

import hashlib
import os
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import numpy as np

from rmqtool.base.errors import ChangedError, RmqtoolError, UnreadableError
from rmqtool.base.files import InputFile, Progress, ReadPolicy, is_zero, length_without_zeros, list_directory, read_all
from rmqtool.base.new_files import new_file, share, write_all
from rmqtool.formats.index_file import HEADER_DTYPE, HEADER_SIZE, SLOT_DTYPE, UNIT_DTYPE, UNIT_SIZE, unit_position
from rmqtool.formats.layout import integer_at
from rmqtool.store.config_json import parse_fastjson
from rmqtool.store.index_files import Geometry
from rmqtool.store.rocksdb import RocksDb, is_readable

_BLOCK = 1 << 20  # bytes: what is read is still in the processor's cache when it is hashed
_PAGE = 4096
_LARGE = 8 << 20  # bytes of a file that is hashed in a thread of its own
_WAITING = 8  # pieces that are read and not hashed yet
Piece = bytes | memoryview
_ZEROS = bytes(_BLOCK)
_TRIES, _PAUSE = 50, 0.002  # a broker writes a small file in less, seconds
_DATABASE_PAUSE = 0.1  # while a database writes a table
_JSON = ".json"
_MAX_SMALL = 256 << 20  # bytes of a JSON file
_CURRENT, _MANIFEST, _TABLE, _LOG = "CURRENT", "MANIFEST-", ".sst", ".log"
_OF_PROCESS = ("LOCK", "LOG", "rocksdict-config.json")


@dataclass(frozen=True)
class Content:
    """A file's size, where its data ends, and the hash of all up to there, bytes; what follows is zeros."""

    size: int
    used: int
    sha256: str


class Hashed:
    """SHA-256 of data that comes in pieces, with holes between them; zeros at the end do not count."""

    kept = 1  # pieces that must stay as they are

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.used = 0

    def add(self, data: Piece, position: int) -> None:
        """Hash a piece that is at a position, after those before it."""
        length = length_without_zeros(data)
        if not length:
            return
        while self.used < position:
            zeros = min(len(_ZEROS), position - self.used)
            self._hash.update(memoryview(_ZEROS)[:zeros])
            self.used += zeros
        self._hash.update(memoryview(data)[:length])
        self.used = position + length

    def content(self, size: int) -> Content:
        """That of a file of so many bytes."""
        return Content(size, self.used, self._hash.hexdigest())


class _HashedBeside:
    """The same in a thread of its own, a few pieces behind."""

    kept = _WAITING + 2

    def __init__(self, thread: Executor) -> None:
        self._hashed, self._thread = Hashed(), thread
        self._waiting: deque[Future[None]] = deque()

    def add(self, data: Piece, position: int) -> None:
        """Hash a piece, once those before it are done."""
        self._waiting.append(self._thread.submit(self._hashed.add, data, position))
        while len(self._waiting) > _WAITING:
            self._waiting.popleft().result()

    def finish(self) -> None:
        """Wait for all pieces."""
        while self._waiting:
            self._waiting.popleft().result()

    def content(self, size: int) -> Content:
        """The hash of all."""
        return self._hashed.content(size)


def pieces(source: InputFile, stop: int, kept: int = 1) -> Iterator[tuple[int, memoryview]]:
    """The data of a file before `stop`, with positions; holes and zeros are left out.

    The last `kept` pieces are as they were read; those before them are not.
    """
    position, buffers = 0, cycle([memoryview(bytearray(min(_BLOCK, max(1, stop)))) for _ in range(kept)])
    while (position := source.next_stored(position, stop)) < stop:
        position -= position % _PAGE
        buffer = next(buffers)[: stop - position]
        data = buffer[: source.read_into(buffer, position)]
        if not data:
            return
        if not is_zero(data):
            yield position, data
        position += len(data)


def _written(data: Piece) -> Iterator[tuple[int, int]]:
    """The parts of some data, in whole pages, that are not zero: a wheel of timers has few pages with data."""
    firsts = np.frombuffer(data, np.uint8)[::_PAGE]
    start = 0
    for page in np.flatnonzero(firsts == 0).tolist():
        at = page * _PAGE
        if is_zero(data[at : at + _PAGE]):
            if at > start:
                yield start, at
            start = at + _PAGE
    if start < len(data):
        yield start, len(data)


def content_of(path: Path, reading: ReadPolicy, progress: Progress) -> Content:
    """Read a file, and hash it; `progress` takes what was read since its last call, bytes."""
    with InputFile(path, reading) as source, _hashing(source.size) as hashed:
        size = source.size
        for position, data in pieces(source, size, hashed.kept):
            hashed.add(data, position)
            progress(len(data))
    return hashed.content(size)


def copy_content(
    path: Path,
    to: Path,
    reading: ReadPolicy,
    progress: Progress,
    stop: int | None = None,
    *,
    is_full: bool = False,
    is_one_of_many: bool = False,
) -> Content:
    """Copy a file's data, up to `stop` if that is given, into a new file of the same size; raises as `InputFile`.

    What `is_full` stays as it is: the copy shares its data where the file system can. A large file is hashed in a
    thread of its own, unless it is one of many that are copied at the same time.
    """
    to.unlink(missing_ok=True)
    with InputFile(path, reading) as source, new_file(to, source.size) as target:
        is_shared = is_full and stop is None and share(source, target)
        with _hashing(0 if is_one_of_many else source.size) as hashed:
            end_of_data = source.size if stop is None else min(stop, source.size)
            for position, data in pieces(source, end_of_data, hashed.kept):
                hashed.add(data, position)
                for start, end in () if is_shared else _written(data):
                    write_all(target, data[start:end], position + start)
                progress(len(data))
        return hashed.content(source.size)


@contextmanager
def _hashing(size: int) -> Iterator[Hashed | _HashedBeside]:
    """A hash, for large files in a thread beside the one that reads and writes."""
    if size < _LARGE:
        yield Hashed()
        return
    with ThreadPoolExecutor(1) as thread:
        hashed = _HashedBeside(thread)
        yield hashed
        hashed.finish()


def copy_attributes(status: os.stat_result, to: Path) -> None:
    """Give a copy the mode and times of a file; its owner too, where this process may give files away."""
    os.chmod(to, status.st_mode & 0o7777)
    if os.geteuid() == 0:
        os.chown(to, status.st_uid, status.st_gid)
    os.utime(to, ns=(status.st_atime_ns, status.st_mtime_ns))


def copy_small(path: Path, to: Path) -> bool:
    """Copy a small file as a whole, though the broker writes it in place; False where none is there, or no whole one.

    Releases from 5.1.0 on write into the file: a reader may see it empty or half. Older ones delete it, and rename.
    A file that stays as it is, is copied as it is.
    """
    before: bytes | None = None
    for attempt in range(_TRIES):
        data, status = _read_small(path)
        if data is not None and data == before and (_is_whole(path, data) or attempt == _TRIES - 1):
            with new_file(to, len(data)) as target:
                write_all(target, data, 0)
            copy_attributes(status or os.stat(path), to)
            return True
        is_new, before = data is not None and data != before, data
        if not (is_new and data is not None and _is_whole(path, data)):  # else it is read a second time at once
            time.sleep(_PAUSE)
    return False


def _read_small(path: Path) -> tuple[bytes | None, os.stat_result | None]:
    try:
        return read_all(path, _MAX_SMALL), os.stat(path)
    except FileNotFoundError:
        return None, None
    except UnreadableError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None, None
        raise


def _is_whole(path: Path, data: bytes) -> bool:
    """Whether JSON can be parsed; of other files two readings that agree must do."""
    if not path.name.removesuffix(".bak").endswith(_JSON):
        return True
    try:
        parse_fastjson(data.decode("utf-8"))
    except (ValueError, RecursionError):
        return False
    return bool(data.strip())


def copy_index(path: Path, to: Path, geometry: Geometry | None, reading: ReadPolicy, progress: Progress) -> Content:
    """Copy an index file that grows: header, slots and units as they were when the header was read.

    The broker writes a unit before its slot, and the slot before the count in the header. A slot that points at a unit
    past the count is for the broker empty, and the whole chain lost: it gets the newest unit that the header counts.
    """
    if geometry is None:
        return copy_content(path, to, reading, progress)
    with InputFile(path, reading) as source:
        head = source.read(0, HEADER_SIZE)  # once: it goes into the copy as it counts here
        count = max(integer_at(HEADER_DTYPE, "index_count", head.ljust(HEADER_SIZE, b"\0")), 1)
        slots = np.frombuffer(source.read(HEADER_SIZE, geometry.slots * SLOT_DTYPE.itemsize), SLOT_DTYPE).copy()
        for slot in np.flatnonzero(slots >= count).tolist():
            unit = int(slots[slot])
            while unit >= count:
                raw = source.read(unit_position(geometry.slots, unit), UNIT_SIZE)
                unit = int(np.frombuffer(raw.ljust(UNIT_SIZE, b"\0"), UNIT_DTYPE)[0]["previous"])
            slots[slot] = max(0, unit)
        end = unit_position(geometry.slots, count)
    content = copy_content(path, to, reading, progress, end)
    data = bytes(head) + slots.tobytes()
    with new_file(to, content.size) as target:
        for start in range(0, len(data), _BLOCK):
            piece = data[start : start + _BLOCK]
            if piece.strip(b"\0") or os.pread(target, len(piece), start) != piece:  # holes stay holes
                write_all(target, piece, start)
    return content_of(to, ReadPolicy(), lambda _: None)


def copy_database(directory: Path, to: Path, reading: ReadPolicy, progress: Progress) -> dict[str, os.stat_result]:
    """Copy a database of RocksDB as a consistent set; the files of it by name.

    Tables never change, so that those which are there already stay. The MANIFEST that CURRENT names says which count:
    where it, or the set of files, has changed in the meantime, all is looked at again. Raises ChangedError.
    """
    problem: RmqtoolError | None = None
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(_DATABASE_PAUSE)
        try:
            found = _copy_once(directory, to, reading, progress)
        except (FileNotFoundError, UnreadableError) as error:  # a table that a compaction has replaced
            if isinstance(error, UnreadableError):
                if not isinstance(error.__cause__, FileNotFoundError):
                    raise
                problem = error
            continue
        if found is None:
            continue
        for entry in list_directory(to):
            if entry.name not in found and entry.is_file():  # queues may have files as well, in directories beside it
                (to / entry.name).unlink()
        problem = _opening_problem(to)
        if problem is None or (attempt >= 2 and _opening_problem(directory)):
            return found
    message = "a database of RocksDB changes faster than it can be copied"
    raise ChangedError(f"{message}{f': {problem}' if problem else ''}", file=directory)


def copy_tables(directory: Path, to: Path, reading: ReadPolicy, progress: Progress) -> None:
    """Copy the tables of a database, which take the longest and never change."""
    to.mkdir(parents=True, exist_ok=True)
    for entry in list_directory(directory):
        if entry.name.endswith(_TABLE):
            try:
                _copy_table(directory / entry.name, to / entry.name, reading, progress)
            except (FileNotFoundError, UnreadableError):
                continue


def _copy_table(path: Path, to: Path, reading: ReadPolicy, progress: Progress) -> os.stat_result:
    status = os.stat(path)
    try:
        there = os.stat(to)
    except FileNotFoundError:
        there = None
    if there is None or (there.st_size, there.st_mtime_ns) != (status.st_size, status.st_mtime_ns):
        copy_content(path, to, reading, progress)
        copy_attributes(status, to)
    return status


def _copy_once(directory: Path, to: Path, reading: ReadPolicy, progress: Progress) -> dict[str, os.stat_result] | None:
    """One attempt; None where the database has changed meanwhile."""
    to.mkdir(parents=True, exist_ok=True)
    found: dict[str, os.stat_result] = {}
    copy_tables(directory, to, reading, progress)
    current = read_all(directory / _CURRENT, _PAGE)
    manifest = directory / current.decode("utf-8", "replace").strip()
    size = os.stat(manifest).st_size
    for entry in list_directory(directory):
        name = entry.name
        if name.startswith(_OF_PROCESS) or not entry.is_file():
            continue
        if name.startswith(_MANIFEST) and name != manifest.name:
            continue
        path = directory / name
        if name.endswith(_TABLE):
            found[name] = _copy_table(path, to / name, reading, progress)
            continue
        found[name] = os.stat(path)
        copy_content(path, to / name, reading, progress, size if path == manifest else None)
        if path == manifest:
            os.truncate(to / name, size)
        copy_attributes(found[name], to / name)
    if read_all(directory / _CURRENT, _PAGE) != current or os.stat(manifest).st_size != size:
        return None
    return found


def _opening_problem(directory: Path) -> RmqtoolError | None:
    """Why RocksDB does not open a database; None too where the library is not installed."""
    if not is_readable():
        return None
    try:
        with RocksDb(directory) as database:
            database.check_tables()
    except RmqtoolError as error:
        return error
    return None


@contextmanager
def vanishing(path: Path) -> Iterator[list[bool]]:
    """What the broker may delete meanwhile is no error: the list gets True."""
    gone: list[bool] = []
    try:
        yield gone
    except FileNotFoundError:
        gone.append(True)
    except UnreadableError as error:
        if not isinstance(error.__cause__, FileNotFoundError) or os.path.lexists(path):
            raise
        gone.append(True)
