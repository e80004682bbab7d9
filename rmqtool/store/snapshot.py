"""A store of which only those parts are looked at that a question needs; each once."""

from __future__ import annotations

from functools import cached_property

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import RateLimit, ReadPolicy, list_directory
from rmqtool.base.mapped_files import MappedFiles
from rmqtool.rules.delay_levels import DelayLevels
from rmqtool.rules.releases import Releases
from rmqtool.rules.versions import Version
from rmqtool.store.commit_log import LogRange, log_range
from rmqtool.store.config_json import load_config
from rmqtool.store.consume_queues import list_queues
from rmqtool.store.consumer_offsets import CommittedOffsets, load_offsets
from rmqtool.store.delays_seen import delay_levels_of_store
from rmqtool.store.index_query import Index, open_index
from rmqtool.store.lock import Holder, lock_holder
from rmqtool.store.log_reader import LogBytes
from rmqtool.store.queue_range import queue_range
from rmqtool.store.queue_units import LoadedQueue, find_queue
from rmqtool.store.store import BATCH_CONSUME_QUEUE, CONFIG, CONSUME_QUEUE, Store
from rmqtool.store.version_signs import releases_of


class StoreView:
    """A store and the rules that count: those of `version`, without it of the newest release that fits."""

    def __init__(self, store: Store, version: Version | None = None, limit: RateLimit | None = None) -> None:
        self.store = store
        self.version = version
        self._limit = limit
        self._queues: dict[tuple[str, int], LoadedQueue | None] = {}

    @cached_property
    def releases(self) -> Releases:
        """The releases that may have written it."""
        return releases_of(self.store, self.version, self.reading)

    @property
    def rules(self) -> Version:
        """The release whose rules count."""
        return self.releases.newest

    @cached_property
    def holder(self) -> Holder | None:
        """The broker that runs on the store."""
        return lock_holder(self.store.root)

    @cached_property
    def reading(self) -> ReadPolicy:
        """How much is read, and whether the page cache is spared."""
        return ReadPolicy(self._limit, drop_page_cache=self.holder is not None)

    @cached_property
    def log(self) -> MappedFiles:
        """The commit log files."""
        return self.store.commit_log()

    @property
    def log_min_offset(self) -> int:
        """The log's minimum, bytes; -1 without a file."""
        return self.log.files[0].start_offset if self.log.files else -1

    @cached_property
    def log_range(self) -> LogRange:
        """The log's range."""
        return log_range(self.log.files, reading=self.reading)

    @cached_property
    def log_bytes(self) -> LogBytes:
        """The log as the broker reads it."""
        return LogBytes(self.log, self.log_range.max_offset, self.reading)

    @cached_property
    def index(self) -> Index:
        """The index files."""
        return open_index(self.store, live=self.holder is not None)

    @cached_property
    def committed(self) -> CommittedOffsets:
        """The committed offsets of the consumer groups."""
        return load_offsets(self.store)

    @cached_property
    def delay_levels(self) -> DelayLevels:
        """The delay levels that its broker has."""
        return delay_levels_of_store(self.store)

    @cached_property
    def topics(self) -> list[str]:
        """Every topic that has queues or is configured, by name."""
        names = {
            entry.name
            for directory in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE)
            for entry in list_directory(self.store.root / directory)
            if entry.is_dir()
        }
        try:
            table = load_config(self.store.root / CONFIG / "topics.json").content.get("topicConfigTable")
        except RmqtoolError:
            table = None
        return sorted(names | set(table if isinstance(table, dict) else ()))

    def queue(self, topic: str, queue_id: int) -> LoadedQueue | None:
        """A queue of a topic, None when it is not there."""
        place = topic, queue_id
        if place not in self._queues:
            found = find_queue(self.store, topic, queue_id)
            self._queues[place] = (
                None if found is None else LoadedQueue(found, queue_range(found, self.log_min_offset, self.rules))
            )
        return self._queues[place]

    def queue_ids(self, topic: str) -> list[int]:
        """Numbers of the queues of a topic that are there."""
        return [queue.queue_id for queue in list_queues(self.store) if queue.topic == topic]
