"""Batches as Spark expects them: its Arrow schema to the letter, for it compares field by field."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from rmqtool.base.errors import UsageError
from rmqtool.base.parallel import keep_arrow_to_one_thread
from rmqtool.spark.options import SourceOptions
from rmqtool.store.message_reader import Query, read_messages, require_column
from rmqtool.store.splits import Split

_DDL = {
    pa.string(): "string",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.binary(): "binary",
    pa.timestamp("us", tz="UTC"): "timestamp",
    pa.list_(pa.string()): "array<string>",
    pa.map_(pa.string(), pa.string()): "map<string,string>",
}


def ddl_of(query: Query) -> str:
    """The columns of a query in Spark's language."""
    names = [name if name.isidentifier() else "`" + name.replace("`", "``") + "`" for name in query.schema.names]
    return ", ".join(f"{name} {_DDL[field.type]}" for name, field in zip(names, query.schema, strict=True))


def columns_of(schema: Any) -> tuple[str, ...]:
    """The columns that a schema of Spark asks for; raises UsageError where it is not one of messages."""
    for field in schema.fields:
        require_column(field.name)
        known, given = _DDL[Query((field.name,)).schema.field(0).type], field.dataType.simpleString()
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
    if column.type == kind and not pa.types.is_nested(kind):
        return column
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(column.offsets, column.keys, column.items, type=kind)
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(column.offsets, column.values, type=kind)
    return column.cast(kind)


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
