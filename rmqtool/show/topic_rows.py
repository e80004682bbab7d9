"""The queues of an overview by topic, for people: a row for each topic, and one for many light queues together."""

from __future__ import annotations

from dataclasses import dataclass

from rmqtool.inspect.overview import Overview
from rmqtool.rules.system_topics import LMQ_PREFIX

_MAX_LIGHT = 40  # light queues that have a row of their own


@dataclass
class TopicRow:
    """The queues of one topic, or of several, together."""

    topics: int = 0
    queues: int = 0
    messages: int = 0
    files: int = 0

    def add(self, other: TopicRow) -> None:
        """Add the queues of other topics."""
        self.topics += other.topics
        self.queues += other.queues
        self.messages += other.messages
        self.files += other.files


def topic_rows(overview: Overview) -> dict[str, TopicRow]:
    """The rows by name, in the order of the queues; each light queue is a topic, and there may be 200,000."""
    rows: dict[str, TopicRow] = {}
    for queue, offsets in overview.queues:
        row = rows.get(queue.topic)
        if row is None:
            row = rows[queue.topic] = TopicRow(topics=1)
        row.queues += 1
        row.messages += offsets.max_offset - max(offsets.min_offset, 0)
        row.files += len(queue.files.files)
    light = [topic for topic in rows if topic.startswith(LMQ_PREFIX)]
    if len(light) <= _MAX_LIGHT:
        return rows
    total = TopicRow()
    for topic in light:
        total.add(rows.pop(topic))
    return {**rows, f"{LMQ_PREFIX}... ({len(light)} light queues, each with -v)": total}
