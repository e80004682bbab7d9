"""`rmqtool report STORE -o FILE`: one page about a store, to look at, to print, or to put into a ticket."""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqtool.base.errors import Exit, RmqtoolError, UsageError
from rmqtool.base.files import RateLimit
from rmqtool.commands.help_page import HelpPage, examples_and_statuses
from rmqtool.commands.options import global_options, jobs_option, now_option, store_options, time_zone_option
from rmqtool.commands.redact_options import redact_options
from rmqtool.commands.verifying import repeated_options, run_verification
from rmqtool.commands.writing import unwritable
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import Version
from rmqtool.show.output import Style, byte_size, note, write_document, write_text

if TYPE_CHECKING:
    from rmqtool.inspect.overview import Overview
    from rmqtool.report.facts import Life
    from rmqtool.report.timeline import Timeline
    from rmqtool.scan.redaction import Redaction
    from rmqtool.store.snapshot import Snapshot
    from rmqtool.store.store import Store
    from rmqtool.verify.outcome import Outcome

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


@dataclass(frozen=True)
class _Request:
    """What was asked for."""

    path: Path
    output: Path
    traces: tuple[str, ...]
    now: int | None
    jobs: int
    redaction: Redaction | None
    broker_version: Version | None
    broker_conf: BrokerConf
    limit_rate: RateLimit | None

    @property
    def words(self) -> tuple[str, ...]:
        """The options that the commands of the plan need, too."""
        return repeated_options(self.broker_conf.path, self.broker_version, self.limit_rate, self.jobs)


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
    from rmqtool.report.facts import gather
    from rmqtool.show.report_page import report_page
    from rmqtool.store.store import open_store

    request = _Request(**given)
    style.store = str(request.path)
    store = open_store(request.path, request.broker_conf)
    _check_place(request.output, store)
    now = time.time_ns() // 1_000_000 if request.now is None else request.now
    outcome, plan = _verified(style, request, store)
    overview, timeline = _scanned(style, request, store)
    facts = gather(now, style.zone, overview, outcome, plan, timeline)
    facts = replace(facts, lives=[_life(overview.snapshot, each.strip()) for each in request.traces])
    page = report_page(facts, request.redaction)
    _write(request.output, page)
    status = Exit.LOSSY if overview.unread and outcome.status is Exit.OK else outcome.status
    status = Exit.FINDINGS if status is Exit.OK and not all(life.messages for life in facts.lives) else status
    if style.json:
        severities = Counter(each.severity for each in outcome.findings)
        result = {
            "output": str(request.output),
            "bytes": len(page.encode()),
            "verdict": outcome.verdict,
            "errors": severities["error"],
            "warnings": severities["warning"],
        }
        write_document(style, "report", style.store, result, status=status)
    else:
        write_text(f"{outcome.verdict}: {request.output}, {byte_size(len(page.encode()))}\n")
        if not style.quiet:
            note(f"open it in a browser: file://{request.output.resolve()}")
    return status


def _check_place(output: Path, store: Store) -> None:
    """The file is not in the store, and can be written; what is no file would be replaced by one."""
    path = output.resolve()
    if any(path.is_relative_to(each.resolve()) for each in (store.root, *store.commit_log_directories)):
        raise UsageError("the report would be a file of the store: give a path outside of it", file=output)
    if path.exists() and not path.is_file():
        raise UsageError("the report cannot be written to what is not a file", file=output)
    try:
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise unwritable(output, OSError(error.errno, error.strerror)) from error


def _verified(style: Style, request: _Request, store: Store) -> tuple[Outcome, Any]:
    from rmqtool.library.verified import plan_for
    from rmqtool.verify.outcome import outcome_of
    from rmqtool.verify.verification import Verification, VerifyRequest
    from rmqtool.verify.workers import workers_for

    rate = request.limit_rate.bytes_per_second if request.limit_rate else None
    with workers_for(request.path, request.jobs) as pool:
        verification = Verification(store, VerifyRequest(request.broker_version, jobs=request.jobs, rate=rate))
        run_verification(style, verification, pool)
    outcome = outcome_of(verification)
    return outcome, plan_for(outcome, request.words)


def _scanned(style: Style, request: _Request, store: Store) -> tuple[Overview, Timeline]:
    """The overview, and the bytes of the log by topic along time and place."""
    from rmqtool.inspect.log_events import events_of
    from rmqtool.inspect.overview import overview_of
    from rmqtool.report.timeline import Timeline
    from rmqtool.scan.frames import RecordRun
    from rmqtool.show.progress import byte_progress

    overview = overview_of(store, request.broker_version, request.limit_rate)
    snapshot, log, unread = overview.snapshot, overview.log_range, list[RmqtoolError]()
    files = (*snapshot.older_log.files, *snapshot.log.files)
    start, end = (files[0].start_offset, files[-1].end_offset) if files else (0, 0)
    first, last = (log.first_store_timestamp, log.last_store_timestamp) if log else (None, None)
    timeline = Timeline.of_range(first, last, start, log.max_offset if log and files else end)
    with byte_progress("reading the commit log", end - start, style=style) as progress:
        for event in events_of(snapshot, unread):
            if isinstance(event, RecordRun):
                timeline.add(event)
            progress.update(event.physical_offset + event.size - start)
    return overview.with_scan((), unread), timeline


def _life(snapshot: Snapshot, name: str) -> Life:
    """The messages of an id, each with its trace."""
    from rmqtool.query.by_key import by_any_id
    from rmqtool.query.notes import Notes
    from rmqtool.query.trace import trace_of
    from rmqtool.report.facts import Life

    found = [*by_any_id(snapshot, name, "none", Notes())]
    for message in found:
        message["places"] = trace_of(snapshot, message).as_json(snapshot)
    return Life(name, found)


def _write(path: Path, page: str) -> None:
    """Put the page in place as a whole."""
    target = path.resolve()
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        try:
            partial.write_text(page, encoding="utf-8")
            partial.replace(target)
        finally:
            with suppress(FileNotFoundError):
                partial.unlink()
    except OSError as error:
        raise unwritable(path, OSError(error.errno, error.strerror)) from error
