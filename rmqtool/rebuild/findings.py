"""Findings of a pass over the log: damage, and queues that are not as a broker writes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding, counted
from rmqtool.rebuild.derive import Derivation
from rmqtool.rebuild.neutralise import Patch
from rmqtool.rebuild.queue_placement import Irregular
from rmqtool.rebuild.rows import StoredRows
from rmqtool.rebuild.selection import refusal, refused_finding
from rmqtool.store.store import INDEX, Store

_MAX_EXAMPLES = 20  # of each code; the last one counts the rest


def derivation_findings(derivation: Derivation, root: Path) -> Iterator[Finding]:
    """Findings of one pass, most serious first."""
    if derivation.lost.is_lossy:
        yield _damaged(derivation, root)
    if derivation.wrong_bodies:
        yield _wrong_bodies(derivation.wrong_bodies, root)
    yield from _capped([_refused(name, units) for name, units in sorted(derivation.refused.items())])
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
        yield finding("rebuild.no-messages-in-log", "the index is left as it is: the log holds no message", file=INDEX)
    message = "left as it is: the log holds no message of it, and yet its units point into the log or behind it"
    yield from _capped(
        [finding("rebuild.no-messages-in-log", message, topic=name.topic, queue_id=name.queue_id) for name in names]
    )


def row_findings(rows: StoredRows, foreign: int, store: Store) -> Iterator[Finding]:
    """What of the queue database cannot be read, or is `foreign`, and is not in the one that is written anew."""
    if foreign:
        are = "is" if foreign == 1 else "are"
        message = f"{counted(foreign, 'row')} {are} left out, for the database is written anew"
        yield finding("consumequeue.row", message, severity="info", file=store.relative(rows.path), count=foreign)
    if rows.problem:
        yield finding("rebuild.rocksdb-unreadable", rows.problem, file=store.relative(rows.path))


def _refused(name: QueueName, units: int) -> Finding:
    return refused_finding(name, refusal(name) or "", units)


def _capped(findings: list[Finding]) -> Iterator[Finding]:
    yield from findings[:_MAX_EXAMPLES]
    rest = findings[_MAX_EXAMPLES:]
    if rest:
        count = sum(finding.count for finding in rest)
        more = f"; and {counted(len(rest) - 1, 'more queue')}" if len(rest) > 1 else ""
        yield rest[0].standing_for(count, more)


def _damaged(derivation: Derivation, root: Path) -> Finding:
    lost = derivation.lost
    start, _, _ = lost.listed[0]
    reasons = Counter(reason for _, _, reason in lost.listed)
    shown = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    holds = "holds" if lost.size == 1 else "hold"
    message = f"{counted(lost.size, 'byte')} of the commit log {holds} no record ({shown}): "
    message += "skipped, what follows is rebuilt"
    return finding("commitlog.skipped", message, store=root, offset=start, count=lost.count)


def _wrong_bodies(offsets: list[int], root: Path) -> Finding:
    message = "a body is not what was stored, its CRC differs; without --neutralise the message keeps its place"
    offset, count = offsets[0], len(offsets)
    return finding("commitlog.body-crc", message, store=root, severity="warning", offset=offset, count=count)


def patch_findings(patches: Sequence[Patch]) -> Iterator[Finding]:
    """Extents that are neutralised, and those that are too small for it."""
    done = [patch for patch in patches if patch.is_possible]
    if done:
        size = sum(patch.size for patch in done)
        message = f"{counted(size, 'byte')} in {counted(len(done), 'place')} are replaced by inert records; "
        message += "the bytes are kept until undo"
        yield finding("commitlog.neutralised", message, offset=done[0].physical_offset, count=len(done))
    small = [patch for patch in patches if not patch.is_possible]
    if small:
        size = small[0].size
        message = f"{counted(size, 'byte')} {'is' if size == 1 else 'are'} too few for an inert record: nothing is done"
        yield finding("commitlog.not-neutralised", message, offset=small[0].physical_offset, count=len(small))


def _irregular(name: QueueName, irregular: Irregular) -> Iterator[Finding]:
    details: dict[str, Any] = {"topic": name.topic, "queue_id": name.queue_id}
    if irregular.jump:
        start, end = irregular.jump
        message = f"not rebuilt: stored queue offsets jump from {start} to {end}, more than the lost bytes of the log "
        message += "can have held; --append-order closes the jump"
        yield finding("rebuild.queue-offset-jump", message, count=end - start, **details)
    messages = (
        ("neutral-units", irregular.neutral, "message", "lost: units that do no harm keep the offsets of the others"),
        ("superseded", irregular.superseded, "unit", "left out: the queue began again at a lower offset"),
        ("queue-offset", irregular.renumbered, "stored queue offset", "refuted by the messages around"),
        ("stranger", irregular.strangers, "message", "left out: the queue goes on as if they were not there"),
        ("shifted", irregular.shifted, "unit", "put at another number than stored, as a broker does it"),
        ("repeated", irregular.repeated, "unit", "dropped as repeated, as a broker drops them"),
    )
    for code, count, noun, what in messages:
        if count:
            message = f"{counted(count, noun)} {'is' if count == 1 else 'are'} {what}"
            yield finding(f"rebuild.{code}", message, count=count, **details)
