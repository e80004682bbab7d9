"""Carry out a plan inside a transaction: a second pass over the log writes the files that the first found different.

Or write all files below another directory, while the store is only read.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import cache
from pathlib import Path
from shutil import rmtree
from typing import NamedTuple

import numpy as np

from rmqtool.base.errors import ChangedError
from rmqtool.base.files import Progress, list_directory, no_progress
from rmqtool.base.new_files import copy_file
from rmqtool.base.times import file_time, rfc3339
from rmqtool.broker.dispatched_record import index_of_another_log
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.formats import consume_queue
from rmqtool.formats.index_file import SLOT_DTYPE
from rmqtool.formats.index_file import UNIT_SIZE as INDEX_UNIT_SIZE
from rmqtool.formats.message import MIN_MESSAGE_SIZE
from rmqtool.rebuild.conversion import CarriedQueue, Conversion
from rmqtool.rebuild.derive import Derivation, Outputs
from rmqtool.rebuild.existing import FileGrid, pre_blank_units
from rmqtool.rebuild.neutralise import patched_bytes, stage_patches
from rmqtool.rebuild.options import directory_of, queue_file_name
from rmqtool.rebuild.plan import Comparisons, QueuePlan, RebuildPlan, learn_fields, plan_of
from rmqtool.rebuild.queue_placement import Extent
from rmqtool.rebuild.source import RebuildSource, derive
from rmqtool.rebuild.staged import (
    DatabaseWriter,
    RowSink,
    StagedIndex,
    StagedQueues,
    Tree,
    complete,
    stage_database,
    write_database,
)
from rmqtool.rules.versions import CHECKPOINT_HAS_LOGICS_OFFSET
from rmqtool.store.checkpoint import CHECKPOINT_TIMES, checkpoint_file, credible, read_checkpoint
from rmqtool.store.consume_queues import UNIT_FORMATS, Kind
from rmqtool.store.index_files import stored_offset
from rmqtool.store.lock import ABORT_FILE, has_abort
from rmqtool.store.missing import missing_files
from rmqtool.store.store import BATCH_CONSUME_QUEUE, CHECKPOINT, CONFIG, CONSUME_QUEUE, INDEX
from rmqtool.store.unit_files import open_units
from rmqtool.transaction.losses import MAX_LISTED, DroppedUnits, Loss, LostExtent, recorded_losses
from rmqtool.transaction.paths import parents_of
from rmqtool.transaction.transaction import Committed, Transaction
from rmqtool.transaction.undo import was_killed

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
    queues = {
        kind: StagedQueues(transaction, kind, existing.grid, wanted) for kind, existing in source.existing.items()
        if (wanted := {queue.name: queue.difference.write for queue in plan.changed_queues if queue.kind == kind})
    }  # fmt: skip
    changes_index = any(file.action != "keep" for file in plan.index)
    index = StagedIndex(transaction, source.sizes.index) if changes_index else None
    outputs = Outputs({kind: [staged] for kind, staged in queues.items()}, index_writer=index)
    with closing(source), ExitStack() as stack:
        writer = None
        if plan.changes_database:
            writer = DatabaseWriter(stack.enter_context(transaction.scratch()))
            _add_rows(plan, writer, outputs)
        derivation = derive(source, outputs, progress, is_second=True)
        database = _staged_database(plan, writer, transaction) if writer else []
        ends = [_stage_end(source, queue, transaction) for queue in _ends_in_files(plan)]
    if plan.conversion:
        _stage_config(plan.conversion, transaction)
    if not derivation or (derivation.last_physical_offset, derivation.last_store_timestamp) != plan.last_record:
        message = "the commit log has changed since the plan was made: nothing is written"
        raise ChangedError(message, file=source.snapshot.store.root)
    if plan.patches:
        stage_patches(source.snapshot.store, plan.patches, transaction)
    if index:
        for name in (file.name for file in plan.index if file.action == "remove"):
            transaction.remove(f"{INDEX}/{name}")
        _put(plan, transaction, index.names)
    _put_queues(plan, queues, [*database, *ends], transaction)
    if plan.conversion:
        _put_config(plan.conversion, transaction)
    _put_checkpoint(plan, derivation, transaction)
    loss = loss_of(plan, transaction.command)
    if loss:
        transaction.record(loss)


def _ends_in_files(plan: RebuildPlan) -> Sequence[CarriedQueue]:
    """The queues whose ends a conversion carries over in files."""
    return plan.conversion.carried if plan.conversion and plan.conversion.target == "files" else ()


def _add_rows(plan: RebuildPlan, writer: DatabaseWriter, outputs: Outputs) -> None:
    """Let a pass write the rows of all queues that the log gives, whether they change or not."""
    names = {queue.name for queue in plan.queues if queue.kind == "rocksdb" and queue.has_messages}
    for kind in plan.source.existing:
        outputs.queues.setdefault(kind, []).append(RowSink(writer, kind, plan.source.row_rules, names))


def _staged_database(plan: RebuildPlan, writer: DatabaseWriter, transaction: Transaction) -> list[str]:
    """Complete the database and stage its files; their names."""
    rows = plan.source.rows
    is_all, is_whole = plan.options.selection.is_all, _completes_queues(plan)
    carried = plan.conversion.carried if plan.conversion else ()
    ends = ((queue.name, queue.last) for queue in carried)
    complete(writer, rows, plan.source.keeps, is_all=is_all, is_whole=is_whole, ends=ends)
    return stage_database(transaction, writer.directory, rows.path.name)


def _bytes_to_write(plan: RebuildPlan) -> int:
    """Bytes that a plan takes on the disk until undo or its end; queue files have holes where nothing is written."""
    total = patched_bytes(plan.patches)
    total += sum(plan.source.existing[queue.kind].grid.file_size for queue in _ends_in_files(plan))
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


def _put_queues(
    plan: RebuildPlan, staged: Mapping[Kind, StagedQueues], database: list[str], transaction: Transaction
) -> None:
    """Put queue files in place, and the files of the `database`: its directory, which is exchanged as a whole."""
    for queue in sorted(plan.changed_queues, key=lambda queue: queue.kind):  # batch queues first
        if queue.kind != "rocksdb":
            for start in sorted(queue.difference.remove):
                transaction.remove(queue_file_name(queue.name, queue.kind, start))
    names = [name for files in staged.values() for name in files.names]
    if plan.conversion:
        _put_converted(plan, plan.conversion, [*names, *database], transaction)
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
    highest = {next((above for above in parents_of(name) if not exists(above)), name) for name in names}
    for name in sorted(highest):
        transaction.put(name)


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
    if not has_abort(store.root):
        fields.update({name: max(fields.get(name, 0), before.get(name, 0)) for name in CHECKPOINT_TIMES})
    if _completes_queues(plan):
        version = plan.options.version
        if fields.get("logics_physical_offset", 0) > 0 or (version and version >= CHECKPOINT_HAS_LOGICS_OFFSET):
            fields["logics_physical_offset"] = derivation.last_physical_offset
        if has_abort(store.root):
            transaction.remove(ABORT_FILE)
    if fields != before:
        mtime_ns = None if before else file_time(derivation.last_store_timestamp)
        transaction.file(CHECKPOINT, mtime_ns=mtime_ns).write(checkpoint_file(fields), 0)
        transaction.put(CHECKPOINT)


def _completes_queues(plan: RebuildPlan) -> bool:
    """Whether all queues of the log are complete now, to their ends."""
    refused = any(finding.severity == "error" for finding in plan.findings)
    return "queues" in plan.options.parts and plan.options.selection.is_all and not refused


_OFFSET = "logics_physical_offset"


class _Proof(NamedTuple):
    """What a file of the store knew of a message after the log's end: its physical offset, and a sentence."""

    physical_offset: int
    text: str


