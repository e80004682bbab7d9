"""Losses of configuration, applied to a copy of a store that a whole broker has written."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rmqtool.findings.finding import Severity
from rmqtool.store.config_json import read_config_file

Apply = Callable[[Path], object]
Edit = Callable[[dict[str, Any]], object]
OFFSETS = "offsets"  # lmqConsumerOffset.json where there is one, consumerOffset.json elsewhere


class Loss(NamedTuple):
    """What is lost, the code that reports it, its severity, and a part of the message."""

    apply: Apply
    code: str
    severity: Severity = "error"
    says: str = ""
    only: str = ""  # of these releases


def path_of(store: Path, name: str) -> Path:
    """A config file by its name, or the one that holds the committed offsets."""
    if name != OFFSETS:
        return store / "config" / name
    lmq = store / "config" / "lmqConsumerOffset.json"
    return lmq if lmq.exists() else store / "config" / "consumerOffset.json"


def gone(*names: str, backup: bool = True) -> Apply:
    """The files are gone, with their .bak."""

    def apply(store: Path) -> None:
        for name in names:
            path = path_of(store, name)
            path.unlink()
            if backup:
                path.with_name(f"{path.name}.bak").unlink(missing_ok=True)

    return apply


def holds(name: str, text: str, backup: str | None = None) -> Apply:
    """A file, and its .bak if given, holds this text."""

    def apply(store: Path) -> None:
        path = path_of(store, name)
        path.write_text(text)
        if backup is not None:
            path.with_name(f"{path.name}.bak").write_text(backup)

    return apply


def edited(name: str, edit: Edit, both: bool = True) -> Apply:
    """A file is edited, and its .bak goes where `both` is set: nothing shows what was before."""

    def apply(store: Path) -> None:
        path = path_of(store, name)
        content = read_config_file(path)
        edit(content)
        path.write_text(json.dumps(content))
        if both:
            path.with_name(f"{path.name}.bak").unlink(missing_ok=True)

    return apply


def offsets_to(change: Callable[[int], int]) -> Edit:
    """Every committed offset is changed."""

    def edit(content: dict[str, Any]) -> None:
        for queues in content["offsetTable"].values():
            queues.update({queue: change(offset) for queue, offset in queues.items()})

    return edit


def table_without(table: str, *names: str) -> Edit:
    """Some entries of a table are gone."""
    return lambda content: [content[table].pop(name) for name in names]


def levels(**offsets: int) -> Edit:
    """Delay levels have other offsets; ``l3=7``."""
    return lambda content: content["offsetTable"].update({name[1:]: offset for name, offset in offsets.items()})


def permission(topic: str, perm: int) -> Edit:
    """A topic has another permission."""
    return lambda content: content["topicConfigTable"][topic].update(perm=perm)


def swapped(one: str, other: str) -> Apply:
    """Two files, and their .bak, each hold what the other should."""

    def apply(store: Path) -> None:
        first, second = path_of(store, one), path_of(store, other)
        texts = first.read_bytes(), second.read_bytes()
        for path, text in ((first, texts[1]), (second, texts[0])):
            path.write_bytes(text)
            path.with_name(f"{path.name}.bak").write_bytes(text)

    return apply


def topic_gone(topic: str) -> Apply:
    """A topic's queues and its line."""

    def apply(store: Path) -> None:
        shutil.rmtree(store / "consumequeue" / topic)
        edited("topics.json", table_without("topicConfigTable", topic))(store)

    return apply


def older_table(store: Path) -> None:
    """topics.json as it was before its last topics were made, with its .bak."""

    def edit(content: dict[str, Any]) -> None:
        content["dataVersion"] = {"counter": 2, "timestamp": 1_795_000_000_000}
        table_without("topicConfigTable", "orders", "payments")(content)

    edited("topics.json", edit)(store)


def aged(name: str) -> Apply:
    """The file was written a day before."""

    def apply(store: Path) -> None:
        path = path_of(store, name)
        time = path.stat().st_mtime - 86_400
        os.utime(path, (time, time))

    return apply


def backup_of_later(store: Path) -> None:
    """topics.json is the one before its .bak."""
    path = store / "config" / "topics.json"
    content = read_config_file(path)
    path.with_name("topics.json.bak").write_text(json.dumps(content))
    content["dataVersion"] = {"counter": 3, "timestamp": content["dataVersion"]["timestamp"] - 5000}
    path.write_text(json.dumps(content))


