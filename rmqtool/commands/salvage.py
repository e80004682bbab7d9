"""`rmqtool salvage SOURCE... --output NEW`: a new store of what proves itself in damaged ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any

import click

from rmqtool.base.errors import ChangedError, Exit, UsageError
from rmqtool.base.files import RateLimit
from rmqtool.commands.help_page import HelpPage, examples_and_statuses
from rmqtool.commands.new_stores import derive, owner_of
from rmqtool.commands.options import global_options, jobs_option, store_options
from rmqtool.commands.verifying import repeated_options
from rmqtool.commands.writing import dry_run_option
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import Version
from rmqtool.show.output import Style, note, write_document

if TYPE_CHECKING:
    from rmqtool.rebuild.plan import RebuildPlan
    from rmqtool.salvage.carry_over import Carried
    from rmqtool.salvage.new_store import NewStore
    from rmqtool.salvage.plan import SalvagePlan
    from rmqtool.show.salvage_json import SalvageState
    from rmqtool.store.store import Store

_EPILOG = examples_and_statuses(
    (
        "rmqtool salvage /data/rocketmq/store --output /data/new --dry-run",
        "rmqtool salvage /data/rocketmq/store /slave/store --output /data/new",
        "rmqtool salvage --raw /dumps/disk.img --output /data/new-of-image",
    ),
    {
        Exit.OK: "done, or planned; all is saved",
        Exit.FINDINGS: "done, or planned; something is lost, or was left behind",
        Exit.USAGE: "the options do not fit each other, or the output is not empty",
        Exit.LOSSY: "done, or planned; not all of the sources can be read",
        Exit.FAILED: "could not finish; there is no new store",
        Exit.NOT_A_STORE: "a source is not a RocketMQ store",
    },
)


@dataclass(frozen=True)
class _Request:
    """What was asked for."""

    sources: tuple[Path, ...]
    raw: tuple[Path, ...]
    output: Path
    dry_run: bool
    jobs: int
    broker_version: Version | None
    broker_conf: BrokerConf
    limit_rate: RateLimit | None

    @property
    def words(self) -> list[str]:
        """The command line that carries out what was planned."""
        sources = [*map(str, self.sources), *(word for path in self.raw for word in ("--raw", str(path)))]
        options = repeated_options(self.broker_conf.path, self.broker_version)
        return ["rmqtool", "salvage", *sources, "--output", str(self.output), *options]


@click.command("salvage", cls=HelpPage, epilog=_EPILOG)
@click.argument("sources", metavar="[SOURCE]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, metavar="NEW",
              help="The new store: a directory that is empty, or does not exist yet.")  # fmt: skip
@click.option("--raw", type=click.Path(path_type=Path), multiple=True, metavar="FILE",
              help="Any file with records in it, such as a lost log file or a disk image. Repeatable.")  # fmt: skip
@dry_run_option
@jobs_option()
@store_options
@global_options
@click.pass_obj
def salvage(style: Style, /, **given: Any) -> Exit:
    """Make a new store of what is sound in damaged ones.

    SOURCE is a store, or a copy of one, damaged in any way: each further one fills what those before it have lost.
    Every message that proves itself is saved at its physical offset. What is left behind is listed. Nothing in the
    sources is changed.
    """
    from rmqtool.salvage.carry_over import find_carried
    from rmqtool.salvage.for_rebuild import main_store
    from rmqtool.salvage.new_store import NewStore, require_free_name
    from rmqtool.store.store import open_store, require_plain_log

    request = _Request(**given)
    if not (request.sources or request.raw):
        raise UsageError("nothing to salvage from: name a store, or a file with --raw")
    style.store = str((*request.sources, *request.raw)[0])
    require_free_name(request.output, request.sources)
    stores = [open_store(path, request.broker_conf) for path in request.sources]
    for store in stores:
        require_plain_log(store, "salvage")
    plan = _plan(style, request, stores)
    main = main_store(stores)
    carried = find_carried(stores, main)
    if request.dry_run or plan.is_empty:
        return _show(style, request, plan, carried, None)
    with NewStore(request.output).making() as new:
        problems, rebuild = _make(style, request, plan, _Stores(stores, main, carried), new)
        new.finish(owner_of(stores))
    return _show(style, request, plan, [*(each for each in carried if not each.problem), *problems], rebuild)


@dataclass(frozen=True)
class _Stores:
    """The stores, the one whose queues count, and what is taken from them beside the log."""

    all: Sequence[Store]
    main: Store | None
    carried: Sequence[Carried]


def _plan(style: Style, request: _Request, stores: Sequence[Store]) -> SalvagePlan:
    from rmqtool.base.files import ReadPolicy
    from rmqtool.salvage.for_rebuild import known_topics
    from rmqtool.salvage.inputs import list_inputs
    from rmqtool.salvage.plan import make_plan
    from rmqtool.show.progress import byte_progress

    inputs = list_inputs(stores, request.raw)
    total = sum(file.size for file in inputs.files)
    with byte_progress("looking for messages", total, style=style) as progress:
        reading = ReadPolicy(request.limit_rate)
        return make_plan(inputs, request.broker_conf, known_topics(stores), reading, progress.update)


def _make(
    style: Style, request: _Request, plan: SalvagePlan, stores: _Stores, new: NewStore
) -> tuple[list[Carried], RebuildPlan]:
    """Write all of the new store; what could not be carried over, and what was derived."""
    from rmqtool.rebuild.losses import loss_of
    from rmqtool.rebuild.options import RebuildOptions
    from rmqtool.salvage.carry_over import carried_bytes, carry_over
    from rmqtool.salvage.for_rebuild import rebuild_sources, write_checkpoint
    from rmqtool.salvage.loss_record import COMMAND, losses_of
    from rmqtool.salvage.write_log import write_log
    from rmqtool.show.progress import byte_progress
    from rmqtool.store.store import COMMIT_LOG, open_store
    from rmqtool.transaction import keep_losses

    new.require_space(plan.needed + carried_bytes(stores.all, stores.carried))
    with byte_progress("writing the commit log", plan.size, style=style) as progress:
        write_log(plan, new.directory / COMMIT_LOG, progress.update)
    problems = carry_over(stores.all, stores.carried, new.directory)
    options = RebuildOptions(frozenset(["queues", "index"]), version=request.broker_version, jobs=request.jobs)
    rebuild = derive(style, rebuild_sources(stores.main, new.directory, request.broker_conf), new, options)
    if rebuild.lost.is_lossy:
        raise ChangedError("the sources have changed while they were read: nothing is written")
    new.adopt_derived()
    store = open_store(new.directory)
    write_checkpoint(store, stores.main, rebuild.last_record, request.broker_version)
    losses = losses_of(plan, loss_of(rebuild, COMMAND), rebuild.findings, stores.all)
    if losses:
        keep_losses(new.directory, losses)
    return problems, rebuild


def _show(
    style: Style, request: _Request, plan: SalvagePlan, carried: Sequence[Carried], rebuild: RebuildPlan | None
) -> Exit:
    from rmqtool.show.salvage_json import salvage_json
    from rmqtool.show.salvage_text import show_salvage, worth_showing

    findings = rebuild.findings if rebuild else []
    is_left = plan.is_empty or plan.is_lossy or any(each.problem for each in carried)
    is_left = is_left or any(finding.severity == "error" for finding in findings)
    status = Exit.LOSSY if plan.is_unread else Exit.FINDINGS if is_left else Exit.OK
    state: SalvageState = "nothing" if plan.is_empty else "done" if rebuild else "planned"
    if style.json:
        result = salvage_json(plan, carried, rebuild, request.output, state)
        write_document(style, "salvage", style.store, result, findings=worth_showing(findings), status=status)
        return status
    show_salvage(plan, carried, rebuild, style)
    if not style.quiet:
        following = join(["rmqtool", "verify", str(request.output)])
        notes = {"nothing": "no message proves itself: nothing is written",
                 "planned": f"nothing is written yet; next: {join(request.words)}",
                 "done": f"done; next: {following}"}  # fmt: skip
        note(notes[state])
    return status
