"""Queues that a kill left behind the log, and that the next start derives from it (`CommitLog#recoverAbnormally`)."""

from __future__ import annotations

from rmqtool.broker.prediction import StartPrediction
from rmqtool.verify.queue_progress import QueueProgress


def is_derived(start: StartPrediction | None, state: QueueProgress) -> bool:
    """Whether the predicted start, after a kill, leaves a queue with all its messages in the log.

    Of batches in RocksDB it knows first offsets only: each of them gets its row. Without a prediction nothing is known.
    """
    if start is None or start.refuses or start.mode != "abnormal":
        return False
    here = [change for change in start.queues if (change.topic, change.queue_id) == state.name]
    if state.may_jump:
        return any(change.dispatched and not change.lost for change in here)
    in_files = [change for change in here if not change.in_rocksdb]
    return any(
        change.min_offset <= state.first_offset and change.max_offset == state.next_offset
        for change in in_files or here
    )
