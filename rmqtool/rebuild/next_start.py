"""The loss by the next start on a damaged log, as the store stands and once its queues are rebuilt."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding
from rmqtool.findings.remedy import Remedy
from rmqtool.rebuild.derive import Derivation
from rmqtool.rebuild.source import RebuildSource
from rmqtool.rules.recovery import RecoveryRules

if TYPE_CHECKING:
    from rmqtool.broker.recovery import LogCut


def start_findings(source: RebuildSource, derivation: Derivation) -> Iterator[Finding]:
    """The finding that a start would end the log before readable messages; the log is read again for that."""
    damaged = derivation.lost.is_lossy or derivation.wrong_bodies
    if source.snapshot.store.dledger_directory:
        return  # a node recovers by Raft
    if not damaged or not source.snapshot.log.files or "queues" not in source.options.parts:
        return
    now = _cut(source, None)
    if now is None:
        return
    after = None if source.options.neutralise else _cut(source, derivation)
    if now.messages_lost or (after and after.messages_lost):
        yield _finding(source, now, after)


def _cut(source: RebuildSource, derivation: Derivation | None) -> LogCut | None:
    """The cut of a start as the store stands or, with a derivation, with complete queues and without `abort`."""
    from rmqtool.broker.recovery import Recovery  # a dozen modules, for damaged logs only

    recovery = Recovery(source.snapshot, RecoveryRules.of(source.version, source.snapshot.store.conf))
    if recovery.loaded.refusal or not recovery.loaded.files:
        return None
    if derivation is None or not source.options.selection.is_all:
        return recovery.cut(recovery.mode)
    recovery.max_physical = derivation.end
    return recovery.cut("normal")


def _finding(source: RebuildSource, now: LogCut, after: LogCut | None) -> Finding:
    """`after` is None where nothing is cut any more, for the damage is neutralised."""
    still = after if after and after.messages_lost else None
    cut = now if now.messages_lost else still or now
    details = {"problem": ("still" if still else "now") if now.messages_lost else "after",
               "version": str(source.version), "end_offset": cut.end.offset, "messages": cut.messages_lost,
               "bytes": cut.bytes_cut}  # fmt: skip
    if still:
        details |= {"messages_after": still.messages_lost, "bytes_after": still.bytes_cut}
    effect = "keeps the log, once this is done"
    if still:
        effect = "cuts the log there and deletes the files after it: do not start it before this is settled"
    return finding(
        "start.data-loss",
        details=details,
        severity="warning",
        effect=effect,
        store=source.snapshot.store.root,
        remedy=Remedy("rmqtool rebuild-cq {store} --neutralise" if still else "rmqtool verify {store}"),
        offset=(still or now).end.offset,
        count=max((still or now).messages_lost, 1),
    )
