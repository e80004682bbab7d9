"""Tables for people: their lines, their cells, and rows that are too wide for the terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.cells import cell_len, set_cell_size
from rich.console import Console, JustifyMethod
from rich.table import Column, Table
from rich.text import Text

from rmqtool.scan.rows import plain_text, string_data, text_of
from rmqtool.show.times import TIME, time_column
from rmqtool.show.wrapping import wrapped


def display_width(values: pa.StringArray) -> int:
    """Columns of a terminal that the widest value takes."""
    if is_ascii(values):
        return int(pc.max(pc.binary_length(values)).as_py() or 0)
    return max((cell_len(value) for value in values.to_pylist() if value is not None), default=0)


def cut(values: pa.StringArray, width: int) -> pa.StringArray:
    """Values of at most `width` columns; the end of a longer one is ``…``."""
    if display_width(values) <= width:
        return values
    is_whole = (value is None or cell_len(value) <= width for value in values.to_pylist())
    shown = [value if whole else f"{set_cell_size(value, width - 1).rstrip()}…"
             for value, whole in zip(values.to_pylist(), is_whole, strict=True)]  # fmt: skip
    return pa.array(shown, pa.string())


def is_ascii(values: pa.StringArray) -> bool:
    """Whether each character takes one byte and one column."""
    data = string_data(values)
    return not len(data) or int(data.view(np.int8).min()) >= 0


def padded(values: pa.StringArray, width: int, *, right: bool) -> pa.StringArray:
    """Values filled with blanks to `width` columns of a terminal, to the right side when `right`."""
    if is_ascii(values):
        return pc.ascii_lpad(values, width) if right else pc.ascii_rpad(values, width)
    texts = values.to_pylist()
    blanks = [" " * max(0, width - cell_len(text)) for text in texts]
    filled = [blank + text if right else text + blank for text, blank in zip(texts, blanks, strict=True)]
    return pa.array(filled, pa.string())


_GAP = "  "
_NOTHING = "-"
_LEAST_WIDTH = 12  # to which a text is cut
_LEFT_OUT_FIRST = ("message_size", "tags_code", "queue_offset")  # of a row that its physical offset finds


class TableWriter:
    """Turns rows into the lines of one table with the columns `names`, where it can no wider than `width` columns.

    Unless `keep_all` what the first rows show to be too wide is left out: these columns are `left_out`.
    """

    def __init__(self, names: Sequence[str], width: int | None = None, *, keep_all: bool = True) -> None:
        self.names = list(names)
        self.left_out: list[str] = []
        self._limit = width
        self._keep_all = keep_all
        self._widths = [len(name) for name in self.names]
        self._right = [False] * len(self.names)
        self._begun = False

    def lines(self, rows: pa.RecordBatch) -> bytes:
        """The lines of `rows`; before the first rows those of the header."""
        if not self._begun and self._limit is not None and not self._keep_all:
            self._leave_out(rows, self._limit)
        cells = [self._cells(rows, name) for name in self.names]
        for index, column in enumerate(cells):
            self._widths[index] = max(self._widths[index], display_width(column))
        if not self._begun:
            names, schema = rows.schema.names, rows.schema
            self._right = [name in names and pa.types.is_integer(schema.field(name).type) for name in self.names]
        cells = self._fitting(cells)
        head = b"" if self._begun else self._header()
        self._begun = True
        pieces: list[Any] = []
        for index, column in enumerate(cells):
            is_last = index == len(cells) - 1
            if index:
                pieces.append(pa.scalar(_GAP, pa.string()))
            right = self._right[index]
            pieces.append(column if is_last and not right else padded(column, self._widths[index], right=right))
        return head + bytes(text_of(pc.binary_join_element_wise(*pieces, pa.scalar("\n", pa.string()), "")))

    def _leave_out(self, rows: pa.RecordBatch, limit: int) -> None:
        """Leave columns out until rows fit into `limit` columns; the first one stays."""
        least = {name: self._least_width(rows, name) for name in self.names}
        order = [name for name in (*_LEFT_OUT_FIRST, *reversed(self.names)) if name in self.names[1:]]
        for name in dict.fromkeys(order):
            if sum(least.values()) + len(_GAP) * (len(least) - 1) <= limit:
                break
            del least[name]
        self.left_out = [name for name in self.names if name not in least]
        self.names = list(least)
        self._widths = [len(name) for name in self.names]

    def _least_width(self, rows: pa.RecordBatch, name: str) -> int:
        """Columns that the rows need for one of theirs: texts are cut, numbers and times are not."""
        width = max(len(name), display_width(self._cells(rows, name)))
        whole = name.endswith(TIME) or (name in rows.schema.names and pa.types.is_integer(rows.column(name).type))
        return width if whole else min(width, max(_LEAST_WIDTH, len(name)))

    def _fitting(self, cells: list[pa.StringArray]) -> list[pa.StringArray]:
        """The cells, with texts cut where the row is too wide for the terminal: the widest first, times never."""
        over = sum(self._widths) + len(_GAP) * (len(cells) - 1) - (self._limit or 0)
        if self._limit is None or over <= 0:
            return cells
        texts = [each for each, name in enumerate(self.names) if not (self._right[each] or name.endswith(TIME))]
        for index in sorted(texts, key=lambda each: -self._widths[each]):
            room = max(0, self._widths[index] - max(_LEAST_WIDTH, len(self.names[index])))
            self._widths[index] -= min(room, max(over, 0))
            over -= room
        return [cut(column, width) for column, width in zip(cells, self._widths, strict=True)]

    def _cells(self, rows: pa.RecordBatch, name: str) -> pa.StringArray:
        if name not in rows.schema.names:
            return pa.array([_NOTHING] * rows.num_rows, pa.string())
        column = rows.column(name)
        if name.endswith(TIME) and pa.types.is_string(column.type):
            column = time_column(column)
        text = plain_text(column, visible=True).fill_null(_NOTHING)
        return pc.if_else(pc.equal(pc.binary_length(text), 0), _NOTHING, text)

    def _header(self) -> bytes:
        cells = [
            name.rjust(width) if right else name.ljust(width)
            for name, width, right in zip(self.names, self._widths, self._right, strict=True)
        ]
        return _GAP.join(cells).rstrip().encode() + b"\n"


_RECORD_GAP = 2  # columns between two of a table
_LEAST = 12  # columns of a terminal to which texts may be folded
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d\S*|-|")


def is_time(texts: Sequence[str]) -> bool:
    """Whether a column holds times, which are not folded."""
    return any(len(text) > 1 for text in texts) and all(map(_TIME.fullmatch, texts))


def fits(shown: Table, width: int) -> bool:
    """Whether a table can be shown in so many columns without numbers and times being folded."""
    return sum(map(_least, shown.columns)) + _RECORD_GAP * (len(shown.columns) - 1) <= width


def is_unfolded(shown: Table, width: int) -> bool:
    """Whether each row is one line of so many columns."""
    cells = [[plain(cell) for cell in (column.header, *column.cells)] for column in shown.columns]
    widest = [max(map(cell_len, column)) for column in cells]
    fitting = sum(widest) + _RECORD_GAP * (len(widest) - 1) <= width
    return fitting and not any("\n" in cell for column in cells for cell in column)


def record_lines(shown: Table, console: Console) -> Iterator[Text]:
    """The title, and the rows of a table as lines; between two rows is an empty line."""
    if shown.title:
        yield Text(str(shown.title), style="bold")
    names = [plain(column.header) for column in shown.columns]
    label = max(map(len, names), default=0) + _RECORD_GAP
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
