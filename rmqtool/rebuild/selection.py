"""The queues that are rebuilt, and queue names that no directory may have."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding
from rmqtool.formats.file_name import file_name
from rmqtool.scan.topic_choice import TopicChoice
from rmqtool.store.consume_queues import UNIT_FORMATS, Kind

_MAX_NAME = 255  # of a directory, bytes


@dataclass(frozen=True)
class QueueSelection:
    """Topics, queue ids and single queues to rebuild; all queues when none is given."""

    topics: TopicChoice = field(default_factory=TopicChoice)
    queue_ids: frozenset[int] = frozenset()
    only: frozenset[tuple[str, int]] | None = None

    @property
    def is_all(self) -> bool:
        """Whether nothing is left out."""
        return not self.topics and not self.queue_ids and self.only is None

    def takes(self, topic: str, queue_id: int) -> bool:
        """Whether a queue is to be rebuilt."""
        return (
            topic in self.topics
            and (not self.queue_ids or queue_id in self.queue_ids)
            and (self.only is None or (topic, queue_id) in self.only)
        )


def refusal(name: QueueName) -> str | None:
    """Why a queue cannot have a directory; None for a sound name."""
    size = len(name.topic.encode("utf-8", "surrogatepass"))
    if name.topic in ("", ".", ".."):
        return "no name of a directory"
    if "/" in name.topic or "\0" in name.topic:
        return "holds a character that no directory may have in its name"
    if size > _MAX_NAME:
        return f"{size} bytes long, where a directory may have {_MAX_NAME}"
    return f"queue number {name.queue_id}" if name.queue_id < 0 else None


def directory_of(name: QueueName, kind: Kind) -> str:
    """Directory of a queue, relative to the store."""
    return os.path.join(UNIT_FORMATS[kind].directory, name.topic, str(name.queue_id))


def queue_file_name(name: QueueName, kind: Kind, start: int) -> str:
    """The file of a queue that starts at a byte, relative to the store."""
    return os.path.join(directory_of(name, kind), file_name(start))


def refused_finding(name: QueueName, why: str, units: int) -> Finding:
    """A queue that is not written."""
    return finding("rebuild.topic-name", topic=name.topic, queue_id=name.queue_id, count=units, details={"why": why})
