"""All files carved: one after the other, or by several processes, each of which takes the next file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from rmqtool.base.files import RateLimit, ReadPolicy
from rmqtool.base.parallel import MAX_PARTS, WorkerPool
from rmqtool.base.worker import Job
from rmqtool.salvage.carve import Progress
from rmqtool.salvage.extents import Extents
from rmqtool.salvage.inputs import Input
from rmqtool.salvage.sources import Sources


class Carved(NamedTuple):
    """What proves itself in a file, and the positions of its pages that could not be read, bytes."""

    number: int
    extents: Extents
    unread: set[int]


@dataclass(frozen=True)
class CarvingTask:
    """The files to carve; can be sent to another process. With `topics` odd records are marked."""

    files: Sequence[Input]
    file_size: int
    reading: ReadPolicy
    topics: frozenset[str] | None


class _Carving(Job[Carved]):
    """Carves every n-th file for a part of n."""

    def __init__(self, task: CarvingTask, parts: int) -> None:
        self._task = task
        self._parts = parts

    def do(self, part: int) -> Iterator[tuple[int, Carved | None]]:
        """Carve the files of a part; raises UnreadableError."""
        task = self._task
        with Sources(task.files, task.file_size, task.reading) as sources:
            for file in task.files[part :: self._parts]:
                extents = sources.carve(file.number, topics=task.topics)
                yield file.size, Carved(file.number, extents, sources.unread(file.number))


def carve_all(task: CarvingTask, jobs: int, sources: Sources, progress: Progress) -> list[Extents]:
    """What proves itself in each file, by its number; `progress` gets the bytes that are done since the last call.

    What several `jobs` (processes) could not read is added to `sources`.
    """
    jobs = min(jobs, len(task.files))
    if jobs < 2:
        return [sources.carve(file.number, progress, task.topics) for file in task.files]
    limit = task.reading.rate_limit
    if limit:
        slower = RateLimit(max(1, limit.bytes_per_second // jobs))
        task = replace(task, reading=replace(task.reading, rate_limit=slower))
    found: dict[int, Extents] = {}
    parts = min(len(task.files), MAX_PARTS)
    make = partial(_Carving, task, parts)
    with WorkerPool[Carved](jobs - 1) as pool:
        pool.begin(make, range(parts), make())
        for step in pool.steps():
            progress(step.size)
            if step.result is not None:
                found[step.result.number] = step.result.extents
                sources.add_unread(step.result.number, step.result.unread)
    return [found[file.number] for file in task.files]
