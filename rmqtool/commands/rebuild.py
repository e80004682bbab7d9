"""`rmqtool rebuild-cq STORE` and `rmqtool rebuild-index STORE`: derived files again from the commit log."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import click

from rmqtool.base.errors import Exit, UsageError
from rmqtool.base.visible import join, quote, repeated_options
from rmqtool.commands import shared_options as shared
from rmqtool.commands import writing
from rmqtool.commands.options import command, flag, jobs_option, option
from rmqtool.show.output import Style, note, write_document
from rmqtool.show.progress import ByteProgress, byte_progress, job_progress

if TYPE_CHECKING:
    from rmqtool.rebuild.options import Part, RebuildOptions, Target
    from rmqtool.rebuild.plan import RebuildPlan
    from rmqtool.scan.filters import Filters
    from rmqtool.show.rebuild import PlanState
    from rmqtool.transaction.transaction import Transaction


_APPEND_ORDER = ("Number entries in the order in which a broker appends them to empty queues. Default: keep the "
"stored queue offsets.")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RebuildCqOptions(shared.OnStore):
    """What was asked for."""

    command: ClassVar[str] = "rebuild-cq"
    part: ClassVar[Part] = "queues"

    filters: Filters = shared.filter_options("topic", "exclude-topic", "queue")
    only_damaged: bool = flag("Rebuild only what `rmqtool verify` finds wrong: it is run first.")
    neutralise: bool = flag(
        "Replace damaged bytes of the log by dummy records, so that no start of the broker ends the log there; the "
        "bytes are kept for undo."
    )
    output: Path | None = shared.output_option(
        "Write the files below DIR; the store is only read.", "DIR", click.Path(path_type=Path)
    )
    dry_run: bool = shared.dry_run_option()
    save_plan: Path | None = shared.save_plan_option()
    plan: Path | None = shared.plan_option()
    yes: bool = shared.yes_option()
    memory: int | None = shared.memory_option()
    jobs: int | None = jobs_option()
    allow_older_release: bool = shared.older_release_option()
    append_order: bool = flag(_APPEND_ORDER)
    to: Target | None = option(
        "Convert queues, topics, groups and offsets to files, or to RocksDB, for a broker with the other storeType.",
        type=click.Choice(["files", "rocksdb"]),
    )
    processes: int = 1  # that fit into the memory
    found: RebuildOptions | None = None  # what a saved plan, or a look at the damage, makes of all that

    @property
    def options(self) -> RebuildOptions:
        """The rebuild that was asked for."""
        from rmqtool.rebuild.options import QueueSelection, RebuildOptions

        return self.found or RebuildOptions(
            parts=frozenset([self.part]),
            selection=QueueSelection(self.filters.topic_choice, frozenset(self.filters.queue_ids)),
            version=self.broker_version,
            order="broker" if self.append_order else "stored",
            limit=self.limit_rate,
            neutralise=self.neutralise,
            jobs=self.processes,
            target=self.to,
        )

    @property
    def only_shows(self) -> bool:
        """Whether nothing is to be written."""
        return self.dry_run or self.save_plan is not None

    def require_consistent(self) -> None:
        """Raise UsageError for choices that contradict each other."""
        chooses = bool(self.filters.topic_choice or self.filters.queue_ids)
        selects = chooses or self.only_damaged
        if self.plan and (selects or self.append_order or self.neutralise or self.output or self.only_shows or self.to):
            raise UsageError("--plan applies the saved plan: it cannot be combined with other options")
        others = "it cannot be combined with --output, --topic, --queue"
        if self.neutralise and (self.output or selects):
            raise UsageError(f"--neutralise changes the store's log: {others} or --only-damaged")
        if self.to and (selects or self.neutralise or self.output):
            raise UsageError(f"--to converts the whole store: {others}, --only-damaged or --neutralise")
        if self.output and self.only_shows:
            raise UsageError("--output writes at once and leaves the store alone: it cannot be combined with --dry-run")
        if self.part == "index" and chooses and not self.output:
            hint = "drop --topic and --queue, or write elsewhere with --output DIR"
            raise UsageError("an index file has the keys of all topics: it cannot be rebuilt for some", hint=hint)


@dataclass(frozen=True, kw_only=True)
class RebuildIndexOptions(RebuildCqOptions):
    """What was asked for; --append-order has no meaning here, and is taken because 1.0.0rc1 had it."""

    command: ClassVar[str] = "rebuild-index"
    part: ClassVar[Part] = "index"

    append_order: bool = flag(_APPEND_ORDER, hidden=True)
    to: Target | None = None


def command_line(given: RebuildCqOptions) -> str:
    """The command line that carries out the plan that was shown."""
    words = ["rmqtool", given.command, str(given.store.root)]
    if given.save_plan:
        words += ["--plan", str(given.save_plan)]
    else:
        words += given.words("filters", "only_damaged", "neutralise", "append_order", "to")
    return join([*words, *given.words("jobs", "memory", "broker_version", "broker_conf")])


_STATUSES = {
    Exit.OK: "done, planned, or nothing to do",
    Exit.FINDINGS: "--topic and --queue name no queue",
    Exit.USAGE: "the options contradict each other or the store, or not confirmed",
    Exit.LOSSY: "done, but bytes of the log had to be skipped or a queue left out",
    Exit.FAILED: "could not finish; the store is as before",
    Exit.IN_USE: "a broker runs on the store",
}


@command(
    "rebuild-cq",
    RebuildCqOptions,
    (
        "rmqtool rebuild-cq /data/rocketmq/store --dry-run",
        "rmqtool rebuild-cq /data/rocketmq/store --topic orders --dry-run",
        "rmqtool rebuild-cq /data/rocketmq/store -j 2 --memory 256MiB --dry-run",
        "rmqtool rebuild-cq /data/rocketmq/store --output /data/rocketmq/store-new",
        "rmqtool rebuild-cq /data/rocketmq/store --to files --dry-run",
    ),
    _STATUSES,
)
def rebuild_cq(style: Style, given: RebuildCqOptions) -> Exit:
    """Rebuild the consume queues from the commit log.

    STORE is the directory that broker.conf calls storePathRootDir. Correct queues are not changed; replaced files are
    kept for `rmqtool undo`. Queues in RocksDB are rebuilt as one database. Stop the broker first.

    --to converts a store between files and RocksDB: its queues from the log, its topics, groups and committed offsets
    unchanged. The settings that the broker then needs are printed.
    """
    return _rebuild(style, given)


@command(
    "rebuild-index",
    RebuildIndexOptions,
    (
        "rmqtool rebuild-index /data/rocketmq/store --dry-run",
        "rmqtool rebuild-index /data/rocketmq/store --output /lake/index",
    ),
    _STATUSES,
)
def rebuild_index(style: Style, given: RebuildIndexOptions) -> Exit:
    """Rebuild the index files from the commit log.

    A broker finds messages by key through the index. STORE is the directory that broker.conf calls storePathRootDir.
    Replaced files are kept for `rmqtool undo`. An index file has the keys of all topics: --topic and --queue are only
    for --output.
    """
    if given.append_order and not style.quiet:
        note("--append-order changes nothing here: keys in an index have no queue offsets")
    return _rebuild(style, replace(given, append_order=False))


def _rebuild(style: Style, given: RebuildCqOptions) -> Exit:
    from rmqtool.rebuild.log_pass import REBUILD_NEED

    usual = shared.processes_for(given.jobs, given.path)
    with shared.within_memory(style, given.memory, usual, REBUILD_NEED[given.part]) as processes:
        return _rebuild_within(style, replace(given, processes=processes))


def _rebuild_within(style: Style, given: RebuildCqOptions) -> Exit:
    from rmqtool.store.snapshot import Snapshot
    from rmqtool.store.store import require_plain_log

    given.require_consistent()
    if given.neutralise:
        require_plain_log(given.store, "--neutralise")
    if given.plan:
        from rmqtool.rebuild.saved_plan import SavedPlan

        given = replace(given, found=SavedPlan(given.plan, given.command).options(given.options))
    only_reads = bool(given.output or given.only_shows)
    named = Snapshot(given.store, given.options.version, given.limit_rate)
    writing.require_release(named, yes=given.yes, is_allowed=given.allow_older_release or only_reads)
    if given.only_damaged:
        given = replace(given, found=damaged_only(style, given))
    if given.output:
        return _write_elsewhere(style, given, given.output)
    if given.only_shows:
        return _show_only(style, given)
    with writing.reporting_state(style, given.store.root, "is already written: the store is as planned"):
        return _write(style, given)


def _progress(style: Style, given: RebuildCqOptions, title: str) -> AbstractContextManager[ByteProgress]:
    return byte_progress(title, given.store.commit_log().size, style=style)


def _make_plan(style: Style, given: RebuildCqOptions, transaction: Transaction | None = None) -> RebuildPlan:
    """The plan; what is derived for it is kept for the writing in the `transaction`."""
    from rmqtool.rebuild.plan import make_plan
    from rmqtool.rebuild.source import open_source, record

    with _progress(style, given, "comparing with the commit log") as progress:
        source = open_source(given.store, given.options)
        return make_plan(record(source, transaction) if transaction else source, progress.update)


def _show_only(style: Style, given: RebuildCqOptions) -> Exit:
    from rmqtool.show.rebuild import plan_json

    plan = _make_plan(style, given)
    state: PlanState = "nothing" if plan.is_empty else "planned"
    if given.save_plan:
        from rmqtool.rebuild.saved_plan import rebuild_plan_text

        text = rebuild_plan_text(plan, given.command, plan_json(plan, state))
        writing.write_plan(given.save_plan, text, given.store.root)
    following = command_line(given)
    if plan.written_kinds & plan.source.sizes.assumed:
        following += " --broker-conf BROKER_CONF"  # without it nothing is written
    return _show(style, given, _Outcome(plan, state, next_command=following))


def _write_elsewhere(style: Style, given: RebuildCqOptions, directory: Path) -> Exit:
    from rmqtool.rebuild.apply import write_output
    from rmqtool.rebuild.source import open_source
    from rmqtool.salvage.new_store import new_tree

    title = f"writing below {directory}"
    with new_tree(directory, given.store.root) as new, _progress(style, given, title) as progress:
        plan = write_output(open_source(given.store, given.options), new.empty_derived(), progress.update)
        new.adopt_derived(directory)
    status = _show(style, given, _Outcome(plan, "done", verb="written"))
    if not (style.json or style.quiet):
        note(f"written below {directory}; the store is unchanged")
    return status


def _write(style: Style, given: RebuildCqOptions) -> Exit:
    from rmqtool.rebuild.apply import apply_plan
    from rmqtool.rebuild.saved_plan import SavedPlan
    from rmqtool.rebuild.source import require_known_sizes
    from rmqtool.show.rebuild import plan_json, show_plan
    from rmqtool.transaction.transaction import Transaction
    from rmqtool.transaction.undo import conversion_command

    writing.require_answer(yes=given.yes)
    saved = SavedPlan(given.plan, given.command) if given.plan else None
    options = writing.recorded_options(given.store.conf.path, given.options.version)
    writing.confirm_deletion(given.store.root, yes=given.yes)
    with Transaction(given.store, given.command, options=options) as transaction:
        writing.print_recovered(transaction.recovered)
        recovered = writing.recovered_json(transaction.recovered)
        if saved:
            saved.require_same_store(given.store)
        plan = _make_plan(style, given, transaction)
        require_known_sizes(given.store, plan.source.sizes.assumed, plan.written_kinds)
        if saved:
            saved.require_same_result(given.store, plan_json(plan, "nothing" if plan.is_empty else "planned"))
        if plan.is_empty:
            return _show(style, given, _Outcome(plan, "nothing", recovered=recovered))
        plan.require_release()
        if not given.yes:
            if not style.json:
                show_plan(plan, style, verb="planned")
                sys.stdout.flush()
            writing.confirm("Write this?", yes=given.yes, has_changed=bool(transaction.recovered))
        if plan.conversion and not plan.conversion.is_in_place:
            transaction.command = conversion_command(plan.conversion.target)
        with _progress(style, given, "rebuilding") as progress:
            committed = apply_plan(plan, transaction, progress.update)
    plan = replace(plan, backup_bytes=committed.backup_bytes)
    outcome = _Outcome(plan, "done", transaction=committed.id, is_shown=not given.yes, recovered=recovered)
    return _show(style, given, outcome)


@dataclass(frozen=True)
class _Outcome:
    """A plan and whether it was carried out; `is_shown` when people have seen the plan before they confirmed it."""

    plan: RebuildPlan
    state: PlanState
    transaction: str | None = None
    verb: str = "planned"
    next_command: str | None = None
    is_shown: bool = False
    recovered: Sequence[dict[str, str | None]] = ()


def _show(style: Style, given: RebuildCqOptions, outcome: _Outcome) -> Exit:
    from rmqtool.show.rebuild import plan_json, show_plan

    plan, root = outcome.plan, str(given.store.root)
    selection = given.options.selection
    is_none = given.part != "index" and not plan.queues and bool(selection.topics or selection.queue_ids)
    status = Exit.LOSSY if plan.is_lossy else Exit.FINDINGS if is_none else Exit.OK
    if style.json:
        result = {**plan_json(plan, outcome.state, outcome.transaction), "recovered": list(outcome.recovered)}
        write_document(style, given.command, result, findings=plan.findings, status=status)
        return status
    if not outcome.is_shown:
        show_plan(plan, style, verb=outcome.verb)
    if style.quiet:
        return status
    if is_none:
        from rmqtool.store.missing import why_nothing

        note(why_nothing(plan.source.snapshot, given.filters))
    elif outcome.transaction:
        note(f"done: {outcome.transaction}; to undo it, before a broker starts: rmqtool undo {quote(root)}")
        conf = given.store.conf.path
        if plan.conversion:
            conf = None  # which is for the store as it was
            settings = ", ".join(f"{name}={value}" for name, value in plan.conversion.settings.items())
            note(f"before you start the broker, set in broker.conf: {settings}")
        words = repeated_options(conf, given.options.version)
        note(f"next: {join(['rmqtool', 'verify', root, *words])}")
    elif outcome.state == "nothing":
        there = plan.conversion and plan.conversion.is_in_place
        place = "RocksDB" if given.options.target == "rocksdb" else "files"
        note(f"nothing to do{f': the store is in {place} already' if there else ''}")
    elif outcome.next_command:
        note(f"nothing is written yet; next: {outcome.next_command}")
    return status


_ALL_EXAMPLES = 1 << 31  # each finding names its queue


def damaged_only(style: Style, given: RebuildCqOptions) -> RebuildOptions:
    """The rebuild of the queues, or the index, with a finding above `info`; of nothing at all without one."""
    options, prefix = given.options, "index." if given.part == "index" else "consumequeue."
    with job_progress(style, "verifying") as progress:
        verified = given.opened.verify(only=prefix, max_examples=_ALL_EXAMPLES, jobs=given.processes, progress=progress)
    found = [each for each in verified.findings if each.severity != "info" and each.code.startswith(prefix)]
    if given.part == "index":
        return options if found else replace(options, parts=frozenset())
    queues = ((each.topic, each.queue_id) for each in found)
    only = frozenset((topic, queue_id) for topic, queue_id in queues if topic is not None and queue_id is not None)
    options = replace(options, selection=replace(options.selection, only=only))
    return options if only else replace(options, parts=frozenset())
