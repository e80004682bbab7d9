"""Rows of a listing: many units or messages at once, one column per JSON field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqtool.base.times import rfc3339
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
