"""Paging on a terminal of 24 rows: what goes through the pager, and what comes before and after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.errors import Exit
from tests.building import LogBuilder
from tests.commands.running import rmqtool
from tests.commands.terminal import on_terminal

PAGER = "sed s/^/P:/"

pytestmark = pytest.mark.slow  # each starts the program


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Twenty messages."""
    return LogBuilder().add_all([{"body": b"x"}] * 20).write(tmp_path / "store")


def lines_of(text: str) -> tuple[list[str], list[str]]:
    """Lines that the pager wrote, and others."""
    lines = text.splitlines()
    return [line for line in lines if line.startswith("P:")], [line for line in lines if not line.startswith("P:")]


def test_what_is_longer_than_the_screen(store: Path) -> None:
    """All of it, with colours as without a pager, and nothing else."""
    paged, others = lines_of(on_terminal("inspect", "store/commitlog", cwd=store.parent, PAGER=PAGER))
    plain = on_terminal("inspect", "store/commitlog", "--no-pager", cwd=store.parent, PAGER=PAGER)
    assert [line.removeprefix("P:") for line in paged] == plain.splitlines()
    assert others == []
    assert "\x1b[" in plain


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        (["--limit", "2"], {"PAGER": PAGER}),
        ([], {"PAGER": ""}),
        ([], {"PAGER": "cat"}),
        ([], {"PAGER": "no-such-pager --at-all"}),
        ([], {"PAGER": "an 'open quote"}),
        ([], {"PAGER": PAGER, "RMQTOOL_PAGER": "cat"}),
        ([], {"PAGER": PAGER, "RMQTOOL_NO_PAGER": "1"}),
    ],
)
def test_what_is_not_paged(store: Path, arguments: list[str], variables: dict[str, Any]) -> None:
    """It fits, nobody wants it, or there is none."""
    command = ("inspect", "store/commitlog", "--color", "never", *arguments)
    text = on_terminal(*command, cwd=store.parent, status=Exit.OK, **variables)
    assert text == rmqtool("inspect", store / "commitlog", *arguments).out


def test_a_pipe_is_not_paged(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGER", PAGER)
    assert "P:" not in rmqtool("inspect", store / "commitlog").out


def test_notes_come_in_their_order(store: Path) -> None:
    """After the pager's end, and on a screen that is large enough after the text."""
    options = ("query", "store", "--scan", "--body", "none")
    paged, others = lines_of(on_terminal(*options, cwd=store.parent, PAGER=PAGER))
    assert len(paged) > 24
    assert any("who has read the last one" in line for line in others)
    text = on_terminal(*options, "--limit", "1", cwd=store.parent, PAGER=PAGER)
    assert "message  0" in text.splitlines()[0]
    assert text.index("body") < text.index("who has read it")


def test_a_pager_that_is_left(store: Path) -> None:
    """The rest is for nobody; that is no error."""
    LogBuilder().add_all([{"body": b"x" * 100}] * 3000).write(store)
    text = on_terminal("inspect", "store/commitlog", cwd=store.parent, PAGER="head -n 3")
    assert len(text.splitlines()) == 3


def test_help_is_paged(store: Path) -> None:
    paged, others = lines_of(on_terminal("verify", "--help", cwd=store.parent, PAGER=PAGER))
    assert paged[0].startswith("P:Usage: rmqtool verify")
    assert others == []


def test_a_bar_makes_way(store: Path) -> None:
    """It is gone before the pager begins."""
    filler: list[dict[str, Any]] = [{"body": b"x" * 1000}] * 100
    LogBuilder().add_all(filler + [{"topic": "late"}] * 60 + filler).write(store)
    slow = ("query", "store", "--scan", "--limit-rate", "40K", "--body", "none", "--topic", "late")
    text = on_terminal(*slow, cwd=store.parent, PAGER=PAGER)
    assert "reading the commit log" in text
    assert "reading the commit log" not in text[text.index("P:") :]


def test_the_status_is_that_of_the_command(store: Path) -> None:
    log = next((store / "commitlog").iterdir())
    log.write_bytes(log.read_bytes()[:1000] + b"\xff" * 3000)
    text = on_terminal("inspect", "store/commitlog", cwd=store.parent, status=Exit.LOSSY, PAGER=PAGER)
    assert "torn" in lines_of(text)[0][-1]
