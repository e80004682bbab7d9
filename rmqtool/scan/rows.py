"""Rows of a listing: many units or messages at once, one column per JSON field; as JSON lines, CSV and plain text.

Texts are built from whole columns: no Python object for a row.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmqtool.base.numbers import Int64, is_text
from rmqtool.base.times import rfc3339
from rmqtool.base.visible import json_text
from rmqtool.base.visible import visible as visible_text
from rmqtool.scan.windows import constant_strings

KIND = "kind"

_DAY_MS = 86_400_000
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # of the years 1 and 9999, days since the epoch
_TIME_SIZE = len("2026-11-21T10:52:00.123Z")


@dataclass(frozen=True)
class Rows:
    """Rows as an Arrow record batch, whose first column is KIND.

    Columns of `optional` are left out of a row where they are null. Only rows that are `counted` use up a limit:
    blanks and damage between messages do not.
    """

    batch: pa.RecordBatch
    optional: frozenset[str] = frozenset()
    counted: bool = True

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    @property
    def names(self) -> list[str]:
        """Names of all columns."""
        return list(self.batch.schema.names)

    def slice(self, start: int, length: int) -> Rows:
        """Some of the rows."""
        return replace(self, batch=self.batch.slice(start, length))

    def reversed(self) -> Rows:
        """The rows, last first."""
        return replace(self, batch=self.batch.take(pa.array(np.arange(len(self) - 1, -1, -1))))

    def filter(self, mask: NDArray[np.bool_], *, reverse: bool = False) -> Rows:
        """The rows where `mask` is true; last first with `reverse`."""
        rows = self if mask.all() else replace(self, batch=self.batch.filter(pa.array(mask)))
        return rows.reversed() if reverse else rows

    def select(self, names: Sequence[str]) -> Rows:
        """The columns `names` and KIND before them; those that the rows do not have are left out."""
        wanted = [KIND, *(name for name in names if name != KIND and name in self.names)]
        return replace(self, batch=self.batch.select(wanted))

    def dicts(self) -> list[dict[str, Any]]:
        """Each row as its JSON object; for few rows only."""
        maps = {field.name for field in self.batch.schema if pa.types.is_map(field.type)}
        return [
            {
                name: dict(value) if name in maps else value
                for name, value in values.items()
                if value is not None or name not in self.optional
            }
            for values in self.batch.to_pylist()
        ]


def make_rows(kind: str | pa.Array, columns: dict[str, Any], optional: Sequence[str] = ()) -> Rows:
    """Rows from columns as long as each other: Arrow arrays, or NumPy arrays of any byte order.

    `kind` is one for all of them, or one for each.
    """
    arrays = {name: _array(column) for name, column in columns.items()}
    count = len(next(iter(arrays.values())))
    kinds = constant_strings(kind, count) if isinstance(kind, str) else kind
    batch = pa.RecordBatch.from_arrays([kinds, *arrays.values()], names=[KIND, *arrays])
    return Rows(batch, frozenset(optional))


def one_row(kind: str, values: dict[str, Any], *, counted: bool = True) -> Rows:
    """A single row from plain values."""
    return Rows(pa.RecordBatch.from_pylist([{KIND: kind, **values}]), counted=counted)


def rows_of(kind: str, values: Sequence[dict[str, Any]]) -> Rows:
    """Rows from plain values, of which each has the same names."""
    return Rows(pa.RecordBatch.from_pylist([{KIND: kind, **each} for each in values]))


def _array(column: Any) -> pa.Array:
    if not isinstance(column, np.ndarray):
        return column
    return pa.array(np.ascontiguousarray(column.astype(column.dtype.newbyteorder("="), copy=False)))


def names_taken(names: Sequence[str], codes: NDArray[Any]) -> pa.StringArray:
    """The name with the number ``codes[i]`` for each row."""
    return pa.array(names, pa.string()).take(pa.array(codes.astype(np.int32)))


def times_of(timestamps: pa.Array) -> pa.StringArray:
    """RFC 3339 in UTC of epoch ms, as `rfc3339` gives it; null where that has none or the timestamp is null."""
    values = np.asarray(timestamps.fill_null(0) if timestamps.null_count else timestamps)
    count = len(values)
    days, clocks = np.divmod(values, _DAY_MS)
    valid = (days >= _FIRST_DAY) & (days <= _LAST_DAY)
    if timestamps.null_count:
        valid &= np.asarray(timestamps.is_valid())
    if not valid.all():
        days, clocks = np.where(valid, days, 0), np.where(valid, clocks, 0)
    text = np.empty((count, _TIME_SIZE), dtype=np.uint8)
    text[:, :11] = _dates(days)
    seconds, ms = np.divmod(clocks, 1000)
    text[:, 11:20] = _clock_table()[seconds]
    text[:, 20:] = _ms_table()[ms]
    ends = np.arange(0, (count + 1) * _TIME_SIZE, _TIME_SIZE, dtype=np.int32)
    present = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.string(), count, [present, pa.py_buffer(ends), pa.py_buffer(text)])


def _dates(days: NDArray[np.int64]) -> NDArray[np.uint8]:
    """``2026-11-21T`` of each day; of one day for all rows, as mostly, one row."""
    if len(days) and (days == days[0]).all():
        return _texts([_date(int(days[0]))])
    distinct, rows = np.unique(days, return_inverse=True)
    return _texts([_date(day) for day in distinct.tolist()])[rows] if len(days) else np.empty((0, 11), dtype=np.uint8)


def _date(day: int) -> str:
    return (rfc3339(day * _DAY_MS) or "")[:11]


@lru_cache(maxsize=1)
def _clock_table() -> NDArray[np.uint8]:
    """``10:52:00.`` of each second of a day."""
    seconds = np.arange(86_400)
    text = np.empty((len(seconds), 9), dtype=np.uint8)
    for column, digits in ((0, seconds // 3600), (3, seconds // 60 % 60), (6, seconds % 60)):
        text[:, column] = digits // 10 + ord("0")
        text[:, column + 1] = digits % 10 + ord("0")
    text[:, (2, 5)] = ord(":")
    text[:, 8] = ord(".")
    return text


@lru_cache(maxsize=1)
def _ms_table() -> NDArray[np.uint8]:
    return _texts([f"{n:03d}Z" for n in range(1000)])


def _texts(texts: Sequence[str]) -> NDArray[np.uint8]:
    """Texts of one size as rows of characters."""
    return np.frombuffer("".join(texts).encode(), dtype=np.uint8).reshape(len(texts), -1)


_SPECIAL = (
    r'[\x00-\x1f"\\\x7f-\x{9f}\x{61c}\x{200b}-\x{200f}\x{2028}-\x{202e}\x{2060}-\x{206f}\x{feff}\x{fff9}-\x{fffb}]'
)
"""Characters that JSON escapes, and control characters that `output` escapes, too; a regular expression of RE2."""

_Encoded = tuple[str, pa.Array, str]
"""The text before each value, the values, the text after each; a value may be null."""


def json_lines(batch: pa.RecordBatch, optional: frozenset[str] = frozenset(), int64: Int64 = "number") -> memoryview:
    """One JSON object for each row, each with its line end, UTF-8; columns of `optional` are left out where null."""
    return text_of(json_rows(batch, optional, int64))


def json_rows(
    batch: pa.RecordBatch,
    optional: frozenset[str] = frozenset(),
    int64: Int64 = "number",
    *,
    raw: frozenset[str] = frozenset(),
) -> pa.StringArray:
    """Each row as the line that `json_lines` has of it; columns of `raw` are JSON already."""
    pieces: list[Any] = []
    constant = "{"
    for index, (name, column) in enumerate(zip(batch.schema.names, batch.columns, strict=True)):
        key = f"{',' if index else ''}{json.dumps(name)}:"
        before, values, after = ("", column, "") if name in raw else _encode(column, is_text(name, int64))
        if name in optional and column.null_count:
            pieces += [constant, _join(key + before, values, after).fill_null("")]
            constant = ""
            continue
        if column.null_count and (before or after):
            before, values, after = "", _join(before, values, after), ""
        pieces += [constant + key + before, values]
        constant = after
    pieces.append(constant + "}\n")
    return _join(*pieces, null="null")


def text_of(lines: pa.StringArray) -> memoryview:
    """The bytes of all values, one after the other."""
    offsets = np.frombuffer(lines.buffers()[1], np.int32)[lines.offset : lines.offset + len(lines) + 1]
    data = lines.buffers()[2]
    return memoryview(data)[offsets[0] : offsets[-1]] if data is not None and len(lines) else memoryview(b"")


def escaped(values: pa.StringArray) -> pa.StringArray:
    """`values` as they stand between quotes in JSON; nulls stay."""
    data = string_data(values)
    if not len(data) or (data.min() >= 0x20 and data.max() < 0x7F and not _has(data, b'"\\')):
        return values
    special = pc.match_substring_regex(values, _SPECIAL).fill_null(False)
    rows = np.flatnonzero(np.asarray(special))
    if not len(rows):
        return values
    if data.min() >= 0x20 and data.max() < 0x7F:  # quotes and backslashes only
        return pc.replace_substring(pc.replace_substring(values, "\\", "\\\\"), '"', '\\"')
    replaced = pa.array([json_text(value)[1:-1] for value in values.take(pa.array(rows)).to_pylist()], pa.string())
    return pc.replace_with_mask(values, special, replaced)


def string_data(values: pa.StringArray) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The bytes of all values."""
    return np.frombuffer(text_of(values), np.uint8)


