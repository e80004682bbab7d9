"""The way of a store between the two worlds: queues, topics, groups and offsets in files, or in RocksDB (`storeType`).

A broker converts nothing itself but JSON files that have changed since: with the other `storeType` it starts on empty
queues. Batch queues stay in files: brokers with RocksDB do not find the messages inside of a batch
(`RocksDBConsumeQueue`), and number the next batch from the last one's first message on after a start.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from rmqtool.base.errors import UnreadableError, UsageError
from rmqtool.base.files import list_directory
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding
from rmqtool.formats.rocksdb_config_rows import config_json_row, config_offset_row, config_version_row
from rmqtool.rebuild.derive import Derivation
from rmqtool.rebuild.options import Target
from rmqtool.rebuild.source import RebuildSource
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.system_topics import LMQ_PREFIX
from rmqtool.rules.versions import (
    ROCKSDB_CONFIG_VERSIONS,
    ROCKSDB_LIGHT_QUEUES,
    ROCKSDB_QUEUES,
    SECOND_CONFIG,
    SINGLE_ROCKSDB_CONFIG,
    Version,
)
from rmqtool.store.config_json import ConfigFile, load_config
from rmqtool.store.consume_queues import Kind, Queue
from rmqtool.store.consumer_groups import CONSUMER_OFFSET, LMQ_CONSUMER_OFFSET, counting_file
from rmqtool.store.queue_units import queue_range
from rmqtool.store.rocksdb_config import (
    FORBIDDEN,
    FORBIDDEN_TABLE,
    SECOND,
    SINGLE,
    TABLES,
    VERSION_FAMILY,
    VERSION_KEY,
    load_table,
)
from rmqtool.store.rocksdb_queues import NO_UNIT, LastUnit, queue_database
from rmqtool.store.store import (
    BATCH_CONSUME_QUEUE,
    CONFIG,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    SEPARATE_ROCKSDB_QUEUES,
    Store,
    is_rocksdb_directory,
)

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
        _version_of(file.content.get("dataVersion")),
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


def _version_of(value: object) -> dict[str, int]:
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


Families = Mapping[str, Mapping[bytes, bytes]]
"""The rows of a database by column family."""

_DEFAULT = "default"


def json_files(tables: Sequence[ConfigTable], *, light: bool) -> dict[str, bytes]:
    """The files of `config/` by name; with `light` offsets are in the file that `enableLmq` needs."""
    return dict(_json_file(table, light=light) for table in tables)


def _json_file(table: ConfigTable, *, light: bool) -> tuple[str, bytes]:
    content: dict[str, Any] = {"dataVersion": dict(table.version), TABLES[table.file].json_name: dict(table.entries)}
    name = table.file
    if name == CONSUMER_OFFSET and light:
        name = LMQ_CONSUMER_OFFSET
        is_light = {entry: entry.partition("@")[2].startswith(LMQ_PREFIX) for entry in table.entries}
        content["offsetTable"] = {entry: queues for entry, queues in table.entries.items() if not is_light[entry]}
        content[LIGHT_OFFSETS] = {
            entry: next(iter(queues.values())) for entry, queues in table.entries.items() if is_light[entry] and queues
        }
    if table.file == "subscriptionGroup.json":
        content[FORBIDDEN_TABLE] = dict(table.forbidden)
    text = json.dumps(content, ensure_ascii=False, indent="\t", separators=(",", ":"), sort_keys=True)
    return name, text.encode("utf-8", "replace")


def databases(tables: Sequence[ConfigTable], form: Form, release: Version) -> dict[str, Families]:
    """The databases below `config/` by name; a release before 5.3.1 opens none with a second column family."""
    if form == "second":
        return {SECOND: {_DEFAULT: dict(row for table in tables for row in _second_rows(table))}}
    if form == "single":
        families: dict[str, Mapping[bytes, bytes]] = {_DEFAULT: {}}
        for table in tables:
            place = TABLES[table.file]
            families |= {place.family: _entries(table), place.version_family: _version_row(table)}
            families |= {FORBIDDEN: _forbidden(table)} if table.forbidden or FORBIDDEN not in families else {}
        return {SINGLE: families}
    return {TABLES[table.file].database: _own_database(table, release) for table in tables}


def _own_database(table: ConfigTable, release: Version) -> Families:
    families = {_DEFAULT: _entries(table)}
    if release >= ROCKSDB_CONFIG_VERSIONS:
        families |= {VERSION_FAMILY: _version_row(table), FORBIDDEN: _forbidden(table)}
    return families


def _entries(table: ConfigTable) -> dict[bytes, bytes]:
    is_offset = table.file == CONSUMER_OFFSET
    return {name.encode(): _text({"offsetTable": entry} if is_offset else entry).encode()
            for name, entry in table.entries.items()}  # fmt: skip


def _version_row(table: ConfigTable) -> dict[bytes, bytes]:
    return {VERSION_KEY: _text(table.version).encode()}


def _forbidden(table: ConfigTable) -> dict[bytes, bytes]:
    return {name.encode(): _text(entry).encode() for name, entry in table.forbidden.items()}


def _second_rows(table: ConfigTable) -> Iterator[tuple[bytes, bytes]]:
    name = TABLES[table.file].second
    version = table.version
    yield config_version_row(name, version["stateVersion"], version["timestamp"], version["counter"])
    for entry, value in table.entries.items():
        if table.file != CONSUMER_OFFSET:
            yield config_json_row(name, entry, _text(value))
            continue
        topic, _, group = entry.partition("@")
        for queue_id, offset in value.items():
            yield config_offset_row(group, topic, int(queue_id), int(offset))


def _text(value: object) -> str:
    """A value as `SerializerFeature.BrowserCompatible` writes it."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


