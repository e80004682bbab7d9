"""How stores, messages and verifications look in notebooks: tables of HTML, with all that is stored made harmless."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from rmqtool.base.visible import visible

_MOST = 200  # characters of one cell


def facts_table(title: str, facts: Mapping[str, object]) -> str:
    """Names and values, one below the other."""
    rows = "".join(f"<tr>{_cell('th', name)}{_cell('td', value)}</tr>" for name, value in facts.items())
    return f"{_title(title)}<table>{rows}</table>"


def rows_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], note: str = "") -> str:
    """A table with a head, and a sentence below it."""
    head = "".join(_cell("th", column) for column in columns)
    body = "".join(f"<tr>{''.join(_cell('td', value) for value in row)}</tr>" for row in rows)
    below = f"<div>{_text(note)}</div>" if note else ""
    return f"{_title(title)}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"


def command_list(commands: Iterable[tuple[str, str | None]]) -> str:
    """Sentences in order, each with its command."""
    steps = "".join(
        f"<li>{escape(visible(text))}{f'<pre>{escape(visible(command))}</pre>' if command else ''}</li>"
        for text, command in commands
    )
    return f"<ol>{steps}</ol>" if steps else ""


def short(value: Any, most: int = _MOST) -> str:
    """A value as text, cut where it is long; bytes as the text that they are, or as Python shows them."""
    if isinstance(value, bytes):
        try:
            value = value[: 4 * most].decode()
        except UnicodeDecodeError:
            value = repr(value[:most])
    text = "" if value is None else str(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _title(text: str) -> str:
    return f"<div><b>{_text(text)}</b></div>"


def _cell(kind: str, value: object) -> str:
    return f"<{kind} style='text-align:left'>{_text(value)}</{kind}>"


def _text(value: object) -> str:
    return escape(visible(short(value)))
