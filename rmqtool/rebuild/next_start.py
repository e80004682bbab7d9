"""What the next start does to a damaged log, as the store stands and once its queues are rebuilt."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from rmqtool.findings import Finding
from rmqtool.rebuild.derive import Derivation
from rmqtool.rebuild.source import Source
from rmqtool.recovery import Recovery, RecoveryRules
from rmqtool.recovery.predict import LogCut


def start_findings(source: Source, derivation: Derivation) -> Iterator[Finding]:
    """Say where a start would end the log before what can still be read; the log is read again for that."""
    damaged = derivation.lost.is_lossy or derivation.wrong_bodies
    if not damaged or not source.log.files or "queues" not in source.options.parts:
        return
    now = _cut(source, None)
    if now is None:
        return
    after = _cut(source, derivation)
    if now.messages_lost or (after and after.messages_lost):
        yield _finding(source, now, after or now)


def _cut(source: Source, derivation: Derivation | None) -> LogCut | None:
    """The cut of a start as the store stands or, with a derivation, with complete queues and without `abort`."""
    recovery = Recovery(
        source.store, RecoveryRules.of(source.version, source.store.conf), reading=source.options.reading
    )
    if recovery.loaded.refuses or not recovery.loaded.files:
        return None
    if derivation is None or not source.options.selection.is_all:
        return recovery.cut(recovery.mode)
    recovery.max_physical = derivation.end
    return recovery.cut("normal")


def _finding(source: Source, now: LogCut, after: LogCut) -> Finding:
    verify = f"rmqtool verify {quote(str(source.store.root))}"
    version = source.version
    if now.messages_lost:
        message = f"as the store stands, a start of {version} ends the log at offset {now.end.offset}: {_loss(now)}"
        message += (
            f"; after this rebuild it still loses {_loss(after)}"
            if after.messages_lost
            else ("; after this rebuild it no longer does")
        )
    else:
        message = f"after this rebuild a start of {version} ends the log at offset {after.end.offset}: {_loss(after)}"
    return Finding(
        code="commitlog.cut-at-start",
        severity="warning",
        offset=(after if after.messages_lost else now).end.offset,
        message=message,
        effect="cuts the log there and deletes the files behind it; do not start the broker before this is settled"
        if after.messages_lost
        else "keeps the log, once the queues are rebuilt",
        remedy=verify,
        count=max(now.messages_lost, after.messages_lost, 1),
    )


def _loss(cut: LogCut) -> str:
    return f"{cut.messages_lost:,} readable messages in {cut.bytes_cut:,} bytes"
