"""Topics and committed offsets against the store's queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.half_messages import skipped_halves
from rmqtool.findings.finding import Severity
from rmqtool.findings.report import Report
from rmqtool.rules.broker_conf import known_levels
from rmqtool.rules.system_topics import SCHEDULE_TOPIC, is_filled_by_brokers, is_system_topic
from rmqtool.store.config_json import load_config
from rmqtool.store.consume_queues import Queue
from rmqtool.store.consumer_groups import CommittedOffset
from rmqtool.store.delays_seen import load_delay_offsets
from rmqtool.store.queue_units import QueueRange
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CONFIG, Store
from rmqtool.store.topics import READABLE, Topic, Topics
from rmqtool.transaction.losses import recorded_losses

_DELAY_OFFSETS = "delayOffset.json"
_LOSSES = (
    *("commitlog.torn", "commitlog.zeroed", "commitlog.last-file-missing", "commitlog.queue-offset-restart"),
    *("consumequeue.ahead", "consumequeue.hole"),
)
_BELOW = "the group goes on at the minimum; the messages before it are deleted"
_BEYOND = "the group skips new messages until the queue has grown that far, unless it connects before"

Ranges = Mapping[QueueName, QueueRange]


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
    it. It is a warning only when `counts`, the findings by code, or a record shows a loss: then consumed messages are
    lost.
    """
    recorded = [each.loss for each in recorded_losses(store.root)]
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
                 "min_offset": queue_range.min_offset, "end": end}  # fmt: skip
        report.add("config.offset-out-of-range", details=facts, severity="info" if below or not is_lossy else None,
                   effect=_BELOW if below else _BEYOND, topic=committed.topic, queue_id=committed.queue_id,
                   queue_offset=committed.offset)  # fmt: skip


def check_halves(snapshot: Snapshot, report: Report) -> None:
    """Report half messages that wait for an answer and that no broker looks at again."""
    report.check("config.half-messages-skipped")
    for skipped in skipped_halves(snapshot) if report.selection.wants("config.half-messages-skipped") else ():
        first, count = int(skipped.offsets[0]), len(skipped.offsets)
        details = {"committed": skipped.committed, "first_waiting": first, "half_messages": count}
        report.add("config.half-messages-skipped", topic=skipped.queue.queue.topic,
                   queue_id=skipped.queue.queue.queue_id, queue_offset=first, details=details)  # fmt: skip


def check_beginnings(committed_offsets: Sequence[CommittedOffset], ranges: Ranges, report: Report) -> None:
    """Doubt offsets that are all 0: one group may not have begun, but several that all have not are seldom."""
    held = [each for each in committed_offsets if (name := QueueName(each.topic, each.queue_id)) in ranges
            and ranges[name].max_offset > ranges[name].min_offset]  # fmt: skip
    groups = {each.group for each in held}
    if len(groups) > 1 and not any(each.offset for each in held):
        text = (
            f"committed offsets: those of all {len(groups)} groups are 0, though their queues hold messages; none of "
            "them has begun, or the offsets were set back, and the groups consume everything again"
        )
        report.doubt("committed offsets", text)


def check_delay_offsets(store: Store, ranges: Ranges, ends: Mapping[QueueName, int], report: Report) -> None:
    """Check the delivered offsets of the delay levels; level n is queue n - 1 (`ScheduleMessageService`).

    `ends` are queue offsets after the last messages in the log: what a queue has lost may have been delivered.
    """
    table = load_config(store.root / CONFIG / _DELAY_OFFSETS, store.conf.release).content.get("offsetTable")
    for level, offset in table.items() if isinstance(table, dict) else ():
        if not level.isdecimal() or type(offset) is not int:
            continue
        report.check("config.delay-offset")
        name = QueueName(SCHEDULE_TOPIC, int(level) - 1)
        end = max(ranges[name].max_offset, ends.get(name, 0)) if name in ranges else offset
        if offset > end:
            facts = {"problem": "beyond-queue", "level": int(level), "offset": offset, "end": end}
            report.add("config.delay-offset", details=facts, file=f"{CONFIG}/{_DELAY_OFFSETS}", topic=SCHEDULE_TOPIC,
                       queue_id=int(level) - 1, queue_offset=offset)  # fmt: skip


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
        severity: Severity | None = "info" if snapshot.store.conf.text("brokerRole") == "SLAVE" else None
        report.add("config.delay-level", severity=severity, count=total, topic=SCHEDULE_TOPIC,
                   queue_id=waiting[0]["level"] - 1, queue_offset=waiting[0]["first_queue_offset"],
                   details={"configured_levels": levels.highest, "messages": total, "waiting": waiting})  # fmt: skip
