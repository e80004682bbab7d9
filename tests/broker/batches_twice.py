"""A store of a killed broker with a batch queue in files, whose rows in RocksDB the kill took."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from rmqtool.formats.consume_queue import BATCH_UNIT_DTYPE
from rmqtool.formats.file_name import file_name
from rmqtool.formats.message import INNER_BATCH, NEED_UNWRAP
from tests.building import START_TIME, LogBuilder
from tests.changed_rocksdb import changed, end_value, max_key, unit_key, unit_value, write_queues

TOPIC = "bulk"
BATCHES = (
    *(0, 2, 3, 8, 9, 10, 12, 14, 19, 21, 23, 24, 29, 33, 35),
    *(37, 38, 39, 41, 43, 45, 47, 50, 54, 56, 57, 60, 63, 66, 70),
)
"""The first queue offset of each batch, as `tests.real_broker.random_rocksdb --killed --seed 4` with 5.3.3 had them."""
IN_FILES = 0, 73
"""What 5.3.3 answered for the queue, before and after the kill."""
IN_ROWS = 33, 71
"""What it answered, of the rows that its start had made, once it kept queues in RocksDB alone.

Its search by halves for the minimum takes an offset inside a batch, which has no row, for one before the log.
"""
_FILE_SIZE = 1 << 16  # of the log, bytes
_UNITS = 40  # of the file of the queue


def batches_of_killed(root: Path) -> Path:
    """Write the store: all units in files, no row."""
    log = _log()
    log.write(root)
    units, count = np.zeros(_UNITS, BATCH_UNIT_DTYPE), len(BATCHES)
    units["physical_offset"][:count] = log.offsets
    units["message_size"][:count] = _sizes(log)
    units["store_timestamp"][:count] = START_TIME + 1
    units["base_queue_offset"][:count] = BATCHES
    units["batch_size"][:count] = np.diff([*BATCHES, IN_FILES[1]])
    units["compacted_offset"][:count] = -1
    directory = root / "batchconsumequeue" / TOPIC / "0"
    directory.mkdir(parents=True)
    (directory / file_name(0)).write_bytes(units.tobytes())
    write_queues(root, [], None)
    topic = {"topicName": TOPIC, "readQueueNums": 1, "writeQueueNums": 1, "attributes": {"queue.type": "BatchCQ"}}
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {TOPIC: topic}}))
    (root / "abort").touch()
    return root


def make_rows(root: Path) -> None:
    """The rows that the next start makes: one for each batch, at its first offset, and that of the queue's end."""
    log = _log()
    with changed(root / "consumequeue") as families:
        for offset, size, first in zip(log.offsets, _sizes(log), BATCHES, strict=True):
            families["default"][unit_key(TOPIC, 0, first)] = unit_value(offset, size, 0, START_TIME + 1)
        families["offset"][max_key(TOPIC, 0)] = end_value(log.offsets[-1], BATCHES[-1])


def _log() -> LogBuilder:
    log = LogBuilder(file_size=_FILE_SIZE)
    for first, end in zip(BATCHES, [*BATCHES[1:], IN_FILES[1]], strict=True):
        properties = {"INNER_BASE": str(first), "INNER_NUM": str(end - first)}
        log.add(topic=TOPIC, queue_offset=first, sys_flag=INNER_BATCH | NEED_UNWRAP, properties=properties)
    return log


def _sizes(log: LogBuilder) -> list[int]:
    """The size of each record, bytes; all are in one file."""
    return [end - offset for offset, end in zip(log.offsets, [*log.offsets[1:], log.end], strict=True)]
