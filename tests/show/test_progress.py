"""The progress bar: what is waited for, then bytes with their rate and the time left."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console
from rich.progress import Progress

from rmqtool.show import progress
from rmqtool.show.progress import ByteProgress

MIB = 1 << 20


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A terminal of 80 columns, and no patience."""
    shown = io.StringIO()
    monkeypatch.setattr(progress, "_console", lambda: Console(file=shown, force_terminal=True, width=80))
    monkeypatch.setattr(progress, "_PATIENCE", 0)
    monkeypatch.setattr(progress, "_REFRESH", 0)
    return shown


def test_waiting_ends_with_the_first_bytes(terminal: io.StringIO) -> None:
    """Nothing of it is left when the work has begun."""
    bar = ByteProgress("exporting", 100 * MIB, shown=True)
    bar.wait_for("starting Spark")
    assert "starting Spark" in terminal.getvalue()
    begun = len(terminal.getvalue())
    bar.update(0)
    bar.update(25 * MIB)
    bar.close()
    later = terminal.getvalue()[begun:]
    assert "25.0/100.0 MiB" in later
    assert later.rindex("exporting") > later.rfind("starting Spark")


def test_the_rate_is_that_since_the_work_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever time went by before; none before there is one."""
    monkeypatch.setattr(time, "monotonic", lambda: 110.0)
    with Progress(disable=True) as found:
        number = found.add_task("exporting", total=300 * MIB)
        column = progress._Rate(began=100.0, done=50 * MIB)
        found.update(number, completed=50 * MIB)
        assert column.render(found.tasks[0]).plain == ""
        found.update(number, completed=250 * MIB)
        assert column.render(found.tasks[0]).plain == "20.0 MiB/s  0:00:02 left"


def test_who_does_not_look_sees_nothing(terminal: io.StringIO) -> None:
    """Neither the waiting nor the bytes."""
    bar = ByteProgress("exporting", 100, shown=False)
    bar.wait_for("starting Spark")
    bar.update(50)
    bar.close()
    assert terminal.getvalue() == ""
