"""Shared by batch and streaming queries: a split as Spark schedules it, and its rows as Spark expects them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.worker import keep_arrow_to_one_thread
from rmqtool.scan.events import REASON_MEANINGS, Damage
from rmqtool.spark.arrow import arrow_schema, conform
from rmqtool.spark.options import SourceOptions
from rmqtool.store.message_reader import SplitReader
from rmqtool.store.splits import Split


class SplitPartition(InputPartition):  # type: ignore[misc]
    """One split as Spark schedules it."""

    def __init__(self, split: Split) -> None:
        self.split = split


def read_batches(split: Split, options: SourceOptions, schema: Any) -> Iterator[pa.RecordBatch]:
    """The messages of a split as Spark expects them; damage is skipped, or ends the query."""
    fails = options.on_damage == "fail"
    keep_arrow_to_one_thread()
    expected = arrow_schema(schema)
    reader = SplitReader(split, options.query, proves_bodies=fails)
    for event in reader.events():
        if not isinstance(event, Damage):
            yield conform(reader.to_messages(event), expected)
        elif fails:
            raise _damaged(split, event.physical_offset, REASON_MEANINGS[event.reason])
        if fails and reader.wrong_crc.count:
            raise _damaged(split, reader.wrong_crc.physical_offsets[0], "a body that does not have its CRC")


def _damaged(split: Split, offset: int, reason: str) -> RmqtoolError:
    message = f"{reason} (onDamage=skip passes over what is damaged)"
    return RmqtoolError(message, file=split.root, offset=offset)