_BACKUP = ".bak"
_MAX_NAMES = 3


@dataclass(frozen=True)
class CarriedQueue:
    """A queue of which the log holds no message: its end is carried over, so that its offsets go on."""

    name: QueueName
    kind: Kind
    last: LastUnit


@dataclass(frozen=True)
class Conversion:
    """What a conversion changes beside the queues that the log gives, and the settings that a broker needs then.

    `is_in_place` is set where the store is in the wanted place already.
    """

    target: Target
    form: Form
    tables: Sequence[ConfigTable]
    files: Mapping[str, bytes]  # of `config/`, by name
    databases: Mapping[str, Families]  # of `config/`, by name
    removed: Sequence[str]  # files and directories, relative to the store
    replaces_queues: bool  # whether the directories of queue files are put as a whole
    carried: Sequence[CarriedQueue]
    settings: Mapping[str, str]
    is_in_place: bool = False
    absent: Sequence[str] = ()  # labels of tables that are nowhere, which brokers make when they need them
    findings: Sequence[Finding] = field(default_factory=tuple)

    @property
    def is_empty(self) -> bool:
        """Whether nothing of the store changes by it."""
        return not (self.files or self.databases or self.removed)

    def place_of(self, table: ConfigTable) -> str:
        """Where a table is afterwards, relative to the store: where it was if the form stays."""
        if not (self.files or self.databases):
            return table.source
        if table.file == CONSUMER_OFFSET and LMQ_CONSUMER_OFFSET in self.files:
            return f"{CONFIG}/{LMQ_CONSUMER_OFFSET}"
        names = {"json": table.file, "separate": TABLES[table.file].database, "single": SINGLE, "second": SECOND}
        return f"{CONFIG}/{names[self.form]}"


