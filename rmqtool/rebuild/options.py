"""The options of a rebuild, and the queues that are rebuilt."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from rmqtool.base.files import RateLimit
from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding
from rmqtool.formats.file_name import file_name
from rmqtool.rebuild.queue_placement import Order
from rmqtool.rules.versions import Version
from rmqtool.scan.filters import TopicChoice
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
        return "not a directory name"
    if "/" in name.topic or "\0" in name.topic:
        return "has a character that is not allowed in directory names"
    if size > _MAX_NAME:
        return f"{size} bytes long; directory names have at most {_MAX_NAME}"
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


Part = Literal["queues", "index"]
Target = Literal["files", "rocksdb"]
"""Where a conversion brings queues, topics, groups and offsets."""


@dataclass(frozen=True)
class RebuildOptions:
    """Parts and queues to rebuild, the release whose rules count, the order of units, and whether to neutralise.

    Messages with a damaged body are left alone before the physical offset `served_until`, where no start reads them;
    before `readable_until` those whose properties a broker cannot read, and that a queue entry proves.
    `left_out` messages were left out of the log on purpose: so many units more may be missing in a queue. Of queues
    without a message in the log those of `untouched` stay, with their last file only where messages were left out.
    Where queues are made `anew`, nothing of those that are there stays. `moved_from` is the log to which the units that
    are there lead, where messages stand elsewhere in the new one.
    """

    parts: frozenset[Part]
    selection: QueueSelection = field(default_factory=QueueSelection)
    version: Version | None = None
    order: Order = "stored"
    limit: RateLimit | None = None
    neutralise: bool = False
    jobs: int = 1  # processes that read the log
    served_until: int = 0
    readable_until: int = 0
    left_out: int = 0
    anew: bool = False
    untouched: QueueSelection = field(default_factory=QueueSelection)
    moved_from: Sequence[MappedFile] = ()
    target: Target | None = None  # of a conversion
