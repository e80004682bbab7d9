"""Lines of tables are those that rich draws, and cost little for many rows."""

from __future__ import annotations

import io
from typing import Literal

import pytest
from rich.console import Console
from rich.text import Text

from rmqtool.show import tables as under_test
from rmqtool.show.output import table
from rmqtool.show.tables import table_lines

COLUMNS = "Topic, Queue>, Lag>, Note"
ROWS: list[list[object]] = [
    ["orders", 0, Text("-7", style="red"), "x"],
    ["订单-a-longer-name", 1234567, 12, ""],
    ["t", 2, Text("3").append(", 1 beyond", style="yellow"), Text("styled", style="dim")],
    ["", 3, "", "the last column"],
]


def _console(color: Literal["truecolor"] | None) -> Console:
    return Console(file=io.StringIO(), width=1 << 16, color_system=color, force_terminal=bool(color), emoji=False,
                   highlight=False)  # fmt: skip


@pytest.mark.parametrize("color", [None, "truecolor"])
@pytest.mark.parametrize("rows", [ROWS, ROWS[:1], []], ids=["rows", "one", "none"])
def test_lines_are_those_of_rich(rows: list[list[object]], color: Literal["truecolor"] | None) -> None:
    """With wide characters, styled cells, an empty title and without rows."""
    for title in ("Queues", "A title that is longer than the columns: " + "all" * 20, ""):
        shown, console = table(title, COLUMNS, rows), _console(color)
        with console.capture() as captured:
            console.print(shown)
        expected = [line.rstrip() for line in captured.get().splitlines()]
        assert [*table_lines(shown, console)] == expected


def test_plain_cells_are_not_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the head is drawn by rich, and cells with a style."""
    drawn: list[object] = []
    original = under_test._drawn

    def counted(console: Console, what: object) -> list[str]:
        drawn.append(what)
        return original(console, what)  # type: ignore[arg-type]

    monkeypatch.setattr(under_test, "_drawn", counted)
    shown = table("Queues", COLUMNS, [["topic", number, number, "x"] for number in range(1000)] + ROWS)
    assert len([*table_lines(shown, _console(None))]) == 1006
    assert len(drawn) == 4
