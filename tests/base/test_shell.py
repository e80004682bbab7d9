"""Command lines to paste: a shell reads back what was meant, a terminal shows it and is not driven by it."""

from __future__ import annotations

import subprocess

import pytest

from rmqtool.base.visible import join, quote, visible

WORDS = (
    "plain",
    "a b",
    "it's",
    "$HOME",
    "",
    "evil\x1b[31mred\nline",
    "back\\slash\x07'quote'",
    "\u202edlrow",
    "订单",
    "é\t",
)


@pytest.mark.parametrize("word", WORDS)
def test_a_shell_reads_it_back(word: str) -> None:
    shown = quote(word)
    assert visible(shown) == shown
    echoed = subprocess.run(["bash", "-c", f"printf %s {shown}"], capture_output=True, check=True).stdout
    assert echoed.decode() == word


def test_words_are_joined() -> None:
    assert join(["rmqtool", "query", "a b", "x\x1b"]) == "rmqtool query 'a b' $'x\\033'"
