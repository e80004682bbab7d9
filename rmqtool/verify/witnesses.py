"""A stopped store's configuration, and its log and queues as witnesses of what it held: what a start does not find."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import filterfalse, product
from pathlib import Path
from typing import Literal

from rmqtool.base.files import list_directory
from rmqtool.base.paths import DirectoryEntry
from rmqtool.base.tolerant import skip_wrong_type
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.findings.finding import Severity, first_of
from rmqtool.findings.report import Report
from rmqtool.rules.system_topics import (
    BUILT_IN_GROUPS,
    DEAD_LETTER_PREFIX,
    HALF_TOPIC,
    LMQ_PREFIX,
    OP_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    is_system_topic,
)
from rmqtool.store.config_json import ConfigFile, load_config
from rmqtool.store.config_tables import (
    CONSUMER_OFFSET,
    DELAYS,
    GROUPS,
    LMQ_CONSUMER_OFFSET,
    LMQ_TABLE,
    MISSING,
    OFFSETS,
    READABLE,
    SECOND,
    TABLES,
    TOPICS,
    WRITABLE,
    Topics,
    config_database,
    entries_in,
    expected_database,
    main_table,
)
from rmqtool.store.queue_units import QueueRange
from rmqtool.store.rocksdb import is_readable
from rmqtool.store.single_messages import SingleMessages, proofs_of_topics
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CONFIG, Store, is_rocksdb_directory
from rmqtool.transaction.undo import was_killed
from rmqtool.verify.config_checks import VERSIONED_FILES, copies_of
from rmqtool.verify.queue_progress import WHETHER_DELETED, QueueProgress, last_messages
from rmqtool.verify.record_checks import RecordTotals

_BY_BROKERS = (
    *(GROUPS, DELAYS, LMQ_CONSUMER_OFFSET, "consumerFilter.json", "consumerOrderInfo.json", "topicQueueMapping.json"),
    *("messageRequestMode.json", "transactionMetrics"),
)
"""Files that a whole broker writes, within the first 10 s or when it stops."""

_BROKER_TOPICS = (RETRY_PREFIX, DEAD_LETTER_PREFIX, HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC)

Ranges = Mapping[QueueName, QueueRange]
State = Literal["there", "gone", "unreadable", "without its table", "empty"]


@dataclass(frozen=True)
class Witnesses:
    """The evidence in a stopped store: ranges of the queues' files, `states` of the queues by the log, and messages."""

    snapshot: Snapshot
    ranges: Ranges
    states: Mapping[QueueName, QueueProgress]
    totals: RecordTotals
    messages: SingleMessages
    lacks_until: int = 0  # before this physical offset messages may have been in damage, or were left out on purpose
    _files: dict[str, ConfigFile] = field(default_factory=dict, compare=False)

    @property
    def store(self) -> Store:
        """The store."""
        return self.snapshot.store

    @cached_property
    def is_unclean(self) -> bool:
        """Whether the last broker was killed or crashed."""
        return was_killed(self.store.root)

    @property
    def is_slaves(self) -> bool:
        """Whether it is a slave's store, which lags: it takes offsets over now and then."""
        return self.store.conf.is_slave

    @cached_property
    def topics_with_units(self) -> set[str]:
        """Topics whose queues hold units: a broker that deletes a topic deletes its queues."""
        return {name.topic for name, each in self.ranges.items() if each.max_offset > each.min_offset}

    @cached_property
    def used_topics(self) -> set[str]:
        """Topics with messages in the log or units in queues."""
        return self.topics_with_units | {name.topic for name in self.states}

    @cached_property
    def is_in_rocksdb(self) -> bool:
        """Whether topics, groups or offsets are kept in a database, or were before it was lost."""
        return any(expected_database(self.store, name) for name in TABLES)

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of the files in `config/`, those included of which only the ``.bak`` is left."""
        entries: list[DirectoryEntry] = []
        with skip_wrong_type():
            entries += list_directory(self.store.root / CONFIG)
        return frozenset(entry.name.removesuffix(".bak") for entry in entries if entry.is_file())

    @property
    def user_topics(self) -> list[str]:
        """Topics of users, which a broker does not create for itself."""
        return sorted(topic for topic in self.used_topics if not is_system_topic(topic))

    @cached_property
    def is_brokers(self) -> bool:
        """Whether a whole broker has written the store, rather than the store classes alone."""
        in_rocksdb = any(config_database(self.store, name) for name in TABLES)
        alone = not in_rocksdb and not any(name.endswith(".json") for name in self.names)
        return any(name in self.names for name in _BY_BROKERS) or (alone and self.has_broker_topics)

    @property
    def has_broker_topics(self) -> bool:
        """Whether topics that a broker creates for itself hold messages."""
        return any(topic.startswith(_BROKER_TOPICS) for topic in self.used_topics)

    def file(self, name: str) -> ConfigFile:
        """A file as a start reads it, or its .bak; each is read once."""
        if name not in self._files:
            self._files[name] = load_config(self.store.root / CONFIG / name, self.store.conf.release)
        return self._files[name]

    def table(self, name: str) -> ConfigFile:
        """A table as a start has it, from a file or from RocksDB; `name` is that of the file."""
        if not self.is_in_rocksdb or name not in TABLES:
            return self.file(name)
        snapshot = self.snapshot
        return {TOPICS: snapshot.topics.file, GROUPS: snapshot.groups_file}.get(name) or snapshot.committed.file

    def state(self, name: str) -> State:
        """Whether a file, or what is in its place, and its table exist, as a start reads them."""
        file = self.table(name)
        if file.path is None:
            return "gone" if file.problem is None else "unreadable"
        table = main_table(name, file.content)
        is_there = table or file.content.get(LMQ_TABLE)
        return "there" if is_there else "without its table" if table is None else "empty"

    def retrying_groups(self) -> set[str]:
        """Groups that have retries or dead letters, and so have consumed messages and committed offsets."""
        pairs = product(self.used_topics, (RETRY_PREFIX, DEAD_LETTER_PREFIX))
        return {topic.removeprefix(prefix) for topic, prefix in pairs if topic.startswith(prefix)}

    def configured_groups(self) -> set[str]:
        """Groups that the tables of topics and groups name, but for those that each broker makes."""
        topics, groups = (main_table(name, self.table(name).content) or {} for name in (TOPICS, GROUPS))
        retries = {topic.removeprefix(RETRY_PREFIX) for topic in topics if topic.startswith(RETRY_PREFIX)}
        return {group for group in groups if not BUILT_IN_GROUPS.fullmatch(group)} | retries

    def known_groups(self) -> set[str]:
        """Groups that retries, configuration or offsets show, but for those that each broker makes."""
        groups = self.retrying_groups() | self.configured_groups()
        groups |= {one.group for one in self.snapshot.committed.offsets}
        return {group for group in groups if not BUILT_IN_GROUPS.fullmatch(group)}


_FIRST_WRITE_MS = 60_000  # a broker writes its offsets 10 s after its start at the latest; with room for slow machines
_NO_OFFSETS = (
    "the broker starts without any offset: each group begins again by its own policy, and skips unconsumed messages, "
    "or gets all messages again"
)
EFFECTS = {
    TOPICS: "the broker starts without these topics: clients are refused, or topics are created again with default "
    "queues",
    CONSUMER_OFFSET: _NO_OFFSETS,
    GROUPS: "the broker starts without these groups: they are created again with default settings, or refused if "
    "autoCreateSubscriptionGroup is off",
    DELAYS: "the broker delivers these messages again",
    LMQ_CONSUMER_OFFSET: _NO_OFFSETS,
}
"""What a broker does without a file, or without its table in RocksDB."""

_SEVERITIES: Mapping[str, Severity] = {GROUPS: "warning"}  # which brokers make again


@dataclass(frozen=True)
class _Loss:
    """A table that a start does not find, or finds empty.

    `name` is that of its JSON file, `place` the file or database that has it or had it.
    """

    name: str
    place: Path
    lost: str
    is_in_rocksdb: bool


def check_losses(witnesses: Witnesses, report: Report) -> None:
    """Report tables whose loss loses topics, groups or offsets, and files of which only the ``.bak`` is left.

    A broker that stops leaves both, the ``.bak`` with the older content.
    """
    report.check(MISSING, len(EFFECTS) - 1)  # one of both files of offsets
    for loss in _losses(witnesses):
        _check_loss(loss, witnesses, report)
    for name in () if witnesses.is_in_rocksdb or witnesses.is_unclean else EFFECTS:
        file = witnesses.file(name)
        if file.is_backup and file.problem is None:
            report.add(MISSING, severity="warning", file=f"{CONFIG}/{name}",
                       effect=f"of what has changed since: {EFFECTS[name]}",
                       details={"problem": "backup-left", "lost": "backup-left"})  # fmt: skip


def _losses(witnesses: Witnesses) -> Iterator[_Loss]:
    """The lost tables; of version 2 only offsets: it has only those topics and groups that somebody has set."""
    if witnesses.is_in_rocksdb:
        for name in TABLES if is_readable() else ():
            file = witnesses.table(name)
            place = file.path or expected_database(witnesses.store, name)
            is_of_second = place is not None and place.name == SECOND and name != CONSUMER_OFFSET
            if place is not None and not is_of_second and not file.problem and witnesses.state(name) != "there":
                lost = "empty" if file.path else "without" if is_rocksdb_directory(place) else "gone"
                yield _Loss(name, place, lost, is_in_rocksdb=True)
        return
    for name in (TOPICS, LMQ_CONSUMER_OFFSET if LMQ_CONSUMER_OFFSET in witnesses.names else CONSUMER_OFFSET, GROUPS):
        state = witnesses.state(name)
        in_other = name in OFFSETS and state == "gone" and any(witnesses.state(each) != "gone" for each in OFFSETS)
        if state not in ("there", "unreadable") and not in_other:
            yield _Loss(name, witnesses.store.root / CONFIG / name, state, is_in_rocksdb=False)


def _check_loss(loss: _Loss, witnesses: Witnesses, report: Report) -> None:
    shown, place = sorted(_shown(loss, witnesses)), witnesses.store.relative(loss.place)
    if loss.name in OFFSETS and (loss.is_in_rocksdb or loss.lost == "gone") and _is_young(witnesses):
        if shown if loss.is_in_rocksdb else witnesses.names:
            missing = f"there are none in {place}" if loss.is_in_rocksdb else f"there is no {loss.name}"
            text = f"{missing}, which a broker that is killed within its first ten seconds has not written yet"
            report.doubt("committed offsets", f"committed offsets: {text}")
        return
    proof, severity = _proof_of(loss, shown), _SEVERITIES.get(loss.name)
    if loss.name not in OFFSETS and _is_unwritten(loss, witnesses):
        if loss.is_in_rocksdb or loss.name == GROUPS:
            return
        severity = "info"
    if proof is None:
        return
    details = {"problem": loss.lost, "lost": loss.lost, "proof": proof, "shown": shown}
    if loss.is_in_rocksdb:
        table = TABLES[loss.name]
        details |= {"problem": "table", "what": table.lost_in(loss.place.name, loss.lost), "table": loss.name}
        details |= {"part": part} if (part := table.part_of(loss.place.name)) else {}
    report.add(MISSING, file=place, effect=EFFECTS[loss.name], severity=severity, details=details)


def _shown(loss: _Loss, witnesses: Witnesses) -> Collection[str]:
    """The topics or groups that show what was in a table.

    Groups that are configured show offsets only where the place of the table is gone: they may not have consumed yet.
    """
    if loss.name == TOPICS:
        return witnesses.user_topics
    if loss.name == GROUPS:
        return witnesses.known_groups()
    is_brokers = witnesses.is_brokers or (loss.is_in_rocksdb and witnesses.table(GROUPS).path is not None)
    by_configured = loss.lost == "without its table" or (loss.lost == "gone" and is_brokers)
    return witnesses.retrying_groups() | (witnesses.configured_groups() if by_configured else set())


def _proof_of(loss: _Loss, shown: Collection[str]) -> str | None:
    """What shows that there was content, as a finding names it; None where nothing does, not even the file."""
    if shown:
        return {TOPICS: "topics", GROUPS: "groups"}.get(loss.name, "consumed")
    if loss.is_in_rocksdb or loss.lost == "gone":
        return None
    if loss.name == GROUPS:
        return "groups-of-all"
    return "offsets-of-all" if loss.name in OFFSETS and loss.lost == "without its table" else None


def _is_young(witnesses: Witnesses) -> bool:
    """Whether the broker may have been killed before it first wrote offsets."""
    return witnesses.is_unclean and witnesses.totals.latest - witnesses.totals.earliest <= _FIRST_WRITE_MS


def _is_unwritten(loss: _Loss, witnesses: Witnesses) -> bool:
    """Whether a table of topics or groups may never have been written: no broker has, or it was killed before.

    A broker writes the groups that each has when it stops.
    """
    is_groups, is_there = loss.name == GROUPS, loss.lost != "gone"
    if is_groups and is_there and loss.is_in_rocksdb and witnesses.is_unclean:
        return True
    if is_there and not (loss.is_in_rocksdb and (loss.lost == "without" or witnesses.is_unclean)):
        return False
    return not (witnesses.is_brokers or (not is_groups and witnesses.has_broker_topics))


_OF_BROKER = (HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC)  # no operator sets their permission
_UNUSED = ("%RMQTOOL%", LMQ_PREFIX)  # never configured


def check_topic_lines(witnesses: Witnesses, report: Report) -> None:
    """Report topics that the store proves to have been configured, and permissions that stop consumers."""
    topics = witnesses.snapshot.topics
    for name in VERSIONED_FILES:
        _check_topics_backup(witnesses.store, name, report)
    if not topics.names_all or not topics.by_name:
        return
    place = {"place": topics.place, "file" if topics.place == TOPICS else "database": topics.file_name}
    missing = sorted({name.topic for name in witnesses.states} - topics.by_name.keys())
    ends = last_messages(filterfalse(is_system_topic, missing), witnesses.states)
    proofs = proofs_of_topics(ends, witnesses.messages)
    report.check("config.topic-missing", len(witnesses.states))
    undecided = []
    for topic in missing:
        if topic.startswith(_UNUSED):
            continue
        if topic.startswith(RETRY_PREFIX):
            effect = "the broker creates it again when a consumer of the group connects"
            severity: Severity | None = None if topic in witnesses.topics_with_units else "info"
            report.add("config.topic-missing", severity=severity, effect=effect, topic=topic,
                       details={"problem": "retry", **place})  # fmt: skip
        elif topic in proofs:
            report.add("config.topic-missing", file=topics.file_name, topic=topic, details={**proofs[topic], **place})
        elif topic in witnesses.topics_with_units and not is_system_topic(topic) and not witnesses.is_slaves:
            undecided.append(topic)
    if undecided:
        what, _ = WHETHER_DELETED
        report.doubt(
            what,
            f"{what}: {topics.place} lacks {first_of(undecided, 1)}, and the queues have entries, which a broker "
            "deletes with their topic; so the line was lost, unless a start after a crash has derived them again, or "
            "the store is a slave's (--broker-conf)",
        )
    _check_permissions(topics, report)


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


def _check_topics_backup(store: Store, name: str, report: Report) -> None:
    """A file against its .bak: it cannot have lost more entries than its data version has counted changes."""
    report.check("config.older-copy")
    main, backup = copies_of(store, name) or ({}, {})
    ours, theirs = (entries_in(content, "dataVersion") for content in (main, backup))
    if not all(isinstance(each.get(field), int) for each in (ours, theirs) for field in ("counter", "timestamp")):
        return
    facts = {"counter": ours["counter"], "backup_counter": theirs["counter"]}
    changes = ours["counter"] - theirs["counter"]
    if changes < 0 and ours["timestamp"] < theirs["timestamp"]:
        report.add("config.older-copy", file=f"{CONFIG}/{name}", details={"problem": "version", **facts})
        return
    before, after = set(main_table(name, backup) or ()), set(main_table(name, main) or ())
    if after and len(before - after) > changes >= 0:
        lost = {"problem": "entries", **facts, "lost": sorted(before - after)[:4]}
        report.add("config.older-copy", file=f"{CONFIG}/{name}", count=len(before - after), details=lost)
