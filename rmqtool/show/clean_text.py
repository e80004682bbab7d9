"""A plan of the cleaner as text for people: the answer first, then files, losses and forecast."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rich.console import Console
from rich.text import Text

from rmqtool.base.numbers import byte_size
from rmqtool.base.visible import quote
from rmqtool.broker.cleaner import NOT_BY_AGE, FileDecision
from rmqtool.broker.trigger import MAX_TIME, local_time
from rmqtool.clean.forecast import LEVELS, Forecast, Outlook
from rmqtool.clean.losses import Losses, Undelivered
from rmqtool.clean.other_logs import NextCompaction, OtherLogs
from rmqtool.clean.plan import CleanPlan, QueueRows
from rmqtool.findings.finding import Finding, counted, first_of
from rmqtool.scan.filters import TopicChoice
from rmqtool.show.output import Style, note, print_fact, print_labelled, show_apart, show_finding
from rmqtool.show.times import duration


def rows_text(plan: CleanPlan, rows: QueueRows) -> str:
    """How many rows lead to deleted messages, which of them the runs take away, and when the others go."""
    database, dropped = plan.snapshot.store.relative(rows.database.path), sum(rows.dropped)
    gone = f"{counted(dropped, 'row')} of {database}/ are deleted with their messages" if dropped else ""
    if not rows.left:
        return gone or f"no row of {database}/ points to a deleted message"
    left = f"{counted(rows.left, 'row')} of {database}/ {'leads' if rows.left == 1 else 'lead'} to deleted messages"
    left += " then" if plan.deleted else ""
    return f"{', '.join(filter(None, (gone, left)))}: {_until(plan, rows)}"


def _until(plan: CleanPlan, rows: QueueRows) -> str:
    if not rows.is_filtered:
        return "brokers before 5.3.4 that write queues twice never drop them"
    settings = plan.rules.settings
    return (
        "a compaction drops them, after log files were deleted in an hour of deleteWhen "
        f"({settings.delete_when!r}) or above {settings.disk_max_used_space_ratio}%, or when RocksDB merges tables"
    )


_BAR_WIDTH = 8
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_WHAT = {
    "expired": "delete: expired",
    "forced": "delete: disk full",
    "last-file": "keep: last file",
    "ahead": "allocated in advance",
    "shielded": "after a younger one",
    "next-run": "in a later run",
    "no-trigger": "waits for the hour",
    "cleaner-fails": "expired, run fails",
    "in-use": "keep: being read",
    "plain-files": "waits: plain files",
}


@dataclass
class _Row:
    """Files of one day with the same decision; name and modification time (epoch ms) are the first one's."""

    label: str
    name: str
    what: str
    deleted: bool
    modified: int
    run: int
    bytes: int
    files: int = 1


def _day_rows(plan: CleanPlan) -> list[tuple[object, ...]]:
    """One row for each day and decision; the bar of an age is full when the file expires."""
    rows: list[_Row] = []
    for row in _rows(plan):
        if not rows or (rows[-1].label, rows[-1].what) != (row.label, row.what):
            rows.append(row)
        else:
            rows[-1].files += 1
            rows[-1].bytes += row.bytes
    largest = max((row.bytes for row in rows), default=0)
    return [
        (row.label, row.files, byte_size(row.bytes), _bar(row.bytes / largest if largest else 0, row), *_end(plan, row))
        for row in rows
    ]


def _file_rows(plan: CleanPlan) -> Iterator[tuple[object, ...]]:
    """One row for each file, and of those that go the number of the run where there are several."""
    for row in _rows(plan):
        if row.run and len(plan.runs) > 1:
            row.what = row.what.replace("delete", f"run {row.run}")
        yield row.label, row.name, byte_size(row.bytes), *_end(plan, row)


def _rows(plan: CleanPlan) -> Iterator[_Row]:
    for run_number, run in enumerate(plan.runs, 1):
        for decision in run.log.deleted:
            yield _row_of(plan, decision, run_number)
    for decision in plan.kept:
        yield _row_of(plan, decision, 0)


