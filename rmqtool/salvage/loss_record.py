"""The loss that a new store is made with: it goes on record there, as after a repair, and verify reports it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from rmqtool.findings.finding import Finding, counted
from rmqtool.salvage.layout import Ranges, meets
from rmqtool.salvage.left_behind import MEANINGS
from rmqtool.salvage.plan import SalvagePlan
from rmqtool.store.store import Store
from rmqtool.transaction import Loss, recorded_losses
from rmqtool.transaction.losses import MAX_LISTED, DroppedUnits, LostExtent

COMMAND = "salvage"
_NEUTRAL = "rebuild.neutral-units"
_SEEN_IN_GAPS = ("damaged", "unreadable")


def losses_of(
    plan: SalvagePlan,
    derived: Loss | None,
    findings: Sequence[Finding],
    sources: Sequence[Store],
    filled: Sequence[tuple[int, int]] | None = None,
) -> list[Loss]:
    """What the new store lacks: by this salvage, and by what is on record in the sources and was not filled.

    `derived` and `findings` are what deriving its queues has shown; `filled` are the places of dummy records in a new
    log of messages that have moved.
    """
    recorded = [*_of_sources(plan, sources)]
    if filled is not None:  # old places are other ones there
        recorded = [replace(loss, extents=()) for loss in recorded]
    known = {(extent.physical_offset, extent.size) for loss in recorded for extent in loss.extents}
    gaps = [gap for gap in plan.layout.gaps if (gap.physical_offset, gap.size) not in known]
    places = [(gap.physical_offset, gap.size) for gap in gaps] if filled is None else filled
    behind = derived or Loss(COMMAND, int(time.time() * 1000))
    loss = Loss(
        COMMAND,
        behind.time,
        sum(gap.size for gap in gaps),
        tuple(LostExtent(offset, size, "missing") for offset, size in places[:MAX_LISTED]),
        behind.dropped,
        behind.files,
        lost_messages(behind.dropped, findings),
        (*behind.proofs, *_left(plan)),
    )
    return [*recorded, *(() if loss.is_none else (loss,))]


def lost_messages(dropped: Iterable[DroppedUnits], findings: Sequence[Finding]) -> dict[str, int]:
    """Lost messages by topic as far as the queues of the source show."""
    counts: Counter[str] = Counter()
    for each in dropped:
        counts[each.topic] += each.units
    for finding in findings:
        if finding.code == _NEUTRAL and finding.topic:
            counts[finding.topic] += finding.count
    return dict(sorted(counts.items()))


def _left(plan: SalvagePlan) -> Iterator[str]:
    """What was left behind beside the gaps."""
    if plan.committed_missing:
        yield f"missing: {counted(plan.committed_missing, 'committed message')}, by the Raft indices of the entries"
    for reason, total in sorted(plan.left.totals.items()):
        if reason in ("not-a-record", "contradicted") or (reason in _SEEN_IN_GAPS and plan.layout.gaps):
            continue
        messages = f", {counted(total.records, 'message')}" if total.records else ""
        yield f"left behind: {counted(total.size, 'byte')}{messages}: {MEANINGS[reason]}"


def _of_sources(plan: SalvagePlan, sources: Sequence[Store]) -> Iterator[Loss]:
    """The losses on record, but for those of bytes that this salvage has found elsewhere."""
    pairs = [(gap.physical_offset, gap.physical_offset + gap.size) for gap in plan.layout.gaps]
    gaps: Ranges = np.array(pairs, np.int64).reshape(-1, 2)
    for source in sources:
        for recorded in recorded_losses(source.root):
            loss = recorded.loss
            if loss and (not loss.extents or any(_meets(gaps, each) for each in loss.extents)):
                yield loss


def _meets(gaps: Ranges, extent: LostExtent) -> bool:
    return meets(gaps, extent.physical_offset, extent.physical_offset + extent.size)
