"""`rmqtool salvage SOURCE... --output NEW`: a new store of what proves itself in damaged ones."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import rmqtool
from rmqtool.base.errors import EndingError, Exit, RmqtoolError, UsageError
from rmqtool.base.files import RateLimit
from rmqtool.base.shell import join
from rmqtool.commands.filter_options import filter_options, filter_words
from rmqtool.commands.help_page import HelpPage, examples_and_statuses
from rmqtool.commands.new_stores import owner_of
from rmqtool.commands.options import global_options, jobs_option, store_options
from rmqtool.commands.store_path import StorePath
from rmqtool.commands.writing import dry_run_option, told_anyway
from rmqtool.library.repeated_options import repeated_options
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import Version
from rmqtool.show.output import Style, note, write_document

if TYPE_CHECKING:
    from rmqtool.salvage.plan import SalvagePlan
    from rmqtool.salvage.selection import QueueOffsets, Selection
    from rmqtool.scan.filters import Filters
    from rmqtool.show.salvage_result import Choice, Salvaged
    from rmqtool.store.store import Store

_MOST_DOUBTFUL = 10_000  # records of one source
_EPILOG = examples_and_statuses(
    (
        "rmqtool salvage /data/rocketmq/store --output /data/new --dry-run",
        "rmqtool salvage /data/rocketmq/store /slave/store --output /data/new",
        "rmqtool salvage /data/n0/store /data/n1/store --output /data/new-of-nodes",
        "rmqtool salvage --raw /dumps/disk.img --output /data/new-of-image",
        "rmqtool salvage /data/rocketmq/store --topic orders --output /data/new-small",
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
    filters: Filters
    queue_offsets: QueueOffsets | None

    @property
    def selection(self) -> Selection | None:
        """What is chosen; None where all messages are saved in their places."""
        from rmqtool.salvage.selection import Selection

        is_of_single_messages = bool(self.filters.tags or self.filters.keys)
        queue_offsets = self.queue_offsets or ("new" if is_of_single_messages else "keep")
        if self.filters == type(self.filters)() and queue_offsets == "keep":
            return None
        return Selection(self.filters, queue_offsets)

    @property
    def words(self) -> list[str]:
        """The command line that carries out what was planned."""
        sources = [*map(str, self.sources), *(word for path in self.raw for word in ("--raw", str(path)))]
        options = filter_words(self.filters)
        options += ["--queue-offsets", self.queue_offsets] if self.queue_offsets else []
        options += repeated_options(self.broker_conf.path, self.broker_version)
        return ["rmqtool", "salvage", *sources, "--output", str(self.output), *options]


@click.command("salvage", cls=HelpPage, epilog=_EPILOG)
@click.argument("sources", metavar="[SOURCE]...", nargs=-1, type=StorePath())
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, metavar="NEW",
              help="The new store: a directory that is empty, or does not exist yet.")  # fmt: skip
@click.option("--raw", type=click.Path(path_type=Path), multiple=True, metavar="FILE",
              help="Any file with records in it, such as a lost log file or a disk image. Repeatable.")  # fmt: skip
@filter_options()
@click.option("--queue-offsets", type=click.Choice(["keep", "new"]),
              help="For chosen messages: as stored, or counted again from 0. "
              "Default: new with --tag or --key, else keep.")  # fmt: skip
@dry_run_option
@jobs_option()
@store_options
@global_options
@click.pass_obj
def salvage(style: Style, /, **given: Any) -> Exit:
    """Make a new store of what is sound, or of chosen messages.

    SOURCE is a store, or a copy of one, damaged in any way: each further one fills what those before it have lost.
    Every message that proves itself is saved at its physical offset; of stores of DLedger nodes, which become an
    ordinary store, at its queue offset. What is left behind is listed. Nothing in the
    sources is changed. With filters it makes a small store of a large one: a new log of the messages that pass, with
    their queues, index, topics, groups and committed offsets.
    """
    from rmqtool.commands.salvaging import Making, Stores
    from rmqtool.rebuild.options import RebuildOptions
    from rmqtool.salvage.carry_over import find_carried
    from rmqtool.salvage.for_conversion import as_ordinary
    from rmqtool.salvage.for_rebuild import main_store
    from rmqtool.salvage.new_store import NewStore
    from rmqtool.show.salvage_result import Salvaged

    request = _Request(**given)
    if not (request.sources or request.raw):
        raise UsageError("nothing to salvage from: name a store, or a file with --raw")
    style.store = str((*request.sources, *request.raw)[0])
    stores, selection = _stores(request), request.selection
    main = main_store(stores)
    if main and main.dledger_directory:
        as_ordinary(main)  # raises where its queues cannot be made
    plan = _plan(style, request, stores)
    carried = find_carried(stores, main, only_config=selection is not None)
    choice = _choose(style, plan, stores, selection, request.limit_rate) if selection and not plan.is_empty else None
    found = Salvaged(plan, carried, choice=choice)
    if request.dry_run or found.is_empty:
        return _show(style, request, found, stores)
    with NewStore(request.output).making() as new:
        if new.began_anew and not style.quiet:
            note("an earlier salvage was interrupted: it begins again, for the sources may have changed since")
        options = RebuildOptions(frozenset(["queues", "index"]), version=request.broker_version,
                                 limit=request.limit_rate, jobs=request.jobs)  # fmt: skip
        work = Making(style, plan, Stores(stores, main, carried), new, request.broker_conf, options)
        found = work.make() if choice is None else work.make_chosen(choice)
        new.finish(owner_of(stores))
    with told_anyway(style, f"done: {request.output} is whole"):
        return _show(style, request, found, stores)


def _stores(request: _Request) -> list[Store]:
    """The stores at the sources; raises RmqtoolError where no new one can be made of them at the output."""
    from rmqtool.commands.salvaging import require_movable
    from rmqtool.salvage.inputs import require_one_kind
    from rmqtool.salvage.new_store import require_free_name
    from rmqtool.store.store import conf_for

    conf, selection = request.broker_conf, request.selection
    stores = [
        rmqtool.open(path, broker_conf=conf_for(path, conf) if number else conf).snapshot.store
        for number, path in enumerate(request.sources)
    ]
    require_free_name(request.output, [*request.sources, *(path for store in stores for path in store.log_directories)])
    require_one_kind(stores)
    require_movable(stores, is_numbered_anew=selection is not None and selection.queue_offsets == "new")
    return stores


def _plan(style: Style, request: _Request, stores: Sequence[Store]) -> SalvagePlan:
    from rmqtool.base.files import ReadPolicy
    from rmqtool.salvage.for_rebuild import known_topics
    from rmqtool.salvage.inputs import list_inputs
    from rmqtool.salvage.plan import make_plan
    from rmqtool.show.progress import byte_progress

    inputs = list_inputs(stores, request.raw)
    if len(inputs.names) > 1:
        inputs = inputs.with_doubts({source: _doubtful(request, store) for source, store in enumerate(stores)})
    total = sum(file.size for file in inputs.files)
    with byte_progress("looking for messages", total, style=style) as progress:
        reading = ReadPolicy(request.limit_rate)
        topics = known_topics(stores)
        return make_plan(inputs, request.broker_conf, topics, reading, progress.update, request.jobs)


def _doubtful(request: _Request, store: Store) -> frozenset[int]:
    """The records of a source that its own queues and index contradict: another copy of these is to be preferred."""
    from rmqtool.verify.request import VerifyRequest
    from rmqtool.verify.verification import Verification

    rate = request.limit_rate.bytes_per_second if request.limit_rate else None
    try:
        verification = Verification(store, VerifyRequest(max_examples=_MOST_DOUBTFUL, jobs=request.jobs, rate=rate))
        verification.run(lambda _: None)
    except EndingError:
        raise
    except RmqtoolError:
        return frozenset()  # nothing contradicts it then
    return verification.doubtful_records


def _choose(
    style: Style, plan: SalvagePlan, stores: Sequence[Store], selection: Selection, limit: RateLimit | None
) -> Choice:
    from rmqtool.base.files import ReadPolicy
    from rmqtool.salvage.carry_over import not_carried
    from rmqtool.salvage.selected_log import find_chosen
    from rmqtool.show.progress import byte_progress
    from rmqtool.show.salvage_result import Choice

    with byte_progress("choosing messages", plan.size, style=style) as progress:
        chosen = find_chosen(plan, selection, ReadPolicy(limit), progress.update)
    return Choice(selection, chosen, not_carried(stores))


def _show(style: Style, request: _Request, found: Salvaged, stores: Sequence[Store]) -> Exit:
    from rmqtool.show.salvage_json import salvage_json
    from rmqtool.show.salvage_text import show_salvage, worth_showing

    if style.json:
        result = salvage_json(found, request.output)
        findings = worth_showing(found.rebuild.findings if found.rebuild else ())
        write_document(style, "salvage", style.store, result, findings=findings, status=found.status)
        return found.status
    show_salvage(found, style)
    if not style.quiet:
        following = join(["rmqtool", "verify", str(request.output)])
        notes = {"nothing": f"{_why_nothing(request, found, stores)}: nothing is written",
                 "planned": f"nothing is written yet; next: {join(request.words)}",
                 "done": f"done; next: {following}"}  # fmt: skip
        note(notes[found.state])
    return found.status


def _why_nothing(request: _Request, found: Salvaged, stores: Sequence[Store]) -> str:
    from rmqtool.store.missing_log import WHERE_IT_MAY_BE
    from rmqtool.store.snapshot import Snapshot
    from rmqtool.store.why_nothing import NOTHING_FITS, why_nothing

    if found.state == "nothing" and not found.plan.inputs.files:
        return f"the sources have no file of a log ({WHERE_IT_MAY_BE})"
    if found.state != "nothing" or found.plan.is_empty:
        return "no message can be verified"
    with suppress(RmqtoolError):
        if stores:
            return why_nothing(Snapshot(stores[0]), request.filters)
    return NOTHING_FITS
