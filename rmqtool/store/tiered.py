"""Tiered storage in files: the queues of one broker, their segments, and the metadata that name them.

`PosixFileSegment`; a flat file is a row of segments, each named by its first offset (`FlatAppendFile`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmqtool.base.files import list_directory
from rmqtool.base.mapped_files import MappedFile, MappedFiles, Stray
from rmqtool.base.paths import entry_path, has_directory, path_of
from rmqtool.base.remote_path import RemotePath
from rmqtool.base.tolerant import skip_wrong_type
from rmqtool.formats.consume_queue import UNIT_DTYPE, UNIT_SIZE
from rmqtool.formats.java import whole_number
from rmqtool.formats.message import INNER_BATCH
from rmqtool.formats.properties import INNER_NUM, TAGS, tags_code
from rmqtool.formats.tiered import base_of, cluster_directory
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import TIER_REWRITTEN, Version
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.properties import read_properties
from rmqtool.scan.single_record import single_record_at
from rmqtool.store.config_json import ConfigFile, load_config
from rmqtool.store.config_tables import entries_in
from rmqtool.store.consume_queues import Queue
from rmqtool.store.store import CONFIG, Store
from rmqtool.store.unit_files import UnitFiles

METADATA = f"{CONFIG}/tieredStoreMetadata.json"
PLUG_IN, PATH_SETTING, PROVIDER = "messageStorePlugIn", "tieredStoreFilePath", "tieredBackendServiceProvider"
_TIERED, _POSIX, _MEMORY = "TieredMessageStore", "PosixFileSegment", "MemoryFileSegment"
LEVEL_SETTING = "tieredStorageLevel"
SegmentKind = Literal["COMMIT_LOG", "CONSUME_QUEUE", "INDEX"]
SEGMENT_KINDS: tuple[SegmentKind, ...] = ("COMMIT_LOG", "CONSUME_QUEUE", "INDEX")
QUEUE_KINDS: tuple[SegmentKind, ...] = ("COMMIT_LOG", "CONSUME_QUEUE")
"""The flat files of a queue."""
RESERVED_SETTING, _USUAL_HOURS, HOUR_MS = "tieredStoreFileReservedTime", 72, 3_600_000
DELETED = 2  # FileSegmentMetadata.STATUS_DELETED, up to 5.2.0
NEVER = (1 << 63) - 1
"""Begin and end of a segment that holds nothing, epoch ms."""
TABLES: Mapping[SegmentKind, str] = {
    "COMMIT_LOG": "commitLogFileSegmentTable",
    "CONSUME_QUEUE": "consumeQueueFileSegmentTable",
    "INDEX": "indexFileSegmentTable",
}
INDEX_TOPIC = "rmq_sys_INDEX"
"""The topic below which the index segments of a broker are."""


@dataclass(frozen=True)
class TieredQueue:
    """The flat files of one queue; `offset` in the log and in the queue are of the queue's own files, bytes."""

    topic: str
    queue_id: int
    directory: Path
    files: Mapping[SegmentKind, MappedFiles] = field(hash=False)

    @property
    def log(self) -> tuple[MappedFile, ...]:
        """The segments of the commit log."""
        return self.files["COMMIT_LOG"].files

    @property
    def units(self) -> tuple[MappedFile, ...]:
        """The segments of the consume queue."""
        return self.files["CONSUME_QUEUE"].files

    @property
    def queue(self) -> Queue:
        """Its consume queue, to read the units of."""
        return Queue(self.topic, self.queue_id, "simple", self.files["CONSUME_QUEUE"])

    @property
    def first_unit(self) -> int:
        """Queue offset of its first unit."""
        return self.units[0].start_offset // UNIT_SIZE if self.units else 0

    @cached_property
    def min_offset(self) -> int:
        """Queue offset of the first message: log and units expire apart (`FlatMessageFile#getMinOffset`)."""
        first = self.first_offset_from(self.log[0].start_offset) if self.log else 0
        return max(self.first_unit, min(first, self.max_offset))

    def first_offset_from(self, base: int) -> int:
        """The queue offset of the record with which a segment of the log begins; 0 where it cannot be read."""
        record = single_record_at(self.log, base)
        return record.number("queue_offset") if record else 0

    @property
    def max_offset(self) -> int:
        """Queue offset after its last unit."""
        return self.units[-1].end_offset // UNIT_SIZE if self.units else 0


