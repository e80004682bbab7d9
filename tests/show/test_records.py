"""Tables on terminals: times and numbers are never folded, and what does not fit is shown row by row."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console
from rich.text import Text

from rmqtool.show.output import show_table, table

COLUMNS = "Group, Due, Lag>, State"
ROWS = [
    ("billing-of-all-orders", "2026-11-21T14:36:06.484+05:30", 12345678, Text("ok")),
    ("组一组一组一组一组一", "-", 1, Text("beyond the end of its queue, as none is", style="red")),
]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(width: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    show_table(Console(file=terminal, width=width, color_system=None), table("Groups", COLUMNS, ROWS))
    return terminal.getvalue().splitlines()


def test_a_wide_terminal_gets_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(120, monkeypatch)
    assert len(lines) == 4
    assert lines[1].split() == ["Group", "Due", "Lag", "State"]


def test_texts_are_folded_before_times(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(70, monkeypatch)
    assert len(lines) > 4
    assert any("2026-11-21T14:36:06.484+05:30  12345678" in line for line in lines)


@pytest.mark.parametrize("width", [40, 60])
def test_a_narrow_terminal_gets_rows(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with the names of its columns; texts are wrapped between words."""
    lines = shown(width, monkeypatch)
    assert lines[:5] == [
        "Groups",
        "Group  billing-of-all-orders",
        "Due    2026-11-21T14:36:06.484+05:30",
        "Lag    12345678",
        "State  ok",
    ]
    assert lines[5:7] == ["", "Group  组一组一组一组一组一"]
    state = [line[7:] for line in lines[9:]]
    assert " ".join(state) == "beyond the end of its queue, as none is"
    assert max(map(len, lines)) <= width
