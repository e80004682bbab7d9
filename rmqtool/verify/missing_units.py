"""Findings of records that have no unit in their queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.prediction import StartPrediction
from rmqtool.findings.report import Report
from rmqtool.rules.releases import Releases
from rmqtool.rules.system_topics import LMQ_PREFIX
from rmqtool.store.topics import Topics, is_deleted
from rmqtool.verify.queue_progress import QueueProgress
from rmqtool.verify.rederived_queues import is_derived

_DERIVED = "the next start, which recovers after the crash, derives the queue from the commit log"

WHETHER_DELETED = (
    "whether topics were deleted",
    "whether topics were deleted: the log has messages of topics that are not configured, and no queue is left "
    "that would tell a topic that was deleted from one that is lost",
)


def report_missing_units(
    state: QueueProgress,
    topics: Topics,
    report: Report,
    start: StartPrediction | None,
    releases: Releases,
    *,
    live: bool,
) -> None:
    """Report the missing units of one queue, except those that a running broker has yet to dispatch.

    A killed broker may not have created a queue yet: when the predicted `start` derives all of it, nothing is lost.
    """
    name = state.name
    for code, missing in (state.missing or {}).items():
        if live and code == "consumequeue.behind":
            continue
        offset, physical_offset = missing.examples[0]
        facts = {"problem": "no-unit", "messages": missing.count, "physical_offset": physical_offset}
        given: dict[str, Any] = {
            "count": missing.count, "topic": name.topic, "queue_id": name.queue_id, "details": facts,
        }  # fmt: skip
        if code == "consumequeue.missing-queue" and is_deleted(name.topic, topics, releases):
            report.add("commitlog.deleted-topic", offset=physical_offset, **given)
        elif code == "consumequeue.missing-queue" and is_derived(start, state):
            report.add(code, severity="warning", effect=_DERIVED, queue_offset=offset, **given)
        else:
            report.add(code, queue_offset=offset, **given)


def lost_by_topic(
    led_to: Counter[QueueName], states: Mapping[QueueName, QueueProgress], topics: Topics, releases: Releases
) -> Counter[str]:
    """The messages that were in damage: units lead there (`led_to`), or the queue offsets around it leave them out.

    Light queues count only where nothing else does, for they have what another queue has, too.
    """
    lost: Counter[str] = Counter()
    for name, count in led_to.items():
        lost[name.topic] += count
    for name, state in states.items():
        if state.lost > led_to[name] and (led_to[name] or not is_deleted(name.topic, topics, releases)):
            lost[name.topic] += state.lost - led_to[name]
    ordinary = Counter({topic: count for topic, count in lost.items() if not topic.startswith(LMQ_PREFIX)})
    return ordinary or lost
