"""``spark.read.format("rocketmq")`` and ``readStream``: a store's messages as rows, in Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from rmqtool.scan.redaction import Redaction
from rmqtool.spark.arrow import columns_of, ddl_of
from rmqtool.spark.batches import SplitPartition, read_batches
from rmqtool.spark.options import SourceOptions, parse_options
from rmqtool.spark.pushdown import narrowed
from rmqtool.spark.stream import RocketMQStreamReader
from rmqtool.store.splits import find_sources, split_source


class RocketMQDataSource(DataSource):  # type: ignore[misc]
    """The format ``rocketmq``; Spark makes it with `options`."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format(...)``."""
        return "rocketmq"

    def schema(self) -> str:
        """The columns that the options ask for."""
        return ddl_of(parse_options(self.options).query)

    def reader(self, schema: Any) -> DataSourceReader:
        """The reader of a query; a schema that the user gave says which columns are read at all."""
        options = parse_options(self.options, columns_of(schema))
        # Spark refuses a reader that takes filters unless it is set to push them: so only with the option pushDown.
        return (PushDownReader if options.push_down else RocketMQReader)(options, schema)

    def streamReader(self, schema: Any) -> Any:  # noqa: N802 - Spark's name
        """The reader of a streaming query."""
        return RocketMQStreamReader(parse_options(self.options, columns_of(schema)), schema)


class RocketMQReader(DataSourceReader):  # type: ignore[misc]
    """Reads splits; Spark pickles it for the workers."""

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
        """Read less where a filter allows it; all filters are returned, so that Spark applies them to each row.

        One of a column that is redacted compares what is shown, and not what is stored.
        """
        query = self.options.query
        redacted = query.redaction or Redaction(frozenset())
        stored = [one for one in filters if not any(map(redacted.hides, getattr(one, "attribute", ())))]
        narrow = replace(query, filters=narrowed(query.filters, stored))
        self.options = replace(self.options, query=narrow)
        yield from filters
