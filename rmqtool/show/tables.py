"""Rows as a table for people that grows while it is read: columns become wider, never narrower."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rmqtool.scan.json_lines import text_of
from rmqtool.scan.plain_text import plain_text
from rmqtool.scan.rows import Rows
from rmqtool.show.cells import display_width, padded
from rmqtool.show.times import TIME, time_column

_GAP = "  "
_NOTHING = "-"


class TableWriter:
    """Turns rows into the lines of one table with the columns `names`."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        self._widths = [len(name) for name in self.names]
        self._right = [False] * len(self.names)
        self._begun = False

    def lines(self, rows: Rows) -> bytes:
        """The lines of `rows`; before the first rows those of the header."""
        cells = [self._cells(rows, name) for name in self.names]
        for index, column in enumerate(cells):
            self._widths[index] = max(self._widths[index], display_width(column))
        head = b"" if self._begun else self._header(rows)
        self._begun = True
        pieces: list[Any] = []
        for index, column in enumerate(cells):
            is_last = index == len(cells) - 1
            if index:
                pieces.append(pa.scalar(_GAP, pa.string()))
            right = self._right[index]
            pieces.append(column if is_last and not right else padded(column, self._widths[index], right=right))
        return head + bytes(text_of(pc.binary_join_element_wise(*pieces, pa.scalar("\n", pa.string()), "")))

    def _cells(self, rows: Rows, name: str) -> pa.StringArray:
        if name not in rows.names:
            return pa.array([_NOTHING] * len(rows), pa.string())
        column = rows.batch.column(name)
        if name.endswith(TIME) and pa.types.is_string(column.type):
            column = time_column(column)
        text = plain_text(column, visible=True).fill_null(_NOTHING)
        return pc.if_else(pc.equal(pc.binary_length(text), 0), _NOTHING, text)

    def _header(self, rows: Rows) -> bytes:
        schema = rows.batch.schema
        self._right = [
            name in schema.names and bool(pa.types.is_integer(schema.field(name).type)) for name in self.names
        ]
        cells = [
            name.rjust(width) if right else name.ljust(width)
            for name, width, right in zip(self.names, self._widths, self._right, strict=True)
        ]
        return _GAP.join(cells).rstrip().encode() + b"\n"
