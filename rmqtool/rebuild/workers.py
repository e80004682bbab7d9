"""A pass over the log in several processes: each reads pieces of the log, which are put together in order.

What comes of a piece does not depend on those before it, so the whole is the same whoever reads it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from rmqtool.base.files import RateLimit
from rmqtool.base.limits import memory_is_short
from rmqtool.base.mapped_files import MappedFile
from rmqtool.base.parallel import MAX_PARTS, WorkerPool
from rmqtool.base.worker import Job
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.rebuild.run_result import Item, PassNumbers, Renumbering, RunReader, RunTask, packed, unpacked

_SMALLEST_PIECE, _LARGEST_PIECE = 64 << 20, 256 << 20  # a scan that begins in the middle reads 8 MiB before it too
_USUAL_PIECES = 16  # of a log: the last process that works has no more than one of them to do
_MOST_AHEAD = (8 if memory_is_short() else 128) << 20  # bytes of the log that this process reads before their turn


class PiecesDoNotMeetError(Exception):
    """A piece does not begin where the one before it has ended: bytes look like a record that are none."""


def pieces_of(files: Sequence[MappedFile], size: int | None = None) -> list[tuple[int, int]]:
    """The log in pieces of about `size` bytes: physical offsets, the end exclusive."""
    if not files:
        return []
    total = sum(file.size for file in files)
    usual = min(max(total // _USUAL_PIECES, _SMALLEST_PIECE), _LARGEST_PIECE)
    size = max(size or usual, total // MAX_PARTS)
    places = {files[0].start_offset}
    for file in files:
        places.update(range(file.start_offset, file.end_offset, size))
    end, borders = files[-1].end_offset, [files[0].start_offset]
    borders.extend(place for place in sorted(places) if place - borders[-1] >= size and end - place >= size // 2)
    return list(zip(borders, [*borders[1:], end], strict=True))


class _ReadPieces(Job[tuple[Item, list[QueueName]]]):
    """Reads pieces; each result is an item, and the queues that this process has met since the last one."""

    def __init__(self, task: RunTask, pieces: Sequence[tuple[int, int]]) -> None:
        self._reader = RunReader(task)
        self._pieces = pieces

    def do(self, part: int) -> Iterator[tuple[int, tuple[Item, list[QueueName]]]]:
        for item in self._reader.items(*self._pieces[part]):
            yield item.size, (packed(item), self._reader.new_queues())


def items_of_processes(
    task: RunTask, numbers: PassNumbers, pieces: Sequence[tuple[int, int]], jobs: int
) -> Iterator[Item]:
    """All items of the log in order. Raises PiecesDoNotMeetError, and what a process raises."""
    jobs = min(jobs, len(pieces))
    limit = task.reading.rate_limit
    if limit:
        slower = RateLimit(max(1, limit.bytes_per_second // jobs))
        task = replace(task, reading=replace(task.reading, rate_limit=slower))
    make = partial(_ReadPieces, task, pieces)
    renumberings: dict[int, Renumbering] = defaultdict(partial(Renumbering, numbers))  # of each process
    end = None
    with WorkerPool[tuple[Item, list[QueueName]]](jobs - 1) as pool:
        pool.begin(make, range(len(pieces)), make())
        for step in pool.steps_in_order(_MOST_AHEAD):
            if step.result is None:
                continue
            item, queues = step.result
            if end not in (None, item.physical_offset):
                raise PiecesDoNotMeetError
            end = item.physical_offset + item.size
            yield renumberings[step.worker].apply(unpacked(item), queues)