def loss_of(plan: RebuildPlan, command: str) -> Loss | None:
    """What is lost and not recorded yet; None where nothing is."""
    snapshot = plan.source.snapshot
    recorded = [each.loss for each in recorded_losses(snapshot.store.root) if each.loss]
    known = {extent for loss in recorded for extent in loss.extents}
    extents = [each for each in plan.lost.extents if not each.is_harmless and _listed(each) not in known]
    last = _last_known(plan)
    dropped, furthest = _dropped(plan, last)
    proofs = [*_of_index(plan)]
    # A rebuild of the queues replaces the offset in the checkpoint; later times stay after a clean stop.
    if "queues" in plan.options.parts and (offset := credible(snapshot.checkpoint).get(_OFFSET, 0)):
        proofs.append(_Proof(offset, f"{CHECKPOINT} had {_OFFSET} {offset}"))
    proofs = [proof for proof in proofs if proof.physical_offset > last]
    end = max([furthest, *(proof.physical_offset for proof in proofs)])
    files_end = snapshot.log.files[-1].end_offset if snapshot.log.files else 0
    files = [*_gaps(plan, extents), *(missing_files(snapshot, files_end, end + 1) if end >= files_end else ())]
    loss = Loss(
        command,
        int(time.time() * 1000),
        sum(extent.size for extent in extents),
        tuple(map(_listed, extents[:MAX_LISTED])),
        tuple(dropped[:MAX_LISTED]),
        tuple(name for name in dict.fromkeys(files) if not any(name in each.files for each in recorded)),
        _messages(plan, dropped, extents[:MAX_LISTED]),
        tuple(proof.text for proof in proofs),
    )
    return None if loss.is_none else loss


