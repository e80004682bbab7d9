"""Rows of queues in RocksDB that a broker takes away: those of deleted messages, and of topics that it does not have.

Rows of deleted messages stay until a compaction with the broker's filter (`ConsumeQueueCompactionFilterFactory`).
`RocksDBCleanConsumeQueueService` compacts the whole database when it finds that the log begins later than before, in
an hour of `deleteWhen` or while the disk of consumequeue/ is fuller than `diskMaxUsedSpaceRatio`. RocksDB itself
filters the tables that it merges when new ones are flushed. `RocksDBConsumeQueueStore#cleanDirty` deletes all rows of
topics that are not configured, first ten minutes after a start.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from rmqtool.broker.disks import Disk
from rmqtool.broker.trigger import Trigger
from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding
from rmqtool.rules.retention import RetentionSettings
from rmqtool.rules.system_topics import FILLED_BY_BROKERS
from rmqtool.rules.versions import COMBINED_QUEUES, Version
from rmqtool.store.rocksdb_queues import QueueDatabase
from rmqtool.store.snapshot import Snapshot

_FILLED_BY_BROKERS = re.compile(FILLED_BY_BROKERS)


class TopicRows(NamedTuple):
    """A topic with rows: its queues, and its rows whose messages are in the log."""

    topic: str
    queues: int
    rows: int


def has_filter(snapshot: Snapshot, version: Version) -> bool:
    """Whether compactions drop rows of deleted messages.

    Before the combined store the second store of a broker that writes queues twice has a log of its own, without a
    file: its minimum, -1, keeps all rows (`DefaultMessageStore#enableRocksdbCQWrite`).
    """
    return version >= COMBINED_QUEUES or not snapshot.has_queues_twice


def compacts(trigger: Trigger, queue_disk: Disk, settings: RetentionSettings, version: Version) -> bool:
    """Whether a run compacts the database that finds a new minimum of the log; `--manual` alone does not."""
    ratio = queue_disk.ratio(version)
    is_full = ratio < 0 or ratio > settings.disk_max_used_space_ratio / 100.0
    return trigger.failure is None and (trigger.time or is_full)


def rows_below(database: QueueDatabase, log_min_offset: int, with_gaps: frozenset[str]) -> int:
    """Rows that lead below `log_min_offset`; they are counted one by one in topics `with_gaps`, else by their ends."""
    return sum(database.rows_below(queue, log_min_offset, has_gaps=queue[0] in with_gaps) for queue in database.lasts)


def unconfigured_rows(snapshot: Snapshot) -> Iterator[TopicRows]:
    """The topics whose rows a broker deletes since it does not know them, by name; none where that is not known."""
    database, topics = snapshot.database, snapshot.topics
    if database is None or topics.file.problem is not None:
        return
    rows: dict[str, list[int]] = {}
    for (topic, queue_id), last in database.lasts.items():
        if topic not in topics.by_name and not _FILLED_BY_BROKERS.search(topic):
            alive = last.queue_offset + 1 - database.first_live((topic, queue_id), snapshot.log_min_offset)
            rows.setdefault(topic, []).append(max(alive, 0))
    for topic, alive_rows in sorted(rows.items()):
        if sum(alive_rows):
            yield TopicRows(topic, len(alive_rows), sum(alive_rows))


def unconfigured_findings(snapshot: Snapshot) -> Iterator[Finding]:
    """One finding for each of them."""
    for found in unconfigured_rows(snapshot):
        yield finding("clean.topic-rows-dropped", store=snapshot.store.root, topic=found.topic,
                      details={"rows": found.rows, "queues": found.queues})  # fmt: skip
