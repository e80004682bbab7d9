"""Rows of queues in RocksDB that lead to deleted messages, and what the runs of a plan do with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rmqtool.broker.row_filter import has_filter, rows_below
from rmqtool.clean.plan import CleanPlan
from rmqtool.store.rocksdb_queues import QueueDatabase


@dataclass(frozen=True)
class QueueRows:
    """Rows of a `database` that lead below the log: `now`, `dropped` by each run, and `left` after the last.

    `is_filtered` is false where no compaction ever drops them.
    """

    database: QueueDatabase
    is_filtered: bool
    now: int
    dropped: Sequence[int]
    left: int


def queue_rows(plan: CleanPlan) -> QueueRows | None:
    """The rows before and after the runs of a plan; None without a database. Raises UnreadableError."""
    snapshot = plan.snapshot
    database, batch_topics = snapshot.database, snapshot.topics.with_batch_queues or frozenset()
    if database is None:
        return None
    dropped, gone = [], 0
    for run in plan.runs:
        below = rows_below(database, run.log.min_offset, batch_topics) if run.filters_rows else gone
        dropped.append(below - gone)
        gone = below
    now = rows_below(database, snapshot.log_min_offset, batch_topics)
    left = rows_below(database, plan.min_offset, batch_topics) - gone
    return QueueRows(database, has_filter(snapshot, plan.rules.version), now, dropped, left)
