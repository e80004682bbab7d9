"""``spark.read.format("rocketmq")`` and ``readStream``: a store's messages as rows, in Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from rmqtool.base.errors import RmqtoolError
from rmqtool.scan.filters import Filters
from rmqtool.spark.arrow import columns_of, ddl_of
from rmqtool.spark.batches import SplitPartition, read_batches
from rmqtool.spark.options import SourceOptions, parse_options
from rmqtool.spark.stream import RocketMQStreamReader
from rmqtool.store.splits import Source, find_sources, split_source


class RocketMQDataSource(DataSource):  # type: ignore[misc]
    """The format ``rocketmq``; Spark makes it with `options`.

    What a frame or view reads is fixed when it is loaded. Spark keeps the plan of one statement for the next ones, and
    makes another when it likes: were the log listed for each plan, `count(*)` could be less than a count of some rows.
    """

    _loaded: tuple[Filters, tuple[Source, ...]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Spark pickles a source once, as soon as it is loaded, and unpickles it for each plan."""
        # What cannot be read now is an error of the query, which shows it better than one of pickling.
        with suppress(RmqtoolError):
            if self._loaded is None:
                options = parse_options(self.options)
                self._loaded = options.query.filters, tuple(_sources(options))
        return dict(self.__dict__)

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
        if self._loaded is None:
            return RocketMQReader(options, schema, tuple(_sources(options)))
        filters, sources = self._loaded  # of the time of loading, as a relative `from` or `to` is
        return RocketMQReader(replace(options, query=replace(options.query, filters=filters)), schema, sources)

    def streamReader(self, schema: Any) -> Any:  # noqa: N802 - Spark's name
        """The reader of a streaming query."""
        return RocketMQStreamReader(parse_options(self.options, columns_of(schema)), schema)


class RocketMQReader(DataSourceReader):  # type: ignore[misc]
    """Reads splits; Spark pickles it for the workers.

    It has no `pushFilters`: Spark (4.1 to 4.3) keeps one reader for all scans of a frame or view, so that the filters
    of one scan would hold in all others, of later statements and of the same one.
    """

    def __init__(self, options: SourceOptions, schema: Any, sources: Sequence[Source]) -> None:
        self.options = options
        self.schema = schema
        self._sources = sources

    def partitions(self) -> Sequence[InputPartition]:
        """The splits of all stores."""
        size = self.options.split_size
        return [SplitPartition(split) for source in self._sources for split in split_source(source, size)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a split; of no split, as Spark asks where there is none, no rows."""
        if isinstance(partition, SplitPartition):
            yield from read_batches(partition.split, self.options, self.schema)


def _sources(options: SourceOptions) -> list[Source]:
    """The logs of all stores as they are at this moment; raises RmqtoolError."""
    filters, stores = options.query.filters, options.stores()
    return find_sources(stores, [filters.start] * len(stores), filters.stop)
