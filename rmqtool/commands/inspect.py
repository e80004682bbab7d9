"""`rmqtool inspect PATH`: what a store holds, or everything at a place in one."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from rmqtool.broker_conf import BrokerConf
from rmqtool.commands.filter_options import filter_options, limit_option
from rmqtool.commands.inspect_listing import Format, Shown, checked_columns, list_at, show_counts
from rmqtool.commands.options import examples_and_statuses, global_options, store_options
from rmqtool.errors import Exit, UsageError
from rmqtool.output import Style, note, write_document
from rmqtool.versions import Version

if TYPE_CHECKING:
    from rmqtool.files import RateLimit
    from rmqtool.filters import Filters
    from rmqtool.locate import Place
    from rmqtool.log_statistics import LogStatistics
    from rmqtool.message_text import BodyFormat
    from rmqtool.messages import BodyChoice
    from rmqtool.overview import Overview
    from rmqtool.places import Kind
    from rmqtool.store import Store

_KINDS = (
    "store", "commitlog", "consumequeue", "batchconsumequeue", "consumequeue-ext", "index", "checkpoint", "abort",
    "lock", "config", "timerwheel", "timerlog", "timercheck", "compaction", "compaction-queue", "dledger",
    "dledger-index", "text",
)  # fmt: skip
_EPILOG = examples_and_statuses(
    (
        "rmqtool inspect /data/rocketmq/store",
        "rmqtool inspect /data/rocketmq/store --scan",
        "rmqtool inspect /data/rocketmq/store/commitlog --topic orders --from -2h",
        "rmqtool inspect /data/rocketmq/store/commitlog --json | jq .topic",
        "rmqtool inspect /data/rocketmq/store/commitlog --follow --format table",
        "rmqtool inspect /data/rocketmq/store/consumequeue/orders/0 --reverse --limit 10",
        "rmqtool inspect /data/rocketmq/store/config/topics.json",
    ),
    {
        Exit.OK: "done",
        Exit.LOSSY: "done, but bytes of the log are no messages, or a body, a unit or a file is wrong",
        Exit.FAILED: "something cannot be read, or a layout is not supported",
        Exit.NOT_A_STORE: "not a RocketMQ store",
    },
)
_FILTERS = ("topic", "queue", "tag", "key", "from", "to", "from_offset", "to_offset")
_LISTING = (
    *_FILTERS, "limit", "reverse", "follow", "as_hex", "columns", "output_format", "count", "slots", "body",
    "body_format",
)  # fmt: skip


@click.command("inspect", epilog=_EPILOG)
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--scan", is_flag=True, help="Read the whole log: messages and bytes by topic and queue, sizes, damage.")
@filter_options()
@limit_option
@click.option("--reverse", is_flag=True, help="Newest first.")
@click.option("--follow", is_flag=True, help="Go on with what a broker adds to its log, until Ctrl-C.")
@click.option("--hex", "as_hex", is_flag=True, help="The bytes of each unit too, with its fields named.")
@click.option("--columns", metavar="NAMES", help="Only these fields, with commas between.")
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "table", "json", "csv"]),
    help="text for people (default), one line for each as a table, JSON lines, or CSV.",
)
@click.option("--count", is_flag=True, help="Only how many there are of each kind.")
@click.option("--slots", is_flag=True, help="Of an index file the hash slots and the lengths of their chains.")
@click.option(
    "--body",
    type=click.Choice(["decompressed", "stored", "none"]),
    default="decompressed",
    show_default=True,
    help="Which body to show.",
)
@click.option(
    "--body-format",
    type=click.Choice(["text", "hex", "json", "base64"]),
    default="text",
    show_default=True,
    help="How text output shows a body; bytes that are no text are shown in hex.",
)
@click.option(
    "--as",
    "kind",
    type=click.Choice(_KINDS),
    envvar="RMQTOOL_INSPECT_AS",
    metavar="KIND",
    help=f"What PATH is, when its place does not say: {', '.join(_KINDS)}.",
)
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
    broker_version: Version | None,
    broker_conf: BrokerConf,
    limit_rate: RateLimit | None,
    **listing: Any,
) -> Exit:
    """Show what a store holds, or everything at a place in one.

    PATH is a store (the directory that broker.conf calls storePathRootDir), or anything in there: its commit log, a
    consume queue, an index file, the checkpoint, a config file and so on, a directory or one file. A store that a
    broker runs on may be read too; nothing in it is changed.
    """
    from rmqtool.locate import Place, locate

    style.store = str(path)
    if listing["output_format"] == "json":
        style.json = True
    found = locate(path, kind, broker_conf)
    if isinstance(found, Place):
        if _is_given("scan"):
            raise UsageError("--scan is for a whole store", hint=f"rmqtool inspect {quote(str(found.root))} --scan")
        return _list(style, found, limit_rate, broker_conf, **listing)
    given = [f"--{_spelt(name)}" for name in _LISTING if _is_given(name) and listing.get(name) != "json"]
    if given:
        hint = f"rmqtool inspect {quote(str(path / 'commitlog'))} {given[0]} ..."
        raise UsageError(f"{', '.join(given)}: for what is in a store, not for a whole one", hint=hint)
    return _show_store(style, found, scan, broker_version, limit_rate)


def _is_given(option: str) -> bool:
    """Whether an option stands on the command line; in the environment it waits for a path that it fits."""
    source = click.get_current_context().get_parameter_source(option)
    return source is click.core.ParameterSource.COMMANDLINE


def _spelt(name: str) -> str:
    return {"as_hex": "hex", "output_format": "format"}.get(name, name.replace("_", "-"))


def _list(
    style: Style,
    place: Place,
    limit_rate: RateLimit | None,
    conf: BrokerConf,
    *,
    filters: Filters,
    limit: int | None,
    reverse: bool,
    follow: bool,
    as_hex: bool,
    columns: str | None,
    output_format: Format | None,
    count: bool,
    slots: bool,
    body: BodyChoice,
    body_format: BodyFormat,
) -> Exit:
    from rmqtool.files import Reading
    from rmqtool.listing.follow import follow_log
    from rmqtool.listing.kinds import LISTINGS, count_place, limited, list_place
    from rmqtool.listing.options import ListingOptions
    from rmqtool.lock import lock_holder
    from rmqtool.messages import MessageShape

    filters = _fitting(place, filters)
    _check(place, filters, reverse, follow, count, slots, output_format, style)
    names = checked_columns(columns, place)
    chosen = names
    if output_format == "table" and not names:
        chosen = (*LISTINGS[place.kind].table, "body_crc_ok")
    live = lock_holder(place.root) is not None
    options = ListingOptions(
        filters=filters,
        limit=limit,
        reverse=reverse,
        with_hex=as_hex or "hex" in names,
        slots=slots,
        shape=MessageShape.of(body, chosen, as_hex),
        conf=conf,
        reading=Reading(limit_rate, spare_cache=live),
        live=live,
    )
    if count:
        return show_counts(style, count_place(place, options), style.json)
    shown = Shown(style, place, "json" if style.json else output_format or "text", body_format, names, as_hex)
    from_end = not (_is_given("from_offset") or _is_given("from"))
    found = limited(follow_log(place, options, from_end), limit) if follow else list_place(place, options)
    status = list_at(shown, found)
    if shown.empty and limit != 0 and not style.quiet:
        note(_nothing(place))
    return status


def _nothing(place: Place) -> str:
    return f"nothing is stored in this part of the {'commit log' if place.kind == 'commitlog' else 'store'}"


def _fitting(place: Place, filters: Filters) -> Filters:
    """The filters that this kind of place knows; one of the others on the command line is an error."""
    from dataclasses import fields

    from rmqtool.filters import Filters
    from rmqtool.listing.kinds import LISTINGS

    known = LISTINGS[place.kind].filters
    wrong = [f"--{_spelt(name)}" for name in _FILTERS if name not in known and _is_given(name)]
    if wrong:
        hint = f"rmqtool inspect {quote(str(place.root / 'commitlog'))} {wrong[0]} ..."
        raise UsageError(f"{', '.join(wrong)}: what is here does not tell", file=place.path, hint=hint)
    of_option = zip(_FILTERS, fields(Filters), strict=True)
    return Filters(**{item.name: getattr(filters, item.name) for option, item in of_option if option in known})


def _check(
    place: Place,
    filters: Filters,
    reverse: bool,
    follow: bool,
    count: bool,
    slots: bool,
    output_format: Format | None,
    style: Style,
) -> None:
    """Raise UsageError for options that do not fit each other or the place."""
    if follow and (place.kind != "commitlog" or reverse or count):
        raise UsageError("--follow is for a commit log, without --reverse and --count", file=place.path)
    if slots and place.kind != "index":
        raise UsageError("--slots is for index files", file=place.path)
    if style.json and output_format not in (None, "json"):
        raise UsageError(f"--json and --format {output_format} ask for two things")
    if place.kind == "index" and (filters.keys or filters.tags) and not filters.topics:
        raise UsageError("an index knows a key by the hash of its topic and itself: give --topic too")
    if place.kind == "index" and filters.topics and not (filters.keys or filters.tags):
        raise UsageError("an index knows a topic only with a key: give --key or --tag too")


def _show_store(style: Style, store: Store, scan: bool, version: Version | None, limit: RateLimit | None) -> Exit:
    from rmqtool.overview import look
    from rmqtool.overview_json import overview_json
    from rmqtool.overview_text import show_overview

    overview = look(store, version, limit)
    statistics = _scan_log(style, overview, limit) if scan else None
    status = Exit.LOSSY if statistics and statistics.is_lossy else Exit.OK
    if style.json:
        write_document(
            "inspect", str(store.root), overview_json(overview, statistics), findings=overview.findings, status=status
        )
    else:
        show_overview(overview, statistics, style)
    return status


def _scan_log(style: Style, overview: Overview, limit: RateLimit | None) -> LogStatistics:
    from rmqtool.files import Reading
    from rmqtool.log_statistics import LogStatistics
    from rmqtool.progress import byte_progress
    from rmqtool.scan.reader import scan_files

    files = overview.log.files
    live = overview.holder is not None
    statistics = LogStatistics(live=live)
    with byte_progress("reading the commit log", overview.log.size, style.quiet) as progress:
        for event in scan_files(files, reading=Reading(limit, spare_cache=live)):
            statistics.add(event)
            progress.update(event.physical_offset + event.size - files[0].start_offset)
    overview.add_signs(statistics.signs)
    return statistics
