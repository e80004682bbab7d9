"""Rows as a table for people that grows while it is read: columns become wider, never narrower.

On a terminal long texts are cut, as far as that makes a row fit; after that columns are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rmqtool.scan.json_lines import text_of
from rmqtool.scan.plain_text import plain_text
from rmqtool.scan.rows import Rows
from rmqtool.show.cells import cut, display_width, padded
from rmqtool.show.times import TIME, time_column

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

    def lines(self, rows: Rows) -> bytes:
        """The lines of `rows`; before the first rows those of the header."""
        if not self._begun and self._limit is not None and not self._keep_all:
            self._leave_out(rows, self._limit)
        cells = [self._cells(rows, name) for name in self.names]
        for index, column in enumerate(cells):
            self._widths[index] = max(self._widths[index], display_width(column))
        if not self._begun:
            schema = rows.batch.schema
            self._right = [name in rows.names and pa.types.is_integer(schema.field(name).type) for name in self.names]
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

    def _leave_out(self, rows: Rows, limit: int) -> None:
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
        self._right = [False] * len(self.names)

    def _least_width(self, rows: Rows, name: str) -> int:
        """Columns that the rows need for one of theirs: texts are cut, numbers and times are not."""
        width = max(len(name), display_width(self._cells(rows, name)))
        whole = name.endswith(TIME) or (name in rows.names and pa.types.is_integer(rows.batch.column(name).type))
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

    def _cells(self, rows: Rows, name: str) -> pa.StringArray:
        if name not in rows.names:
            return pa.array([_NOTHING] * len(rows), pa.string())
        column = rows.batch.column(name)
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
