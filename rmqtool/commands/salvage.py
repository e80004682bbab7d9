"""`rmqtool salvage SOURCE... --output NEW`: a new store of what proves itself in damaged ones."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import click

import rmqtool
from rmqtool.base.errors import ChangedError, EndingError, Exit, RmqtoolError, UnsupportedError, UsageError
from rmqtool.base.visible import join
from rmqtool.commands import shared_options as shared
from rmqtool.commands.options import OnStores, argument, command, flag, jobs_option, option
from rmqtool.commands.writing import cut_moved, derive, owner_of, told_anyway
from rmqtool.show.output import Style, note, write_document
from rmqtool.show.progress import byte_progress

if TYPE_CHECKING:
    from rmqtool.base.files import RateLimit
    from rmqtool.base.mapped_files import MappedFile
    from rmqtool.broker.dispatched_units import QueueName
    from rmqtool.rebuild.options import RebuildOptions
    from rmqtool.rebuild.plan import RebuildPlan
    from rmqtool.rules.broker_conf import BrokerConf
    from rmqtool.salvage.new_store import Carried, NewStore
    from rmqtool.salvage.plan import SalvagePlan
    from rmqtool.salvage.selection import QueueOffsets, SelectedLog, Selection
    from rmqtool.scan.filters import Filters
    from rmqtool.show.salvage import Choice, Salvaged
    from rmqtool.store.store import Store
    from rmqtool.transaction.losses import Loss

_MOST_DOUBTFUL = 10_000  # records of one source


@dataclass(frozen=True, kw_only=True)
class SalvageOptions(OnStores):
    """What was asked for."""

    sources: tuple[Path, ...] = argument("[SOURCE]...", shared.StorePath(), nargs=-1)
    output: Path = shared.output_option(shared.NEW_STORE, "NEW", click.Path(path_type=Path), required=True)
    raw: tuple[Path, ...] = option(
        "A file with records in it, such as a lost log file or a disk image. Repeatable.",
        type=click.Path(path_type=Path), multiple=True, metavar="FILE",
    )  # fmt: skip
    filters: Filters = shared.filter_options()
    queue_offsets: QueueOffsets | None = option(
        "Keep the stored queue offsets, or count again from 0. Default: new with --tag or --key, else keep.",
        type=click.Choice(["keep", "new"]),
    )
    tiered: bool = flag("Take the tier along, to NEW/tiered: messages that only it has.")
    tiered_path: Path | None = shared.tiered_path_option()
    dry_run: bool = shared.dry_run_option()
    jobs: int | None = jobs_option()

    @cached_property
    def processes(self) -> int:
        """How many processes read the sources."""
        return shared.processes_for(self.jobs, *self.sources)

    @property
    def named(self) -> str | None:
        """The first source."""
        return next(map(str, (*self.sources, *self.raw)), None)

    @property
    def selection(self) -> Selection | None:
        """What is chosen; None where all messages are saved in their places."""
        from rmqtool.salvage.selection import Selection

        is_of_single_messages = bool(self.filters.tags or self.filters.keys)
        queue_offsets = self.queue_offsets or ("new" if is_of_single_messages else "keep")
        if self.filters == type(self.filters)() and queue_offsets == "keep":
            return None
        return Selection(self.filters, queue_offsets)


@command(
    "salvage",
    SalvageOptions,
    (
        "rmqtool salvage /data/rocketmq/store --output /data/new --dry-run",
        "rmqtool salvage /data/rocketmq/store /slave/store --output /data/new",
        "rmqtool salvage /data/n0/store /data/n1/store --output /data/new-of-nodes",
        "rmqtool salvage --raw /dumps/disk.img --output /data/new-of-image",
        "rmqtool salvage /data/rocketmq/store --topic orders --output /data/new-small",
    ),
    {
        Exit.OK: "done, or planned; everything is saved",
        Exit.FINDINGS: "done, or planned; something is lost or was left out",
        Exit.USAGE: "the options contradict each other, or the output is not empty",
        Exit.LOSSY: "done, or planned; part of the sources cannot be read",
        Exit.FAILED: "could not finish; there is no new store",
        Exit.NOT_A_STORE: "a source is not a RocketMQ store",
    },
)
def salvage(style: Style, given: SalvageOptions) -> Exit:
    """Save intact or selected messages to a new store.

    SOURCE is a store, or a copy of one, damaged in any way; each further source fills gaps of the earlier ones. Every
    message that can be verified is saved at its physical offset. DLedger stores become a plain store, with messages at
    their queue offsets. What is not saved is listed. Nothing in the sources is changed. With filters, salvage extracts
    a small store from a large one: a new log of the matching messages, with their queues, index, topics, groups and
    committed offsets.
    """
    from rmqtool.rebuild.options import RebuildOptions
    from rmqtool.salvage.conversion import as_ordinary
    from rmqtool.salvage.new_store import NewStore, carried_tier, find_carried, main_store
    from rmqtool.show.salvage import Salvaged

    if not (given.sources or given.raw):
        raise UsageError("nothing to salvage from: name a store, or a file with --raw")
    stores, selection = _stores(given), given.selection
    main = main_store(stores)
    if main and main.dledger_directory:
        as_ordinary(main)  # raises where its queues cannot be made
    plan = _plan(style, given, stores)
    carried = find_carried(stores, main, only_config=selection is not None)
    carried += [carried_tier(stores)] if given.tiered else []
    choice = _choose(style, plan, stores, selection, given.limit_rate) if selection and not plan.is_empty else None
    found = Salvaged(plan, carried, choice=choice)
    if given.dry_run or found.is_empty:
        return _show(style, given, found, stores)
    with NewStore(given.output).making() as new:
        if new.began_anew and not style.quiet:
            note("an earlier salvage was interrupted: it begins again, because the sources may have changed since")
        options = RebuildOptions(frozenset(["queues", "index"]), version=given.broker_version,
                                 limit=given.limit_rate, jobs=given.processes)  # fmt: skip
        work = Making(style, plan, Stores(stores, main, carried), new, given.broker_conf, options)
        found = work.make() if choice is None else work.make_chosen(choice)
        new.finish(owner_of(stores))
    with told_anyway(style, f"done: {given.output} is complete"):
        return _show(style, given, found, stores)


def _stores(given: SalvageOptions) -> list[Store]:
    """The stores at the sources; raises RmqtoolError where no new one can be made of them at the output."""
    from rmqtool.salvage.inputs import require_one_kind
    from rmqtool.salvage.new_store import require_free_name
    from rmqtool.store.store import conf_for
    from rmqtool.store.tiered import with_tier

    conf, selection = with_tier(given.broker_conf, given.tiered_path), given.selection
    if given.tiered and selection:
        raise UsageError("--tiered takes the whole tier: it cannot be combined with filters")
    stores = [
        rmqtool.open(path, broker_conf=conf_for(path, conf) if number else conf).snapshot.store
        for number, path in enumerate(given.sources)
    ]
    require_free_name(given.output, [*given.sources, *(path for store in stores for path in store.log_directories)])
    require_one_kind(stores)
    require_movable(stores, is_numbered_anew=selection is not None and selection.queue_offsets == "new")
    return stores


def _plan(style: Style, given: SalvageOptions, stores: Sequence[Store]) -> SalvagePlan:
    from rmqtool.base.files import ReadPolicy
    from rmqtool.salvage.inputs import list_inputs
    from rmqtool.salvage.new_store import known_topics
    from rmqtool.salvage.plan import make_plan

    inputs = list_inputs(stores, given.raw)
    if len(inputs.names) > 1:
        inputs = inputs.with_doubts({source: _doubtful(given, store) for source, store in enumerate(stores)})
    total = sum(file.size for file in inputs.files)
    with byte_progress("looking for messages", total, style=style) as progress:
        topics, reading = known_topics(stores), ReadPolicy(given.limit_rate)
        return make_plan(inputs, given.broker_conf, topics, reading, progress.update, given.processes)


def _doubtful(given: SalvageOptions, store: Store) -> frozenset[int]:
    """The records of a source that its own queues and index contradict: another copy of these is to be preferred."""
    from rmqtool.verify.task import VerifyRequest
    from rmqtool.verify.verification import Verification

    request = VerifyRequest(max_examples=_MOST_DOUBTFUL, jobs=given.processes, rate=given.bytes_per_second)
    try:
        verification = Verification(store, request)
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
    from rmqtool.salvage.new_store import not_carried
    from rmqtool.salvage.selection import find_chosen
    from rmqtool.show.salvage import Choice

    with byte_progress("selecting messages", plan.size, style=style) as progress:
        chosen = find_chosen(plan, selection, ReadPolicy(limit), progress.update)
    return Choice(selection, chosen, not_carried(stores))


def _show(style: Style, given: SalvageOptions, found: Salvaged, stores: Sequence[Store]) -> Exit:
    from rmqtool.salvage.new_store import TIER
    from rmqtool.show.salvage import salvage_json, show_salvage, worth_showing

    if style.json:
        findings = worth_showing(found.rebuild.findings if found.rebuild else ())
        write_document(style, "salvage", salvage_json(found, given.output), findings=findings, status=found.status)
        return found.status
    show_salvage(found, style)
    if not style.quiet:
        following = join(["rmqtool", "verify", str(given.output)])
        again = given.words("sources", "raw", "output", "filters", "queue_offsets", "tiered", "tiered_path",
                            "broker_conf", "broker_version")  # fmt: skip
        notes = {"nothing": f"{_why_nothing(given, found, stores)}: nothing is written",
                 "planned": f"nothing is written yet; next: {join(['rmqtool', 'salvage', *again])}",
                 "done": f"done; next: {following}"}  # fmt: skip
        note(notes[found.state])
        if given.tiered and found.state == "done":
            note(f"start the broker on it with tieredStoreFilePath={given.output.absolute() / TIER}")
    return found.status


def _why_nothing(given: SalvageOptions, found: Salvaged, stores: Sequence[Store]) -> str:
    from rmqtool.store.missing import NOTHING_FITS, WHERE_IT_MAY_BE, why_nothing
    from rmqtool.store.snapshot import Snapshot

    if found.state == "nothing" and not found.plan.inputs.files:
        return f"the sources have no log file ({WHERE_IT_MAY_BE})"
    if found.state != "nothing" or found.plan.is_empty:
        return "no message can be verified"
    with suppress(RmqtoolError):
        if stores:
            return why_nothing(Snapshot(stores[0]), given.filters)
    return NOTHING_FITS


@dataclass(frozen=True)
class Stores:
    """The stores, the one whose queues count, and what is taken from them beside the log."""

    all: Sequence[Store]
    main: Store | None
    carried: Sequence[Carried]


def require_movable(stores: Sequence[Store], *, is_numbered_anew: bool) -> None:
    """Raise UnsupportedError for committed offsets in RocksDB that would have to change."""
    from rmqtool.store.store import rocksdb_configs

    for store in stores if is_numbered_anew else ():
        for name in rocksdb_configs(store):
            message = "committed offsets are in RocksDB, and cannot follow queue offsets that are counted again"
            hint = "--queue-offsets keep does not change them"
            raise UnsupportedError(message, file=store.root / name, hint=hint)


@dataclass(frozen=True)
class Making:
    """A new store that is being made of a plan."""

    style: Style
    plan: SalvagePlan
    stores: Stores
    new: NewStore
    conf: BrokerConf
    options: RebuildOptions

    def make(self) -> Salvaged:
        """Write all saved messages in their places, and what belongs to them; those of a DLedger log move."""
        from rmqtool.base.files import ReadPolicy
        from rmqtool.rebuild.apply import loss_of
        from rmqtool.salvage.conversion import SALVAGE, without_offsets, write_saved
        from rmqtool.salvage.new_store import carried_bytes, carry_over
        from rmqtool.salvage.write_log import write_log
        from rmqtool.show.salvage import Salvaged
        from rmqtool.store.store import COMMIT_LOG

        plan, new, stores, limit = self.plan, self.new, self.stores, self.options.limit
        moved, carried, not_carried = None, stores.carried, list[str]()
        if plan.layout.is_moved:
            carried, not_carried = without_offsets(stores.carried)
        new.require_space(plan.needed + carried_bytes(stores.all, carried))
        with byte_progress("writing the commit log", plan.size, style=self.style) as progress:
            if plan.layout.is_moved:
                moved = write_saved(plan, new.directory / COMMIT_LOG, ReadPolicy(limit), progress.update)
            else:
                write_log(plan, new.directory / COMMIT_LOG, limit, progress.update)
        problems = carry_over(stores.all, carried, new.directory)
        if moved:
            options = replace(self.options, moved_from=self._old_log)
            rebuild, left_out = self._derive(self._ordinary, options, moved_from=moved.start)
            self._keep_losses(None, rebuild, moved.filled)  # old units and keys lead to places of another log
        else:
            rebuild, left_out = self._derive(stores.main, self.options)
            self._keep_losses(loss_of(rebuild, SALVAGE), rebuild)
        whole = [*(each for each in carried if not each.problem), *problems, *left_out]
        return Salvaged(plan, whole, rebuild, not_carried=not_carried, moved=moved)

    @property
    def _ordinary(self) -> Store | None:
        """The main store as one with the new log."""
        from rmqtool.salvage.conversion import as_ordinary

        main = self.stores.main
        return as_ordinary(main) if main and main.dledger_directory else main

    @property
    def _old_log(self) -> Sequence[MappedFile]:
        """The files of the main store's log; none where they cannot be listed."""
        from rmqtool.store.snapshot import Snapshot

        with suppress(RmqtoolError):
            return Snapshot(self.stores.main).log.files if self.stores.main else ()
        return ()

    def make_chosen(self, choice: Choice) -> Salvaged:
        """Write a new log of chosen messages, and what belongs to them."""
        from rmqtool.rebuild.options import QueueSelection
        from rmqtool.salvage.new_store import carried_bytes, carry_over, with_delays
        from rmqtool.salvage.selection import needed_bytes
        from rmqtool.show.salvage import Salvaged
        from rmqtool.transaction.losses import ChoiceRecord, keep_choice

        chosen, selection, stores = choice.chosen, choice.selection, self.stores
        self.new.require_space(needed_bytes(chosen, selection) + carried_bytes(stores.all, stores.carried))
        problems = carry_over(stores.all, stores.carried, self.new.directory)
        log = self._write_chosen(choice)
        filters = selection.effective_filters
        untouched = QueueSelection(filters.topic_choice, frozenset(filters.queue_ids))
        left_out = self.plan.records - chosen.messages
        is_new = selection.queue_offsets == "new"
        main = self._ordinary and with_delays(self._ordinary)
        options = replace(self.options, left_out=left_out, untouched=untouched, anew=is_new, moved_from=self._old_log)
        rebuild, unread = self._derive(main, options)
        self._fit_config(choice, log, rebuild)
        self._keep_losses(None, None)
        words, now = tuple(shared.filter_words(selection.filters)), int(time.time() * 1000)
        record = ChoiceRecord("salvage", now, self.plan.inputs.names, words, selection.queue_offsets, chosen.messages,
                              self.plan.records, chosen.placement.end)  # fmt: skip
        keep_choice(self.new.directory, record)
        whole = [*(each for each in stores.carried if not each.problem), *problems, *unread]
        return Salvaged(self.plan, whole, rebuild, replace(choice, log=log))

    def _write_chosen(self, choice: Choice) -> SelectedLog:
        from rmqtool.base.files import ReadPolicy
        from rmqtool.salvage.moved_config import committed_offsets, timer_read_until
        from rmqtool.salvage.selection import write_selected
        from rmqtool.store.store import COMMIT_LOG, CONFIG
        from rmqtool.transaction.losses import OFFSET_MAP

        directory, chosen = self.new.directory, choice.chosen
        before = committed_offsets(directory / CONFIG), timer_read_until(directory / CONFIG)
        with byte_progress("writing the commit log", chosen.size, style=self.style) as progress:
            return write_selected(self.plan, chosen, choice.selection, directory / COMMIT_LOG, directory / OFFSET_MAP,
                                  *before, ReadPolicy(self.options.limit), progress.update)  # fmt: skip

    def _derive(
        self, main: Store | None, options: RebuildOptions, moved_from: int | None = None
    ) -> tuple[RebuildPlan, list[Carried]]:
        """Write queues, index and checkpoint of the new log; raises ChangedError where it is not what was planned.

        After the plan come the queues that are left out. With `moved_from` messages from that offset on were elsewhere
        before: no unit may lead there.
        """
        from rmqtool.salvage.new_store import rebuild_sources, write_checkpoint
        from rmqtool.store.store import open_store

        new = self.new
        sources = rebuild_sources(main, new.directory, self.conf)
        plan, left_out = derive(self.style, self.stores.main, sources, new, options)
        if plan.lost.is_lossy:
            raise ChangedError("the sources have changed while they were read: nothing is written")
        if moved_from is not None:
            cut_moved(plan, new.derived, moved_from)
        new.adopt_derived()
        write_checkpoint(open_store(new.directory), main, plan.last_record, options.version)
        return plan, left_out

    def _fit_config(self, choice: Choice, log: SelectedLog, rebuild: RebuildPlan) -> None:
        """Topics of the choice only, and committed offsets that do not lie past the end of their queues."""
        from rmqtool.salvage.moved_config import fit_config
        from rmqtool.store.store import CONFIG

        topics = choice.selection.effective_filters.topic_choice
        ends = {queue.name: queue.max_offset for queue in rebuild.queues}

        def moved(name: QueueName, offset: int) -> int | None:
            if name not in ends:
                return 0 if name.topic in topics else None
            return min(log.moved(name, offset), ends[name])

        is_new = choice.selection.queue_offsets == "new"
        fit_config(self.new.directory / CONFIG, topics, moved, log.first_timer, is_numbered_anew=is_new)

    def _keep_losses(
        self, derived: Loss | None, rebuild: RebuildPlan | None, filled: Sequence[tuple[int, int]] | None = None
    ) -> None:
        from rmqtool.salvage.conversion import losses_of
        from rmqtool.transaction.losses import keep_losses

        findings = rebuild.findings if rebuild else ()
        losses = losses_of(self.plan, derived, findings, self.stores.all, filled)
        if losses:
            keep_losses(self.new.directory, losses)
