"""``spark.read.format("rocketmq")`` and ``readStream``: a store's messages as rows, in Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from rmqtool.errors import RmqtoolError
from rmqtool.scan.events import REASON_MEANINGS, Damage
from rmqtool.spark.arrow import arrow_schema, columns_of, conform, ddl_of
from rmqtool.spark.options import SourceOptions, parse_options
from rmqtool.spark.pushdown import narrowed
from rmqtool.split_reader import SplitReader
from rmqtool.splits import Split, find_sources, split_source


class RocketMQDataSource(DataSource):  # type: ignore[misc]
    """The format ``rocketmq``; Spark makes it with `options`."""

    @classmethod
    def name(cls) -> str:
        """What stands in ``format(...)``."""
        return "rocketmq"

    def schema(self) -> str:
        """The columns that the options ask for."""
        return ddl_of(parse_options(self.options).query)

    def reader(self, schema: Any) -> DataSourceReader:
        """The reader of a query; a schema that the user gave says which columns are read at all."""
        options = parse_options(self.options, columns_of(schema))
        # Spark refuses a reader that takes filters unless it is told to push them: so only where that is asked for.
        return (PushDownReader if options.push_down else RocketMQReader)(options, schema)

    def streamReader(self, schema: Any) -> Any:  # noqa: N802 - Spark's name
        """The reader of a streaming query."""
        from rmqtool.spark.stream import RocketMQStreamReader

        return RocketMQStreamReader(parse_options(self.options, columns_of(schema)), schema)


class SplitPartition(InputPartition):  # type: ignore[misc]
    """One split as Spark schedules it."""

    def __init__(self, split: Split) -> None:
        self.split = split


class RocketMQReader(DataSourceReader):  # type: ignore[misc]
    """Reads splits. It is sent to the workers as it stands."""

    def __init__(self, options: SourceOptions, schema: Any) -> None:
        self.options = options
        self.schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """The splits of all stores as they are at this moment."""
        filters = self.options.query.filters
        stores = self.options.stores()
        sources = find_sources(stores, [filters.start] * len(stores), filters.stop)
        return [SplitPartition(split) for source in sources for split in split_source(source, self.options.split_size)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a split; of no split, as Spark asks where there is none, no rows."""
        if isinstance(partition, SplitPartition):
            yield from read_batches(partition.split, self.options, self.schema)


class PushDownReader(RocketMQReader):
    """Takes Spark's filters too (4.1 and later, ``spark.sql.python.filterPushdown.enabled``)."""

    def pushFilters(self, filters: list[Any]) -> Iterator[Any]:  # noqa: N802 - Spark's name
        """Read less where a filter allows it; all are given back, for Spark to apply them to every row."""
        query = self.options.query
        narrow = replace(query, filters=narrowed(query.filters, filters))
        self.options = replace(self.options, query=narrow)
        yield from filters


def read_batches(split: Split, options: SourceOptions, schema: Any) -> Iterator[pa.RecordBatch]:
    """The messages of a split as Spark expects them; damage is passed over, or ends the query."""
    fails = options.on_damage == "fail"
    pa.set_cpu_count(1)
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
