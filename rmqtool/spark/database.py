"""SQL over the tables of stores on Spark: its workers read them, and only the columns that a statement needs.

Spark asks a data source that is written in Python for all its columns. So a statement is planned twice: first over
empty files of the same columns, of which Spark says what it would read, and then over the tables, whose other columns
are null.
"""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.accumulators import AccumulatorParam
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from rmqtool.base.errors import RmqtoolError, UnsupportedError, UsageError
from rmqtool.base.late_modules import show_pandas
from rmqtool.base.new_files import own_directory
from rmqtool.base.parallel import keep_arrow_to_one_thread
from rmqtool.spark.session import failure
from rmqtool.spark.source import arrow_schema, conform, ddl_of, in_tasks, rows_of_parts
from rmqtool.sql.catalog import VIEWS, tables_of, unknown
from rmqtool.sql.engine import Answer
from rmqtool.sql.tables import Asked, Losses, Opening, Reading, Scan, Table

if TYPE_CHECKING:
    from typing_extensions import Self

_ONLY_READS = "rmqtool sql only reads"
_MOST_SHUFFLES = 200
_READS = frozenset({
    "Aggregate", "AsOfJoin", "Distinct", "Except", "Expand", "Filter", "Generate", "GlobalLimit", "Intersect", "Join",
    "LateralJoin", "LocalLimit", "LocalRelation", "Offset", "OneRowRelation", "Pivot", "Project", "Range", "Sample",
    "Sort", "SubqueryAlias", "Tail", "UnresolvedHaving", "UnresolvedHint", "UnresolvedInlineTable",
    "UnresolvedRelation", "UnresolvedSubqueryColumnAliases", "UnresolvedTableValuedFunction",
    "UnresolvedWith", "Union", "Unpivot", "Window",
    "WithWindowDefinition",
})  # fmt: skip
"""Nodes of the plans of statements that read, by the names of Spark's classes."""

_LEAVES = frozenset({"CTERelationRef", "EmptyRelation", "LocalRelation", "OneRowRelation", "Range"})
_CALLS_JAVA = re.compile(r"\b(?:try_reflect|reflect|java_method)\b", re.IGNORECASE)
_UNKNOWN_TABLE = re.compile(r"TABLE_OR_VIEW_NOT_FOUND\S* The table or view `(.+?)` cannot be found")
_UNKNOWN_COLUMN = re.compile(r"UNRESOLVED_COLUMN\S* A column.*? with name `(.+?)` cannot be resolved")

_Losses = dict[tuple[str, int], tuple[Losses, RmqtoolError | None]]
"""By table and task what was passed over, and the error that ended it: a task that is done twice counts once."""


class _LossesParam(AccumulatorParam):  # type: ignore[misc]
    """How Spark joins the losses of tasks."""

    def zero(self, value: _Losses) -> _Losses:  # noqa: ARG002
        return {}

    def addInPlace(self, value1: _Losses, value2: _Losses) -> _Losses:  # noqa: N802 - Spark's name
        return {**value1, **value2}


