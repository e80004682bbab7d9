"""`rmqtool inspect PATH`: what a store holds, or every message of its commit log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal

import click

from rmqtool.broker_conf import BrokerConf
from rmqtool.commands.options import examples_and_statuses, global_options, store_options
from rmqtool.errors import Exit, UnreadableError, UsageError
from rmqtool.output import Style, note, write_document, write_line, write_text
from rmqtool.versions import Version

if TYPE_CHECKING:
    from rmqtool.files import RateLimit, Reading
    from rmqtool.listing import BodyChoice
    from rmqtool.locate import LogPart
    from rmqtool.log_statistics import LogStatistics
    from rmqtool.message_text import BodyFormat
    from rmqtool.overview import Overview
    from rmqtool.scan.reader import Event
    from rmqtool.store import Store

_EPILOG = examples_and_statuses(
    (
        "rmqtool inspect /data/rocketmq/store",
        "rmqtool inspect /data/rocketmq/store --scan",
        "rmqtool inspect /data/rocketmq/store/commitlog --limit 10",
        "rmqtool inspect /data/rocketmq/store/commitlog --json | jq .topic",
    ),
    {
        Exit.OK: "done",
        Exit.LOSSY: "done, but a part is unreadable, damaged, or a body has not its CRC",
        Exit.FAILED: "the store, or what is listed, cannot be read or is not supported",
        Exit.NOT_A_STORE: "not a RocketMQ store",
    },
)


@click.command("inspect", epilog=_EPILOG)
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--scan", is_flag=True, help="Read the whole log: messages and bytes by topic and queue, sizes, damage.")
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="Stop after N messages.")
@click.option("--from-offset", type=click.IntRange(min=0), default=0, metavar="BYTES", help="First physical offset.")
@click.option("--to-offset", type=click.IntRange(min=0), metavar="BYTES", help="Stop before this physical offset.")
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
    type=click.Choice(["store", "commitlog"]),
    envvar="RMQTOOL_INSPECT_AS",
    help="What PATH is, when its place does not say.",
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
    kind: Literal["store", "commitlog"] | None,
    broker_version: Version | None,
    broker_conf: BrokerConf,
    limit_rate: RateLimit | None,
    **listing: Any,
) -> Exit:
    """Show what a store holds, or every message of its commit log.

    PATH is a store (the directory that broker.conf calls storePathRootDir), its commitlog directory, or a file in
    there. A store that a broker runs on may be read too; nothing in it is changed.
    """
    from rmqtool.locate import LogPart, locate

    style.store = str(path)
    found = locate(path, kind, broker_conf)
    if isinstance(found, LogPart):
        if _is_given("scan"):
            raise UsageError("--scan is for a whole store", hint=f"rmqtool inspect {quote(str(found.root))} --scan")
        return _list_messages(style, found, limit_rate, **listing)
    given = [f"--{name.replace('_', '-')}" for name in listing if _is_given(name)]
    if given:
        hint = f"rmqtool inspect {quote(str(path / 'commitlog'))} {given[0]} ..."
        raise UsageError(f"{', '.join(given)}: for messages, not for a whole store", hint=hint)
    return _show_store(style, found, scan, broker_version, limit_rate)


def _is_given(option: str) -> bool:
    """Whether an option stands on the command line; in the environment it waits for a path that it fits."""
    source = click.get_current_context().get_parameter_source(option)
    return source is click.core.ParameterSource.COMMANDLINE


def _show_store(style: Style, store: Store, scan: bool, version: Version | None, limit: RateLimit | None) -> Exit:
    from rmqtool.overview import look
    from rmqtool.overview_json import overview_json
    from rmqtool.overview_text import show_overview

    overview = look(store, version, limit)
    statistics = _scan_log(style, overview, limit) if scan else None
    lossy = overview.unread.errors or (statistics and statistics.is_lossy)
    status = Exit.LOSSY if lossy else Exit.OK
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

    first = overview.log_range.min_offset if overview.log_range else 0
    live = overview.holder is not None
    statistics = LogStatistics(live=live)
    with byte_progress("reading the commit log", overview.log.size, style.quiet) as progress:
        for event in _readable_events(overview, Reading(limit, spare_cache=live)):
            statistics.add(event)
            progress.update(event.physical_offset + event.size - first)
    overview.add_signs(statistics.signs)
    return statistics


def _readable_events(overview: Overview, reading: Reading) -> Iterator[Event]:
    """The scan of the whole log; a file that cannot be read is told and left out from there on."""
    from rmqtool.scan.reader import scan_files

    files, position = list(overview.log.files), 0
    while files:
        try:
            for event in scan_files(files, position, reading=reading):
                position = event.physical_offset + event.size
                yield event
            return
        except UnreadableError as error:  # noqa: PERF203 - once for each file that cannot be read
            overview.add_unread(error)
            files = [file for file in files if str(file.path) != error.file]


def _list_messages(
    style: Style,
    part: LogPart,
    limit_rate: RateLimit | None,
    *,
    limit: int | None,
    from_offset: int,
    to_offset: int | None,
    body: BodyChoice,
    body_format: BodyFormat,
) -> Exit:
    from rmqtool.files import Reading
    from rmqtool.listing import ListingOptions, list_log
    from rmqtool.lock import lock_holder
    from rmqtool.message_text import object_text

    live = lock_holder(part.root) is not None
    last = part.files[-1].end_offset if part.files else 0
    options = ListingOptions(
        start=from_offset,
        stop=last if to_offset is None else to_offset,
        limit=limit,
        body=body,
        reading=Reading(limit_rate, spare_cache=live),
        live=live,
    )
    status, empty = Exit.OK, True
    color = style.wants_color()
    for found in list_log(part.files, part.root, options):
        empty = False
        if found["kind"] == "damage" or not found.get("body_crc_ok", True):
            status = Exit.LOSSY
        if style.json:
            write_line(style, found)
        else:
            write_text(object_text(found, body_format, color))
    if empty and limit != 0 and not style.quiet:
        note("nothing is stored in this part of the commit log")
    return status
