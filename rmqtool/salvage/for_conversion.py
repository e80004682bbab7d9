"""What goes with a converted log: the files beside it that stay true, and what of the log is not in it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from rmqtool.base.errors import UnsupportedError
from rmqtool.findings.finding import Finding, counted
from rmqtool.salvage.carry_over import Carried, find_carried
from rmqtool.salvage.conversion import ConversionPlan
from rmqtool.salvage.entry_walk import LEFT_MEANINGS
from rmqtool.salvage.loss_record import lost_messages
from rmqtool.store.lock import lock_holder
from rmqtool.store.paths import TIMER_CHECK, TIMER_LOG
from rmqtool.store.store import CONFIG, SIDE_STORE, Store, layout_of_queues
from rmqtool.transaction import Loss
from rmqtool.transaction.losses import LostExtent

COMMAND = "convert"
_BY_PHYSICAL_OFFSET = ("timerwheel", TIMER_LOG, f"{CONFIG}/{TIMER_CHECK}", SIDE_STORE)
"""What leads to messages by physical offset: a broker makes it again where it finds none of them."""


def require_stopped(store: Store) -> None:
    """Raise StoreInUseError where a broker runs on the store."""
    holder = lock_holder(store.root)
    if holder is not None:
        raise holder.refusal(store.root)


def require_messages(plan: ConversionPlan) -> None:
    """Raise UnsupportedError where no message is taken."""
    if not (plan.messages or plan.conversion.plain):
        hint = "--uncommitted takes those after the committed index" if "uncommitted" in plan.totals else None
        raise UnsupportedError("there is no message to take", file=plan.conversion.store.root, hint=hint)


def as_ordinary(store: Store) -> Store:
    """The store as the rebuild of the new log sees it; raises UnsupportedError for queues that it cannot derive."""
    layout = layout_of_queues(store.root)
    if layout == "rocksdb" and store.dledger_directory:
        message = "a DLedger store with its queues in RocksDB, which cannot be written for a log that moves"
        raise UnsupportedError(message, file=store.root)
    return replace(store, layout=layout, older_log_directories=(), dledger_directory=None)


def carried_with(store: Store) -> tuple[list[Carried], list[str]]:
    """What is carried over, and the names of what is not, for its physical offsets are no longer true."""
    carried = find_carried([store], store)
    return without_offsets(carried) if store.dledger_directory else (carried, [])


def without_offsets(carried: Iterable[Carried]) -> tuple[list[Carried], list[str]]:
    """What stays true where messages move, and the names of what does not, for it holds physical offsets."""
    found, left = list[Carried](), list[str]()
    for each in carried:
        if each.name.removesuffix(".bak") in _BY_PHYSICAL_OFFSET:
            left.append(each.name)
        else:
            found.append(each)
    return found, left


def loss_of(plan: ConversionPlan, findings: Sequence[Finding]) -> Loss | None:
    """What the new store lacks, for its record; `findings` are those of the rebuild."""
    if not plan.is_lossy:
        return None
    extents = tuple(LostExtent(offset, size, "missing") for offset, size in plan.filled)
    messages, proofs = lost_messages((), findings), tuple(_proofs(plan))
    return Loss(COMMAND, int(time.time() * 1000), plan.filled_bytes, extents, messages=messages, proofs=proofs)


def _proofs(plan: ConversionPlan) -> Iterator[str]:
    if plan.missing:
        yield f"missing: {counted(plan.missing, 'committed message')}, by the Raft indices of the entries"
    for reason, total in sorted(plan.totals.items()):
        yield f"left out: {counted(total.size, 'byte')}, {counted(total.messages, 'message')}: {LEFT_MEANINGS[reason]}"
