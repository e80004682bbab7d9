"""Topics, groups and committed offsets that a broker keeps in RocksDB, in the form of its JSON files.

`broker.config.v1` keeps one database for each, or families of one for all; `broker.config.v2` has one of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rmqtool.base.errors import EndingError, RmqtoolError, UnsupportedError
from rmqtool.base.files import list_directory
from rmqtool.base.paths import has_directory, has_file
from rmqtool.findings.finding import Finding
from rmqtool.formats.rocksdb_config_rows import config_entry
from rmqtool.formats.rocksdb_rows import Row, json_entry
from rmqtool.store.config_json import ConfigFile, load_config
from rmqtool.store.rocksdb import RocksDb, is_readable
from rmqtool.store.store import BATCH_CONSUME_QUEUE, CONFIG, CONSUME_QUEUE, Store, is_rocksdb_directory

SECOND, SINGLE = "rdb", "metadata"  # config/rdb since 5.3.2, config/metadata since 5.3.4
_COUNTER, _VERSION = "counter", "dataVersion"
_LIGHT = "lmqConsumerOffset.json"  # has offsets, too


@dataclass(frozen=True)
class Table:
    """Where a table of a JSON file is in RocksDB: its own database, its family in the one for all, its name in v2."""

    json_name: str
    database: str
    family: str
    second: str

    @property
    def version_family(self) -> str:
        """The family of the table's version in the database for all."""
        return f"{self.family}Version"

    def part_of(self, database: str) -> str:
        """What of a database the table is, in words; empty for its own database."""
        return {SINGLE: f"column family {self.family}", SECOND: f"table {self.second}"}.get(database, "")


TABLES: Mapping[str, Table] = {
    "topics.json": Table("topicConfigTable", "topics", "topic", "topic"),
    "subscriptionGroup.json": Table(
        "subscriptionGroupTable", "subscriptionGroups", "subscriptionGroup", "subscriptionGroup"
    ),
    "consumerOffset.json": Table("offsetTable", "consumerOffsets", "consumerOffset", "consumerOffset"),
}
CONFIG_DATABASES = (*(table.database for table in TABLES.values()), SINGLE, SECOND)
"""The databases in `config/`, of every release."""

VERSION_FAMILY = "kvDataVersion"
"""The family of the version in a database of its own, since 5.3.1."""

VERSION_KEY = b"kvDataVersionKey"  # ConfigRocksDBStorage.KV_DATA_VERSION_KEY

FORBIDDEN, FORBIDDEN_TABLE = "forbidden", "forbiddenTable"
"""What groups may not read: the family, since 5.3.1, and the table of subscriptionGroup.json."""


def load_table(store: Store, name: str) -> ConfigFile:
    """A JSON file of `config/`, or what is in RocksDB in its place, by the broker's own rule of which counts.

    Version 2 counts where it is; version 1 unless the file's version has counted further (`ConfigManager#load` of the
    RocksDB managers). `path` is the database then. Without the library the file counts. `path` is None where neither
    a file nor a database has the table: brokers before 5.3.4 make all tables when they start, later ones each at its
    first use.
    """
    file = load_config(store.root / CONFIG / name, store.conf.release)
    database = config_database(store, name)
    if database is None:
        return file
    try:
        content = _second(database, TABLES[name]) if database.name == SECOND else _first(database, TABLES[name])
    except UnsupportedError:
        return file
    except EndingError:
        raise
    except RmqtoolError as error:
        return ConfigFile(None, {}, problem=error.message)
    except ValueError as error:
        return ConfigFile(None, {}, problem=f"{database.name} in RocksDB: {error}")
    if file.path and database.name != SECOND and _counter(file.content) > _counter(content or {}):
        return file
    return ConfigFile(None, {}) if content is None else ConfigFile(database, content)


def config_database(store: Store, name: str) -> Path | None:
    """The database that holds the table of a JSON file; None where the file itself counts.

    A broker.conf says which is used: others may be left from before a change of it.
    """
    conf, places = store.conf, [SECOND, SINGLE, TABLES[name].database]
    version, kind = conf.text("configManagerVersion"), conf.text("storeType")
    if (version or "").lower() == "v2":
        places = [SECOND]
    elif conf.path or version or kind:
        places = places[1:] if (kind or "").lower() == "defaultrocksdb" else []
    paths = (store.root / CONFIG / place for place in places)
    return next((path for path in paths if is_rocksdb_directory(path)), None)


def expected_database(store: Store, name: str) -> Path | None:
    """As `config_database`; also one that is gone, known by those of other tables, or where no table is in a file.

    Then broker.conf names it, or an empty directory; or queues in RocksDB alone show that there was one.
    """
    database, own = config_database(store, name), store.root / CONFIG / TABLES[name].database
    if database is not None:
        return database
    has_others = any(config_database(store, each) for each in TABLES if each != name)
    return own if has_others else _gone_database(store, own)


