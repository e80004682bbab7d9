"""Shared by batch and streaming queries: a split as Spark schedules it, and its rows as Spark expects them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from rmqtool.base.worker import keep_arrow_to_one_thread
from rmqtool.spark.arrow import arrow_schema, conform
from rmqtool.spark.options import SourceOptions
from rmqtool.store.message_reader import read_messages
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
    for batch in read_messages(split, options.query, fails=fails, way_out="onDamage=skip"):
        yield conform(batch, expected)