def _has(data: np.ndarray[Any, np.dtype[np.uint8]], characters: bytes) -> bool:
    view = bytes(data) if len(data) < 1 << 16 else data
    if isinstance(view, bytes):
        return any(character in view for character in characters)
    return any(bool((data == character).any()) for character in characters)


def _encode(column: pa.Array, numbers_are_text: bool = False) -> _Encoded:  # noqa: FBT001
    kind = column.type
    if pa.types.is_integer(kind):
        quote = '"' if numbers_are_text else ""
        return quote, column.cast(pa.string()), quote
    if pa.types.is_boolean(kind):
        return "", pc.if_else(column, "true", "false"), ""
    if pa.types.is_string(kind):
        return '"', escaped(column), '"'
    if pa.types.is_map(kind):
        keys, items = _encode(column.keys), _encode(column.items)
        entries = _join(keys[0], keys[1], keys[2] + ":" + items[0], items[1], items[2])
        return "{", _joined_lists(column, entries), "}"
    if pa.types.is_list(kind):
        before, values, after = _encode(column.values, numbers_are_text)
        return "[", _joined_lists(column, _join(before, values, after)), "]"
    if pa.types.is_null(kind):
        return "", column.cast(pa.string()), ""
    if pa.types.is_floating(kind):
        return "", value_text(column), ""
    if pa.types.is_decimal(kind):
        quote = '"' if kind.precision > _WHOLE_DIGITS else ""
        return quote, value_text(column), quote
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return '"', value_text(column), '"'
    raise TypeError(f"no JSON for {kind}")


