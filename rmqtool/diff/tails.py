"""The messages that only one of two stores has, counted and listed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow.compute as pc

from rmqtool.base.mapped_files import file_at
from rmqtool.diff.side import Side
from rmqtool.scan.columns import record_batches
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.message_rows import message_dicts
from rmqtool.scan.reader import scan_files


@dataclass(frozen=True)
class Tail:
    """The messages of one log from `start` to before `end`, physical offsets; `topics` counts them by topic."""

    start: int
    end: int
    topics: tuple[tuple[str, int], ...] = ()

    @property
    def messages(self) -> int:
        """How many they are."""
        return sum(count for _, count in self.topics)

    @property
    def size(self) -> int:
        """Bytes of the log."""
        return self.end - self.start


def tail_of(side: Side, start: int) -> Tail:
    """Count what a log holds from `start` on; raises UnreadableError."""
    topics: Counter[str] = Counter()
    for run in _runs(side, start):
        (batch,) = record_batches(run, ["topic"])
        counts = pc.value_counts(batch.column(0)).to_pylist()
        topics.update({entry["values"]: entry["counts"] for entry in counts})
    return Tail(start, max(start, side.end), tuple(topics.most_common()))


def messages_from(side: Side, start: int, limit: int) -> list[dict[str, Any]]:
    """The first messages of a log from `start` on, as JSON has them; raises UnreadableError."""
    listed = (message for run in _runs(side, start) for message in message_dicts(run, _file_of(side, run)))
    return list(islice(listed, limit))


def _file_of(side: Side, run: RecordRun) -> str:
    mapped = file_at(side.files, run.physical_offset)
    return side.snapshot.store.relative(mapped.path) if mapped else ""


def _runs(side: Side, start: int) -> Iterator[RecordRun]:
    for event in scan_files(side.files, start, side.end, side.snapshot.reading):
        if isinstance(event, RecordRun):
            yield event
