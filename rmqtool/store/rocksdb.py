"""A RocksDB database of a broker, read without touching it.

The library writes into the directory that it opens, also to read. So it only sees a directory of links elsewhere; it
replays the log of the database into memory there, and what a running broker has not flushed is not seen. Of a database
on another machine they are copies.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import weakref
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from rmqtool.base.errors import UnreadableError, UnsupportedError, UnwritableError, note_failure, notice, reason_of
from rmqtool.base.files import Closing, InputFile, list_directory, read_all
from rmqtool.base.new_files import own_directory
from rmqtool.base.numbers import byte_size
from rmqtool.base.paths import DirectoryEntry, is_remote
from rmqtool.formats.layout import FormatError
from rmqtool.formats.rocksdb_log import first_damage, oldest_log

MOST_COPIED = 4 << 30
"""Bytes of the largest database that is copied."""

_AT_ONCE = 8 << 20
_OTHER_PLACE = "set TMPDIR to a directory with more space, or copy the store to this machine"


_WORTH_A_NOTE = 1 << 20  # bytes; of smaller ones only the first is noted
_noted: set[Path] = set()  # a database is opened again and again


def require_room(directory: Path) -> int:
    """The size in bytes of a database on another machine; raises UnsupportedError, UnreadableError.

    UnsupportedError where it is too large to be copied, or the disk here has too little room for it.
    """
    size = sum(entry.stat().st_size for entry in list_directory(directory) if entry.is_file())
    if size > MOST_COPIED:
        message = f"a RocksDB database of {byte_size(size)}, where {byte_size(MOST_COPIED)} at most are copied to here"
        raise UnsupportedError(message, file=directory, hint="copy the store to this machine, and name the copy")
    try:
        place = tempfile.gettempdir()
        room = shutil.disk_usage(place).free // 2
    except OSError:
        return size  # without such a directory nothing is copied, which is reported then
    if size > room:
        message = (
            f"a RocksDB database of {byte_size(size)} would be copied to {place}, where {byte_size(room)} at most "
        )
        raise UnsupportedError(f"{message}may be used: half of what is free", file=directory, hint=_OTHER_PLACE)
    return size


def copy_database(directory: Path, names: Sequence[str], into: str) -> None:
    """Copy files of a database to a directory here; raises as `require_room`, UnwritableError on a full disk."""
    size = require_room(directory)
    if directory not in _noted and (size >= _WORTH_A_NOTE or not _noted):
        notice(f"RocksDB is read from a copy: {directory}, {byte_size(size)}, copied to {Path(into).parent} meanwhile")
    _noted.add(directory)
    for name in names:
        with InputFile(directory / name) as source:
            blocks = (source.read(position, _AT_ONCE) for position in range(0, source.size, _AT_ONCE))
            try:
                with Path(into, name).open("wb") as target:
                    target.writelines(blocks)
            except OSError as error:
                message = f"cannot be copied to {into}: {reason_of(error)}"
                raise UnwritableError(message, file=directory / name, hint=_OTHER_PLACE) from error


_NOT_LINKED = ("LOCK", "rocksdict-config.json")  # which are written, or held by the broker
_OPTIONS = "OPTIONS-"  # of classes that only the broker has
_TABLE, _LOG, _MANIFEST, _CURRENT = ".sst", ".log", "MANIFEST-", "CURRENT"
_NUMBER = re.compile("[0-9]{1,19}")
_MAX_CURRENT = 64  # bytes
_MAX_KILLED_LOG = 32 << 20  # bytes of a log that a killed broker has left
_TABLE_NAME = re.compile(r"[0-9]+\.sst")  # others RocksDB passes over
_CACHE_SIZE = 16 << 20  # bytes of data, indexes and filters, of all families together
_MOST_THREADS = 16  # what RocksDB starts at each opening, however few tables there are
_MAX_MANIFEST = 4 << 20  # bytes
_MAX_SHOWN = 3
_ATTEMPTS = 3  # a running broker deletes files between listing and opening
_SHADOW = "rmqtool-database-"  # begins the names of our directories of links
_NO_ACCESS = ("Permission denied", "Input/output error")


_of_parent: list[object] = []  # never closed: the library waits for its threads, which a copy of a process lacks


class DamagedDatabaseError(UnreadableError):
    """A database of which a file is missing or damaged, so that RocksDB does not read it, or not all of it."""


class Table(NamedTuple):
    """A table of a column family: its first and last key, and how many rows and deletions of rows it holds."""

    first: bytes
    last: bytes
    rows: int
    deletions: int


def fewest_rows(tables: Sequence[Table]) -> int:
    """How many rows a family has at least, by its tables: those that lie apart hold no row twice.

    With a deletion nothing is known, for one may delete a range of rows.
    """
    if any(table.deletions for table in tables):
        return 0
    by_end = sorted(tables, key=lambda table: table.last)
    ends = [table.last for table in by_end]
    most = [0]  # of the first tables, in the order of their ends
    for table in by_end:
        most.append(max(most[-1], most[bisect_left(ends, table.first, hi=len(most) - 1)] + table.rows))
    return most[-1]


def is_readable() -> bool:
    """Whether the library is installed."""
    return find_spec("rocksdict") is not None


def without_library(directory: Path) -> UnsupportedError:
    """The error where a database is needed and the library is not installed."""
    hint = "pip install 'rmqtool[rocksdb]'"
    return UnsupportedError("a RocksDB database, which needs the package rocksdict", file=directory, hint=hint)


def holds_rows(entry: DirectoryEntry) -> bool:
    """Whether a file of a database holds data: a table, or a log of data that is in no table yet."""
    if not entry.name.endswith(_LOG):
        return entry.name.endswith(_TABLE)
    try:
        return entry.stat().st_size > 0
    except OSError as error:
        note_failure(entry.path, error)
        return False  # a running broker deletes it when its content is in tables


def tables_in_logs(directory: Path, tables: Collection[str], names: Collection[str]) -> set[str]:
    """Those of `tables`, which the MANIFEST does not name, of which a killed broker has left all rows in the logs.

    `names` are the files of the database. The next log is begun before a table is written, and the one before is
    deleted once the MANIFEST names the table: so a MANIFEST that has lost its end asks for a log that is gone. Where
    anything is in doubt, as with a damaged or long MANIFEST, no table is given. Raises UnreadableError.
    """
    numbers = sorted(_number(name, _LOG) for name in names if name.endswith(_LOG))
    first = _first_log(directory, numbers)
    if first is None:
        return set()
    found = set()
    for table in tables:
        logs = [number for number in numbers if first <= number < _number(table, _TABLE)]
        if len(logs) > 1 and logs[0] == first and _are_whole(directory, logs[:-1]):
            found.add(table)
    return found


def _first_log(directory: Path, logs: Sequence[int]) -> int | None:
    """The oldest of the `logs` that the database needs; None where one that it needs may be gone."""
    current = read_all(directory / _CURRENT, _MAX_CURRENT).decode(errors="replace").strip()
    content = read_all(directory / current, _MAX_MANIFEST + 1) if current.startswith(_MANIFEST) else b""
    if not content or len(content) > _MAX_MANIFEST:
        return None
    try:
        oldest = oldest_log(content)
    except FormatError:
        return None
    # A start reads all logs, asks for the number after them, then takes two: for its first log and its MANIFEST.
    begun = _number(current.removeprefix(_MANIFEST)) - 1
    first = oldest if oldest in logs else begun
    return first if first in logs and first >= oldest else None


def _number(name: str, ending: str = "") -> int:
    """The number of a file, -1 for a name without one."""
    stem = name.removesuffix(ending)
    return int(stem) if _NUMBER.fullmatch(stem) else -1


def _are_whole(directory: Path, logs: Sequence[int]) -> bool:
    """Whether logs that are no longer written to are whole, and the first has rows."""
    contents = [read_all(directory / f"{log:06}{_LOG}", _MAX_KILLED_LOG + 1) for log in logs]
    return bool(contents[0]) and all(len(data) <= _MAX_KILLED_LOG and first_damage(data) is None for data in contents)


class RocksDb(Closing):
    """A database that is open for reading; use it as a context manager."""

    def __init__(self, directory: Path) -> None:
        """`directory` is the database."""
        self.directory = directory
        self._stack = ExitStack()
        self._database: Any = None
        self._cursors: dict[str, Any] = {}
        self._shadow = ""
        self.process = os.getpid()

    def __enter__(self) -> RocksDb:
        """Open it; raise UnreadableError when it cannot be opened.

        Raises UnsupportedError without the library, and for one on another machine that is too large to be copied.
        """
        for attempt in range(_ATTEMPTS):
            names = self._names()
            try:
                self._open(names)
                break
            except UnreadableError:
                self.close()
                if attempt == _ATTEMPTS - 1 or self._names() == names:
                    raise
            except BaseException:  # a signal, too
                self.close()
                raise
        return self

    def close(self) -> None:
        """Close the database and remove the links; in a copy of the process that opened it, leave it to that one."""
        if self.process != os.getpid():
            _of_parent.append((self._database, self._cursors, self._stack))
            return
        self._cursors.clear()
        self._database = None
        self._stack.close()

    @property
    def families(self) -> tuple[str, ...]:
        """The names of its column families."""
        return self._families

    def check_families(self, known: Collection[str]) -> None:
        """Raise UnreadableError for a column family that is none of the `known`.

        RocksDB opens a database to write only for those who name all of its families.
        """
        others = sorted({*self._families} - {*known})
        if others:
            raise self._unreadable(f"its column family {', '.join(others[:_MAX_SHOWN])} is one that no broker names")

    def rows(self, family: str, prefix: bytes = b"", start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Keys and values of a family in the order of the keys, those that begin with `prefix`, from `start` on.

        Raises UnreadableError where a part of the database cannot be read, after the rows before it; also where all
        rows are fewer than its tables say, and where tables are left over, as an older MANIFEST leaves them, and a
        broker that was killed.
        """
        cursor = self._database.get_column_family(family).iter()
        cursor.seek(max(prefix, start))
        count = 0
        while cursor.valid() and (key := cursor.key()).startswith(prefix):
            yield key, cursor.value()
            count += 1
            cursor.next()
        self._check(cursor)
        if not prefix and not start:
            self.check_count(family, count)
        self.check_tables()

    def blocks(self, family: str, most: int) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Keys and values of all rows of a family, at most `most` at a time; raises as `rows` does, in the end."""
        cursor = self._database.get_column_family(family).iter()
        cursor.seek_to_first()
        is_valid, key, value, go_on = cursor.valid, cursor.key, cursor.value, cursor.next
        count = 0
        while is_valid():
            keys: list[bytes] = []
            values: list[bytes] = []
            while len(keys) < most and is_valid():
                keys.append(key())
                values.append(value())
                go_on()
            count += len(keys)
            yield keys, values
        self._check(cursor)
        self.check_count(family, count)
        self.check_tables()

    def some_rows(self, family: str, start: bytes, stop: bytes, most: int) -> tuple[list[bytes], list[bytes]]:
        """Keys and values of at most `most` rows with keys from `start` to before `stop`; raises UnreadableError.

        Tables that are left over are no error here: a comparison of the rows with the log finds what is missing.
        """
        cursor = self._cursor(family)
        cursor.seek(start)
        keys: list[bytes] = []
        values: list[bytes] = []
        while len(keys) < most and cursor.valid() and (key := cursor.key()) < stop:
            keys.append(key)
            values.append(cursor.value())
            cursor.next()
        self._check(cursor)
        return keys, values

    def row(self, family: str, key: bytes) -> bytes | None:
        """The value of one row, None where there is none; raises UnreadableError."""
        try:
            found: bytes | None = self._database.get_column_family(family).get(key)
        except Exception as error:
            raise self._unreadable(str(error)) from error
        return found

    def manifest_is_cut(self) -> bool:
        """Whether the MANIFEST does not end with a whole record, so that it may lack what was in tables.

        A long one is not looked at: that it is whole takes a second for each 2 MiB.
        """
        path = self.directory / self._manifest
        return not path.stat().st_size > _MAX_MANIFEST and first_damage(read_all(path, _MAX_MANIFEST)) is not None

    def check_count(self, family: str, count: int) -> None:
        """Raise UnreadableError when `count`, of all rows of a family, is less than its tables must hold."""
        fewest = fewest_rows(self._tables.get(family, []))
        if count < fewest:
            raise self._unreadable(f"{count} rows of {family} where its tables hold at least {fewest}")

    @cached_property
    def _tables(self) -> dict[str, list[Table]]:
        """The tables by family and their first keys; none where rows may be deleted by what is not among them."""
        tables: dict[str, list[Table]] = {}
        if any(holds_rows(entry) for entry in list_directory(self.directory) if entry.name.endswith(_LOG)):
            return tables
        for file in self._database.live_files():
            owners = [name for name in self._families if self._holds(name, file["start_key"])]
            if len(owners) != 1:
                return {}
            table = Table(file["start_key"], file["end_key"], file["num_entries"], file["num_deletions"])
            tables.setdefault(owners[0], []).append(table)
        return tables

    def _holds(self, family: str, key: bytes) -> bool:
        try:
            return key in self._database.get_column_family(family)
        except Exception:  # noqa: BLE001 - of the library, for a bad block: whoever reads the family meets it
            return False

    def check_tables(self) -> None:
        """Raise UnreadableError when tables are left over."""
        if self.left_over:
            tables = ", ".join(self.left_over[:_MAX_SHOWN])
            raise self._unreadable(f"the MANIFEST names fewer tables than there are, not {tables}: rows may be missing")

    def _cursor(self, family: str) -> Any:
        if family not in self._cursors:
            if family not in self._families:
                raise self._unreadable(f"it has no column family {family}")
            self._cursors[family] = self._database.get_column_family(family).iter()
        return self._cursors[family]

    def _check(self, cursor: Any) -> None:
        try:
            cursor.status()  # a cursor that meets damage ends as if there were nothing more
        except Exception as error:
            raise self._unreadable(str(error)) from error

    def _names(self) -> list[str]:
        return sorted(
            entry.name
            for entry in list_directory(self.directory)
            if entry.name not in _NOT_LINKED and not entry.name.startswith(_OPTIONS) and entry.is_file()
        )

    def _open(self, names: list[str]) -> None:
        try:
            from rocksdict import AccessType, BlockBasedOptions, Cache, Options, Rdict
        except ImportError as error:
            raise without_library(self.directory) from error
        shadow = self._make_shadow(names)
        tables = {name for name in names if _TABLE_NAME.fullmatch(name)}
        options = Options(raw_mode=True)
        options.set_max_file_opening_threads(min(max(len(tables), 1), _MOST_THREADS))
        try:
            self._families = tuple(Rdict.list_cf(shadow, options))
            blocks = BlockBasedOptions()  # tables of any number need no more memory than this cache
            blocks.set_block_cache(Cache(_CACHE_SIZE))
            blocks.set_cache_index_and_filter_blocks(True)
            families = {name: Options(raw_mode=True) for name in self._families}
            for family in families.values():
                family.set_block_based_table_factory(blocks)
            self._database = Rdict(shadow, options, families, AccessType.read_only())
            named = {file["name"].lstrip("/") for file in self._database.live_files()}
        except Exception as error:
            raise self._unreadable(str(error)) from error
        self.has_tables = bool(named)
        self._manifest = max((name for name in names if name.startswith(_MANIFEST)), default="")
        unnamed = tables - named
        self.left_over = self._not_in_logs(unnamed, names) if unnamed else []

    def _make_shadow(self, names: list[str]) -> str:
        """A directory of links to the files, of copies where they are on another machine; it goes with the database."""
        try:
            self._shadow = shadow = self._stack.enter_context(own_directory(_SHADOW))
            if is_remote(self.directory):
                copy_database(self.directory, names, shadow)
        except OSError as error:
            message = f"RocksDB is read through a temporary directory, and none can be made: {error.strerror}"
            hint = "name a directory for it, TMPDIR=DIR; in a container: --tmpfs /tmp"
            raise UnwritableError(message, file=self.directory, hint=hint) from error
        for name in () if is_remote(self.directory) else names:
            os.symlink(os.path.abspath(self.directory / name), os.path.join(shadow, name))
        return shadow

    def _not_in_logs(self, unnamed: set[str], names: list[str]) -> list[str]:
        """Those of the tables that the MANIFEST does not name whose rows may be lost."""
        try:
            left = sorted(unnamed - tables_in_logs(self.directory, unnamed, names))
        except UnreadableError:
            left = sorted(unnamed)
        return left if left and self._names() == names else []  # else a running broker has named or deleted them

    def _unreadable(self, message: str) -> UnreadableError:
        text = " ".join(message.replace(f"{self._shadow}/", "").split())
        hint = "restore it from a backup or a replica; the log does not need it"
        kind = UnreadableError if any(why in text for why in _NO_ACCESS) else DamagedDatabaseError
        return kind(f"RocksDB cannot read it: {text}", file=self.directory, hint=hint)


class Databases:
    """Databases that are opened when they are first read, and stay open: until `close`, or for as long as this is held.

    It can be sent to another process, which opens its own.
    """

    def __init__(self) -> None:
        self._opened: dict[Path, RocksDb] = {}
        weakref.finalize(self, _close, self._opened)

    def __reduce__(self) -> tuple[type[Databases], tuple[()]]:
        return Databases, ()

    def opened(self, directory: Path) -> RocksDb:
        """One of them; raises as `RocksDb` does."""
        if directory in self._opened and self._opened[directory].process != os.getpid():
            self._opened.pop(directory).close()
        if directory not in self._opened:
            self._opened[directory] = RocksDb(directory).__enter__()
        return self._opened[directory]

    def close(self) -> None:
        """Close them; each is opened again when it is read again."""
        _close(self._opened)


def _close(opened: dict[Path, RocksDb]) -> None:
    while opened:
        opened.popitem()[1].close()
