"""What of a config file can be read: the file as it is, its ``.bak``, or the entries of both that damage left whole."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import read_all
from rmqtool.rules.config_shapes import shape_problem
from rmqtool.rules.versions import OFFSETS_HAVE_DATA_VERSION, OLDEST, Releases
from rmqtool.store.config_json import (
    backup_of,
    damaged_in,
    has_odd_bytes,
    is_damaged_name,
    parse_fastjson,
    read_config_file,
)
from rmqtool.store.config_tables import (
    DELAYS,
    FILE_TABLES,
    FORBIDDEN_TABLE,
    GROUPS,
    LMQ_CONSUMER_OFFSET,
    LMQ_TABLE,
    MAIN_TABLES,
    OFFSETS,
    TOPICS,
    entries_in,
)

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


def damaged_names(file: str, content: Mapping[str, Any], path: Path | None = None) -> list[str]:
    """The names in a config file, of tables, entries and fields, that no broker has written so.

    Topics and groups repeat their names (`TopicConfigManager#putTopicConfig`). Where the content is that of a `path`,
    its bytes may show that there is nothing to look for.
    """
    found = [*damaged_in(content)] if path is None or has_odd_bytes(path) else []
    if file in (TOPICS, GROUPS):
        table = FILE_TABLES[file]
        for name, value in entries_in(content, table.name).items():
            repeated = value.get(table.named_by) if isinstance(value, dict) else None
            if isinstance(repeated, str) and repeated != name and not is_damaged_name(name):
                found.append(name)
    return found


def text_of(path: Path) -> str | None:
    """The text of a file, None where it cannot be read; bytes that are not UTF-8 become what `bytes_of` turns back."""
    try:
        return read_all(path, MAX_SIZE).decode("utf-8", "surrogateescape")
    except RmqtoolError:
        return None


def bytes_of(text: str) -> bytes:
    """The bytes that `text_of` has read."""
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


def table_in(text: str, name: str) -> Member | None:
    """A table of a file that can be read; None without one."""
    opening = text.find("{")
    table = member_of(text, opening, name) if opening >= 0 else None
    return table if table is not None and text[table.value] == "{" else None


def entries_of(text: str | None, name: str) -> list[Member]:
    """The entries of a table of a file that can be read; none without the table, or the file."""
    table = None if text is None else table_in(text, name)
    return [*members(text, table.value)] if text is not None and table else []


def value_of(text: str, member: Member) -> Any:
    """The value of a member; None when it is damaged."""
    try:
        return parse_fastjson(text[member.value : member.stop])
    except ValueError:
        return None


def edited(text: str, edits: Sequence[tuple[int, int, str]]) -> str:
    """The text with each stretch, from start to before stop, replaced; those that are taken out may overlap."""
    pieces, at = [], 0
    for start, stop, new in sorted(edits):
        pieces += [text[at:start], new]
        at = max(at, stop)
    return "".join([*pieces, text[at:]])


def with_values(text: str, values: Sequence[tuple[Member, object]]) -> str:
    """The text with other values of members; without those whose value is None."""
    begins = {member.stop: member.start for member, value in values if value is None}
    edits = [(member.value, member.stop, str(value)) for member, value in values if value is not None]
    return edited(text, [*edits, *((*_removal(text, start, stop, begins), "") for stop, start in begins.items())])


def _removal(text: str, start: int, stop: int, begins: Mapping[int, int]) -> tuple[int, int]:
    """The stretch of a member that is taken out with the comma after it; of the last one with the comma before it.

    `begins` are those of all that are taken out, by where they stop: then the last that stays has no comma.
    """
    following = _SEPARATOR.match(text, stop)
    if following and following[1] == ",":
        return start, following.end()
    while text[(comma := _last_before(text, start))] == ",":
        end = _last_before(text, comma) + 1
        if end not in begins:
            return comma, stop
        start = begins[end]
    return start, stop


def _last_before(text: str, at: int) -> int:
    """Where the last character before a place is that is no blank."""
    at -= 1
    while text[at].isspace():
        at -= 1
    return at


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
        entries = "" if isinstance(table, str) else ",".join(f"\n\t\t{member}" for member in table.values())
        text = table if isinstance(table, str) else f"{{{entries}\n\t}}" if entries else "{}"
        lines.append(f'\n\t"{name}":{text}')
    return f"{{{','.join(lines)}\n}}"


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


_MEMBERS = ("dataVersion", FORBIDDEN_TABLE)  # small ones that are kept whole, or not
_OFFSET_TABLES = ("groupTopicMap", LMQ_TABLE, "offsetTable", "pullOffsetTable")  # in the order of a file


@dataclass
class Draft:
    """What a config file is going to hold; `text` is None while nothing of it is known.

    `what` are the steps that led to it, `lost` what none of them brings back; `is_old` when it is not the file as it
    was.
    """

    name: str
    text: str | None = None
    what: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    is_old: bool = True

    @property
    def names(self) -> set[str]:
        """The names of the entries of its main table."""
        return {each.name for each in entries_of(self.text, MAIN_TABLES[self.name])}

    def add(self, step: str, lines: Sequence[str]) -> None:
        """Note a step that the lines show, unless there is none."""
        if lines:
            self.what.append(step)
            self.details += lines


_SINCE_BACKUP = "changes since its .bak was written"


def draft_of(path: Path, releases: Releases) -> Draft:
    """The best that can be read of a file: itself, its ``.bak``, or their whole entries."""
    name = path.name
    text, from_backup = (sound_text(each, name, releases) for each in (path, backup_of(path)))
    if text is not None and has_entries(name, text):
        return Draft(name, text, is_old=False)
    content = _sound_content(path, name, releases) if text is None else None
    if content is not None:  # names of it are damaged
        salvaged = _salvaged(path, releases, is_sound=False)
        if salvaged and salvaged.text and has_entries(name, salvaged.text):
            if name in MAIN_TABLES and len(salvaged.names) >= len(entries_in(content, MAIN_TABLES[name])):
                salvaged.lost = [_SINCE_BACKUP]  # which has all of them
            return salvaged
    if from_backup is not None and has_entries(name, from_backup):
        return Draft(name, from_backup, ["restored from its .bak"], [_SINCE_BACKUP])
    return _elsewhere(path, releases) or _salvaged(path, releases, is_sound=text is not None) or Draft(name)


def sound_text(path: Path, name: str, releases: Releases) -> str | None:
    """The text of a file, or of a ``.bak``, that brokers can decode; None when it is missing or they cannot.

    Nor may it have damaged names.
    """
    content = _sound_content(path, name, releases)
    return None if content is None or damaged_names(name, content, path) else text_of(path)


def _sound_content(path: Path, name: str, releases: Releases) -> dict[str, Any] | None:
    """What brokers decode of a file; None when it is missing or they cannot."""
    try:
        content = read_config_file(path)
    except RmqtoolError:
        return None
    return content if _is_sound(name, content, releases) else None


def _is_sound(name: str, content: Mapping[str, Any], releases: Releases) -> bool:
    return not any(shape_problem(name, content, version) for version in {OLDEST, releases.oldest, releases.newest})


def _tables_of(name: str) -> tuple[str, ...]:
    """The tables of a file whose entries are kept; none where it may be empty."""
    table = FILE_TABLES.get(name)
    more = (LMQ_TABLE,) if name == LMQ_CONSUMER_OFFSET else ()
    return () if table is None or table.if_empty else (table.name, *more)


def has_entries(name: str, text: str) -> bool:
    """Whether a file has what it is there for: entries, or if it is none of MAIN_TABLES its own table at least.

    The content of another file is none: fastjson 2 refuses what it has to skip over.
    """
    if name not in MAIN_TABLES:
        return name not in FILE_TABLES or table_in(text, FILE_TABLES[name].name) is not None
    found = [table for each in _tables_of(name) if (table := table_in(text, each)) is not None]
    return any(text[table.value + 1 : table.stop - 1].strip() for table in found)


def _elsewhere(path: Path, releases: Releases) -> Draft | None:
    """The file under the name of another one, whose own table is not in it: a restore has mixed them up."""
    for other, table in sorted(FILE_TABLES.items()):
        text = sound_text(path.with_name(other), path.name, releases)
        if text is None or path.name not in MAIN_TABLES or not has_entries(path.name, text):
            continue
        if sound_text(path.with_name(other), other, releases) is None or table_in(text, table.name) is None:
            return Draft(path.name, text, [f"its content is in {other}"])
    return None


def _salvaged(path: Path, releases: Releases, *, is_sound: bool) -> Draft | None:
    """A file of the whole entries of a damaged one and, for those that it lacks, of its ``.bak``."""
    found = {table: whole_entries(path, table, releases) for table in _tables_of(path.name)}
    count = sum(len(entries) for entries in found.values() if entries)
    tables: dict[str, str | Mapping[str, str]] = {
        table: entries for table, entries in found.items() if entries is not None
    }
    if not tables or (is_sound and not count):
        return None
    texts = [text for each in (path, backup_of(path)) if (text := text_of(each))]
    tables |= {name: text for name in _MEMBERS if (text := _small_member(path.name, name, texts, releases))}
    saved = "1 intact entry" if count == 1 else f"{count} intact entries"
    made = file_text({**data_version(path.name, releases), **tables})
    effect = ": their groups begin where their consumeFromWhere says" if path.name in OFFSETS else ""
    return Draft(path.name, made, [f"made of {saved} of it and its .bak"], [f"the entries that are damaged{effect}"])


def whole_tables(path: Path, releases: Releases) -> dict[str, Any]:
    """The tables of a damaged file, each with the entries that it, and for others its ``.bak``, has whole."""
    found = {table: whole_entries(path, table, releases) or {} for table in _tables_of(path.name)}
    return dict(parse_fastjson(file_text(found)))


def whole_entries(path: Path, table: str, releases: Releases, *, with_backup: bool = True) -> dict[str, str] | None:
    """The entries of a table that a file, and for others its ``.bak``, has whole; None where neither has the table."""
    name = path.name
    named_by = FILE_TABLES[name].named_by

    def accepts(key: str, value: Any) -> bool:
        if value is None or not _is_sound(name, {table: {key: value}}, releases):
            return False
        if is_damaged_name(key) or damaged_names(name, {table: {key: value}}):
            return False
        if named_by:
            return isinstance(value, dict) and value.get(named_by) == key
        if name in OFFSETS:
            return "@" in key and isinstance(value, dict) == (table != LMQ_TABLE)
        return isinstance(value, dict) or name == DELAYS

    behind = [each for each in _OFFSET_TABLES if each > table] if name in OFFSETS else []
    texts = [text_of(each) for each in ((backup_of(path), path) if with_backup else (path,))]
    found = [each for text in texts if text and (each := whole_members(text, table, behind, accepts)) is not None]
    return {key: entry for entries in found for key, entry in entries.items()} if found else None


def _small_member(name: str, member: str, texts: Sequence[str], releases: Releases) -> str | None:
    """The text of a small member, from the first of the texts that has it whole."""
    for text in texts:
        place = re.search(rf'"{member}"\s*:', text)
        found = _member_at(text, place.start()) if place else None
        value = None if found is None else value_of(text, found)
        if found is not None and value is not None and _is_sound(name, {member: value}, releases):
            return text[found.value : found.stop]
    return None


def data_version(name: str, releases: Releases) -> dict[str, str]:
    """A new data version for files that have one in each release that fits.

    `stateVersion` only where no older release may read it as a sign of a newer one.
    """
    is_new = releases.oldest >= OFFSETS_HAVE_DATA_VERSION
    if name not in (TOPICS, GROUPS) and not (name in (*OFFSETS, DELAYS) and is_new):
        return {}
    version = {"counter": 0, "timestamp": time.time_ns() // 1_000_000} | ({"stateVersion": 0} if is_new else {})
    return {"dataVersion": written(version, 1)}


def counter_of(text: str) -> tuple[Member | None, int]:
    """Where a data version says how often the table was changed, and how often; None and 0 without one."""
    found = [each for each in entries_of(text, "dataVersion") if each.name == "counter"]
    value = value_of(text, found[-1]) if found else None
    return (found[-1], value) if type(value) is int else (None, 0)
