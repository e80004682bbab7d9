"""`rmqtool report STORE -o FILE`: one page about a store, to look at, to print, or to put into a ticket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rmqtool.base.errors import Exit
from rmqtool.commands.help_page import HelpPage, examples_and_statuses
from rmqtool.commands.options import global_options, jobs_option, now_option, store_options, time_zone_option
from rmqtool.commands.redact_options import redact_options
from rmqtool.commands.reporting import Request, counts_json, look_at, put, status_of
from rmqtool.show.output import Style, byte_size, note, write_document, write_text

_EPILOG = examples_and_statuses(
    (
        "rmqtool report /data/rocketmq/store -o report.html",
        "rmqtool report /data/rocketmq/store -o report.html --redact keys,hosts",
        "rmqtool report /data/rocketmq/store -o report.html --trace 7F0000010000...",
    ),
    {
        Exit.OK: "written; nothing is wrong",
        Exit.FINDINGS: "written; there are findings above info, or no message of --trace",
        Exit.USAGE: "the options do not fit each other, or the file would be in the store",
        Exit.LOSSY: "written; not all of the store can be read",
        Exit.FAILED: "could not finish",
        Exit.NOT_A_STORE: "not a RocketMQ store",
    },
)


@click.command("report", cls=HelpPage, epilog=_EPILOG)
@click.argument("path", metavar="STORE", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), required=True, metavar="FILE",
              help="The HTML file; one that exists is replaced.")  # fmt: skip
@click.option("--trace", "traces", multiple=True, metavar="ID",
              help="The life of this message, by its message id or unique key, too. Repeatable.")  # fmt: skip
@redact_options
@now_option
@jobs_option()
@time_zone_option("Zone of the times")
@store_options
@global_options
@click.pass_obj
def report(style: Style, /, **given: Any) -> Exit:
    """Write one page about a store: verdict, plan, pictures.

    The page is one HTML file that loads nothing: what is wrong and what to do, the log by state and topic, growth,
    retention and disk, consumer groups with what they are about to lose, topics and queues. The store is verified,
    and its log read once more. Nothing in it is changed.
    """
    from rmqtool.show.report_page import report_page

    request = Request(**given)
    facts = look_at(style, request)
    page = report_page(facts, request.redaction).encode()
    size = put(request.output, lambda file: file.write(page))
    status = status_of(facts)
    if style.json:
        write_document(style, "report", style.store, counts_json(facts, request, size), status=status)
    else:
        write_text(f"{facts.outcome.verdict}: {request.output}, {byte_size(size)}\n")
        if not style.quiet:
            note(f"open it in a browser: {request.output.resolve().as_uri()}")
    return status
