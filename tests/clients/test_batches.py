"""Batches of queues in RocksDB: what consumers had and do not get, as brokers answer single pulls."""

from __future__ import annotations

import numpy as np
import pytest

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.clients.losses import UnreachableQueue
from rmqtool.clients.queues import ServedQueue, unreachable_batches
from rmqtool.rules.versions import parse_version
from rmqtool.verify.queue_progress import QueueProgress

NAME = QueueName("bulk", 0)
WHOLE = ServedQueue(0, 17)
ROWS = [0, 4, 8, 9, 16]  # of batches of 4, 4, 1, 7 and 4 messages


def queue(*, damaged: int | None = None, destroyed: int | None = None) -> QueueProgress:
    """What the log has of them, without the record of one, or with one that is not whole."""
    progress = QueueProgress(NAME, records=5, had=20, next_offset=20)
    for row in ROWS:
        if row != destroyed:
            progress.prove(row, row + 1)
    if damaged is not None:
        progress.damage([damaged])
    return progress


@pytest.mark.parametrize(
    ("version", "progress", "now", "lost"),
    [
        ("5.4.0", queue(), WHOLE, None),
        ("5.5.0", queue(), WHOLE, None),
        ("5.4.0", queue(), ServedQueue(0, 9), (9, 11, 0)),
        ("5.5.0", queue(), ServedQueue(0, 9), (16, 4, 0)),  # of the others only 8 was got, since 9 has a row
        ("5.4.0", queue(damaged=4), WHOLE, (4, 4, 4)),
        ("5.5.0", queue(damaged=4), WHOLE, None),
        ("5.5.0", queue(destroyed=16), WHOLE, (16, 4, 4)),
        ("5.5.0", QueueProgress(NAME), ServedQueue(0, 0), (8, 2, 2)),  # without the log the last one is of one message
    ],
)
def test_batches_in_rows(
    version: str, progress: QueueProgress, now: ServedQueue, lost: tuple[int, int, int] | None
) -> None:
    """5.5.0 fails at a queue offset without a row: a consumer gets a batch that another row or the end follows."""
    found = unreachable_batches(progress, np.array(ROWS), 17, now, parse_version(version))
    assert found == (lost and UnreachableQueue(*NAME, *lost))


@pytest.mark.parametrize(
    ("had", "now", "served"),
    [
        (20, ServedQueue(0, 20), 20),
        (16, ServedQueue(0, 20), 16),  # the log has lost a batch of four, to which a unit still leads
        (16, ServedQueue(0, 12), 12),  # which is taken to be among those that are out of reach already
        (20, ServedQueue(0, 16), 16),
    ],
)
def test_batches_in_files(had: int, now: ServedQueue, served: int) -> None:
    """Messages that the log has no more are not served, whatever the queue holds."""
    progress = QueueProgress(NAME, records=5, had=had, next_offset=20)
    assert now.served(progress, in_batches=True) == served