class SparkDatabase:
    """The tables of stores as views of a Spark session, which answers as `sql.engine.Database` does; a context."""

    def __init__(self, context: Any, opening: Opening, reading: Reading) -> None:
        """Raises UnsupportedError without pandas, by which Spark runs functions of Python."""
        show_pandas()
        if find_spec("pandas") is None:
            message = "SQL on Spark needs the package pandas, here and on the workers"
            raise UnsupportedError(message, hint="pip install 'pyspark[sql]'")
        self.reading = reading
        self._opening = opening
        self._context = context
        self.tables: list[Table] = tables_of(opening.opened(reading))
        self._empty: dict[str, Any] = {}
        self._stack = ExitStack()
        self._session = SparkSession(context)
        shuffles = min(_MOST_SHUFFLES, 2 * context.defaultParallelism)
        for name, value in (
            ("spark.sql.session.timeZone", "UTC"),
            ("spark.sql.sources.useV1SourceList", ""),  # files are asked for columns when a plan is made
            ("spark.sql.shuffle.partitions", str(shuffles)),
        ):
            self._session.conf.set(name, value)

    def __enter__(self) -> Self:
        """Have all tables as empty files, and the views over them: what statements are planned with."""
        self._folder = self._stack.enter_context(own_directory("rmqtool-sql-"))
        for table in self.tables:
            path = os.path.join(self._folder, table.name)
            os.mkdir(path)
            self._empty[table.name] = self._session.read.schema(ddl_of(table.schema)).parquet(f"file:{path}")
        self._register(self._empty, VIEWS)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def columns(self) -> Iterator[tuple[str, str, str]]:
        """Table, name and type of each column, of views too."""
        for name in (*self._empty, *VIEWS):
            for field in self._session.table(f"`{name}`").schema.fields:
                yield name, field.name, field.dataType.simpleString()

    def ask(self, statement: str, close: Callable[[], None] = lambda: None) -> Answer:
        """The answer to one statement that reads, in memory; raises UsageError for any other, and SparkError."""
        if _CALLS_JAVA.search(statement):
            raise UsageError(f"{_ONLY_READS}: it calls no Java")
        with self._told():
            _require_reading(self._parsed(statement))
            planned = self._session.sql(statement)
            needed = self._needed(planned)
            self._note(needed)
            answer = planned.toArrow() if self.reading.is_dry else self._answered(statement, needed)
        reader = pa.RecordBatchReader.from_batches(answer.schema, answer.to_batches())
        return Answer(reader, self.reading, close)

    def _parsed(self, statement: str) -> Any:
        """The plan of a statement, nothing of which is looked up or done."""
        try:
            return self._session._jsparkSession.sessionState().sqlParser().parsePlan(statement)
        except Py4JJavaError as error:  # of a script, which pyspark does not know
            raise self._wrong(str(error.java_exception.getMessage())) from error

    def _answered(self, statement: str, needed: Mapping[str, tuple[str, ...]]) -> pa.Table:
        """All rows; meanwhile the tables that are needed are read, of which some columns are null."""
        losses = self._context.accumulator({}, _LossesParam())
        views = _views_in(statement.lower())
        self._register({name: self._rows(name, columns, losses) for name, columns in needed.items()}, views)
        try:
            answer: pa.Table = self._session.sql(statement).toArrow()
        finally:
            self._register({name: self._empty[name] for name in needed}, views)
        self._add(losses.value)
        return answer

    def _register(self, frames: Mapping[str, Any], views: Iterable[str]) -> None:
        """Have these frames as views, and over them our views, which keep the plan of what they are made of."""
        for name, frame in frames.items():
            frame.createOrReplaceTempView(f"`{name}`")
        for name in views:
            self._session.sql(VIEWS[name]).createOrReplaceTempView(name)

    def _needed(self, frame: Any) -> dict[str, tuple[str, ...]]:
        """The columns of each table that Spark would read, by the plan over empty files; at least the first one."""
        found: dict[str, set[str]] = {}
        for leaf in _leaves(frame._jdf.queryExecution().optimizedPlan()):
            kind = leaf.getClass().getSimpleName()
            name = leaf.relation().table().name() if kind == "DataSourceV2ScanRelation" else None
            folder, _, table = (name or "").rpartition("/")
            if name and folder.endswith(self._folder):
                found.setdefault(table, set()).update(each.name() for each in _items(leaf.output()))
            elif kind not in _LEAVES:
                raise UsageError(f"{_ONLY_READS} its own tables, and not {name or kind}")
        by_name = {table.name: table for table in self.tables}
        return {
            name: tuple(each for each in by_name[name].schema.names if each in columns)
            or (by_name[name].schema.names[0],)
            for name, columns in found.items()
        }

    def _note(self, needed: Mapping[str, tuple[str, ...]]) -> None:
        for table in self.tables:
            if table.name in needed:
                columns, size = needed[table.name], sum(part.size for part in table.parts)
                parts = tuple(table.parts)
                self.reading.scans.append(Scan(table.name, Asked(columns), parts, len(parts), size, columns))

    def _rows(self, name: str, columns: Sequence[str], losses: Any) -> Any:
        """A frame of a table whose columns are null beside these."""
        [table] = [each for each in self.tables if each.name == name]
        tasks = [pickle.dumps(parts) for parts in in_tasks(table.parts)]
        schema = arrow_schema(self._empty[name].schema)
        read = partial(_read, name, tasks, self._opening, tuple(columns), schema, losses)
        numbers = self._session.range(0, len(tasks), 1, max(1, len(tasks)))
        return numbers.mapInArrow(_as_function(read), ddl_of(table.schema))

    def _add(self, losses: _Losses) -> None:
        for passed_over, error in losses.values():
            if error is not None:
                raise error
            self.reading.add_losses(passed_over)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn what Spark says of a wrong statement into a UsageError, and what it fails for into a SparkError."""
        try:
            yield
        except AnalysisException as error:  # a wrong statement, syntax included
            raise self._wrong(str(error)) from error
        except PySparkException as error:
            if "ArithmeticException" in str(error) or "SQLSTATE: 22" in str(error):
                raise self._wrong(str(error)) from error
            raise failure(error) from error

    def _wrong(self, text: str) -> UsageError:
        for pattern, what in ((_UNKNOWN_TABLE, "table"), (_UNKNOWN_COLUMN, "column")):
            if found := pattern.search(text):
                return unknown(what, found[1].rpartition("`.`")[2], self.tables)
        first = next(line for line in text.splitlines() if line.strip())
        return UsageError(re.sub(r"^\[[\w.]+\] | SQLSTATE: \w+.*$", "", first))


def _views_in(text: str) -> list[str]:
    """The views that a statement may name, and those that they are made of, in the order in which they are made."""
    named = {name for name in VIEWS if name in text}
    named |= {name for name in VIEWS for each in named if name in VIEWS[each]}
    return [name for name in VIEWS if name in named]


def _as_function(
    read: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What Spark takes for a function of one argument."""

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return read(batches)

    return rows


