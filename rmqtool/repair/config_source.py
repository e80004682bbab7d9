"""What of a config file can be read: the file as it is, its ``.bak``, or the entries of both that damage left whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmqtool.base.errors import RmqtoolError
from rmqtool.repair.config_text import file_text, find_member, read_text, table_in, value_of, whole_members, written
from rmqtool.repair.proven_entries import new_data_version
from rmqtool.rules.config_shapes import MAIN_TABLES, shape_problem
from rmqtool.rules.releases import Releases
from rmqtool.rules.versions import OFFSETS_HAVE_DATA_VERSION, OLDEST
from rmqtool.store.config_json import read_config_file
from rmqtool.store.consumer_offsets import CONSUMER_OFFSET, LMQ_CONSUMER_OFFSET
from rmqtool.store.topics import TOPICS

GROUPS = "subscriptionGroup.json"
DELAYS = "delayOffset.json"
LMQ_TABLE = "lmqOffsetTable"
OFFSETS = (CONSUMER_OFFSET, LMQ_CONSUMER_OFFSET)

EMPTY = {
    "timermetrics": ("timingCount", "numbers of waiting timers: the broker counts again"),
    "consumerFilter.json": ("filterDataByTopic", "SQL filters of groups: consumers send them when they connect"),
    "consumerOrderInfo.json": ("table", "which messages orderly pop consumers hold: they may get them again"),
}
"""Files that may be empty, with their table and what is lost by that."""

_TABLES: Mapping[str, tuple[str, ...]] = {
    **{name: (table,) for name, table in MAIN_TABLES.items()},
    LMQ_CONSUMER_OFFSET: ("offsetTable", LMQ_TABLE),
    "topicQueueMapping.json": ("topicQueueMappingInfoMap",),
    "messageRequestMode.json": ("messageRequestModeMap",),
}
_OWN_TABLES = {
    **{name: tables[0] for name, tables in _TABLES.items()},
    **{name: table for name, (table, _) in EMPTY.items()},
}
_MEMBERS = ("dataVersion", "forbiddenTable")  # small ones that are kept whole, or not
_OFFSET_TABLES = ("groupTopicMap", LMQ_TABLE, "offsetTable", "pullOffsetTable")  # in the order of a file
_NAMED_BY = {
    "topicConfigTable": "topicName",
    "subscriptionGroupTable": "groupName",
    "topicQueueMappingInfoMap": "topic",
}


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

    def add(self, step: str, lines: Sequence[str]) -> None:
        """Note a step that the lines show, unless there is none."""
        if lines:
            self.what.append(step)
            self.details += lines


def draft_of(path: Path, releases: Releases) -> Draft:
    """The best that can be read of a file: itself, its ``.bak``, or their whole entries."""
    name, backup = path.name, path.with_name(f"{path.name}.bak")
    text = sound_text(path, name, releases)
    if text is not None and has_entries(name, text):
        return Draft(name, text, is_old=False)
    from_backup = sound_text(backup, name, releases)
    if from_backup is not None and has_entries(name, from_backup):
        lost = "what has changed since its .bak was written"
        return Draft(name, from_backup, ["put back from its .bak"], [lost])
    return _elsewhere(path, releases) or _salvaged(path, releases, is_sound=text is not None) or Draft(name)


def sound_text(path: Path, name: str, releases: Releases) -> str | None:
    """The text of a file, or of a ``.bak``, that brokers can decode; None when it is missing or they cannot."""
    try:
        content, text = read_config_file(path), read_text(path)
    except RmqtoolError:
        return None
    return text if _is_sound(name, content, releases) else None


def _is_sound(name: str, content: Mapping[str, Any], releases: Releases) -> bool:
    return not any(shape_problem(name, content, version) for version in {OLDEST, releases.oldest, releases.newest})


def has_entries(name: str, text: str) -> bool:
    """Whether a file has what it is there for: entries, or if it is none of MAIN_TABLES its own table at least.

    The content of another file is none: fastjson 2 refuses what it has to skip over.
    """
    if name not in MAIN_TABLES:
        return name not in _OWN_TABLES or table_in(text, _OWN_TABLES[name]) is not None
    found = [table for each in _TABLES[name] if (table := table_in(text, each)) is not None]
    return any(text[table.value + 1 : table.stop - 1].strip() for table in found)


def _elsewhere(path: Path, releases: Releases) -> Draft | None:
    """The file under the name of another one, whose own table is not in it: a restore has mixed them up."""
    for other, own in sorted(_OWN_TABLES.items()):
        text = sound_text(path.with_name(other), path.name, releases)
        if text is None or path.name not in MAIN_TABLES or not has_entries(path.name, text):
            continue
        if sound_text(path.with_name(other), other, releases) is None or table_in(text, own) is None:
            return Draft(path.name, text, [f"its content is in {other}"])
    return None


def _salvaged(path: Path, releases: Releases, *, is_sound: bool) -> Draft | None:
    """A file of the whole entries of a damaged one and, for those that it lacks, of its ``.bak``."""
    found = {table: whole_entries(path, table, releases) for table in _TABLES.get(path.name, ())}
    count = sum(len(entries) for entries in found.values() if entries)
    tables: dict[str, str | Mapping[str, str]] = {
        table: entries for table, entries in found.items() if entries is not None
    }
    if not tables or (is_sound and not count):
        return None
    texts = [text for each in (path, path.with_name(f"{path.name}.bak")) if (text := _any_text(each))]
    tables |= {name: text for name in _MEMBERS if (text := _small_member(path.name, name, texts, releases))}
    saved = "1 whole entry" if count == 1 else f"{count} whole entries"
    made = file_text({**data_version(path.name, releases), **tables})
    effect = ": their groups begin where their consumeFromWhere says" if path.name in OFFSETS else ""
    return Draft(path.name, made, [f"made of {saved} of it and its .bak"], [f"the entries that are damaged{effect}"])


def whole_entries(path: Path, table: str, releases: Releases, *, with_backup: bool = True) -> dict[str, str] | None:
    """The entries of a table that a file, and for others its ``.bak``, has whole; None where neither has the table."""
    backup = path.with_name(f"{path.name}.bak")
    texts = [_any_text(each) for each in ((backup, path) if with_backup else (path,))]
    found = [entries for text in texts if text and (entries := _entries(path.name, table, text, releases)) is not None]
    return {key: entry for entries in found for key, entry in entries.items()} if found else None


def _any_text(path: Path) -> str | None:
    try:
        return read_text(path)
    except RmqtoolError:
        return None


def _entries(name: str, table: str, text: str, releases: Releases) -> dict[str, str] | None:
    def accepts(key: str, value: Any) -> bool:
        if value is None or not _is_sound(name, {table: {key: value}}, releases):
            return False
        if table in _NAMED_BY:
            return isinstance(value, dict) and value.get(_NAMED_BY[table]) == key
        if name in OFFSETS:
            return "@" in key and isinstance(value, dict) == (table != LMQ_TABLE)
        return isinstance(value, dict) or name == DELAYS

    behind = [each for each in _OFFSET_TABLES if each > table] if name in OFFSETS else []
    return whole_members(text, table, behind, accepts)


def _small_member(name: str, member: str, texts: Sequence[str], releases: Releases) -> str | None:
    """The text of a small member, from the first of the texts that has it whole."""
    for text in texts:
        found = find_member(text, member)
        value = None if found is None else value_of(text, found)
        if found is not None and value is not None and _is_sound(name, {member: value}, releases):
            return text[found.value : found.stop]
    return None


def data_version(name: str, releases: Releases) -> dict[str, str]:
    """A new data version for files that have one in each release that fits."""
    if name in (TOPICS, GROUPS) or (name in (*OFFSETS, DELAYS) and releases.oldest >= OFFSETS_HAVE_DATA_VERSION):
        return {"dataVersion": written(new_data_version(releases), 1)}
    return {}
