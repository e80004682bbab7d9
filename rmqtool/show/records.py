"""Tables that are too wide for their terminal: each row as a few lines, a name and a value on each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from rmqtool.show.wrapping import wrapped

_GAP = 2  # columns between two of a table
_LEAST = 12  # columns of a terminal to which texts may be folded
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d\S*|-|")


def is_time(texts: Sequence[str]) -> bool:
    """Whether a column holds times, which are not folded."""
    return any(len(text) > 1 for text in texts) and all(map(_TIME.fullmatch, texts))


def fits(shown: Table, width: int) -> bool:
    """Whether a table can be shown in so many columns without numbers and times being folded."""
    return sum(map(_least, shown.columns)) + _GAP * (len(shown.columns) - 1) <= width


def is_unfolded(shown: Table, width: int) -> bool:
    """Whether each row is one line of so many columns."""
    cells = [[plain(cell) for cell in (column.header, *column.cells)] for column in shown.columns]
    widest = [max(map(cell_len, column)) for column in cells]
    fitting = sum(widest) + _GAP * (len(widest) - 1) <= width
    return fitting and not any("\n" in cell for column in cells for cell in column)


def record_lines(shown: Table, console: Console) -> Iterator[Text]:
    """The title, and the rows of a table as lines; between two rows is an empty line."""
    if shown.title:
        yield Text(str(shown.title), style="bold")
    names = [plain(column.header) for column in shown.columns]
    label = max(map(len, names), default=0) + _GAP
    for number, row in enumerate(zip(*(column.cells for column in shown.columns), strict=True)):
        if number:
            yield Text()
        for name, cell in zip(names, row, strict=True):
            head, style = name, cell.style if isinstance(cell, Text) else ""
            for line in wrapped(plain(cell), max(console.width - label, _LEAST)):
                yield Text.assemble((f"{head:<{label}}", "dim"), (line, style))
                head = ""


def _least(column: Column) -> int:
    widest = max(cell_len(plain(cell)) for cell in (column.header, *column.cells))
    return widest if column.no_wrap else min(widest, _LEAST)


def plain(cell: object) -> str:
    """The text of a cell, a string or Text with a style."""
    return cell.plain if isinstance(cell, Text) else str(cell)
