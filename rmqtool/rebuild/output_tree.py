"""The tree of a rebuild below another directory; the store is only read."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from pathlib import Path

from rmqtool.base.errors import UsageError
from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.index_keys import IndexKeys
from rmqtool.formats.file_name import file_name
from rmqtool.rebuild.file_tree import FileTree, create_file, set_time, write_all
from rmqtool.rebuild.index_directory import IndexTree
from rmqtool.rebuild.options import Progress, no_progress
from rmqtool.rebuild.plan import Comparing, RebuildPlan, plan_of
from rmqtool.rebuild.selection import directory_of
from rmqtool.rebuild.sinks import IndexSink, Timestamps, Units, UnitSink
from rmqtool.rebuild.source import RebuildSource, Sinks, derive, grid_of
from rmqtool.store.consume_queues import Kind
from rmqtool.store.store import INDEX

_COPY_SIZE = 1 << 20


class _Both:
    """A sink for two: one compares, one writes."""

    def __init__(self, first: UnitSink, second: UnitSink) -> None:
        self._sinks = (first, second)

    def put(self, queue: int, number: int, units: Units, timestamps: Timestamps) -> None:
        for sink in self._sinks:
            sink.put(queue, number, units, timestamps)

    def cut(self, queue: int, number: int) -> None:
        for sink in self._sinks:
            sink.cut(queue, number)


class _BothIndexes:
    def __init__(self, first: IndexSink, second: IndexSink) -> None:
        self._sinks = (first, second)

    def keys(self, keys: IndexKeys) -> None:
        for sink in self._sinks:
            sink.keys(keys)

    def begin(self, number: int, name: str) -> None:
        for sink in self._sinks:
            sink.begin(number, name)

    def wants_bytes(self) -> bool:
        return any(sink.wants_bytes() for sink in self._sinks)

    def put(self, number: int, position: int, data: bytes | memoryview) -> None:
        for sink in self._sinks:
            sink.put(number, position, data)

    def finish(self, number: int, timestamp: int) -> None:
        for sink in self._sinks:
            sink.finish(number, timestamp)


class _Writing(Sinks):
    def __init__(self, source: RebuildSource, directory: Path, stack: ExitStack) -> None:
        self.comparing = Comparing(source)
        self.trees: dict[Kind, FileTree] = {}
        self._source = source
        self._directory = directory
        self._stack = stack

    def queues(self, kind: Kind, names: list[QueueName]) -> UnitSink | None:
        comparison = self.comparing.compare_queues(kind, names)
        if comparison is None:
            return None
        _clear(self._directory)

        def path_of(queue: int, start: int) -> Path:
            return self._directory / directory_of(names[queue], kind) / file_name(start)

        self.trees[kind] = self._stack.enter_context(FileTree(path_of, grid_of(self._source.sizes, kind)))
        return _Both(comparison, self.trees[kind])

    def index(self) -> IndexSink | None:
        comparison = self.comparing.compare_index()
        if comparison is None:
            return None
        tree = IndexTree(self._directory / INDEX, self._source.sizes.index)
        self._stack.callback(tree.close)
        return _BothIndexes(comparison, tree)


def write_output(source: RebuildSource, directory: Path, progress: Progress = no_progress) -> RebuildPlan:
    """Write the tree below `directory`, which must be empty or not there; what is different in the store is told too.

    Raises UsageError, and OSError for what cannot be written.
    """
    _prepare(source, directory)
    with ExitStack() as stack:
        stack.callback(source.close)
        sinks = _Writing(source, directory, stack)
        derivation = derive(source, sinks, progress)
        plan = plan_of(source, derivation, sinks.comparing)
        for queue, name in enumerate(derivation.queues):
            if derivation.simple and derivation.simple.irregular[queue].jump:
                sinks.trees["simple"].cut(queue, derivation.simple.first(queue))
                _copy_queue(source, name, "simple", directory)
        if source.options.order == "stored" and sinks.trees:
            for found in plan.without_messages:
                _copy_queue(source, found.name, found.kind, directory)
    return plan


def _prepare(source: RebuildSource, directory: Path) -> None:
    root = source.store.root.resolve()
    if directory.resolve() == root or root in directory.resolve().parents:
        raise UsageError("--output must not be inside the store, which is only read", file=directory)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError("--output must be an empty directory, or one that does not exist yet", file=directory)
    directory.mkdir(parents=True, exist_ok=True)


def _clear(directory: Path) -> None:
    """Remove what a pass has left that turned out to be wrong: only what is ours is in there."""
    for entry in directory.iterdir():
        shutil.rmtree(entry)


def _copy_queue(source: RebuildSource, name: QueueName, kind: Kind, directory: Path) -> None:
    found = source.existing[kind].queues.get(name)
    for file in found.files.files if found else ():
        _copy_file(file, directory / directory_of(name, kind) / file.path.name)


def _copy_file(file: MappedFile, to: Path) -> None:
    with InputFile(file.path) as source:
        descriptor = create_file(to, file.size)
        try:
            for position in range(0, source.data_end(), _COPY_SIZE):
                write_all(descriptor, source.read(position, _COPY_SIZE), position)
            set_time(descriptor, file.path.stat().st_mtime_ns // 1_000_000)
        finally:
            os.close(descriptor)
