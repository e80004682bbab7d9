"""The tables of the configuration: topics, groups, committed offsets and delay offsets, in files or RocksDB.

`broker.config.v1` keeps a database for each of the first three, or families of one for all; `broker.config.v2` has one
of its own. Delay offsets (`ScheduleMessageService`) are always in files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from rmqtool.base.errors import EndingError, RmqtoolError, UnsupportedError
from rmqtool.base.files import list_directory
from rmqtool.base.paths import has_directory, has_file
from rmqtool.findings.finding import Finding
from rmqtool.formats.rocksdb_rows import config_entry, json_entry
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.system_topics import LITE_PREFIX, LMQ_PREFIX, is_system_topic
from rmqtool.rules.versions import LIGHT_OFFSETS, LIGHT_OFFSETS_READ, LIGHT_QUEUES_EXPIRE, Releases, Version
from rmqtool.store.config_json import ConfigFile, is_damaged_name, load_config
from rmqtool.store.rocksdb import RocksDb, is_readable
from rmqtool.store.store import BATCH_CONSUME_QUEUE, CONFIG, CONSUME_QUEUE, Store, is_rocksdb_directory

TOPICS, GROUPS, DELAYS = "topics.json", "subscriptionGroup.json", "delayOffset.json"
CONSUMER_FILTER, CONSUMER_OFFSET = "consumerFilter.json", "consumerOffset.json"
LMQ_CONSUMER_OFFSET = "lmqConsumerOffset.json"  # since 4.9.3: with `enableLmq` it replaces the other
OFFSETS = (CONSUMER_OFFSET, LMQ_CONSUMER_OFFSET)
LMQ_TABLE = "lmqOffsetTable"  # in the second of them, beside the table of the other queues
LMQ_QUEUE_ID = 0  # MixAll.LMQ_QUEUE_ID
SECOND, SINGLE = "rdb", "metadata"  # config/rdb since 5.3.2, config/metadata since 5.3.4
FORBIDDEN, FORBIDDEN_TABLE = "forbidden", "forbiddenTable"
"""What groups may not read: the family, since 5.3.1, and the table of subscriptionGroup.json."""
DEFAULT_FAMILY = "default"
"""The family of the rows in a database of its own, and of all rows of version 2."""
VERSION_FAMILY = "kvDataVersion"
"""The family of the version in a database of its own, since 5.3.1."""
VERSION_KEY = b"kvDataVersionKey"  # ConfigRocksDBStorage.KV_DATA_VERSION_KEY

Form = Literal["json", "separate", "single", "second"]
"""JSON files, a database for each table, one for all of version 1, that of version 2."""


@dataclass(frozen=True)
class ConfigTable:
    """The main table of a JSON file, and where RocksDB has it: a database, and a family in the one for all.

    Version 2 names the table as that family. `named_by` is the field of an entry that repeats its name; `if_empty` what
    is lost where an empty table takes the place of one that cannot be read.
    """

    file: str
    name: str
    named_by: str = ""
    database: str = ""
    family: str = ""
    if_empty: str = ""

    @property
    def version_family(self) -> str:
        """The family of the table's version in the database for all."""
        return f"{self.family}Version"

    def place(self, form: Form) -> str:
        """The file or database in `config/` that has it."""
        return {"json": self.file, "separate": self.database, "single": SINGLE, "second": SECOND}[form]

    def families(self, database: str) -> tuple[str, str]:
        """The column families that a database of version 1 has for its entries, and for its version."""
        return (self.family, self.version_family) if database == SINGLE else (DEFAULT_FAMILY, VERSION_FAMILY)

    def part_of(self, database: str) -> str:
        """What of a database the table is, in words; empty for its own database."""
        return {SINGLE: f"column family {self.family}", SECOND: f"table {self.family}"}.get(database, "")

    def lost_in(self, database: str, lost: str) -> str:
        """What is lost, as a finding says it: the database is gone, is without the table, or that is empty.

        A file, too, counts as a database of its own.
        """
        part, gone = self.part_of(database), "the database is not there"
        if lost == "gone":
            return f"{gone}, nor is its {part}" if part else gone
        if not part:
            return "it is empty" if lost == "empty" else gone
        return f"it has no {part}" if lost == "without" else f"its {part} is empty"


