"""The options of a rebuild."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rmqtool.base.files import RateLimit
from rmqtool.base.mapped_files import MappedFile
from rmqtool.rebuild.queue_placement import Order
from rmqtool.rebuild.selection import QueueSelection
from rmqtool.rules.versions import Version

Part = Literal["queues", "index"]
Target = Literal["files", "rocksdb"]
"""Where a conversion brings queues, topics, groups and offsets."""


@dataclass(frozen=True)
class RebuildOptions:
    """Parts and queues to rebuild, the release whose rules count, the order of units, and whether to neutralise.

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
    left_out: int = 0
    anew: bool = False
    untouched: QueueSelection = field(default_factory=QueueSelection)
    moved_from: Sequence[MappedFile] = ()
    target: Target | None = None  # of a conversion


Progress = Callable[[int], None]
"""Called with the number of bytes of the log that are done."""


def no_progress(done: int) -> None:
    """Report nothing."""
