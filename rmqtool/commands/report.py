"""`rmqtool report STORE -o FILE`: one page about a store, to look at, to print, or to put into a ticket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rmqtool.base.byte_size import byte_size
from rmqtool.base.errors import Exit
from rmqtool.commands.help_page import HelpPage, examples_and_statuses
from rmqtool.commands.reporting import STATUSES, Request, counts_json, look_at, put, report_options, status_of
from rmqtool.commands.store_path import StorePath
from rmqtool.show.output import Style, note, write_document, write_text

_EPILOG = examples_and_statuses(
    (
        "rmqtool report /data/rocketmq/store -o report.html",
        "rmqtool report /data/rocketmq/store -o report.html --redact keys,hosts",
        "rmqtool report /data/rocketmq/store -o report.html --trace 7F0000010000...",
    ),
    STATUSES,
)


@click.command("report", cls=HelpPage, epilog=_EPILOG)
@click.argument("path", metavar="STORE", type=StorePath())
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), required=True, metavar="FILE",
              help="The HTML file; one that exists is replaced.")  # fmt: skip
@report_options
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
        write_text(f"{request.output} written ({byte_size(size)}); verdict of the store: {facts.outcome.verdict}\n")
        if not style.quiet:
            note(f"open it in a browser: {request.output.resolve().as_uri()}")
    return status
