"""The rules by which a broker derives units and keys: its version and its configuration (`MessageStoreConfig`)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rmqtool.rules.broker_conf import BrokerConf, DelayLevels, delay_levels_of
from rmqtool.rules.system_topics import DEAD_LETTER_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC
from rmqtool.rules.versions import (
    INDEX_OF_TAGS,
    MULTI_DISPATCH,
    MULTI_DISPATCH_SPARES_DEAD_LETTERS,
    MULTI_DISPATCH_SPARES_RETRIES,
    MULTI_DISPATCH_SPARES_SYSTEM_TOPICS,
    MULTI_DISPATCH_TAKES_NO_PROPERTIES,
    NEWEST,
    ROCKSDB_LIGHT_QUEUES,
    VALUES_MAY_HOLD_SEPARATOR,
    Version,
)
from rmqtool.store.snapshot import Snapshot

_SPARED = (
    (MULTI_DISPATCH_SPARES_RETRIES, (RETRY_PREFIX,)),
    (MULTI_DISPATCH_SPARES_SYSTEM_TOPICS, ("rmq_sys_", SCHEDULE_TOPIC)),
    (MULTI_DISPATCH_SPARES_DEAD_LETTERS, (DEAD_LETTER_PREFIX,)),
)


@dataclass(frozen=True)
class DispatchRules:
    """`multi_dispatch` and `lmq` are the settings `enableMultiDispatch` and `enableLmq`.

    `index_tags` overrides the version's rule on whether tags are indexed. With `may_be_older` releases before `version`
    may have written some or all of the log, as before an upgrade: units that only they derive are optional
    (`Dispatched.optional_units`).
    """

    version: Version = NEWEST
    delay_levels: DelayLevels = field(default_factory=lambda: delay_levels_of(BrokerConf()))
    multi_dispatch: bool = False
    lmq: bool = False
    index_tags: bool | None = None
    may_be_older: bool = False
    in_rocksdb: bool = False  # where the records of batches have no first offset of their own

    @classmethod
    def of(
        cls,
        version: Version,
        conf: BrokerConf,
        levels: DelayLevels,
        *,
        has_light_queues: bool,
        may_be_older: bool = False,
    ) -> DispatchRules:
        """The rules of a store's broker: its configuration, and the delay `levels` of the store's queues.

        Unless broker.conf sets them, multi-dispatch and LMQ are on where %LMQ% queues exist (`has_light_queues`).
        """
        return cls(
            version,
            levels,
            conf.is_on("enableMultiDispatch", default=has_light_queues),
            conf.is_on("enableLmq", default=has_light_queues),
            may_be_older=may_be_older,
        )

    @classmethod
    def of_snapshot(cls, snapshot: Snapshot) -> DispatchRules:
        """The rules of the newest release that fits a store."""
        rules = cls.of(
            snapshot.release,
            snapshot.store.conf,
            snapshot.delay_levels,
            has_light_queues=snapshot.has_light_queues,
            may_be_older=True,
        )
        in_rocksdb = snapshot.store.layout == "rocksdb"
        if in_rocksdb and not _may_have_light_rows(snapshot) and not _has_files(snapshot):
            rules = replace(rules, multi_dispatch=False)
        return replace(rules, in_rocksdb=in_rocksdb)

    def for_release(self, version: Version) -> DispatchRules:
        """The same settings under the rules of one release alone."""
        return replace(self, version=version, may_be_older=False)

    @property
    def indexes_tags(self) -> bool:
        """Whether tags are keys of the index too."""
        return self.version >= INDEX_OF_TAGS if self.index_tags is None else self.index_tags

    @property
    def drops_values_with_separator(self) -> bool:
        """Whether a property whose value holds 0x01 is ignored."""
        return self.version < VALUES_MAY_HOLD_SEPARATOR

    def multi_dispatches(self, topic: str) -> bool:
        """Whether records of a topic are also dispatched to the queues that INNER_MULTI_DISPATCH names."""
        return self.multi_dispatch and self.version >= MULTI_DISPATCH and not topic.startswith(self._spared_topics)

    @property
    def fails_without_properties(self) -> bool:
        """Whether a record without properties ends the dispatching (`DefaultMessageStore#checkMultiDispatchQueue`)."""
        return self.multi_dispatch and MULTI_DISPATCH <= self.version < MULTI_DISPATCH_TAKES_NO_PROPERTIES

    def may_multi_dispatch(self, topic: str) -> bool:
        """Whether an older release has, or may have, put records of a topic into those queues."""
        return self.may_be_older and self.multi_dispatch and topic.startswith(self._spared_topics)

    @property
    def _spared_topics(self) -> tuple[str, ...]:
        """Prefixes of the topics whose records are dispatched to no further queue."""
        return tuple(prefix for since, prefixes in _SPARED if self.version >= since for prefix in prefixes)


def _may_have_light_rows(snapshot: Snapshot) -> bool:
    """Whether a broker may have written rows of light queues; where it may be an older one, none show that none has."""
    if snapshot.releases.oldest >= ROCKSDB_LIGHT_QUEUES:
        return True
    return snapshot.release >= ROCKSDB_LIGHT_QUEUES and snapshot.has_light_rows is not False


def _has_files(snapshot: Snapshot) -> bool:
    """Whether a store with queues in RocksDB has them in files, too."""
    return snapshot.store.writes_queues_twice or any(queue.database is None for queue in snapshot.queues)
