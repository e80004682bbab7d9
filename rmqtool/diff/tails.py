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
    """The messages of one log from `start` to before `end`, physical offsets; `topics` counts them by topic.

    Where it `is_older` the first was stored before the one in front of it. So is what a slave had before it was cut:
    bytes after the place where it goes on stay on the disk, and a start takes them for messages.
    """

    start: int
    end: int
    topics: tuple[tuple[str, int], ...] = ()
    is_older: bool = False

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
        self._stored_before: int | None = None  # of the message in front, epoch ms
        self._first_stored: int | None = None
        self.listed: list[dict[str, Any]] = []

    def add(self, run: RecordRun) -> None:
        """Count the messages of a run, each run of the log once."""
        first = int(np.searchsorted(run.physical_offsets, self._start))
        times = run.headers.field("store_timestamp")
        if first:
            self._stored_before = int(times[first - 1])
        if first == len(run):
            return
        if self._first_stored is None:
            self._first_stored = int(times[first])
        run = run[first:] if first else run
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
        before, first = self._stored_before, self._first_stored
        is_older = before is not None and first is not None and first < before
        return Tail(self._start, max(self._start, self._side.end), tuple(self._topics.most_common()), is_older)