def both(*applied: Apply) -> Apply:
    """One after the other."""
    return lambda store: [apply(store) for apply in applied]


_BAD = '{"offsetTable":5}'
LOSSES = {
    "config/": Loss(lambda s: shutil.rmtree(s / "config"), "config.missing", "error", "orders"),
    "config/, empty": Loss(
        both(lambda s: shutil.rmtree(s / "config"), lambda s: (s / "config").mkdir()), "config.missing"
    ),
    "topics": Loss(gone("topics.json"), "config.missing", "error", "orders"),
    "topics, table": Loss(holds("topics.json", "{}", "{}"), "config.missing", "error", "without its table"),
    "topics, null": Loss(holds("topics.json", "null"), "config.missing", "error", "without its table"),
    "topics, emptied": Loss(holds("topics.json", '{"topicConfigTable":{}}'), "config.missing", "error", "empty"),
    "topics, older": Loss(older_table, "config.topic-missing", "warning", "was changed last"),
    "topics, before .bak": Loss(backup_of_later, "config.older-copy", "warning", "data version is 3"),
    "topics, lines against .bak": Loss(
        edited("topics.json", table_without("topicConfigTable", "payments", "vouchers", "orders"), both=False),
        "config.older-copy",
        "warning",
        "has lost orders, payments, vouchers",
    ),
    "topic and queue": Loss(topic_gone("payments"), "config.topic-missing", "warning", "billing", "5"),
    "retry topic": Loss(
        edited("topics.json", table_without("topicConfigTable", "%RETRY%billing")), "config.topic-missing", "warning"
    ),
    "retry topic, perm": Loss(
        edited("topics.json", permission("%RETRY%billing", 0)), "config.topic-permission", "warning", "perm 0"
    ),
    "half topic, perm": Loss(
        edited("topics.json", permission("RMQ_SYS_TRANS_HALF_TOPIC", 0)), "config.topic-permission", "warning"
    ),
    "offsets": Loss(gone(OFFSETS), "config.missing", "error", "billing"),
    "offsets, another table": Loss(
        holds(OFFSETS, '{"table":{}}', '{"table":{}}'), "config.missing", "error", "billing"
    ),
    "offsets, emptied": Loss(holds(OFFSETS, '{"offsetTable":{}}', "{}"), "config.missing", "error", "empty"),
    "offsets, 0": Loss(edited(OFFSETS, offsets_to(lambda offset: 0)), "config.wrong-offset", "warning", "retries"),
    "offsets, -10": Loss(edited(OFFSETS, offsets_to(lambda offset: -10)), "config.wrong-offset", "warning", "-10"),
    "offsets, +100000": Loss(
        edited(OFFSETS, offsets_to(lambda offset: offset + 100_000)), "config.wrong-offset", "warning", "far beyond"
    ),
    "offsets, 2^62": Loss(
        edited(OFFSETS, offsets_to(lambda offset: 1 << 62)), "config.wrong-offset", "warning", "far beyond"
    ),
    "offsets, below .bak": Loss(
        both(
            lambda s: shutil.copy(path_of(s, OFFSETS), f"{path_of(s, OFFSETS)}.bak"),
            edited(OFFSETS, offsets_to(lambda offset: max(0, offset - 3)), both=False),
        ),
        "config.wrong-offset",
        "warning",
        ".bak, written earlier, has 15",
    ),
    "offsets, a day old": Loss(aged(OFFSETS), "config.older-copy", "warning", "five seconds"),
    "offsets, no table": Loss(holds(OFFSETS, _BAD, _BAD), "start.refuses"),
    "offsets, garbage .bak": Loss(
        both(lambda s: (path_of(s, OFFSETS).parent / f"{path_of(s, OFFSETS).name}.bak").write_text("{")),
        "config.unreadable",
        "info",
        "no fallback",
    ),
    "light queues' offsets": Loss(
        edited(OFFSETS, lambda content: content.update(lmqOffsetTable={"%LMQ%alice@reader": 1 << 40})),
        "config.wrong-offset",
        "warning",
        "far beyond",
        "4.9 5",
    ),
    "groups": Loss(gone("subscriptionGroup.json"), "config.missing", "warning", "billing"),
    "groups, emptied": Loss(
        holds("subscriptionGroup.json", '{"subscriptionGroupTable":{}}'), "config.missing", "warning", "billing"
    ),
    "groups, a list": Loss(
        holds("subscriptionGroup.json", '{"subscriptionGroupTable":[1]}', '{"subscriptionGroupTable":[1]}'),
        "start.refuses",
    ),
    "delays": Loss(gone("delayOffset.json"), "config.missing", "error", "messages of 4 delay levels were delivered"),
    "delays, {}": Loss(holds("delayOffset.json", "{}", "{}"), "config.missing", "error", "without its table"),
    "delays, emptied": Loss(holds("delayOffset.json", '{"offsetTable":{}}'), "config.missing", "error", "empty"),
    "delays, 0": Loss(
        edited("delayOffset.json", levels(l1=0, l2=0, l3=0, l4=0)), "config.delay-offset", "warning", "2 messages"
    ),
    "delays, older": Loss(
        edited("delayOffset.json", levels(l1=1)), "config.delay-offset", "warning", "1 message after it"
    ),
    "delays, ends": Loss(
        edited("delayOffset.json", levels(l17=3, l18=2)), "config.delay-offset", "error", "3 messages before it"
    ),
    "delays, no table": Loss(holds("delayOffset.json", _BAD, _BAD), "start.refuses"),
    "timer metrics": Loss(holds("timermetrics", '{"x', '{"x'), "start.refuses", only="5"),
    "delays and groups": Loss(swapped("delayOffset.json", "subscriptionGroup.json"), "config.missing"),
    "offsets and order": Loss(swapped(OFFSETS, "consumerOrderInfo.json"), "config.missing", only="5.3"),
}
"""By a name for the test."""


