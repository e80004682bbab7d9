"""`rmqtool pending STORE`: what a stopped broker has yet to deliver."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import rmqtool
from rmqtool.base.errors import Exit
from rmqtool.commands.completion import complete_group
from rmqtool.commands.help_page import HelpPage, examples_and_statuses
from rmqtool.commands.options import global_options, now_option, store_options, time_from
from rmqtool.commands.shared_options import StorePath, filter_options, redact_options
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import Version
from rmqtool.show.output import Style, note

if TYPE_CHECKING:
    from rmqtool.base.files import RateLimit
    from rmqtool.scan.filters import Filters
    from rmqtool.scan.redaction import Redaction

_KINDS = ("delay", "lost-delay", "timer", "lost-timer", "half", "lost-half", "pop", "retry", "dead-letter")
_EPILOG = examples_and_statuses(
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
        Exit.NOT_A_STORE: "not a RocketMQ store",
    },
)


@click.command("pending", cls=HelpPage, epilog=_EPILOG)
@click.argument("path", metavar="STORE", type=StorePath())
@click.option("--list", "listed", is_flag=True, help="List the messages too, with their places, the most urgent first.")
@click.option(
    "--kind",
    "kinds",
    type=click.Choice(_KINDS),
    multiple=True,
    metavar="KIND",
    help=f"Only this kind: {', '.join(_KINDS)}. Repeatable.",
)
@filter_options("topic", "exclude-topic")
@click.option(
    "--group",
    "groups",
    multiple=True,
    shell_complete=complete_group,
    metavar="GROUP",
    help="Only what waits for this consumer group, or is of this producer group. Repeatable.",
)
@click.option("--due-before", metavar="TIME", help="Only what is due before then; +1h counts from --now.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    metavar="N",
    help="List at most this many; all are counted.",
)
@redact_options
@now_option
@store_options
@global_options
@click.pass_obj
def pending(
    style: Style,
    /,
    *,
    path: Path,
    listed: bool,
    limit: int,
    now: int | None,
    due_before: str | None,
    redaction: Redaction | None,
    broker_version: Version | None,
    broker_conf: BrokerConf,
    limit_rate: RateLimit | None,
    filters: Filters,
    **chosen: Any,
) -> Exit:
    """Show what a stopped broker still has to deliver.

    STORE is the directory that broker.conf calls storePathRootDir. Shown is how many messages are due when, and for
    whom. Counted are messages of delay levels and of the timer, half messages without an answer, messages that POP
    consumers took and did not acknowledge, and retries; for information, timer messages that no start would
    deliver, and dead letters. A message's topic is the one whose consumers get it: a retry of `orders` is of `orders`.
    Nothing in the store is changed.
    """
    from rmqtool.base.tolerant import ReadErrors
    from rmqtool.pending.work import PendingRequest, pending_work
    from rmqtool.show.pending import show_pending, write_pending
    from rmqtool.show.progress import byte_progress
    from rmqtool.store.missing import unknown_topic

    style.store = str(path)
    errors = ReadErrors()
    store = rmqtool.open(path, broker_conf=broker_conf, broker_version=broker_version, limit_rate=limit_rate)
    snapshot = store.snapshot.within(errors.scope)
    moment = time.time_ns() // 1_000_000 if now is None else now
    due = None if due_before is None else time_from(due_before, "--due-before", moment)
    topics = filters.topic_choice
    request = PendingRequest(moment, topics=topics, due_before=due, **chosen, limit=limit if listed else 0)
    with byte_progress("reading what waits", snapshot.log.size, style=style) as progress:
        work = pending_work(snapshot, errors, request, progress.update)
    if redaction is not None:
        work = replace(work, messages=redaction.table(work.messages))
    if style.json:
        write_pending(snapshot, work, style)
    else:
        show_pending(snapshot, work, style)
    unknown = [told for topic in filters.topics if (told := unknown_topic(snapshot, topic))]
    if unknown and not work.owed.messages:
        note("; ".join(unknown))
        return Exit.FINDINGS
    return Exit.OK if work.is_whole else Exit.LOSSY
