"""Stored text that may be shown: control characters in a visible form, and command lines for people to paste."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from typing import Any

_CONTROL = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb]"
)
_CONTROL_IN_JSON = re.compile(_CONTROL.pattern.replace(r"\x00-\x1f", ""))  # those JSON itself escapes


def visible(text: str) -> str:
    """`text` with control and direction characters escaped: what is stored must not drive the terminal."""
    return _CONTROL.sub(lambda found: _escaped(found[0]), text)


def json_text(value: Any, *, indent: int | None = None) -> str:
    """`value` as JSON, on one line unless there is an `indent`; control and direction characters are escaped."""
    separators = (",", ":") if indent is None else None
    text = json.dumps(value, ensure_ascii=False, separators=separators, indent=indent)
    if text.isascii() and "\x7f" not in text:
        return text
    return _CONTROL_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def quote(word: str) -> str:
    """`word` as a shell reads it back; what `visible` escapes stands in ``$'...'`` as bash, zsh and ksh have it."""
    if visible(word) == word:
        return shlex.quote(word)
    escaped = "".join(_escaped_for_shell(character) for character in word.replace("\\", "\\\\").replace("'", "\\'"))
    return f"$'{escaped}'"


def join(words: Iterable[str]) -> str:
    """Words as one command line."""
    return " ".join(map(quote, words))


def repeated_options(
    conf: str | None, version: object, bytes_per_second: int | None = None, jobs: int = 1
) -> tuple[str, ...]:
    """The options that the next commands on a store need, too, as words; they lead to it as it was opened."""
    given = {"--broker-conf": conf, "--broker-version": version, "--limit-rate": bytes_per_second,
             "--jobs": jobs if jobs > 1 else None}  # fmt: skip
    return tuple(word for name, value in given.items() if value is not None for word in (name, str(value)))


def _escaped_for_shell(character: str) -> str:
    if visible(character) == character:
        return character
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogateescape"))
