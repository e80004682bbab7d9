"""The tree of a rebuild below another directory; the store is only read."""

from __future__ import annotations

import os
import shutil
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import ExitStack, closing
from pathlib import Path

from rmqtool.base.files import Progress, no_progress
from rmqtool.base.limits import open_files_at_once
from rmqtool.base.new_files import copy_file, create_file, set_time, write_all
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.formats.index_file import file_size
from rmqtool.rebuild.derive import Outputs
from rmqtool.rebuild.existing import FileGrid, Timestamps, Units
from rmqtool.rebuild.options import directory_of, queue_file_name
from rmqtool.rebuild.plan import Comparisons, RebuildPlan, learn_fields, plan_of
from rmqtool.rebuild.source import RebuildSource, derive
from rmqtool.rebuild.staged import DatabaseWriter, RowSink, complete
from rmqtool.store.consume_queues import Kind
from rmqtool.store.index_files import Geometry
from rmqtool.store.store import INDEX

_MAX_OPEN = 128  # a store may have 40,000 queues


class QueueTree:
    """Writes queue files of one kind; their modification time is their last message's store time. Raises OSError."""

    def __init__(self, root: Path, kind: Kind, grid: FileGrid) -> None:
        self._root = root
        self._kind = kind
        self._grid = grid
        self._open: OrderedDict[tuple[QueueName, int], int] = OrderedDict()
        self._max_open = open_files_at_once(_MAX_OPEN)
        self._ends: dict[QueueName, int] = {}  # number of the unit after the last of each queue

    def close(self) -> None:
        """Close the files that are written."""
        while self._open:
            os.close(self._open.popitem()[1])

    def put(self, queue: QueueName, unit_number: int, units: Units, timestamps: Timestamps) -> None:
        """Write units, in as many files as they need."""
        data, size = units.view("u1").data, self._grid.unit_size
        for piece in self._grid.pieces(unit_number, len(units)):
            descriptor = self._descriptor(queue, piece.start)
            write_all(descriptor, data[piece.low * size : piece.high * size], piece.position)
            set_time(descriptor, int(timestamps[piece.high - 1]))
        self._ends[queue] = max(self._ends.get(queue, 0), unit_number + len(units))

    def cut(self, queue: QueueName, unit_number: int) -> None:
        """Clear the queue from unit `unit_number` on."""
        for piece in self._grid.pieces(unit_number, self._ends.get(queue, 0) - unit_number):
            self._clear(queue, piece.start, piece.position)
        self._ends[queue] = unit_number

    def _path(self, queue: QueueName, start: int) -> Path:
        return self._root / queue_file_name(queue, self._kind, start)

    def _clear(self, queue: QueueName, start: int, position: int) -> None:
        descriptor = self._open.pop((queue, start), None)
        if descriptor is not None:
            os.close(descriptor)
        path = self._path(queue, start)
        if position == 0:
            path.unlink(missing_ok=True)
        elif path.exists():
            os.truncate(path, position)
            os.truncate(path, self._grid.file_size)

    def _descriptor(self, queue: QueueName, start: int) -> int:
        descriptor = self._open.get((queue, start))
        if descriptor is not None:
            return descriptor
        if len(self._open) >= self._max_open:
            os.close(self._open.popitem(last=False)[1])
        descriptor = self._open[queue, start] = create_file(self._path(queue, start), self._grid.file_size)
        return descriptor


class IndexTree:
    """Writes index files; their modification time is that of their last put. Raises OSError."""

    def __init__(self, root: Path, geometry: Geometry) -> None:
        self._root = root
        self._size = file_size(geometry.slots, geometry.units)
        self._descriptor = -1

    def begin(self, name: str) -> None:
        """Create a file."""
        self._descriptor = create_file(self._root / INDEX / name, self._size)

    def put(self, position: int, data: bytes | memoryview) -> None:
        """Write bytes."""
        write_all(self._descriptor, data, position)

    def finish(self, timestamp: int) -> None:
        """Complete a file."""
        set_time(self._descriptor, timestamp)
        self.close()

    def close(self) -> None:
        """Close the file that is written."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def write_output(source: RebuildSource, directory: Path, progress: Progress = no_progress) -> RebuildPlan:
    """Write the tree below `directory`, which is empty or does not exist; the plan shows what differs in the store.

    Raises UsageError, and OSError for what cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with closing(source):
        while True:
            plan = _write(source, directory, progress)
            if plan:
                return plan
            for entry in directory.iterdir():  # only files of the unfinished pass are in there
                shutil.rmtree(entry)


def _write(source: RebuildSource, directory: Path, progress: Progress) -> RebuildPlan | None:
    """Compare and write in one pass; None when the pass has to begin again."""
    with ExitStack() as stack:
        comparisons = stack.enter_context(closing(Comparisons(source)))
        outputs = comparisons.outputs()
        trees: dict[Kind, QueueTree] = {}
        for kind in comparisons.queues:
            trees[kind] = stack.enter_context(closing(QueueTree(directory, kind, source.existing[kind].grid)))
            outputs.queues[kind].append(trees[kind])
        writer = _add_rows(source, outputs, directory) if comparisons.rows else None
        if outputs.index:
            outputs.index_writer = stack.enter_context(closing(IndexTree(directory, source.sizes.index)))
        derivation = derive(source, outputs, progress)
        if derivation is None:
            return None
        plan = plan_of(source, derivation, comparisons)
        if learn_fields(source, comparisons, plan):
            return None
        irregular = derivation.simple.irregular if derivation.simple else {}
        jumps = {derivation.queues[queue]: queue for queue, each in sorted(irregular.items()) if each.jump is not None}
        if trees:
            for name, queue in jumps.items():
                trees["simple"].cut(name, derivation.simple.first(queue) if derivation.simple else 0)
            _copy_queues(source, plan, jumps, directory)
        if writer:
            is_all = source.options.selection.is_all
            for name in jumps:
                writer.leave_out(name)
            complete(writer, source.rows, source.keeps, is_all=is_all, is_whole=is_all)
        return plan


def _add_rows(source: RebuildSource, outputs: Outputs, directory: Path) -> DatabaseWriter:
    database = directory / source.places.database.name
    database.mkdir(exist_ok=True)
    writer = DatabaseWriter(database)
    for kind in source.existing:
        outputs.queues[kind].append(RowSink(writer, kind, source.row_rules, None))
    return writer


def _copy_queues(source: RebuildSource, plan: RebuildPlan, jumps: Iterable[QueueName], directory: Path) -> None:
    """Copy the queues that jump, and those of which the log holds no message."""
    for name in jumps:
        _copy_queue(source, name, "simple", directory)
    if source.options.order == "stored":
        for queue in plan.without_messages:
            if queue.kind != "rocksdb":
                _copy_queue(source, queue.name, queue.kind, directory)


def _copy_queue(source: RebuildSource, name: QueueName, kind: Kind, directory: Path) -> None:
    """Copy a queue as it is; where messages were left out its last file, which has its next offset."""
    existing = source.existing[kind].queues.get(name)
    files = existing.files if existing else ()
    for file in files[-1:] if source.options.left_out else files:
        copy_file(file.path, directory / directory_of(name, kind) / file.path.name)
