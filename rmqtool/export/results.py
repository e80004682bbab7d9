"""The result of writing one split, and the totals of many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rmqtool.export.sink import DataFile
from rmqtool.scan.block import Damage
from rmqtool.store.message_reader import ReadCounts

if TYPE_CHECKING:
    from typing_extensions import Self

MAX_SKIPPED = 10_000
"""Damaged extents of a run that are kept one by one; all are counted, and all are in the side table."""


@dataclass
class QueueSums:
    """Sums of a queue's rows; queue offsets are the smallest and the largest, sizes in bytes."""

    rows: int = 0
    queue_offset_first: int | None = None
    queue_offset_last: int | None = None
    message_bytes: int = 0
    body_crc_sum: int = 0

    def merge(self, other: QueueSums) -> None:
        """Add the sums of other rows."""
        self.rows += other.rows
        self.message_bytes += other.message_bytes
        self.body_crc_sum += other.body_crc_sum
        if other.queue_offset_first is not None and other.queue_offset_last is not None:
            first, last = other.queue_offset_first, other.queue_offset_last
            self.queue_offset_first = min(first, first if self.queue_offset_first is None else self.queue_offset_first)
            self.queue_offset_last = max(last, last if self.queue_offset_last is None else self.queue_offset_last)


QueueKey = tuple[str, str, int]
"""Store, topic and queue number."""

Sums = dict[QueueKey, QueueSums]

QUEUE_KEY = ("store", "topic", "queue_id")


def queue_sums(manifest: Mapping[str, Any]) -> Sums:
    """The sums that a manifest has."""
    names = [each.name for each in fields(QueueSums)]
    return {tuple(queue[name] for name in QUEUE_KEY): QueueSums(**{name: queue[name] for name in names})
            for queue in manifest.get("queues", [])}  # fmt: skip


SUMMED_COLUMNS = ("topic", "queue_id", "queue_offset", "message_size", "body_crc")
"""The columns of a scan that sums are computed from."""

_SUMMED_BYTES = 4 << 20  # of these columns are held at most, some 80,000 rows


class Summing:
    """Sums of one store's rows; those of several batches are made at once, which costs less."""

    def __init__(self, store: str) -> None:
        self._store = store
        self._sums: Sums = {}
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch that has at least SUMMED_COLUMNS."""
        columns = batch.select(list(SUMMED_COLUMNS))
        self._batches.append(columns)
        self._bytes += columns.nbytes
        if self._bytes >= _SUMMED_BYTES:
            self._sum()

    def sums(self) -> Sums:
        """The sums of all rows that were added."""
        self._sum()
        return self._sums

    def _sum(self) -> None:
        batches, self._batches, self._bytes = self._batches, [], 0
        if not batches:
            return
        batch = pa.Table.from_batches(batches).unify_dictionaries()
        table = batch.group_by(["topic", "queue_id"], use_threads=False).aggregate(
            [
                ("queue_offset", "count"),
                ("queue_offset", "min"),
                ("queue_offset", "max"),
                ("message_size", "sum"),
                ("body_crc", "sum"),
            ]
        )  # fmt: skip
        names = ("topic", "queue_id", "queue_offset_count", "queue_offset_min", "queue_offset_max",
                 "message_size_sum", "body_crc_sum")  # fmt: skip
        for topic, queue_id, *values in zip(*(table.column(name).to_pylist() for name in names), strict=True):
            self._sums.setdefault((self._store, topic, queue_id), QueueSums()).merge(QueueSums(*values))


@dataclass
class ExportTotals(ReadCounts):
    """Counts of what was read and written of one store, or of a part of its log."""

    rows: int = 0
    skipped: list[Damage] = field(default_factory=list)
    skipped_count: int = 0
    skipped_bytes: int = 0

    @property
    def is_lossy(self) -> bool:
        """Whether something could not be read."""
        problems = (self.skipped_count, self.wrong_crc.count, self.not_decompressed.count)
        return any(problems) or bool(self.unfit) or self.decode_failures.is_lossy

    def add_damage(self, damage: Damage) -> None:
        """Count a damaged extent."""
        self.skipped_count += 1
        self.skipped_bytes += damage.size
        if len(self.skipped) < MAX_SKIPPED:
            self.skipped.append(damage)

    def merge(self, other: Self) -> None:
        """Add a part of the log after this one."""
        super().merge(other)
        self.rows += other.rows
        self.skipped += other.skipped[: MAX_SKIPPED - len(self.skipped)]
        self.skipped_count += other.skipped_count
        self.skipped_bytes += other.skipped_bytes


@dataclass
class SplitResult:
    """The result of writing one split: its number in the plan, counts, sums, and the files, still hidden."""

    split_number: int
    store: str
    totals: ExportTotals = field(default_factory=ExportTotals)
    sums: Sums = field(default_factory=dict)
    files: list[DataFile] = field(default_factory=list)
    damaged: list[DataFile] = field(default_factory=list)


def join_results(results: Sequence[SplitResult]) -> list[SplitResult]:
    """Join the results of splits that follow one another into one for each store, so that its sums are sent once."""
    joined: list[SplitResult] = []
    for result in results:
        if not joined or joined[-1].store != result.store:
            joined.append(result)
            continue
        last = joined[-1]
        last.totals.merge(result.totals)
        merge_sums(last.sums, [result.sums])
        last.files += result.files
        last.damaged += result.damaged
    return joined


def merge_sums(into: Sums, others: Iterable[Sums]) -> None:
    """Add the sums of `others` to `into`."""
    for other in others:
        for queue, sums in other.items():
            into.setdefault(queue, QueueSums()).merge(sums)
