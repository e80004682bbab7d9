"""Columns of messages that have a type: a property, or a field of JSON bodies, as a number, a time, and so on.

The text as it is written is what counts: it fits a type, or it does not and the value is null. Nothing is rounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation, localcontext
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmqtool.base.errors import UsageError
from rmqtool.scan.columns import JSON_COLUMN, PROPERTY_COLUMN

KINDS = "int, decimal(P,S), double, bool, timestamp, date, text"
"""The types, as users write them."""

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_TYPES = {
    "int": pa.int64(), "double": pa.float64(), "bool": pa.bool_(), "timestamp": _TIMESTAMP, "date": pa.date32(),
    "text": pa.string(),
}  # fmt: skip
_SPEC = re.compile(r"(?P<source>.+?)(?::(?P<kind>[a-z]+(?:\(\s*\d+\s*,\s*\d+\s*\))?))?(?:\s+as\s+(?P<name>\S+))?")
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST_DIGITS = 38
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_PATTERNS = {
    "int": "-?(?:0|[1-9][0-9]{0,18})", "double": _NUMBER, "decimal": _NUMBER, "bool": "true|false",
    "date": "[0-9]{4}-[0-9]{2}-[0-9]{2}",
    "timestamp": "[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.][0-9]{1,9})?"
    "(?:Z|[+-][0-9]{2}:?[0-9]{2})|[0-9]{9,11}|[0-9]{13}",
}  # fmt: skip
"""What a text of a type looks like: Arrow takes more, such as 0x1F, 1 for true, and infinity for 1e400."""

_MOMENT = re.compile(r"(.{10})[T ](.{8})(?:\.(\d{1,9}))?(?:Z|([+-])(\d\d):?(\d\d))")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MS_DIGITS = 13
_MIN_INT, _MAX_INT = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True)
class TypedColumn:
    """A column `name` made of the text of the column `source`; `kind` is one of KINDS. Small and picklable."""

    name: str
    source: str
    kind: str

    def __str__(self) -> str:
        """As users write it."""
        return f"{self.source}:{self.kind} as {self.name}"

    @cached_property
    def type(self) -> pa.DataType:
        """Its Arrow type."""
        found = _DECIMAL.fullmatch(self.kind)
        return pa.decimal128(int(found[1]), int(found[2])) if found else _TYPES[self.kind]

    def cast(self, texts: pa.StringArray) -> tuple[pa.Array, NDArray[np.bool_]]:
        """The values of texts, null where one does not fit, and which do not. Null stays, and fits."""
        if self.kind == "text":
            return texts, np.zeros(len(texts), dtype=np.bool_)
        pattern = f"^(?:{_PATTERNS[self.kind.partition('(')[0]]})$"
        looks_right = pc.match_substring_regex(texts, pattern)
        values = self._values(pc.if_else(looks_right, texts, pa.scalar(None, pa.string())))
        return values, np.asarray(texts.is_valid()) & ~np.asarray(values.is_valid())

    def _values(self, texts: pa.StringArray) -> pa.Array:
        """The values of texts that look right: all at once, or one by one where one of them does not fit."""
        try:
            if self.kind != "timestamp":
                values = texts.cast(self.type)
                return values if self.kind != "double" else pc.if_else(pc.is_finite(values), values, _NO_DOUBLE)
        except pa.ArrowInvalid:
            pass
        read = _READERS.get(self.kind, self._decimal)
        return pa.array([None if text is None else read(text) for text in texts.to_pylist()], self.type)

    def _decimal(self, text: str) -> Decimal | None:
        with localcontext() as context:
            context.prec = 2 * _MOST_DIGITS
            try:
                value = Decimal(text)
                scaled = value.quantize(Decimal(1).scaleb(-self.type.scale))
            except InvalidOperation:
                return None
            fits = scaled == value and len(scaled.as_tuple().digits) <= self.type.precision
            return scaled if fits else None


_NO_DOUBLE = pa.scalar(None, pa.float64())


def _int(text: str) -> int | None:
    value = int(text)
    return value if _MIN_INT <= value <= _MAX_INT else None


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def _timestamp(text: str) -> datetime | None:
    """A moment: RFC 3339 with a zone, digits below microseconds cut, or a number of seconds or milliseconds."""
    try:
        found = _MOMENT.fullmatch(text)
        if found is None:
            milliseconds = int(text) if len(text) == _MS_DIGITS else 1000 * int(text)
            return _EPOCH + timedelta(milliseconds=milliseconds)
        day, clock, fraction, sign, hours, minutes = found.groups()
        moment = datetime.fromisoformat(f"{day}T{clock}.{(fraction or '0').ljust(6, '0')[:6]}+00:00")
        distance = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
        return moment + distance if sign == "-" else moment - distance
    except (ValueError, OverflowError):
        return None


_READERS: dict[str, Callable[[str], Any]] = {"int": _int, "date": _date, "timestamp": _timestamp}


def typed_column(text: str) -> TypedColumn | None:
    """The column that users write as ``body.cents:int as cents``; None where it has neither a type nor a name.

    Raises UsageError for a type that there is not, and for what has none.
    """
    found = _SPEC.fullmatch(text.strip())
    if found is None or (found["kind"] is None and found["name"] is None):
        return None
    source, kind = found["source"], found["kind"] or "text"
    if not any(source.startswith(prefix) and source != prefix for prefix in (PROPERTY_COLUMN, JSON_COLUMN)):
        hint = f"for example: {JSON_COLUMN}cents:int as cents"
        raise UsageError(f"{text!r}: only {JSON_COLUMN}PATH and {PROPERTY_COLUMN}NAME have types and names", hint=hint)
    digits = _DECIMAL.fullmatch(kind)
    if digits is None and kind not in _TYPES:
        raise UsageError(f"{text!r}: no type is called {kind}", hint=f"types: {KINDS}")
    if digits is not None and not 0 < int(digits[1]) <= _MOST_DIGITS >= int(digits[1]) >= int(digits[2]):
        raise UsageError(f"{text!r}: a decimal has 1 to {_MOST_DIGITS} digits, and no more of them after the point")
    name = found["name"] or source
    if found["name"] is not None and not _NAME.fullmatch(name):
        raise UsageError(f"{text!r}: a name has letters, digits and _, and begins with no digit")
    return TypedColumn(name, source, f"decimal({int(digits[1])},{int(digits[2])})" if digits else kind)


def split_columns(text: str) -> list[str]:
    """Columns that are written with commas between them; those in brackets are part of a type."""
    return [each.strip() for each in re.split(r",(?![^(]*\))", text) if each.strip()]
