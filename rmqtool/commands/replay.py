"""`rmqtool replay STORE|PARQUET --nameserver H:P`: messages to a live cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqtool.base.errors import Exit, UsageError
from rmqtool.commands.filter_options import filter_options, limit_option
from rmqtool.commands.help_page import HelpPage, examples_and_statuses
from rmqtool.commands.options import global_options, store_options
from rmqtool.commands.replay_options import check_options, replay_options, security_of
from rmqtool.commands.replay_sources import Wanted, selections_of
from rmqtool.commands.writing import confirm, dry_run_option, yes_option
from rmqtool.show.output import Style, note

if TYPE_CHECKING:
    from rmqtool.replay.planning import ReplayPlan
    from rmqtool.replay.run import Replay, Sent
    from rmqtool.scan.filters import Filters

_EPILOG = examples_and_statuses(
    (
        "rmqtool replay /data/rocketmq/store --nameserver localhost:9876",
        "rmqtool replay /data/rocketmq/store --dead-letters-of billing --dry-run",
        "rmqtool replay /data/rocketmq/store --nameserver localhost:9876 --send",
        "rmqtool replay /data/rocketmq/store --nameserver localhost:9876 \\\n"
        "    --dead-letters-of billing --send --rate 100/s",
        "rmqtool replay /lake/orders --nameserver localhost:9876 --to-topic test",
    ),
    {
        Exit.OK: "done; or all that was chosen can be sent",
        Exit.FINDINGS: "nothing was chosen; or, counted only, some cannot be sent",
        Exit.USAGE: "the command line is wrong, or the journal is of another replay",
        Exit.LOSSY: "some messages were refused, left out, or are damaged in the source",
        Exit.FAILED: "the target is not there, or was away too long: run it again",
        Exit.NOT_A_STORE: "neither a store nor an export",
    },
)


@click.command("replay", cls=HelpPage, epilog=_EPILOG)
@click.argument("path", metavar="STORE|PARQUET", type=click.Path(path_type=Path))
@replay_options
@filter_options()
@limit_option
@dry_run_option
@yes_option
@store_options
@global_options
@click.pass_obj
def replay(
    style: Style, /, *, path: Path, filters: Filters, name_servers: tuple[str, ...], limit: int | None, **given: Any
) -> Exit:
    """Send messages of a store to a live cluster.

    The messages are those of a store, or of the Parquet files of an export. Without --send nothing is sent: it is
    counted what would go where, what the target does not take, and what is there already. With --send each message
    gets a receipt in a journal; killed at any moment, the same command goes on and sends nothing twice that it can
    know of. Nothing in the source is changed.
    """
    from rmqtool.replay.cluster import Cluster
    from rmqtool.replay.run import Replay
    from rmqtool.replay.sending import SendOptions

    style.store = str(path)
    check_options(given)
    security = security_of(given)
    selections = selections_of(Wanted(path, filters, given))
    journal = given["journal"] or Path(f"{path.resolve()}.replay.ndjson")
    _check_journal(journal, path)
    if not (name_servers or given["dry_run"]):
        raise UsageError("it is not said where to send to: --nameserver HOST:PORT", hint="--dry-run counts without it")
    options = SendOptions(
        batch=given["batch"],
        rate=given["rate"],
        patience=given["patience"],
        loose_born_time=given["loose_born_time"],
        looks_up=given["look_up"],
        send_again=given["send_again"],
        keeps_going=given["keep_going"],
    )
    with Cluster(name_servers, security) as cluster:
        job = Replay(selections, cluster, options, limit)
        if given["send"]:
            return _send(style, job, journal, yes=given["yes"])
        return _plan(style, job, journal)


def _plan(style: Style, job: Replay, journal: Path) -> Exit:
    """Count, and show what was counted."""
    from rmqtool.replay.journal import read_done
    from rmqtool.show.progress import byte_progress
    from rmqtool.show.replay_json import write_plan
    from rmqtool.show.replay_text import show_plan

    before = read_done(journal, job.header())
    with byte_progress("counting", job.size, style=style) as progress:
        plan = job.plan(before, progress.update, looks_up=job.options.looks_up and job.cluster.is_known)
    status = _status_of_plan(plan)
    if style.json:
        write_plan(plan, job, journal, style, status)
        return status
    show_plan(plan, job, style)
    if not style.quiet:
        note("nothing was sent" + ("; to send it, add --send" if plan.total.messages else ""))
    return status


def _send(style: Style, job: Replay, path: Path, *, yes: bool) -> Exit:
    """Count, ask, send, and show what was sent."""
    from rmqtool.replay.journal import Journal, read_done
    from rmqtool.show.progress import byte_progress
    from rmqtool.show.replay_json import write_sent
    from rmqtool.show.replay_text import question, show_plan, show_sent

    with byte_progress("counting", job.size, style=style) as progress:
        plan = job.plan(read_done(path, job.header()), progress.update, looks_up=False)
    if not style.json and not (yes and style.quiet):
        show_plan(plan, job, style)
    if plan.total.messages:
        confirm(question(plan, job), yes=yes)
    with Journal(path, job.header()) as journal, byte_progress("sending", job.size, style=style) as progress:
        sent = job.send(journal, progress.update)
    if not style.json:
        show_sent(plan, sent, path, style)
    if sent.error is not None:
        sent.error.hint = sent.error.hint or "the same command goes on where it ended"
        raise sent.error
    status = _status_of(sent, plan)
    if style.json:
        write_sent(plan, sent, job, path, style, status)
    return status


def _status_of_plan(plan: ReplayPlan) -> Exit:
    if plan.reading.damaged_extents:
        return Exit.LOSSY
    return Exit.FINDINGS if plan.unsendable or not (plan.total.messages or plan.done_before) else Exit.OK


def _status_of(sent: Sent, plan: ReplayPlan) -> Exit:
    if sent.result.refused or sent.outcome.unsendable or sent.outcome.reading.damaged_extents:
        return Exit.LOSSY
    return Exit.OK if plan.total.messages or plan.done_before else Exit.FINDINGS


def _check_journal(journal: Path, source: Path) -> None:
    """Raise UsageError for a journal that would be a file of the source."""
    if source.is_dir() and journal.resolve().is_relative_to(source.resolve()):
        raise UsageError("the journal would be a file of the source: give a path outside of it", file=journal)
    if journal.resolve() == source.resolve() or (journal.exists() and not journal.is_file()):
        raise UsageError("the journal must be a file of its own", file=journal)
