"""The rows of topics, groups and committed offsets in RocksDB: each of the form that the broker reads.

`broker.config.v1` has JSON by name, `broker.config.v2` rows of its own; a row that a broker cannot decode ends its
start.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rmqtool.base.errors import UnreadableError
from rmqtool.base.files import list_directory, read_all
from rmqtool.base.paths import is_remote
from rmqtool.base.visible import quote
from rmqtool.findings.report import Report
from rmqtool.formats.java import decode_text
from rmqtool.formats.layout import FormatError
from rmqtool.formats.rocksdb_config_rows import config_entry
from rmqtool.formats.rocksdb_log import first_damage, goes_on
from rmqtool.formats.rocksdb_rows import json_entry
from rmqtool.rules.versions import SINGLE_ROCKSDB_CONFIG, Version
from rmqtool.store.rocksdb import DamagedDatabaseError, RocksDb, holds_rows, is_readable
from rmqtool.store.rocksdb_config import CONFIG_DATABASES, FORBIDDEN, SECOND, SINGLE, TABLES, VERSION_FAMILY
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CONFIG, is_rocksdb_directory
from rmqtool.transaction import was_killed

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
    snapshot: Snapshot, name: str, code: str, report: Report, families: Collection[str] = ()
) -> Iterator[RocksDb | None]:
    """The opened database of a store, None where it cannot be opened; damage, then or later, is reported as `code`.

    `families` are the only column families with which brokers open it; none where they open all that there are. A
    broker that was `killed` may leave the end of the log that it wrote to, the last with rows, that is not whole.
    """
    report.check(code)
    directory, killed = snapshot.store.root / name, was_killed(snapshot.store.root)
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
        database = snapshot.databases.opened(directory)
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


_DEFAULT = "default"
_MAX_OFFSET = (1 << 63) - 1
_NAME_FIELDS = {"topicConfigTable": "topicName", "subscriptionGroupTable": "groupName"}

Problem = Callable[[bytes, bytes], str | None]
"""Why a broker does not read a row as what it must be; None for a sound one."""


def check_config_databases(snapshot: Snapshot, report: Report) -> None:
    """Check every row of every database in `config/`; without the library, or while a broker writes, nothing."""
    store = snapshot.store
    if snapshot.holder is not None or not is_readable():
        return
    for name in CONFIG_DATABASES:
        if not is_database(store.root / CONFIG / name):
            continue
        path = f"{CONFIG}/{name}"
        families = _families_of(name, snapshot.releases.newest)
        with reported_database(snapshot, path, "config.rocksdb-damaged", report, families) as database:
            for family in database.families if database else ():
                problem = _problem_of(name, family)
                for key, value in database.rows(family) if database else ():
                    report.check("config.row")
                    why = problem(key, value)
                    if why:
                        report.add("config.row", file=path, details={"key": decode_text(key), "why": why})
    _check_swapped(snapshot, report)


def _families_of(database: str, release: Version) -> tuple[str, ...]:
    """The column families with which a release opens a database; none where it opens all: version 1 since 5.3.4."""
    if database == SECOND:
        return (_DEFAULT,)
    opens_all = database == SINGLE or release >= SINGLE_ROCKSDB_CONFIG
    return () if opens_all else (_DEFAULT, VERSION_FAMILY, FORBIDDEN)


def _problem_of(database: str, family: str) -> Problem:
    """The check of the rows of a family."""
    if database == SECOND:
        return _second_problem
    if family == FORBIDDEN:
        return _object_problem
    if family == VERSION_FAMILY or family.endswith("Version"):
        return _version_problem
    for table in TABLES.values():
        if family == table.family or (family == _DEFAULT and database == table.database):
            if table.json_name == "offsetTable":
                return _offsets_problem
            return lambda key, value, table=table: _named_problem(key, value, _NAME_FIELDS[table.json_name])  # type: ignore[misc]
    return lambda key, value: "a row where there is none"  # noqa: ARG005


def _content(value: bytes) -> Mapping[str, Any]:
    """The JSON object in a value; raises ValueError."""
    content = json.loads(decode_text(value))
    if not isinstance(content, dict):
        raise ValueError("not a JSON object")
    return content


def _object_problem(key: bytes, value: bytes) -> str | None:  # noqa: ARG001
    try:
        _content(value)
    except ValueError as error:
        return f"not JSON: {error}"
    return None


def _version_problem(key: bytes, value: bytes) -> str | None:
    why = _object_problem(key, value)
    return why or (None if type(_content(value).get("counter")) is int else "a version without a counter")


def _named_problem(key: bytes, value: bytes, field: str) -> str | None:
    why = _object_problem(key, value)
    if why:
        return why
    name = _content(value).get(field)
    return None if name == json_entry(key, value).key["name"] else f"its {field} is {name!r}"


def _offsets_problem(key: bytes, value: bytes) -> str | None:
    why = _object_problem(key, value)
    if why or b"@" not in key:
        return why or "no topic and group"
    table = _content(value).get("offsetTable")
    entries = table.items() if isinstance(table, dict) else [("", None)]
    bad = [queue for queue, offset in entries if not (queue.isdecimal() and _is_offset(offset))]
    return f"no offset of queue {bad[0]!r}" if bad else None


def _second_problem(key: bytes, value: bytes) -> str | None:
    try:
        row = config_entry(key, value)
    except FormatError as error:
        return str(error)
    if row.json is None:
        return None
    field = "topicName" if row.key["table"] == "topic" else "groupName"
    return _named_problem(row.key["name"].encode(), row.json.encode(), field)


def _is_offset(value: object) -> bool:
    return type(value) is int and abs(value) <= _MAX_OFFSET


def _check_swapped(snapshot: Snapshot, report: Report) -> None:
    """Report rows of version 2 with topic and group in each other's place (`ConsumerOffsetManagerV2`)."""
    topics, committed = snapshot.topic_names, snapshot.committed
    if committed.file.path is None or committed.file.path.name != SECOND:
        return
    for one in committed.offsets:
        if one.group in topics and one.topic not in topics:
            names = {"topic_name": one.topic, "group": one.group}
            report.add("config.swapped-offset", file=f"{CONFIG}/{SECOND}", details=names)
