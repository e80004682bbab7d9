"""The config files of a store of chosen messages: its topics only, and offsets that fit its queues.

Functions work on the files that were carried over into the new store, and raise OSError.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import read_all
from rmqtool.broker.dispatched_units import TIMER_QUEUE, QueueName
from rmqtool.formats.checkpoint import TIMER_CHECK_SIZE, TimerCheck
from rmqtool.formats.layout import build, parse
from rmqtool.rules.system_topics import (
    DEAD_LETTER_PREFIX,
    LMQ_PREFIX,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    is_system_topic,
)
from rmqtool.scan.filters import TopicChoice
from rmqtool.store.config_json import backup_of, read_config_file
from rmqtool.store.config_tables import DELAYS, FILE_TABLES, LMQ_TABLE, OFFSETS, TOPICS
from rmqtool.store.paths import TIMER_CHECK

Moved = Callable[[QueueName, int], int | None]
"""What an offset of a queue becomes; None where the queue is not in the new store."""

_OFFSET_TABLES = ("offsetTable", "pullOffsetTable")
_OF_GROUPS = (RETRY_PREFIX, DEAD_LETTER_PREFIX, LMQ_PREFIX)
_LEFT_OUT = ("timermetrics", "timermetrics.bak")  # what waits in the wheel, which does not exist
_OF_OLD_OFFSETS = ("consumerOrderInfo.json", "consumerOrderInfo.json.bak")


def committed_offsets(config: Path) -> Mapping[QueueName, Sequence[int]]:
    """All offsets in the files of `config` that move with their queues."""
    found: defaultdict[QueueName, list[int]] = defaultdict(list)

    def note(name: QueueName, offset: int) -> int:
        found[name].append(offset)
        return offset

    for file in OFFSETS:
        _in_tables(_content(config / file), note)
    _in_levels(_content(config / DELAYS), note)
    check = _timer_check(config)
    if check is not None:
        found[TIMER_QUEUE] += [int(check.last_timer_queue_offset), int(check.master_timer_queue_offset)]
    return found


def timer_read_until(config: Path) -> int | None:
    """Up to when the timer wheel had been read, epoch ms; None without timers."""
    check = _timer_check(config)
    return None if check is None else int(check.last_read_timestamp)


def fit_config(
    config: Path, topics: TopicChoice, moved: Moved, first_timer: int | None, *, is_numbered_anew: bool
) -> None:
    """Make the files fit; `first_timer` is the queue offset of the first timer message that still waits."""
    for file in (TOPICS, "topicQueueMapping.json") if topics else ():
        _rewrite(config / file, partial(_without_topics, table=FILE_TABLES[file].name, topics=topics))
    for file in OFFSETS:
        _rewrite(config / file, lambda content: _in_tables(content, moved))
    _rewrite(config / DELAYS, lambda content: _in_levels(content, moved))
    _fit_timer_check(config, moved, first_timer)
    for name in (*_LEFT_OUT, *(_OF_OLD_OFFSETS if is_numbered_anew else ())):
        (config / name).unlink(missing_ok=True)


def _without_topics(content: dict[str, Any], *, table: str, topics: TopicChoice) -> None:
    entries = content.get(table)
    if isinstance(entries, dict):
        content[table] = {name: entry for name, entry in entries.items() if name in topics or _is_of_brokers(name)}


def _is_of_brokers(topic: str) -> bool:
    return is_system_topic(topic) and not topic.startswith(_OF_GROUPS)


def _in_tables(content: dict[str, Any], moved: Moved) -> None:
    """Move the offsets of groups; groups that have none left in a topic go."""
    for table in _OFFSET_TABLES:
        if isinstance(content.get(table), dict):
            groups = {name: _moved_in(queues, partial(QueueName, name.partition("@")[0]), moved)
                      for name, queues in content[table].items() if isinstance(queues, dict)}  # fmt: skip
            content[table] = {name: queues for name, queues in groups.items() if queues}
    if isinstance(content.get(LMQ_TABLE), dict):
        targets = {name: moved(QueueName(name.partition("@")[0], 0), offset)
                   for name, offset in content[LMQ_TABLE].items() if type(offset) is int}  # fmt: skip
        content[LMQ_TABLE] = {name: target for name, target in targets.items() if target is not None}


def _in_levels(content: dict[str, Any], moved: Moved) -> None:
    """Move the offsets of delay levels, each of which has a queue."""
    levels = content.get("offsetTable")
    if isinstance(levels, dict):
        content["offsetTable"] = _moved_in(levels, lambda level: QueueName(SCHEDULE_TOPIC, level - 1), moved)


def _moved_in(offsets: dict[str, Any], queue_of: Callable[[int], QueueName], moved: Moved) -> dict[str, int]:
    found = {}
    for number, offset in offsets.items():
        if type(offset) is int and number.lstrip("-").isdecimal():
            target = moved(queue_of(int(number)), offset)
            if target is not None:
                found[number] = target
    return found


def _fit_timer_check(config: Path, moved: Moved, first_timer: int | None) -> None:
    """The wheel is not there: the broker reads its queue again from the first message that still waits."""
    check, path = _timer_check(config), config / TIMER_CHECK
    targets = [] if check is None else [
        moved(TIMER_QUEUE, int(offset)) for offset in (check.last_timer_queue_offset, check.master_timer_queue_offset)
    ]  # fmt: skip
    backup_of(path).unlink(missing_ok=True)
    if None in targets or not targets:
        path.unlink(missing_ok=True)
        return
    offsets = [offset if first_timer is None else min(offset, first_timer) for offset in targets if offset is not None]
    fields = {name: check[name] for name in check if not name.startswith("_")}
    fields |= {"last_timer_log_flush_position": 0}
    fields |= dict(zip(("last_timer_queue_offset", "master_timer_queue_offset"), offsets, strict=True))
    data = read_all(path, 1 << 20)
    _replace(path, build(TimerCheck, fields) + data[TIMER_CHECK_SIZE:])


def _timer_check(config: Path) -> Any:
    try:
        return parse(TimerCheck, read_all(config / TIMER_CHECK, 1 << 20)[:TIMER_CHECK_SIZE])
    except (RmqtoolError, ValueError):
        return None


def _content(path: Path) -> dict[str, Any]:
    try:
        return read_config_file(path)
    except RmqtoolError:
        return {}


def _rewrite(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a JSON file, or the ``.bak`` where there is no other, and leave no ``.bak`` with what was before."""
    backup = backup_of(path)
    if backup.exists():
        backup.unlink() if path.exists() else backup.rename(path)
    if path.exists():
        content = _content(path)
        change(content)
        _replace(path, (json.dumps(content, indent="\t") + "\n").encode("ascii"))


def _replace(path: Path, data: bytes) -> None:
    """Write a file again with the modification time that it had."""
    time = os.stat(path).st_mtime_ns
    path.write_bytes(data)
    os.utime(path, ns=(time, time))
