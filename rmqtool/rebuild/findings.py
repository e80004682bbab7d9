"""What a pass over the log found odd, with what the broker makes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote

from rmqtool.append.simple_queues import Irregular
from rmqtool.dispatch.units import QueueName
from rmqtool.findings import Finding
from rmqtool.rebuild.derive import Derivation
from rmqtool.rebuild.names import refusal, refused_finding
from rmqtool.rebuild.neutralise import Patch

_MAX_EXAMPLES = 20  # of each code; the last one counts the rest


def derivation_findings(derivation: Derivation, root: Path) -> Iterator[Finding]:
    """Findings of one pass, most serious first."""
    remedy = f"rmqtool verify {quote(str(root))}"
    if derivation.lost.is_lossy:
        yield _damaged(derivation, remedy)
    if derivation.wrong_bodies:
        yield _wrong_bodies(derivation.wrong_bodies, remedy)
    yield from _capped([_refused(name, units) for name, units in sorted(derivation.refused.items())])
    if derivation.simple:
        found = sorted(derivation.simple.irregular.items(), key=lambda item: derivation.queues[item[0]])
        every = [finding for queue, irregular in found for finding in _irregular(derivation.queues[queue], irregular)]
        for code in dict.fromkeys(finding.code for finding in every):
            yield from _capped([finding for finding in every if finding.code == code])


def _refused(name: QueueName, units: int) -> Finding:
    return refused_finding(name, refusal(name) or "", units)


def _capped(findings: list[Finding]) -> Iterator[Finding]:
    yield from findings[:_MAX_EXAMPLES]
    rest = findings[_MAX_EXAMPLES:]
    if rest:
        count = sum(finding.count for finding in rest)
        yield replace(rest[0], message=f"{rest[0].message}; and {len(rest) - 1} more queues", count=count)


def _damaged(derivation: Derivation, remedy: str) -> Finding:
    lost = derivation.lost
    start, _, _ = lost.listed[0]
    reasons = Counter(reason for _, _, reason in lost.listed)
    shown = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    return Finding(
        code="commitlog.damage",
        severity="warning",
        offset=start,
        message=f"{lost.size} bytes of the commit log hold no record ({shown}): skipped, what follows is rebuilt",
        effect="a start that scans this part of the log ends the log there and deletes what follows: look before "
        "you start the broker",
        remedy=remedy,
        count=lost.count,
    )


def _wrong_bodies(offsets: list[int], remedy: str) -> Finding:
    return Finding(
        code="commitlog.body-crc",
        severity="warning",
        fault="F16",
        offset=offsets[0],
        message="a body is not what was stored, its CRC differs; the message keeps its place in queue and index",
        effect="delivers it as it is; but a start that scans this part of the log ends the log there",
        remedy=remedy,
        count=len(offsets),
    )


def patch_findings(patches: Sequence[Patch]) -> Iterator[Finding]:
    """What neutralising does to the log, and what it cannot do."""
    done = [patch for patch in patches if patch.is_possible]
    if done:
        size = sum(patch.size for patch in done)
        yield Finding(
            code="commitlog.neutralised",
            severity="info",
            offset=done[0].physical_offset,
            message=f"{size} bytes in {len(done)} places are replaced by inert records; the bytes are kept until undo",
            effect="scans past them; a slave or replica that has the bytes as they were differs from then on",
            count=len(done),
        )
    small = [patch for patch in patches if not patch.is_possible]
    if small:
        yield Finding(
            code="commitlog.not-neutralised",
            severity="error",
            offset=small[0].physical_offset,
            message=f"{small[0].size} bytes are too few for an inert record: left as they are",
            effect="a start that scans this part of the log ends the log there",
            count=len(small),
        )


def _irregular(name: QueueName, found: Irregular) -> Iterator[Finding]:
    def finding(kind: str, message: str, effect: str, count: int) -> Finding:
        return Finding(
            code=f"rebuild.{kind}",
            severity="info" if kind in ("repeated", "superseded") else "warning",
            topic=name.topic,
            queue_id=name.queue_id,
            message=message,
            effect=effect,
            count=count,
        )

    if found.jump:
        yield replace(
            finding(
                "queue-offset-jump",
                f"not rebuilt: stored queue offsets jump from {found.jump[0]} to {found.jump[1]}, more than the lost "
                "bytes of the log can have held; --as-broker closes the jump",
                "closes the jump when it builds the queue itself: later messages get smaller offsets",
                found.jump[1] - found.jump[0],
            ),
            severity="error",
        )
    if found.neutral:
        message = f"{found.neutral} messages are lost: units that do no harm keep the offsets of the others"
        yield finding("neutral-units", message, "a pull skips them, or delivers the next message again", found.neutral)
    if found.superseded:
        message = f"{found.superseded} units are left out: the queue began again at a lower offset"
        yield finding("superseded", message, "serves the later messages too", found.superseded)
    if found.renumbered:
        message = f"{found.renumbered} stored queue offsets are refuted by the messages around them"
        yield finding("queue-offset", message, "delivers them with the stored offset", found.renumbered)
    if found.shifted:
        message = f"{found.shifted} units stand at another number than their stored queue offset, as a broker puts them"
        yield finding("shifted", message, "delivers them; committed offsets may mean other messages", found.shifted)
    if found.repeated:
        message = f"{found.repeated} units are dropped as repeated, as a broker drops them"
        yield finding("repeated", message, "does not deliver them", found.repeated)
