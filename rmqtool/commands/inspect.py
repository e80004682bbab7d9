"""`rmqtool inspect PATH`: an overview of a store, or a listing of files in one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqtool.base.errors import Exit, RmqtoolError, UsageError
from rmqtool.base.paths import is_remote
from rmqtool.base.shell import quote
from rmqtool.commands.decoder_options import decoder_option
from rmqtool.commands.filter_options import filter_options, limit_option
from rmqtool.commands.help_page import HelpPage, examples_and_statuses
from rmqtool.commands.inspect_location import FILTERS, ListingRequest, is_given, list_from, option_name
from rmqtool.commands.options import global_options, jobs_option, store_options
from rmqtool.commands.redact_options import redact_options
from rmqtool.commands.store_path import StorePath
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import Version
from rmqtool.show.output import Style, write_document, write_text
from rmqtool.show.pager import begin_paging

if TYPE_CHECKING:
    from rmqtool.base.files import RateLimit
    from rmqtool.inspect.log_statistics import LogStatistics
    from rmqtool.inspect.overview import Overview
    from rmqtool.store.paths import Kind
    from rmqtool.store.snapshot import Snapshot

_KINDS = (  # those of `store.paths`, written out so that `--help` loads nothing
    "store", "commitlog", "consumequeue", "batchconsumequeue", "consumequeue-ext", "index", "checkpoint", "abort",
    "lock", "config", "timerwheel", "timerlog", "timercheck", "compaction", "compaction-queue", "dledger",
    "dledger-index", "text", "rocksdb",
)  # fmt: skip
_EPILOG = examples_and_statuses(
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
        Exit.FINDINGS: "nothing passes the filters",
        Exit.LOSSY: "done, but a part cannot be read or decoded, or bytes or a unit are wrong",
        Exit.FAILED: "the store or what is listed cannot be read, or is not supported",
        Exit.NOT_A_STORE: "not a RocketMQ store",
    },
)
_LISTING = (
    *FILTERS, "limit", "reverse", "follow", "as_hex", "columns", "output_format", "count", "slots", "body",
    "body_format", "decoder", "redact", "redact_as", "redact_salt",
)  # fmt: skip
_OF_STORES = ("openmetrics", "nagios")  # formats for a whole store


@click.command("inspect", cls=HelpPage, epilog=_EPILOG)
@click.argument("path", type=StorePath(may_be_remote=True))
@click.option("--scan", is_flag=True, help="Read the whole log: messages and bytes by topic and queue, sizes, damage.")
@filter_options()
@limit_option
@click.option("--reverse", is_flag=True, help="Newest first.")
@click.option("-f", "--follow", is_flag=True, help="Follow the log as the broker appends to it, until Ctrl-C.")
@click.option(
    "--hex",
    "as_hex",
    is_flag=True,
    envvar="RMQTOOL_INSPECT_HEX",
    help="Also show the bytes of each unit, with its fields named.",
)
@click.option("--columns", metavar="NAMES", help="Only these fields, separated by commas.")
@click.option(
    "--format",
    "output_format",
    envvar="RMQTOOL_INSPECT_FORMAT",
    type=click.Choice(["text", "table", "json", "csv", *_OF_STORES]),
    help="text for people (default), a table, JSON lines, or CSV; figures of a store: openmetrics, nagios.",
)
@click.option("--count", is_flag=True, help="Only the number of each kind.")
@click.option("--slots", is_flag=True, help="Hash slots of an index file, and the lengths of their chains.")
@click.option(
    "--body",
    type=click.Choice(["decompressed", "stored", "none"]),
    default="decompressed",
    show_default=True,
    help="Which form of the body.",
)
@click.option(
    "--body-format",
    type=click.Choice(["text", "hex", "json", "base64"]),
    default="text",
    show_default=True,
    help="How text output shows a body; bytes that are not text are shown as hex.",
)
@click.option(
    "--as",
    "kind",
    type=click.Choice(_KINDS),
    envvar="RMQTOOL_INSPECT_AS",
    metavar="KIND",
    help=f"What PATH is, when its place does not say: {', '.join(_KINDS)}.",
)
@redact_options
@decoder_option
@jobs_option()
@store_options
@global_options
@click.pass_obj
def inspect(
    style: Style,
    /,
    *,
    path: Path,
    scan: bool,
    kind: Kind | None,
    jobs: int,
    broker_version: Version | None,
    broker_conf: BrokerConf,
    limit_rate: RateLimit | None,
    **listing: Any,
) -> int:
    """Show what a store holds, or what is at a place in one.

    PATH is a store (the directory that broker.conf calls storePathRootDir), or anything in there: its commit log, a
    consume queue, an index file, the checkpoint, a config file and so on, a directory or one file. A store that a
    broker runs on may be read too; nothing in it is changed.
    """
    from rmqtool.inspect.locate import Location, locate

    style.store = str(path)
    if listing["output_format"] == "json":
        style.json = True
    form = listing["output_format"] if listing["output_format"] in _OF_STORES else None
    if form and (style.json or scan):
        raise UsageError(f"--format {form} does not go with {'--json' if style.json else '--scan'}")
    if listing["follow"] and is_remote(path):
        raise UsageError("--follow works on stores of this machine only: no broker appends to a copy", file=path)
    if is_given("jobs") and not scan:
        raise UsageError("--jobs is for --scan: all else reads little, or row by row")
    target = locate(path, kind, broker_conf)
    if not listing["follow"]:
        begin_paging(style)
    if isinstance(target, Location):
        if form:
            raise UsageError(f"--format {form} is for a whole store", hint=f"rmqtool inspect {quote(str(target.root))}")
        if is_given("scan"):
            raise UsageError("--scan is for a whole store", hint=f"rmqtool inspect {quote(str(target.root))} --scan")
        return list_from(style, target, limit_rate, broker_conf, ListingRequest(**listing))
    fitting = ("json", *_OF_STORES)
    given = [f"--{option_name(name)}" for name in _LISTING if is_given(name) and listing.get(name) not in fitting]
    if given:
        hint = f"rmqtool inspect {quote(str(path / 'commitlog'))} {given[0]} ..."
        raise UsageError(f"{', '.join(given)}: works on a part of a store", hint=hint)
    from rmqtool.inspect.overview import overview_of

    overview = overview_of(target, broker_version, limit_rate)
    return _show_figures(overview, form) if form else _show_store(style, overview, scan=scan, jobs=jobs)


def _show_figures(overview: Overview, form: str) -> int:
    from rmqtool.show.nagios import overview_answer
    from rmqtool.show.open_metrics import overview_metrics

    if form == "openmetrics":
        write_text(overview_metrics(overview))
        return Exit.LOSSY if overview.unread else Exit.OK
    answer = overview_answer(overview)
    write_text(answer.text)
    return answer.status


def _show_store(style: Style, overview: Overview, *, scan: bool, jobs: int) -> Exit:
    store, statistics = overview.snapshot.store, None
    if scan:
        statistics, unread = _scan_log(style, overview.snapshot, jobs)
        overview = overview.with_scan(statistics.signs, unread)
    is_wrong = any(finding.severity == "error" and finding.code != "store.in-use" for finding in overview.findings)
    lossy = overview.unread or is_wrong or (statistics and statistics.is_lossy)
    status = Exit.LOSSY if lossy else Exit.OK
    if style.json:
        from rmqtool.show.overview_json import overview_json

        write_document(
            style,
            "inspect",
            str(store.root),
            overview_json(overview, statistics),
            findings=overview.findings,
            status=status,
        )
    else:
        from rmqtool.show.overview_text import show_overview

        show_overview(overview, statistics, style)
    return status


def _scan_log(style: Style, snapshot: Snapshot, jobs: int) -> tuple[LogStatistics, list[RmqtoolError]]:
    """Statistics of all records, and the errors of files that could not be read."""
    from rmqtool.inspect.whole_log import whole_log, workers_for
    from rmqtool.show.progress import byte_progress

    unread, size = list[RmqtoolError](), snapshot.older_log.size + snapshot.log.size
    with (
        workers_for(size, jobs) as pool,  # before there is a progress bar, which has a thread
        byte_progress("reading the commit log", size, style=style) as progress,
    ):
        return whole_log(snapshot, unread, progress.update, pool), unread
