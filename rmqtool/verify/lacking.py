"""Records of the log that have no unit in their queue."""

from __future__ import annotations

from typing import Any

from rmqtool.findings import counted
from rmqtool.system_topics import LMQ_PREFIX
from rmqtool.topics import Topics
from rmqtool.verify.consumers import is_system_topic
from rmqtool.verify.queue_state import QueueState
from rmqtool.verify.report import Report


def tell_lacking(state: QueueState, topics: Topics, live: bool, report: Report) -> None:
    """Tell what one queue lacks; what a running broker has still to dispatch is nothing."""
    name = state.name
    for code, lacking in state.lacking.items():
        if live and code == "consumequeue.behind":
            continue
        offset, physical_offset = lacking.places[0]
        message = f"{counted(lacking.count, 'message')} without a unit, the first at physical offset {physical_offset}"
        place: dict[str, Any] = {"count": lacking.count, "topic": name.topic, "queue_id": name.queue_id}
        if code == "consumequeue.missing-queue" and _is_deleted(name.topic, topics):
            report.add("commitlog.deleted-topic", message, offset=physical_offset, **place)
        else:
            report.add(code, message, queue_offset=offset, **place)


def _is_deleted(topic: str, topics: Topics) -> bool:
    if topic.startswith(LMQ_PREFIX):
        return True  # light queues go when nobody uses them
    return topics.is_known and topic not in topics.by_name and not is_system_topic(topic)
