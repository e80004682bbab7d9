"""A snapshot of a store, which every job reads from: each part is read when it is first asked for, and only once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any

from rmqtool.base.files import RateLimit, ReadPolicy, list_directory
from rmqtool.base.mapped_files import MappedFiles
from rmqtool.base.paths import is_remote
from rmqtool.base.tolerant import ReadScope, skip_unreadable
from rmqtool.rules.broker_conf import DelayLevels
from rmqtool.rules.file_sizes import DEFAULT_LOG_FILE_SIZE, LOG_FILE_SIZE, log_file_size
from rmqtool.rules.system_topics import LMQ_PREFIX
from rmqtool.rules.versions import Releases, Version, release_of
from rmqtool.store.checkpoint import read_checkpoint
from rmqtool.store.commit_log import LogBytes, LogRange, ends_in_a_record, log_range
from rmqtool.store.config_json import ConfigFile
from rmqtool.store.config_tables import GROUPS, CommittedOffsets, Topics, load_offsets, load_table, load_topics
from rmqtool.store.consume_queues import Queue, QueueTable, has_light_queues, list_queues, list_rocksdb_queues, queue_in
from rmqtool.store.delays_seen import delay_levels_of_store
from rmqtool.store.index_files import (
    Geometry,
    Index,
    IndexFile,
    geometry_or_none,
    is_of_rebuild,
    list_index_files,
    open_index,
)
from rmqtool.store.lock import Holder, lock_holder
from rmqtool.store.queue_units import LoadedQueue, LoadedRows, find_queue, queue_range
from rmqtool.store.rocksdb import Databases, is_readable
from rmqtool.store.rocksdb_queues import QueueDatabase, queue_database
from rmqtool.store.store import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, Store
from rmqtool.store.unit_files import open_units
from rmqtool.store.version_signs import (
    checkpoint_signs,
    file_signs,
    holds_tags,
    index_signs,
    index_traces,
    offset_traces,
    releases_of,
    sampled_signs,
)

_LOADED_QUEUES = 4096

HIDDEN_ENTRIES = "the running broker keeps queue entries in memory until RocksDB flushes them"


class Snapshot:
    """A store as it stands; what has been read of it stays as it is, whatever a running broker does meanwhile.

    Directories and files of a listing are read in a `scope`, which may skip what cannot be read; other files raise
    RmqtoolError.
    """

    def __init__(
        self,
        store: Store,
        version: Version | None = None,
        limit: RateLimit | None = None,
        *,
        scope: ReadScope = nullcontext,
    ) -> None:
        """`version` is the release whose rules count, by default the newest that fits; `limit` is that of reading."""
        # Of the paths of the store the files on disk decide, of everything else what the broker reads.
        conf = store.conf if version is None else store.conf.for_release(version)
        self.databases = Databases()
        self.store = replace(store, conf=conf, databases=self.databases)
        self.version = version
        self._limit = limit
        self._scope = scope
        self.queue = lru_cache(_LOADED_QUEUES)(self._queue)
        self.kept: dict[object, Any] = {}
        """What rooms above have found out about the store, and keep with it."""

    @cached_property
    def holder(self) -> Holder | None:
        """The broker that runs on the store."""
        return lock_holder(self.store.root)

    @property
    def broker_runs(self) -> bool | None:
        """Whether a broker runs on the store; None on another machine, whose locks cannot be seen.

        While a run of ours has the lock no broker runs: it would not have got it.
        """
        if is_remote(self.store.root):
            return None
        return self.holder is not None and self.holder.program is None

    @property
    def bytes_per_second(self) -> int | None:
        """How much may be read; None: as much as can be."""
        return self._limit.bytes_per_second if self._limit else None

    def within(self, scope: ReadScope) -> Snapshot:
        """The same store, version and limit, with files that are read in another scope."""
        return Snapshot(self.store, self.version, self._limit, scope=scope)

    @cached_property
    def reading(self) -> ReadPolicy:
        """How fast files are read, and whether the page cache is spared."""
        return ReadPolicy(self._limit, drop_page_cache=self.holder is not None)

    @cached_property
    def log(self) -> MappedFiles:
        """The commit log files."""
        return self.store.commit_log(self._scope)

    @cached_property
    def older_log(self) -> MappedFiles:
        """The plain part of the log of a broker that was converted to DLedger."""
        if not self.store.dledger_directory:
            return MappedFiles()
        return MappedFiles(tuple(file for file in self.log.files if not file.header_size))

    @cached_property
    def current_log(self) -> MappedFiles:
        """The log without `older_log`."""
        if not self.older_log.files:
            return self.log
        return MappedFiles(tuple(file for file in self.log.files if file.header_size), self.log.strays)

    @property
    def log_min_offset(self) -> int:
        """The log's minimum, bytes; -1 without a file."""
        return self.log.files[0].start_offset if self.log.files else -1

    @cached_property
    def log_began_by(self) -> int:
        """Where the log began at the latest, bytes: its minimum, or where it is gone, what queues and index show of it.

        The cleaner deletes files of queues and the index all of whose messages are deleted, but never the last one.
        Where no queue shows that it has run, the log began at 0, as far as anybody knows.
        """
        if self.log.files:
            return self.log_min_offset
        ends, is_cleaned = [file.end_physical_offset for file in self.index_files[:-1]], False
        for queue in self.queues:
            files = queue.files.files if queue.kind == "simple" else ()
            is_cleaned |= bool(files) and files[0].start_offset > 0
            if len(files) > 1:
                with open_units(queue, self.reading) as units:
                    last = units.units_in(files[0], units.room_of(files[0]) - 1, 1)
                ends += last["physical_offset"][units.is_written(last)].tolist()
        size = log_file_size(self.store.conf) or DEFAULT_LOG_FILE_SIZE
        return max(0, min(ends)) // size * size if is_cleaned and ends else 0

    @cached_property
    def log_range(self) -> LogRange:
        """The log's range."""
        return log_range(self.log.files, reading=self.reading)

    @cached_property
    def right_log_file_size(self) -> int:
        """The size that files of the log should have, bytes: that of most, or as configured where the only one is cut.

        0 without a file.
        """
        usual, configured = self.log.file_size, self.store.conf.size(*LOG_FILE_SIZE) or 0
        if len(self.log.files) != 1 or not 0 < usual < configured:
            return usual
        file = self.log.files[0]
        is_cut = file.start_offset % configured == 0 and ends_in_a_record(file, self.log_range.max_offset, self.reading)
        return configured if is_cut else usual

    @cached_property
    def log_bytes(self) -> LogBytes:
        """The log as the broker reads it."""
        return LogBytes(self.log, self.log_range.max_offset, self.reading)

    @cached_property
    def queues(self) -> QueueTable:
        """All consume queues, by kind, topic and queue id; of those that are in both those in files, not in RocksDB."""
        return QueueTable(self.store, self.listed_queues())

    def listed_queues(self) -> Iterator[Queue]:
        """The same one after the other, listed again: for whoever needs each once, and keeps it."""
        names = set()
        for queue in () if self.store.reads_only_rocksdb else list_queues(self.store, self._scope):
            if self.database:
                names.add((queue.topic, queue.queue_id))
            yield queue
        for queue in list_rocksdb_queues(self.database, self._scope) if self.database else ():
            if (queue.topic, queue.queue_id) not in names:
                yield queue

    @cached_property
    def has_queues_twice(self) -> bool:
        """Whether queues are in files and in RocksDB, as a broker leaves them that writes both.

        Also where the files are gone that it writes.
        """
        if self.database is None or self.store.reads_only_rocksdb:
            return False
        return self.store.writes_queues_twice or any(queue.database is None for queue in self.queues)

    @property
    def has_rows_only(self) -> bool:
        """Whether queues are in RocksDB and in no files."""
        return self.store.layout == "rocksdb" and not self.has_queues_twice

    @property
    def leaves_queues_out(self) -> bool:
        """Whether queues may be in RocksDB that are not read, without the library."""
        return self.store.layout == "rocksdb" and self.database is None

    @cached_property
    def database(self) -> QueueDatabase | None:
        """The database of the consume queues, None without one or without the library."""
        path = queue_database(self.store)
        return QueueDatabase(path, self.databases) if path and is_readable() else None

    @property
    def hides_entries(self) -> bool:
        """Whether a running broker may have queue entries in memory that RocksDB has not flushed: weeks of them."""
        return self.database is not None and bool(self.broker_runs)

    @cached_property
    def has_light_queues(self) -> bool:
        """Whether there are light queues, by the names of the topics' directories or the rows of a database."""
        return bool(self.has_light_rows) or has_light_queues(self.store, self._scope)

    @cached_property
    def _topics_in_rocksdb(self) -> set[str]:
        with skip_unreadable():  # whoever reads the queues meets it again
            return {topic for topic, _ in self.database.lasts} if self.database else set()
        return set()

    @cached_property
    def has_light_rows(self) -> bool | None:
        """Whether a database has rows of light queues; None where that cannot be known."""
        with skip_unreadable():  # whoever reads the queues meets it again
            return self.database.has_topics(LMQ_PREFIX) if self.database else None
        return None

    def _queue(self, topic: str, queue_id: int) -> LoadedQueue | None:
        """One queue as a broker has loaded it, None when it does not exist."""
        queue = None
        if self.database and (self.store.reads_rocksdb_first or self.store.reads_only_rocksdb):
            queue = queue_in(self.database, topic, queue_id) if self.database.last_of((topic, queue_id)) else None
        if queue is None and not self.store.reads_only_rocksdb:
            queue = find_queue(self.store, topic, queue_id, self.database)
        if queue is None:
            return None
        loaded = LoadedRows if queue.database else LoadedQueue
        return loaded(queue, queue_range(queue, self.log_min_offset, self.release))

    def queue_ids(self, topic: str) -> list[int]:
        """The queue ids of a topic's queues."""
        return self._queue_ids.get(topic, [])

    @cached_property
    def _queue_ids(self) -> dict[str, list[int]]:
        ids: dict[str, list[int]] = {}
        for queue in self.queues:
            ids.setdefault(queue.topic, []).append(queue.queue_id)
        return {topic: list(each) for topic, each in ids.items()}  # without room to grow: there may be many

    @cached_property
    def index_files(self) -> tuple[IndexFile, ...]:
        """The headers of the index files, in name order."""
        return tuple(list_index_files(self.store, self._scope))

    @cached_property
    def index_geometries(self) -> tuple[tuple[IndexFile, Geometry | None], ...]:
        """The index files, each with its geometry, which is most often that of the one before.

        A broker maps all files as configured: of one that proves nothing, that or another file's is the geometry.
        """
        known = self.store.conf.index_geometry
        files: list[tuple[IndexFile, Geometry | None]] = []
        for file in self.index_files:
            geometry = None
            with self._scope():
                geometry = geometry_or_none(file, known)
            known = (geometry.slots, geometry.units) if geometry else known
            files.append((file, geometry))
        configured = self.store.conf.index_geometry
        mapped = Geometry(*configured) if configured else next((each for _, each in files if each), None)
        return tuple((file, geometry or (mapped if file.keys else None)) for file, geometry in files)

    @cached_property
    def index(self) -> Index:
        """The index files, opened to look up keys."""
        return open_index(self.store, live=self.holder is not None)

    def index_geometry(self, file: IndexFile) -> Geometry | None:
        """The geometry of one of the index files; the others are read only where it does not show by itself."""
        geometry = None
        with self._scope():
            geometry = geometry_or_none(file, self.store.conf.index_geometry)
        return geometry or dict(self.index_geometries)[file]

    @property
    def shown_index_geometry(self) -> Geometry | None:
        """The geometry of the newest index file of which it is known."""
        return next(filter(None, map(self.index_geometry, reversed(self.index_files))), None)

    @cached_property
    def newest_index(self) -> tuple[IndexFile, Geometry] | None:
        """The newest index file that holds units, with its geometry; None without one or where it is not known."""
        newest = next((file for file in reversed(self.index_files) if file.keys), None)
        geometry = self.index_geometry(newest) if newest else None
        return (newest, geometry) if newest and geometry else None

    @cached_property
    def index_holds_tags(self) -> bool | None:
        """Whether the newest index units include tags; None where that cannot be seen."""
        return holds_tags(*self.newest_index, self.log.files) if self.newest_index else None

    @cached_property
    def topics(self) -> Topics:
        """The topics that are configured."""
        return load_topics(self.store)

    @cached_property
    def topics_with_plain_queues(self) -> frozenset[str]:
        """Topics whose queues have files, none of which is of a batch queue."""
        kinds: dict[str, set[str]] = {}
        for queue in self.queues:
            if queue.database is None:
                kinds.setdefault(queue.topic, set()).add(queue.kind)
        return frozenset(topic for topic, found in kinds.items() if found == {"simple"})

    @cached_property
    def topic_names(self) -> list[str]:
        """All topics that have queues or are configured, by name."""
        with_queues = {
            entry.name
            for directory in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE)
            for entry in list_directory(self.store.root / directory)
            if entry.is_dir()
        }
        known = set(self.topics.by_name)  # first: of equal texts it is that which stays, and these are held anyway
        return sorted(known | with_queues | self._topics_in_rocksdb)

    @cached_property
    def committed(self) -> CommittedOffsets:
        """The committed offsets of the consumer groups."""
        return load_offsets(self.store)

    @cached_property
    def groups_file(self) -> ConfigFile:
        """The groups as a start has them, from a file or from RocksDB."""
        return load_table(self.store, GROUPS)

    @cached_property
    def checkpoint(self) -> dict[str, int] | None:
        """The fields of the file `checkpoint`, None without the file."""
        return read_checkpoint(self.store)

    @cached_property
    def delay_levels(self) -> DelayLevels:
        """The delay levels of the store's broker."""
        return delay_levels_of_store(self.store, self.database)

    @cached_property
    def record_signs(self) -> set[str]:
        """Names of the signs of newer releases that records and index units show; only samples are read."""
        is_sign = self.index_holds_tags and self.newest_index and not is_of_rebuild(self.newest_index[0])
        return sampled_signs(self.log.files, self.reading) | ({"index-of-tags"} if is_sign else set())

    @cached_property
    def file_signs(self) -> set[str]:
        """Names of the signs of newer releases that names, headers and small files show."""
        signs = file_signs(self.store, self.committed, is_lmq=self.has_light_queues)
        with skip_unreadable():
            signs |= checkpoint_signs(self.checkpoint)
        with skip_unreadable():
            signs |= index_signs(self.index_files)
        return signs

    @cached_property
    def releases(self) -> Releases:
        """The releases that may have written it: the named one, or those that the store shows."""
        return self.releases_by_evidence if self.version is None else Releases.named(self.version)

    @cached_property
    def releases_by_evidence(self) -> Releases:
        """The releases that the store's files show, whatever release is named; what cannot be read shows nothing."""
        signs, traces = set[str](), [*offset_traces(self.committed.file)]
        with skip_unreadable():
            signs |= self.file_signs
        with skip_unreadable():
            signs |= self.record_signs
        with skip_unreadable():
            if self.newest_index:
                traces += index_traces(*self.newest_index, has_tags=self.index_holds_tags)
        return releases_of(signs, traces)

    @property
    def release_contradiction(self) -> str | None:
        """What contradicts the named release: that the files were written by newer ones; None where nothing does."""
        if self.version is None:
            return None
        shown = self.releases_by_evidence
        if release_of(self.version) >= shown.oldest:
            return None
        return f"the store was written by {shown} ({', '.join(shown.evidence)}); you named {self.version}"

    @property
    def release(self) -> Version:
        """The release whose rules count: the newest that fits."""
        return self.releases.newest
