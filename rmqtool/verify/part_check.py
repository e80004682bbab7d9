"""One part of the log: scanned once, and compared with the queues and the index on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from rmqtool.base.errors import UnreadableError
from rmqtool.base.worker import Job
from rmqtool.broker.log_walk import LogWalker
from rmqtool.clients.keys import Unreached
from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.scan.block import Blank
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import Event
from rmqtool.store.rocksdb_queues import QueueDatabase
from rmqtool.transaction.losses import chosen_until
from rmqtool.verify.damage_checks import DamageChecks
from rmqtool.verify.entry_checks import EntryChecks
from rmqtool.verify.index_chains import ChainChecks
from rmqtool.verify.index_check import IndexCheck
from rmqtool.verify.part_result import PartResult
from rmqtool.verify.queue_check import QueueCheck
from rmqtool.verify.read_errors import INDEX_UNREAD, UnreadExtent, WrittenEnd, scan_live, scan_readable
from rmqtool.verify.record_checks import RecordChecks
from rmqtool.verify.task import AnyPart, EventReader, LogPart, StoreReader, VerifyTask


class PartCheck(Job[Any]):
    """Checks parts, one after the other, in one process; its results are a PartResult, and those of a companion."""

    def __init__(
        self,
        task: VerifyTask,
        parts: Sequence[AnyPart],
        *,
        is_alone: bool = False,
        database: QueueDatabase | None = None,
    ) -> None:
        """`parts` are all parts of the verification, which `do` addresses by their index.

        A process that checks all of them, `is_alone`, reads index units once: for the log and for their chains.
        `database` has the queues, where it is open here already.
        """
        self._task = task
        self._parts = parts
        self._reader = StoreReader(task, task.reading(), database)
        self._chains = ChainChecks(task)
        if is_alone:
            self._reader.index.on_read = self._chains.add
        self._unfinished: tuple[int, PartResult] | None = None

    def do(self, part: int) -> Iterator[tuple[int, Any]]:
        """Check one part; raises UnreadableError."""
        result = PartResult(self._task.report())
        self._unfinished = part, result
        yield from self._check(self._parts[part], result, self._task.companion)
        self._unfinished = None
        yield 0, result

    def unfinished(self) -> tuple[int, PartResult] | None:
        """The part that is being checked, and its result so far."""
        return self._unfinished

    def recheck(self, part: LogPart) -> PartResult:
        """Check a part with other borders, whose bytes were checked before; raises UnreadableError."""
        result = PartResult(self._task.report())
        for _ in self._check(part, result):
            pass
        return result

    def close(self) -> None:
        """Close what was opened."""
        self._reader.close()

    def _check(
        self, part: AnyPart, result: PartResult, companion: Callable[[], EventReader] | None = None
    ) -> Iterator[tuple[int, Any]]:
        """Check one part; yields how many more bytes are done, and what a companion has derived."""
        if isinstance(part, LogPart):
            yield from self._check_log(part, result, companion and companion())
            return
        for index_file in self._task.index_files[part.first : part.stop]:
            with result.read_errors.scope():
                chains = self._chains.take(index_file)
                for size in chains.run(self._reader.reading, result.report):
                    yield size, None
                result.suspects.doubted |= chains.doubted
                if chains.unreached:
                    keys = [key for key in chains.unreached if self._reader.lookups.is_key(*key)]
                    result.keys.unreached[index_file.file.path] = Unreached(keys, chains.unreached_step)

    def _check_log(self, part: LogPart, result: PartResult, other: EventReader | None) -> Iterator[tuple[int, Any]]:
        if self._task.live:
            self._reader.queues.clear()
        result.reached.append([part.start, part.start])
        result.extents.chosen_until = chosen_until(self._reader.store.root)
        files, reading = self._task.files, self._reader.reading
        end = WrittenEnd(files, reading) if self._task.live else None
        scan = scan_live(end, part.start, part.stop) if end else scan_readable(files, part.start, part.stop, reading)
        try:
            check = _LogCheck(self._reader, part, result)
            for event in scan:
                if not check.add(event):
                    break
                yield event.size, None if other is None or isinstance(event, UnreadExtent) else other.add(event)
            if other:
                yield 0, other.rest()
            check.finish()
            # A file may become full only after this: the next part, which is read later, then begins with a gap.
            is_all = end is None or part.stop == MAX_OFFSET or end.found >= part.stop
            result.reached[-1][1] = part.stop if is_all or end is None else max(part.start, end.found)
        except UnreadableError as error:
            if not self._task.live:
                raise
            result.unread = str(error)  # a running broker deletes files


class _LogCheck:
    """Passes the events of a scan to all checks."""

    def __init__(self, reader: StoreReader, part: LogPart, result: PartResult) -> None:
        self._part = part
        self._result = result
        self._boundary = result.boundary
        self._boundary.index_start = self._boundary.index_at = part.index_start
        task = self._task = reader.task
        report, extents = result.report, result.extents
        self._dispatcher = task.dispatcher()
        self._records = RecordChecks(report, extents, task.version, task.bodies, result.totals)
        self._entries = EntryChecks(report, task.unread_units)
        self._damage = DamageChecks(reader.store, task.files, report, extents, task.version)
        self._queues = QueueCheck(reader, result, self._dispatcher) if task.queues else None
        rules = task.recovery
        self._walker = LogWalker(task.files, rules, part.start, part.stop) if rules is not None else None
        self._index: IndexCheck | None = None
        if task.index and part.index_start != INDEX_UNREAD:
            self._index = IndexCheck(reader, result, part.index_start, part.index_stop)

    def add(self, event: Event | UnreadExtent) -> bool:
        """Check one event; returns whether the log goes on after it."""
        goes_on = self._check_event(event)
        self._result.reached[-1][1] = self._boundary.end or self._part.start
        return goes_on

    def _check_event(self, event: Event | UnreadExtent) -> bool:
        if self._boundary.first is None:
            self._boundary.first = event.begin if isinstance(event, RecordRun) else event.physical_offset
        if isinstance(event, RecordRun):
            if self._damage.are_stale_records(event, self._result.totals.last_timestamp):
                self._result.stale_from = self._damage.report_stale_records(event.physical_offset)
                return False
            self._damage.settle()
            self._frames(event)
            self._boundary.end = self._result.log_end
            return True
        if isinstance(event, UnreadExtent):
            self._leave_out(event)
            return True
        self._damage.settle()
        self._boundary.end = event.physical_offset + event.size
        if isinstance(event, Blank):
            self._damage.blank(event)
        else:
            self._damage.damage(event)
            self._boundary.open_start |= not self._result.totals.messages and self._damage.may_end_the_log()
        if self._walker is not None:
            self._walker.feed(event)
        return True

    def _leave_out(self, unread: UnreadExtent) -> None:
        """Skip an unread extent: units that point into it are neither right nor wrong."""
        self._damage.settle()
        stop = self._boundary.end = self._result.log_end = unread.physical_offset + unread.size
        self._result.add_unread(unread)
        if self._walker is not None:
            self._walker.leave_out(unread.physical_offset)
        if self._index is not None:
            self._check_index(lambda check: check.leave_out(stop))

    def _frames(self, frames: RecordRun) -> None:
        dispatched = self._dispatcher.dispatch(frames)
        suspects = self._records.add(frames, dispatched)
        not_whole = np.append(suspects, np.array(self._records.undecodable, np.intp))
        with self._result.read_errors.scope():  # of their index
            self._entries.add(frames)
        if self._walker is not None:
            self._walker.feed(frames, suspects)
        self._damage.frames(frames)
        self._result.log_end = frames.physical_offset + frames.size
        if self._queues is not None:
            self._queues.add(dispatched.units, dispatched.optional_units)
            if len(not_whole):
                self._queues.damage(dispatched.units[np.isin(dispatched.units.rows, not_whole)])
        if self._index is not None:
            self._check_index(lambda check: check.add(dispatched.keys, frames, not_whole))

    def _check_index(self, work: Callable[[IndexCheck], None]) -> None:
        """Do some of the comparison with the index, which ends at an error."""
        errors = len(self._result.read_errors.errors)
        with self._result.read_errors.scope() if not self._task.live else nullcontext():
            if self._index is not None:
                work(self._index)
        if len(self._result.read_errors.errors) > errors:
            self._index = None
            self._boundary.index_at = INDEX_UNREAD

    def finish(self) -> None:
        """Complete the checks at the end of the part."""
        self._boundary.open_end = self._damage.may_end_the_log()
        self._damage.settle()
        if self._walker is not None:
            self._result.walks = self._walker.finish()
        if self._queues is not None:
            self._queues.flush()
        if self._index is not None:
            self._boundary.index_at = self._index.at
            if self._part.index_stop is not None:
                end = (self._result.log_end or self._part.start) if self._part.stop == MAX_OFFSET else None
                self._check_index(lambda check: check.finish(end))
