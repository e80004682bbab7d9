"""Columns as plain text, for CSV and tables."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from rmqtool.base.visible import visible as visible_text
from rmqtool.scan.json_lines import escaped_json, string_data

_LIST_SEPARATOR = " "  # keys are stored so


def plain_text(column: pa.Array, *, visible: bool) -> pa.StringArray:
    """Each value as text, null where there is none: lists with spaces between, maps as JSON objects.

    With `visible` control characters are escaped.
    """
    kind = column.type
    if pa.types.is_list(kind):
        text = pc.binary_join(column, _LIST_SEPARATOR)
    elif pa.types.is_map(kind):
        text = escaped_json(column)
    elif pa.types.is_boolean(kind):
        text = pc.if_else(column, "true", "false")
    else:
        text = column.cast(pa.string())
    return _visible(text) if visible else text


def _visible(values: pa.StringArray) -> pa.StringArray:
    data = string_data(values)
    if not len(data) or (data.min() >= 0x20 and data.max() < 0x7F):
        return values
    shown = [None if value is None else visible_text(value) for value in values.to_pylist()]
    return pa.array(shown, pa.string())
