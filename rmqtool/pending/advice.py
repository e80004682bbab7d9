"""What to do about what waits."""

from __future__ import annotations

from collections.abc import Iterator

from rmqtool.base.shell import quote
from rmqtool.findings.finding import counted
from rmqtool.pending.work import PendingWork
from rmqtool.store.snapshot import Snapshot


def next_steps(snapshot: Snapshot, work: PendingWork, listing: str | None = None) -> list[str]:
    """Sentences and commands, in the order in which to follow them; `listing` is the command that lists what waits."""
    return list(_steps(snapshot, work, listing))


def _steps(snapshot: Snapshot, work: PendingWork, listing: str | None) -> Iterator[str]:
    store = quote(str(snapshot.store.root))
    given = f" --broker-version {snapshot.releases.newest}" if snapshot.releases.is_named else ""
    given += f" --broker-conf {quote(snapshot.store.conf.path)}" if snapshot.store.conf.path else ""
    lost = work.total("lost-timer").messages
    if lost:
        yield f"{counted(lost, 'timer message')} would never be delivered: rmqtool verify {store}{given}"
    unset = work.total("lost-delay").messages
    if unset:
        levels = [kind[1] for kind, *_ in work.reasons() if kind[0] == "lost-delay" and kind[1] is not None]
        yield f"{counted(unset, 'delayed message')} would never be delivered: in broker.conf, messageDelayLevel must " \
              f"have {counted(max(levels), 'level')}"  # fmt: skip
    skipped = work.total("lost-half").messages
    if skipped:
        yield f"{counted(skipped, 'half message')} would never be checked: rmqtool verify {store}{given}"
    if work.unread or work.notes.unread:
        yield f"see what is damaged: rmqtool verify {store}{given}"
    if work.messages.num_rows:
        offset = work.messages.column("physical_offset")[0].as_py()
        yield f"see the first of them: rmqtool query {store}{given} --offset {offset} --trace"
    elif work.owed.messages:
        yield f"list them: {listing or f'rmqtool pending {store}{given} --list'}"
    if work.total("delay", "timer", "pop").overdue:
        yield "what is overdue is delivered as soon as the broker starts: have its consumers ready"
    if work.total("half").messages:
        yield "the broker asks the producers of half messages when it starts: have them ready, or they are given up"
