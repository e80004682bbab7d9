"""Topics and committed offsets against the store's queues."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from rmqtool.base.errors import note_failure
from rmqtool.base.paths import modified_ms
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.half_messages import skipped_halves
from rmqtool.clients.delays import logged_levels
from rmqtool.findings.finding import Severity
from rmqtool.findings.report import Report
from rmqtool.formats.layout import FormatError
from rmqtool.formats.message import parse_message_id
from rmqtool.rules.broker_conf import known_levels
from rmqtool.rules.system_topics import (
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    is_filled_by_brokers,
    is_system_topic,
)
from rmqtool.rules.versions import DELAY_OFFSETS_WRITTEN_AT_STOP, notes_first_of_run
from rmqtool.store.config_json import ConfigFile
from rmqtool.store.config_tables import (
    CONSUMER_OFFSET,
    DELAYS,
    MISSING,
    OFFSETS,
    READABLE,
    CommittedOffset,
    Topic,
    Topics,
    config_database,
    entries_in,
    load_delay_offsets,
    main_table,
    offsets_by_level,
    offsets_in,
)
from rmqtool.store.consume_queues import Queue
from rmqtool.store.lock import LOCK_FILE
from rmqtool.store.queue_units import LoadedQueue, QueueRange
from rmqtool.store.single_messages import Deliveries, Message, SingleMessages
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CHECKPOINT, CONFIG, Store
from rmqtool.transaction.losses import recorded_losses
from rmqtool.verify.witnesses import EFFECTS, Ranges, Witnesses, check_losses, check_topic_lines

_HALVES_SKIPPED, _HALF_ROWS_MISSING = "config.half-messages-skipped", "store.half-rows-missing"
_LOSSES = (
    *("commitlog.torn", "commitlog.zeroed", "commitlog.last-file-missing", "commitlog.queue-offset-restart"),
    *("consumequeue.ahead", "consumequeue.hole"),
)
_BELOW = "the group continues at the minimum; the messages before it are deleted"
_BEYOND = "the group skips new messages until the queue has grown that far, unless it connects before"


def check_topics(topics: Topics, ranges: Ranges, committed_offsets: Sequence[CommittedOffset], report: Report) -> None:
    """Report queues without a topic, and those that their topic keeps from its consumers, with what they hold."""
    if not topics.names_all:
        return
    progress = _progress(committed_offsets)
    for name, queue_range in ranges.items():
        report.check("consumequeue.orphan")
        topic = topics.by_name.get(name.topic)
        given: dict[str, Any] = {"topic": name.topic, "queue_id": name.queue_id}
        if topic is None and not is_system_topic(name.topic):
            facts = {"configured_in": topics.place, "units": queue_range.max_offset}
            report.add("consumequeue.orphan", details=facts, **given)
        elif topic and not topic.serves(name.queue_id) and not is_filled_by_brokers(name.topic):
            _report_unserved(topic, name, _unconsumed(name, queue_range, progress), report)


def _progress(committed_offsets: Sequence[CommittedOffset]) -> dict[str, dict[str, dict[int, int]]]:
    """The committed offsets by topic, group and queue."""
    found: dict[str, dict[str, dict[int, int]]] = {}
    for each in committed_offsets:
        found.setdefault(each.topic, {}).setdefault(each.group, {})[each.queue_id] = each.offset
    return found


def _unconsumed(name: QueueName, queue: QueueRange, progress: Mapping[str, Mapping[str, Mapping[int, int]]]) -> int:
    """How many messages of a queue the slowest group of its topic has not consumed; all of them without a group."""
    offsets = [group.get(name.queue_id, 0) for group in progress.get(name.topic, {}).values()]
    return max(0, queue.max_offset - max(queue.min_offset, min(offsets, default=0), 0))


def _report_unserved(topic: Topic, name: QueueName, unconsumed: int, report: Report) -> None:
    """A queue that consumers do not get: information once all groups have consumed it."""
    facts = {"problem": "queues" if topic.perm & READABLE else "perm",
             "read_queues": topic.read_queues, "write_queues": topic.write_queues, "perm": topic.perm,
             "messages": unconsumed}  # fmt: skip
    report.add("config.topic-queues", severity="warning" if unconsumed else None, details=facts,
               topic=name.topic, queue_id=name.queue_id)  # fmt: skip


def check_kind(topics: Topics, queue: Queue, report: Report) -> None:
    """Check that a queue is of the kind that its topic is configured for (`ConsumeQueueStore#queueTypeShouldBe`)."""
    report.check("consumequeue.kind")
    topic = topics.by_name.get(queue.topic)
    if topic is not None and queue.files.files and topic.has_batch_queues != (queue.kind == "batch"):
        kinds = {"kind": queue.kind, "configured": "batch" if topic.has_batch_queues else "simple"}
        report.add("consumequeue.kind", topic=queue.topic, queue_id=queue.queue_id, details=kinds)


def has_lost_ends(counts: Mapping[str, int]) -> bool:
    """Whether findings, counted by code, show that the log or queues have lost their ends."""
    return any(map(counts.get, _LOSSES))


def check_offsets(
    store: Store,
    committed_offsets: Sequence[CommittedOffset], ranges: Ranges, ends: Mapping[QueueName, int],
    counts: Mapping[str, int], report: Report,
) -> None:  # fmt: skip
    """Report committed offsets outside their queue; `ends` are queue offsets after the last messages in the log.

    An offset is below the minimum when the group is slower than deletion, and beyond the maximum when a tool has set
    it, or on a slave, which takes it over from its master and is slower. It is a warning only when `counts`, the
    findings by code, or a record shows a loss: then consumed messages are lost.
    """
    recorded = [each.loss for each in recorded_losses(store.root)]
    database = config_database(store, CONSUMER_OFFSET)
    place = {"database": store.relative(database)} if database else {}
    for committed in committed_offsets:
        report.check("config.offset-out-of-range")
        name = QueueName(committed.topic, committed.queue_id)
        queue_range = ranges.get(name)
        if queue_range is None:
            continue
        end = max(queue_range.max_offset, ends.get(name, 0))
        if queue_range.min_offset <= committed.offset <= end:
            continue
        below = committed.offset < queue_range.min_offset
        is_lossy = has_lost_ends(counts) or any(loss is None or loss.concerns(name.topic) for loss in recorded)
        facts = {"problem": "below" if below else "beyond", "group": committed.group, "committed": committed.offset,
                 "min_offset": queue_range.min_offset, "end": end, **place}  # fmt: skip
        is_usual = below or store.conf.is_slave or not is_lossy
        report.add("config.offset-out-of-range", details=facts, severity="info" if is_usual else None,
                   effect=_BELOW if below else _BEYOND, topic=committed.topic, queue_id=committed.queue_id,
                   queue_offset=committed.offset)  # fmt: skip


def check_halves(snapshot: Snapshot, report: Report) -> None:
    """Report half messages that wait for an answer and that no broker looks at again."""
    for code in (_HALVES_SKIPPED, _HALF_ROWS_MISSING):
        report.check(code)
    is_wanted = report.selection.wants(_HALVES_SKIPPED) or report.selection.wants(_HALF_ROWS_MISSING)
    for skipped in skipped_halves(snapshot) if is_wanted else ():
        first, code = int(skipped.offsets[0]), _HALF_ROWS_MISSING
        details = {"first_waiting": first, "half_messages": len(skipped.offsets)}
        if skipped.committed is not None:
            code, details = _HALVES_SKIPPED, {"committed": skipped.committed, **details}
        report.add(code, topic=skipped.queue.queue.topic, queue_id=skipped.queue.queue.queue_id, queue_offset=first,
                   details=details)  # fmt: skip


def check_beginnings(committed_offsets: Sequence[CommittedOffset], ranges: Ranges, report: Report) -> None:
    """Doubt offsets that are all 0: one group may not have begun, but several that all have not are seldom."""
    held = [each for each in committed_offsets if (name := QueueName(each.topic, each.queue_id)) in ranges
            and ranges[name].max_offset > ranges[name].min_offset]  # fmt: skip
    groups = {each.group for each in held}
    if len(groups) > 1 and not any(each.offset for each in held):
        text = (
            f"committed offsets: those of all {len(groups)} groups are 0, although their queues have messages; none "
            "of them has begun, or the offsets were set back, and the groups consume everything again"
        )
        report.doubt("committed offsets", text)


def check_delay_offsets(store: Store, ranges: Ranges, ends: Mapping[QueueName, int], report: Report) -> None:
    """Check the delivered offsets of the delay levels; level n is queue n - 1 (`ScheduleMessageService`).

    `ends` are queue offsets after the last messages in the log: what a queue has lost may have been delivered.
    """
    for level, offset in load_delay_offsets(store).by_level.items():
        report.check("config.delay-offset")
        name = QueueName(SCHEDULE_TOPIC, level - 1)
        end = max(ranges[name].max_offset, ends.get(name, 0)) if name in ranges else offset
        if offset > end:
            _report_delay("beyond-queue", level, offset, report, end=end)


def _report_delay(
    problem: str, level: int, offset: int, report: Report, *, severity: Severity | None = None, **more: int
) -> None:
    """Report the offset of a delay level."""
    effects = dict.fromkeys(("repeated", "run", "backup"), "the broker delivers them again")
    effects["skipped"] = "the broker never delivers them"
    report.add("config.delay-offset", file=f"{CONFIG}/{DELAYS}", severity=severity, effect=effects.get(problem),
               topic=SCHEDULE_TOPIC, queue_id=level - 1, queue_offset=offset,
               details={"problem": problem, "level": level, "offset": offset, **more})  # fmt: skip


def check_delay_levels(snapshot: Snapshot, ranges: Ranges, report: Report) -> None:
    """Report messages that wait at levels above the highest configured one (`ScheduleMessageService#start`)."""
    levels = known_levels(snapshot.store.conf)
    if levels is None:
        return
    report.check("config.delay-level")
    offsets = load_delay_offsets(snapshot.store).by_level
    waiting = []
    for name, queue_range in sorted(ranges.items()):
        level = name.queue_id + 1
        first = max(queue_range.min_offset, offsets.get(level, 0))
        if name.topic == SCHEDULE_TOPIC and level > levels.highest and first < queue_range.max_offset:
            count = queue_range.max_offset - first
            waiting.append({"level": level, "first_queue_offset": first, "messages": count})
    if waiting:
        total = sum(each["messages"] for each in waiting)
        severity: Severity | None = "info" if snapshot.store.conf.is_slave else None
        report.add("config.delay-level", severity=severity, count=total, topic=SCHEDULE_TOPIC,
                   queue_id=waiting[0]["level"] - 1, queue_offset=waiting[0]["first_queue_offset"],
                   details={"configured_levels": levels.highest, "messages": total, "waiting": waiting})  # fmt: skip


_FAR = 10_000  # beyond a queue's end; a slave, whose offsets come from its master, lags less
_SPAN = 2_000  # DefaultMQPushConsumer#consumeConcurrentlyMaxSpan: how far a client runs ahead
_SAMPLED = 8  # retries of a queue, the oldest and the newest
_OLD_MS = 3_600_000  # offsets are written every five seconds
_AGAIN = "the group consumes the messages in between again, unless its offset was set back on purpose"

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
             for one in (*_behind_retries(witnesses), *_behind_backup(file, committed, witnesses.ranges),
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
            effect = "the broker sets the group to the end of the queue: it skips unconsumed messages; up to " \
                     "4.9.3 to its beginning"  # fmt: skip
            yield _Wrong(one, "beyond", effect, end)


def _behind_backup(file: ConfigFile, committed: Sequence[CommittedOffset], ranges: Ranges) -> Iterator[_Wrong]:
    """Offsets that are less than in the .bak: they grow from one write to the next, unless they are set back.

    At the end of its queue a group has nothing to consume again.
    """
    before = {(one.group, one.topic, one.queue_id): one.offset for one in offsets_in(file.before)}
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
    check_topic_lines(witnesses, report)
    check_offset_witnesses(witnesses, report)
    _check_delays(witnesses, report)


def _check_delays(witnesses: Witnesses, report: Report) -> None:
    file, newest = witnesses.file(DELAYS), witnesses.totals.latest
    offsets = offsets_by_level(file.content)
    report.check("config.delay-offset", len(offsets))
    lost = witnesses.state(DELAYS)
    logged = logged_levels(witnesses.snapshot, witnesses.states)
    deliveries = Deliveries(witnesses.messages, newest, delays_known_until(witnesses), witnesses.lacks_until, logged)
    levels = list(deliveries.levels(offsets))
    if lost in ("gone", "without its table", "empty"):
        severity, proof = None, "delays"
        if not any(level.repeated for level in levels):
            severity, proof = "info", "delays-unwritten"
            levels = list(replace(deliveries, known_until=newest + 1).levels(offsets))
        if repeated := sum(level.repeated for level in levels):
            facts = {"problem": lost, "lost": lost, "proof": proof, "messages": repeated, "levels": len(levels)}
            report.add(MISSING, file=f"{CONFIG}/{DELAYS}", severity=severity, effect=EFFECTS[DELAYS], details=facts)
            return
    repeating: Severity = "info" if witnesses.is_slaves else "warning"
    is_of_run = notes_first_of_run(witnesses.snapshot.release)
    for level in levels:
        if is_of_run and deliveries.is_one_run(level):
            _report_delay("run", level.level, level.offset, report, severity="info", messages=level.repeated)
        elif level.repeated:
            _report_delay("repeated", level.level, level.offset, report, severity=repeating, messages=level.repeated)
        if level.skipped:
            _report_delay("skipped", level.level, level.offset, report, messages=level.skipped)
    reported = {level.level for level in levels if level.repeated or level.skipped}
    for number, earlier in offsets_by_level(file.before).items():
        offset, queue = offsets.get(number, 0), witnesses.ranges.get(QueueName(SCHEDULE_TOPIC, number - 1))
        # Later ones it cannot deliver.
        end = min(earlier, max(queue.max_offset, logged.ends.get(number, 0))) if queue else earlier
        if number not in reported and offset < end:
            _report_delay("backup", number, offset, report, severity=repeating, earlier=earlier)


def delays_known_until(witnesses: Witnesses) -> int:
    """Up to when the offsets of delay levels know what was delivered, epoch ms: a killed broker wrote them earlier.

    So did one that stopped, up to 4.9.2. Since 5.0.0 the file itself says when an offset last changed, some time before
    it was written.
    """
    file, newest = witnesses.file(DELAYS), witnesses.totals.latest
    table = main_table(DELAYS, file.content)
    modified = written = modified_ms(file.path) if file.path and table else newest + 1 + _CLOCK_MS
    is_copied = written is None or (not table and witnesses.is_unclean)
    if not table and witnesses.snapshot.releases.oldest < DELAY_OFFSETS_WRITTEN_AT_STOP:
        is_new = file.path and table is not None  # nothing was delivered by then
        written = modified_ms(file.path) if file.path and is_new else _last_write(witnesses.store)
        is_copied = written is None or witnesses.is_unclean
    if written is not None and written > newest + _FLUSH_MS:
        is_copied = witnesses.is_unclean or _was_written_before_stop(witnesses, newest + _FLUSH_MS)
    if written is None or is_copied:  # the time of a copy, not of a write
        written = newest - _FLUSH_MS
    changed = entries_in(file.content, "dataVersion").get("timestamp")
    if table and type(changed) is int and changed <= (time.time() * 1000 if modified is None else modified):
        written = max(written, changed)
    return written - _CLOCK_MS


_FIRST_FLUSH_MS = 10_000  # ScheduleMessageService#start, whatever flushDelayOffsetInterval is


def _last_write(store: Store) -> int | None:
    """When a broker that stopped wrote delay offsets last, if not by its stop, epoch ms; None where nothing shows it.

    A start writes `lock`, a stop the checkpoint and the committed offsets: of one that ran for less than ten seconds
    there was no write.
    """
    began = _written(store.root / LOCK_FILE)
    ends = [_written(store.root / CHECKPOINT), *(_written(store.root / CONFIG / name) for name in OFFSETS)]
    stopped = min((each for each in ends if each is not None), default=None)
    if began is None or stopped is None or stopped < began + _FIRST_FLUSH_MS:
        return None
    interval = store.conf.size("flushDelayOffsetInterval") or _FIRST_FLUSH_MS
    return stopped - (stopped - began - _FIRST_FLUSH_MS) % interval


def _written(path: Path) -> int | None:
    try:
        return modified_ms(path)
    except OSError:
        return None


def _was_written_before_stop(witnesses: Witnesses, time_ms: int) -> bool:
    """Whether a stop did not write the offsets, and all files have the times of a copy, later than `time_ms`."""
    snapshot = witnesses.snapshot
    is_early = snapshot.releases.oldest < DELAY_OFFSETS_WRITTEN_AT_STOP
    return is_early and all((modified_ms(file.path) or 0) > time_ms for file in snapshot.log.files)
