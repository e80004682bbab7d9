"""Carry out a plan inside a transaction: a second pass over the log writes the files that the first found different."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from functools import cache, partial

from rmqtool.base.errors import ChangedError
from rmqtool.base.files import list_directory
from rmqtool.base.times import file_time
from rmqtool.formats.index_file import SLOT_DTYPE
from rmqtool.formats.index_file import UNIT_SIZE as INDEX_UNIT_SIZE
from rmqtool.rebuild.derive import Derivation, Outputs
from rmqtool.rebuild.losses import loss_of
from rmqtool.rebuild.neutralise import patched_bytes, stage_patches
from rmqtool.rebuild.options import Progress, no_progress, queue_file_name
from rmqtool.rebuild.plan import RebuildPlan
from rmqtool.rebuild.source import derive
from rmqtool.rebuild.staged import DatabaseWriter, RowSink, StagedIndex, StagedQueues, complete, stage_database
from rmqtool.rebuild.staged_conversion import end_size, put_config, put_queues, stage_config, stage_ends
from rmqtool.rules.versions import CHECKPOINT_HAS_LOGICS_OFFSET
from rmqtool.store.checkpoint import CHECKPOINT_TIMES, checkpoint_file, read_checkpoint
from rmqtool.store.consume_queues import UNIT_FORMATS, Kind
from rmqtool.store.lock import ABORT_FILE
from rmqtool.store.store import CHECKPOINT, CONSUME_QUEUE, INDEX
from rmqtool.transaction import Committed, Transaction

_ROW_SIZE = 80  # of a queue with a name of usual length, before it is compressed, bytes
_PAGE = 4096  # the least that a file, or a directory, takes of the disk, bytes


def apply_plan(plan: RebuildPlan, transaction: Transaction, progress: Progress = no_progress) -> Committed:
    """Write the plan's files, and commit; nothing in the store changes before all of them are written and read back.

    Raises as `stage_plan`.
    """
    stage_plan(plan, transaction, progress)
    return transaction.commit()


def stage_plan(plan: RebuildPlan, transaction: Transaction, progress: Progress = no_progress) -> None:
    """Prepare the plan's files, so that the transaction's commit brings them into the store.

    Raises UnwritableError, and ChangedError when the log is no longer the one that the plan was made from.
    """
    source = plan.source
    transaction.require_space(_bytes_to_write(plan))
    queues = {kind: _staged_queues(plan, kind, transaction) for kind in plan.source.existing}
    changes_index = any(file.action != "keep" for file in plan.index)
    index = StagedIndex(transaction, source.sizes.index) if changes_index else None
    outputs = Outputs({kind: [staged] for kind, staged in queues.items() if staged}, index_writer=index)
    with closing(source), ExitStack() as stack:
        writer = None
        if plan.changes_database:
            writer = DatabaseWriter(stack.enter_context(transaction.scratch()))
            _add_rows(plan, writer, outputs)
        # The plan has checked the bodies; they matter again only when wrong ones are neutralised.
        derivation = derive(source, outputs, progress, checks_bodies=source.options.neutralise)
        database = _staged_database(plan, writer, transaction) if writer else []
        if plan.conversion:
            database += stage_ends(source, plan.conversion, transaction)
    if plan.conversion:
        stage_config(plan.conversion, transaction)
    if not derivation or (derivation.last_physical_offset, derivation.last_store_timestamp) != plan.last_record:
        message = "the commit log has changed since the plan was made: nothing is written"
        raise ChangedError(message, file=source.snapshot.store.root)
    if plan.patches:
        stage_patches(source.snapshot.store, plan.patches, transaction)
    if index:
        _put_index(plan, index, transaction)
    _put_queues(plan, queues, database, transaction)
    if plan.conversion:
        put_config(plan.conversion, transaction)
    _put_checkpoint(plan, derivation, transaction)
    loss = loss_of(plan, transaction.command)
    if loss:
        transaction.record(loss)


def _add_rows(plan: RebuildPlan, writer: DatabaseWriter, outputs: Outputs) -> None:
    """Let a pass write the rows of all queues that the log gives, whether they change or not."""
    names = {queue.name for queue in plan.queues if queue.kind == "rocksdb" and queue.has_messages}
    for kind in plan.source.existing:
        rows = RowSink(writer, kind, plan.source.row_rules, names)
        outputs.queues[kind] = [*outputs.queues.get(kind, ()), rows]


def _staged_database(plan: RebuildPlan, writer: DatabaseWriter, transaction: Transaction) -> list[str]:
    """Complete the database and stage its files; their names."""
    rows = plan.source.rows
    is_all, is_whole = plan.options.selection.is_all, _completes_queues(plan)
    carried = plan.conversion.carried if plan.conversion else ()
    ends = ((queue.name, queue.last) for queue in carried)
    complete(writer, rows, plan.source.keeps, is_all=is_all, is_whole=is_whole, ends=ends)
    return stage_database(transaction, writer.directory, rows.path.name)


def _staged_queues(plan: RebuildPlan, kind: Kind, transaction: Transaction) -> StagedQueues | None:
    wanted = {queue.name: queue.difference.write for queue in plan.changed_queues if queue.kind == kind}
    return StagedQueues(transaction, kind, plan.source.existing[kind].grid, wanted) if wanted else None


def _bytes_to_write(plan: RebuildPlan) -> int:
    """Bytes that a plan takes on the disk until undo or its end; queue files have holes where nothing is written."""
    total = patched_bytes(plan.patches) + (end_size(plan.source, plan.conversion) if plan.conversion else 0)
    if plan.changes_database:
        total += sum(queue.units for queue in plan.queues if queue.kind == "rocksdb") * _ROW_SIZE
        total += sum(size for _, size in plan.source.rows.files())  # of which some may be carried over
    for queue in plan.changed_queues:
        if queue.kind == "rocksdb":
            continue
        total += queue.units * UNIT_FORMATS[queue.kind].dtype.itemsize + 2 * _PAGE * (len(queue.difference.write) + 1)
    written = [file for file in plan.index if file.action in ("create", "replace")]
    return (
        total + plan.index_units * INDEX_UNIT_SIZE + len(written) * plan.source.sizes.index.slots * SLOT_DTYPE.itemsize
    )


def _put_index(plan: RebuildPlan, staged: StagedIndex, transaction: Transaction) -> None:
    for file in plan.index:
        if file.action == "remove":
            transaction.remove(f"{INDEX}/{file.name}")
    _put(plan, transaction, staged.names)


def _put_queues(
    plan: RebuildPlan, staged: Mapping[Kind, StagedQueues | None], database: list[str], transaction: Transaction
) -> None:
    """Put queue files in place, and the files of the `database`: its directory, which is exchanged as a whole."""
    kinds: tuple[Kind, ...] = ("batch", "simple")
    for kind in kinds:
        for queue in plan.changed_queues:
            if queue.kind == kind:
                for start in sorted(queue.difference.remove):
                    transaction.remove(queue_file_name(queue.name, kind, start))
    names = [name for files in staged.values() if files for name in files.names]
    if plan.conversion:
        put_queues(plan.source, plan.conversion, [*names, *database], transaction, partial(_put, plan, transaction))
        return
    if database:
        names += _put_database(plan, database, transaction)
    _put(plan, transaction, names)


def _put_database(plan: RebuildPlan, names: list[str], transaction: Transaction) -> list[str]:
    """Put the database's directory in place; the `names` that remain to be put where it has queue files as well."""
    source = plan.source
    directory = source.places.database
    with_files = source.places.files and directory.name == CONSUME_QUEUE
    if not with_files and not any(entry.is_dir() for entry in list_directory(directory)):
        transaction.put(directory.name)
        return []
    for name, _ in source.rows.files():
        if f"{directory.name}/{name}" not in names:
            transaction.remove(f"{directory.name}/{name}")
    return names


