"""Topics that topics.json has lost, or that may not be read or written (`TopicConfigManager`, `PermName`).

A deleted topic leaves its messages in the log too. A topic was not deleted when messages of it were stored after the
last change of topics.json, or when groups still have offsets in it, which newer releases delete with the topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rmqtool.base.errors import RmqtoolError
from rmqtool.findings.finding import Severity
from rmqtool.findings.report import Report
from rmqtool.rules.config_shapes import main_table
from rmqtool.rules.system_topics import (
    DEAD_LETTER_PREFIX,
    HALF_TOPIC,
    LMQ_PREFIX,
    OP_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    is_system_topic,
)
from rmqtool.store.config_json import read_config_file
from rmqtool.store.store import CONFIG, Store
from rmqtool.store.topics import READABLE, TOPICS, WRITABLE, Topics
from rmqtool.verify.config_checks import VERSIONED_FILES
from rmqtool.verify.witnesses import Witnesses

_ROUNDING_MS = 1_000
_OF_BROKER = (HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC)  # no operator sets their permission
_UNUSED = ("%RMQTOOL%", LMQ_PREFIX)  # never configured


def check_topic_lines(witnesses: Witnesses, report: Report) -> None:
    """Report topics that the store proves to have been configured, and permissions that stop consumers."""
    topics = witnesses.snapshot.topics
    for name in VERSIONED_FILES:
        _check_backup(witnesses.store, name, report)
    if not topics.names_all or not topics.by_name:
        return
    missing = sorted({name.topic for name in witnesses.states} - topics.by_name.keys())
    report.check("config.topic-missing", len(witnesses.states))
    for topic in missing:
        if topic.startswith(_UNUSED):
            continue
        if topic.startswith(RETRY_PREFIX):
            effect = "the broker makes it again when a consumer of the group connects"
            severity: Severity | None = None if topic in witnesses.topics_with_units else "info"
            report.add(
                "config.topic-missing",
                severity=severity,
                effect=effect,
                topic=topic,
                details={"problem": "retry", **_details(topics)},
            )
        elif not is_system_topic(topic):
            proof = _proof(topic, witnesses)
            if proof:
                details = {**proof, **_details(topics)}
                report.add("config.topic-missing", file=topics.file_name, topic=topic, details=details)
    _check_permissions(topics, report)


def _details(topics: Topics) -> dict[str, str]:
    """What does not name a topic: a file, or a database."""
    return {"place": topics.place, "file" if topics.place == TOPICS else "database": topics.file_name}


def _changed(topics: Topics) -> int | None:
    """When topics.json was changed last, epoch ms; None when unknown."""
    version = topics.file.content.get("dataVersion")
    timestamp = version.get("timestamp") if isinstance(version, dict) else None
    return timestamp if type(timestamp) is int else None


def _proof(topic: str, witnesses: Witnesses) -> dict[str, str | int] | None:
    """Facts that show why a topic that is not configured was not deleted; None when it may have been."""
    states = (state for name, state in witnesses.states.items() if name.topic == topic)
    last = (witnesses.messages.at(state.last_physical_offset) for state in states)
    newest = max((message["store_timestamp"] for message in last if message), default=0)
    topics, committed = witnesses.snapshot.topics, witnesses.snapshot.committed
    changed = _changed(topics)
    if changed is not None and newest > changed + _ROUNDING_MS:
        return {"problem": "stored-since", "changed": changed, "newest": int(newest)}
    cleans_up = "groupTopicMap" in committed.file.content  # written since 5.0, whose deletion takes the offsets along
    groups = sorted({one.group for one in committed.offsets if one.topic == topic and one.offset > 0})
    if cleans_up and groups:
        return {"problem": "consumed", "group": groups[0]}
    return None


def _check_permissions(topics: Topics, report: Report) -> None:
    report.check("config.topic-permission", len(topics.by_name))
    for topic in topics.by_name.values():
        denied = [text for bit, text in ((READABLE, "read"), (WRITABLE, "written")) if not topic.perm & bit]
        if topic.name.startswith(DEAD_LETTER_PREFIX) or not denied or topic.name.startswith("rmq_sys_SYNC_"):
            continue
        is_brokers = topic.name.startswith(RETRY_PREFIX) or topic.name in _OF_BROKER
        facts = {"perm": topic.perm, "denied": " nor ".join(denied)}
        report.add("config.topic-permission", details=facts, severity=None if is_brokers else "info",
                   file=topics.file_name, topic=topic.name)  # fmt: skip


def _check_backup(store: Store, name: str, report: Report) -> None:
    """A file against its .bak: it cannot have lost more entries than its data version has counted changes."""
    path = store.root / CONFIG / name
    report.check("config.older-copy")
    try:
        main, backup = read_config_file(path), read_config_file(path.with_name(f"{name}.bak"))
    except RmqtoolError:
        return  # reported with the files
    ours, theirs = (_version(content) for content in (main, backup))
    if ours is None or theirs is None:
        return
    if ours[0] < theirs[0] and ours[1] < theirs[1]:
        facts = {"problem": "version", "counter": ours[0], "backup_counter": theirs[0]}
        report.add("config.older-copy", file=f"{CONFIG}/{name}", details=facts)
        return
    before, after = set(main_table(name, backup) or ()), set(main_table(name, main) or ())
    if after and len(before - after) > ours[0] - theirs[0] >= 0:
        lost = {"problem": "entries", "counter": ours[0], "backup_counter": theirs[0]}
        lost["lost"] = sorted(before - after)[:4]
        report.add("config.older-copy", file=f"{CONFIG}/{name}", count=len(before - after), details=lost)


def _version(content: Mapping[str, Any]) -> tuple[int, int] | None:
    version = content.get("dataVersion")
    fields = version if isinstance(version, dict) else {}
    counter, timestamp = fields.get("counter"), fields.get("timestamp")
    return (counter, timestamp) if isinstance(counter, int) and isinstance(timestamp, int) else None
