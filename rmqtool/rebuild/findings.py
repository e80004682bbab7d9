"""Findings of a pass over the log: damage, and queues that are not as a broker writes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding, Remedy
from rmqtool.rebuild.derive import Derivation
from rmqtool.rebuild.existing import StoredRows
from rmqtool.rebuild.neutralise import Patch
from rmqtool.rebuild.options import refusal, refused_finding
from rmqtool.rebuild.queue_placement import Irregular
from rmqtool.rebuild.source import RebuildSource
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.store.store import INDEX, Store

if TYPE_CHECKING:
    from rmqtool.broker.recovery import LogCut

_MAX_EXAMPLES = 20  # of each code; the last one counts the rest


def derivation_findings(derivation: Derivation, root: Path) -> Iterator[Finding]:
    """Findings of one pass, most serious first."""
    if derivation.lost.is_lossy:
        yield _damaged(derivation, root)
    if derivation.wrong_bodies:
        yield finding("commitlog.body-crc", store=root, severity="warning", offset=derivation.wrong_bodies[0],
                      count=len(derivation.wrong_bodies), details={"problem": "kept"})  # fmt: skip
    refused = sorted(derivation.refused.items())
    yield from _capped([refused_finding(name, refusal(name) or "", units) for name, units in refused])
    if derivation.simple:
        by_queue = sorted(derivation.simple.irregular.items(), key=lambda item: derivation.queues[item[0]])
        irregularities = [
            finding for queue, irregular in by_queue for finding in _irregular(derivation.queues[queue], irregular)
        ]
        for code in dict.fromkeys(finding.code for finding in irregularities):
            yield from _capped([finding for finding in irregularities if finding.code == code])


def no_messages_findings(names: Sequence[QueueName], *, has_index: bool) -> Iterator[Finding]:
    """Queues, and an index, that are left as they are though the log does not hold the messages of their units."""
    if has_index:
        yield finding("rebuild.no-messages-in-log", file=INDEX, details={"problem": "index"})
    facts = {"problem": "queue"}
    code = "rebuild.no-messages-in-log"
    yield from _capped([finding(code, topic=name.topic, queue_id=name.queue_id, details=facts) for name in names])


def row_findings(rows: StoredRows, foreign: int, store: Store) -> Iterator[Finding]:
    """What of the queue database cannot be read, or is `foreign`, and is not in the one that is written again."""
    if foreign:
        yield finding("consumequeue.row", severity="info", file=store.relative(rows.path), count=foreign,
                      details={"problem": "foreign"})  # fmt: skip
    if rows.problem:
        yield finding("rebuild.rocksdb-unreadable", file=store.relative(rows.path), details={"why": rows.problem})


def _capped(findings: list[Finding]) -> Iterator[Finding]:
    yield from findings[:_MAX_EXAMPLES]
    rest = findings[_MAX_EXAMPLES:]
    if rest:
        yield rest[0].standing_for(sum(finding.count for finding in rest), len(rest) - 1)


def _damaged(derivation: Derivation, root: Path) -> Finding:
    lost = derivation.lost
    start, _, _ = lost.listed[0]
    reasons = Counter(reason for _, _, reason in lost.listed)
    details = {"bytes": lost.size, "reasons": dict(sorted(reasons.items()))}
    return finding("commitlog.skipped", store=root, offset=start, count=lost.count, details=details)


def patch_findings(patches: Sequence[Patch]) -> Iterator[Finding]:
    """Extents that are neutralised, and those that are too small for it."""
    done = [patch for patch in patches if patch.is_possible]
    if done:
        details = {"problem": "done", "bytes": sum(patch.size for patch in done)}
        yield finding("commitlog.neutralised", offset=done[0].physical_offset, count=len(done), details=details)
    small = [patch for patch in patches if not patch.is_possible]
    if small:
        yield finding("commitlog.not-neutralised", offset=small[0].physical_offset, count=len(small),
                      details={"bytes": small[0].size})  # fmt: skip


def _irregular(name: QueueName, irregular: Irregular) -> Iterator[Finding]:
    queue: dict[str, Any] = {"topic": name.topic, "queue_id": name.queue_id}
    if irregular.jump:
        start, end = irregular.jump
        yield finding("rebuild.queue-offset-jump", count=end - start, details={"start": start, "end": end}, **queue)
    counts = {
        "neutral-units": irregular.neutral,
        "superseded": irregular.superseded,
        "queue-offset": irregular.renumbered,
        "stranger": irregular.strangers,
        "shifted": irregular.shifted,
        "repeated": irregular.repeated,
    }
    for code, count in counts.items():
        if count:
            yield finding(f"rebuild.{code}", count=count, **queue)


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
