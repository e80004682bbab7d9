"""`rmqtool rebuild-cq STORE` and `rmqtool rebuild-index STORE`: derived files again from the commit log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import rmqtool
from rmqtool.base.errors import Exit, UsageError
from rmqtool.base.visible import join, quote
from rmqtool.commands.help_page import HelpPage, examples_and_statuses
from rmqtool.commands.options import F, global_options, jobs_option, store_options
from rmqtool.commands.shared_options import StorePath, filter_options, memory_option, within_memory
from rmqtool.commands.verifying import progress_bar, recorded_options
from rmqtool.commands.writing import (
    confirm,
    confirm_deletion,
    dry_run_option,
    older_release_option,
    print_recovered,
    recovered_json,
    reporting_state,
    require_answer,
    require_release,
    saved_plan_options,
    write_plan,
    yes_option,
)
from rmqtool.library.repeated_options import repeated_options
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import Version
from rmqtool.show.output import Style, note, write_document

if TYPE_CHECKING:
    from rmqtool.base.files import RateLimit
    from rmqtool.findings.finding import Finding
    from rmqtool.rebuild.options import Part, RebuildOptions, Target
    from rmqtool.rebuild.plan import RebuildPlan
    from rmqtool.scan.filters import Filters
    from rmqtool.show.progress import ByteProgress
    from rmqtool.show.rebuild import PlanState
    from rmqtool.store.store import Store
    from rmqtool.transaction import Committed, Transaction


def append_order_option(*, hidden: bool = False) -> Callable[[F], F]:
    """``--append-order``; hidden where it has no meaning, and is taken because 1.0.0rc1 had it."""
    return click.option("--append-order", is_flag=True, hidden=hidden,
                        help="Number units in the order in which a broker appends them to empty queues. "
                        "Default: stored queue offsets are kept.")  # fmt: skip


def rebuild_options(command: F) -> F:
    """The options of both rebuilds."""
    path = click.Path(path_type=Path)
    for option in reversed(
        (
            click.argument("path", type=StorePath(), metavar="STORE"),
            filter_options("topic", "exclude-topic", "queue"),
            click.option("--only-damaged", is_flag=True,
                         help="Only what `rmqtool verify` finds wrong: it is run first."),
            click.option("--neutralise", is_flag=True,
                         help="Put dummy records in place of damaged bytes of the log, so that no start of the broker "
                         "ends the log there; the bytes are kept until undo."),
            click.option("-o", "--output", type=path, metavar="DIR",
                         help="Write the files below DIR; the store is only read."),
            dry_run_option,
            saved_plan_options,
            yes_option,
            memory_option,
            jobs_option(),
            older_release_option,
            store_options,
            global_options,
        )
    ):  # fmt: skip
        command = option(command)
    return command


@dataclass
class RebuildRequest:
    """A request for a rebuild: arguments and options by the names that click gives them, and what follows from them.

    Raises UsageError for choices that contradict each other.
    """

    command: str
    part: Part
    path: Path
    filters: Filters
    only_damaged: bool
    append_order: bool
    neutralise: bool
    output: Path | None
    dry_run: bool
    save_plan: Path | None
    plan: Path | None
    jobs: int
    yes: bool
    allow_older_release: bool
    broker_version: Version | None
    broker_conf: BrokerConf
    limit_rate: RateLimit | None
    memory: int | None
    to: Target | None = None
    store: Store = field(init=False)
    options: RebuildOptions = field(init=False)

    def __post_init__(self) -> None:
        from rmqtool.rebuild.options import QueueSelection, RebuildOptions
        from rmqtool.store.store import require_plain_log

        self._require_consistent()
        self.store = rmqtool.open(self.path, broker_conf=self.broker_conf).snapshot.store
        if self.neutralise:
            require_plain_log(self.store, "--neutralise")
        self.options = RebuildOptions(
            parts=frozenset([self.part]),
            selection=QueueSelection(self.filters.topic_choice, frozenset(self.filters.queue_ids)),
            version=self.broker_version,
            order="broker" if self.append_order else "stored",
            limit=self.limit_rate,
            neutralise=self.neutralise,
            jobs=self.jobs,
            target=self.to,
        )
        if self.plan:
            from rmqtool.rebuild.saved_plan import SavedPlan

            self.options = SavedPlan(self.plan, self.command).options(self.options)

    @property
    def only_shows(self) -> bool:
        """Whether nothing is to be written."""
        return self.dry_run or self.save_plan is not None

    def _require_consistent(self) -> None:
        chooses = bool(self.filters.topic_choice or self.filters.queue_ids)
        selects = chooses or self.only_damaged
        if self.plan and (selects or self.append_order or self.neutralise or self.output or self.only_shows or self.to):
            raise UsageError("--plan carries out what was saved: it cannot be combined with other choices")
        if self.neutralise and (self.output or selects):
            raise UsageError(
                "--neutralise changes the store's log: it cannot be combined with --output, --topic, --queue or "
                "--only-damaged"
            )
        if self.to and (selects or self.neutralise or self.output):
            raise UsageError(
                "--to converts the whole store: it cannot be combined with --output, --topic, --queue, --only-damaged "
                "or --neutralise"
            )
        if self.output and self.only_shows:
            raise UsageError("--output writes at once and leaves the store alone: it cannot be combined with --dry-run")
        if self.part == "index" and chooses and not self.output:
            raise UsageError(
                "an index file holds the keys of all topics: it cannot be rebuilt for some",
                hint="drop --topic and --queue, or write elsewhere with --output DIR",
            )


def command_line(request: RebuildRequest, *more: str) -> str:
    """The command line that carries out the plan that was shown."""
    selection = request.options.selection
    words = ["rmqtool", request.command, str(request.store.root), *more]
    if not more:
        words += [word for topic in selection.topics.wanted for word in ("--topic", topic)]
        words += [word for topic in selection.topics.excluded for word in ("--exclude-topic", topic)]
        words += [word for queue_id in sorted(selection.queue_ids) for word in ("--queue", str(queue_id))]
        words += ["--only-damaged"] if request.only_damaged else []
        words += ["--neutralise"] if request.options.neutralise else []
        words += ["--append-order"] if request.options.order == "broker" else []
        words += ["--to", request.options.target] if request.options.target else []
    words += ["--jobs", str(request.options.jobs)] if request.options.jobs > 1 else []
    words += ["--memory", str(request.memory)] if request.memory is not None else []
    words += ["--broker-version", str(request.options.version)] if request.options.version else []
    words += ["--broker-conf", request.store.conf.path] if request.store.conf.path else []
    return " ".join(map(quote, words))


_STATUSES = {
    Exit.OK: "done, planned, or nothing to do",
    Exit.FINDINGS: "--topic and --queue name no queue",
    Exit.USAGE: "the options do not fit each other or the store, or nobody confirmed",
    Exit.LOSSY: "done, but bytes of the log had to be skipped or a queue left out",
    Exit.FAILED: "could not finish; the store is as before",
    Exit.IN_USE: "a broker runs on the store",
    Exit.NOT_A_STORE: "not a RocketMQ store",
}


@click.command(
    "rebuild-cq",
    cls=HelpPage,
    epilog=examples_and_statuses(
        (
            "rmqtool rebuild-cq /data/rocketmq/store --dry-run",
            "rmqtool rebuild-cq /data/rocketmq/store --topic orders --dry-run",
            "rmqtool rebuild-cq /data/rocketmq/store -j 2 --memory 256MiB --dry-run",
            "rmqtool rebuild-cq /data/rocketmq/store --output /data/rocketmq/store-new",
            "rmqtool rebuild-cq /data/rocketmq/store --to files --dry-run",
        ),
        _STATUSES,
    ),
)
@rebuild_options
@append_order_option()
@click.option(
    "--to",
    type=click.Choice(["files", "rocksdb"]),
    help="Bring queues, topics, groups and offsets into files, or into RocksDB, for a broker with the other storeType.",
)
@click.pass_obj
def rebuild_cq(style: Style, /, **given: Any) -> Exit:
    """Rebuild the consume queues from the commit log.

    STORE is the directory that broker.conf calls storePathRootDir. Queues that are as they should be are left alone;
    the files that are replaced are kept until `rmqtool undo`. Queues in RocksDB are rebuilt as a whole database. Stop
    the broker first.

    With --to a store goes from one world to the other: its queues from the log, its topics, groups and committed
    offsets as they are. The settings that its broker needs then are printed.
    """
    return _rebuild(style, "rebuild-cq", "queues", given)


@click.command(
    "rebuild-index",
    cls=HelpPage,
    epilog=examples_and_statuses(
        (
            "rmqtool rebuild-index /data/rocketmq/store --dry-run",
            "rmqtool rebuild-index /data/rocketmq/store --output /lake/index",
        ),
        _STATUSES,
    ),
)
@rebuild_options
@append_order_option(hidden=True)
@click.pass_obj
def rebuild_index(style: Style, /, **given: Any) -> Exit:
    """Rebuild the index files from the commit log.

    By the index a broker finds messages by key. STORE is the directory that broker.conf calls storePathRootDir. The
    files that are replaced are kept until `rmqtool undo`. An index file holds keys of all topics: --topic and
    --queue are for --output only.
    """
    if given["append_order"] and not style.quiet:
        note("--append-order changes nothing here: keys in an index have no queue offsets")
    return _rebuild(style, "rebuild-index", "index", {**given, "append_order": False})


def _rebuild(style: Style, command: str, part: Part, given: dict[str, Any]) -> Exit:
    from rmqtool.rebuild.workers import REBUILD_NEED

    style.store = str(given["path"])
    with within_memory(style, given["memory"], given["jobs"], REBUILD_NEED[part]) as given["jobs"]:
        return _rebuild_within(style, command, part, given)


def _rebuild_within(style: Style, command: str, part: Part, given: dict[str, Any]) -> Exit:
    from rmqtool.store.snapshot import Snapshot

    request = RebuildRequest(command, part, **given)
    named = Snapshot(request.store, request.options.version, request.limit_rate)
    only_reads = bool(request.output or request.only_shows)
    require_release(named, yes=request.yes, is_allowed=request.allow_older_release or only_reads)
    if request.only_damaged:
        select_damaged(style, request)
    if request.output:
        return _write_elsewhere(style, request, request.output)
    if request.only_shows:
        return _show_only(style, request)
    with reporting_state(style, request.store.root, "is written: the store is as planned"):
        return _write(style, request)


def _progress(style: Style, request: RebuildRequest, title: str) -> AbstractContextManager[ByteProgress]:
    from rmqtool.show.progress import byte_progress

    return byte_progress(title, request.store.commit_log().size, style=style)


def _make_plan(style: Style, request: RebuildRequest) -> RebuildPlan:
    from rmqtool.rebuild.plan import make_plan
    from rmqtool.rebuild.source import open_source

    with _progress(style, request, "comparing with the commit log") as progress:
        return make_plan(open_source(request.store, request.options), progress.update)


def _apply(style: Style, request: RebuildRequest, plan: RebuildPlan, transaction: Transaction) -> Committed:
    from rmqtool.rebuild.apply import apply_plan

    with _progress(style, request, "rebuilding") as progress:
        return apply_plan(plan, transaction, progress.update)


def _show_only(style: Style, request: RebuildRequest) -> Exit:
    from rmqtool.show.rebuild import plan_json

    plan = _make_plan(style, request)
    state: PlanState = "nothing" if plan.is_empty else "planned"
    if request.save_plan:
        from rmqtool.rebuild.saved_plan import rebuild_plan_text

        text = rebuild_plan_text(plan, request.command, plan_json(plan, state))
        write_plan(request.save_plan, text, request.store.root)
    following = command_line(request, *(("--plan", str(request.save_plan)) if request.save_plan else ()))
    if plan.written_kinds & plan.source.sizes.assumed:
        following += " --broker-conf BROKER_CONF"  # without it nothing is written
    return _show(style, request, _Outcome(plan, state, next_command=following))


def _write_elsewhere(style: Style, request: RebuildRequest, directory: Path) -> Exit:
    from rmqtool.rebuild.output_tree import write_output
    from rmqtool.rebuild.source import open_source
    from rmqtool.salvage.new_store import new_tree

    title = f"writing below {directory}"
    with new_tree(directory, request.store.root) as new, _progress(style, request, title) as progress:
        plan = write_output(open_source(request.store, request.options), new.empty_derived(), progress.update)
        new.adopt_derived(directory)
    status = _show(style, request, _Outcome(plan, "done", verb="written"))
    if not (style.json or style.quiet):
        note(f"written below {directory}; the store is as it was")
    return status


def _write(style: Style, request: RebuildRequest) -> Exit:
    from rmqtool.rebuild.saved_plan import SavedPlan
    from rmqtool.rebuild.source import require_known_sizes
    from rmqtool.show.rebuild import plan_json
    from rmqtool.transaction import Transaction, conversion_command

    require_answer(yes=request.yes)
    saved = SavedPlan(request.plan, request.command) if request.plan else None
    options = recorded_options(request.store.conf.path, request.options.version)
    confirm_deletion(request.store.root, yes=request.yes)
    with Transaction(request.store, request.command, options=options) as transaction:
        print_recovered(transaction.recovered)
        recovered = recovered_json(transaction.recovered)
        if saved:
            saved.require_same_store(request.store)
        plan = _make_plan(style, request)
        require_known_sizes(request.store, plan.source.sizes.assumed, plan.written_kinds)
        if saved:
            saved.require_same_result(request.store, plan_json(plan, "nothing" if plan.is_empty else "planned"))
        if plan.is_empty:
            return _show(style, request, _Outcome(plan, "nothing", recovered=recovered))
        plan.require_release()
        if not request.yes:
            _show_for_confirmation(style, plan)
            confirm("Write this?", yes=request.yes, has_changed=bool(transaction.recovered))
        if plan.conversion and not plan.conversion.is_in_place:
            transaction.command = conversion_command(plan.conversion.target)
        committed = _apply(style, request, plan, transaction)
    plan = replace(plan, backup_bytes=committed.backup_bytes)
    outcome = _Outcome(plan, "done", transaction=committed.id, is_shown=not request.yes, recovered=recovered)
    return _show(style, request, outcome)


def _show_for_confirmation(style: Style, plan: RebuildPlan) -> None:
    from rmqtool.show.rebuild import show_plan

    if not style.json:
        show_plan(plan, style, verb="planned")
        sys.stdout.flush()


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


def _show(style: Style, request: RebuildRequest, outcome: _Outcome) -> Exit:
    from rmqtool.show.rebuild import plan_json, show_plan

    plan, root = outcome.plan, str(request.store.root)
    selection = request.options.selection
    is_none = request.part != "index" and not plan.queues and bool(selection.topics or selection.queue_ids)
    status = Exit.LOSSY if plan.is_lossy else Exit.FINDINGS if is_none else Exit.OK
    if style.json:
        result = {**plan_json(plan, outcome.state, outcome.transaction), "recovered": list(outcome.recovered)}
        write_document(style, request.command, style.store, result, findings=plan.findings, status=status)
        return status
    if not outcome.is_shown:
        show_plan(plan, style, verb=outcome.verb)
    if style.quiet:
        return status
    if is_none:
        from rmqtool.store.missing import why_nothing

        note(why_nothing(plan.source.snapshot, request.filters))
    elif outcome.transaction:
        note(f"done: {outcome.transaction}; to take it back, before a broker starts: rmqtool undo {quote(root)}")
        conf = request.store.conf.path
        if plan.conversion:
            conf = None  # which is for the store as it was
            settings = ", ".join(f"{name}={value}" for name, value in plan.conversion.settings.items())
            note(f"before you start the broker, set in broker.conf: {settings}")
        words = repeated_options(conf, request.options.version)
        note(f"next: {join(['rmqtool', 'verify', root, *words])}")
    elif outcome.state == "nothing":
        there = plan.conversion and plan.conversion.is_in_place
        place = "RocksDB" if request.options.target == "rocksdb" else "files"
        note(f"nothing to do{f': the store is in {place} already' if there else ''}")
    elif outcome.next_command:
        note(f"nothing is written yet; next: {outcome.next_command}")
    return status


_ALL_EXAMPLES = 1 << 31  # each finding names its queue


def select_damaged(style: Style, request: RebuildRequest) -> None:
    """Select the queues, or the index, with a finding above `info`; nothing at all without one."""
    options = request.options
    if request.part == "index":
        wanted = bool(_verify(style, request, "index."))
    else:
        queues = ((finding.topic, finding.queue_id) for finding in _verify(style, request, "consumequeue."))
        only = frozenset((topic, queue_id) for topic, queue_id in queues if topic is not None and queue_id is not None)
        wanted = bool(only)
        options = replace(options, selection=replace(options.selection, only=only))
    request.options = options if wanted else replace(options, parts=frozenset())


def _verify(style: Style, request: RebuildRequest, prefix: str) -> list[Finding]:
    """The findings above `info` whose code begins with `prefix`."""
    store = rmqtool.open(request.path, broker_conf=request.broker_conf, broker_version=request.broker_version,
                         limit_rate=request.limit_rate)  # fmt: skip
    with progress_bar(style, "verifying") as progress:
        verified = store.verify(only=prefix, max_examples=_ALL_EXAMPLES, jobs=request.jobs, progress=progress)
    return [finding for finding in verified.findings if finding.severity != "info" and finding.code.startswith(prefix)]
