"""How many messages of a tiered queue consumers no longer get, though log, entries or metadata show that they did."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.files import OpenFiles
from rmqtool.broker.tiered_reads import TieredConsumer, TieredReads
from rmqtool.formats.consume_queue import UNIT_SIZE
from rmqtool.rules.system_topics import is_read_by_tag
from rmqtool.rules.versions import TIER_REWRITTEN
from rmqtool.scan.frames import RecordRun
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.tiered import Level, Tier, TieredQueue, are_of, is_tier_read, level_of
from rmqtool.store.unit_files import open_units

_PIECE = 1 << 16  # units that are read at once


class TieredLosses:
    """The messages of one queue, in the tier and in the local store: those that were there, and those still served.

    A message counts that comes damaged. Of a queue on which all pulls fail at an offset all that follows is lost.
    """

    def __init__(self, snapshot: Snapshot, tier: Tier, queue: TieredQueue) -> None:
        self._snapshot, self._tier, self._queue = snapshot, tier, queue
        local = snapshot.queue(queue.topic, queue.queue_id)
        self._local = local.range.held if local else range(0)
        spans = [span for span in (*self._unit_spans, self._local) if span]
        self._first = min((span.start for span in spans), default=0)
        self._had = np.zeros(max((span.stop for span in spans), default=0) - self._first, np.bool_)
        self._records = 0
        self._damaged, self._wrong_tags = np.zeros(0, np.int64), np.zeros(0, np.int64)

    @cached_property
    def _unit_spans(self) -> list[range]:
        """Queue offsets of the segments of units that are there, and of those of the metadata next to them."""
        rows = self._tier.rows(self._queue, "CONSUME_QUEUE")
        files = {file.start_offset: file.size for file in self._queue.units}
        spans = {base: base + min(size, rows[base].size if base in rows else size) for base, size in files.items()}
        missing = {base: base + row.size for base, row in rows.items() if base not in files}
        while missing:
            borders = {*spans, *spans.values()}
            near = {base: end for base, end in missing.items() if not spans or borders & {base, end}}
            if not near:
                break
            spans |= near
            missing = {base: end for base, end in missing.items() if base not in near}
        limit = self._local.stop if self._local else max(spans.values(), default=0)
        found = [range(base // UNIT_SIZE, min(end // UNIT_SIZE, limit)) for base, end in sorted(spans.items())]
        held, kept = [span for span in found if span], list[range]()
        for span in held:  # a name may be any: what is far away takes no memory
            if kept and span.start - kept[-1].stop > sum(map(len, held)):
                break
            kept.append(span)
        return kept

    def note(self, run: RecordRun, is_own: NDArray[np.bool_]) -> None:
        """Note the records of a run that are of the queue, and whole."""
        numbers = run.headers.field("queue_offset").astype(np.int64)[is_own]
        self._records += len(numbers)
        rows = numbers - self._first
        rows = rows[(rows >= 0) & (rows < len(self._had) + self._records)]  # a damaged one takes no memory
        if len(rows):
            lacking = int(rows.max()) + 1 - len(self._had)
            if lacking > 0:
                self._had = np.concatenate([self._had, np.zeros(lacking + len(self._had) // 2, np.bool_)])
            self._had[rows] = True

    def note_damaged(self, queue_offsets: Sequence[int]) -> None:
        """Note messages whose records are damaged, which is not seen by their checksums."""
        self._damaged = np.array(queue_offsets, np.int64)

    def note_wrong_tags(self, queue_offsets: Sequence[int]) -> None:
        """Note messages whose units have the hash of another tag, by which a broker filters."""
        self._wrong_tags = np.array(queue_offsets, np.int64)

    def hidden(self, *, is_deleted: bool) -> int:
        """How many local messages FORCE hides: a broker looks for them in the tier, which begins after them."""
        if not self._is_forced or not self._is_known:
            return 0
        with closing(OpenFiles(self._snapshot.reading)) as open_files:
            return len(range(self._local.start, self._begin(self._reads(open_files), is_deleted=is_deleted)))

    def _begin(self, reads: TieredReads, *, is_deleted: bool) -> int:
        """Where a consumer of a tier that is read by FORCE begins, in the local queue at most.

        A tier that has nothing, or that the first dispatch deletes, begins with messages that are not there yet.
        """
        return self._local.stop if is_deleted or reads.max_offset <= 0 else min(reads.min_offset, self._local.stop)

    def _reads(self, open_files: OpenFiles) -> TieredReads:
        return TieredReads.of(self._tier, self._queue, self._snapshot.release, open_files)

    def count(self, *, is_lost: bool) -> tuple[int, int]:
        """How many messages consumers do not get, and how many others those of their tag do not get.

        With `is_lost` a start forgets or deletes the tier of the queue. Those that are `hidden` count, too.
        """
        had = self._had.copy()
        for span in self._unit_spans:
            had[span.start - self._first : span.stop - self._first] = True
        had[: max(0, self._first_served - self._first)] = False
        if self._local:
            had[self._local.start - self._first : self._local.stop - self._first] = True
        served = self._served(len(had), is_lost=is_lost)
        missed = 0 if is_lost else self._missed_by_tag(served)
        return int(np.count_nonzero(had & ~served)), missed

    def _missed_by_tag(self, served: NDArray[np.bool_]) -> int:
        """Up to 5.2 clients alone filter what comes from the tier; local units are compared elsewhere."""
        if self._snapshot.release < TIER_REWRITTEN or not is_read_by_tag(self._queue.topic):
            return 0
        is_local = (self._wrong_tags >= self._local.start) & (self._wrong_tags < self._local.stop)
        rows = (self._wrong_tags if self._is_forced else self._wrong_tags[~is_local]) - self._first
        return int(np.count_nonzero(served[rows[(rows >= 0) & (rows < len(served))]]))

    @cached_property
    def _first_served(self) -> int:
        """The first message of the log, before which units have expired."""
        begin = min(self._log_bases, default=0)
        if not begin:
            return self._first
        with open_units(self._queue.queue, self._snapshot.reading) as units:
            for file in self._queue.units:
                for index in range(0, units.room_of(file), _PIECE):
                    places = units.units_in(file, index, _PIECE)["physical_offset"]
                    if len(rows := np.flatnonzero(places == begin)):
                        return file.start_offset // UNIT_SIZE + index + int(rows[0])
        noted = np.flatnonzero(self._had)
        return self._first + (int(noted[0]) if len(noted) else 0)

    @property
    def _log_bases(self) -> set[int]:
        """Where segments of the log begin, of which others follow those that only the metadata have."""
        rows, files = self._tier.rows(self._queue, "COMMIT_LOG"), {file.start_offset for file in self._queue.log}
        return files | {base for base, row in rows.items() if base + row.size in files or not files}

    def _served(self, size: int, *, is_lost: bool) -> NDArray[np.bool_]:
        """By queue offset from the first on what a consumer gets that begins with the first message.

        With `tieredStorageLevel=FORCE` it gets nothing of the local queue that is before the tier's first message; what
        is after its last is uploaded.
        """
        served, local_begin = np.zeros(size, np.bool_), self._local.start
        if is_lost and self._is_forced and self._is_known:
            return served
        if not is_lost and self._is_known and is_tier_read(self._snapshot.store):
            with closing(OpenFiles(self._snapshot.reading)) as open_files:
                reads = self._reads(open_files)
                consumer = self._consume(reads, served)
                if consumer.is_stuck:
                    return served
                if self._is_forced:
                    local_begin = max(self._begin(reads, is_deleted=False), consumer.queue_offset)
                elif reads.min_offset < local_begin:
                    local_begin = max(local_begin, consumer.queue_offset)
        if self._local:
            served[local_begin - self._first : self._local.stop - self._first] = True
        return served

    def _consume(self, reads: TieredReads, served: NDArray[np.bool_]) -> TieredConsumer:
        """A consumer that has read the tier to its end, or to the local queue, with what it got in `served`."""
        consumer = TieredConsumer(reads, reads.min_offset, self._local)
        is_joined = bool(self._local) and not self._is_forced
        for run in consumer.pull(min(reads.max_offset, self._local.start) if is_joined else reads.max_offset):
            is_right = are_of(run, self._queue.topic, self._queue.queue_id) & ~run.wrong_bodies
            numbers = run.headers.field("queue_offset").astype(np.int64)[is_right]
            rows = np.setdiff1d(numbers, self._damaged) - self._first
            served[rows[(rows >= 0) & (rows < len(served))]] = True
        for part in consumer.from_local:
            served[part.start - self._first : part.stop - self._first] = True
        return consumer

    @property
    def _is_known(self) -> bool:
        return self._tier.is_known(self._queue, self._snapshot.release)

    @property
    def _is_forced(self) -> bool:
        return level_of(self._snapshot.store) is Level.FORCE