@dataclass(frozen=True)
class Row:
    """What the metadata say of one segment; since 5.3 one that `is_elsewhere` by its own path is read there."""

    base: int
    size: int
    status: int = 0
    begin_timestamp: int = 0
    end_timestamp: int = 0
    is_elsewhere: bool = False


@dataclass(frozen=True)
class Tier:
    """The tier of a store: where it is, what the metadata say, and what is there."""

    store: Store
    path: Path
    metadata: ConfigFile = field(compare=False)

    @property
    def setting(self) -> Mapping[str, str]:
        """The settings of broker.conf: some releases do not know their names, which belong to a plug-in."""
        return self.store.conf.settings

    @cached_property
    def directories(self) -> list[Path]:
        """The directories of brokers: ``HASH_CLUSTER/BROKER``."""
        found = []
        with skip_wrong_type():
            for cluster in list_directory(self.path):
                if cluster.is_dir() and cluster.name[8:9] == "_":
                    found += [entry_path(each) for each in list_directory(entry_path(cluster)) if each.is_dir()]
        return sorted(found)

    @cached_property
    def directory(self) -> Path | None:
        """That of the broker that broker.conf names, which may not exist; without its name the only one that is there.

        None where there are several.
        """
        cluster = (self.setting.get("brokerClusterName") or "").strip()
        broker = (self.setting.get("brokerName") or "").strip()
        if cluster and broker:
            return self.path / cluster_directory(cluster) / broker
        named = [each for each in self.directories if broker in ("", each.name)]
        return named[0] if len(named) == 1 else None

    @cached_property
    def queues(self) -> list[TieredQueue]:
        """The queues by topic and queue id, without the index."""
        return [each for each in self._listed if each.topic != INDEX_TOPIC]

    @cached_property
    def index(self) -> TieredQueue | None:
        """The index of the broker."""
        return next((each for each in self._listed if each.topic == INDEX_TOPIC), None)

    def queue(self, topic: str, queue_id: int) -> TieredQueue | None:
        """One queue; None without a unit in the tier."""
        return next((each for each in self.queues if (each.topic, each.queue_id) == (topic, queue_id)), None)

    @cached_property
    def _listed(self) -> list[TieredQueue]:
        found: list[TieredQueue] = []
        if self.directory is None or not has_directory(self.directory):
            return found
        with skip_wrong_type():
            for topic in sorted(list_directory(self.directory), key=lambda each: each.name):
                for entry in list_directory(entry_path(topic)) if topic.is_dir() else ():
                    if entry.is_dir() and entry.name.isdecimal():
                        path = entry_path(entry)
                        files = {kind: list_segments(path / kind) for kind in SEGMENT_KINDS}
                        found.append(TieredQueue(topic.name, int(entry.name), path, files))
        return found

    def rows(self, queue: TieredQueue, kind: SegmentKind) -> dict[int, Row]:
        """The segments that the metadata have of a queue, by the base that a row itself names."""
        path = f"{queue.directory.parent.parent.name}/{queue.topic}/{queue.queue_id}"
        rows = {}
        for row in entries_in(entries_in(self.metadata.content, TABLES[kind]), path).values():
            if isinstance(row, dict):
                base, size, status, begin, end = (number_of(row.get(name)) for name in (
                    "baseOffset", "size", "status", "beginTimestamp", "endTimestamp"))  # fmt: skip
                rows[base] = Row(base, size, status, begin, end, is_elsewhere=row.get("path") != path)
        return rows

    def is_known(self, queue: TieredQueue, version: Version) -> bool:
        """Whether a start takes up a queue (`FlatFileStore#recover`); a topic is named by its row, not by the key."""
        if queue.topic not in (self._topics if version >= TIER_REWRITTEN else self._active_topics):
            return False
        names = (name for row in self._queue_rows(queue.topic) if isinstance(name := row.get("queue"), dict))
        return queue.queue_id in (number_of(name.get("queueId")) for name in names)

    @cached_property
    def _topics(self) -> frozenset[str]:
        """The topics that rows of the metadata name."""
        return frozenset(topic for row in self._topic_rows.values() if isinstance(topic := row.get("topic"), str))

    @cached_property
    def _active_topics(self) -> frozenset[str]:
        """Those of the topics in a row of status 0."""
        rows = (row for row in self._topic_rows.values() if not number_of(row.get("status")))
        return frozenset(topic for row in rows if isinstance(topic := row.get("topic"), str))

    @cached_property
    def _topic_rows(self) -> dict[str, dict[str, Any]]:
        """The rows of topics, by their keys."""
        table = entries_in(self.metadata.content, "topicMetadataTable")
        return {topic: row for topic, row in table.items() if isinstance(row, dict)}

    def _queue_rows(self, topic: str) -> list[dict[str, Any]]:
        """The rows of the queues of a topic."""
        table = entries_in(self.metadata.content, "queueMetadataTable")
        return [row for row in entries_in(table, topic).values() if isinstance(row, dict)]

    @property
    def named(self) -> dict[tuple[str, int], int]:
        """How many segments the metadata have of each queue of the broker, the index included."""
        found: dict[tuple[str, int], int] = {}
        for table in TABLES.values():
            for path, rows in entries_in(self.metadata.content, table).items():
                broker, _, rest = str(path).partition("/")
                topic, _, queue_id = rest.rpartition("/")
                is_own = self.directory is not None and broker == self.directory.name
                if is_own and queue_id.isdecimal() and isinstance(rows, dict):
                    found[topic, int(queue_id)] = found.get((topic, int(queue_id)), 0) + len(rows)
        return found

    @property
    def topic_ids(self) -> dict[str, int]:
        """The numbers by which items of the index name topics."""
        return {topic: number_of(row.get("topicId")) for topic, row in self._topic_rows.items()}

    def reserved_ms(self, topic: str) -> int:
        """How long messages of a topic are kept, ms."""
        text = self.setting.get(RESERVED_SETTING, "").strip()
        own = number_of(self._topic_rows.get(topic, {}).get("reserveTime"))
        return (own if own > 0 else int(text) if text.isdecimal() else _USUAL_HOURS) * HOUR_MS

    def is_wrongly_deleted(self, queue: TieredQueue, row: Row) -> bool:
        """Whether a row says that its segment is deleted, which had not expired an hour after the last clean-up.

        Up to 5.2 each clean-up notes its time in the rows of queues, and marks segments before it removes them.
        """
        if row.status != DELETED:
            return False
        cleaned = max((number_of(each.get("updateTimestamp")) for each in self._queue_rows(queue.topic)), default=0)
        return row.end_timestamp + self.reserved_ms(queue.topic) >= cleaned + HOUR_MS

    @property
    def is_unknown(self) -> bool:
        """Whether the metadata name no segment, so that a broker knows nothing of the tier."""
        return not any(entries_in(self.metadata.content, table) for table in TABLES.values())


