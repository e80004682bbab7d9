"""A stopped store's config files, and its log and queues as witnesses of what they held."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Literal

from rmqtool.base.files import list_directory
from rmqtool.base.paths import DirectoryEntry
from rmqtool.base.tolerant import skip_wrong_type
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.rules.config_shapes import main_table
from rmqtool.rules.system_topics import (
    BUILT_IN_GROUPS,
    DEAD_LETTER_PREFIX,
    HALF_TOPIC,
    OP_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    is_system_topic,
)
from rmqtool.store.config_json import ConfigFile, load_config
from rmqtool.store.consumer_groups import GROUPS, LMQ_CONSUMER_OFFSET
from rmqtool.store.rocksdb_config import TABLES, config_database, expected_database
from rmqtool.store.single_messages import SingleMessages
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CONFIG, Store
from rmqtool.store.topics import TOPICS
from rmqtool.transaction import was_killed
from rmqtool.verify.offset_checks import Ranges
from rmqtool.verify.queue_progress import QueueProgress
from rmqtool.verify.record_checks import RecordTotals

DELAYS = "delayOffset.json"

_BY_BROKERS = (
    *(GROUPS, DELAYS, LMQ_CONSUMER_OFFSET, "consumerFilter.json", "consumerOrderInfo.json", "topicQueueMapping.json"),
    *("messageRequestMode.json", "transactionMetrics"),
)
"""Files that a whole broker writes, within the first 10 s or when it stops."""

_BROKER_TOPICS = (RETRY_PREFIX, DEAD_LETTER_PREFIX, HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC)

State = Literal["there", "gone", "unreadable", "without its table", "empty"]


@dataclass(frozen=True)
class Witnesses:
    """The evidence in a stopped store: ranges of the queues' files, `states` of the queues by the log, and messages."""

    snapshot: Snapshot
    ranges: Ranges
    states: Mapping[QueueName, QueueProgress]
    totals: RecordTotals
    messages: SingleMessages
    lacks_until: int = 0  # before this physical offset messages may have been in damage, or were left out on purpose
    _files: dict[str, ConfigFile] = field(default_factory=dict, compare=False)

    @property
    def store(self) -> Store:
        """The store."""
        return self.snapshot.store

    @cached_property
    def is_unclean(self) -> bool:
        """Whether the last broker was killed or crashed."""
        return was_killed(self.store.root)

    @property
    def is_slaves(self) -> bool:
        """Whether it is a slave's store, which lags: it takes offsets over now and then."""
        return self.store.conf.text("brokerRole") == "SLAVE"

    @cached_property
    def topics_with_units(self) -> set[str]:
        """Topics whose queues hold units: a broker that deletes a topic deletes its queues."""
        return {name.topic for name, each in self.ranges.items() if each.max_offset > each.min_offset}

    @cached_property
    def used_topics(self) -> set[str]:
        """Topics with messages in the log or units in queues."""
        return self.topics_with_units | {name.topic for name in self.states}

    @cached_property
    def is_in_rocksdb(self) -> bool:
        """Whether topics, groups or offsets are kept in a database, or were before it was lost."""
        return any(expected_database(self.store, name) for name in TABLES)

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of the files in `config/`, those included of which only the ``.bak`` is left."""
        entries: list[DirectoryEntry] = []
        with skip_wrong_type():
            entries += list_directory(self.store.root / CONFIG)
        return frozenset(entry.name.removesuffix(".bak") for entry in entries if entry.is_file())

    @property
    def user_topics(self) -> list[str]:
        """Topics of users, which a broker does not create for itself."""
        return sorted(topic for topic in self.used_topics if not is_system_topic(topic))

    @cached_property
    def is_brokers(self) -> bool:
        """Whether a whole broker has written the store, rather than the store classes alone."""
        in_rocksdb = any(config_database(self.store, name) for name in TABLES)
        alone = not in_rocksdb and not any(name.endswith(".json") for name in self.names)
        return any(name in self.names for name in _BY_BROKERS) or (alone and self.has_broker_topics)

    @property
    def has_broker_topics(self) -> bool:
        """Whether topics that a broker creates for itself hold messages."""
        return any(topic.startswith(_BROKER_TOPICS) for topic in self.used_topics)

    def file(self, name: str) -> ConfigFile:
        """A file as a start reads it, or its .bak; each is read once."""
        if name not in self._files:
            self._files[name] = load_config(self.store.root / CONFIG / name, self.store.conf.release)
        return self._files[name]

    def table(self, name: str) -> ConfigFile:
        """Topics or groups as a start has them, from a file or from RocksDB; `name` is that of the file."""
        if not self.is_in_rocksdb:
            return self.file(name)
        return self.snapshot.topics.file if name == TOPICS else self.snapshot.groups_file

    def state(self, name: str) -> State:
        """Whether a file and its table exist, as a start reads them."""
        file = self.file(name)
        if file.path is None:
            return "gone" if file.problem is None else "unreadable"
        table = main_table(name, file.content)
        lmq = file.content.get("lmqOffsetTable")
        return "there" if table or lmq else "without its table" if table is None else "empty"

    def retrying_groups(self) -> set[str]:
        """Groups that have retries or dead letters, and so have consumed messages and committed offsets."""
        pairs = product(self.used_topics, (RETRY_PREFIX, DEAD_LETTER_PREFIX))
        return {topic.removeprefix(prefix) for topic, prefix in pairs if topic.startswith(prefix)}

    def configured_groups(self) -> set[str]:
        """Groups that the tables of topics and groups name, but for those that each broker makes."""
        topics = _names(self.table(TOPICS).content.get("topicConfigTable"))
        groups = _names(self.table(GROUPS).content.get("subscriptionGroupTable"))
        retries = {topic.removeprefix(RETRY_PREFIX) for topic in topics if topic.startswith(RETRY_PREFIX)}
        return {group for group in groups if not BUILT_IN_GROUPS.fullmatch(group)} | retries

    def known_groups(self) -> set[str]:
        """Groups that retries, configuration or offsets show, but for those that each broker makes."""
        groups = self.retrying_groups() | self.configured_groups()
        groups |= {one.group for one in self.snapshot.committed.offsets}
        return {group for group in groups if not BUILT_IN_GROUPS.fullmatch(group)}


def _names(table: object) -> Iterable[str]:
    return table.keys() if isinstance(table, Mapping) else ()
