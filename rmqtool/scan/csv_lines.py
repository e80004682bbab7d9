"""Rows as CSV (RFC 4180, line ends of one character), built from whole columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rmqtool.scan.json_lines import string_data, text_of
from rmqtool.scan.plain_text import plain_text

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
    arguments = [piece if isinstance(piece, pa.Array) else pa.scalar(piece, pa.string()) for piece in [*pieces, "\n"]]
    return pc.binary_join_element_wise(*arguments, "", null_handling="replace", null_replacement="")


def _quoted(values: pa.StringArray) -> pa.StringArray:
    data = string_data(values)
    if not any(bool((data == character).any()) for character in _QUOTED):
        return values
    inner = pc.replace_substring(values, '"', '""')
    quoted = pc.binary_join_element_wise('"', inner, '"', "")
    return pc.if_else(pc.match_substring_regex(values, '[",\r\n]'), quoted, values)
