"""Where each queue begins and ends after a start, as predicted, against what a broker answers and leaves on disk.

A queue that is written twice has two ranges: the broker answers with that of the files or that of the rows, as it
reads the ones or the others. Those of a batch queue differ: a row is at the first offset of its batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rmqtool.broker.prediction import StartPrediction
from rmqtool.store.consume_queues import queue_in
from rmqtool.store.queue_units import find_queue, queue_range
from rmqtool.store.snapshot import Snapshot

Name = tuple[str, int]
"""Topic and queue id."""
Range = tuple[int, int]
"""Minimum and maximum offset."""


@dataclass(frozen=True)
class PredictedRanges:
    """The ranges of queues in files, and of those in RocksDB, after a start."""

    in_files: Mapping[Name, Range]
    in_rows: Mapping[Name, Range]

    @classmethod
    def of(cls, before: Snapshot, start: StartPrediction | None) -> PredictedRanges:
        """Those on disk `before` the start, but for queues that it changes."""
        rows = before.database.lasts if before.database else ()
        names = {(queue.topic, queue.queue_id) for queue in before.queues} | {*rows}
        both = []
        for in_rocksdb in (False, True):
            left = {name: found for name in names if (found := range_on_disk(before, name, in_rocksdb=in_rocksdb))}
            changed = {
                (change.topic, change.queue_id): (change.min_offset, change.max_offset)
                for change in (start.queues if start else ())
                if change.in_rocksdb == in_rocksdb
            }
            both.append(left | changed)
        return cls(*both)

    def compared(
        self, after: Snapshot, answers: Mapping[Name, Range]
    ) -> Iterator[tuple[Name, Range | None, Range | None]]:
        """Each queue with its real range and the predicted one.

        Of what is read the real one is the broker's answer: units in files that a start cuts stay on disk. Of what is
        not read it is the one on disk `after` the start.
        """
        for name in sorted(answers.keys() | self.in_files.keys() | self.in_rows.keys()):
            loaded = after.queue(*name)
            reads_rows = loaded is not None and loaded.queue.database is not None
            for in_rocksdb, predicted in ((False, self.in_files.get(name)), (True, self.in_rows.get(name))):
                if in_rocksdb == reads_rows and name in answers:
                    yield name, answers[name], predicted
                elif in_rocksdb != reads_rows:
                    yield name, range_on_disk(after, name, in_rocksdb=in_rocksdb), predicted


def range_on_disk(snapshot: Snapshot, name: Name, *, in_rocksdb: bool) -> Range | None:
    """The range of a queue by its files, or by its rows; None without any."""
    if in_rocksdb:
        database = snapshot.database
        queue = queue_in(database, *name) if database and database.last_of(name) else None
    else:
        queue = None if snapshot.store.reads_only_rocksdb else find_queue(snapshot.store, *name)
    if queue is None:
        return None
    found = queue_range(queue, snapshot.log_min_offset, snapshot.release)
    return found.min_offset, found.max_offset
