"""The tree of a rebuild below another directory; the store is only read."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import ExitStack, closing
from pathlib import Path

from rmqtool.base.new_files import copy_file
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.rebuild.comparisons import Comparisons
from rmqtool.rebuild.derive import Derivation, Outputs
from rmqtool.rebuild.field_witnesses import learn_fields
from rmqtool.rebuild.file_tree import IndexTree, QueueTree
from rmqtool.rebuild.options import Progress, no_progress
from rmqtool.rebuild.plan import RebuildPlan, plan_of
from rmqtool.rebuild.selection import directory_of
from rmqtool.rebuild.source import RebuildSource, derive
from rmqtool.rebuild.staged_rows import DatabaseWriter, RowSink, complete
from rmqtool.store.consume_queues import Kind


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
        if learn_fields(source, comparisons, plan.derived):
            return None
        jumps = {name: queue for queue, name in enumerate(derivation.queues) if _jumps(derivation, queue)}
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


def _jumps(derivation: Derivation, queue: int) -> bool:
    return derivation.simple is not None and derivation.simple.irregular[queue].jump is not None


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