def copied(store: Path) -> None:
    """As by cp: every file has the time of the copy."""
    for path in store.rglob("*"):
        os.utime(path)


def killed(store: Path) -> None:
    """Killed before the last deliveries were written down: the broker makes them again, as it always may."""
    path = store / "config" / "delayOffset.json"
    time = 1_795_200_000

    def edit(content: dict[str, Any]) -> None:
        levels(l1=1, l3=1)(content)
        content.get("dataVersion", {})["timestamp"] = time * 1000

    edited("delayOffset.json", edit)(store)
    os.utime(path, (time, time))
    (store / "abort").touch()


def without_backups(store: Path) -> None:
    """As after the first write of each file."""
    for path in (store / "config").glob("*.bak"):
        path.unlink()


def deleted_topic(store: Path) -> None:
    """By mqadmin deleteTopic of 5.x: topic, queues and offsets, and one more change of the table."""

    def edit(content: dict[str, Any]) -> None:
        table_without("topicConfigTable", "vouchers")(content)
        content["dataVersion"] = {"counter": content["dataVersion"]["counter"] + 1, "timestamp": 1_795_400_000_000}

    edited("topics.json", edit, both=False)(store)
    edited(OFFSETS, table_without("offsetTable", "vouchers@gifts"))(store)
    shutil.rmtree(store / "consumequeue" / "vouchers")


def deleted_group(store: Path) -> None:
    """By mqadmin deleteSubGroup with its offsets."""
    edited("subscriptionGroup.json", table_without("subscriptionGroupTable", "billing"))(store)

    def edit(content: dict[str, Any]) -> None:
        names = [name for name in content["offsetTable"] if name.endswith("@billing")]
        table_without("offsetTable", *names)(content)

    edited(OFFSETS, edit)(store)


HEALTHY: dict[str, Apply] = {
    "as it was": lambda store: None,
    "copied": copied,
    "killed": killed,
    "killed and copied": both(killed, copied),
    "topic deleted": deleted_topic,
    "group deleted": deleted_group,
    "no .bak": without_backups,
    "a group that never consumed": edited(
        OFFSETS, lambda content: content["offsetTable"].update({"reminders@late": {"0": 0}})
    ),
    "a slave's offsets, ahead of its log": edited(OFFSETS, offsets_to(lambda offset: offset + 500)),
}
"""What is no loss, by a name for the test."""