def _listed(extent: Extent) -> LostExtent:
    return LostExtent(extent.physical_offset, extent.size, extent.reason)


def _last_known(plan: RebuildPlan) -> int:
    """The largest physical offset to which a file may lead without proving a loss."""
    snapshot = plan.source.snapshot
    files = snapshot.log.files
    return files[-1].end_offset - 1 if files and was_killed(snapshot.store.root) else plan.last_record[0]


def _dropped(plan: RebuildPlan, last: int) -> tuple[list[DroppedUnits], int]:
    """The units that lead after `last` and go, by queue, and the largest physical offset in them, -1 without one."""
    dropped, furthest = [], -1
    for queue in _once(plan, plan.changed_queues):
        count, offset = _behind(plan, queue, last) if queue.difference.dropped else (0, -1)
        if count:
            dropped.append(DroppedUnits(queue.name.topic, queue.name.queue_id, count))
            furthest = max(furthest, offset)
    return dropped, furthest


def _once(plan: RebuildPlan, queues: Sequence[QueuePlan]) -> Iterator[QueuePlan]:
    """Those of files, or those in RocksDB: where a broker writes to both, the same messages are in both."""
    return (queue for queue in queues if not (queue.kind == "rocksdb" and plan.source.places.files))


def _behind(plan: RebuildPlan, queue: QueuePlan, last: int) -> tuple[int, int]:
    """How many dropped units of one queue lead after `last`, and the physical offset in its last unit."""
    if queue.kind == "rocksdb":
        rows = plan.source.rows.rows(queue.name, queue.max_offset).values["physical_offset"]
        offsets = rows[rows > last][: queue.difference.dropped]
        return len(offsets), int(offsets.max()) if len(offsets) else -1
    units = plan.source.existing[queue.kind].queues.get(queue.name)
    if units is None or not units.files:
        return 0, -1
    with open_units(units.queue) as opened:
        count = min(opened.data_end - opened.bisect(last + 1), queue.difference.dropped)
        return count, int(opened.units(opened.data_end - 1, 1)["physical_offset"][0]) if count else -1


def _of_index(plan: RebuildPlan) -> Iterator[_Proof]:
    """The newest index file that is replaced or taken out; its header counts only where its last unit agrees."""
    changed = {file.name for file in plan.index if file.action in ("replace", "remove")}
    snapshot = plan.source.snapshot
    of_another = index_of_another_log(snapshot) if changed else ()
    for file, geometry in reversed(snapshot.index_geometries if changed else ()):
        offset = file.end_physical_offset
        if file.path.name in changed and file.keys and geometry and file.path not in of_another:
            if stored_offset(file.path, geometry, file.keys) == offset:
                name, at = snapshot.store.relative(file.path), rfc3339(file.end_timestamp) or file.end_timestamp
                yield _Proof(offset, f"{name} knew a message of {at} at {offset}")
            return


