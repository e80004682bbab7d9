"""`rmqtool inspect PATH`: an overview of a store, or a listing of files in one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from rmqtool.base.errors import Exit, RmqtoolError, UsageError
from rmqtool.base.paths import is_remote
from rmqtool.base.visible import quote
from rmqtool.commands.inspect_location import FILTERS, OF_STORES, ListingRequest, list_from, option_name
from rmqtool.commands.options import command, flag, is_given, jobs_option, option
from rmqtool.commands.shared_options import limits_option, processes_for
from rmqtool.show.output import Style, write_document, write_text
from rmqtool.show.pager import begin_paging
from rmqtool.show.progress import byte_progress

if TYPE_CHECKING:
    from rmqtool.inspect.log_statistics import LogStatistics
    from rmqtool.inspect.overview import Overview
    from rmqtool.show.monitoring import Measure
    from rmqtool.store.paths import Kind
    from rmqtool.store.snapshot import Snapshot

_KINDS = (  # those of `store.paths`, written out so that `--help` loads nothing
    "store", "commitlog", "consumequeue", "batchconsumequeue", "consumequeue-ext", "index", "checkpoint", "abort",
    "lock", "config", "timerwheel", "timerlog", "timercheck", "compaction", "compaction-queue", "dledger",
    "dledger-index", "text", "rocksdb",
)  # fmt: skip
_LISTING = (
    *FILTERS, "limit", "reverse", "follow", "as_hex", "columns", "output_format", "count", "slots", "body",
    "body_format", "decoder", "redact", "redact_as", "redact_salt",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class InspectOptions(ListingRequest):
    """What was asked for."""

    scan: bool = flag("Read the whole log: messages and bytes by topic and queue, sizes, damage.")
    warning: dict[Measure, float] = limits_option("warning")
    critical: dict[Measure, float] = limits_option("critical")
    kind: Kind | None = option(
        f"What PATH is, if its name does not show it: {', '.join(_KINDS)}.",
        "--as", type=click.Choice(_KINDS), envvar="RMQTOOL_INSPECT_AS", metavar="KIND",
    )  # fmt: skip
    jobs: int | None = jobs_option()


@command(
    "inspect",
    InspectOptions,
    (
        "rmqtool inspect /data/rocketmq/store",
        "rmqtool inspect /data/rocketmq/store --scan",
        "rmqtool inspect /data/rocketmq/store/commitlog --topic orders --from -2h",
        "rmqtool inspect /data/rocketmq/store/commitlog --json | jq .topic",
        "rmqtool inspect /data/rocketmq/store/commitlog --limit 5 --format csv",
        "rmqtool inspect /data/rocketmq/store/consumequeue/orders/0 --reverse",
        "rmqtool inspect hdfs://namenode:8020/backups/store",
    ),
    {
        Exit.OK: "done",
        Exit.FINDINGS: "no message matches the filters",
        Exit.LOSSY: "done, but something cannot be read or decoded, or is damaged",
        Exit.FAILED: "the store or the listed file cannot be read or is not supported",
    },
)
def inspect(style: Style, given: InspectOptions) -> int:
    """Show what a store contains, or one part of it.

    PATH is a store (the directory that broker.conf calls storePathRootDir), or anything in it: its commit log, a
    consume queue, an index file, the checkpoint, a config file and so on, a directory or one file. A broker may be
    running on the store; nothing in it is changed.
    """
    from rmqtool.inspect.locate import Location, locate

    path, scan = given.path, given.scan
    if given.output_format == "json":
        style.json = True
    form = given.output_format if given.output_format in OF_STORES else None
    _require_fitting_form(form, "--json" if style.json else "--scan" if scan else None, given)
    if given.follow and is_remote(path):
        raise UsageError("--follow works only on stores of this machine: no broker appends to a copy", file=path)
    if is_given("jobs") and not scan:
        raise UsageError("--jobs is for --scan: everything else reads little")
    target = locate(path, given.kind, given.broker_conf)
    if not given.follow:
        begin_paging(style)
    if isinstance(target, Location):
        if form:
            raise UsageError(f"--format {form} is for a whole store", hint=f"rmqtool inspect {quote(str(target.root))}")
        if is_given("scan"):
            raise UsageError("--scan is for a whole store", hint=f"rmqtool inspect {quote(str(target.root))} --scan")
        return list_from(style, target, given)
    fits = given.output_format in ("json", *OF_STORES)
    unfit = [f"--{option_name(name)}" for name in _LISTING if is_given(name) and not (name == "output_format" and fits)]
    if unfit:
        hint = f"rmqtool inspect {quote(str(path / 'commitlog'))} {unfit[0]} ..."
        raise UsageError(f"{', '.join(unfit)}: for a part of a store only", hint=hint)
    from rmqtool.inspect.overview import overview_of

    overview = overview_of(target, given.broker_version, given.limit_rate)
    if form:
        return _show_figures(overview, form, given.warning, given.critical)
    return _show_store(style, overview, scan=scan, jobs=processes_for(given.jobs, overview.snapshot.store.root))


def _require_fitting_form(form: str | None, other: str | None, given: InspectOptions) -> None:
    """Raise UsageError where the figures of a store are asked for in two ways, or limits without what judges them."""
    if form and other:
        raise UsageError(f"--format {form} does not go with {other}")
    if (given.warning or given.critical) and form != "nagios":
        raise UsageError("--warning and --critical are for --format nagios")


def _show_figures(overview: Overview, form: str, warning: dict[Measure, float], critical: dict[Measure, float]) -> int:
    from rmqtool.show.monitoring import Limits, overview_answer, overview_metrics

    if form == "openmetrics":
        write_text(overview_metrics(overview))
        return Exit.LOSSY if overview.unread else Exit.OK
    answer = overview_answer(overview, Limits(warning, critical))
    write_text(answer.text)
    return answer.status


def _show_store(style: Style, overview: Overview, *, scan: bool, jobs: int) -> Exit:
    statistics = None
    if scan:
        statistics, unread = _scan_log(style, overview.snapshot, jobs)
        overview = overview.with_scan(statistics.signs, unread)
    lossy = overview.unread or (statistics and statistics.is_lossy)
    status = Exit.LOSSY if lossy else Exit.OK
    if style.json:
        from rmqtool.show.overview_json import overview_json

        result = overview_json(overview, statistics)
        write_document(style, "inspect", result, findings=overview.findings, status=status)
    else:
        from rmqtool.show.overview import show_overview

        show_overview(overview, statistics, style)
    return status


def _scan_log(style: Style, snapshot: Snapshot, jobs: int) -> tuple[LogStatistics, list[RmqtoolError]]:
    """Statistics of all records, and the errors of files that could not be read."""
    from rmqtool.inspect.whole_log import whole_log, workers_for

    unread, size = list[RmqtoolError](), snapshot.older_log.size + snapshot.log.size
    with (
        workers_for(size, jobs) as pool,  # before there is a progress bar, which has a thread
        byte_progress("reading the commit log", size, style=style) as progress,
    ):
        return whole_log(snapshot, unread, progress.update, pool), unread
