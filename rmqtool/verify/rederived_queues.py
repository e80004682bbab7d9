"""Queues that a kill left behind the log, and that the next start derives from it (`CommitLog#recoverAbnormally`)."""

from __future__ import annotations

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.prediction import StartPrediction


def is_derived(start: StartPrediction | None, name: QueueName, first_offset: int, next_offset: int) -> bool:
    """Whether the predicted start, after a kill, leaves a queue with all messages from `first_offset` to `next_offset`.

    Without a prediction nothing is known.
    """
    if start is None or start.refuses or start.mode != "abnormal":
        return False
    here = [change for change in start.queues if (change.topic, change.queue_id) == name]
    in_files = [change for change in here if not change.in_rocksdb]
    return any(change.min_offset <= first_offset and change.max_offset == next_offset for change in in_files or here)
