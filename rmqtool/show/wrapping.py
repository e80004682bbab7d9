"""Sentences wrapped between words, by the columns that a terminal gives their characters."""

from __future__ import annotations

import re
import textwrap
import unicodedata

_COMMAND = re.compile(r"rmqtool [a-z-]+ .*")
_BLANK = "\ue001"  # stands for a blank at which no line ends
_FILLER = "\ue000"  # the second column of a wide character


def wrapped(text: str, width: int, indent: str = "", *, commands: bool = False) -> list[str]:
    """The lines of `text`, each at most `width` columns wide with its indent; a longer word stays in one piece.

    With `commands` so does a command that ends the text: it is there to be pasted.
    """
    if commands:
        whole = _COMMAND.sub(lambda found: found[0].replace(" ", _BLANK), text)
        return [line.replace(_BLANK, " ") for line in wrapped(whole, width, indent)]
    wrapper = textwrap.TextWrapper(width, initial_indent=indent, subsequent_indent=indent,
                                   break_long_words=False, break_on_hyphens=False)  # fmt: skip
    if text.isascii():
        return wrapper.wrap(text)
    is_wide = (unicodedata.east_asian_width(character) in "WF" for character in text)
    stretched = "".join(each + _FILLER * wide for each, wide in zip(text, is_wide, strict=True))
    return [line.replace(_FILLER, "") for line in wrapper.wrap(stretched)]


def with_its_indent(line: str, width: int | None) -> str:
    """A line, perhaps indented, on a terminal of so many columns; None: no terminal, and no end of line in it."""
    text = line.lstrip()
    indent = line[: len(line) - len(text)]
    return "\n".join(wrapped(text, width, indent, commands=True)) if width and text else line
