"""Messages as rows of CSV or NDJSON: the columns of an export, with bodies as text."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from rmqtool.export.options import BodyFormat, ExportOptions
from rmqtool.scan.csv_lines import csv_header, csv_rows
from rmqtool.scan.json_lines import json_rows

BODY, BODY_BASE64 = "body", "body_base64"


class TextRows:
    """The rows of one format, and the header before them; made from batches with the columns of a query."""

    def __init__(self, options: ExportOptions) -> None:
        self._is_csv = options.format == "csv"
        self._int64 = options.int64
        self._body_format = options.body_format
        self.names = text_columns(options.query.columns, options.body_format)
        self.header = csv_header(self.names) if self._is_csv else b""

    def rows(self, messages: pa.RecordBatch) -> pa.StringArray:
        """Each message as a line with its line end."""
        batch = self._with_text_bodies(messages)
        if self._is_csv:
            return csv_rows(batch, self.names)
        raw = frozenset({BODY}) if self._body_format == "json" else frozenset[str]()
        return json_rows(batch, frozenset({BODY_BASE64}), self._int64, raw=raw)

    def _with_text_bodies(self, messages: pa.RecordBatch) -> pa.RecordBatch:
        columns = dict(zip(messages.schema.names, messages.columns, strict=True))
        if BODY in columns:
            bodies = columns[BODY].to_pylist()
            columns |= _text_bodies(bodies, self._body_format)
        return pa.RecordBatch.from_arrays([columns[name] for name in self.names], names=list(self.names))


def text_columns(names: Sequence[str], body_format: BodyFormat) -> tuple[str, ...]:
    """The columns of a text file for those of a query: bodies that are not text have one of their own."""
    beside = (BODY_BASE64,) if body_format in ("text", "json") else ()
    return tuple(column for name in names for column in ((name, *beside) if name == BODY else (name,)))


def _text_bodies(bodies: Sequence[bytes], body_format: BodyFormat) -> dict[str, pa.StringArray]:
    if body_format == "hex":
        return {BODY: pa.array([body.hex() for body in bodies], pa.string())}
    if body_format == "base64":
        return {BODY: pa.array([_base64(body) for body in bodies], pa.string())}
    read: Callable[[bytes], str | None] = _as_json if body_format == "json" else _as_text
    texts = [read(body) for body in bodies]
    others = [_base64(body) if text is None else None for text, body in zip(texts, bodies, strict=True)]
    return {BODY: pa.array(texts, pa.string()), BODY_BASE64: pa.array(others, pa.string())}


def _base64(body: bytes) -> str:
    return base64.b64encode(body).decode("ascii")


def _as_text(body: bytes) -> str | None:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def _as_json(body: bytes) -> str | None:
    """A JSON body as it was written, on one line; None where it is no JSON."""
    text = _as_text(body)
    try:
        json.loads(text or "", parse_int=str, parse_float=str, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    # In JSON a line end stands between values only: within a text it is escaped.
    return text and text.replace("\r", " ").replace("\n", " ")


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