def _joined_lists(column: pa.Array, values: pa.StringArray) -> pa.StringArray:
    """The values of each list with commas between; `values` are those of all lists, encoded."""
    lists = pa.ListArray.from_arrays(column.offsets, values)
    joined = pc.binary_join(lists, ",")
    if not column.null_count:
        return joined
    return pc.if_else(column.is_valid(), joined, pa.scalar(None, pa.string()))


def _join(*pieces: Any, null: str | None = None) -> pa.StringArray:
    """Texts and arrays side by side; null where one of them is, unless `null` stands for it."""
    arguments = [piece if isinstance(piece, pa.Array) else pa.scalar(piece, pa.string()) for piece in pieces]
    if null is None:
        return pc.binary_join_element_wise(*arguments, "")
    return pc.binary_join_element_wise(*arguments, "", null_handling="replace", null_replacement=null)


_LIST_SEPARATOR = " "  # keys are stored so
_WHOLE_DIGITS = 15
"""Digits of a decimal that every reader of JSON keeps."""


def value_text(column: pa.Array) -> pa.StringArray:
    """Numbers, dates and times as text; times in UTC, with as many digits as there are."""
    kind = column.type
    if pa.types.is_floating(kind):
        return pa.array([None if value is None else repr(value) for value in column.to_pylist()], pa.string())
    if not pa.types.is_timestamp(kind):
        return column.cast(pa.string())
    microseconds = column.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64())
    milliseconds = pc.divide(microseconds, 1000)
    if pc.all(pc.equal(pc.multiply(milliseconds, 1000), microseconds)).as_py() is not False:
        return times_of(milliseconds)
    return pc.strftime(microseconds.cast(pa.timestamp("us", "UTC")), "%Y-%m-%dT%H:%M:%SZ")


def plain_text(column: pa.Array, *, visible: bool) -> pa.StringArray:
    """Each value as text, null where there is none: lists with spaces between, maps as JSON objects.

    With `visible` control characters are escaped.
    """
    kind = column.type
    if pa.types.is_list(kind):
        text = pc.binary_join(column, _LIST_SEPARATOR)
    elif pa.types.is_map(kind):
        text = _join(*_encode(column))
    elif pa.types.is_boolean(kind):
        text = pc.if_else(column, "true", "false")
    elif pa.types.is_floating(kind) or pa.types.is_timestamp(kind):
        text = value_text(column)
    else:
        text = column.cast(pa.string())
    return _visible(text) if visible else text


def _visible(values: pa.StringArray) -> pa.StringArray:
    data = string_data(values)
    if not len(data) or (data.min() >= 0x20 and data.max() < 0x7F):
        return values
    shown = [None if value is None else visible_text(value) for value in values.to_pylist()]
    return pa.array(shown, pa.string())


_QUOTED = b'",\r\n'


def csv_header(names: Sequence[str]) -> bytes:
    """The header line."""
    return bytes(text_of(pc.binary_join(pa.array([_quoted(pa.array(names, pa.string())).to_pylist()]), ","))) + b"\n"


def csv_lines(batch: pa.RecordBatch, names: Sequence[str], *, visible: bool = False) -> memoryview:
    """One line for each row with the columns `names`, empty where a row has none.

    With `visible` control characters are escaped, for a terminal; programs get them as they are.
    """
    return text_of(csv_rows(batch, names, visible=visible))


def csv_rows(batch: pa.RecordBatch, names: Sequence[str], *, visible: bool = False) -> pa.StringArray:
    """Each row as the line that `csv_lines` has of it."""
    pieces: list[Any] = []
    for index, name in enumerate(names):
        if index:
            pieces.append(",")
        if name in batch.schema.names:
            pieces.append(_quoted(plain_text(batch.column(name), visible=visible)))
    return _join(*pieces, "\n", null="")


def _quoted(values: pa.StringArray) -> pa.StringArray:
    data = string_data(values)
    if not _has(data, _QUOTED):
        return values
    inner = pc.replace_substring(values, '"', '""')
    quoted = pc.binary_join_element_wise('"', inner, '"', "")
    return pc.if_else(pc.match_substring_regex(values, '[",\r\n]'), quoted, values)
