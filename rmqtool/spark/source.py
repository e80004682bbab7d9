"""``spark.read.format("rocketmq")`` and ``readStream``: messages and other tables of stores, in Arrow batches.

Spark compares their Arrow schema with its own field by field.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from rmqtool.base.errors import RmqtoolError, UsageError
from rmqtool.base.parallel import keep_arrow_to_one_thread
from rmqtool.findings.finding import counted
from rmqtool.scan.filters import Filters
from rmqtool.spark.options import SourceOptions, parse_options
from rmqtool.sql.catalog import table_named
from rmqtool.sql.tables import Asked, Opening, Part, Reading, rows_of
from rmqtool.store.commit_log import log_start
from rmqtool.store.message_reader import Query, read_messages, require_column
from rmqtool.store.other_logs import other_sources
from rmqtool.store.splits import Source, Split, find_source, find_sources, split_source, whole_records_end
from rmqtool.store.store import NamedStore

try:  # pyspark 4.2 and later
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, SupportsTriggerAvailableNow
except ImportError:
    ReadAllAvailable = ReadMaxBytes = None
    SupportsTriggerAvailableNow = object

_MOST_TASKS = 1000  # of a table

Offsets = dict[str, int]
"""Physical offset after the last record that was read, bytes, by the store's name."""


_DDL = {
    pa.string(): "string",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.binary(): "binary",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.date32(): "date",
    pa.timestamp("us", tz="UTC"): "timestamp",
    pa.list_(pa.string()): "array<string>",
    pa.map_(pa.string(), pa.string()): "map<string,string>",
}


def _ddl(kind: pa.DataType) -> str:
    return f"decimal({kind.precision},{kind.scale})" if pa.types.is_decimal(kind) else _DDL[kind]


def ddl_of(schema: pa.Schema) -> str:
    """The columns of a schema in Spark's language."""
    names = [name if name.isidentifier() else "`" + name.replace("`", "``") + "`" for name in schema.names]
    return ", ".join(f"{name} {_ddl(field.type)}" for name, field in zip(names, schema, strict=True))


def _known_field(name: str, options: SourceOptions) -> pa.Field:
    """A column of the table; raises UsageError where there is none of this name.

    Beside the columns that each message has there are those that the options have given a type.
    """
    if options.table is None:
        typed = options.query.typed
        if all(name != each.name for each in typed):
            require_column(name)
        return Query((name,), typed=typed).schema.field(0)
    if name not in options.schema.names:
        raise UsageError(f"no column is named {name!r}", hint=f"columns: {', '.join(options.schema.names)}")
    return options.schema.field(name)


def columns_of(schema: Any, options: SourceOptions) -> tuple[str, ...]:
    """The columns that a schema of Spark asks for; raises UsageError where it is not one of the table."""
    for field in schema.fields:
        known, given = _ddl(_known_field(field.name, options).type), field.dataType.simpleString()
        if given != known:
            raise UsageError(f"the column {field.name} is {known}, and the schema says {given}")
    names: tuple[str, ...] = tuple(schema.fieldNames())
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"the schema has the column {name} {names.count(name)} times")
    return names


