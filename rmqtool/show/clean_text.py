"""A plan of the cleaner as text for people: the answer first, then files, losses and forecast."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.text import Text

from rmqtool.base.byte_size import byte_size
from rmqtool.base.shell import quote
from rmqtool.broker.delete_when import local_time
from rmqtool.clean.forecast import LEVELS, Forecast, Outlook
from rmqtool.clean.losses import Losses
from rmqtool.clean.plan import CleanPlan
from rmqtool.clean.undelivered import Undelivered
from rmqtool.findings.finding import Finding, counted
from rmqtool.scan.topic_choice import TopicChoice
from rmqtool.show.clean_rows import rows_text
from rmqtool.show.clean_tables import answer, day_table, duration, file_table, moment
from rmqtool.show.output import (
    Columns,
    Style,
    note,
    print_labelled,
    show_finding,
    show_table,
    table,
)

_LABEL_WIDTH = 12
_SHOWN_RUNS = 20
_KINDS = {
    "delay": "delayed messages that are not delivered yet",
    "timer": "timed messages that are not delivered yet",
    "transaction": "half messages of pending transactions",
}


def show_plan(
    plan: CleanPlan,
    losses: Losses,
    forecast: Forecast,
    findings: Sequence[Finding],
    style: Style,
    topics: TopicChoice,
) -> None:
    """Print a plan; verbose shows each file, each setting and each committed offset instead of sums.

    The first sentence is about all topics, the tables of who loses what about `topics`.
    """
    console, verbose = style.console(), style.verbosity > 0
    print_labelled(console, Text(), answer(plan, losses), style="bold")
    console.print()
    for label, text in (*_facts(plan), *_forecast_facts(plan, forecast)):
        print_labelled(console, Text(f"{label:<{_LABEL_WIDTH}} ", style="dim"), text)
    _show_files(console, plan, each=verbose)
    _show_runs(console, plan)
    if losses.rows:
        print_labelled(console, Text(f"{'rows':<{_LABEL_WIDTH}} ", style="dim"), rows_text(plan, losses.rows))
    _show_consumers(console, losses.of(topics), each=verbose)
    _show_others(console, losses, topics)
    _show_topics(console, losses.of(topics))
    _show_outlooks(console, plan, forecast)
    if verbose:
        _show_settings(console, plan)
    for finding in findings:
        console.print()
        show_finding(console, finding)


@dataclass(frozen=True)
class NextOptions:
    """Options that the next command lines need, each with a blank in front.

    Those that this plan was made with, the time that it assumes (or ""), and what deletes its files.
    """

    same: str
    time: str
    deletion: str


def note_next(plan: CleanPlan, options: NextOptions, next_deletion: int | None, *, done: bool = False) -> None:
    """Print on stderr what to run next; `next_deletion` is when the oldest file that stays goes, epoch ms."""
    clean = f"rmqtool clean {quote(str(plan.snapshot.store.root))}"
    command = f"{clean}{options.same}"
    note("")
    if done:
        note(f"what the next run would delete: {command}{options.time} --dry-run")
        return
    if len(plan.runs) == 1 and plan.runs[0].log.deleted:
        note(f"the runs that follow: {command}{options.time} --dry-run --all-runs")
    if plan.runs[0].deletes and not plan.snapshot.holder and not plan.rules.is_node:
        what = "it" if len(plan.runs) == 1 else "the files of the first run"
        note(f"delete {what} for good, with the broker stopped: {clean}{options.deletion}")
    elif not plan.runs[0].deletes and next_deletion is not None:
        when = local_time(next_deletion, plan.rules.zone).isoformat()
        note(f"when the oldest file goes: {command} --dry-run --now {when}")


def _facts(plan: CleanPlan) -> Iterator[tuple[str, str]]:
    snapshot, trigger, settings = plan.snapshot, plan.trigger, plan.rules.settings
    running = "no broker runs on it"
    if snapshot.broker_runs is None:
        running = "not known whether a broker runs on it"
    elif snapshot.holder and snapshot.holder.program:
        running = f"{snapshot.holder.who} works on it"
    elif snapshot.holder:
        running = f"broker running, process {snapshot.holder.pid}" if snapshot.holder.pid else "broker running"
    yield "store", f"{snapshot.store.root}, {running}"
    releases = snapshot.releases
    another = "" if releases.is_named else f" (releases {releases} fit; --broker-version names one)"
    yield "rules of", f"{plan.rules.version}{another}"
    zone = "" if plan.rules.zone else " (this machine's time zone; --time-zone for another)"
    yield "now", f"{moment(plan.now, plan)}{zone}"
    yield "disk", _disk_line(plan)
    if trigger.failure is not None:
        yield "time", f"the run fails at {trigger.failure!r} of deleteWhen {settings.delete_when!r}"
        return
    following = f"next {moment(plan.next_start, plan)}" if plan.next_start is not None else "no hour matches"
    yield "time", f"{'yes' if trigger.time else 'no'}, deleteWhen is {settings.delete_when!r}: {following}"
    yield "space", _space_line(plan)
    if trigger.manual:
        yield "manual", "yes, as after mqadmin deleteExpiredCommitLog: expired files go at any hour"


def _disk_line(plan: CleanPlan) -> str:
    disks = plan.facts.disks
    used_levels = []
    for disk in dict.fromkeys((*disks.log, disks.queues)):
        ratio = disk.ratio(plan.rules.version)
        name = plan.snapshot.store.relative(disk.path)
        level = "cannot be measured" if ratio < 0 else f"{round(ratio * 100, 2):g}% of {byte_size(disk.total)}"
        used_levels.append((name, level))
    if len({level for _, level in used_levels}) == 1:
        return f"{used_levels[0][1]} used"
    return ", ".join(f"{name} {level}" for name, level in used_levels)


def _space_line(plan: CleanPlan) -> str:
    trigger, settings = plan.trigger, plan.rules.settings
    state = "yes, regardless of age" if trigger.forced and trigger.runs else "yes" if trigger.space else "no"
    levels = [f"expired files go above {settings.disk_max_used_space_ratio}%"]
    if settings.clean_file_forcibly_enable:
        levels.append(f"others too above {settings.forcibly_level:.0%}")
    levels.append(f"messages are refused above {settings.warning_level:.0%}")
    return f"{state}: {', '.join(levels)}"


def _forecast_facts(plan: CleanPlan, forecast: Forecast) -> Iterator[tuple[str, str]]:
    growth = forecast.growth
    if growth is not None:
        span = duration(growth.until - growth.since)
        yield (
            "growth",
            f"{byte_size(round(growth.log_bytes_per_hour))} of log per hour, "
            f"{byte_size(round(growth.disk_bytes_per_hour))} with queues and index (by its last {span})",
        )
    elif plan.facts.log_files:
        yield "growth", "not known, so there is no forecast: the log has less than a minute of messages"
    if forecast.oldest_expires is not None:
        expires = f"{moment(forecast.oldest_expires, plan)}"
        goes = f", goes {moment(forecast.next_deletion, plan)}" if forecast.next_deletion is not None else ""
        yield "oldest left", f"expires {expires}{goes}"


def _show_files(console: Console, plan: CleanPlan, *, each: bool) -> None:
    if not plan.facts.log_files:
        return
    console.print()
    show_table(console, file_table(plan) if each else day_table(plan))
    queue_files = sum(len(run.queue_files) for run in plan.runs)
    index_files = sum(len(run.index_files) for run in plan.runs)
    if queue_files or index_files:
        freed = byte_size(sum(run.freed_bytes for run in plan.runs))
        others = f"{counted(queue_files, 'queue file')} and {counted(index_files, 'index file')}"
        console.print(f"plus {others}; {freed} in all")


def _show_runs(console: Console, plan: CleanPlan) -> None:
    if len(plan.runs) < 2:
        return
    columns: Columns = [("Run", "right"), ("At", "left"), ("Log files", "right"), ("Queue files", "right")]
    columns += [("Index", "right"), ("Freed", "right"), ("Log begins", "right")]
    rows: list[Sequence[object]] = [
        [
            run_number,
            moment(run.time, plan),
            len(run.log.deleted),
            len(run.queue_files),
            len(run.index_files),
            byte_size(run.freed_bytes),
            run.log.min_offset,
        ]
        for run_number, run in enumerate(plan.runs, 1)
    ]
    console.print()
    shown = rows[: _SHOWN_RUNS - 1] + rows[-1:] if len(rows) > _SHOWN_RUNS else rows
    show_table(console, table(f"{len(rows)} runs", columns, shown))


def _show_consumers(console: Console, losses: Losses, *, each: bool) -> None:
    columns: Columns = [("Group", "left"), ("Topic", "left")]
    rows: list[list[object]] = []
    if each:
        columns += [("Queue", "right"), ("Committed", "right"), ("Minimum", "right"), ("Lost", "right")]
        rows = [
            [item.group, item.topic, item.queue_id, item.committed_offset, item.min_offset_after, item.messages_lost]
            for item in losses.groups
            if item.messages_lost
        ]
    else:
        columns += [("Queues", "right"), ("Messages never read", "right")]
        sums: dict[tuple[str, str], list[int]] = {}
        for item in losses.groups:
            if item.messages_lost:
                sums.setdefault((item.group, item.topic), []).append(item.messages_lost)
        rows = [[group, topic, len(lost), sum(lost)] for (group, topic), lost in sums.items()]
    if rows:
        console.print()
        show_table(console, table("Who loses unread messages", columns, rows))
    for line in _undelivered_lines(losses):
        print_labelled(console, Text("lost         ", style="red"), line)


def _show_others(console: Console, losses: Losses, topics: TopicChoice) -> None:
    """What the tables leave out, where --topic or --exclude-topic leaves out a loss."""
    others = replace(losses, groups=[each for each in losses.groups if each.topic not in topics])
    if others.unread:
        groups, messages = counted(others.losing_groups, "group"), counted(others.unread, "unread message")
        print_labelled(console, Text("not shown    ", style="dim"), f"{groups} and {messages} of other topics")


def _undelivered_lines(losses: Losses) -> Iterator[str]:
    """One line for each topic whose undelivered messages are deleted."""
    topics: dict[str, list[Undelivered]] = {}
    for undelivered in losses.undelivered:
        topics.setdefault(undelivered.topic, []).append(undelivered)
    for topic, queues in topics.items():
        lost = sum(queue.messages_lost for queue in queues)
        at_most = "" if all(queue.exact for queue in queues) else "up to "
        due = min((queue.first_due for queue in queues if queue.first_due is not None), default=None)
        next_due = f", the first due {moment(due, losses.plan)}" if due is not None else ""
        yield f"{at_most}{lost} {_KINDS[queues[0].kind]} ({topic}, {counted(len(queues), 'queue')}){next_due}"


def _show_topics(console: Console, losses: Losses) -> None:
    emptied = [topic.topic for topic in losses.topics if not topic.messages_left]
    if emptied:
        shown = ", ".join(emptied[:5]) + (f" and {len(emptied) - 5} more" if len(emptied) > 5 else "")
        console.print()
        print_labelled(console, Text("left empty   ", style="dim"), shown)
    if losses.messages_deleted and losses.oldest_timestamp is not None:
        print_labelled(console, Text("log begins   ", style="dim"), moment(losses.oldest_timestamp, losses.plan))


def _show_outlooks(console: Console, plan: CleanPlan, forecast: Forecast) -> None:
    if not forecast.outlooks:
        return
    settings = plan.rules.settings
    levels = (settings.disk_max_used_space_ratio / 100, settings.forcibly_level, settings.warning_level)
    columns: Columns = [("fileReservedTime", "right"), ("At most used", "right")]
    columns += [(f"above {level:.0%}", "left") for level in levels]
    rows = [_outlook_row(outlook, plan) for outlook in forecast.outlooks]
    console.print()
    show_table(console, table("Disk forecast, by age alone", columns, rows))


def _outlook_row(outlook: Outlook, plan: CleanPlan) -> list[object]:
    current = outlook.file_reserved_time == plan.rules.settings.file_reserved_time
    cells: list[object] = [
        Text(f"{'now: ' if current else ''}{outlook.file_reserved_time} h", style="bold" if current else ""),
        f"{outlook.most_used_ratio:.0%}",
    ]
    for name in LEVELS:
        time = outlook.reached[name]
        if time is None:
            cells.append("never")
        else:
            cells.append("now" if time <= plan.now else f"in {duration(time - plan.now)}")
    return cells


def _java(value: object) -> str:
    """A value as it stands in broker.conf."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _show_settings(console: Console, plan: CleanPlan) -> None:
    columns: Columns = [("Setting", "left"), ("Given", "left"), ("Effective", "left"), ("Why", "left")]
    rows = [
        [
            setting.name,
            "" if setting.given is None else repr(setting.given),
            _java(setting.effective),
            setting.why or "",
        ]
        for setting in plan.rules.settings.shown
    ]
    console.print()
    show_table(console, table("Settings", columns, rows))