def _put(plan: RebuildPlan, transaction: Transaction, names: list[str]) -> None:
    """Put files in place; a new directory is put as a whole, so that undo leaves none behind."""
    exists = cache(lambda name: os.path.lexists(plan.source.snapshot.store.root / name))
    for name in sorted({_highest_missing(name, exists) for name in names}):
        transaction.put(name)


def _highest_missing(name: str, exists: Callable[[str], bool]) -> str:
    names = name.split("/")
    above = ("/".join(names[:count]) for count in range(1, len(names)))
    return next((path for path in above if not exists(path)), name)


def _put_checkpoint(plan: RebuildPlan, derivation: Derivation, transaction: Transaction) -> None:
    """Write a checkpoint that fits the rebuilt files, and remove `abort` once all queues are complete.

    With `abort` the next start recovers: it derives units again that already exist, and deletes index files that are
    newer than the checkpoint (`IndexService#load`). After a clean stop no time is set back: one that is newer than the
    log proves that the log has lost its end.
    """
    store = plan.source.snapshot.store
    fields = dict(read_checkpoint(store) or {})
    before = dict(fields)
    if derivation.index and derivation.index.units:
        fields["index_message_timestamp"] = derivation.index.end_timestamp
    if _completes_queues(plan):
        fields["physic_message_timestamp"] = fields["logics_message_timestamp"] = derivation.last_store_timestamp
    if not (store.root / ABORT_FILE).exists():
        fields.update({name: max(fields.get(name, 0), before.get(name, 0)) for name in CHECKPOINT_TIMES})
    if _completes_queues(plan):
        version = plan.options.version
        if fields.get("logics_physical_offset", 0) > 0 or (version and version >= CHECKPOINT_HAS_LOGICS_OFFSET):
            fields["logics_physical_offset"] = derivation.last_physical_offset
        if (store.root / ABORT_FILE).exists():
            transaction.remove(ABORT_FILE)
    if fields != before:
        mtime_ns = None if before else file_time(derivation.last_store_timestamp)
        transaction.file(CHECKPOINT, mtime_ns=mtime_ns).write(checkpoint_file(fields), 0)
        transaction.put(CHECKPOINT)


def _completes_queues(plan: RebuildPlan) -> bool:
    """Whether all queues of the log are complete now, to their ends."""
    refused = any(finding.severity == "error" for finding in plan.findings)
    return "queues" in plan.options.parts and plan.options.selection.is_all and not refused
