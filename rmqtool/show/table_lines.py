"""The lines of a table whose cells are not folded: rich draws its head, and styled cells; the others are only padded.

So a table of many queues costs a tenth of what it takes rich, which measures and renders each cell as a block of text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Column, Table
from rich.text import Text

from rmqtool.show.records import plain

_GAP = "  "


def table_lines(shown: Table, console: Console) -> Iterator[str]:
    """The title, the header and the rows as the console shows them, without blanks after the last column.

    Cells are strings, or Text with styles, without line breaks.
    """
    columns = [list(column.cells) for column in shown.columns]
    widths = [_width(column, cells) for column, cells in zip(shown.columns, columns, strict=True)]
    for line in _drawn(console, _head(shown, widths)):
        yield line.rstrip()
    justified = [column.justify for column in shown.columns]
    for row in zip(*columns, strict=True):
        shown_cells = map(_cell, row, widths, justified, [console] * len(row))
        yield _GAP.join(shown_cells).rstrip()


def _width(column: Column, cells: Sequence[object]) -> int:
    texts = [*map(plain, cells)]
    is_ascii = all(map(str.isascii, texts))
    return max(cell_len(plain(column.header)), max(map(len if is_ascii else cell_len, texts), default=0))


def _head(shown: Table, widths: Sequence[int]) -> Table:
    """The same table without rows, its columns as wide as the rows make them."""
    head = Table(title=shown.title, title_justify=shown.title_justify, title_style=shown.title_style,
                 box=None, pad_edge=False, header_style=shown.header_style)  # fmt: skip
    for column, width in zip(shown.columns, widths, strict=True):
        head.add_column(column.header, justify=column.justify, width=width, no_wrap=True)
    return head


def _cell(cell: object, width: int, justify: JustifyMethod, console: Console) -> str:
    text = plain(cell)
    blanks = width - (len(text) if text.isascii() else cell_len(text))
    if not (isinstance(cell, Text) and (cell.style or cell.spans)):
        return " " * blanks + text if justify == "right" else text + " " * blanks
    padded = cell.copy()
    pad = padded.pad_left if justify == "right" else padded.pad_right
    pad(blanks)
    return "".join(_drawn(console, padded))


def _drawn(console: Console, what: Table | Text) -> list[str]:
    with console.capture() as captured:
        console.print(what, soft_wrap=isinstance(what, Text))
    return captured.get().splitlines()