def _gone_database(store: Store, own: Path) -> Path | None:
    """The database of a store in which there is none, where it had one; `own` is that of the table alone."""
    conf, config = store.conf, own.parent
    version, kind = conf.text("configManagerVersion"), conf.text("storeType")
    if any(has_file(config / f"{file}{end}") for file in (*TABLES, _LIGHT) for end in ("", ".bak")):
        return None
    if (version or "").lower() == "v2":
        return config / SECOND
    if conf.path or version or kind:
        is_single = conf.is_on("useSingleRocksDBForAllConfigs")
        return None if (kind or "").lower() != "defaultrocksdb" else config / SINGLE if is_single else own
    left = next((each for each in (config / SECOND, config / SINGLE) if has_directory(each)), None)
    return left or (own if has_directory(own) or _has_only_rows(store) else None)


def _has_only_rows(store: Store) -> bool:
    """Whether queues are in RocksDB, and none has files: then the broker has no table in files, either."""
    return store.layout == "rocksdb" and not any(
        entry.is_dir()
        for name in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE)
        if has_directory(store.root / name)
        for entry in list_directory(store.root / name)
    )


def is_unread(store: Store, name: str) -> bool:
    """Whether a table is in a database, and the library is not installed."""
    return config_database(store, name) is not None and not is_readable()


def _first(path: Path, table: Table) -> dict[str, Any] | None:
    """What a table of version 1 holds; None where the database for all has no such table."""
    is_single = path.name == SINGLE
    with RocksDb(path) as database:
        family, version = (table.family, table.version_family) if is_single else ("default", VERSION_FAMILY)
        if family not in database.families:
            return None
        rows, versions, forbidden = (_entries(database, name) for name in (family, version, FORBIDDEN))
    entries = {row.key["name"]: _json(row) for row in rows}
    if table.json_name == "offsetTable":
        entries = {name: value.get("offsetTable", {}) for name, value in entries.items()}
    content = {table.json_name: entries, _VERSION: _json(versions[0]) if versions else {}}
    if table.json_name == "subscriptionGroupTable":
        content[FORBIDDEN_TABLE] = {row.key["name"]: _json(row) for row in forbidden}
    return content


def _entries(database: RocksDb, family: str) -> list[Row]:
    return [json_entry(*row) for row in database.rows(family)] if family in database.families else []


def _second(path: Path, table: Table) -> dict[str, Any] | None:
    """What a table of version 2 holds; None where there is no row of it, not even its version."""
    content: dict[str, Any] = {table.json_name: {}}
    with RocksDb(path) as database:
        for row in _rows_of(database, table.second):
            if row.kind == "config-version":
                content[_VERSION] = row.fields
            elif row.kind == "committed-offset":
                name = f"{row.key['topic']}@{row.key['group']}"
                content[table.json_name].setdefault(name, {})[str(row.key["queue_id"])] = row.fields["offset"]
            else:
                content[table.json_name][row.key["name"]] = _json(row)
    return content if content[table.json_name] or _VERSION in content else None


def _rows_of(database: RocksDb, table: str) -> Iterator[Row]:
    return (row for row in (config_entry(*each) for each in database.rows("default")) if row.key["table"] == table)


def _json(row: Row) -> dict[str, Any]:
    value = json.loads(row.json or "null")
    return value if isinstance(value, dict) else {}


def _counter(content: Mapping[str, Any]) -> int:
    """How often a table was changed, by its version; 0 without one."""
    version = content.get(_VERSION)
    counter = version.get(_COUNTER) if isinstance(version, dict) else None
    return counter if type(counter) is int else 0


_GONE = "the database is not there"
MISSING = "config.missing"
"""The code of a table that the store proves to be lost, in a file or in RocksDB.

Its details have `lost`, and of a database `table`, the JSON file in whose place RocksDB had the table.
"""


Lost = Literal["gone", "without", "empty"]
"""The database is gone, or it has no such table, or no row of it; a file counts as a database of its own."""


def lost_in(database: str, table: Table, lost: Lost) -> str:
    """What is lost: the message of a finding begins with it; `database` is its name, or that of the file."""
    part = table.part_of(database)
    if not part:
        return "it is empty" if lost == "empty" else _GONE
    return {"gone": f"{_GONE}, nor is its {part}", "without": f"it has no {part}", "empty": f"its {part} is empty"}[
        lost
    ]


def lost_table(finding: Finding) -> str | None:
    """The JSON file in whose place RocksDB had the lost table; None for other findings."""
    return finding.details.get("table") if finding.code == MISSING else None


def is_database_left(finding: Finding) -> bool:
    """Whether the database of a lost table is there, with other tables."""
    return "part" in finding.details and finding.details["lost"] != "gone"


def lost_place(finding: Finding) -> str:
    """The file that is lost; for a part of a database its name, too."""
    part = finding.details.get("part")
    return f"{finding.file}, {part}" if part else str(finding.file)
