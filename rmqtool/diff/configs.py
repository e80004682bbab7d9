"""What the config files of two stores say differently: topics, groups, committed offsets, delays, timers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import read_all
from rmqtool.diff.side import Side
from rmqtool.formats.timer_check import CHECK_DTYPE, USED_SIZE
from rmqtool.store.config_json import ConfigFile, load_config
from rmqtool.store.consumer_offsets import CONSUMER_OFFSET
from rmqtool.store.store import CONFIG
from rmqtool.store.topics import TOPICS

GROUPS = "subscriptionGroup.json"
DELAYS = "delayOffset.json"
TIMER_CHECK = "timercheck"

_TABLES = {TOPICS: "topicConfigTable", GROUPS: "subscriptionGroupTable", DELAYS: "offsetTable"}
_WHOLE_FILE = "the file"

Entries = Mapping[str, Any]


@dataclass(frozen=True)
class ConfigDifference:
    """An entry of a config file that differs; None where a side does not have it."""

    file: str
    entry: str
    a: int | str | None
    b: int | str | None


def compare_configs(a: Side, b: Side, *, is_moved: bool = False) -> Iterator[ConfigDifference]:
    """The entries that differ; a file that a side cannot decode is one difference.

    Where the log of B `is_moved` a conversion has left the timers of A out, which begin again there.
    """
    for name, table in _TABLES.items():
        yield from _of_files(name, table, _load(a, name), _load(b, name))
    offsets = [_committed(side) for side in (a, b)]
    yield from _of_entries(CONSUMER_OFFSET, *offsets)
    if not is_moved:
        timers = [_timer_offset(side) for side in (a, b)]
        yield from _of_entries(TIMER_CHECK, *timers)


def _load(side: Side, name: str) -> ConfigFile:
    return load_config(side.snapshot.store.root / CONFIG / name)


def _of_files(name: str, table: str, a: ConfigFile, b: ConfigFile) -> Iterator[ConfigDifference]:
    if a.problem != b.problem:
        yield ConfigDifference(name, _WHOLE_FILE, a.problem, b.problem)
    first, second = (_flat(file.content.get(table)) for file in (a, b))
    yield from _of_entries(name, first, second)


def _flat(table: object) -> dict[str, Any]:
    """The settings of each entry by ``entry.setting``, a number or other value by the entry's name."""
    flat: dict[str, Any] = {}
    for name, value in table.items() if isinstance(table, dict) else ():
        if isinstance(value, dict):
            flat[name] = "present"
            flat |= {f"{name}.{setting}": found for setting, found in value.items()}
        else:
            flat[name] = value
    return flat


def _of_entries(file: str, a: Entries, b: Entries) -> Iterator[ConfigDifference]:
    for entry in sorted(a.keys() | b.keys()):
        owner = entry.partition(".")[0]
        is_setting_of_one = owner != entry and (owner in a) != (owner in b)
        if a.get(entry) != b.get(entry) and not is_setting_of_one:
            yield ConfigDifference(file, entry, _shown(a.get(entry)), _shown(b.get(entry)))


def _shown(value: object) -> int | str | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _committed(side: Side) -> Entries:
    offsets = side.snapshot.committed.offsets
    return {f"{offset.topic}@{offset.group}/{offset.queue_id}": offset.offset for offset in offsets}


def _timer_offset(side: Side) -> Entries:
    """The next queue offset that the timers take, from the file `timercheck`; nothing without the file."""
    try:
        data = read_all(side.snapshot.store.root / CONFIG / TIMER_CHECK, USED_SIZE)
    except RmqtoolError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            side.unread.append(error)
        return {}
    if len(data) < USED_SIZE:
        return {"last_timer_queue_offset": "the file is cut"}
    return {"last_timer_queue_offset": int(np.frombuffer(data, CHECK_DTYPE)[0]["last_timer_queue_offset"])}
