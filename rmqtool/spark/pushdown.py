"""Spark's filters as ours. They only narrow what is read: Spark applies its own to every row that comes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

from rmqtool.scan.filters import Filters

_EQUAL = ("EqualTo", "EqualNullSafe")
_TIMES = {"GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual"}


def narrowed(filters: Filters, pushed: Iterable[Any]) -> Filters:
    """`filters`, narrowed by those of `pushed` that ours can express."""
    for one in pushed:
        kind = type(one).__name__
        path: tuple[str, ...] = getattr(one, "attribute", ())
        column = path[0] if len(path) == 1 else None
        value: Any = getattr(one, "value", None)
        if kind in _EQUAL and value is not None:
            filters = _among(filters, column, (value,))
        elif kind == "In":
            filters = _among(filters, column, tuple(item for item in value if item is not None))
        if kind in _EQUAL or kind in _TIMES:
            filters = _between(filters, column, kind, value)
    return filters


def _among(filters: Filters, column: str | None, values: tuple[Any, ...]) -> Filters:
    """Narrow the filter of a column that has one, unless it already has another."""
    names = {"topic": "topics", "queue_id": "queue_ids", "tags": "tags", "unique_key": "keys"}
    name = names.get(column or "")
    if name is None or not values or getattr(filters, name):
        return filters
    return replace(filters, **{name: values})  # type: ignore[arg-type]


def _between(filters: Filters, column: str | None, kind: str, value: Any) -> Filters:
    if column == "physical_offset" and isinstance(value, int):
        low, high = _range(kind, value, value + 1)
        start = filters.from_offset if low is None else max(filters.from_offset, low)
        stop = filters.to_offset if high is None else min(filters.stop, max(high, 0))
        return replace(filters, from_offset=start, to_offset=stop)
    if column == "store_timestamp" and isinstance(value, datetime):
        # Without a zone it is local time, as everywhere in pyspark.
        microseconds = round(value.timestamp() * 1_000_000)
        low, high = _range(kind, microseconds // 1000, microseconds // 1000 + 1)
        first, last = filters.from_timestamp, filters.to_timestamp
        if low is not None and (first is None or low > first):
            first = low
        if high is not None and (last is None or high < last):
            last = high
        return replace(filters, from_timestamp=first, to_timestamp=last)
    return filters


def _range(kind: str, first: int, behind: int) -> tuple[int | None, int | None]:
    """The range of values (from, to before) of a comparison, wide enough for either of ``<`` and ``<=``."""
    if kind.startswith("Greater"):
        return first, None
    if kind.startswith("Less"):
        return None, behind
    return first, behind