_MAIN = (
    ConfigTable(TOPICS, "topicConfigTable", "topicName", "topics", "topic"),
    ConfigTable(GROUPS, "subscriptionGroupTable", "groupName", "subscriptionGroups", "subscriptionGroup"),
    ConfigTable(CONSUMER_OFFSET, "offsetTable", "", "consumerOffsets", "consumerOffset"),
    ConfigTable(LMQ_CONSUMER_OFFSET, "offsetTable"),
    ConfigTable(DELAYS, "offsetTable"),
)
_OTHERS = (
    ConfigTable("topicQueueMapping.json", "topicQueueMappingInfoMap", "topic"),
    ConfigTable("messageRequestMode.json", "messageRequestModeMap"),
    ConfigTable("timermetrics", "timingCount", if_empty="numbers of waiting timers: the broker counts them again"),
    ConfigTable(
        CONSUMER_FILTER, "filterDataByTopic", if_empty="SQL filters of groups: consumers send them when they connect"
    ),
    ConfigTable(
        "consumerOrderInfo.json", "table", if_empty="which messages orderly pop consumers hold: they may get them again"
    ),
)
MAIN_TABLES: Mapping[str, str] = {table.file: table.name for table in _MAIN}
"""The files whose loss loses something, and their tables; each release writes the table, be it empty."""
FILE_TABLES: Mapping[str, ConfigTable] = {table.file: table for table in (*_MAIN, *_OTHERS)}
"""All files that have a table."""
TABLES: Mapping[str, ConfigTable] = {table.file: table for table in _MAIN if table.database}
"""The tables that a broker may keep in RocksDB, by their files."""
CONFIG_DATABASES = (*(table.database for table in TABLES.values()), SINGLE, SECOND)
"""The databases in `config/`, of every release."""


def entries_in(content: Mapping[str, Any], table: str) -> dict[str, Any]:
    """A table of a file's object; empty where there is none."""
    entries = content.get(table)
    return entries if isinstance(entries, dict) else {}