def arrow_schema(schema: Any) -> pa.Schema:
    """The Arrow schema that Spark expects for one of its own."""
    from pyspark.sql.pandas.types import to_arrow_schema

    options = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
    expected = to_arrow_schema(schema, **options)
    fields = [field.with_type(pa.timestamp("us", tz="UTC")) if pa.types.is_timestamp(field.type) else field
              for field in expected]  # fmt: skip
    return pa.schema(fields)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the names and nullability that Spark expects inside of lists and maps."""
    columns = [_conformed(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _conformed(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind and not pa.types.is_nested(kind) else column.cast(kind)


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


class RocketMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Reads up to the last whole record of each store, in parts of maxBytesPerTrigger bytes where that is given.

    Parts may end at any byte: a record belongs to the part that it begins in.
    """

    def __init__(self, options: SourceOptions, schema: Any) -> None:
        self.options = options
        self.schema = schema
        self._last: Offsets = {}
        self._target: Offsets | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name, as those below
        """Where a new query begins: at each log's first byte, or after its last record."""
        if self.options.from_latest:
            return self._ends()
        stores = self.options.stores()
        for named in stores if self.options.fail_on_data_loss else ():
            _check_nothing_earlier(named, self.options.query.filters)
        return {named.name: _min_offset(named) for named in stores}

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """The limit of one part of the stream."""
        limit = self.options.max_bytes
        return ReadAllAvailable() if limit is None else ReadMaxBytes(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of this run: records that are appended later do not belong to it."""
        self._target = self._ends()

    def latestOffset(self, start: Offsets | None = None, limit: Any = None) -> Offsets:  # noqa: N802
        """How far the next part goes; before 4.2 Spark gives neither argument, and all is one part."""
        ends = self._target if self._target is not None else self._ends()
        if start is None:
            return ends
        left = getattr(limit, "max_bytes", None)
        if left is None:
            return {**start, **{name: max(end, start.get(name, 0)) for name, end in ends.items()}}
        latest = dict(start)
        for name, end in ends.items():
            begin = start.get(name, self._begin(name))
            latest[name] = max(begin, min(end, begin + left))
            left -= latest[name] - begin
        return latest

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """The splits of a part; raises RmqtoolError when the log no longer holds all of it."""
        partitions: list[InputPartition] = []
        for named in self.options.stores():
            stop = end.get(named.name)
            begin = start.get(named.name, 0)
            if stop is None or stop <= begin:
                continue
            source = find_source(named, begin, stop)
            if self.options.fail_on_data_loss:
                _check_whole(named, max(begin, 0) if named.name in start else source.min_offset, stop, source)
            partitions += [SplitPartition(split) for split in split_source(source, self.options.split_size)]
        return partitions

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a split."""
        if isinstance(partition, SplitPartition):
            yield from read_batches(partition.split, self.options, self.schema)

    def commit(self, end: Offsets) -> None:
        """Nothing to do: Spark's checkpoint stores the offsets."""

    def stop(self) -> None:
        """Nothing to do: nothing is open between two parts."""

    def _ends(self) -> Offsets:
        stores = self.options.stores()
        self._last = {named.name: whole_records_end(named, self._last.get(named.name)) for named in stores}
        return dict(self._last)

    def _begin(self, name: str) -> int:
        """The minimum offset of a store that was added after the query had begun."""
        return next((_min_offset(named) for named in self.options.stores() if named.name == name), 0)


def _min_offset(named: NamedStore) -> int:
    return log_start(named.store.commit_log().files)


def _check_nothing_earlier(named: NamedStore, filters: Filters) -> None:
    """Raise RmqtoolError where a store has messages before its log, in a tier or compacted: no stream reads these."""
    earlier = [source.other for source in other_sources(named, filters) if source.other]
    if earlier:
        places = " and ".join(name for place, name in _PLACES.items() if place in {each.place for each in earlier})
        queues = counted(len({(each.topic, each.queue_id) for each in earlier}), "queue")
        hint = "read them once with spark.read, and stream with failOnDataLoss=false, or with startingOffsets=latest"
        first = f"{earlier[0].topic} queue {earlier[0].queue_id}"
        text = f"{places} may have earlier messages of {queues} ({first}), and a stream reads the commit log only"
        raise RmqtoolError(f"{text} ({hint})", file=named.store.root, hint=hint)


_PLACES = {"tiered": "a tier", "compacted": "compacted logs"}


def _check_whole(named: NamedStore, begin: int, stop: int, source: Any) -> None:
    lost = None
    if source.files and source.min_offset > begin:
        lost = f"the log begins at {source.min_offset} now, and was read up to {begin}"
    elif source.end < stop:
        lost = f"the log ends at {source.end} now, and was to be read up to {stop}"
    if lost:
        hint = "failOnDataLoss=false continues with the remaining messages"
        raise RmqtoolError(f"{lost} ({hint})", file=named.store.root, offset=begin, hint=hint)


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
            options = parse_options(self.options)
            if self._loaded is None and options.table is None:
                self._loaded = options.query.filters, tuple(_sources(options))
        return dict(self.__dict__)

    @classmethod
    def name(cls) -> str:
        """The name for ``format(...)``."""
        return "rocketmq"

    def schema(self) -> str:
        """The columns that the options ask for."""
        return ddl_of(parse_options(self.options).schema)

    def reader(self, schema: Any) -> DataSourceReader:
        """The reader of a query; a schema that the user gave says which columns are read at all."""
        columns, options = self._columns(schema), parse_options(self.options)
        if options.table is not None:
            return TableReader(options, schema)
        options = parse_options(self.options, columns)
        if self._loaded is None:
            return RocketMQReader(options, schema, tuple(_sources(options)))
        filters, sources = self._loaded  # of the time of loading, as a relative `from` or `to` is
        return RocketMQReader(replace(options, query=replace(options.query, filters=filters)), schema, sources)

    def _columns(self, schema: Any) -> tuple[str, ...]:
        return columns_of(schema, parse_options(self.options))

    def streamReader(self, schema: Any) -> Any:  # noqa: N802 - Spark's name
        """The reader of a streaming query."""
        if (table := parse_options(self.options).table) is not None:
            raise UsageError(f"the table {table} cannot be streamed: messages can")
        return RocketMQStreamReader(parse_options(self.options, self._columns(schema)), schema)


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


class PartsPartition(InputPartition):  # type: ignore[misc]
    """Parts of a table as Spark schedules them."""

    def __init__(self, parts: Sequence[Part], opening: Opening) -> None:
        self.parts = parts
        self.opening = opening


class TableReader(DataSourceReader):  # type: ignore[misc]
    """Reads a table other than messages, as it is when a statement reads it."""

    def __init__(self, options: SourceOptions, schema: Any) -> None:
        self.options = options
        self.schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """The parts of all stores, several together where there are many."""
        opening = self.options.opening(self.options.stores())
        table = table_named(opening.opened(Reading()), str(self.options.table))
        return [PartsPartition(parts, opening) for parts in in_tasks(table.parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of parts; of no part, as Spark asks where there is none, no rows."""
        if isinstance(partition, PartsPartition):
            reading = Reading(fails=partition.opening.fails)
            keep_arrow_to_one_thread()
            expected = arrow_schema(self.schema)
            for batch in rows_of_parts(partition.parts, partition.opening, reading, expected.names):
                yield conform(batch, expected)


def in_tasks(parts: Sequence[Part]) -> list[tuple[Part, ...]]:
    """Parts as tasks of Spark do them: one each, unless there are very many."""
    size = max(1, -(-len(parts) // _MOST_TASKS))
    return [tuple(parts[first : first + size]) for first in range(0, len(parts), size)]


def rows_of_parts(
    parts: Sequence[Part], opening: Opening, reading: Reading, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Columns of all rows of parts, read in this process; raises RmqtoolError where nothing is passed over."""
    stores = opening.opened(reading)
    try:
        for part in parts:
            yield from rows_of(stores, part, Asked(tuple(columns)))
    finally:
        for snapshot in stores.by_name.values():
            snapshot.databases.close()


def _sources(options: SourceOptions) -> list[Source]:
    """The logs of all stores, and those beside them, as they are at this moment; raises RmqtoolError."""
    filters, stores = options.query.filters, options.stores()
    others = [source for named in stores for source in other_sources(named, filters) if not options.is_local]
    return [*find_sources(stores, [filters.start] * len(stores), filters.stop), *others]
