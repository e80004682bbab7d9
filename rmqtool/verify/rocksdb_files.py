"""A database of a broker as files: whether RocksDB opens it, and reads all that was written to it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rmqtool.base.errors import UnreadableError
from rmqtool.base.files import list_directory, read_all
from rmqtool.base.paths import is_remote
from rmqtool.base.shell import quote
from rmqtool.findings.report import Report
from rmqtool.formats.rocksdb_log import first_damage, goes_on
from rmqtool.store.rocksdb import DamagedDatabaseError, RocksDb, holds_rows
from rmqtool.store.store import is_rocksdb_directory

_MAX_LOG = 256 << 20  # bytes of a write-ahead log that are read
_LOG = ".log"
_MANIFEST = re.compile("MANIFEST-[0-9]+")
_CURRENT = "CURRENT"  # names the MANIFEST
_MAX_CURRENT = 64  # bytes


def is_database(directory: Path) -> bool:
    """Whether a directory is a database, or was one before files of it were lost."""
    return is_rocksdb_directory(directory) or (
        directory.is_dir() and any(holds_rows(entry) for entry in list_directory(directory))
    )


@contextmanager
def reported_database(
    directory: Path, name: str, code: str, report: Report, *, killed: bool, families: Collection[str] = ()
) -> Iterator[RocksDb | None]:
    """The opened database, None where it cannot be opened; damage, then or later, is reported as `code`.

    `families` are the only column families with which brokers open it; none where they open all that there are. A
    broker that was `killed` may leave the end of the log that it wrote to, the last with rows, that is not whole.
    """
    report.check(code)
    logs = [entry for entry in list_directory(directory) if entry.name.endswith(_LOG)]
    with_rows = [directory / entry.name for entry in logs if entry.stat().st_size]
    for path in with_rows:
        data = read_all(path, _MAX_LOG)
        damage = first_damage(data)
        if damage is not None and not (killed and path == with_rows[-1] and not goes_on(data, damage)):
            facts = {"problem": "log", "name": path.name, "damaged_from": damage}
            report.add(code, file=f"{name}/{path.name}", offset=damage, details=facts)
    database = None
    try:
        database = RocksDb(directory).__enter__()
        yield database
        database.check_tables()
        if families:
            database.check_families(families)
    except DamagedDatabaseError as error:
        manifest = None if database else _unnamed_manifest(directory)
        again = f"echo {manifest} > {quote(str(directory / _CURRENT))}" if manifest else None
        details = {"why": error.message} | ({"manifest": manifest} if manifest else {})
        report.add(code, file=name, remedy=again, details=details)
        if database is None:
            yield None
    finally:
        if database is not None:
            database.close()


def _unnamed_manifest(directory: Path) -> str | None:
    """The file that a lost CURRENT named; None where it is right, or several files may be what it named."""
    manifests = [entry.name for entry in list_directory(directory) if _MANIFEST.fullmatch(entry.name)]
    current = directory / _CURRENT
    if len(manifests) != 1 or is_remote(directory):
        return None
    with suppress(UnreadableError):
        if read_all(current, _MAX_CURRENT) == f"{manifests[0]}\n".encode():
            return None
    return manifests[0]