def main_table(name: str, content: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The main table of a config file; None when the file has none."""
    table = content.get(MAIN_TABLES[name])
    return table if isinstance(table, dict) else None


def _counter(content: Mapping[str, Any]) -> int:
    """How often a table was changed, by its version; 0 without one."""
    counter = entries_in(content, "dataVersion").get("counter")
    return counter if type(counter) is int else 0


def load_table(store: Store, name: str, form: Form | None = None) -> ConfigFile:
    """A JSON file of `config/`, or what is in RocksDB in its place, by the broker's own rule of which counts.

    Version 2 counts where it is; version 1 unless the file's version has counted further (`ConfigManager#load` of the
    RocksDB managers). `path` is the database then. Without the library the file counts. `path` is None where neither
    a file nor a database has the table: brokers before 5.3.4 make all tables when they start, later ones each at its
    first use. With a `form` that of a broker which keeps its tables so.
    """
    file = load_config(store.root / CONFIG / name, None if form else store.conf.release)
    database = config_database(store, name, form)
    if database is None:
        return file
    try:
        with store.opened(database) as opened:
            content = (_second if database.name == SECOND else _first)(opened, TABLES[name])
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


def form_of(conf: BrokerConf) -> Form | None:
    """Where a broker with these settings keeps its tables; None where there are none."""
    version, kind = conf.text("configManagerVersion") or "", conf.text("storeType") or ""
    if version.lower() == "v2":
        return "second"
    if kind.lower() == "defaultrocksdb":
        return "single" if conf.is_on("useSingleRocksDBForAllConfigs") else "separate"
    return "json" if conf.path or version or kind else None


def config_database(store: Store, name: str, form: Form | None = None) -> Path | None:
    """The database that holds the table of a JSON file; None where the file itself counts.

    A broker.conf, or the `form`, says which is used: others may be left from before a change of it.
    """
    first, form = (SINGLE, TABLES[name].database), form or form_of(store.conf)
    places = {None: (SECOND, *first), "second": (SECOND,), "json": ()}.get(form, first)
    return next((path for place in places if is_rocksdb_directory(path := store.root / CONFIG / place)), None)


def expected_database(store: Store, name: str) -> Path | None:
    """As `config_database`; also one that is gone, known by those of other tables, or where no table is in a file.

    Then broker.conf names it, or an empty directory; or queues in RocksDB alone show that there was one.
    """
    database, config = config_database(store, name), store.root / CONFIG
    own = config / TABLES[name].database
    if database is not None:
        return database
    if any(config_database(store, each) for each in TABLES if each != name):
        return own
    if any(has_file(config / f"{file}{end}") for file in (*TABLES, LMQ_CONSUMER_OFFSET) for end in ("", ".bak")):
        return None
    form = form_of(store.conf)
    if form is not None:
        return None if form == "json" else config / TABLES[name].place(form)
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


def _first(database: RocksDb, table: ConfigTable) -> dict[str, Any] | None:
    """What a table of version 1 holds; None where the database for all has no such table."""
    family, version = table.families(database.directory.name)
    if family not in database.families:
        return None
    entries, versions = _values(database, family), _values(database, version)
    if table.file == CONSUMER_OFFSET:
        entries = {name: value.get("offsetTable", {}) for name, value in entries.items()}
    content = {table.name: entries, "dataVersion": next(iter(versions.values()), {})}
    return content | ({FORBIDDEN_TABLE: _values(database, FORBIDDEN)} if table.file == GROUPS else {})


def _values(database: RocksDb, family: str) -> dict[str, dict[str, Any]]:
    """The JSON objects of a family by name; none where there is no such family."""
    rows = database.rows(family) if family in database.families else ()
    return {row.key["name"]: _object(row.json) for row in (json_entry(*each) for each in rows)}


def _second(database: RocksDb, table: ConfigTable) -> dict[str, Any] | None:
    """What a table of version 2 holds; None where there is no row of it, not even its version."""
    entries: dict[str, Any] = {}
    content: dict[str, Any] = {table.name: entries}
    for row in (config_entry(*each) for each in database.rows(DEFAULT_FAMILY)):
        if row.key["table"] != table.family:
            continue
        if row.kind == "config-version":
            content["dataVersion"] = row.fields
        elif row.kind == "committed-offset":
            queues = entries.setdefault(f"{row.key['topic']}@{row.key['group']}", {})
            queues[str(row.key["queue_id"])] = row.fields["offset"]
        else:
            entries[row.key["name"]] = _object(row.json)
    return content if len(content) > 1 or entries else None


def _object(text: str | None) -> dict[str, Any]:
    value = json.loads(text or "null")
    return value if isinstance(value, dict) else {}


MISSING = "config.missing"
"""The code of a table that the store proves to be lost, in a file or in RocksDB.

Its details have `lost`, and of a database `table`, the JSON file in whose place RocksDB had the table.
"""


def lost_table(finding: Finding) -> str | None:
    """The JSON file in whose place RocksDB had the lost table; None for other findings."""
    return finding.details.get("table") if finding.code == MISSING else None


def lost_place(finding: Finding) -> str:
    """The file that is lost; for a part of a database its name, too."""
    part = finding.details.get("part")
    return f"{finding.file}, {part}" if part else str(finding.file)


READABLE, WRITABLE = 4, 2  # PermName
_BATCH_QUEUE = "BatchCQ"  # CQType.BatchCQ, of the attribute queue.type since 5.0.0
_NO_ATTRIBUTES: Mapping[str, str] = {}  # of most topics: one for all


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic's configuration: the settings that decide which files it has."""

    name: str
    read_queues: int
    write_queues: int
    attributes: Mapping[str, str] = field(default_factory=dict)
    perm: int = READABLE | WRITABLE

    @property
    def has_batch_queues(self) -> bool:
        """Whether the topic's queues are batch consume queues."""
        return self.attributes.get("queue.type") == _BATCH_QUEUE

    def serves(self, queue_id: int) -> bool:
        """Whether consumers get messages of a queue (`PullMessageProcessor#processRequest`)."""
        return bool(self.perm & READABLE) and queue_id < self.read_queues

    @property
    def is_compacted(self) -> bool:
        """Whether only the newest message of each key stays, since 5.1.0 (`CleanupPolicyUtils#getDeletePolicy`)."""
        return self.attributes.get("cleanup.policy") == "COMPACTION"


