"""The options of the two rebuilds, and what a command line asks for with them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from rmqtool.broker_conf import BrokerConf
from rmqtool.commands.options import F, global_options, store_options
from rmqtool.commands.writing import yes_option
from rmqtool.errors import UsageError
from rmqtool.output import Style
from rmqtool.versions import Version

if TYPE_CHECKING:
    from rmqtool.append.simple_queues import Order
    from rmqtool.files import RateLimit
    from rmqtool.rebuild.options import Part, RebuildOptions
    from rmqtool.store import Store


@dataclass(frozen=True)
class Request:
    """What the command line asks for."""

    command: str
    store: Store
    options: RebuildOptions
    dry_run: bool
    yes: bool
    output: Path | None
    save_plan: Path | None
    plan: Path | None
    only_damaged: bool


def rebuild_options(command: F) -> F:
    """The options of both rebuilds."""
    path = click.Path(path_type=Path)
    for option in reversed(
        (
            click.argument("path", type=path, metavar="STORE"),
            click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Only this topic; may be repeated."),
            click.option("--queue", "queue_ids", multiple=True, type=click.IntRange(min=0), metavar="ID",
                         help="Only queues with this number; may be repeated."),
            click.option("--only-damaged", is_flag=True,
                         help="Only what `rmqtool verify` finds wrong: it is run first."),
            click.option("--as-broker", is_flag=True,
                         help="Number units in the order in which a broker appends them to empty queues. "
                         "Default: stored queue offsets are kept."),
            click.option("--neutralise", is_flag=True,
                         help="Put inert records in place of damaged bytes of the log, so that no start of the broker "
                         "ends the log there; the bytes are kept until undo."),
            click.option("--output", type=path, metavar="DIR",
                         help="Write the files below DIR; the store is only read."),
            click.option("--dry-run", is_flag=True, help="Show the plan; nothing is written."),
            click.option("--save-plan", type=path, metavar="FILE", help="Write the plan to FILE; implies --dry-run."),
            click.option("--plan", type=path, metavar="FILE",
                         help="Carry out a saved plan, if the store is still the one that it was made from."),
        )
    ):  # fmt: skip
        command = option(command)
    return yes_option(store_options(global_options(command)))


def request_of(
    command: str,
    part: Part,
    *,
    path: Path,
    topics: tuple[str, ...],
    queue_ids: tuple[int, ...],
    only_damaged: bool,
    as_broker: bool,
    neutralise: bool,
    output: Path | None,
    dry_run: bool,
    save_plan: Path | None,
    plan: Path | None,
    yes: bool,
    broker_version: Version | None,
    broker_conf: BrokerConf,
    limit_rate: RateLimit | None,
) -> Request:
    """Turn what click gives into a request; raise UsageError for choices that contradict each other."""
    from rmqtool.files import Reading
    from rmqtool.lock import lock_holder
    from rmqtool.rebuild.names import Selection
    from rmqtool.rebuild.options import RebuildOptions
    from rmqtool.rebuild.saved import SavedPlan
    from rmqtool.store import open_store

    dry_run = dry_run or save_plan is not None
    if plan and (topics or queue_ids or only_damaged or as_broker or neutralise or output or dry_run):
        raise UsageError("--plan carries out what was saved: no other choice may be made beside it")
    if neutralise and (output or topics or queue_ids or only_damaged):
        raise UsageError("--neutralise changes the store's log, for all of its queues: no choice goes with it")
    if output and dry_run:
        raise UsageError("--output writes at once and leaves the store alone: --dry-run does not go with it")
    if part == "index" and (topics or queue_ids) and not output:
        raise UsageError(
            "an index file holds the keys of all topics: it cannot be rebuilt for some",
            hint="leave --topic and --queue away, or write elsewhere with --output DIR",
        )
    store = open_store(path, broker_conf)
    reading = Reading(limit_rate, spare_cache=lock_holder(store.root) is not None)
    selection = Selection(frozenset(topics), frozenset(queue_ids))
    order: Order = "broker" if as_broker else "stored"
    options = RebuildOptions(frozenset([part]), selection, broker_version, order, reading, neutralise)
    if plan:
        options = SavedPlan(plan, command).options(options)
    return Request(command, store, options, dry_run, yes, output, save_plan, plan, only_damaged)


def narrow(style: Style, request: Request, part: Part, version: Version | None) -> Request:
    """Select what a verification finds wrong; nothing at all when it finds nothing."""
    from rmqtool.commands.damaged import damaged_index, damaged_queues

    options = request.options
    if part == "index":
        wanted = damaged_index(style, request.store, version, options.reading.rate_limit)
    else:
        only = damaged_queues(style, request.store, version, options.reading.rate_limit)
        wanted = bool(only)
        options = replace(options, selection=replace(options.selection, only=only))
    return replace(request, options=options if wanted else replace(options, parts=frozenset()))


def command_line(request: Request, *more: str) -> str:
    """The command line that carries out what was shown."""
    selection = request.options.selection
    words = ["rmqtool", request.command, str(request.store.root), *more]
    if not more:
        words += [word for topic in sorted(selection.topics) for word in ("--topic", topic)]
        words += [word for number in sorted(selection.queue_ids) for word in ("--queue", str(number))]
        words += ["--only-damaged"] if request.only_damaged else []
        words += ["--neutralise"] if request.options.neutralise else []
        words += ["--as-broker"] if request.options.order == "broker" else []
    words += ["--broker-conf", request.store.conf.path] if request.store.conf.path else []
    return " ".join(map(quote, words))
