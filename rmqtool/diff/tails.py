"""The messages of one log from a place on, counted and listed while the log is read."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pyarrow.compute as pc

from rmqtool.base.mapped_files import file_at
from rmqtool.diff.side import Side
from rmqtool.scan.columns import record_batches
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.message_rows import message_dicts


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


class Tally:
    """Counts the messages that begin from `start` on, by topic; the first `limit` are listed, as JSON has them."""

    def __init__(self, side: Side, start: int, limit: int = 0) -> None:
        self._side = side
        self._start = start
        self._limit = limit
        self._topics: Counter[str] = Counter()
        self.listed: list[dict[str, Any]] = []

    def add(self, run: RecordRun) -> None:
        """Count the messages of a run, each run of the log once."""
        first = int(np.searchsorted(run.physical_offsets, self._start))
        run = run[first:] if first else run
        if not len(run):
            return
        (batch,) = record_batches(run, ["topic"])
        counts = pc.value_counts(batch.column(0)).to_pylist()
        self._topics.update({entry["values"]: entry["counts"] for entry in counts})
        if len(self.listed) < self._limit:
            mapped = file_at(self._side.files, run.physical_offset)
            file = self._side.snapshot.store.relative(mapped.path) if mapped else ""
            self.listed += islice(message_dicts(run, file), self._limit - len(self.listed))

    @property
    def tail(self) -> Tail:
        """What was counted, with the log's end as its end."""
        return Tail(self._start, max(self._start, self._side.end), tuple(self._topics.most_common()))
