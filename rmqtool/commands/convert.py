"""`rmqtool convert STORE --output NEW`: a plain store of one with DLedger, or with several log paths."""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqtool.base.errors import Exit, RmqtoolError
from rmqtool.base.files import UNLIMITED
from rmqtool.base.visible import join
from rmqtool.commands.options import argument, command, flag, jobs_option
from rmqtool.commands.shared_options import NEW_STORE, OnTier, StorePath, dry_run_option, output_option, processes_for
from rmqtool.commands.writing import cut_moved, derive, owner_of
from rmqtool.show.output import Style, note, write_document
from rmqtool.show.progress import byte_progress

if TYPE_CHECKING:
    from rmqtool.rebuild.plan import RebuildPlan
    from rmqtool.salvage.conversion import ConversionPlan
    from rmqtool.salvage.new_store import Carried, NewStore
    from rmqtool.show.salvage import Converted
    from rmqtool.store.store import Store

_WRONG_BODY = "commitlog.body-crc"


@dataclass(frozen=True, kw_only=True)
class ConvertOptions(OnTier):
    """What was asked for."""

    path: Path = argument("STORE", StorePath())
    output: Path = output_option(NEW_STORE, "NEW", click.Path(path_type=Path), required=True)
    uncommitted: bool = flag("Also take entries after the committed index: for the last remaining node.")
    tiered: bool = flag("Take the tier along, to NEW/tiered: messages that only it has.")
    dry_run: bool = dry_run_option()
    jobs: int | None = jobs_option()


@command(
    "convert",
    ConvertOptions,
    (
        "rmqtool convert /data/rocketmq/store --output /data/new --dry-run",
        "rmqtool convert /data/rocketmq/store --output /data/new",
    ),
    {
        Exit.OK: "done, or planned; all messages are in the new store",
        Exit.FINDINGS: "done, or planned; messages are missing, left out, or damaged",
        Exit.USAGE: "the options contradict each other, or the output is not empty",
        Exit.LOSSY: "done; a file next to the log could not be copied",
        Exit.FAILED: "could not finish; there is no new store",
        Exit.IN_USE: "a broker runs on the store",
    },
)
def convert(style: Style, given: ConvertOptions) -> Exit:
    """Convert a DLedger store to a plain one.

    STORE is the directory that broker.conf calls storePathRootDir; the broker must be stopped. The messages in
    DLedger's entries become a plain commit log; queue offsets and committed offsets do not change. The files of a
    store with several commit log paths are put into one directory. Nothing in STORE is changed.
    """
    from rmqtool.base.files import ReadPolicy
    from rmqtool.salvage.conversion import carried_with, conversion_of, plan_conversion, require_stopped
    from rmqtool.salvage.new_store import NewStore, carried_tier, require_free_name
    from rmqtool.show.salvage import Converted

    store = given.store
    require_free_name(given.output, [given.path, *store.log_directories])
    require_stopped(store)
    conversion = conversion_of(store, with_uncommitted=given.uncommitted)
    with byte_progress("reading the entries", sum(file.size for file in conversion.entries), style=style) as progress:
        plan = plan_conversion(conversion, ReadPolicy(given.limit_rate), progress.update)
    carried, not_carried = carried_with(store)
    carried += [carried_tier([store])] if given.tiered else []
    older_queues = _older_queues(store, conversion.min_offset)
    if given.dry_run:
        return _show(style, given, Converted(plan, carried, not_carried, None, older_queues))
    with NewStore(given.output).making() as new:
        problems, rebuild = _make(style, given, plan, carried, new)
        new.finish(owner_of([store]))
    carried = [*(each for each in carried if not each.problem), *problems]
    return _show(style, given, Converted(plan, carried, not_carried, rebuild, older_queues))


def _older_queues(store: Store, start: int) -> int:
    """How many queues prove that the log once began before `start`, and that no retention has deleted what is gone."""
    from rmqtool.base.files import OpenFiles
    from rmqtool.store.snapshot import Snapshot
    from rmqtool.store.unit_files import UnitFiles
    from rmqtool.verify.queue_leftovers import LogHead

    head = LogHead(start)
    with closing(OpenFiles(UNLIMITED)) as files:
        for queue in Snapshot(store).queues:
            if queue.database is None:
                with suppress(RmqtoolError):  # a rebuild meets it again
                    head.add_queue(UnitFiles(queue, files))
    return head.left


