"""The options of the two rebuilds, and what a command line asks for with them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from rmqtool.base.errors import UsageError
from rmqtool.commands.options import F, global_options, store_options
from rmqtool.commands.writing import yes_option
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import Version
from rmqtool.show.output import Style

if TYPE_CHECKING:
    from rmqtool.base.files import RateLimit
    from rmqtool.rebuild.options import Part, RebuildOptions
    from rmqtool.rebuild.queue_placement import Order
    from rmqtool.store.store import Store


@dataclass(frozen=True)
class RebuildRequest:
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
            click.option("--append-order", is_flag=True,
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
            click.option("-j", "--jobs", type=click.IntRange(min=1, max=256), default=1, show_default=True,
                         metavar="N", help="Read the log with so many processes; the result is the same."),
        )
    ):  # fmt: skip
        command = option(command)
    return yes_option(store_options(global_options(command)))


@dataclass(frozen=True)
class Given:
    """The arguments and options of a rebuild, by the names that click gives them."""

    path: Path
    topics: tuple[str, ...]
    queue_ids: tuple[int, ...]
    only_damaged: bool
    append_order: bool
    neutralise: bool
    output: Path | None
    dry_run: bool
    save_plan: Path | None
    plan: Path | None
    jobs: int
    yes: bool
    broker_version: Version | None
    broker_conf: BrokerConf
    limit_rate: RateLimit | None

    @property
    def only_shows(self) -> bool:
        """Whether nothing is to be written."""
        return self.dry_run or self.save_plan is not None

    @property
    def selects(self) -> bool:
        """Whether some queues are chosen."""
        return bool(self.topics or self.queue_ids or self.only_damaged)


def request_of(command: str, part: Part, given: Given) -> RebuildRequest:
    """Turn what click gives into a request; raise UsageError for choices that contradict each other."""
    from rmqtool.rebuild.saved_plan import SavedPlan
    from rmqtool.store.store import open_store

    _require_consistent(given, part)
    store = open_store(given.path, given.broker_conf)
    options = _options(given, part, store)
    if given.plan:
        options = SavedPlan(given.plan, command).options(options)
    return RebuildRequest(command, store, options, given.only_shows, given.yes, given.output, given.save_plan,
                          given.plan, given.only_damaged)  # fmt: skip


def _require_consistent(given: Given, part: Part) -> None:
    other = given.selects or given.append_order or given.neutralise or given.output or given.only_shows
    if given.plan and other:
        raise UsageError("--plan carries out what was saved: no other choice may be made beside it")
    if given.neutralise and (given.output or given.selects):
        raise UsageError("--neutralise changes the store's log, for all of its queues: no choice goes with it")
    if given.output and given.only_shows:
        raise UsageError("--output writes at once and leaves the store alone: --dry-run does not go with it")
    if part == "index" and (given.topics or given.queue_ids) and not given.output:
        raise UsageError(
            "an index file holds the keys of all topics: it cannot be rebuilt for some",
            hint="leave --topic and --queue away, or write elsewhere with --output DIR",
        )


def _options(given: Given, part: Part, store: Store) -> RebuildOptions:
    from rmqtool.base.files import ReadPolicy
    from rmqtool.rebuild.options import RebuildOptions
    from rmqtool.rebuild.selection import QueueSelection
    from rmqtool.store.lock import lock_holder

    order: Order = "broker" if given.append_order else "stored"
    return RebuildOptions(
        parts=frozenset([part]),
        selection=QueueSelection(frozenset(given.topics), frozenset(given.queue_ids)),
        version=given.broker_version,
        order=order,
        reading=ReadPolicy(given.limit_rate, drop_page_cache=lock_holder(store.root) is not None),
        neutralise=given.neutralise,
        jobs=given.jobs,
    )


def narrow(style: Style, request: RebuildRequest, part: Part, version: Version | None) -> RebuildRequest:
    """Select what a verification finds wrong; nothing at all when it finds nothing."""
    from rmqtool.commands.only_damaged import damaged_index, damaged_queues

    options = request.options
    if part == "index":
        wanted = damaged_index(style, request.store, version, options.reading.rate_limit, options.jobs)
    else:
        only = damaged_queues(style, request.store, version, options.reading.rate_limit, options.jobs)
        wanted = bool(only)
        options = replace(options, selection=replace(options.selection, only=only))
    return replace(request, options=options if wanted else replace(options, parts=frozenset()))


def command_line(request: RebuildRequest, *more: str) -> str:
    """The command line that carries out what was shown."""
    selection = request.options.selection
    words = ["rmqtool", request.command, str(request.store.root), *more]
    if not more:
        words += [word for topic in sorted(selection.topics) for word in ("--topic", topic)]
        words += [word for number in sorted(selection.queue_ids) for word in ("--queue", str(number))]
        words += ["--only-damaged"] if request.only_damaged else []
        words += ["--neutralise"] if request.options.neutralise else []
        words += ["--append-order"] if request.options.order == "broker" else []
    words += ["--jobs", str(request.options.jobs)] if request.options.jobs > 1 else []
    words += ["--broker-version", str(request.options.version)] if request.options.version else []
    words += ["--broker-conf", request.store.conf.path] if request.store.conf.path else []
    return " ".join(map(quote, words))
