"""Inert records of ours, which stand in the log in place of damage: how a scan knows them."""

from __future__ import annotations

import numpy as np

from rmqtool.formats.sys_flag import TRANSACTION_MASK, TRANSACTION_ROLLBACK
from rmqtool.scan.frames import RecordRun

LOST_TOPIC = b"%RMQTOOL%LOST"
"""Topic of our inert records; of a small one the beginning of it."""


def inert_rows(frames: RecordRun) -> list[int]:
    """Rows of inert records: rolled back messages of a topic of that name, or of its beginning."""
    rolled_back = np.flatnonzero((frames.headers.field("sys_flag") & TRANSACTION_MASK) == TRANSACTION_ROLLBACK)
    if not len(rolled_back):
        return []
    starts, sizes = frames.topic_positions[rolled_back], frames.topic_sizes[rolled_back]
    data = frames.block.data
    topics = zip(rolled_back.tolist(), starts.tolist(), sizes.tolist(), strict=True)
    return [row for row, start, size in topics if size and LOST_TOPIC.startswith(data[start : start + size])]