def _end(plan: CleanPlan, row: _Row) -> tuple[str, Text, Text]:
    """Age, its bar, and the decision on the file."""
    age = plan.now - row.modified
    bar = _bar(age / max(plan.rules.settings.reserved_ms, 1), row)
    return _age(age), bar, Text(row.what, style="red" if row.deleted else "")


def _row_of(plan: CleanPlan, decision: FileDecision, run: int) -> _Row:
    file, label = decision.log_file, f"{decision.log_file.mtime} ms"
    if 0 <= file.mtime <= MAX_TIME:
        label = local_time(file.mtime, plan.rules.zone).strftime("%Y-%m-%d")
    what = _WHAT.get(decision.reason) or f"expires {moment(decision.expires, plan)[:10]}"
    return _Row(label, file.file.path.name, what, decision.deleted, file.mtime, run, file.allocated)


def _age(milliseconds: int) -> str:
    """An age in one unit, such as ``3.2 d``."""
    hours = milliseconds / 3_600_000
    if hours < 0:
        return "future"
    if hours < 1:
        return f"{hours * 60:.0f} min"
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.1f} d"


def _bar(share: float, row: _Row) -> Text:
    """A bar of eighths of a column."""
    eighths = round(min(max(share, 0.0), 1.0) * _BAR_WIDTH * 8)
    bar = (_EIGHTHS[8] * (eighths // 8) + _EIGHTHS[eighths % 8]).strip().ljust(_BAR_WIDTH)
    return Text(bar, style="red" if row.deleted else "green")


def answer(plan: CleanPlan, losses: Losses) -> str:
    """What is deleted and why, and who loses unread messages; or why nothing is deleted."""
    deleted = plan.deleted
    if not deleted:
        return f"{_nothing(plan)}{_followers(plan)}"
    count, files = len(deleted), len(plan.facts.log_files)
    runs = "The next run deletes" if len(plan.runs) == 1 else f"The next {len(plan.runs)} runs delete"
    size = byte_size(sum(decision.log_file.allocated for decision in deleted))
    reasons = {decision.reason for decision in deleted}
    why = f"they have expired, and {_at_this_time(plan)}"
    if "forced" in reasons:
        why = f"the disk is {_used(plan)}% full, whatever their age"
    if len(reasons) > 1:
        why = f"some have expired, and the disk is {_used(plan)}% full"
    return f"{runs} {count} of {files} log files ({size}) for good: {why}; {losses_text(losses)}."


def _at_this_time(plan: CleanPlan) -> str:
    """Why expired files are deleted now."""
    if plan.trigger.time:
        return "it is the hour"
    return f"the disk is {_used(plan)}% full" if plan.trigger.space else "--manual deletes at any hour"


def losses_text(losses: Losses) -> str:
    """Who loses unread messages, and how many."""
    parts = []
    if losses.unread:
        groups = losses.losing_groups
        verb = "loses" if groups == 1 else "lose"
        parts.append(f"{counted(groups, 'group')} {verb} {counted(losses.unread, 'unread message')}")
    if not losses.is_known:
        parts.append("what groups have not read is not known")
    elif not losses.unread:
        parts.append("no group loses unread messages")
    if count := losses.undelivered_messages:
        at_most = "" if all(queue.exact for queue in losses.undelivered) else "up to "
        verb = "is" if count == 1 else "are"
        parts.append(f"{at_most}{counted(count, 'undelivered message')} {verb} lost")
    return ", ".join(parts)


def _followers(plan: CleanPlan) -> str:
    """Queue and index files that are deleted although no log file is."""
    run = plan.runs[0]
    if not (run.queue_files or run.index_files):
        return ""
    files = f"{counted(len(run.queue_files), 'queue file')} and {counted(len(run.index_files), 'index file')}"
    return f" It deletes {files} that point below the log."


def _nothing(plan: CleanPlan) -> str:
    """Why the next run deletes no log file."""
    trigger = plan.trigger
    candidates = [decision for decision in plan.runs[0].log.kept if decision.reason not in NOT_BY_AGE]
    if trigger.failure is not None:
        return f"The next run deletes nothing: it fails at deleteWhen {plan.rules.settings.delete_when!r}."
    if not plan.facts.log_files:
        return "Nothing to delete: the commit log has no file."
    if not candidates and plan.holds_entries_back:
        return (
            "The next run deletes nothing: this release never deletes the last log file from before DLedger, and no "
            "file of DLedger's log is deleted before it"
            "."
        )
    if not candidates:
        return "The next run deletes nothing: the log has only its last file, which is never deleted."
    first = candidates[0]
    if first.reason == "in-use":
        return "The next run deletes nothing: the first file is still being read."
    if first.expires > plan.now:
        full = (
            f" The disk is {_used(plan)}% full, below the level at which age no longer matters."
            if trigger.space
            else ""
        )
        expires = f"the oldest expires in {duration(first.expires - plan.now)}, {moment(first.expires, plan)}"
        return f"The next run deletes nothing: no file that could be deleted has expired; {expires}.{full}"
    expired = sum(decision.expires <= plan.now for decision in candidates)
    due = "deleteWhen matches no hour" if plan.next_start is None else f"next {moment(plan.next_start, plan)}"
    what = "1 file has" if expired == 1 else f"{expired} files have"
    return f"The next run deletes nothing: {what} expired, but it is not the hour ({due})."


def _used(plan: CleanPlan) -> str:
    return f"{round(max(plan.trigger.log_ratio, plan.trigger.queue_ratio or 0) * 100, 2):g}"


def moment(timestamp: int | None, plan: CleanPlan) -> str:
    """A time in the broker's zone, ``2026-11-22 04:00 +08:00``; with its number where no calendar has it."""
    if timestamp is None:
        return "never"
    if not 0 <= timestamp <= MAX_TIME:
        return f"at {timestamp} ms"
    text = local_time(timestamp, plan.rules.zone).strftime("%Y-%m-%d %H:%M %z")
    return f"{text[:-2]}:{text[-2:]}"


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
    others: OtherLogs,
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
    for label, text in (*_facts(plan), *_forecast_facts(plan, forecast), *_other_facts(plan, others)):
        print_fact(console, label, text)
    _show_files(console, plan, each=verbose)
    _show_runs(console, plan)
    if losses.rows:
        print_fact(console, "rows", rows_text(plan, losses.rows))
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


def note_next(
    plan: CleanPlan, options: NextOptions, next_deletion: int | None, *, done: bool = False, is_whole: bool = False
) -> None:
    """Print on stderr what to run next; `next_deletion` is when the oldest file that is left is deleted, epoch ms.

    A plan that `is_whole` has all runs that delete.
    """
    clean = f"rmqtool clean {quote(str(plan.snapshot.store.root))}"
    command = f"{clean}{options.same}"
    note("")
    if done:
        note(f"what the next run would delete: {command}{options.time} --dry-run")
        return
    if is_whole:
        note("no later run deletes anything" if len(plan.runs) == 1 else "these are all runs that delete something")
    elif len(plan.runs) == 1 and plan.runs[0].log.deleted:
        note(f"the following runs: {command}{options.time} --dry-run --all-runs")
    if plan.runs[0].deletes and not plan.snapshot.holder and not plan.rules.is_node:
        what = "it" if len(plan.runs) == 1 else "the files of the first run"
        note(f"delete {what} for good, with the broker stopped: {clean}{options.deletion}")
    elif not plan.runs[0].deletes and next_deletion is not None:
        when = local_time(next_deletion, plan.rules.zone).isoformat()
        note(f"when the oldest file is deleted: {command} --dry-run --now {when}")


def _facts(plan: CleanPlan) -> Iterator[tuple[str, str]]:
    snapshot, trigger, settings = plan.snapshot, plan.trigger, plan.rules.settings
    running = "no broker is running on it"
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
        yield "manual", "yes, as after mqadmin deleteExpiredCommitLog: expired files are deleted at any hour"


def _disk_line(plan: CleanPlan) -> str:
    disks = plan.facts.disks
    used: dict[str, str] = {}
    for disk in (*disks.log, disks.queues):
        ratio = disk.ratio(plan.rules.version)
        level = "cannot be measured" if ratio < 0 else f"{round(ratio * 100, 2):g}% of {byte_size(disk.total)}"
        used[plan.snapshot.store.relative(disk.path)] = level
    levels = {*used.values()}
    assumed = " (by --disk-used-percent)" if disks.queues.fixed_ratio is not None else ""
    return (f"{levels.pop()} used" if len(levels) == 1 else ", ".join(map(" ".join, used.items()))) + assumed


def _space_line(plan: CleanPlan) -> str:
    trigger, settings = plan.trigger, plan.rules.settings
    state = "yes, regardless of age" if trigger.forced and trigger.runs else "yes" if trigger.space else "no"
    levels = [f"expired files are deleted above {settings.disk_max_used_space_ratio}%"]
    if settings.clean_file_forcibly_enable:
        levels.append(f"others too above {settings.forcibly_level:.0%}")
    levels.append(f"messages are refused above {settings.warning_level:.0%}")
    return f"{state}: {', '.join(levels)}"


def _forecast_facts(plan: CleanPlan, forecast: Forecast) -> Iterator[tuple[str, str]]:
    growth = forecast.growth
    if growth is not None:
        log, disk = (byte_size(round(each)) for each in (growth.log_bytes_per_hour, growth.disk_bytes_per_hour))
        span = duration(growth.until - growth.since)
        yield "growth", f"{log} of log per hour, {disk} with queues and index (by its last {span})"
    elif plan.facts.log_files:
        yield "growth", "not known, so there is no forecast: the log has less than a minute of messages"
    if forecast.oldest_expires is not None:
        goes = f", deleted {moment(forecast.next_deletion, plan)}" if forecast.next_deletion is not None else ""
        yield "oldest kept", f"expires {moment(forecast.oldest_expires, plan)}{goes}"


def _other_facts(plan: CleanPlan, others: OtherLogs) -> Iterator[tuple[str, str]]:
    """What the tier deletes, and what compactions do."""
    going = [each for each in others.tier if each.segments]
    if going:
        lost = sum(each.messages_deleted for each in going)
        size, count = byte_size(sum(each.bytes for each in going)), sum(each.segments for each in going)
        what = f"its next hourly run deletes {counted(count, 'segment')} ({size}) of {counted(len(going), 'queue')}"
        yield "tier", f"{what}: {counted(lost, 'message')} that the local store does not have, or no longer has"
    following = [each.next_expires for each in others.tier if each.next_expires is not None]
    if following:
        yield "tier" if not going else "", f"the next segment expires {moment(min(following), plan)}"
    for each in others.compactions:
        yield "compaction", f"{each.topic} queue {each.queue_id}: {_compaction_text(each)}"


def _compaction_text(each: NextCompaction) -> str:
    """What the next compaction does to a queue."""
    if each.skipped:
        return f"left alone, {_SKIPPED[each.skipped]}"
    gone = each.superseded + each.without_body + each.dropped
    parts = [f"{counted(each.superseded, 'older value')}"]
    parts += [f"{counted(each.without_body, 'message')} without a body"] if each.without_body else []
    parts += [f"{each.dropped} after a damaged record"] if each.dropped else []
    return f"{gone} of {counted(each.messages, 'message')} go: {', '.join(parts)}"


_SKIPPED = {
    "one-file": "the last file is not compacted",
    "nothing-new": "nothing new since the last compaction",
    "too-many-keys": "its keys do not fit into maxOffsetMapSize",
}


def _show_files(console: Console, plan: CleanPlan, *, each: bool) -> None:
    if not plan.facts.log_files:
        return
    if each:
        show_apart(console, "Commit log", "Modified, File, Size>, Age>, , What", _file_rows(plan))
    else:
        show_apart(console, "Commit log", "Modified, Files>, Size>, , Age>, , What", _day_rows(plan))
    queue_files = sum(len(run.queue_files) for run in plan.runs)
    index_files = sum(len(run.index_files) for run in plan.runs)
    if queue_files or index_files:
        freed = byte_size(sum(run.freed_bytes for run in plan.runs))
        others = f"{counted(queue_files, 'queue file')} and {counted(index_files, 'index file')}"
        console.print(f"plus {others}; {freed} in all")


def _show_runs(console: Console, plan: CleanPlan) -> None:
    if len(plan.runs) < 2:
        return
    rows: list[Sequence[object]] = [
        [number, moment(run.time, plan), len(run.log.deleted), len(run.queue_files), len(run.index_files),
         byte_size(run.freed_bytes), run.log.min_offset]
        for number, run in enumerate(plan.runs, 1)
    ]  # fmt: skip
    shown = rows[: _SHOWN_RUNS - 1] + rows[-1:] if len(rows) > _SHOWN_RUNS else rows
    columns = "Run>, At, Log files>, Queue files>, Index>, Freed>, Log begins>"
    show_apart(console, f"{len(rows)} runs", columns, shown)


def _show_consumers(console: Console, losses: Losses, *, each: bool) -> None:
    losing = [item for item in losses.groups if item.messages_lost]
    columns = "Group, Topic, Queue>, Committed>, Minimum>, Lost>"
    rows: list[list[object]] = [
        [item.group, item.topic, item.queue_id, item.committed_offset, item.min_offset_after, item.messages_lost]
        for item in losing
    ]
    if not each:
        columns = "Group, Topic, Queues>, Messages never read>"
        sums: dict[tuple[str, str], list[int]] = {}
        for item in losing:
            sums.setdefault((item.group, item.topic), []).append(item.messages_lost)
        rows = [[*name, len(lost), sum(lost)] for name, lost in sums.items()]
    if rows:
        show_apart(console, "Who loses unread messages", columns, rows)
    for line in _undelivered_lines(losses):
        print_fact(console, "lost", line, label_style="red")


def _show_others(console: Console, losses: Losses, topics: TopicChoice) -> None:
    """What the tables leave out, where --topic or --exclude-topic leaves out a loss."""
    others = replace(losses, groups=[each for each in losses.groups if each.topic not in topics])
    if others.unread:
        groups, messages = counted(others.losing_groups, "group"), counted(others.unread, "unread message")
        print_fact(console, "not shown", f"{groups} and {messages} of other topics")


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
        console.print()
        print_fact(console, "left empty", first_of(emptied, 5))
    if losses.messages_deleted and losses.oldest_timestamp is not None:
        print_fact(console, "log begins", moment(losses.oldest_timestamp, losses.plan))


def _show_outlooks(console: Console, plan: CleanPlan, forecast: Forecast) -> None:
    if not forecast.outlooks:
        return
    settings = plan.rules.settings
    levels = (settings.disk_max_used_space_ratio / 100, settings.forcibly_level, settings.warning_level)
    columns = "fileReservedTime>, At most used>" + "".join(f", above {level:.0%}" for level in levels)
    rows = [_outlook_row(outlook, plan) for outlook in forecast.outlooks]
    show_apart(console, "Disk forecast, if files are deleted only by age", columns, rows)


def _outlook_row(outlook: Outlook, plan: CleanPlan) -> list[object]:
    current = outlook.file_reserved_time == plan.rules.settings.file_reserved_time
    cells: list[object] = [
        Text(f"{'now: ' if current else ''}{outlook.file_reserved_time} h", style="bold" if current else ""),
        f"{outlook.most_used_ratio:.0%}",
    ]
    times = (outlook.reached[name] for name in LEVELS)
    return cells + [
        "never" if time is None else "now" if time <= plan.now else f"in {duration(time - plan.now)}" for time in times
    ]


def _java(value: object) -> str:
    """A value as it stands in broker.conf."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _show_settings(console: Console, plan: CleanPlan) -> None:
    rows = [
        [each.name, "" if each.given is None else repr(each.given), _java(each.effective), each.why or ""]
        for each in plan.rules.settings.shown
    ]
    show_apart(console, "Settings", "Setting, Given, Effective, Why", rows)
