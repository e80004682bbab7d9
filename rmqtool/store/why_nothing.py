"""Why filters find nothing in a store: there is no such topic or queue, the log has another range, or none fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from rmqtool.base.times import rfc3339
from rmqtool.rules.system_topics import is_system_topic
from rmqtool.scan.filters import Filters
from rmqtool.scan.topic_choice import TopicChoice, is_pattern
from rmqtool.store.missing_log import missing_log
from rmqtool.store.snapshot import Snapshot

NOTHING_FITS = "no message passes the filters"
_FEW = 8  # names that are listed


def why_nothing(snapshot: Snapshot, filters: Filters) -> str:
    """A sentence for people; call it when nothing was found, for the log may have what queues and config lack."""
    if error := missing_log(snapshot):
        return f"{error.message} ({error.hint})"
    return "; ".join(_reasons(snapshot, filters)) or NOTHING_FITS


def _reasons(snapshot: Snapshot, filters: Filters) -> Iterator[str]:
    for topic in filters.topics:
        queue_ids = snapshot.queue_ids(topic)
        missing = [each for each in filters.queue_ids if each not in queue_ids]
        if unknown := unknown_topic(snapshot, topic):
            yield unknown
        elif is_pattern(topic):
            continue
        elif missing and not snapshot.leaves_queues_out:
            there = f"; there are {shown_ids(queue_ids)}" if queue_ids else ""
            yield f"topic {topic} has no queue {shown_ids(missing)}{there}"
    log = snapshot.log_range
    first, last = log.first_store_timestamp, log.last_store_timestamp
    if first is not None and last is not None and _is_outside(filters, first, last):
        yield f"the log holds messages stored {rfc3339(first)} to {rfc3339(last)}"
    if not filters.start < log.max_offset or not filters.stop > log.min_offset:
        yield f"the log holds the offsets {log.min_offset} to {log.max_offset}"


def excludes_nothing(snapshot: Snapshot, filters: Filters) -> Iterator[str]:
    """A sentence for each topic that is left out and that the store does not have."""
    for topic in filters.excluded_topics:
        if unknown := unknown_topic(snapshot, topic):
            yield f"--exclude-topic leaves nothing out: {unknown}"


def unknown_topic(snapshot: Snapshot, topic: str) -> str | None:
    """A sentence with the nearest names, None for a topic, or a pattern of some, that has queues or is configured."""
    names = snapshot.topic_names
    if is_pattern(topic) and any(name in TopicChoice((topic,)) for name in names):
        return None
    if not names or topic in names:
        return None
    return f"{'no topic is named' if is_pattern(topic) else 'there is no topic'} {topic}{instead_of(topic, names)}"


def instead_of(name: str, names: Sequence[str]) -> str:
    """The end of a sentence about a name that is none of `names`: the nearest of them, or which there are."""
    near = get_close_matches(name, names)
    if near:
        return f" (did you mean {' or '.join(near)}?)"
    more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
    first = sorted(names, key=is_system_topic)[:_FEW]  # those of people
    return f"; there are {', '.join(first)}{more}"


def shown_ids(ids: Sequence[int]) -> str:
    """Numbers of queues for people: ``0 to 3``, or ``0, 2``."""
    if list(ids) == list(range(ids[0], ids[-1] + 1)) and len(ids) > 2:
        return f"{ids[0]} to {ids[-1]}"
    return ", ".join(map(str, ids))


def _is_outside(filters: Filters, first: int, last: int) -> bool:
    start, stop = filters.from_timestamp, filters.to_timestamp
    return (start is not None and start > last) or (stop is not None and stop <= first)
