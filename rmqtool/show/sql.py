"""Answers of SQL: rows as a table, CSV, NDJSON or Parquet, and what a statement would read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import IO, TYPE_CHECKING, Any, Literal, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from rmqtool.base.errors import UsageError
from rmqtool.base.numbers import Count, Int64, byte_size
from rmqtool.base.visible import visible
from rmqtool.findings.finding import counted
from rmqtool.scan.message_rows import as_text, in_base64
from rmqtool.scan.rows import csv_header, csv_lines, json_rows, text_of, value_text
from rmqtool.show.output import print_lines, show_table, table
from rmqtool.show.shapes import Shape, by
from rmqtool.show.tables import TableWriter
from rmqtool.show.times import time_column

if TYPE_CHECKING:
    from rich.console import Console

    from rmqtool.sql.tables import Damaged, Reading, Scan

Form = Literal["table", "csv", "ndjson", "parquet"]

_DAMAGED: Mapping[Damaged, tuple[str, str]] = {
    "extent": ("damaged range of the log is skipped", "damaged ranges of the log are skipped"),
    "crc": ("body has a CRC mismatch", "bodies have a CRC mismatch"),
    "compressed": ("body cannot be decompressed, and is as stored", "bodies cannot be decompressed, and are as stored"),
    "trace": ("record of traces is damaged", "records of traces are damaged"),
}
_TIME_LENGTH = len("2026-11-21T10:52:00.123Z")
_WHOLE = 15  # digits of a decimal that every reader of JSON keeps


class RowWriter(Protocol):
    """Writes the rows of an answer in one form."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Write some rows."""

    def close(self) -> None:
        """Write what is left."""


class TextWriter:
    """Writes rows as text to a file that takes bytes; a table no wider than `width` columns, where that is given."""

    def __init__(
        self, file: IO[bytes], schema: pa.Schema, form: Form, *, width: int | None = None, int64: Int64 = "number"
    ) -> None:
        self._file = file
        self._form = form
        self._int64: Int64 = int64
        self._names = list(schema.names)
        self._table = TableWriter(self._names, width) if form == "table" else None
        self._schema = schema
        self._begun = False
        if form == "csv":
            file.write(csv_header(self._names))

    def add(self, batch: pa.RecordBatch) -> None:
        """Write some rows."""
        self._begun = True
        shown, raw = shown_rows(batch, self._form)
        if self._table is not None:
            self._file.write(self._table.lines(shown))
        elif self._form == "csv":
            self._file.write(csv_lines(shown, self._names))
        else:
            self._file.write(text_of(json_rows(shown, frozenset(), self._int64, raw=raw)))

    def close(self) -> None:
        """Write the header of a table without rows."""
        if self._table is not None and not self._begun:
            self.add(_no_rows(self._schema))


class ParquetWriter:
    """Writes rows as Parquet."""

    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        try:
            self._writer: Any = pq.ParquetWriter(file, schema, compression="zstd")
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise UsageError(f"Parquet has no column of this type: {error}", hint="cast it to varchar") from error

    def add(self, batch: pa.RecordBatch) -> None:
        """Write some rows."""
        self._writer.write_batch(batch)

    def close(self) -> None:
        """Write the end of the file."""
        self._writer.close()


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], each.type) for each in schema], schema=schema)


def unequal_names(names: Sequence[str]) -> list[str]:
    """Names of columns, none twice: a later one of equal names gets a number."""
    made: list[str] = []
    for name in names:
        number, own = 1, name
        while own in made:
            number += 1
            own = f"{name}_{number}"
        made.append(own)
    return made


def shown_rows(batch: pa.RecordBatch, form: Form) -> tuple[pa.RecordBatch, frozenset[str]]:
    """Rows with columns that `scan.rows` can write, and the names of those that are JSON already."""
    columns, raw = [], set()
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        made, is_json = _shown(column, form)
        columns.append(made)
        if is_json:
            raw.add(name)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names), frozenset(raw)


