"""From the log to the queues: each record that the broker dispatches has its unit, where it belongs.

Runs of units that a queue should hold are compared as bytes with what it holds. Only where they differ is a closer
look taken, unit by unit where it must be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.files import OpenFiles
from rmqtool.base.limits import memory_is_short
from rmqtool.base.mapped_files import list_mapped_files
from rmqtool.base.tolerant import skip_wrong_type
from rmqtool.broker.dispatched_record import Lookups
from rmqtool.broker.dispatched_units import QueueName, QueueUnits, group
from rmqtool.findings.report import Report
from rmqtool.store.consume_queues import UNIT_FORMATS, Kind, Queue
from rmqtool.store.unit_files import UnitFiles
from rmqtool.verify.bad_extents import Extents
from rmqtool.verify.one_queue import OneQueue
from rmqtool.verify.queue_progress import QueueProgress
from rmqtool.verify.read_errors import UnreadFiles

BATCH = (32 if memory_is_short() else 256) << 10
"""Units that are gathered before they are compared: small enough for the cache, enough for each of many queues."""

_UNITS_PER_QUEUE = 256
_MOST = (128 if memory_is_short() else 1024) << 10
_NAME_MAX = 255

FoundQueues = dict[tuple[Kind, QueueName], UnitFiles | None]
"""The files of the queues that were asked for; None for one that has none."""


class QueueCheck:
    """Compares the units of one part of the log, in log order."""

    def __init__(
        self, root: Path, report: Report, extents: Extents, open_files: OpenFiles, lookups: Lookups,
        is_batch: Callable[[str], bool], *, live: bool, found: FoundQueues, read_errors: UnreadFiles,
    ) -> None:  # fmt: skip
        """`found` keeps the files of each queue from part to part."""
        self.states: dict[QueueName, QueueProgress] = {}
        self._root = root
        self._report = report
        self._extents = extents
        self._open = open_files
        self._lookups = lookups
        self._is_batch = is_batch
        self._live = live
        self._found = found
        self._read_errors = read_errors
        self._parts: list[QueueUnits] = []
        self._waiting = 0
        self._queues: dict[int, OneQueue] = {}

    def add(self, units: QueueUnits, names: Sequence[QueueName], optional: QueueUnits | None = None) -> None:
        """Take the units of a run, and those `optional` ones that are stored; `names` are the queues by number."""
        if optional is not None:
            units = self._with_stored(units, optional, names)
        if not len(units):
            return
        self._parts.append(units)
        self._waiting += len(units)
        if self._waiting >= min(max(BATCH, _UNITS_PER_QUEUE * len(names)), _MOST):
            self.flush(names)

    def _with_stored(self, units: QueueUnits, optional: QueueUnits, names: Sequence[QueueName]) -> QueueUnits:
        """`units` with the `optional` ones that their queue holds: what only older releases derive may be missing."""
        stored = optional.as_consume_queue().view("V20")
        held = np.zeros(len(optional), dtype=np.bool_)
        for row, (number, offset) in enumerate(
            zip(optional.queues.tolist(), optional.queue_offsets.tolist(), strict=True)
        ):
            name = names[number]
            with self._read_errors.queue(name) if not self._live else nullcontext():
                files = self._files_of(name)
                held[row] = files is not None and files.read(offset, 1) == stored[row].tobytes()
            if not held[row]:
                self.states.setdefault(name, QueueProgress(name)).may_have(offset)
        both = QueueUnits.concatenate([units, optional[held]])
        return both[np.argsort(both.rows, kind="stable")]

    def flush(self, names: Sequence[QueueName]) -> None:
        """Compare what was taken."""
        if not self._parts:
            return
        units = QueueUnits.concatenate(self._parts)
        self._parts, self._waiting = [], 0
        order, bounds = group(units.queues)
        stored = units.as_consume_queue().view("V20").take(order)
        self._report.check("consumequeue.missing-unit", len(units))
        offsets = units.queue_offsets.take(order)
        nexts = offsets + units.batch_sizes.take(order)
        follows = np.zeros(len(units), dtype=np.bool_)
        follows[1:] = offsets[1:] == nexts[:-1]
        follows[bounds[:-1]] = False
        broken = np.flatnonzero(~follows)
        numbers = units.queues[order[bounds[:-1]]].tolist()
        for number, low, high in zip(numbers, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            first, last = np.searchsorted(broken, (low, high))
            borders = broken[first:last].tolist()  # the group's own beginning is always one
            rows = [(order[start:stop], stored[start:stop]) for start, stop in pairwise([*borders, high])]
            if self._live:
                self._take(number, names[number], units, rows)
            elif names[number] not in self._read_errors.queues:
                with self._read_errors.queue(names[number]):
                    self._take(number, names[number], units, rows)
                if names[number] in self._read_errors.queues:
                    self.states.pop(names[number], None)

    def _take(
        self, number: int, name: QueueName, units: QueueUnits, runs: list[tuple[NDArray[np.intp], NDArray[np.void]]]
    ) -> None:
        """Compare the units of one queue; queue offsets follow each other within a run."""
        queue = self._queue(number, name)
        for rows, stored in runs:
            queue.take(units, rows, stored.tobytes())

    def _queue(self, number: int, name: QueueName) -> OneQueue:
        queue = self._queues.get(number)
        if queue is None:
            files, state = self._files_of(name), self.states.setdefault(name, QueueProgress(name))
            queue = OneQueue(state, files, self._report, self._extents, self._lookups, self._root)
            self._queues[number] = queue
        return queue

    def _files_of(self, name: QueueName) -> UnitFiles | None:
        if not is_directory_name(name.topic) or name.queue_id < 0:
            return None
        kind: Kind = "batch" if self._is_batch(name.topic) else "simple"
        if (kind, name) not in self._found:
            directory = self._root / UNIT_FORMATS[kind].directory / name.topic / str(name.queue_id)
            files = list_mapped_files(directory, scope=skip_wrong_type)  # where no directory stands, units are missing
            queue = Queue(name.topic, name.queue_id, kind, files)
            self._found[kind, name] = UnitFiles(queue, self._open, live=self._live) if files.files else None
        return self._found[kind, name]


def is_directory_name(topic: str) -> bool:
    """Whether a topic from the log can be a directory of its own: what is stored must not lead elsewhere."""
    usable = topic not in ("", ".", "..") and "/" not in topic and "\0" not in topic
    return usable and len(topic.encode("utf-8", "replace")) <= _NAME_MAX