def _gaps(plan: RebuildPlan, extents: Sequence[Extent]) -> Iterator[str]:
    """The files that held lost extents which no file holds."""
    for extent in extents:
        if extent.reason == "missing":
            yield from missing_files(plan.source.snapshot, extent.physical_offset, extent.physical_offset + extent.size)


def _messages(plan: RebuildPlan, dropped: Sequence[DroppedUnits], extents: Sequence[Extent]) -> dict[str, int]:
    """Lost messages by topic as far as queues show: units that led past the end of the log, or into lost bytes."""
    counts: Counter[str] = Counter()
    for each in dropped:
        counts[each.topic] += each.units
    for queue in _once(plan, plan.queues) if extents else ():
        counts[queue.name.topic] += max(queue.neutral, _into(plan, queue, extents))
    counts |= Counter(topic for each in extents for topic in each.topics)  # also where the queues are gone
    return {topic: count for topic, count in sorted(counts.items()) if count}


def _into(plan: RebuildPlan, queue: QueuePlan, extents: Sequence[Extent]) -> int:
    """How many units of a queue led into one of the extents, where a rebuild leaves it fewer units, or placeholders."""
    if not (queue.difference.dropped or queue.neutral):
        return 0
    if queue.kind == "rocksdb":
        offsets = plan.source.rows.rows(queue.name, 0).values["physical_offset"]
        pieces = ((each.physical_offset, each.physical_offset + each.size) for each in extents)
        return sum(int(((low <= offsets) & (offsets < high)).sum()) for low, high in pieces)
    units = plan.source.existing[queue.kind].queues.get(queue.name)
    if units is None or not units.files:
        return 0
    with open_units(units.queue) as opened:
        return sum(
            max(0, opened.bisect(each.physical_offset + each.size) - opened.bisect(each.physical_offset))
            for each in extents
        )


_NO_COMPACTED_OFFSET = -1  # BatchConsumeQueue.INVALID_POS


def _stage_config(conversion: Conversion, transaction: Transaction) -> None:
    """Stage topics, groups and offsets in their new form; `_put_config` puts them."""
    for name, content in conversion.files.items():
        transaction.file(f"{CONFIG}/{name}").write(content, 0)
    if not conversion.databases:
        return
    with transaction.scratch() as scratch:
        for name, families in conversion.databases.items():
            directory = scratch / name
            directory.mkdir()
            write_database(directory, families)
            stage_database(transaction, directory, f"{CONFIG}/{name}")
            rmtree(directory)


def _put_config(conversion: Conversion, transaction: Transaction) -> None:
    """Put the new form in place, and take the old one out."""
    for name in [*conversion.files, *conversion.databases]:
        transaction.put(f"{CONFIG}/{name}")
    for name in conversion.removed:
        if name.startswith(f"{CONFIG}/"):
            transaction.remove(name)


def _put_converted(plan: RebuildPlan, conversion: Conversion, names: list[str], transaction: Transaction) -> None:
    """Put the queues that are staged as `names`, and take those of the other place out."""
    source = plan.source
    tops = _replaced(source, conversion, names, transaction)
    for name in conversion.removed:
        if not name.startswith(f"{CONFIG}/") and name.partition("/")[0] not in tops:
            transaction.remove(name)
    root = source.snapshot.store.root
    stale = {name for queue in conversion.carried if (root / (name := directory_of(queue.name, queue.kind))).exists()}
    for name in sorted(tops | {name for name in stale if conversion.target == "files" and not _is_below(name, tops)}):
        transaction.put(name)
    _put(plan, transaction, [name for name in names if not _is_below(name, tops | stale)])


def _is_below(name: str, directories: set[str]) -> bool:
    return any(above in directories for above in parents_of(name))


