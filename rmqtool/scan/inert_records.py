"""Dummy records of ours, which stand in the log in place of damage: how they are made, and how a scan knows them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rmqtool.formats.message import (
    BLANK_SIZE,
    MIN_MESSAGE_SIZE,
    TRANSACTION_MASK,
    TRANSACTION_ROLLBACK,
    body_crc,
    build_blank,
    build_message,
)
from rmqtool.scan.frames import RecordRun

LOST_TOPIC = b"%RMQTOOL%LOST"
"""Topic of our dummy records; of a small one the beginning of it."""

SMALLEST_INERT = MIN_MESSAGE_SIZE + 1
"""Size of the smallest dummy record, whose topic is one byte, bytes."""

_HOST = bytes(8)
_LARGEST = 1 << 20  # a broker takes memory for a whole record, bytes


def filling(physical_offset: int, size: int, timestamp: int, *, ends_file: bool) -> Iterator[tuple[int, bytes]]:
    """What fills `size` bytes of the log: physical offset and bytes of dummy records, and of a blank at a file's end.

    `size` is at least SMALLEST_INERT, at the end of a file at least BLANK_SIZE.
    """
    rest = size
    if ends_file:
        # A blank alone would hide that something is lost.
        inert = SMALLEST_INERT if rest >= SMALLEST_INERT + BLANK_SIZE else 0
        yield physical_offset + inert, build_blank(rest - inert)
        rest = inert
    while rest:
        size = rest if rest <= _LARGEST + SMALLEST_INERT else _LARGEST
        yield physical_offset, inert_record(size, physical_offset, timestamp)
        physical_offset, rest = physical_offset + size, rest - size


def inert_record(size: int, physical_offset: int, timestamp: int) -> bytes:
    """A record of exactly `size` bytes that nothing is derived from."""
    topic = LOST_TOPIC[: size - MIN_MESSAGE_SIZE]
    body = bytes(size - MIN_MESSAGE_SIZE - len(topic))
    return build_message(
        body_crc=body_crc(body),
        queue_id=0,
        flag=0,
        queue_offset=0,
        physical_offset=physical_offset,
        sys_flag=TRANSACTION_ROLLBACK,
        born_timestamp=timestamp,
        born_host=_HOST,
        store_timestamp=timestamp,
        store_host=_HOST,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=body,
        topic=topic,
        properties=b"",
    )


def inert_rows(frames: RecordRun) -> list[int]:
    """Rows of dummy records: rolled back messages of a topic of that name, or of its beginning."""
    rolled_back = np.flatnonzero((frames.headers.field("sys_flag") & TRANSACTION_MASK) == TRANSACTION_ROLLBACK)
    if not len(rolled_back):
        return []
    starts, sizes = frames.topic_positions[rolled_back], frames.topic_sizes[rolled_back]
    data = frames.block.data
    topics = zip(rolled_back.tolist(), starts.tolist(), sizes.tolist(), strict=True)
    return [row for row, start, size in topics if size and LOST_TOPIC.startswith(data[start : start + size])]
