"""Configuration against the store: what the store proves of topics, groups, offsets and delays."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from rmqtool.base.errors import RmqtoolError, note_failure
from rmqtool.base.paths import modified_ms
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.clients.delays import logged_levels
from rmqtool.findings.finding import Severity
from rmqtool.findings.report import Report
from rmqtool.formats.layout import FormatError
from rmqtool.formats.message_id import parse_message_id
from rmqtool.rules.config_shapes import main_table
from rmqtool.rules.system_topics import DEAD_LETTER_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC
from rmqtool.store.config_json import ConfigFile, read_config_file
from rmqtool.store.consumer_groups import CONSUMER_OFFSET, GROUPS, LMQ_CONSUMER_OFFSET, CommittedOffset, load_offsets_in
from rmqtool.store.queue_units import LoadedQueue
from rmqtool.store.rocksdb import is_readable
from rmqtool.store.rocksdb_config import MISSING, SECOND, TABLES, Lost, expected_database, lost_in
from rmqtool.store.single_messages import Deliveries, Level, Message, SingleMessages
from rmqtool.store.store import CONFIG, Store, is_rocksdb_directory
from rmqtool.store.topics import TOPICS
from rmqtool.verify.config_checks import check_topic_lines
from rmqtool.verify.offset_checks import Ranges
from rmqtool.verify.witnesses import DELAYS, State, Witnesses

_FIRST_WRITE_MS = 60_000  # a broker writes its offsets 10 s after its start at the latest; with room for slow machines

EFFECTS = {
    TOPICS: "the broker starts without these topics: clients are refused, or topics are made again with default queues",
    CONSUMER_OFFSET: "the broker starts without any offset: each group begins again by its own policy, and skips what "
    "it has not consumed, or gets all again",
    GROUPS: "the broker starts without these groups: they are made again with default settings, or refused where "
    "autoCreateSubscriptionGroup is off",
    DELAYS: "the broker delivers these messages again",
}
"""What a broker does without a file, or without its table in RocksDB."""

PROOFS = {TOPICS: "topics", CONSUMER_OFFSET: "consumed", GROUPS: "groups"}
"""What shows that there was content: topics with messages, groups that consumed, groups that the store knows."""


def check_losses(witnesses: Witnesses, report: Report) -> None:
    """Report config files whose loss loses topics, groups or offsets."""
    report.check("config.missing", len(EFFECTS))
    if witnesses.is_in_rocksdb:
        return
    _check_topics(witnesses, report)
    _check_offsets(witnesses, report)
    _check_groups(witnesses, report)
    _check_backups_alone(witnesses, report)


def report_loss(
    name: str, state: State, proof: str, report: Report, *, severity: Severity | None = None, **facts: Any
) -> None:
    """Report a lost file; `proof` is how the store shows the content, with its `facts`: names that are `shown`."""
    path = f"{CONFIG}/{name}"
    effect = EFFECTS[CONSUMER_OFFSET if name == LMQ_CONSUMER_OFFSET else name]
    details = {"problem": state, "lost": state, "proof": proof, **facts}
    report.add("config.missing", file=path, effect=effect, severity=severity, details=details)


def may_be_unwritten(witnesses: Witnesses) -> bool:
    """Whether the broker may have been killed before it first wrote offsets."""
    return witnesses.is_unclean and witnesses.totals.latest - witnesses.totals.earliest <= _FIRST_WRITE_MS


def doubt_offsets(missing: str, report: Report) -> None:
    """Note that offsets may be lost, or were never written; `missing` says what is not there."""
    text = f"{missing}, which a broker that is killed within its first ten seconds has not written yet"
    report.doubt("committed offsets", f"committed offsets: {text}")


def _check_backups_alone(witnesses: Witnesses, report: Report) -> None:
    """Report files of which only the .bak is left: a broker that stops leaves both, the .bak with the older content."""
    for name in () if witnesses.is_unclean else (*EFFECTS, LMQ_CONSUMER_OFFSET):
        file = witnesses.file(name)
        if file.path is not None and file.path.suffix == ".bak" and file.problem is None:
            effect = EFFECTS[CONSUMER_OFFSET if name == LMQ_CONSUMER_OFFSET else name]
            report.add("config.missing", severity="warning", file=f"{CONFIG}/{name}",
                       effect=f"of what has changed since: {effect}",
                       details={"problem": "backup-left", "lost": "backup-left"})  # fmt: skip


def _check_topics(witnesses: Witnesses, report: Report) -> None:
    state, topics = witnesses.state(TOPICS), witnesses.user_topics
    if state in ("there", "unreadable") or not topics:
        return
    proven = state != "gone" or witnesses.is_brokers or witnesses.has_broker_topics
    severity: Severity | None = None if proven else "info"
    report_loss(TOPICS, state, PROOFS[TOPICS], report, severity=severity, shown=sorted(topics))


def _check_offsets(witnesses: Witnesses, report: Report) -> None:
    names = (LMQ_CONSUMER_OFFSET, CONSUMER_OFFSET)
    name = LMQ_CONSUMER_OFFSET if LMQ_CONSUMER_OFFSET in witnesses.names else CONSUMER_OFFSET
    state = witnesses.state(name)
    if state in ("there", "unreadable") or (state == "gone" and any(witnesses.state(each) != "gone" for each in names)):
        return
    if state == "gone" and may_be_unwritten(witnesses):
        if witnesses.names:
            doubt_offsets(f"there is no {name}", report)
        return
    groups = witnesses.retrying_groups()
    if state == "without its table" or (state == "gone" and witnesses.is_brokers):
        groups |= witnesses.configured_groups()
    if groups or state == "without its table":
        proof = PROOFS[CONSUMER_OFFSET] if groups else "offsets-of-all"
        report_loss(name, state, proof, report, shown=sorted(groups))


def _check_groups(witnesses: Witnesses, report: Report) -> None:
    state = witnesses.state(GROUPS)
    if state in ("there", "unreadable") or (state == "gone" and not witnesses.is_brokers):
        return
    groups = witnesses.known_groups()
    if groups or state != "gone":
        proof = PROOFS[GROUPS] if groups else "groups-of-all"
        report_loss(GROUPS, state, proof, report, severity="warning", shown=sorted(groups))


_CONTENTS = {
    TOPICS: ("topicConfigTable",),
    GROUPS: ("subscriptionGroupTable",),
    CONSUMER_OFFSET: ("offsetTable", "lmqOffsetTable"),
}


@dataclass(frozen=True)
class _EmptyTable:
    """A table without entries: the JSON file of its `name`, and the `place` of the file or database with it.

    `has_place` says that the file or database is there, `is_made` that the table is.
    """

    name: str
    place: Path
    has_place: bool
    is_made: bool

    @property
    def lost(self) -> Lost:
        """What is lost of the place."""
        return "empty" if self.is_made else "without" if self.has_place else "gone"


def check_config_tables(witnesses: Witnesses, report: Report) -> None:
    """Report tables that are gone or empty; without the library, nothing.

    Version 2 has only those topics and groups that somebody has set.
    """
    if not witnesses.is_in_rocksdb or not is_readable():
        return
    for name in TABLES:
        table = _empty_table(witnesses, name)
        if table is None or (table.place.name == SECOND and name != CONSUMER_OFFSET):
            continue
        shown = _shown(table, witnesses)
        if not shown:
            continue
        if name == CONSUMER_OFFSET and may_be_unwritten(witnesses):
            doubt_offsets(f"there are none in {witnesses.store.relative(table.place)}", report)
        elif name == CONSUMER_OFFSET or not _is_unwritten(table, witnesses):
            what, part = lost_in(table.place.name, TABLES[name], table.lost), TABLES[name].part_of(table.place.name)
            details = {
                "problem": "table",
                "what": what,
                "proof": PROOFS[name],
                "table": name,
                "lost": table.lost,
                "shown": sorted(shown),
            } | ({"part": part} if part else {})
            report.add(MISSING, file=witnesses.store.relative(table.place),
                       severity="warning" if name == GROUPS else None, effect=EFFECTS[name],
                       details=details)  # fmt: skip


def _empty_table(witnesses: Witnesses, name: str) -> _EmptyTable | None:
    """The table if it has no entries; None also where it cannot be read, which is reported by others."""
    file = witnesses.snapshot.committed.file if name == CONSUMER_OFFSET else witnesses.table(name)
    place = file.path or expected_database(witnesses.store, name)
    if file.problem or place is None or any(map(file.content.get, _CONTENTS[name])):
        return None
    is_made = file.path is not None
    return _EmptyTable(name, place, is_made or is_rocksdb_directory(place), is_made)


def _shown(table: _EmptyTable, witnesses: Witnesses) -> Collection[str]:
    """The topics or groups that show what was in a table.

    Groups that are configured show offsets only where the database is gone: they may not have consumed yet.
    """
    if table.name == TOPICS:
        return witnesses.user_topics
    if table.name == GROUPS:
        return witnesses.known_groups()
    groups = witnesses.retrying_groups()
    is_brokers = witnesses.is_brokers or witnesses.table(GROUPS).path is not None
    return groups | witnesses.configured_groups() if is_brokers and not table.has_place else groups


def _is_unwritten(table: _EmptyTable, witnesses: Witnesses) -> bool:
    """Whether a table of topics or groups may never have been written: no broker has, or it was killed before.

    A broker writes the groups that each has when it stops.
    """
    if table.is_made and not witnesses.is_unclean:
        return False
    if table.name == GROUPS and table.has_place and witnesses.is_unclean:
        return True
    return not witnesses.is_brokers and (table.name == GROUPS or not witnesses.has_broker_topics)


_FAR = 10_000  # beyond a queue's end; a slave, whose offsets come from its master, lags less
_SPAN = 2_000  # DefaultMQPushConsumer#consumeConcurrentlyMaxSpan: how far a client runs ahead
_SAMPLED = 8  # retries of a queue, the oldest and the newest
_OLD_MS = 3_600_000  # offsets are written every five seconds
_AGAIN = "the group consumes again what lies between, unless its offset was set back on purpose"

GroupQueue = tuple[str, str, int]
"""Group, topic and queue."""


@dataclass(frozen=True)
class _Wrong:
    committed: CommittedOffset
    reason: str
    consequence: str
    other_offset: int | None = None  # that of the evidence


def check_offset_witnesses(witnesses: Witnesses, report: Report) -> None:
    """Report offsets that another part of the store contradicts."""
    file, committed = witnesses.snapshot.committed.file, witnesses.snapshot.committed.offsets
    report.check("config.wrong-offset", len(committed))
    if file.path is None or witnesses.is_in_rocksdb:
        return
    wrong = {(one.committed.group, one.committed.topic, one.committed.queue_id): one
             for one in (*_behind_retries(witnesses), *_behind_backup(file.path, committed, witnesses.ranges),
                         *_out_of_reach(committed, witnesses.ranges))}  # fmt: skip
    _report(witnesses.store, file.path, wrong, report)
    _check_age(witnesses.store, file.path, witnesses.totals.latest, report)


def _report(store: Store, path: Path, wrong: Mapping[GroupQueue, _Wrong], report: Report) -> None:
    """One finding for each group and topic."""
    ordered = [wrong[key] for key in sorted(wrong)]
    for _, group in groupby(ordered, key=lambda one: (one.committed.group, one.committed.topic)):
        first, *others = group
        at = first.committed
        key: dict[str, Any] = {"topic": at.topic, "queue_id": at.queue_id, "queue_offset": at.offset}
        file = store.relative(path)
        report.add("config.wrong-offset", file=file, effect=first.consequence, count=1 + len(others), **key,
                   details={"group": at.group, "reason": first.reason, "committed_offset": at.offset,
                            "other_offset": first.other_offset, "other_queues": len(others)})  # fmt: skip


def _out_of_reach(committed: Sequence[CommittedOffset], ranges: Ranges) -> Iterator[_Wrong]:
    ends = {(name.topic, name.queue_id): queue_range.max_offset for name, queue_range in ranges.items()}
    for one in committed:
        end = ends.get((one.topic, one.queue_id), 0)
        if one.offset < 0:
            yield _Wrong(one, "negative", "the broker begins at the queue's minimum")
        elif one.offset - end >= _FAR:
            effect = "the broker sets the group to the end of the queue: it skips what it has not consumed; up to " \
                     "4.9.3 to its beginning"  # fmt: skip
            yield _Wrong(one, "beyond", effect, end)


def _behind_backup(path: Path, committed: Sequence[CommittedOffset], ranges: Ranges) -> Iterator[_Wrong]:
    """Offsets that are less than in the .bak: they grow from one write to the next, unless they are set back.

    At the end of its queue a group has nothing to consume again.
    """
    if path.suffix == ".bak":
        return
    try:
        backup = load_offsets_in(path.with_name(f"{path.name}.bak"))
    except RmqtoolError:
        return
    before = {(one.group, one.topic, one.queue_id): one.offset for one in backup}
    for one in committed:
        earlier = before.get((one.group, one.topic, one.queue_id), one.offset)
        queue = ranges.get(QueueName(one.topic, one.queue_id))
        if one.offset < (min(earlier, queue.max_offset) if queue else earlier):
            yield _Wrong(one, "backup", _AGAIN, earlier)


def _behind_retries(witnesses: Witnesses) -> Iterator[_Wrong]:
    """Offsets far before a message that the group has failed on, and so has consumed."""
    committed = witnesses.snapshot.committed.offsets
    offsets = {(one.group, one.topic, one.queue_id): one.offset for one in committed}
    groups = {one.group for one in committed}
    for (group, topic, queue_id), consumed in _consumed(witnesses.ranges, witnesses.messages).items():
        if group not in groups or QueueName(topic, queue_id) not in witnesses.ranges:
            continue  # the group or the topic was deleted
        offset = offsets.get((group, topic, queue_id), 0)
        if offset <= 0 or consumed - offset > _SPAN:
            yield _Wrong(CommittedOffset(group, topic, queue_id, offset), "retries", _AGAIN, consumed)


def _consumed(ranges: Ranges, messages: SingleMessages) -> dict[GroupQueue, int]:
    """The largest queue offset of each group among the messages that it has failed on."""
    furthest: dict[GroupQueue, int] = {}
    for name in ranges:
        prefix = next((prefix for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX) if name.topic.startswith(prefix)), None)
        queue = messages.queue(name.topic, name.queue_id) if prefix else None
        if prefix is None or queue is None:
            continue
        for retry in _some(queue, messages):
            origin = _origin(retry, messages)
            if origin is not None:
                key = name.topic.removeprefix(prefix), origin["topic"], origin["queue_id"]
                furthest[key] = max(furthest.get(key, 0), origin["queue_offset"])
    return furthest


def _some(queue: LoadedQueue, messages: SingleMessages) -> Iterator[Message]:
    first, end = queue.range.min_offset, queue.range.max_offset
    queue_offsets = {*range(first, min(first + _SAMPLED, end)), *range(max(first, end - _SAMPLED), end)}
    for queue_offset in sorted(queue_offsets):
        message = messages.in_queue(queue, queue_offset)
        if message is not None:
            yield message


def _origin(retry: Message, messages: SingleMessages) -> Message | None:
    """The original message of a retry; None when it is not in this log."""
    properties = retry["properties"]
    text = properties.get("ORIGIN_MESSAGE_ID") or properties.get("DLQ_ORIGIN_MESSAGE_ID") or ""
    try:
        _, offset = parse_message_id(text)
    except FormatError:
        return None
    origin = messages.at(offset)
    is_origin = origin is not None and origin["message_id"] == text and origin["topic"] == properties.get("RETRY_TOPIC")
    return origin if is_origin else None


def _check_age(store: Store, path: Path, newest: int, report: Report) -> None:
    report.check("config.older-copy")
    try:
        written = modified_ms(path)
    except OSError as error:
        note_failure(path, error)
        return
    if written is None or newest > time.time() * 1000:  # a time that is still to come proves nothing
        return
    if newest - written > _OLD_MS:
        times = {"problem": "time", "written": written, "newest": newest}
        report.add("config.older-copy", file=store.relative(path), details=times)


_FLUSH_MS = 60_000  # delay offsets are written every 10 s; with room for slow machines
_CLOCK_MS = 1_000


def check_witnesses(witnesses: Witnesses, report: Report) -> None:
    """Report topics, groups and offsets that the configuration has lost."""
    check_losses(witnesses, report)
    check_config_tables(witnesses, report)
    check_topic_lines(witnesses, report)
    check_offset_witnesses(witnesses, report)
    _check_delays(witnesses, report)


def _check_delays(witnesses: Witnesses, report: Report) -> None:
    file, newest = witnesses.file(DELAYS), witnesses.totals.latest
    offsets = _offsets_of(main_table(DELAYS, file.content))
    report.check("config.delay-offset", len(offsets))
    lost = witnesses.state(DELAYS)
    logged = logged_levels(witnesses.snapshot, witnesses.states)
    deliveries = Deliveries(witnesses.messages, newest, delays_known_until(witnesses), witnesses.lacks_until, logged)
    levels = list(deliveries.levels(offsets))
    repeated = sum(level.repeated for level in levels)
    if lost in ("gone", "without its table", "empty") and repeated:
        report_loss(DELAYS, lost, "delays", report, messages=repeated, levels=len(levels))
        return
    repeating: Severity = "info" if witnesses.is_slaves else "warning"
    for level in levels:
        _report_level(level, repeating, report)
    reported = {level.level for level in levels if level.repeated or level.skipped}
    for level_number, earlier in _in_backup(file).items():
        offset = offsets.get(level_number, 0)
        queue = witnesses.ranges.get(QueueName(SCHEDULE_TOPIC, level_number - 1))
        log_end = logged.ends.get(level_number, 0)
        end = min(earlier, max(queue.max_offset, log_end)) if queue else earlier  # later ones it cannot deliver
        if level_number not in reported and offset < end:
            facts = {"problem": "backup", "level": level_number, "offset": offset, "earlier": earlier}
            report.add("config.delay-offset", details=facts, file=f"{CONFIG}/{DELAYS}", severity=repeating,
                       effect="the broker delivers them again", topic=SCHEDULE_TOPIC, queue_id=level_number - 1,
                       queue_offset=offset)  # fmt: skip


def delays_known_until(witnesses: Witnesses) -> int:
    """Up to when the offsets of delay levels know what was delivered, epoch ms: a killed broker wrote them earlier."""
    file, newest = witnesses.file(DELAYS), witnesses.totals.latest
    table = main_table(DELAYS, file.content)
    written = modified_ms(file.path) if file.path and table else newest + 1 + _CLOCK_MS
    is_copied = written is None or (witnesses.is_unclean and (not table or written > newest + _FLUSH_MS))
    if written is None or is_copied:  # the time of a copy, not of a write
        written = newest - _FLUSH_MS
    return written - _CLOCK_MS


def _in_backup(file: ConfigFile) -> dict[int, int]:
    """Offsets by level in the .bak of a file; empty when the .bak itself is read instead of the file."""
    if file.path is None or file.path.suffix == ".bak":
        return {}
    try:
        backup = read_config_file(file.path.with_name(f"{DELAYS}.bak"))
    except RmqtoolError:
        return {}
    return _offsets_of(main_table(DELAYS, backup))


def _offsets_of(table: Mapping[str, Any] | None) -> dict[int, int]:
    return {int(level): offset for level, offset in (table or {}).items()
            if level.isdecimal() and type(offset) is int}  # fmt: skip


def _report_level(level: Level, repeating: Severity, report: Report) -> None:
    given: dict[str, Any] = {"topic": SCHEDULE_TOPIC, "queue_id": level.level - 1, "queue_offset": level.offset}
    at: dict[str, Any] = {"level": level.level, "offset": level.offset}
    if level.repeated:
        report.add("config.delay-offset", file=f"{CONFIG}/{DELAYS}", severity=repeating,
                   effect="the broker delivers them again",
                   details={"problem": "repeated", "messages": level.repeated, **at}, **given)  # fmt: skip
    if level.skipped:
        report.add("config.delay-offset", file=f"{CONFIG}/{DELAYS}", effect="the broker never delivers them",
                   details={"problem": "skipped", "messages": level.skipped, **at}, **given)  # fmt: skip