def _read(
    name: str,
    tasks: Sequence[bytes],
    opening: Opening,
    columns: Sequence[str],
    schema: pa.Schema,
    losses: Any,
    numbers: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """The rows of the tasks with these numbers, in a worker; an error of ours is sent with what was passed over."""
    keep_arrow_to_one_thread()
    for number in (each for batch in numbers for each in batch.column(0).to_pylist()):
        reading, error = Reading(fails=opening.fails), None
        try:
            for batch in rows_of_parts(pickle.loads(tasks[number]), opening, reading, columns):
                yield conform(_with_nulls(batch, schema), schema)
        except RmqtoolError as own:
            error = own
        losses.add({(name, number): (reading.losses, error)})


def _with_nulls(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with all columns of a schema, null where it has none of a name."""
    there = {*batch.schema.names}
    columns = [
        batch.column(field.name) if field.name in there else pa.nulls(batch.num_rows, field.type) for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, names=schema.names)


def _require_reading(plan: Any) -> None:
    """Raise UsageError where a statement, as Spark parses it, does more than read."""
    for node in _nodes(plan):
        if (kind := node.getClass().getSimpleName()) not in _READS:
            raise UsageError(f"{_ONLY_READS}: it answers no {kind}", hint="begin with select")


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for below in (plan.children(), plan.subqueries()):
        for each in _items(below):
            yield from _nodes(each)


def _leaves(plan: Any) -> Iterator[Any]:
    return (node for node in _nodes(plan) if not node.children().size())


def _items(sequence: Any) -> list[Any]:
    """The items of a sequence of Scala."""
    return [sequence.apply(number) for number in range(sequence.size())]
