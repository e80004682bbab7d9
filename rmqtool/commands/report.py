"""`rmqtool report STORE -o FILE`: one page about a store, to look at, to print, or to put into a ticket."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal

import click

from rmqtool.base.errors import Exit, RmqtoolError
from rmqtool.base.new_files import whole_file
from rmqtool.base.numbers import Count, byte_size
from rmqtool.commands.options import command, jobs_option, now_option, option, time_or_clock
from rmqtool.commands.shared_options import OnTier, output_option, processes_for, redact_options
from rmqtool.commands.writing import check_place, unwritable
from rmqtool.show.output import Style, note, write_document, write_text
from rmqtool.show.progress import byte_progress, job_progress
from rmqtool.show.shapes import Shape, at, by
from rmqtool.show.times import shown_zone

if TYPE_CHECKING:
    from rmqtool.inspect.overview import Overview
    from rmqtool.report.facts import Life, StoreReport, Timeline
    from rmqtool.scan.redaction import Redaction
    from rmqtool.store.snapshot import Snapshot
    from rmqtool.store.store import Store

_FILE = click.Path(path_type=Path, dir_okay=False)
STATUSES = {
    Exit.OK: "written; no problems",
    Exit.FINDINGS: "written; findings above info, or a message of --trace is missing",
    Exit.USAGE: "the options contradict each other, or the file would be in the store",
    Exit.LOSSY: "written; part of the store cannot be read",
    Exit.FAILED: "could not finish",
}


@dataclass(frozen=True, kw_only=True)
class ReportOptions(OnTier):
    """What was asked for."""

    output: Path = output_option("The HTML file; an existing one is replaced.", "FILE", _FILE, required=True)
    traces: tuple[str, ...] = option(
        "Also show the history of this message, by message id or unique key. Repeatable.",
        "--trace", multiple=True, metavar="ID",
    )  # fmt: skip
    redaction: Redaction | None = redact_options()
    now: int | None = now_option()
    jobs: int | None = jobs_option()


def look_at(style: Style, given: ReportOptions) -> StoreReport:
    """All that is to be shown of a store, after it is clear that the output can be written."""
    from rmqtool.report.facts import gather

    opened = given.opened
    store = opened.snapshot.store
    check_place(given.output, store)
    now = time_or_clock(given.now)
    with job_progress(style, "verifying") as progress:
        verified = opened.verify(jobs=processes_for(given.jobs, given.path), progress=progress)
    overview, timeline = _scanned(style, given, store)
    facts = gather(now, shown_zone(), overview, verified.outcome, verified.plan, timeline)
    return replace(facts, lives=[_life(overview.snapshot, each.strip()) for each in given.traces])


def status_of(facts: StoreReport) -> Exit:
    """That of the verification; a trace without a message counts as a finding."""
    status = facts.outcome.status
    if status is not Exit.OK:
        return status
    if not all(life.messages for life in facts.lives):
        return Exit.FINDINGS
    return Exit.LOSSY if facts.overview.unread else Exit.OK


def _scanned(style: Style, given: ReportOptions, store: Store) -> tuple[Overview, Timeline]:
    """The overview, and the bytes of the log by topic along time and place."""
    from rmqtool.inspect.log_statistics import events_of
    from rmqtool.inspect.overview import overview_of
    from rmqtool.report.facts import Timeline
    from rmqtool.scan.frames import RecordRun

    overview = overview_of(store, given.broker_version, given.limit_rate)
    snapshot, log, unread = overview.snapshot, overview.log_range, list[RmqtoolError]()
    files = snapshot.log.files
    start, end = (files[0].start_offset, files[-1].end_offset) if files else (0, 0)
    first, last = (log.first_store_timestamp, log.last_store_timestamp) if log else (None, None)
    timeline = Timeline.of_range(first, last, start, log.max_offset if log and files else end)
    with byte_progress("reading the commit log", snapshot.log.size, style=style) as progress:
        for event in events_of(snapshot, unread):
            if isinstance(event, RecordRun):
                timeline.add(event)
            progress.update(event.physical_offset + event.size - start)
    return overview.with_scan((), unread), timeline


def _life(snapshot: Snapshot, name: str) -> Life:
    """The messages of an id, each with its trace."""
    from rmqtool.query.by_place import Notes
    from rmqtool.query.lookup import by_any_id
    from rmqtool.query.trace import trace_of
    from rmqtool.report.facts import Life

    notes = Notes()
    found = {message["unique_key"] or message["physical_offset"]: message
             for message in by_any_id(snapshot, name, "none", notes)}  # fmt: skip
    for message in found.values():
        message["places"] = trace_of(snapshot, message).as_json(snapshot)
    return Life(name, [*found.values()], notes.lines)


def put(path: Path, write: Callable[[IO[bytes]], object]) -> int:
    """Write a file, and put it in place as a whole; its size, bytes."""
    try:
        with whole_file(path.resolve()) as file:
            write(file)
            return file.seek(0, os.SEEK_END)
    except OSError as error:
        raise unwritable(path, OSError(error.errno, error.strerror)) from error


class Written(Shape):
    """The page that was written."""

    output: str = by(lambda _, made: str(made[0]))  # The file, as it was given.
    bytes: Count = by(lambda _, made: made[1])  # Its size, bytes.
    verdict: Literal["clean", "dirty", "corrupt", "unproven"] = at("outcome.verdict")  # That of verify on the store.
    errors: Count = by(lambda facts, _: _with_severity(facts, "error"))  # How many findings are errors.
    warnings: Count = by(lambda facts, _: _with_severity(facts, "warning"))  # How many are warnings.


def _with_severity(facts: StoreReport, severity: str) -> int:
    return sum(each.severity == severity for each in facts.outcome.findings)


@command(
    "report",
    ReportOptions,
    (
        "rmqtool report /data/rocketmq/store -o report.html",
        "rmqtool report /data/rocketmq/store -o report.html --redact keys,hosts",
        "rmqtool report /data/rocketmq/store -o report.html --trace 7F0000010000...",
    ),
    STATUSES,
)
def report(style: Style, given: ReportOptions) -> Exit:
    """Write a report about a store as one HTML page.

    A self-contained HTML file: what is wrong and what to do, the log by state and topic, growth, retention and disk,
    consumer groups with what they are about to lose, topics and queues. The store is verified, and its log read once
    more. Nothing in it is changed.
    """
    from rmqtool.show.report_page import report_page

    facts = look_at(style, given)
    page = report_page(facts, given.redaction).encode()
    size = put(given.output, lambda file: file.write(page))
    status = status_of(facts)
    if style.json:
        write_document(style, "report", Written.of(facts, (given.output, size)), status=status)
    else:
        write_text(f"{given.output} written ({byte_size(size)}); verdict of the store: {facts.outcome.verdict}\n")
        if not style.quiet:
            note(f"open it in a browser: {given.output.resolve().as_uri()}")
    return status