def conversion_of(source: RebuildSource, found: set[QueueName], left_out: Collection[QueueName]) -> Conversion | None:
    """The conversion of a store, None where none is asked for.

    `found` are the queues that the log gives, `left_out` those of which the release has no rows.
    Raises UsageError for what no broker would serve afterwards, UnreadableError for tables that cannot be read.
    """
    target = source.options.target
    if target is None:
        return None
    store, release = source.snapshot.store, source.releases.oldest
    live = live_form(store, target)
    form = wanted_form(store, target, live)
    is_there = is_in_place(source, live, form)
    if target == "rocksdb" and not is_there:
        _require_release(source, form)
        _require_possible(source, found, left_out)
    tables = read_tables(store, live)
    is_light = _is_light(source, tables)
    files = json_files(tables, light=is_light) if form == "json" != live else {}
    rows = databases(tables, form, release) if form not in ("json", live) else {}
    return Conversion(
        target=target,
        form=form,
        tables=tables,
        files=files,
        databases=rows,
        removed=[*(_removed_configs(source, {*files, *rows}) if form != live else ()), *_removed_queues(source)],
        replaces_queues=target == "files" and not source.file_queues,
        carried=list(_carried(source, found)),
        settings=_settings(source, form, live, light=is_light),
        is_in_place=is_there,
        absent=[label for name, label in LABELS.items() if all(table.file != name for table in tables)],
        findings=list(_not_carried(tables, form, release) if rows else ()),
    )


def is_in_place(source: RebuildSource, live: Form, form: Form) -> bool:
    """Whether queues and tables are where they are to be, so that nothing is left to bring there."""
    is_in_rocksdb = queue_database(source.snapshot.store) is not None
    if source.options.target == "files":
        return live == form and not is_in_rocksdb
    return live == form and is_in_rocksdb and not source.file_queues


def require_all(source: RebuildSource, derivation: Derivation) -> None:
    """Raise UsageError where a conversion would leave out messages of a queue that no rebuild places."""
    jumps = [queue for queue, irregular in (derivation.simple.irregular if derivation.simple else {}).items()
             if irregular.jump]  # fmt: skip
    if source.options.target and jumps:
        name = derivation.queues[jumps[0]]
        raise UsageError(
            f"{name.topic}, queue {name.queue_id}: stored queue offsets jump, and its messages would be left out",
            hint="`rmqtool rebuild-cq` says more; --append-order closes the jump",
        )


def _require_release(source: RebuildSource, form: Form) -> None:
    """Raise UsageError where it is not known, or does not fit, which release is to run on the store."""
    releases = source.releases
    limits = (ROCKSDB_QUEUES, ROCKSDB_CONFIG_VERSIONS, ROCKSDB_LIGHT_QUEUES, SINGLE_ROCKSDB_CONFIG)
    if any(releases.oldest < limit <= releases.newest for limit in limits):
        raise UsageError(
            "which rows a broker reads depends on its release",
            hint="name the release that is to run on the store with --broker-version",
        )
    needed = {"second": SECOND_CONFIG, "single": SINGLE_ROCKSDB_CONFIG}.get(form, ROCKSDB_QUEUES)
    if releases.oldest < needed:
        message = f"{releases.oldest} keeps no queues in RocksDB, or not in this way: that is since {needed}"
        raise UsageError(message, hint="name the release that is to run on the store with --broker-version")


def _require_possible(source: RebuildSource, found: set[QueueName], left_out: Collection[QueueName]) -> None:
    """Raise UsageError for queues that no broker serves from RocksDB."""
    batch = {queue.topic for queue in source.file_queues if queue.kind == "batch"}
    batch |= source.batch_topics & {name.topic for name in found}
    if batch:
        raise UsageError(
            f"{_named(sorted(batch))}: topics with batch queues (queue.type=BatchCQ), whose messages no broker finds "
            "in RocksDB",
            hint="let their consumers finish, delete the topics, and let retention take their messages first",
        )
    if left_out:
        raise UsageError(
            f"{_named(sorted(name.topic for name in left_out))}: light queues, which have rows since "
            f"{ROCKSDB_LIGHT_QUEUES} only",
            hint="convert for a newer release, with --broker-version",
        )


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more