def _shown(column: pa.Array, form: Form) -> tuple[pa.Array, bool]:
    """A column as text or numbers, and whether its texts are JSON."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_string(kind):
        return column, False
    if pa.types.is_null(kind):
        return pa.nulls(len(column), pa.string()), False
    if pa.types.is_timestamp(kind):
        return _time(column, form), False
    if pa.types.is_binary(kind):
        return _bytes(column, form), False
    if pa.types.is_floating(kind):
        return _numbers(column, form), form == "ndjson"
    if pa.types.is_decimal(kind):
        return _decimal(column)
    if _is_plain(kind):
        return column, False
    if pa.types.is_date(kind) or pa.types.is_time(kind):
        return column.cast(pa.string()), False
    is_interval = kind == pa.month_day_nano_interval() or pa.types.is_duration(kind)
    write = _interval if is_interval else _as_json
    texts = [None if value is None else write(value) for value in column.to_pylist()]
    return pa.array(texts, pa.string()), not is_interval


def _is_plain(kind: pa.DataType) -> bool:
    """Whether it is a list or a map of texts, such as keys and properties."""
    if pa.types.is_map(kind):
        return bool(pa.types.is_string(kind.key_type) and pa.types.is_string(kind.item_type))
    return bool(pa.types.is_list(kind) and pa.types.is_string(kind.value_type))


def _time(column: pa.Array, form: Form) -> pa.StringArray:
    """RFC 3339 in UTC, with as many digits as there are; a table has it in the zone that is shown."""
    text = value_text(column)
    if column.type.tz is None:
        return pc.utf8_rtrim(text, "Z")
    is_shown = form == "table" and not pc.any(pc.greater(pc.utf8_length(text), _TIME_LENGTH)).as_py()
    return time_column(text) if is_shown else text


def _bytes(column: pa.Array, form: Form) -> pa.StringArray:
    """Base64, as in exports; in a table the text that it is, or hex."""
    values = column.to_pylist()
    if form != "table":
        return pa.array([None if value is None else in_base64(value) for value in values], pa.string())
    texts = [None if value is None else as_text(value) for value in values]
    pairs = zip(texts, values, strict=True)
    return pa.array([text if text is not None or value is None else value.hex() for text, value in pairs], pa.string())


def _numbers(column: pa.Array, form: Form) -> pa.StringArray:
    """The shortest text of each; JSON has no number that is none."""
    values = column.cast(pa.float64())
    if form == "ndjson":
        values = pc.if_else(pc.is_finite(values), values, pa.scalar(None, pa.float64()))
    return value_text(values)


def _decimal(column: pa.Array) -> tuple[pa.Array, bool]:
    """Whole numbers as such; of others the digits, which are a JSON number where every reader keeps them."""
    if column.type.scale == 0:
        with suppress(pa.ArrowInvalid):
            return column.cast(pa.int64()), False
        return column.cast(pa.string()), True
    return column.cast(pa.string()), column.type.precision <= _WHOLE


def _as_json(value: Any) -> str:
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    """A value of Arrow as JSON has it."""
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, pa.MonthDayNano):
        return _interval(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return in_base64(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def _interval(value: Any) -> str:
    """``1 month 2 days 03:04:05.123``; Spark's spans have no months."""
    if isinstance(value, timedelta):
        value = pa.MonthDayNano([0, value.days, (value.seconds * 10**6 + value.microseconds) * 1000])
    seconds, rest = divmod(value.nanoseconds, 10**9)
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    fraction = f".{rest:09d}".rstrip("0").rstrip(".")
    parts = [counted(number, word) for number, word in ((value.months, "month"), (value.days, "day")) if number]
    return " ".join([*parts, clock + fraction] if seconds or rest or not parts else parts)


class ScanShown(Shape):
    """A table that the statement reads."""

    table: str  # Its name.
    columns: list[str] = by(lambda scan, _: list(scan.needed))  # The columns that are read.
    condition: str | None = by(
        lambda scan, _: None if scan.asked.condition is None else str(scan.asked.condition)
    )  # The condition that rows must meet to be read whole, as Arrow writes it.
    parts: Count = by(lambda scan, _: len(scan.parts))  # Splits of the log, queues or index files that are read.
    of_parts: Count  # How many there are.
    bytes: Count  # Upper limit of the bytes to read.
    of_bytes: Count  # Existing bytes.


class ColumnShown(Shape):
    """A column of a table."""

    table: str = by(lambda row, _: row[0])  # The table or view.
    name: str = by(lambda row, _: row[1])  # The column.
    type: str = by(lambda row, _: row[2])  # Its type, as DuckDB writes it.


class RowColumn(Shape):
    """A column of the rows."""

    name: str  # Its name.
    type: str  # Its type, as Arrow writes it.


class SqlResult(Shape):
    """The rows of a statement, or what it would read, or what tables there are."""

    columns: list[RowColumn] | None  # Of the rows, in their order.
    rows: list[dict[str, Any]] | None  # The rows, by the names of the columns.
    scans: list[ScanShown] | None  # With --explain: each reading of a table.
    tables: list[ColumnShown] | None  # With --tables: all columns of all tables and views.


def result_of(
    *, scans: Iterable[Scan] | None = None, tables: Iterable[tuple[str, str, str]] | None = None
) -> dict[str, Any]:
    """The result of a statement that is explained, or the list of the tables."""
    listed = {"scans": scans and [*scans], "tables": tables and [*tables]}
    return SqlResult.of({"columns": None, "rows": None, **listed})


def rows_as_json(schema: pa.Schema, lines: bytes) -> dict[str, Any]:
    """The result of a statement whose rows are these lines of JSON."""
    columns = [{"name": field.name, "type": str(field.type)} for field in schema]
    result = SqlResult.of({"columns": columns, "rows": None, "scans": None, "tables": None})
    return result | {"rows": [json.loads(line) for line in lines.splitlines()]}


def show_scans(console: Console, scans: Iterable[Scan]) -> None:
    """What a statement would read."""
    lines: list[str] = []
    for scan in scans:
        lines.append(f"{scan.table}: {', '.join(scan.needed) or 'no column'}")
        if scan.asked.condition is not None:
            lines.append(f"  rows where {visible(str(scan.asked.condition))}")
        lines.append(f"  {counted(len(scan.parts), 'part')} of {scan.of_parts}, "
                     f"{byte_size(scan.bytes)} of {byte_size(scan.of_bytes)} at most")  # fmt: skip
    print_lines(console, *(lines or ["no table is read"]))


def show_columns(console: Console, columns: Iterable[tuple[str, str, str]]) -> None:
    """The tables with their columns."""
    before = ""
    rows = []
    for of, name, kind in columns:
        rows.append((of if of != before else "", name, kind.lower()))
        before = of
    show_table(console, table("", "table, column, type", rows))


def notes_on(reading: Reading) -> Iterator[str]:
    """What was damaged or not read, and what was trusted, a sentence for each."""
    if "index" in reading.trusted:
        yield "keys were looked up in the index: messages missing in the index are missing in this answer"
    for what, (count, place) in reading.damage.items():
        yield f"{count} {_DAMAGED[what][count > 1]}, the first in {place}"
    for name, (count, place) in reading.unfit.items():
        are = "value does not fit its type, and is" if count == 1 else "values do not fit their type, and are"
        yield f"{name}: {count} {are} null, the first in {place}"
    for error in reading.unread:
        yield f"not read: {error}"
