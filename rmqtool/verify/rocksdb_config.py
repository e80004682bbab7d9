"""The rows of topics, groups and committed offsets in RocksDB: each of the form that the broker reads.

`broker.config.v1` has JSON by name, `broker.config.v2` rows of its own; a row that a broker cannot decode ends its
start.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from rmqtool.findings.report import Report
from rmqtool.formats.java import decode_text
from rmqtool.formats.layout import FormatError
from rmqtool.formats.rocksdb_config_rows import config_entry
from rmqtool.formats.rocksdb_rows import json_entry
from rmqtool.rules.versions import SINGLE_ROCKSDB_CONFIG, Version
from rmqtool.store.rocksdb import is_readable
from rmqtool.store.rocksdb_config import CONFIG_DATABASES, FORBIDDEN, SECOND, SINGLE, TABLES, VERSION_FAMILY
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CONFIG
from rmqtool.transaction import was_killed
from rmqtool.verify.rocksdb_files import is_database, reported_database

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
        with reported_database(
            store.root / path, path, "config.rocksdb-damaged", report, killed=was_killed(store.root), families=families
        ) as database:
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
