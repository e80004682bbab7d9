"""Carry out a plan inside a transaction: a second pass over the log writes the files that the first found different."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from functools import cache

from rmqtool.base.errors import ChangedError
from rmqtool.base.times import file_time
from rmqtool.formats.index_file import SLOT_DTYPE
from rmqtool.formats.index_file import UNIT_SIZE as INDEX_UNIT_SIZE
from rmqtool.rebuild.derive import Derivation, Outputs
from rmqtool.rebuild.losses import loss_of
from rmqtool.rebuild.neutralise import patched_bytes, stage_patches
from rmqtool.rebuild.options import Progress, no_progress
from rmqtool.rebuild.plan import RebuildPlan
from rmqtool.rebuild.selection import queue_file_name
from rmqtool.rebuild.source import derive
from rmqtool.rebuild.staged import StagedIndex, StagedQueues
from rmqtool.rules.versions import CHECKPOINT_HAS_LOGICS_OFFSET
from rmqtool.store.checkpoint import CHECKPOINT_TIMES, checkpoint_file, read_checkpoint
from rmqtool.store.consume_queues import UNIT_FORMATS, Kind
from rmqtool.store.lock import ABORT_FILE
from rmqtool.store.store import CHECKPOINT, INDEX
from rmqtool.transaction import Committed, Transaction

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
    with closing(source):
        # The plan has checked the bodies; they matter again only when wrong ones are neutralised.
        derivation = derive(source, outputs, progress, checks_bodies=source.options.neutralise)
    if not derivation or (derivation.last_physical_offset, derivation.last_store_timestamp) != plan.last_record:
        message = "the commit log has changed since the plan was made: nothing is written"
        raise ChangedError(message, file=source.snapshot.store.root)
    if plan.patches:
        stage_patches(source.snapshot.store, plan.patches, transaction)
    if index:
        _put_index(plan, index, transaction)
    for kind in ("batch", "simple"):
        _put_queues(plan, kind, queues[kind], transaction)
    _put_checkpoint(plan, derivation, transaction)
    loss = loss_of(plan, transaction.command)
    if loss:
        transaction.record(loss)


def _staged_queues(plan: RebuildPlan, kind: Kind, transaction: Transaction) -> StagedQueues | None:
    wanted = {queue.name: queue.difference.write for queue in plan.changed_queues if queue.kind == kind}
    return StagedQueues(transaction, kind, plan.source.existing[kind].grid, wanted) if wanted else None


def _bytes_to_write(plan: RebuildPlan) -> int:
    """Bytes that a plan takes on the disk until undo or its end; queue files have holes where nothing is written."""
    total = patched_bytes(plan.patches)
    for queue in plan.changed_queues:
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


def _put_queues(plan: RebuildPlan, kind: Kind, staged: StagedQueues | None, transaction: Transaction) -> None:
    for queue in plan.changed_queues:
        if queue.kind == kind:
            for start in sorted(queue.difference.remove):
                transaction.remove(queue_file_name(queue.name, kind, start))
    if staged:
        _put(plan, transaction, staged.names)


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