@dataclass(frozen=True)
class Topics:
    """All topics by name, and the file that they come from."""

    file: ConfigFile
    by_name: Mapping[str, Topic]
    place: str = TOPICS
    """What names the topics, or would: topics.json, or a database such as ``config/topics``."""

    @property
    def file_name(self) -> str:
        """That file or database, relative to the store."""
        return f"{CONFIG}/{TOPICS}" if self.place == TOPICS else self.place

    @property
    def is_known(self) -> bool:
        """Whether there is a file that names topics."""
        return self.file.path is not None

    @property
    def names_all(self) -> bool:
        """Whether a topic that is not named does not exist; version 2 leaves out those that were made on demand."""
        return self.file.path is not None and self.file.path.name != SECOND

    @cached_property
    def with_batch_queues(self) -> frozenset[str] | None:
        """Names of the topics that have batch consume queues; None when no file names topics."""
        if not self.is_known:
            return None
        return frozenset(name for name, topic in self.by_name.items() if topic.has_batch_queues)


def is_compacted(store: Store, topic: str) -> bool:
    """Whether a topic is cleaned up by compaction."""
    config = load_topics(store).by_name.get(topic)
    return config is not None and config.is_compacted


def load_topics(store: Store) -> Topics:
    """Read the topics that a start of the broker would use; entries that are no topic are left out."""
    file = load_table(store, TOPICS)
    topics = {}
    for name, value in entries_in(file.content, MAIN_TABLES[TOPICS]).items():
        if isinstance(value, dict):
            queues = _count(value, "readQueueNums"), _count(value, "writeQueueNums")
            perm = value.get("perm")
            permission = perm if type(perm) is int else READABLE | WRITABLE
            topics[name] = Topic(name, *queues, _attributes(value), permission)
    place = file.path or expected_database(store, TOPICS)  # which looks at many files, and is seldom asked
    name = place.name if place else TOPICS
    return Topics(file, topics, f"{CONFIG}/{name}" if name in CONFIG_DATABASES else TOPICS)


def _count(value: dict[str, Any], name: str) -> int:
    count = value.get(name)
    return count if type(count) is int else 16  # TopicConfig.defaultReadQueueNums


def _attributes(value: dict[str, Any]) -> Mapping[str, str]:
    """Attributes by name; a change that was stored as one keeps its sign (``+queue.type``)."""
    attributes = entries_in(value, "attributes").items()
    return {name.lstrip("+"): text for name, text in attributes if isinstance(text, str)} or _NO_ATTRIBUTES


def is_deleted(topic: str, topics: Topics, releases: Releases) -> bool:
    """Whether a topic without a queue was deleted, so that nobody misses its messages."""
    if topic.startswith(LMQ_PREFIX):
        return topic.startswith(LITE_PREFIX) and releases.newest >= LIGHT_QUEUES_EXPIRE  # no broker deletes others
    return topics.names_all and topic not in topics.by_name and not is_system_topic(topic)


_QUEUE_ID = re.compile(r"-?\d{1,10}", re.ASCII)
_MAX_OFFSET = (1 << 63) - 1


@dataclass(frozen=True, order=True)
class CommittedOffset:
    """The next queue offset that a group consumes of a queue."""

    group: str
    topic: str
    queue_id: int
    offset: int

    @property
    def is_damaged(self) -> bool:
        """Whether damage has changed the names, so that the broker has the offset for no group that asks."""
        return is_damaged_name(self.topic) or is_damaged_name(self.group)


@dataclass(frozen=True)
class CommittedOffsets:
    """All committed offsets of a store and the file that they come from."""

    file: ConfigFile
    offsets: tuple[CommittedOffset, ...]


