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
from typing import Any

from rmqtool.base.errors import UnreadableError, UsageError
from rmqtool.base.files import list_directory
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding, first_of
from rmqtool.formats.rocksdb_rows import config_json_row, config_offset_row, config_version_row
from rmqtool.rebuild.derive import Derivation
from rmqtool.rebuild.options import Target
from rmqtool.rebuild.source import RebuildSource
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
from rmqtool.store.config_tables import (
    CONFIG_DATABASES,
    CONSUMER_OFFSET,
    DEFAULT_FAMILY,
    FORBIDDEN,
    FORBIDDEN_TABLE,
    GROUPS,
    LMQ_CONSUMER_OFFSET,
    LMQ_QUEUE_ID,
    LMQ_TABLE,
    SECOND,
    SINGLE,
    TABLES,
    TOPICS,
    VERSION_KEY,
    Form,
    counting_file,
    entries_in,
    load_table,
)
from rmqtool.store.consume_queues import Kind, Queue
from rmqtool.store.queue_units import queue_range
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

JSON_FILES = (*TABLES, LMQ_CONSUMER_OFFSET)
LABELS = {TOPICS: "topics", GROUPS: "groups", CONSUMER_OFFSET: "offsets"}
"""The names of the tables for people."""


@dataclass(frozen=True)
class FoundTable:
    """One of the tables: its `entries` by name, its version, and the place in the store that it comes from."""

    file: str  # the JSON file that has such a table
    entries: Mapping[str, Any]
    version: Mapping[str, int]
    source: str
    forbidden: Mapping[str, Any]  # of groups

    @property
    def label(self) -> str:
        """The name of the table for people."""
        return LABELS[self.file]


def _live_form(store: Store, target: Target) -> Form:
    """Where the tables are that the store's broker uses.

    Version 2 counts where broker.conf asks for it, or where nothing else is there. Of version 1 and JSON files the
    broker's own rule decides for each table (`load_table`), unless the queues show that files count.
    """
    config, given = store.root / CONFIG, store.conf.text("configManagerVersion")
    has_json = any((config / name).exists() for name in JSON_FILES)
    forms: tuple[Form, Form] = ("single", "separate")
    found = [form for form in forms
             if any(is_rocksdb_directory(config / table.place(form)) for table in TABLES.values())]  # fmt: skip
    if is_rocksdb_directory(config / SECOND):
        is_asked = (given or "").lower() == "v2"
        if is_asked or not (found or has_json) or (given is None and store.conf.path is None):
            return "second"
    is_left_over = target == "rocksdb" and has_json and (not queue_database(store) or store.writes_queues_twice)
    return found[0] if found and not is_left_over else "json"


def _wanted_form(store: Store, target: Target, live: Form) -> Form:
    """Where the tables are to be: as broker.conf says, or in the version in which they are."""
    conf = replace(store.conf, release=None)  # what a release does not know is refused, not left out
    given = conf.text("configManagerVersion")
    if (given or "").lower() == "v2" or (live == "second" and given is None and conf.path is None):
        return "second"
    if target == "files":
        return "json"
    is_single = conf.is_on("useSingleRocksDBForAllConfigs")
    return "single" if is_single or live == "single" else "separate"


def _table(store: Store, name: str, form: Form) -> FoundTable | None:
    """A table, if it is there, from where it is; raises UnreadableError, and UsageError for doubtful offsets."""
    file = _offsets_file(store) if form == "json" and name == CONSUMER_OFFSET else load_table(store, name, form)
    if file.path is None:
        if file.problem:
            raise UnreadableError(f"{name}, or what is in its place, cannot be read: {file.problem}", file=store.root)
        return None
    table = dict(entries_in(file.content, TABLES[name].name))
    if name == CONSUMER_OFFSET:
        lights = entries_in(file.content, LMQ_TABLE)
        table |= {entry: {str(LMQ_QUEUE_ID): offset} for entry, offset in lights.items()}
    bad = next((entry for entry, value in table.items() if not isinstance(value, dict)), None)
    if bad is not None:
        raise UnreadableError(f"the entry {bad!r} is not an object", file=file.path, hint="repair it first")
    found = entries_in(file.content, "dataVersion")
    version = {"counter": found.get("counter", 0), "timestamp": found.get("timestamp", 0),
               "stateVersion": found.get("stateVersion", found.get("state_version", 0))}  # fmt: skip
    return FoundTable(name, table, version, store.relative(file.path), entries_in(file.content, FORBIDDEN_TABLE))


def _offsets_file(store: Store) -> ConfigFile:
    """The file of offsets that counts: with `enableLmq` one of its own (`LmqConsumerOffsetManager`)."""
    light, plain = (load_config(store.root / CONFIG / name) for name in (LMQ_CONSUMER_OFFSET, CONSUMER_OFFSET))
    counting = counting_file(store)
    if counting is not None:
        return light if counting == LMQ_CONSUMER_OFFSET else plain
    if light.path and plain.path and plain.path.stat().st_mtime_ns > light.path.stat().st_mtime_ns:
        message = f"{CONSUMER_OFFSET} is newer than {LMQ_CONSUMER_OFFSET}, which a broker with enableLmq=true reads"
        raise UsageError(message, hint="choose one with --broker-conf FILE")
    return light if light.path else plain


Families = Mapping[str, Mapping[bytes, bytes]]
"""The rows of a database by column family."""


