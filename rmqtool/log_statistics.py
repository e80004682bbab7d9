"""What every record of the log adds up to: counts and bytes by topic and queue, sizes, times, damage."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from rmqtool.scan.columns import record_batches
from rmqtool.scan.events import Blank, Damage
from rmqtool.scan.frames import Frames
from rmqtool.scan.reader import Event

MAX_EXTENTS = 1000
"""Damaged extents that are kept one by one; all are counted."""

_COLUMNS = ("topic", "queue_id", "message_size", "body_size", "store_timestamp")


@dataclass
class Totals:
    """Messages and their bytes."""

    messages: int = 0
    bytes: int = 0


@dataclass
class LogStatistics:
    """Totals of a scan; sizes in bytes, timestamps epoch ms, None without a message."""

    live: bool = False  # a broker writes: what is torn at the log's end is not damage
    total: Totals = field(default_factory=Totals)
    queues: dict[tuple[str, int], Totals] = field(default_factory=dict)
    body_bytes: int = 0
    smallest: int | None = None
    largest: int | None = None
    first_store_timestamp: int | None = None
    last_store_timestamp: int | None = None
    blanks: Totals = field(default_factory=Totals)
    damaged: Totals = field(default_factory=Totals)
    damage: list[Damage] = field(default_factory=list)  # the first MAX_EXTENTS

    @property
    def topics(self) -> dict[str, Totals]:
        """Totals by topic, in name order."""
        found: dict[str, Totals] = {}
        for (topic, _), totals in sorted(self.queues.items()):
            _add(found.setdefault(topic, Totals()), totals.messages, totals.bytes)
        return found

    def add(self, event: Event) -> None:
        """Count one event of a scan."""
        if isinstance(event, Blank):
            _add(self.blanks, 1, event.size)
        elif isinstance(event, Damage):
            if self.live and event.tail:
                return
            _add(self.damaged, 1, event.size)
            self.damage.extend([event] if len(self.damage) < MAX_EXTENTS else [])
        else:
            self._add_frames(event)

    def _add_frames(self, frames: Frames) -> None:
        _add(self.total, len(frames), frames.size)
        for batch in record_batches(frames, _COLUMNS):
            table = pa.Table.from_batches([batch])
            groups = table.group_by(["topic", "queue_id"]).aggregate(
                [("message_size", "count"), ("message_size", "sum")]
            )
            for row in groups.to_pylist():
                totals = self.queues.setdefault((row["topic"], row["queue_id"]), Totals())
                _add(totals, row["message_size_count"], row["message_size_sum"])
        sizes, times = frames.message_sizes, frames.headers.field("store_timestamp")
        self.body_bytes += int(frames.body_sizes.sum())
        self.smallest = _least(self.smallest, int(sizes.min()))
        self.largest = max(self.largest or 0, int(sizes.max()))
        self.first_store_timestamp = _least(self.first_store_timestamp, int(times.min()))
        last = int(times.max())
        self.last_store_timestamp = last if self.last_store_timestamp is None else max(self.last_store_timestamp, last)


def _add(totals: Totals, messages: int, size: int) -> None:
    totals.messages += messages
    totals.bytes += size


def _least(known: int | None, value: int) -> int:
    return value if known is None else min(known, value)
