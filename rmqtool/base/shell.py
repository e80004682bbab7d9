"""Command lines for people to paste: words in quotes, and control characters in a form that a terminal can show."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from rmqtool.base.visible import visible


def quote(word: str) -> str:
    """`word` as a shell reads it back; what `visible` escapes stands in ``$'...'`` as bash, zsh and ksh have it."""
    if visible(word) == word:
        return shlex.quote(word)
    escaped = "".join(_escaped(character) for character in word.replace("\\", "\\\\").replace("'", "\\'"))
    return f"$'{escaped}'"


def join(words: Iterable[str]) -> str:
    """Words as one command line."""
    return " ".join(map(quote, words))


def _escaped(character: str) -> str:
    if visible(character) == character:
        return character
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogateescape"))
