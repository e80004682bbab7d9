"""The progress bar: what is waited for, then bytes with their rate and the time left."""

from __future__ import annotations

import io
import json
import os
import signal
import time

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.progress import Progress

from rmqtool.show import progress, progress_bar
from rmqtool.show.output import Style
from rmqtool.show.progress import ByteProgress, Work, answer_signals, byte_progress
from rmqtool.show.progress_bar import OneLine, speed

MIB = 1 << 20


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A terminal of 80 columns, and no patience."""
    shown = io.StringIO()
    monkeypatch.setattr(progress_bar, "_console", lambda: Console(file=shown, force_terminal=True, width=80))
    monkeypatch.setattr(progress, "_PATIENCE", 0)
    monkeypatch.setattr(progress, "_REFRESH", 0)
    return shown


def test_waiting_ends_with_the_first_bytes(terminal: io.StringIO) -> None:
    """Nothing of it is left when the work has begun."""
    bar = ByteProgress(Work("exporting", 100 * MIB), shown=True, as_json=False)
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
    moments = iter([100.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(moments, 110.0))
    work = Work("exporting", 300 * MIB)
    with Progress(disable=True) as found:
        number = found.add_task("exporting", total=300 * MIB)
        work.report(50 * MIB)
        found.update(number, completed=50 * MIB)
        assert speed(work.rate, found.tasks[0]) == ("", "")
        work.report(250 * MIB)
        found.update(number, completed=250 * MIB)
        assert speed(work.rate, found.tasks[0]) == ("20.0 MiB/s", "0:00:02 left")
    assert work.text == "exporting: 250 MiB of 300 MiB, 83%, 20.0 MiB/s, 2 s left"


@pytest.mark.parametrize("width", [20, 30, 40, 60, 80, 120, 200])
@pytest.mark.parametrize("title", ["verifying", "comparing with the commit log", "日志" * 10])
def test_a_bar_is_one_line(width: int, title: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for the ``^C`` after it, which would else begin another line; how much is done is always there."""
    moments = iter([100.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(moments, 110.0))
    work, console = Work(title, 300 * MIB), Console(width=width)
    work.report(0)
    work.report(200 * MIB)
    with Progress(disable=True) as found:
        found.update(found.add_task(title, total=300 * MIB), completed=200 * MIB)
        with console.capture() as captured:
            console.print(OneLine(lambda: work.rate, console).render(found.tasks[0]))
    (line,) = captured.get().splitlines()
    assert cell_len(line.rstrip()) <= width - len("^C") - 1
    assert "200.0/300.0 MiB" in line
    if width >= 120:
        assert "20.0 MiB/s  0:00:05 left" in line
        assert title in line


def test_who_does_not_look_sees_nothing(terminal: io.StringIO) -> None:
    """Neither the waiting nor the bytes."""
    bar = ByteProgress(Work("exporting", 100), shown=False, as_json=False)
    bar.wait_for("starting Spark")
    bar.update(50)
    bar.close()
    assert terminal.getvalue() == ""


def test_lines_for_programs(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """One each second, whether or not stderr is a terminal, and also with --quiet."""
    monkeypatch.setattr(progress, "_PATIENCE", 0)
    with byte_progress("verifying", 100, style=Style(progress="json", verbosity=-1)) as bar:
        bar.update(0)
        bar.update(40)
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [(line["progress"], line["done"], line["total"]) for line in lines] == [
        ("verifying", 0, 100), ("verifying", 40, 100)]  # fmt: skip
    assert all(line["seconds"] >= 0 for line in lines)


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="no such signal on this system")
def test_a_signal_is_answered_and_ends_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """With the work in hand, also where no bar is shown, and with no work."""
    before = signal.getsignal(signal.SIGUSR1)
    try:
        answer_signals()
        os.kill(os.getpid(), signal.SIGUSR1)
        with byte_progress("verifying", 3 << 20, style=Style(progress="never")) as bar:
            os.kill(os.getpid(), signal.SIGUSR1)
            bar.update(1 << 20)
            os.kill(os.getpid(), signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    lines = capfd.readouterr().err.splitlines()
    assert lines[:2] == ["rmqtool: nothing to report yet", "rmqtool: verifying: waiting"]
    assert lines[2].startswith("rmqtool: verifying: 1.00 MiB of 3.00 MiB, 33%")