def _is_light(source: RebuildSource, tables: Sequence[ConfigTable]) -> bool:
    """Whether the broker has `enableLmq`, by which it reads another file of offsets."""
    conf = source.snapshot.store.conf
    if conf.decides("enableLmq"):
        return conf.is_on("enableLmq")
    groups = (entry.partition("@")[2] for table in tables if table.file == CONSUMER_OFFSET for entry in table.entries)
    return source.snapshot.has_light_queues or any(group.startswith(LMQ_PREFIX) for group in groups)


def _removed_configs(source: RebuildSource, written: Collection[str]) -> Iterator[str]:
    """What would be left in `config/` beside what is written, or would count instead of it."""
    names = [*JSON_FILES, *(f"{name}{_BACKUP}" for name in JSON_FILES)]
    names += [*(table.database for table in TABLES.values()), SINGLE, SECOND]
    for name in names:
        if name not in written and os.path.lexists(source.snapshot.store.root / CONFIG / name):
            yield f"{CONFIG}/{name}"


def _removed_queues(source: RebuildSource) -> Iterator[str]:
    """Queues that stay behind in the place that the broker no longer reads."""
    root = source.snapshot.store.root
    if source.options.target == "files":
        path = source.rows.path
        if path.name == SEPARATE_ROCKSDB_QUEUES and path.is_dir():
            yield SEPARATE_ROCKSDB_QUEUES
        else:
            yield from (f"{CONSUME_QUEUE}/{name}" for name, _ in source.rows.files())
        return
    for directory in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE, CONSUME_QUEUE_EXT):
        entries = sorted(entry.name for entry in list_directory(root / directory) if entry.is_dir())
        yield from (f"{directory}/{name}" for name in entries)


def _carried(source: RebuildSource, found: set[QueueName]) -> Iterator[CarriedQueue]:
    """Queues without a message in the log that end further in the other place than in the wanted one."""
    files, rows = {QueueName(queue.topic, queue.queue_id): queue for queue in source.file_queues}, source.rows.lasts
    for name in sorted((rows.keys() if source.options.target == "files" else files.keys()) - found):
        in_rows, in_files = rows.get(name, NO_UNIT), _last_in_files(source, files.get(name))
        here, there = (in_files, in_rows) if source.options.target == "files" else (in_rows, in_files)
        if there.queue_offset > here.queue_offset:
            yield CarriedQueue(name, "batch" if name.topic in source.batch_topics else "simple", there)


def _last_in_files(source: RebuildSource, queue: Queue | None) -> LastUnit:
    if queue is None:
        return NO_UNIT
    now = queue_range(queue, source.snapshot.log_min_offset, source.version)
    return LastUnit(now.max_offset - 1, max(now.last_physical_offset or 0, 0))


def _settings(source: RebuildSource, form: Form, live: Form, *, light: bool) -> dict[str, str]:
    """The settings with which a broker uses what is written."""
    is_twice_on = source.snapshot.store.conf.is_on("rocksdbCQDoubleWriteEnable")
    if source.options.target == "files":
        settings = {"storeType": "default"}
        if is_twice_on:
            settings |= {"rocksdbCQDoubleWriteEnable": "false", "combineCQUseRocksdbForLmq": "false"}
    else:
        settings = {"storeType": "defaultRocksDB"}
        if source.places.database.name == SEPARATE_ROCKSDB_QUEUES:
            settings["useSeparateStorePathForRocksdbCQ"] = "true"
        if is_twice_on:
            settings["rocksdbCQDoubleWriteEnable"] = "false"
    if form == "single":
        settings["useSingleRocksDBForAllConfigs"] = "true"
    if "second" in (form, live):
        settings["configManagerVersion"] = "v2" if form == "second" else "v1"
    return settings | ({"enableLmq": "true"} if light else {})


def _not_carried(tables: Sequence[ConfigTable], form: Form, release: Version) -> Iterator[Finding]:
    """What the new place has no room for."""
    forbidden = sum(len(table.forbidden) for table in tables)
    if forbidden and (form == "second" or release < ROCKSDB_CONFIG_VERSIONS):
        yield finding("rebuild.not-carried", file=f"{CONFIG}/subscriptionGroup.json", count=forbidden)
