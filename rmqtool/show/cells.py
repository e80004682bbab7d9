"""The cells of a table, as wide as a terminal shows them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtool.scan.json_lines import string_data


def display_width(values: pa.StringArray) -> int:
    """Columns of a terminal that the widest value takes."""
    from rich.cells import cell_len

    if is_ascii(values):
        return int(pc.max(pc.binary_length(values)).as_py() or 0)
    return max((cell_len(value) for value in values.to_pylist() if value is not None), default=0)


def cut(values: pa.StringArray, width: int) -> pa.StringArray:
    """Values of at most `width` columns; the end of a longer one is ``…``."""
    if display_width(values) <= width:
        return values
    return pa.array([None if value is None else _cut(value, width) for value in values.to_pylist()], pa.string())


def _cut(value: str, width: int) -> str:
    from rich.cells import cell_len, set_cell_size

    return value if cell_len(value) <= width else f"{set_cell_size(value, width - 1).rstrip()}…"


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
