"""A new RocksDB database that brokers open: their table format, and nothing of the library that writes it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rmqtool.base.errors import UnreadableError, UnwritableError
from rmqtool.store.rocksdb import RocksDb, without_library
from rmqtool.transaction import Transaction

DEFAULT = "default"
"""The column family that every database has."""

_TABLE_FORMAT = 5  # of the RocksDB 8.4 in brokers; the library's own default is unreadable for them
_BUFFER = 32 << 20  # bytes of rows that are held before they are written
_MARK = "CURRENT"
_OF_THE_LIBRARY = ("rocksdict-config.json", "LOG")


def library_for(directory: Path) -> Any:
    """The library that writes a database; raises UnsupportedError where it is not installed."""
    try:
        import rocksdict
    except ImportError as error:
        raise without_library(directory) from error
    return rocksdict


def options_of(library: Any, *, universal: bool = False) -> Any:
    """The options of a column family; `universal` compaction is that of consume queues."""
    tables, options = library.BlockBasedOptions(), library.Options(raw_mode=True)
    tables.set_format_version(_TABLE_FORMAT)
    options.set_block_based_table_factory(tables)
    if universal:
        options.set_compaction_style(library.DBCompactionStyle.universal())
        options.set_compression_type(library.DBCompressionType.lz4())
    options.set_write_buffer_size(_BUFFER)
    return options


@contextmanager
def reported(directory: Path) -> Iterator[None]:
    """Errors of the library as UnwritableError."""
    try:
        yield
    except Exception as error:
        raise UnwritableError(f"cannot write the database: {error}", file=directory) from error


def drop_traces(directory: Path) -> None:
    """Remove what the library, and no broker, leaves in a database."""
    for file in os.listdir(directory):
        if file.startswith(_OF_THE_LIBRARY):
            os.unlink(directory / file)


def write_database(directory: Path, families: Mapping[str, Mapping[bytes, bytes]]) -> None:
    """Write a whole database into the empty `directory`: rows by column family; raises UnwritableError."""
    library = library_for(directory)
    with reported(directory):
        database = library.Rdict(str(directory), options_of(library))
        opened = {DEFAULT: database}
        for name in families:
            if name != DEFAULT:
                opened[name] = database.create_column_family(name, options_of(library))
        for name, rows in families.items():
            for key, value in rows.items():
                opened[name].put(key, value)
            opened[name].flush(True)
        for family in reversed(opened.values()):
            family.close()
    drop_traces(directory)


def stage_database(transaction: Transaction, source: Path, directory: str) -> list[str]:
    """Stage the files of the finished database at `source` for `directory`; their names in the store."""
    names = sorted(os.listdir(source))
    for name in names:
        check = _check if name == _MARK else None
        transaction.file(f"{directory}/{name}", check=check).copy(source / name)
        os.unlink(source / name)
    return [f"{directory}/{name}" for name in names]


def _check(path: Path) -> None:
    """Read a staged database back; raise UnwritableError."""
    try:
        with RocksDb(path.parent) as database:
            for family in database.families:
                for _ in database.rows(family):
                    pass
    except UnreadableError as error:
        raise UnwritableError("what was written is not what is read back", file=path.parent) from error
