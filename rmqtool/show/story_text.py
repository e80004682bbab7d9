"""The story of a message in sentences: when something happened, what, and what proves it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

Clock = Callable[[int], str]
"""Shows a time, epoch ms."""

_TOLD = {
    "sent": "sent",
    "stored": "stored in {place}",
    "half": "stored as a half message, which nobody gets before its transaction ends",
    "committed": "its transaction is committed: stored in {place}",
    "rolled-back": "its transaction is rolled back",
    "delayed": "waits in {place} until {due}",
    "sent-back": "{group} failed on it (failure {times}), and gets it again at {due}",
    "retry": "comes again for {group}: stored in {place}",
    "dead-letter": "given up by {group}: stored in {place}",
    "read": "read by {group} from {place}",
    "passed": "{group} has passed {place}",
    "not-passed": "{group} has not passed {place}",
    "trace-send": "sent by producer group {group} at client {host}, took {cost} ms: {result}",
    "trace-consume-begin": "its consumption by {group} began at client {host} (retry {times})",
    "trace-consume-end": "its consumption by {group} ended at client {host} after {cost} ms: {result}",
    "trace-transaction-end": "producer group {group} ended its transaction at client {host}: {result}, {asked}",
    "trace-recall": "recalled by producer group {group} at client {host}: {result}",
    "trace-unreadable": "what clients say of it cannot all be read",
}


PARTIAL = "other records of the message may be there: the index, which leads to them, is not whole"


def is_partial(trace: dict[str, Any]) -> bool:
    """Whether the index does not lead to the message, and so may not lead to its other records."""
    return any(key["state"] != "ok" for key in trace["index"])


def story_lines(events: Sequence[dict[str, Any]], clock: Clock) -> Iterator[tuple[str, str]]:
    """When and what of each event, JSON objects of `query --trace`."""
    for event in events:
        due = event["due_timestamp"]
        told = _TOLD[event["event"]].format(
            place=f"{event['topic']} queue {event['queue_id']} offset {event['queue_offset']}",
            group=event["group"] or "an unknown group",
            host=event["client_host"],
            cost=event["cost_ms"],
            result=event["result"],
            asked="when the broker asked" if event["from_check"] else "before the broker asked",
            times=event["reconsume_times"],
            due="an unknown time" if due is None else clock(due),
        )
        yield _when(event, clock), f"{told} ({event['proof']})"


def _when(event: dict[str, Any], clock: Clock) -> str:
    first, last = event["timestamp"], event["until_timestamp"]
    if first is None:
        return "not yet"
    if first == last:
        return clock(first)
    return f"after {clock(first)}" if last is None else f"{clock(first)} to {clock(last)}"