def _json_file(table: FoundTable, *, light: bool) -> tuple[str, bytes]:
    """A file of `config/` and its name; with `light` offsets are in the file that `enableLmq` needs."""
    entries, name = dict(table.entries), table.file
    content: dict[str, Any] = {"dataVersion": table.version, TABLES[name].name: entries}
    if name == CONSUMER_OFFSET and light:
        name = LMQ_CONSUMER_OFFSET
        lights = {entry: entries.pop(entry) for entry in table.entries
                  if entry.partition("@")[2].startswith(LMQ_PREFIX)}  # fmt: skip
        content[LMQ_TABLE] = {entry: next(iter(queues.values())) for entry, queues in lights.items() if queues}
    if name == GROUPS:
        content[FORBIDDEN_TABLE] = table.forbidden
    text = json.dumps(content, ensure_ascii=False, indent="\t", separators=(",", ":"), sort_keys=True)
    return name, text.encode("utf-8", "replace")


def _databases(tables: Sequence[FoundTable], form: Form, release: Version) -> dict[str, Families]:
    """The databases below `config/` by name; a release before 5.3.1 opens none with a second column family."""
    if form == "second":
        return {SECOND: {DEFAULT_FAMILY: dict(row for table in tables for row in _second_rows(table))}}
    is_single = form == "single"
    found: dict[str, dict[str, dict[bytes, bytes]]] = {SINGLE: {DEFAULT_FAMILY: {}}} if is_single else {}
    for table in tables:
        database, entries = TABLES[table.file].place(form), table.entries
        if table.file == CONSUMER_OFFSET:
            entries = {name: {"offsetTable": queues} for name, queues in entries.items()}
        families, (own, of_version) = found.setdefault(database, {}), TABLES[table.file].families(database)
        families[own] = _json_rows(entries)
        if is_single or release >= ROCKSDB_CONFIG_VERSIONS:
            families[of_version] = {VERSION_KEY: _text(table.version).encode()}
            families.setdefault(FORBIDDEN, {}).update(_json_rows(table.forbidden))
    return dict(found)


def _json_rows(entries: Mapping[str, Any]) -> dict[bytes, bytes]:
    return {name.encode(): _text(entry).encode() for name, entry in entries.items()}


def _second_rows(table: FoundTable) -> Iterator[tuple[bytes, bytes]]:
    name, version = TABLES[table.file].family, table.version
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
    tables: Sequence[FoundTable]
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

    def place_of(self, table: FoundTable) -> str:
        """Where a table is afterwards, relative to the store: where it was if the form stays."""
        if not (self.files or self.databases):
            return table.source
        if table.file == CONSUMER_OFFSET and LMQ_CONSUMER_OFFSET in self.files:
            return f"{CONFIG}/{LMQ_CONSUMER_OFFSET}"
        return f"{CONFIG}/{TABLES[table.file].place(self.form)}"


def conversion_of(source: RebuildSource, found: set[QueueName], left_out: Collection[QueueName]) -> Conversion | None:
    """The conversion of a store, None where none is asked for.

    `found` are the queues that the log gives, `left_out` those of which the release has no rows.
    Raises UsageError for what no broker would serve afterwards, UnreadableError for tables that cannot be read.
    """
    target = source.options.target
    if target is None:
        return None
    store, release = source.snapshot.store, source.releases.oldest
    live = _live_form(store, target)
    form = _wanted_form(store, target, live)
    is_there = _is_in_place(source, live, form)
    if target == "rocksdb" and not is_there:
        _require_release(source, form)
        _require_possible(source, found, left_out)
    tables = [table for name in TABLES if (table := _table(store, name, live)) is not None]
    is_light = _is_light(source, tables)
    files = dict(_json_file(table, light=is_light) for table in tables) if form == "json" != live else {}
    rows = _databases(tables, form, release) if form not in ("json", live) else {}
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


def _is_in_place(source: RebuildSource, live: Form, form: Form) -> bool:
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
    if releases.differ_by(ROCKSDB_QUEUES, ROCKSDB_CONFIG_VERSIONS, ROCKSDB_LIGHT_QUEUES, SINGLE_ROCKSDB_CONFIG):
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
            f"{first_of(sorted(batch), _MAX_NAMES)}: topics with batch queues (queue.type=BatchCQ), whose messages no "
            "broker finds in RocksDB",
            hint="first let their consumers finish, delete the topics, and wait until retention has deleted their "
            "messages",
        )
    if left_out:
        raise UsageError(
            f"{first_of(sorted(name.topic for name in left_out), _MAX_NAMES)}: light queues, which have rows since "
            f"{ROCKSDB_LIGHT_QUEUES} only",
            hint="convert for a newer release, with --broker-version",
        )


def _is_light(source: RebuildSource, tables: Sequence[FoundTable]) -> bool:
    """Whether the broker has `enableLmq`, by which it reads another file of offsets."""
    conf = source.snapshot.store.conf
    if conf.decides("enableLmq"):
        return conf.is_on("enableLmq")
    groups = (entry.partition("@")[2] for table in tables if table.file == CONSUMER_OFFSET for entry in table.entries)
    return source.snapshot.has_light_queues or any(group.startswith(LMQ_PREFIX) for group in groups)


def _removed_configs(source: RebuildSource, written: Collection[str]) -> Iterator[str]:
    """What would be left in `config/` beside what is written, or would count instead of it."""
    names = [*JSON_FILES, *(f"{name}{_BACKUP}" for name in JSON_FILES)]
    for name in (*names, *CONFIG_DATABASES):
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


def _not_carried(tables: Sequence[FoundTable], form: Form, release: Version) -> Iterator[Finding]:
    """What the new place has no room for."""
    forbidden = sum(len(table.forbidden) for table in tables)
    if forbidden and (form == "second" or release < ROCKSDB_CONFIG_VERSIONS):
        yield finding("rebuild.not-carried", file=f"{CONFIG}/{GROUPS}", count=forbidden)
