"""Topics, groups and committed offsets of a store, read where its broker keeps them, to be carried to another place.

That is JSON files, one RocksDB database for each (`broker.config.v1`), one for all of them, or `broker.config.v2`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from rmqtool.base.errors import UnreadableError, UsageError
from rmqtool.rebuild.options import Target
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.store.config_json import ConfigFile, load_config
from rmqtool.store.consumer_offsets import CONSUMER_OFFSET, LMQ_CONSUMER_OFFSET, counting_file
from rmqtool.store.rocksdb_config import FORBIDDEN_TABLE, SECOND, SINGLE, TABLES, load_table
from rmqtool.store.rocksdb_queues import queue_database
from rmqtool.store.store import CONFIG, Store, is_rocksdb_directory

Form = Literal["json", "separate", "single", "second"]
"""JSON files, a database for each table, one for all of version 1, that of version 2."""

JSON_FILES = (*TABLES, LMQ_CONSUMER_OFFSET)
LIGHT_OFFSETS = "lmqOffsetTable"
_QUEUE_OF_LIGHT = "0"  # MixAll.LMQ_QUEUE_ID


@dataclass(frozen=True)
class ConfigTable:
    """One of the tables: its `entries` by name, its version, and the place in the store that it comes from."""

    file: str  # the JSON file that has such a table
    entries: Mapping[str, Any]
    version: Mapping[str, int]
    source: str
    forbidden: Mapping[str, Any] = field(default_factory=dict)  # of groups

    @property
    def label(self) -> str:
        """The name of the table for people."""
        return LABELS[self.file]


LABELS = {"topics.json": "topics", "subscriptionGroup.json": "groups", CONSUMER_OFFSET: "offsets"}
"""The names of the tables for people."""


def live_form(store: Store, target: Target) -> Form:
    """Where the tables are that the store's broker uses.

    Version 2 counts where broker.conf asks for it, or where nothing else is there. Of version 1 and JSON files the
    broker's own rule decides for each table (`load_table`), unless the queues show that files count.
    """
    given = store.conf.text("configManagerVersion")
    others = bool(_first_databases(store)) or _has_json(store)
    if is_rocksdb_directory(store.root / CONFIG / SECOND):
        asked = (given or "").lower() == "v2"
        if asked or not others or (given is None and store.conf.path is None):
            return "second"
    found = _first_databases(store)
    left_over = target == "rocksdb" and _has_json(store) and (not queue_database(store) or store.writes_queues_twice)
    return found[0] if found and not left_over else "json"


def wanted_form(store: Store, target: Target, live: Form) -> Form:
    """Where the tables are to be: as broker.conf says, or in the version in which they are."""
    conf = replace(store.conf, release=None)  # what a release does not know is refused, not left out
    given = conf.text("configManagerVersion")
    if (given or "").lower() == "v2" or (live == "second" and given is None and conf.path is None):
        return "second"
    if target == "files":
        return "json"
    is_single = conf.is_on("useSingleRocksDBForAllConfigs")
    return "single" if is_single or live == "single" else "separate"


def read_tables(store: Store, form: Form) -> list[ConfigTable]:
    """The tables that are there, from where they are; raises UnreadableError, and UsageError for doubtful offsets."""
    return [table for name in TABLES if (table := _table(store, name, form)) is not None]


def _table(store: Store, name: str, form: Form) -> ConfigTable | None:
    file = _offsets_file(store) if form == "json" and name == CONSUMER_OFFSET else load_table(_as(store, form), name)
    if file.path is None:
        if file.problem:
            raise UnreadableError(f"{name}, or what is in its place, cannot be read: {file.problem}", file=store.root)
        return None
    entries = file.content.get(TABLES[name].json_name)
    table = dict(entries) if isinstance(entries, dict) else {}
    if name == CONSUMER_OFFSET:
        table |= _light_offsets(file.content)
    bad = next((entry for entry, value in table.items() if not isinstance(value, dict)), None)
    if bad is not None:
        raise UnreadableError(f"the entry {bad!r} is not an object", file=file.path, hint="repair it first")
    forbidden = file.content.get(FORBIDDEN_TABLE)
    return ConfigTable(
        name,
        table,
        _version(file.content.get("dataVersion")),
        store.relative(file.path),
        forbidden if isinstance(forbidden, dict) else {},
    )


def _as(store: Store, form: Form) -> Store:
    """The store of a broker that keeps its tables in a form."""
    settings = {"storeType": "default" if form == "json" else "defaultRocksDB"}
    settings["configManagerVersion"] = "v2" if form == "second" else "v1"
    return replace(store, conf=BrokerConf({**store.conf.settings, **settings}, path="broker.conf"))


def _offsets_file(store: Store) -> ConfigFile:
    """The file of offsets that counts: with `enableLmq` one of its own (`LmqConsumerOffsetManager`)."""
    light, plain = (load_config(store.root / CONFIG / name) for name in (LMQ_CONSUMER_OFFSET, CONSUMER_OFFSET))
    counting = counting_file(store)
    if counting is not None:
        return light if counting == LMQ_CONSUMER_OFFSET else plain
    if light.path and plain.path and _time_of(plain.path) > _time_of(light.path):
        message = f"{CONSUMER_OFFSET} is newer than {LMQ_CONSUMER_OFFSET}, which a broker with enableLmq=true reads"
        raise UsageError(message, hint="say with --broker-conf FILE which of them counts")
    return light if light.path else plain


def _light_offsets(content: Mapping[str, Any]) -> dict[str, Any]:
    table = content.get(LIGHT_OFFSETS)
    return {name: {_QUEUE_OF_LIGHT: offset} for name, offset in table.items()} if isinstance(table, dict) else {}


def _version(value: object) -> dict[str, int]:
    found = value if isinstance(value, dict) else {}
    state = found.get("stateVersion", found.get("state_version", 0))
    return {"counter": found.get("counter", 0), "stateVersion": state, "timestamp": found.get("timestamp", 0)}


def _first_databases(store: Store) -> list[Form]:
    found: list[Form] = ["single"] if is_rocksdb_directory(store.root / CONFIG / SINGLE) else []
    return found + [
        "separate" for table in TABLES.values() if is_rocksdb_directory(store.root / CONFIG / table.database)
    ]


def _has_json(store: Store) -> bool:
    return any((store.root / CONFIG / name).exists() for name in JSON_FILES)


def _time_of(path: Path) -> int:
    return path.stat().st_mtime_ns