def load_offsets(store: Store) -> CommittedOffsets:
    """Read the offsets that a start of the broker would use; where nothing says which file counts, those of one."""
    counting, file = counting_file(store), ConfigFile(None, {})
    if counting != CONSUMER_OFFSET:
        file = load_config(store.root / CONFIG / LMQ_CONSUMER_OFFSET, store.conf.release)
    is_light = file.path is not None or counting == LMQ_CONSUMER_OFFSET
    if not is_light or config_database(store, CONSUMER_OFFSET) is not None:
        plain = load_table(store, CONSUMER_OFFSET)
        bad = plain.has_bad_backup or file.has_bad_backup
        file = replace(plain, problem=plain.problem or file.problem, has_bad_backup=bad)
    return CommittedOffsets(file, offsets_in(file.content))


def counting_file(store: Store, version: Version | None = None) -> str | None:
    """The file of offsets that a broker reads: with `enableLmq` one of its own; None where nothing says which.

    It then reads nothing from the other one (`LmqConsumerOffsetManager`). `version` is that of the start.
    """
    release = version or store.conf.release
    if release is not None and release < LIGHT_OFFSETS:
        return CONSUMER_OFFSET
    if not store.conf.decides("enableLmq"):
        return None
    return LMQ_CONSUMER_OFFSET if store.conf.is_on("enableLmq") else CONSUMER_OFFSET


def reads_no_offsets(store: Store, version: Version) -> bool:
    """Whether a start of `version` finds no committed offset, whatever the files hold: 4.9.3 with `enableLmq`."""
    return version < LIGHT_OFFSETS_READ and counting_file(store, version) == LMQ_CONSUMER_OFFSET


def offsets_of_start(store: Store, version: Version) -> tuple[CommittedOffset, ...]:
    """The offsets that a start of `version` reads, by the rules of its decoder."""
    name = counting_file(store, version)
    if reads_no_offsets(store, version):
        return ()
    if name is None or config_database(store, CONSUMER_OFFSET):
        return load_offsets(store).offsets
    return offsets_in(load_config(store.root / CONFIG / name, version).content)


def offsets_in(content: Mapping[str, Any]) -> tuple[CommittedOffset, ...]:
    """The offsets in a file's object."""
    return tuple(sorted(_offsets_in(content), key=attrgetter("group", "topic", "queue_id", "offset")))


def _offsets_in(content: Mapping[str, Any]) -> Iterator[CommittedOffset]:
    plain = entries_in(content, "offsetTable").items()
    queues_of = [(name, queues.items()) for name, queues in plain if isinstance(queues, dict)]
    lights = entries_in(content, LMQ_TABLE).items()
    queues_of += [(name, {str(LMQ_QUEUE_ID): offset}.items()) for name, offset in lights]
    for topic_at_group, queues in queues_of:
        topic, at, group = topic_at_group.partition("@")
        if not at and not is_damaged_name(topic):
            continue
        for queue_id, offset in queues:
            # Whole numbers that fit into Java's `long`.
            if type(offset) is int and abs(offset) <= _MAX_OFFSET and _QUEUE_ID.fullmatch(queue_id):
                yield CommittedOffset(group, topic, int(queue_id), offset)


_LEVEL = re.compile(r"\d{1,9}", re.ASCII)


@dataclass(frozen=True)
class DelayOffsets:
    """The next queue offset to deliver, by delay level, and the file; levels that are not there begin at 0."""

    file: ConfigFile
    by_level: dict[int, int]


def load_delay_offsets(store: Store) -> DelayOffsets:
    """Read the offsets that a start of the broker would use."""
    file = load_config(store.root / CONFIG / DELAYS, store.conf.release)
    return DelayOffsets(file, offsets_by_level(file.content))


def offsets_by_level(content: Mapping[str, Any]) -> dict[int, int]:
    """The offsets in a file's object."""
    levels = entries_in(content, MAIN_TABLES[DELAYS]).items()
    return {int(level): offset for level, offset in levels if _LEVEL.fullmatch(level) and type(offset) is int}
