"""Sentences on a terminal: wrapped between words, wide characters counted as two columns."""

from __future__ import annotations

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from rmqtool.show.output import note, print_labelled
from rmqtool.show.wrapping import with_its_indent, wrapped

WORDS = st.lists(st.text(st.sampled_from("ab中文😀é-"), min_size=1, max_size=8), max_size=30)


@given(WORDS, st.integers(10, 60))
def test_no_line_is_wider_than_the_terminal(words: list[str], width: int) -> None:
    """But for a word that is; no word is lost or broken."""
    lines = wrapped(" ".join(words), width, "  ")
    assert " ".join(lines).split() == words
    assert [line for line in lines if cell_len(line) > width and len(line.split()) > 1] == []


def test_ascii_is_wrapped_as_ever() -> None:
    text = "a broker would recover, scan from commitlog/00000000000000000000 and end the log-file"
    assert wrapped(text, 30) == textwrap.wrap(text, 30, break_long_words=False, break_on_hyphens=False)


def test_wide_characters_count_twice() -> None:
    assert wrapped("组一 has passed", 10) == ["组一 has", "passed"]
    assert wrapped("组一组 has passed", 10) == ["组一组 has", "passed"]
    assert wrapped("组一组一 has passed", 10) == ["组一组一", "has passed"]


def test_names_in_a_note_do_not_drive_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    note("topic evil\x1b[31mred\nnext: line")
    assert capsys.readouterr().err == "topic evil\\x1b[31mred\nnext: line\n"


def test_a_command_to_paste_stays_in_one_piece() -> None:
    line = "  see what is damaged: rmqtool verify /data/rocketmq/store"
    assert with_its_indent(line, 30) == "  see what is damaged:\n  rmqtool verify /data/rocketmq/store"
    assert with_its_indent(line, None) == line


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_head_alone_is_printed(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The verdict of a clean store has nothing after it."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    print_labelled(Console(width=80), Text("verdict  clean"), "")
    assert capsys.readouterr().out == "verdict  clean\n"
