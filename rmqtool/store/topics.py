"""The topics that `config/topics.json` names (`TopicConfigManager`, `TopicConfig`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from rmqtool.rules.system_topics import LMQ_PREFIX, is_system_topic
from rmqtool.rules.versions import LIGHT_QUEUES_EXPIRE, Releases
from rmqtool.store.config_json import ConfigFile
from rmqtool.store.rocksdb_config import CONFIG_DATABASES, SECOND, expected_database, load_table
from rmqtool.store.store import CONFIG, Store

TOPICS = "topics.json"
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
    table = file.content.get("topicConfigTable")
    topics = {}
    for name, value in table.items() if isinstance(table, dict) else ():
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
    attributes = value.get("attributes")
    if not isinstance(attributes, dict) or not attributes:
        return _NO_ATTRIBUTES
    return {name.lstrip("+"): text for name, text in attributes.items() if isinstance(text, str)}


def is_deleted(topic: str, topics: Topics, releases: Releases) -> bool:
    """Whether a topic without a queue was deleted, so that nobody misses its messages."""
    if topic.startswith(LMQ_PREFIX):
        return releases.newest >= LIGHT_QUEUES_EXPIRE  # before, no broker deletes one
    return topics.names_all and topic not in topics.by_name and not is_system_topic(topic)