def _make(
    style: Style, given: ConvertOptions, plan: ConversionPlan, carried: list[Carried], new: NewStore
) -> tuple[list[Carried], RebuildPlan]:
    """Write all of the new store; what could not be carried over, and what was derived."""
    from rmqtool.base.files import ReadPolicy
    from rmqtool.rebuild.options import RebuildOptions
    from rmqtool.salvage.conversion import as_ordinary, loss_of, require_messages, write_conversion
    from rmqtool.salvage.new_store import carried_bytes, carry_over, rebuild_sources, write_checkpoint
    from rmqtool.store.store import COMMIT_LOG, open_store
    from rmqtool.transaction.losses import keep_losses

    source, ordinary = plan.conversion.store, as_ordinary(plan.conversion.store)
    require_messages(plan)
    new.require_space(plan.needed + carried_bytes([source], carried))
    with byte_progress("writing the commit log", plan.conversion.size, style=style) as progress:
        write_conversion(plan, new.directory / COMMIT_LOG, ReadPolicy(given.limit_rate), progress.update)
    problems = carry_over([source], carried, new.directory)
    options = RebuildOptions(
        frozenset(["queues", "index"]), version=given.broker_version, jobs=processes_for(given.jobs, given.path)
    )
    sources = rebuild_sources(ordinary, new.directory, given.broker_conf)
    rebuild, left_out = derive(style, source, sources, new, options)
    if source.dledger_directory:
        cut_moved(rebuild, new.derived, plan.conversion.start)
    new.adopt_derived()
    write_checkpoint(open_store(new.directory), source, rebuild.last_record, given.broker_version)
    losses = loss_of(plan, rebuild.findings)
    if losses:
        keep_losses(new.directory, [losses])
    return [*problems, *left_out], rebuild


def _show(style: Style, given: ConvertOptions, found: Converted) -> Exit:
    from rmqtool.salvage.new_store import TIER
    from rmqtool.show.salvage import convert_json, show_conversion, worth_showing

    plan, rebuild = found.plan, found.rebuild
    if rebuild:  # it has read the new log: remedies are to name the new store
        left = [each for each in rebuild.findings if each.code != _WRONG_BODY or not plan.wrong_bodies]
        left = [replace(each, next_command=each.next_command and each.next_command.on_store(given.output))
                for each in left]  # fmt: skip
        rebuild = replace(rebuild, findings=left)
        found = found._replace(rebuild=rebuild)
    findings = worth_showing(rebuild.findings if rebuild else ())
    is_left = bool(plan.missing or plan.totals or plan.wrong_bodies or found.older_queues)
    is_left = is_left or bool(rebuild and rebuild.lost.is_lossy)
    is_left = is_left or any(each.severity == "error" or each.code == _WRONG_BODY for each in findings)
    is_unread = any(each.problem for each in found.carried)
    status = Exit.FINDINGS if is_left else Exit.LOSSY if is_unread else Exit.OK
    if style.json:
        write_document(style, "convert", convert_json(found, given.output), findings=findings, status=status)
        return status
    show_conversion(found, style)
    if not style.quiet:
        if "uncommitted" in plan.totals:
            note("--uncommitted also takes the entries after the committed index, of the last remaining node")
        if rebuild:
            note(f"done; next: {join(['rmqtool', 'verify', str(given.output)])}")
            note("then start the broker on it, without enableDLegerCommitLog and with one storePathCommitLog")
            if given.tiered:
                note(f"and with tieredStoreFilePath={given.output.absolute() / TIER}")
        else:
            words = given.words("path", "output", "uncommitted", "tiered", "tiered_path", "broker_conf",
                                "broker_version")  # fmt: skip
            note(f"nothing is written yet; next: {join(['rmqtool', 'convert', *words])}")
    return status
