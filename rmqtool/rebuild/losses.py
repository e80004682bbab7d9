"""The loss that a rebuild finds: after it nothing in the store proves what queues, index and checkpoint still knew.

What an unclean stop took is no loss of this kind: only what led past the last file counts while `abort` is there, or
where a rebuild has taken it out.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rmqtool.base.times import rfc3339
from rmqtool.broker.other_log import index_of_another_log
from rmqtool.rebuild.plan import QueuePlan, RebuildPlan
from rmqtool.rebuild.queue_placement import Extent
from rmqtool.store.checkpoint import credible
from rmqtool.store.index_files import stored_offset
from rmqtool.store.missing import missing_files
from rmqtool.store.store import CHECKPOINT
from rmqtool.store.unit_files import open_units
from rmqtool.transaction import Loss, recorded_losses, was_killed
from rmqtool.transaction.losses import MAX_LISTED, DroppedUnits, LostExtent

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
    proofs = [proof for proof in (*_of_index(plan), *_of_checkpoint(plan)) if proof.physical_offset > last]
    end = max([furthest, *(proof.physical_offset for proof in proofs)])
    files = [*_gaps(plan, extents), *_behind_the_end(plan, end)]
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


def _of_checkpoint(plan: RebuildPlan) -> Iterator[_Proof]:
    """The offset in the checkpoint, which a rebuild of the queues replaces; later times stay after a clean stop."""
    offset = credible(plan.source.snapshot.checkpoint).get(_OFFSET, 0)
    if "queues" in plan.options.parts and offset:
        yield _Proof(offset, f"{CHECKPOINT} had {_OFFSET} {offset}")


def _gaps(plan: RebuildPlan, extents: Sequence[Extent]) -> Iterator[str]:
    """The files that held lost extents which no file holds."""
    for extent in extents:
        if extent.reason == "missing":
            yield from missing_files(plan.source.snapshot, extent.physical_offset, extent.physical_offset + extent.size)


def _behind_the_end(plan: RebuildPlan, furthest: int) -> tuple[str, ...]:
    """The files after the last one that held messages up to the physical offset `furthest`."""
    files = plan.source.snapshot.log.files
    end = files[-1].end_offset if files else 0
    return missing_files(plan.source.snapshot, end, furthest + 1) if furthest >= end else ()


def _messages(plan: RebuildPlan, dropped: Sequence[DroppedUnits], extents: Sequence[Extent]) -> dict[str, int]:
    """Lost messages by topic as far as queues show: units that led past the end of the log, or into lost bytes."""
    counts: Counter[str] = Counter()
    for each in dropped:
        counts[each.topic] += each.units
    for queue in _once(plan, plan.queues) if extents else ():
        counts[queue.name.topic] += max(queue.neutral, _into(plan, queue, extents))
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
