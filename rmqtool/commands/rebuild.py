"""`rmqtool rebuild-cq STORE` and `rmqtool rebuild-index STORE`: derived files anew from the commit log."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from rmqtool.broker_conf import BrokerConf
from rmqtool.commands.options import F, examples_and_statuses, global_options, store_options
from rmqtool.commands.writing import confirm, recovered_json, require_answer, tell_recovered, yes_option
from rmqtool.errors import Exit, RmqtoolError, UsageError
from rmqtool.output import Style, note, write_document
from rmqtool.versions import Version

if TYPE_CHECKING:
    from rmqtool.append.simple_queues import Order
    from rmqtool.files import RateLimit
    from rmqtool.progress import ByteProgress
    from rmqtool.rebuild.options import Part, RebuildOptions
    from rmqtool.rebuild.plan import Plan
    from rmqtool.rebuild_json import PlanState
    from rmqtool.store import Store

_STATUSES = {
    Exit.OK: "done, planned, or nothing to do",
    Exit.USAGE: "the options do not fit, or nobody confirmed",
    Exit.LOSSY: "done, but bytes of the log had to be skipped, or a queue could not be rebuilt",
    Exit.FAILED: "could not finish; the store is as before",
    Exit.IN_USE: "a broker runs on the store",
    Exit.NOT_A_STORE: "not a RocketMQ store",
}


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


@click.command(
    "rebuild-cq",
    epilog=examples_and_statuses(
        (
            "rmqtool rebuild-cq /data/rocketmq/store --dry-run",
            "rmqtool rebuild-cq /data/rocketmq/store --topic orders --dry-run",
            "rmqtool rebuild-cq /data/rocketmq/store --output /data/rocketmq/store-queues",
        ),
        _STATUSES,
    ),
)
@rebuild_options
@click.pass_obj
def rebuild_cq(style: Style, /, **given: Any) -> Exit:
    """Rebuild the consume queues from the commit log.

    STORE is the directory that broker.conf calls storePathRootDir. Queues that are as they should be are left alone;
    the files that are replaced are kept until `rmqtool undo`. Stop the broker first.
    """
    return _rebuild(style, "rebuild-cq", "queues", given)


@click.command(
    "rebuild-index",
    epilog=examples_and_statuses(
        (
            "rmqtool rebuild-index /data/rocketmq/store --dry-run",
            "rmqtool rebuild-index /data/rocketmq/store --output /data/rocketmq/store-index",
        ),
        _STATUSES,
    ),
)
@rebuild_options
@click.pass_obj
def rebuild_index(style: Style, /, **given: Any) -> Exit:
    """Rebuild the index files, by which messages are found by key, from the commit log.

    STORE is the directory that broker.conf calls storePathRootDir. The files that are replaced are kept until
    `rmqtool undo`. An index file holds keys of all topics: --topic and --queue are for --output only.
    """
    return _rebuild(style, "rebuild-index", "index", given)


def _rebuild(style: Style, command: str, part: Part, given: dict[str, Any]) -> Exit:
    style.store = str(given["path"])
    request = _request(command, part, **given)
    if request.only_damaged:
        request = _narrow(style, request, part, given["broker_version"])
    if request.output:
        return _write_elsewhere(style, request, request.output)
    if request.dry_run:
        return _show_only(style, request)
    return _write(style, request)


def _request(
    command: str,
    part: Part,
    *,
    path: Path,
    topics: tuple[str, ...],
    queue_ids: tuple[int, ...],
    only_damaged: bool,
    as_broker: bool,
    output: Path | None,
    dry_run: bool,
    save_plan: Path | None,
    plan: Path | None,
    yes: bool,
    broker_version: Version | None,
    broker_conf: BrokerConf,
    limit_rate: RateLimit | None,
) -> Request:
    from rmqtool.files import Reading
    from rmqtool.lock import lock_holder
    from rmqtool.rebuild.names import Selection
    from rmqtool.rebuild.options import RebuildOptions
    from rmqtool.rebuild.saved import SavedPlan
    from rmqtool.store import open_store

    dry_run = dry_run or save_plan is not None
    if plan and (topics or queue_ids or only_damaged or as_broker or output or dry_run):
        raise UsageError("--plan carries out what was saved: no other choice may be made beside it")
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
    options = RebuildOptions(frozenset([part]), selection, broker_version, order, reading)
    if plan:
        options = SavedPlan(plan, command).options(options)
    return Request(command, store, options, dry_run, yes, output, save_plan, plan, only_damaged)


def _narrow(style: Style, request: Request, part: Part, version: Version | None) -> Request:
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


def _progress(style: Style, request: Request, title: str) -> AbstractContextManager[ByteProgress]:
    from rmqtool.progress import byte_progress

    return byte_progress(title, request.store.commit_log().size, style.quiet)


def _make_plan(style: Style, request: Request) -> Plan:
    from rmqtool.rebuild.plan import make_plan
    from rmqtool.rebuild.source import open_source

    with _progress(style, request, "comparing with the commit log") as progress:
        return make_plan(open_source(request.store, request.options), progress.update)


def _show_only(style: Style, request: Request) -> Exit:
    from rmqtool.rebuild.saved import plan_text
    from rmqtool.rebuild_json import plan_json

    plan = _make_plan(style, request)
    state: PlanState = "nothing" if plan.is_empty else "planned"
    if request.save_plan:
        text = plan_text(plan, request.command, plan_json(plan, state))
        _save(request.save_plan, text)
    status = _status(plan)
    following = None
    if not plan.is_empty:
        following = _command(request, "--plan", str(request.save_plan)) if request.save_plan else _command(request)
    _show(style, request, plan, state, status, following=following)
    return status


def _write_elsewhere(style: Style, request: Request, directory: Path) -> Exit:
    from rmqtool.rebuild.output import write_output
    from rmqtool.rebuild.source import open_source

    with _progress(style, request, f"writing below {directory}") as progress:
        try:
            plan = write_output(open_source(request.store, request.options), directory, progress.update)
        except OSError as error:
            raise _unwritable(directory, error) from error
    status = _status(plan)
    _show(style, request, plan, "done", status, verb="written")
    if not (style.json or style.quiet):
        note(f"written below {directory}; the store is as it was")
    return status


def _write(style: Style, request: Request) -> Exit:
    from rmqtool.rebuild.apply import apply_plan
    from rmqtool.rebuild.saved import SavedPlan
    from rmqtool.rebuild_json import plan_json
    from rmqtool.transaction import Transaction

    require_answer(request.yes)
    saved = SavedPlan(request.plan, request.command) if request.plan else None
    with Transaction(request.store, request.command) as transaction:
        tell_recovered(style, transaction.recovered)
        recovered = recovered_json(transaction.recovered)
        if saved:
            saved.require_same_store(request.store)
        plan = _make_plan(style, request)
        if saved:
            saved.require_same_result(request.store, plan_json(plan, "nothing" if plan.is_empty else "planned"))
        status = _status(plan)
        if plan.is_empty:
            _show(style, request, plan, "nothing", status, recovered=recovered)
            return status
        if not request.yes:
            _show_for_confirmation(style, plan)
            confirm(style, "Write this?", request.yes)
        with _progress(style, request, "rebuilding") as progress:
            committed = apply_plan(plan, transaction, progress.update)
    plan = replace(plan, backup_bytes=committed.backup_bytes)
    _show(style, request, plan, "done", status, transaction=committed.id, shown=not request.yes, recovered=recovered)
    return status


def _show_for_confirmation(style: Style, plan: Plan) -> None:
    from rmqtool.rebuild_text import show_plan

    if not style.json:
        show_plan(plan, style, verb="planned")
        sys.stdout.flush()


def _show(
    style: Style,
    request: Request,
    plan: Plan,
    state: PlanState,
    status: Exit,
    *,
    transaction: str | None = None,
    verb: str = "planned",
    following: str | None = None,
    shown: bool = False,
    recovered: Sequence[dict[str, str | None]] = (),
) -> None:
    from rmqtool.rebuild_json import plan_json
    from rmqtool.rebuild_text import show_plan

    root = str(request.store.root)
    if style.json:
        result = {**plan_json(plan, state, transaction), "recovered": list(recovered)}
        write_document(request.command, style.store, result, findings=plan.findings, status=status)
        return
    if not shown:
        show_plan(plan, style, verb=verb)
    if style.quiet:
        return
    if transaction:
        note(f"done: {transaction}; to take it back: rmqtool undo {quote(root)}")
        note(f"next: rmqtool verify {quote(root)}")
    elif state == "nothing":
        note("nothing to do")
    elif following:
        note(f"nothing is written yet; next: {following}")


def _command(request: Request, *more: str) -> str:
    """The command line that carries out what was shown."""
    selection = request.options.selection
    words = ["rmqtool", request.command, str(request.store.root), *more]
    if not more:
        words += [word for topic in sorted(selection.topics) for word in ("--topic", topic)]
        words += [word for number in sorted(selection.queue_ids) for word in ("--queue", str(number))]
        words += ["--only-damaged"] if request.only_damaged else []
        words += ["--as-broker"] if request.options.order == "broker" else []
    words += ["--broker-conf", request.store.conf.path] if request.store.conf.path else []
    return " ".join(map(quote, words))


def _status(plan: Plan) -> Exit:
    return Exit.LOSSY if plan.is_lossy else Exit.OK


def _save(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> RmqtoolError:
    from rmqtool.errors import UnwritableError

    place = Path(error.filename) if isinstance(error.filename, str) else path
    return UnwritableError(f"cannot be written: {(error.strerror or str(error)).lower()}", file=place)
