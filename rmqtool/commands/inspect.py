"""`rmqtool inspect PATH`: an overview of a store, or a listing of files in one."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rmqtool.base.errors import Exit, RmqtoolError, UsageError
from rmqtool.base.paths import is_remote
from rmqtool.base.times import parse_duration
from rmqtool.base.visible import quote
from rmqtool.commands.help_page import HelpPage, examples_and_statuses
from rmqtool.commands.inspect_location import FILTERS, ListingRequest, is_given, list_from, option_name
from rmqtool.commands.options import global_options, jobs_option, store_options
from rmqtool.commands.shared_options import StorePath, decoder_option, filter_options, limit_option, redact_options
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import Version
from rmqtool.show.output import Style, write_document, write_text
from rmqtool.show.pager import begin_paging

if TYPE_CHECKING:
    from rmqtool.base.files import RateLimit
    from rmqtool.inspect.log_statistics import LogStatistics
    from rmqtool.inspect.overview import Overview
    from rmqtool.show.monitoring import Measure
    from rmqtool.store.paths import Kind
    from rmqtool.store.snapshot import Snapshot

F = TypeVar("F", bound=Callable[..., Any])

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


def _limits(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> dict[Any, float]:
    """Values by what they limit; several may stand in one text, with commas between them."""
    limits: dict[str, float] = {}
    for text in (part.strip() for each in value for part in each.split(",") if part.strip()):
        name, _, number = text.rpartition("=")
        try:
            limits[name or "lag"] = _limit(name or "lag", number)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from error
    return limits


def _limit(name: str, text: str) -> float:
    """The value that a limit has: a number, percent, or seconds of a duration."""
    if name == "age":
        return parse_duration(text) / 1000
    if name not in ("lag", "disk"):
        raise ValueError(f"{name!r} has no limit: lag, disk and age do, as lag=1000, disk=85% or age=15m")
    if not re.fullmatch(r"\d{1,18}(\.\d{1,6})?%?" if name == "disk" else r"\d{1,18}", text, re.ASCII):
        raise ValueError(f"{text!r} is not a {'percentage' if name == 'disk' else 'number of messages'}")
    return float(text.removesuffix("%"))


def _limit_option(name: str) -> Callable[[F], F]:
    help_text = f"With --format nagios, {name.upper()} above lag=MESSAGES, disk=PERCENT, age=DURATION (last message)."
    return click.option(f"--{name}", metavar="NAME=VALUE", multiple=True, callback=_limits, help=help_text)


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
@_limit_option("warning")
@_limit_option("critical")
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
    warning: dict[Measure, float],
    critical: dict[Measure, float],
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
    _require_fitting_form(
        form, "--json" if style.json else "--scan" if scan else None, has_limits=bool(warning or critical)
    )
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
    return (
        _show_figures(overview, form, warning, critical) if form else _show_store(style, overview, scan=scan, jobs=jobs)
    )


def _require_fitting_form(form: str | None, other: str | None, *, has_limits: bool) -> None:
    """Raise UsageError where the figures of a store are asked for in two ways, or limits without what judges them."""
    if form and other:
        raise UsageError(f"--format {form} does not go with {other}")
    if has_limits and form != "nagios":
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
    store, statistics = overview.snapshot.store, None
    if scan:
        statistics, unread = _scan_log(style, overview.snapshot, jobs)
        overview = overview.with_scan(statistics.signs, unread)
    lossy = overview.unread or (statistics and statistics.is_lossy)
    status = Exit.LOSSY if lossy else Exit.OK
    if style.json:
        from rmqtool.show.overview import overview_json

        write_document(
            style,
            "inspect",
            str(store.root),
            overview_json(overview, statistics),
            findings=overview.findings,
            status=status,
        )
    else:
        from rmqtool.show.overview import show_overview

        show_overview(overview, statistics, style)
    return status


def _scan_log(style: Style, snapshot: Snapshot, jobs: int) -> tuple[LogStatistics, list[RmqtoolError]]:
    """Statistics of all records, and the errors of files that could not be read."""
    from rmqtool.inspect.log_statistics import whole_log, workers_for
    from rmqtool.show.progress import byte_progress

    unread, size = list[RmqtoolError](), snapshot.older_log.size + snapshot.log.size
    with (
        workers_for(size, jobs) as pool,  # before there is a progress bar, which has a thread
        byte_progress("reading the commit log", size, style=style) as progress,
    ):
        return whole_log(snapshot, unread, progress.update, pool), unread
