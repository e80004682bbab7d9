"""Columns as plain text, for CSV and tables."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtool.show.json_lines import escaped_json, string_data
from rmqtool.show.output import visible as visible_text

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


def display_width(values: pa.StringArray) -> int:
    """Columns of a terminal that the widest value takes."""
    from rich.cells import cell_len

    if is_ascii(values):
        return int(pc.max(pc.binary_length(values)).as_py() or 0)
    return max((cell_len(value) for value in values.to_pylist() if value is not None), default=0)


def is_ascii(values: pa.StringArray) -> bool:
    """Whether each character takes one byte and one column."""
    data = string_data(values)
    return not len(data) or int(data.view(np.int8).min()) >= 0


def padded(values: pa.StringArray, width: int, *, right: bool) -> pa.StringArray:
    """Values filled with blanks to `width` columns of a terminal, to the right side when `right`."""
    from rich.cells import cell_len

    if is_ascii(values):
        return pc.ascii_lpad(values, width) if right else pc.ascii_rpad(values, width)
    texts = values.to_pylist()
    blanks = [" " * max(0, width - cell_len(text)) for text in texts]
    filled = [blank + text if right else text + blank for text, blank in zip(texts, blanks, strict=True)]
    return pa.array(filled, pa.string())
