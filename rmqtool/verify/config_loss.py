"""Config files that are gone or empty, though the store proves what was in them (`ConfigManager#load`).

A broker that finds neither a file nor its ``.bak`` starts with an empty table, and says nothing. Proof is what only a
broker makes: the files that it writes of itself beside the missing one, and the topics that it makes for itself. Store
classes that were driven without a broker leave neither, and a log that was copied alone no `config/` at all.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from rmqtool.base.files import list_directory
from rmqtool.base.tolerant import skip_wrong_type
from rmqtool.findings.finding import counted
from rmqtool.findings.report import Report
from rmqtool.rules.config_shapes import main_table
from rmqtool.rules.system_topics import (
    DEAD_LETTER_PREFIX,
    HALF_TOPIC,
    OP_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
)
from rmqtool.store.config_json import ConfigFile, load_config
from rmqtool.store.consumer_offsets import CONSUMER_OFFSET, LMQ_CONSUMER_OFFSET
from rmqtool.store.store import CONFIG, ROCKSDB_CONFIGS, Store, holds_rocksdb
from rmqtool.store.topics import TOPICS
from rmqtool.verify.offset_checks import is_system_topic

GROUPS = "subscriptionGroup.json"
DELAYS = "delayOffset.json"

_BY_BROKERS = (
    *(GROUPS, DELAYS, LMQ_CONSUMER_OFFSET, "consumerFilter.json", "consumerOrderInfo.json", "topicQueueMapping.json"),
    *("messageRequestMode.json", "transactionMetrics"),
)
"""Files that a whole broker writes, within the first 10 s or when it stops."""

_BROKER_TOPICS = (RETRY_PREFIX, DEAD_LETTER_PREFIX, HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC)
_BUILT_IN_GROUPS = re.compile(r"TOOLS_CONSUMER|FILTERSRV_CONSUMER|SELF_TEST_C_GROUP|CID_(ONS|RMQ_SYS|SYS_RMQ)\S*")
_ROCKSDB = (*ROCKSDB_CONFIGS, f"{CONFIG}/topics", f"{CONFIG}/subscriptionGroups")
_FIRST_WRITE_MS = 60_000  # a broker writes its offsets 10 s after its start at the latest; with room for slow machines
_SHOWN = 4

State = Literal["there", "gone", "unreadable", "without its table", "empty"]

_EFFECTS = {
    TOPICS: "the broker starts without these topics: clients are refused, or topics are made anew with default queues",
    CONSUMER_OFFSET: "the broker starts without any offset: each group begins anew by its own policy, and skips what "
    "it has not consumed, or gets all again",
    GROUPS: "the broker starts without these groups: they are made anew with default settings, or refused where "
    "autoCreateSubscriptionGroup is off",
    DELAYS: "the broker delivers these messages again",
}


@dataclass(frozen=True)
class Contents:
    """What lies in a store: topics with messages in the log or in queues, and how long the log was written, ms."""

    store: Store
    topics: frozenset[str]
    span: int
    is_unclean: bool
    _files: dict[str, ConfigFile] = field(default_factory=dict, compare=False)

    @cached_property
    def is_in_rocksdb(self) -> bool:
        """Whether topics, groups or offsets are kept in a database."""
        return any(holds_rocksdb(self.store.root / name) for name in _ROCKSDB)

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of the files in `config/`, those included of which only the ``.bak`` is left."""
        entries: list[os.DirEntry[str]] = []
        with skip_wrong_type():
            entries += list_directory(self.store.root / CONFIG)
        return frozenset(entry.name.removesuffix(".bak") for entry in entries if entry.is_file())

    @property
    def user_topics(self) -> list[str]:
        """Topics that were made for producers."""
        return sorted(topic for topic in self.topics if not is_system_topic(topic))

    @property
    def is_brokers(self) -> bool:
        """Whether a whole broker has written the store, rather than the store classes alone."""
        alone = not any(name.endswith(".json") for name in self.names)
        return any(name in self.names for name in _BY_BROKERS) or (alone and self.has_broker_topics)

    @property
    def has_broker_topics(self) -> bool:
        """Whether there are messages in topics that a broker uses for itself."""
        return any(topic.startswith(_BROKER_TOPICS) for topic in self.topics)

    def file(self, name: str) -> ConfigFile:
        """A file as a start finds it; each is read once."""
        if name not in self._files:
            self._files[name] = load_config(self.store.root / CONFIG / name)
        return self._files[name]

    def state(self, name: str) -> State:
        """Whether a file and its table are there, as a start finds them."""
        file = self.file(name)
        if file.path is None:
            return "gone" if file.problem is None else "unreadable"
        table = main_table(name, file.content)
        lmq = file.content.get("lmqOffsetTable")
        return "there" if table or lmq else "without its table" if table is None else "empty"

    def retrying_groups(self) -> set[str]:
        """Groups that have had retries or dead letters: they have consumed, and committed."""
        prefixes = (RETRY_PREFIX, DEAD_LETTER_PREFIX)
        return {topic.removeprefix(prefix) for topic in self.topics for prefix in prefixes if topic.startswith(prefix)}

    def configured_groups(self) -> set[str]:
        """Groups that other config files name."""
        topics = _names(self.file(TOPICS).content.get("topicConfigTable"))
        groups = _names(self.file(GROUPS).content.get("subscriptionGroupTable"))
        retries = {topic.removeprefix(RETRY_PREFIX) for topic in topics if topic.startswith(RETRY_PREFIX)}
        return {group for group in groups if not _BUILT_IN_GROUPS.fullmatch(group)} | retries


