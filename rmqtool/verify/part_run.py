"""Checks the parts of a verification, all or a sample, until they are done or the time is up."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from rmqtool.base.limits import MemoryNeed
from rmqtool.base.parallel import WorkerPool
from rmqtool.base.paths import is_remote
from rmqtool.store.commit_log import log_start
from rmqtool.store.rocksdb_queues import QueueDatabase
from rmqtool.store.splits import known_end
from rmqtool.verify.part_check import PartCheck
from rmqtool.verify.part_result import PartMerger, PartResult
from rmqtool.verify.saved_progress import SavedProgress
from rmqtool.verify.task import (
    AnyPart,
    Companion,
    EarlyEnd,
    LogPart,
    VerifyRequest,
    VerifyTask,
    order_of,
    order_of_one_process,
)

_SAVED_EVERY = 30.0  # seconds
_SAVING_SHARE = 20  # times as long as it takes
_GOLDEN_RATIO = (5**0.5 - 1) / 2


class TimeLimit:
    """So many seconds from the first look at the clock on; None: no end."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = inf if seconds is None else seconds
        self._begun: float | None = None

    def is_over(self) -> bool:
        """Whether the time is up."""
        now = time.monotonic()
        self._begun = now if self._begun is None else self._begun
        return now - self._begun >= self._seconds


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
        self._limit = TimeLimit(request.time_limit)
        self._end = known_end(task.files, task.reading())
        left = [number for number in order_of(parts) if number not in self.merger.done]
        self._order = left if request.sample is None else self._sample(left, request.sample)
        self._is_whole = len(self._order) == len(left)

    def run(
        self,
        progress: Callable[[int], None],
        pool: WorkerPool[Any],
        jobs: int,
        database: QueueDatabase | None = None,
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
        next_save = time.monotonic() + _SAVED_EVERY
        for step in pool.steps():
            if isinstance(step.result, PartResult):
                self.merger.add(step.part, step.result)
                if self._is_whole:  # a part that is left out has no neighbours to be checked with
                    self._merge(check)
            elif step.result is not None and self._companion:
                self._companion.add(step.part, step.result)
            if step.size:
                progress(step.size)
            if self._limit.is_over():
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

WORTH = 64 << 20
"""Bytes of a log that make one more process worth its start."""

_BLOCK = 512  # bytes, the unit of st_blocks


def workers_for(store: Path, jobs: int) -> WorkerPool[Any]:
    """As many processes as the size of the log calls for, besides this one."""
    size = 0
    if is_remote(store):
        return WorkerPool(may_copy=False)  # threads of its file system would be missing in a copy
    if jobs > 1:
        try:
            with os.scandir(store / "commitlog") as entries:
                size = sum(entry.stat().st_blocks * _BLOCK for entry in entries)
        except OSError:
            pass  # which is reported later
    return WorkerPool(min(jobs - 1, size // WORTH))
