"""`rmqtool pending STORE`: what a stopped broker has yet to deliver."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from rmqtool.base.errors import Exit
from rmqtool.commands.completion import complete_group
from rmqtool.commands.options import command, flag, now_option, option, time_from, time_or_clock
from rmqtool.commands.shared_options import OnTier, filter_options, redact_options
from rmqtool.show.output import Style, note
from rmqtool.show.progress import byte_progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqtool.pending.messages import Kind
    from rmqtool.scan.filters import Filters
    from rmqtool.scan.redaction import Redaction

_KINDS: tuple[Kind, ...] = (
    "delay",
    "lost-delay",
    "timer",
    "lost-timer",
    "half",
    "lost-half",
    "pop",
    "retry",
    "dead-letter",
)


@dataclass(frozen=True, kw_only=True)
class PendingOptions(OnTier):
    """What was asked for."""

    listed: bool = flag("Also list the messages and where they are, the most urgent first.", "--list")
    kinds: tuple[Kind, ...] = option(
        f"Only this kind: {', '.join(_KINDS)}; delay, timer and half with those that are lost. Repeatable.",
        "--kind", type=click.Choice(_KINDS), multiple=True, metavar="KIND",
    )  # fmt: skip
    filters: Filters = filter_options("topic", "exclude-topic")
    groups: tuple[str, ...] = option(
        "Only what awaits delivery to this consumer group, or is from this producer group. Repeatable.",
        "--group", multiple=True, shell_complete=complete_group, metavar="GROUP",
    )  # fmt: skip
    due_before: str | None = option("Only messages due before this time; +1h counts from --now.", metavar="TIME")
    limit: int = option(
        "List at most this many; all are counted.", type=click.IntRange(min=1), default=100, metavar="N"
    )
    redaction: Redaction | None = redact_options()
    now: int | None = now_option()


def _with_lost(kinds: Sequence[Kind]) -> tuple[Kind, ...]:
    """The kinds, each with the one of those that no broker delivers or checks."""
    return tuple(each for each in _KINDS if each in kinds or each.removeprefix("lost-") in kinds)


@command(
    "pending",
    PendingOptions,
    (
        "rmqtool pending /data/rocketmq/store",
        "rmqtool pending /data/rocketmq/store --list --topic orders",
        "rmqtool pending /data/rocketmq/store --list --due-before +1h",
        "rmqtool pending /data/rocketmq/store --kind half --kind pop --list",
        "rmqtool pending /data/rocketmq/store --now +2h --json | jq .result.owed",
    ),
    {
        Exit.OK: "everything was checked, whether or not anything awaits delivery",
        Exit.FINDINGS: "there is no such topic",
        Exit.USAGE: "the command line is wrong",
        Exit.LOSSY: "something could not be read, or was not checked: there may be more",
        Exit.FAILED: "the store cannot be read, or is not supported",
    },
)
def pending(style: Style, given: PendingOptions) -> Exit:
    """Show what a stopped broker still has to deliver.

    STORE is the directory that broker.conf calls storePathRootDir. Shows how many messages are due, when, and for
    whom: messages of delay levels and of the timer, half messages without an answer, messages that POP consumers took
    and did not acknowledge, and retries. Timer messages that no start would deliver, and dead letters, are shown but
    not counted. A message's topic is the one whose consumers get it: a retry of `orders` belongs to `orders`. Nothing
    in the store is changed.
    """
    from rmqtool.base.tolerant import ReadErrors
    from rmqtool.pending.work import PendingRequest, pending_work
    from rmqtool.show.pending import show_pending, write_pending
    from rmqtool.store.missing import unknown_topic

    errors = ReadErrors()
    snapshot = given.opened.snapshot.within(errors.scope)
    now = time_or_clock(given.now)
    due = None if given.due_before is None else time_from(given.due_before, "--due-before", now)
    request = PendingRequest(now, kinds=_with_lost(given.kinds), groups=given.groups, topics=given.filters.topic_choice,
                             due_before=due, limit=given.limit if given.listed else 0)  # fmt: skip
    with byte_progress("reading undelivered messages", snapshot.log.size, style=style) as progress:
        work = pending_work(snapshot, errors, request, progress.update)
    if given.redaction is not None:
        work = replace(work, messages=given.redaction.table(work.messages))
    if style.json:
        write_pending(snapshot, work, style)
    else:
        show_pending(snapshot, work, style)
    unknown = [text for topic in given.filters.topics if (text := unknown_topic(snapshot, topic))]
    if unknown and not work.owed.messages:
        note("; ".join(unknown))
        return Exit.FINDINGS
    return Exit.OK if work.is_whole else Exit.LOSSY