_SPAN = 1 << 12  # units that are read along


def units_at(units: UnitFiles, numbers: NDArray[np.int64]) -> NDArray[np.void]:
    """The units of a queue at queue offsets that lie near each other, but for few; of zeros where none is."""
    if not len(numbers):
        return np.zeros(0, UNIT_DTYPE)
    low, high = int(numbers.min()), int(numbers.max())
    if high - low > 2 * len(numbers) + _SPAN:  # a damaged queue offset
        each = [units.read(number, 1) for number in numbers.tolist()]
        return np.frombuffer(b"".join(each), UNIT_DTYPE)
    found = units.units(low, high - low + 1)
    return found if (numbers == np.arange(low, low + len(numbers))).all() else found[numbers - low]


def are_of(run: RecordRun, topic: str, queue_id: int) -> NDArray[np.bool_]:
    """Which records of a run are of a queue."""
    topics = run.block.slices(run.topic_positions, run.topic_sizes)
    is_topic = np.asarray(pc.equal(topics, pa.scalar(topic.encode(), topics.type)))
    own: NDArray[np.bool_] = is_topic & (run.headers.field("queue_id") == queue_id)
    return own


def built_units(run: RecordRun, rows: NDArray[np.intp]) -> tuple[NDArray[np.int64], NDArray[np.void]]:
    """The units that a broker writes for some records of a run, and their queue offsets.

    A batch has as many units as messages, all the same (`MessageStoreDispatcherImpl` asks for each queue offset).
    """
    properties = read_properties(run)
    tags = properties.column(TAGS.encode()).dictionary_encode()
    codes = np.array([*map(tags_code, tags.dictionary.to_pylist()), 0], np.int64)
    units = np.zeros(len(rows), UNIT_DTYPE)
    units["physical_offset"], units["message_size"] = run.physical_offsets[rows], run.message_sizes[rows]
    units["tags_code"] = codes[np.asarray(tags.indices.fill_null(len(codes) - 1))][rows]
    numbers = run.headers.field("queue_offset").astype(np.int64)[rows]
    is_batch = (run.headers.field("sys_flag")[rows] & INNER_BATCH) != 0
    if not is_batch.any():
        return numbers, units
    texts = properties.column(INNER_NUM.encode()).to_pylist()
    counts = np.array([int(text) if text and text.isdecimal() else 1 for text in texts], np.int64)[rows]
    counts = np.where(is_batch, np.clip(counts, 1, _MOST_IN_BATCH), 1)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(numbers, counts) + within, np.repeat(units, counts)


