"""Bytes of the log by topic, along the time and along the log: what the pictures of a report are drawn from."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rmqtool.broker.delete_when import MAX_TIME
from rmqtool.scan.columns import record_batches
from rmqtool.scan.frames import RecordRun

PIECES = 240
"""Pieces of the log, of one size."""

_MAX_BINS = 120
_MAX_TOPICS = 20_000  # further ones are counted together
_SECOND, _MINUTE, _HOUR, _DAY = 1000, 60_000, 3_600_000, 86_400_000
_WIDTHS = (
    *(_SECOND, 5 * _SECOND, 15 * _SECOND),
    *(_MINUTE, 5 * _MINUTE, 15 * _MINUTE, _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR),
    *(_DAY, 2 * _DAY, 7 * _DAY, 28 * _DAY, 365 * _DAY),
)

OTHERS = ""
"""Stands for all topics that are not named; no topic has an empty name."""

Counts = NDArray[np.int64]


@dataclass
class Timeline:
    """Bytes of messages by topic: in bins of `width` ms from `first` on, epoch ms, and in pieces of the log.

    Messages with times outside of the bins are counted in the first or the last one.
    """

    first: int
    width: int
    bins: int
    start: int  # physical offset
    piece: int  # bytes
    topics: dict[str, int] = field(default_factory=dict)
    messages: Counts = field(default_factory=lambda: np.zeros(0, np.int64))
    by_time: Counts = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    by_place: Counts = field(default_factory=lambda: np.zeros((0, 0), np.int64))

    @classmethod
    def of_range(cls, first: int | None, last: int | None, start: int, end: int) -> Timeline:
        """For messages stored from `first` to `last`, epoch ms, at physical offsets from `start` to before `end`."""
        last = min(max(last or 0, 0), MAX_TIME)
        first = first if first is not None and 0 < first <= last else last  # of nonsense nothing can be drawn
        span = last - first
        width = next((each for each in _WIDTHS if span // each < _MAX_BINS - 1), _WIDTHS[-1])
        begin = first // width * width
        bins = min(_MAX_BINS, (first + span - begin) // width + 1)
        return cls(begin, width, bins, start, max(1, -(-(end - start) // PIECES)))

    def add(self, frames: RecordRun) -> None:
        """Count the messages of a run."""
        (batch,) = record_batches(frames, ("topic",))
        encoded = batch.column(0).dictionary_encode()
        codes = np.asarray(encoded.indices).astype(np.int64)
        rows = np.array([self._row(name) for name in encoded.dictionary.to_pylist()], np.intp)
        sizes = frames.message_sizes
        stamps = np.clip(frames.headers.field("store_timestamp"), self.first, self.first + self.width * self.bins - 1)
        times = (stamps - self.first) // self.width
        np.add.at(self.messages, rows, np.bincount(codes, minlength=len(rows)))
        np.add.at(self.by_time, rows, _summed(codes, times, sizes, (len(rows), self.bins)))
        begins, sizes = frames.physical_offsets - self.start, sizes.astype(np.int64)
        while len(begins):  # one message may reach over many pieces
            places = np.clip(begins // self.piece, 0, PIECES - 1)
            parts = np.minimum(sizes, self.piece - begins % self.piece)
            np.add.at(self.by_place, rows, _summed(codes, places, parts, (len(rows), PIECES)))
            left = parts < sizes
            codes, begins, sizes = codes[left], (begins + parts)[left], (sizes - parts)[left]

    def largest(self, count: int) -> list[str]:
        """The names of the topics with most bytes, the largest first; OTHERS is none of them."""
        sums = self.by_time.sum(axis=1)
        names = sorted((name for name in self.topics if name != OTHERS), key=lambda name: -sums[self.topics[name]])
        return names[:count]

    def rows(self, counts: Counts, names: list[str]) -> Counts:
        """Rows of `by_time` or `by_place`: one of each name, then one of all other topics."""
        chosen = [self.topics[name] for name in names]
        rest = counts[: len(self.topics)].sum(axis=0) - counts[chosen].sum(axis=0)
        rows: Counts = np.vstack([counts[chosen], rest])
        return rows

    def _row(self, topic: str) -> int:
        if topic not in self.topics and len(self.topics) >= _MAX_TOPICS:
            topic = OTHERS
        row = self.topics.setdefault(topic, len(self.topics))
        if row >= len(self.messages):
            room = max(16, len(self.messages))
            self.messages = np.concatenate([self.messages, np.zeros(room, np.int64)])
            self.by_time = _grown(self.by_time, room, self.bins)
            self.by_place = _grown(self.by_place, room, PIECES)
        return row


def _summed(rows: Counts, columns: Counts, sizes: Counts, shape: tuple[int, int]) -> Counts:
    """Sums of `sizes` by row and column."""
    sums = np.bincount(rows * shape[1] + columns, sizes, shape[0] * shape[1])  # float64, exact up to 2**53
    return sums.reshape(shape).astype(np.int64)


def _grown(counts: Counts, more: int, columns: int) -> Counts:
    return np.vstack([counts.reshape(-1, columns), np.zeros((more, columns), np.int64)])
