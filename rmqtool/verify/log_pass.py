"""One pass over log and index: cut into parts, each read once and checked on the way, until all are done or time is up.

Each process checks a part at a time; what they find is merged as if one had gone over all of it (`part_result`).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from rmqtool.base.errors import UnreadableError
from rmqtool.base.limits import MemoryNeed
from rmqtool.base.mapped_files import MappedFile
from rmqtool.base.parallel import Job, WorkerPool
from rmqtool.base.paths import is_remote
from rmqtool.broker.log_walk import LogWalker
from rmqtool.clients.keys import Unreached
from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.scan.block import Blank
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import Event
from rmqtool.store.commit_log import WORTH_A_PROCESS, log_bytes, log_start
from rmqtool.store.rocksdb_queues import QueueDatabase
from rmqtool.store.splits import PART_SIZE, known_end, log_parts
from rmqtool.transaction.losses import chosen_until
from rmqtool.verify.entry_checks import EntryChecks
from rmqtool.verify.index_chains import ChainChecks
from rmqtool.verify.index_check import IndexCheck
from rmqtool.verify.index_sequence import FileUnits, IndexUnits
from rmqtool.verify.part_result import PartMerger, PartResult
from rmqtool.verify.queue_check import QueueCheck
from rmqtool.verify.read_errors import INDEX_UNREAD, UnreadExtent, UnreadFiles, WrittenEnd, scan_live, scan_readable
from rmqtool.verify.record_checks import DamageChecks, RecordChecks
from rmqtool.verify.saved_progress import SavedProgress
from rmqtool.verify.task import (
    AnyPart,
    Companion,
    EarlyEnd,
    EventReader,
    IndexPart,
    LogPart,
    StoreReader,
    VerifyRequest,
    VerifyTask,
)

_SMALL_PART = 4 << 20  # bytes: where only some parts are checked, many small ones stand for more of the log
_LOG_PER_QUEUE = 8 << 10  # bytes of a part at least: each part opens and compares each of its queues


def parts_of(
    reader: StoreReader, request: VerifyRequest, queues: int, read_errors: UnreadFiles, *, is_some: bool
) -> list[AnyPart]:
    """Parts of the log, then of the index; the same for any number of processes unless a broker writes.

    So many `queues` are known; with `is_some` a run may end before all parts are checked.
    """
    task, files = reader.task, reader.files
    size = min(request.part_size, _SMALL_PART) if is_some else request.part_size
    if task.live:
        of_log = _live_parts(files, reader.index, is_whole=request.jobs == 1 and not is_some)
    else:
        is_default = not is_some and request.part_size == PART_SIZE
        least = _LOG_PER_QUEUE * queues if is_default and task.listed is not None else 0
        of_log = _with_index(
            log_parts(files, reader.reading, max(size, least), even=is_some), reader.index, read_errors
        )
    return [*of_log, *_index_parts(task.index_files, size)]


def _with_index(parts: Sequence[tuple[int, int]], units: IndexUnits, read_errors: UnreadFiles) -> list[LogPart]:
    """Parts of the log that meet and cover all of it, each with the number of its first index unit."""
    firsts = [INDEX_UNREAD] * len(parts)
    with read_errors.scope():
        firsts = [0, *(units.first_from(start) for start, _ in parts[1:])]
    return [LogPart(start, stop, first) for (start, stop), first in zip(parts, firsts, strict=True)]


def _live_parts(files: Sequence[MappedFile], units: IndexUnits, *, is_whole: bool) -> list[LogPart]:
    """One part, or one for each file: a growing log has no other fixed borders."""
    starts = [file.start_offset for file in files] if not is_whole and len(files) > 1 else [0]
    firsts = [0, *(units.first_from(start) for start in starts[1:]), units.total]
    ends = [*starts[1:], MAX_OFFSET]
    return [
        LogPart(start, end, first, max(first, stop))
        for start, end, first, stop in zip(starts, ends, firsts[:-1], firsts[1:], strict=True)
    ]


def _index_parts(files: Sequence[FileUnits], least: int = PART_SIZE) -> list[IndexPart]:
    """The parts of the index: small files are checked together."""
    parts: list[IndexPart] = []
    first = size = 0
    for stop, file in enumerate(files, 1):
        size += file.file.size
        if size >= least or stop == len(files):
            parts.append(IndexPart(first, stop))
            first, size = stop, 0
    return parts


def order_of(parts: Sequence[AnyPart]) -> list[int]:
    """The order in which the parts are begun, by their indices.

    Index files go before the log: one can be the longest part of all, and the other processes would wait for it. The
    log's parts are begun in their order, so that few results wait to be merged.
    """
    return sorted(range(len(parts)), key=lambda number: isinstance(parts[number], LogPart))


def order_of_one_process(parts: Sequence[AnyPart], files: Sequence[FileUnits], numbers: Sequence[int]) -> list[int]:
    """The order in which one process does the parts with these indices.

    Index files come after the parts of the log that read their units, which are not read again then.
    """

    def place(number: int) -> tuple[int, bool]:
        part = parts[number]
        if isinstance(part, LogPart):
            return number, True
        end = files[part.stop - 1].start + files[part.stop - 1].units
        return sum(isinstance(each, LogPart) and each.index_start < end for each in parts), False

    return sorted(numbers, key=place)


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
                    count = self._reader.lookups.keys_of_hash  # a unit that is reached gives all keys of its hash
                    keys = [key for key in dict.fromkeys(chains.unreached) for _ in range(count(*key))]
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


_SAVED_EVERY = 30.0  # seconds
_SAVING_SHARE = 20  # times as long as it takes
_GOLDEN_RATIO = (5**0.5 - 1) / 2


class PartRun:
    """One run over the parts that are not done yet; `ended_by` is why some are left, None when none is."""

    def __init__(
        self,
        task: VerifyTask,
        parts: Sequence[AnyPart],
        request: VerifyRequest,
        saved: SavedProgress | None,
        companion: Companion | None = None,
    ) -> None:
        """`saved` has the results of earlier runs; the `companion` of the task takes its own."""
        self.ended_by: EarlyEnd | None = None
        self.merger = (saved and saved.merger) or PartMerger(parts, PartResult(task.report()))
        self._task = task
        self._parts = parts
        self._saved = saved
        self._companion = companion
        self._time_limit = inf if request.time_limit is None else request.time_limit  # seconds
        self._end = known_end(task.files, task.reading())
        left = [number for number in order_of(parts) if number not in self.merger.done]
        self._order = left if request.sample is None else self._sample(left, request.sample)
        self._is_whole = len(self._order) == len(left)

    def run(
        self, progress: Callable[[int], None], pool: WorkerPool[Any], jobs: int, database: QueueDatabase | None = None
    ) -> None:
        """Check parts in up to `jobs` processes; `progress` is called with how many more bytes are done.

        `database` has the queues, where it is open already, and may be read while parts are checked.
        Ctrl-C keeps what was found in the parts that were not ended. Raises RmqtoolError.
        """
        progress(sum(self._sizes(self.merger.done)))
        pool.grow(min(jobs, len(self._order)) - 1)
        is_alone = pool.is_alone and self._is_whole
        if is_alone:
            self._order = order_of_one_process(self._parts, self._task.index_files, self._order)
        check = PartCheck(self._task, self._parts, is_alone=is_alone, database=database)
        pool.begin(partial(PartCheck, self._task, self._parts), self._order, check)
        with closing(check):
            try:
                self._run(progress, pool, check)
            except KeyboardInterrupt:
                self._stop(pool)
                raise
            except BaseException:
                self._save()
                raise

    def _run(self, progress: Callable[[int], None], pool: WorkerPool[Any], check: PartCheck) -> None:
        begun = time.monotonic()
        next_save = begun + _SAVED_EVERY
        for step in pool.steps():
            if isinstance(step.result, PartResult):
                self.merger.add(step.part, step.result)
                if self._is_whole:  # a part that is left out has no neighbours to be checked with
                    self._merge(check)
            elif step.result is not None and self._companion:
                self._companion.add(step.part, step.result)
            if step.size:
                progress(step.size)
            if time.monotonic() - begun >= self._time_limit:
                self.ended_by = "time-limit"
                self._stop(pool)
                return
            if self._saved and time.monotonic() >= next_save:
                next_save = self._save()
        if self._is_whole:
            self._merge(check)
        else:
            self.ended_by = "sample"
            self._save()

    def _merge(self, check: PartCheck) -> None:
        while (part := self.merger.merge()) is not None:
            self.merger.replace(part, check.recheck(part))

    def _stop(self, pool: WorkerPool[Any]) -> None:
        """End all parts where they are: what was found in them counts now, and they begin again next time."""
        self._save()
        for step in pool.stop():
            if isinstance(step.result, PartResult):
                self.merger.keep(step.part, step.result)

    def _save(self) -> float:
        """Save the results of whole parts, where that was asked for; the time for doing it again."""
        begun = time.monotonic()
        if self._saved:
            self._saved.save(self.merger)
        now = time.monotonic()
        return now + max(_SAVED_EVERY, _SAVING_SHARE * (now - begun))

    def _sample(self, left: Sequence[int], share: float) -> list[int]:
        """Some of the parts `left`, spread over them: this share of the bytes of the log, and of those of the index."""
        of_log = [number for number in left if isinstance(self._parts[number], LogPart)]
        of_index = [number for number in left if not isinstance(self._parts[number], LogPart)]
        every = range(len(self._parts))
        log_size = sum(self._sizes(number for number in every if isinstance(self._parts[number], LogPart)))
        index_size = sum(self._sizes(every)) - log_size
        return [*self._spread(of_index, share * index_size), *self._spread(of_log, share * log_size)]

    def _spread(self, numbers: Sequence[int], size: float) -> list[int]:
        """As few of the parts as have `size` bytes, at least one.

        Multiples of the golden ratio lie evenly between whole numbers, however many are taken.
        """
        begin, chosen = random.random(), list[int]()
        for place in sorted(range(len(numbers)), key=lambda place: (begin + place * _GOLDEN_RATIO) % 1):
            if not chosen or size > 0:
                chosen.append(numbers[place])
                size -= sum(self._sizes(chosen[-1:]))
        return sorted(chosen)

    def _sizes(self, numbers: Iterable[int]) -> Iterator[int]:
        """Bytes of data of the log, or of index files, in each of these parts."""
        for number in numbers:
            part = self._parts[number]
            if isinstance(part, LogPart):
                yield max(0, min(part.stop, self._end) - max(part.start, log_start(self._task.files)))
            else:
                yield sum(each.file.size for each in self._task.index_files[part.first : part.stop])


VERIFY_NEED = MemoryNeed(least=170, usual=200, further_least=40, further_usual=65)


def workers_for(store: Path, jobs: int) -> WorkerPool[Any]:
    """As many processes as the size of the log calls for, besides this one."""
    if is_remote(store):
        return WorkerPool(may_copy=False)  # threads of its file system would be missing in a copy
    return WorkerPool(min(jobs - 1, log_bytes(store) // WORTH_A_PROCESS if jobs > 1 else 0))