_MOST_IN_BATCH = 1 << 15


def number_of(value: Any) -> int:
    """A number of the metadata, which a broker takes in quotes, too (`TypeUtils#castToLong`); 0 without one."""
    if isinstance(value, str):
        return (whole_number(value, 64) or 0) if value else 0
    return value if type(value) is int else 0


def list_segments(directory: Path) -> MappedFiles:
    """The segments of a flat file in order, each with all bytes that its file has, and other entries."""
    files, strays = list[MappedFile](), list[Stray]()
    with skip_wrong_type():
        for entry in list_directory(directory):
            base = base_of(entry.name)
            if base is not None and entry.is_file():
                files.append(MappedFile(entry_path(entry), base, entry.stat().st_size))
            else:
                strays.append(Stray(entry_path(entry), "directory" if entry.is_dir() else "name"))
    return MappedFiles(tuple(sorted(files, key=lambda file: file.start_offset)), tuple(strays))


def tiered_ranges(store: Store) -> dict[tuple[str, int], tuple[int, int]]:
    """By topic and queue id the queue offsets that the tier has, from and to; none where none can be read."""
    tier = tier_of(store)
    if not isinstance(tier, Tier) or not is_tier_read(store):
        return {}
    return {(queue.topic, queue.queue_id): (queue.min_offset, queue.max_offset) for queue in tier.queues}


def with_tier(conf: BrokerConf, path: Path | str | None) -> BrokerConf:
    """The broker.conf with the place of the tier, where it is given."""
    if path is None:
        return conf
    tier = path_of(path)
    place = tier.uri if isinstance(tier, RemotePath) else str(tier.absolute())
    return replace(conf, settings={**conf.settings, PATH_SETTING: place})


class Level(IntEnum):
    """What a broker reads from its tier (`TieredStorageLevel`)."""

    DISABLE = 0
    NOT_IN_DISK = 1
    NOT_IN_MEM = 2
    FORCE = 3


def level_of(store: Store) -> Level:
    """The level of a store: a name as it is spelled, or a number; NOT_IN_DISK where it is neither."""
    text = store.conf.text(LEVEL_SETTING) or ""
    if (number := whole_number(text)) is not None:
        return Level(number) if number in list(Level) else Level.DISABLE
    return Level.__members__.get(text, Level.NOT_IN_DISK)


def is_tier_read(store: Store) -> bool:
    """Whether a broker reads its tier (`tieredStorageLevel`)."""
    return level_of(store) is not Level.DISABLE


@dataclass(frozen=True)
class Unreadable:
    """Why a tier that a store has is not read."""

    why: str


def tier_of(store: Store) -> Tier | Unreadable | None:
    """The tier of a store; None without one."""
    settings = store.conf.settings
    path = (settings.get(PATH_SETTING) or "").strip()
    metadata = load_config(store.root / METADATA)
    is_plugged = _TIERED in settings.get(PLUG_IN, "")
    provider = settings.get(PROVIDER, "").strip()
    if not (is_plugged or path or metadata.path):
        return None
    if provider and _POSIX not in provider:
        if _MEMORY in provider:
            return (
                None
                if not metadata.path
                else Unreadable(f"{provider} keeps nothing: the segments in the metadata are lost")
            )
        return Unreadable(f"{provider} keeps its segments elsewhere, which is not supported")
    if not path:
        return Unreadable("broker.conf does not say where its segments are: give --tiered-path DIRECTORY")
    if not has_directory(path_of(path)):
        return Unreadable(f"{path_of(path)}: no such directory; --tiered-path names the directory of the tier")
    return Tier(store, path_of(path), metadata)