def check_losses(contents: Contents, offset_groups: Set[str], report: Report) -> None:
    """Topics, groups and offsets that are lost; `offset_groups` are those that have committed offsets."""
    report.check("config.missing", len(_EFFECTS))
    if contents.is_in_rocksdb:
        return
    _check_topics(contents, report)
    _check_offsets(contents, report)
    _check_groups(contents, offset_groups, report)
    _check_backups_alone(contents, report)


def report_loss(name: str, state: State, lost: str, report: Report, **details: Any) -> None:
    """Report a file that is lost; `lost` is what was in it."""
    place = f"{CONFIG}/{name}"
    what = "neither it nor its .bak is there" if state == "gone" else f"it is {state}" if state == "empty" else \
        f"it is there {state}"  # fmt: skip
    effect = _EFFECTS[CONSUMER_OFFSET if name == LMQ_CONSUMER_OFFSET else name]
    report.add("config.missing", f"{what}, {lost}", file=place, effect=effect, **details)


def _check_backups_alone(contents: Contents, report: Report) -> None:
    """A broker that stops leaves each file beside its .bak, which holds what was in the file before."""
    for name in () if contents.is_unclean else (*_EFFECTS, LMQ_CONSUMER_OFFSET):
        file = contents.file(name)
        if file.path is not None and file.path.suffix == ".bak" and file.problem is None:
            message = "it is not there; a start reads its .bak, which is older by at least one change"
            effect = _EFFECTS[CONSUMER_OFFSET if name == LMQ_CONSUMER_OFFSET else name]
            report.add("config.missing", message, severity="warning", file=f"{CONFIG}/{name}",
                       effect=f"of what has changed since: {effect}")  # fmt: skip


def listed(names: Iterable[str]) -> str:
    """The first of some names, and how many others there are."""
    found = sorted(names)
    rest = len(found) - _SHOWN
    return ", ".join(found[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def _check_topics(contents: Contents, report: Report) -> None:
    state, topics = contents.state(TOPICS), contents.user_topics
    if state in ("there", "unreadable") or not topics:
        return
    proven = state != "gone" or contents.is_brokers or contents.has_broker_topics
    lost = f"and the store has messages of {counted(len(topics), 'topic')}: {listed(topics)}"
    report_loss(TOPICS, state, lost, report, severity=None if proven else "info")


def _check_offsets(contents: Contents, report: Report) -> None:
    names = (LMQ_CONSUMER_OFFSET, CONSUMER_OFFSET)
    name = LMQ_CONSUMER_OFFSET if LMQ_CONSUMER_OFFSET in contents.names else CONSUMER_OFFSET
    state = contents.state(name)
    if state in ("there", "unreadable") or (state == "gone" and any(contents.state(each) != "gone" for each in names)):
        return
    if state == "gone" and contents.is_unclean and contents.span <= _FIRST_WRITE_MS:
        if contents.names:
            text = f"there is no {name}, which a broker that is killed within its first ten seconds has not written yet"
            report.doubt("committed offsets", f"committed offsets: {text}")
        return
    groups = contents.retrying_groups()
    if state == "without its table" or (state == "gone" and contents.is_brokers):
        groups |= contents.configured_groups()
    if groups or state == "without its table":
        lost = f"and {counted(len(groups), 'group')} consumed: {listed(groups)}" if groups else "which each release has"
        report_loss(name, state, lost, report)


def _check_groups(contents: Contents, offset_groups: Set[str], report: Report) -> None:
    state = contents.state(GROUPS)
    if state in ("there", "unreadable") or (state == "gone" and not contents.is_brokers):
        return
    groups = contents.retrying_groups() | contents.configured_groups() | offset_groups
    groups = {group for group in groups if not _BUILT_IN_GROUPS.fullmatch(group)}
    if groups or state != "gone":
        lost = f"and the store knows {counted(len(groups), 'group')}: {listed(groups)}" if groups else \
            "though each release writes groups of its own into it"  # fmt: skip
        report_loss(GROUPS, state, lost, report, severity="warning")


def _names(table: object) -> Iterable[str]:
    return table.keys() if isinstance(table, Mapping) else ()