def _replaced(source: RebuildSource, conversion: Conversion, names: list[str], transaction: Transaction) -> set[str]:
    """The directories of the store that are exchanged as a whole: nothing of what they held stays."""
    if conversion.target == "rocksdb":
        database = source.places.database.name
        return {database} if any(name.startswith(f"{database}/") for name in names) else set()
    if not conversion.replaces_queues:
        return set()
    transaction.directory(CONSUME_QUEUE)  # which may stay empty
    root = source.snapshot.store.root
    if any(name.startswith(f"{BATCH_CONSUME_QUEUE}/") for name in names) or (root / BATCH_CONSUME_QUEUE).is_dir():
        transaction.directory(BATCH_CONSUME_QUEUE)
        return {CONSUME_QUEUE, BATCH_CONSUME_QUEUE}
    return {CONSUME_QUEUE}


def _stage_end(source: RebuildSource, queue: CarriedQueue, transaction: Transaction) -> str:
    """A queue that ends with a unit below the log: filler stands in front of it, as before a broker's first unit.

    The last unit is no filler, for a broker takes its physical offset for the end of what was dispatched.
    """
    grid: FileGrid = source.existing[queue.kind].grid
    if queue.kind == "batch":
        start, units = 0, _batch_end(source, queue)
    else:
        number = queue.last.queue_offset
        start = grid.start_of(number)
        units = pre_blank_units(number - grid.first_unit(start) + 1).view(consume_queue.UNIT_DTYPE)
        units[-1] = (queue.last.physical_offset, _size_of_last(source, queue), 0)
    name = queue_file_name(queue.name, queue.kind, start)
    transaction.file(name, size=grid.file_size).write(units.tobytes(), 0)
    return name


def _batch_end(source: RebuildSource, queue: CarriedQueue) -> np.ndarray:
    units = np.zeros(1, consume_queue.BATCH_UNIT_DTYPE)
    units["physical_offset"], units["message_size"] = queue.last.physical_offset, _size_of_last(source, queue)
    units["base_queue_offset"], units["batch_size"] = queue.last.queue_offset, 1
    units["compacted_offset"] = _NO_COMPACTED_OFFSET
    return units


def _size_of_last(source: RebuildSource, queue: CarriedQueue) -> int:
    """The size in the last unit's row, or where a compaction took the row the least that ends before the log."""
    rows = source.rows.rows(queue.name, queue.last.queue_offset, queue.last.queue_offset + 1).values
    if len(rows):
        return int(rows["message_size"][0])
    return max(1, min(MIN_MESSAGE_SIZE, source.snapshot.log_min_offset - queue.last.physical_offset))


def write_output(source: RebuildSource, directory: Path, progress: Progress = no_progress) -> RebuildPlan:
    """Write the tree below `directory`, which is empty or does not exist; the plan shows what differs in the store.

    Raises UsageError, UnwritableError, OSError.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with closing(source):
        while True:
            plan = _write(source, directory, progress)
            if plan:
                return plan
            for entry in directory.iterdir():  # only files of the unfinished pass are in there
                rmtree(entry)


def _write(source: RebuildSource, directory: Path, progress: Progress) -> RebuildPlan | None:
    """Compare and write in one pass; None when the pass has to begin again."""
    with ExitStack() as stack:
        comparisons = stack.enter_context(closing(Comparisons(source)))
        outputs = comparisons.outputs()
        tree = stack.enter_context(Tree(directory))
        trees = {kind: StagedQueues(tree, kind, source.existing[kind].grid) for kind in comparisons.queues}
        for kind, queues in trees.items():
            outputs.queues[kind].append(queues)
        writer = _all_rows(source, outputs, directory) if comparisons.rows else None
        if outputs.index:
            outputs.index_writer = StagedIndex(tree, source.sizes.index)
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
            tree.close()  # before files are copied to the same places
            _copy_queues(source, plan, jumps, directory)
        if writer:
            is_all = source.options.selection.is_all
            for name in jumps:
                writer.leave_out(name)
            complete(writer, source.rows, source.keeps, is_all=is_all, is_whole=is_all)
        return plan


def _all_rows(source: RebuildSource, outputs: Outputs, directory: Path) -> DatabaseWriter:
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
