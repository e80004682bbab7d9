"""How far a broker has delivered each delay level, `config/delayOffset.json` (`ScheduleMessageService`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rmqtool.store.config_json import ConfigFile, load_config
from rmqtool.store.store import CONFIG, Store

DELAY_OFFSET = "delayOffset.json"
_LEVEL = re.compile(r"\d{1,9}", re.ASCII)


@dataclass(frozen=True)
class DelayOffsets:
    """The next queue offset to deliver, by delay level, and the file; levels that are not there begin at 0."""

    file: ConfigFile
    by_level: dict[int, int]


def load_delay_offsets(store: Store) -> DelayOffsets:
    """Read the offsets that a start of the broker would use."""
    file = load_config(store.root / CONFIG / DELAY_OFFSET)
    return DelayOffsets(file, offsets_by_level(file.content))


def offsets_by_level(content: Mapping[str, Any]) -> dict[int, int]:
    """The offsets in a file's object."""
    table: Any = content.get("offsetTable")
    items = table.items() if isinstance(table, dict) else ()
    return {int(level): offset for level, offset in items if _LEVEL.fullmatch(level) and type(offset) is int}
