"""The text of a config file: where its members are, so that a change leaves every other byte as it is.

fastjson writes whole-number names without quotes, so that no JSON library can read, let alone keep, what it writes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import read_all
from rmqtool.store.config_json import parse_fastjson

MAX_SIZE = 256 << 20
"""Bytes of a config file that are read; a broker with a million groups writes less."""

_STRING = r'"(?:[^"\\\x00-\x1f]|\\[^\x00-\x1f])*"'
_NAME = re.compile(rf"\s*({_STRING}|-?\d+)\s*:\s*")
_TOKEN = re.compile(rf'\s*({_STRING}|[{{}}\[\],:]|[^\s"{{}}\[\],:]+)')
_SEPARATOR = re.compile(r"\s*([,}])")
_CANDIDATE = re.compile(rf"({_STRING}|(?<![\w.-])-?\d+)\s*:")
_CLOSING = {"{": "}", "[": "]"}
_MAX_DEPTH = 8  # deeper than any entry of a table; ends the search in damage that opens and never closes


Accepts = Callable[[str, Any], bool]


class Member(NamedTuple):
    """A member of an object: its name, and where in the text name and value begin and the value ends."""

    name: str
    start: int
    value: int
    stop: int


def read_text(path: Path) -> str:
    """The text of a file; bytes that are not UTF-8 become what `bytes_of` turns back."""
    return read_all(path, MAX_SIZE).decode("utf-8", "surrogateescape")


def can_be_read(path: Path) -> bool:
    """Whether a file's bytes can be read, whatever they are."""
    try:
        read_text(path)
    except RmqtoolError:
        return False
    return True


def bytes_of(text: str) -> bytes:
    """The bytes that `read_text` has read."""
    return text.encode("utf-8", "surrogateescape")


def members(text: str, opening: int) -> Iterator[Member]:
    """The members of the object that opens at `opening`, up to the first that is damaged."""
    at = opening + 1
    while (member := _member_at(text, at)) is not None:
        yield member
        separator = _SEPARATOR.match(text, member.stop)
        if separator is None or separator[1] == "}":
            return
        at = separator.end()


def member_of(text: str, opening: int, name: str) -> Member | None:
    """The last member of this name, which is the one that counts."""
    return next((each for each in reversed([*members(text, opening)]) if each.name == name), None)


def find_member(text: str, name: str) -> Member | None:
    """The first member of this name in a text that may be damaged; None when it is not whole."""
    found = re.search(rf'"{name}"\s*:', text)
    return _member_at(text, found.start()) if found else None


def table_in(text: str, name: str) -> Member | None:
    """A table of a file that can be read; None without one."""
    opening = text.find("{")
    table = member_of(text, opening, name) if opening >= 0 else None
    return table if table is not None and text[table.value] == "{" else None


def value_of(text: str, member: Member) -> Any:
    """The value of a member; None when it is damaged."""
    try:
        return parse_fastjson(text[member.value : member.stop])
    except ValueError:
        return None


def edited(text: str, edits: Sequence[tuple[int, int, str]]) -> str:
    """The text with each stretch, from start to before stop, replaced."""
    pieces, at = [], 0
    for start, stop, new in sorted(edits):
        pieces += [text[at:start], new]
        at = stop
    return "".join([*pieces, text[at:]])


def with_members(text: str, table: Member, added: Mapping[str, str]) -> str:
    """The text with members, each as it is written, at the end of a table."""
    last = next(reversed([*members(text, table.value)]), None)
    at = last.stop if last else table.value + 1
    lines = ",".join(f"\n\t\t{member}" for member in added.values())
    return edited(text, [(at, at, f"{',' if last else ''}{lines}" + ("" if last else "\n\t"))])


def whole_members(text: str, table: str, others: Sequence[str], accepts: Accepts) -> dict[str, str] | None:
    """The members of a table that damage has left whole, by name, each as it is written; None without any trace of it.

    They are looked for from the table's name on, or everywhere when that is damaged, up to the name of one of the
    `others`; `accepts` says of a name and its value whether they belong to the table.
    """
    found: dict[str, str] = {}
    opening = re.search(rf'"{table}"\s*:\s*\{{(\s*\}})?', text)
    if opening is not None and opening[1]:
        return found
    at = opening.end() if opening else 0
    names = "|".join(map(re.escape, others)) or "(?!)"
    behind = re.compile(rf'"(?:{names})"\s*:\s*[{{\[]').search(text, at)
    stop = behind.start() if behind else len(text)
    for candidate in _CANDIDATE.finditer(text):
        if not at <= candidate.start() < stop:
            continue
        member = _member_at(text, candidate.start())
        if member is None or not (text[member.stop - 1] in "}]" or _SEPARATOR.match(text, member.stop)):
            continue  # digits of a number may be lost
        if accepts(member.name, value_of(text, member)):
            found[member.name] = text[member.start : member.stop]
            at = member.stop
    return found or None


def written(value: object, depth: int = 0) -> str:
    """A value as fastjson 1 writes it, `depth` tabs from the left."""
    text = json.dumps(value, ensure_ascii=False, indent="\t", separators=(",", ":"), sort_keys=True)
    return text.replace("\n", "\n" + "\t" * depth)


def member_text(name: str, value: object) -> str:
    """A member of a table."""
    return f"{json.dumps(name, ensure_ascii=False)}:{written(value, 2)}"


def file_text(tables: Mapping[str, str | Mapping[str, str]]) -> str:
    """A file of tables by name: the text of each, or the texts of its members."""
    lines = []
    for name, table in sorted(tables.items()):
        lines.append(f'\n\t"{name}":{table if isinstance(table, str) else _table_text(table)}')
    return f"{{{','.join(lines)}\n}}"


def _table_text(table: Mapping[str, str]) -> str:
    lines = ",".join(f"\n\t\t{member}" for member in table.values())
    return f"{{{lines}\n\t}}" if lines else "{}"


def _member_at(text: str, at: int) -> Member | None:
    name = _NAME.match(text, at)
    stop = None if name is None else _end_of_value(text, name.end())
    if name is None or stop is None:
        return None
    try:
        return Member(str(json.loads(name[1])), name.start(1), name.end(), stop)
    except ValueError:
        return None


def _end_of_value(text: str, at: int) -> int | None:
    """Where the value that begins at `at` ends; None when it is not whole."""
    open_ones: list[str] = []
    while (token := _TOKEN.match(text, at)) is not None:
        at, mark = token.end(), token[1]
        if mark in _CLOSING:
            open_ones.append(_CLOSING[mark])
        elif mark in ("}", "]"):
            if not open_ones or open_ones.pop() != mark:
                return None
        elif not open_ones and mark in (",", ":"):
            return None
        if not open_ones:
            return at
        if len(open_ones) > _MAX_DEPTH:
            return None
    return None
