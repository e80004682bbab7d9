"""Pieces of the cleaner's plan as text: the sentence that sums it up, and the table of commit log files.

A row is a day or a file, with a bar for its size and one for its age.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from rmqtool.base.byte_size import byte_size
from rmqtool.broker.delete_when import MAX_TIME, local_time
from rmqtool.broker.log_deletion import NOT_BY_AGE, FileDecision
from rmqtool.clean.losses import Losses
from rmqtool.clean.plan import CleanPlan
from rmqtool.show.output import Columns, table

_BAR_WIDTH = 8
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_WHAT = {
    "expired": "goes: expired",
    "forced": "goes: disk full",
    "last-file": "stays: last file",
    "ahead": "allocated ahead",
    "shielded": "after a younger",
    "next-run": "in a later run",
    "no-trigger": "waits for the hour",
    "cleaner-fails": "expired, run fails",
    "in-use": "stays: being read",
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


def day_table(plan: CleanPlan) -> Table:
    """One row for each day and decision; the bar of an age is full when the file expires."""
    rows: list[_Row] = []
    for row in _rows(plan):
        if not rows or (rows[-1].label, rows[-1].what) != (row.label, row.what):
            rows.append(row)
        else:
            rows[-1].files += 1
            rows[-1].bytes += row.bytes
    largest = max((row.bytes for row in rows), default=0)
    columns: Columns = [("Modified", "left"), ("Files", "right"), ("Size", "right"), ("", "left")]
    columns += [("Age", "right"), ("", "left"), ("What", "left")]
    shown = [
        (row.label, row.files, byte_size(row.bytes), _bar(row.bytes / largest if largest else 0, row), *_end(plan, row))
        for row in rows
    ]
    return table("Commit log", columns, shown)


def file_table(plan: CleanPlan) -> Table:
    """One row for each file, and of those that go the number of the run where there are several."""
    columns: Columns = [("Modified", "left"), ("File", "left"), ("Size", "right")]
    columns += [("Age", "right"), ("", "left"), ("What", "left")]
    shown = []
    for row in _rows(plan):
        if row.run and len(plan.runs) > 1:
            row.what = row.what.replace("goes", f"run {row.run}")
        shown.append((row.label, row.name, byte_size(row.bytes), *_end(plan, row)))
    return table("Commit log", columns, shown)


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
    file = decision.log_file
    if 0 <= file.mtime <= MAX_TIME:
        label = local_time(file.mtime, plan.rules.zone).strftime("%Y-%m-%d")
    else:
        label = f"{file.mtime} ms"
    return _Row(label, file.file.path.name, _what(plan, decision), decision.deleted, file.mtime, run, file.allocated)


def _what(plan: CleanPlan, decision: FileDecision) -> str:
    if decision.reason == "not-expired":
        return f"expires {moment(decision.expires, plan)[:10]}"
    return _WHAT[decision.reason]


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


_MINUTE_MS = 60_000


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
        parts.append(f"{_counted(groups, 'group')} {verb} {_counted(losses.unread, 'unread message')}")
    if not losses.is_known:
        parts.append("what groups have not read is not known")
    elif not losses.unread:
        parts.append("no group loses unread messages")
    if count := losses.undelivered_messages:
        at_most = "" if all(queue.exact for queue in losses.undelivered) else "up to "
        verb = "is" if count == 1 else "are"
        parts.append(f"{at_most}{_counted(count, 'undelivered message')} {verb} lost")
    return ", ".join(parts)


def _followers(plan: CleanPlan) -> str:
    """Queue and index files that are deleted although no log file is."""
    run = plan.runs[0]
    if not (run.queue_files or run.index_files):
        return ""
    return f" {len(run.queue_files)} queue files and {len(run.index_files)} index files go that point below the log."


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
            "The next run deletes nothing: the last log file from before DLedger never goes in this release, and no "
            "file of DLedger's log goes before it."
        )
    if not candidates:
        return "The next run deletes nothing: the log has only its last file, which never goes."
    first = candidates[0]
    if first.reason == "in-use":
        return "The next run deletes nothing: the first file is still being read."
    if first.expires > plan.now:
        full = f" The disk is {_used(plan)}% full, but not so full that age would not count." if trigger.space else ""
        expires = f"the oldest does in {duration(first.expires - plan.now)}, {moment(first.expires, plan)}"
        return f"The next run deletes nothing: no file has expired that could go; {expires}.{full}"
    expired = sum(decision.expires <= plan.now for decision in candidates)
    due = "deleteWhen matches no hour" if plan.next_start is None else f"next {moment(plan.next_start, plan)}"
    what = "1 file has" if expired == 1 else f"{expired} files have"
    return f"The next run deletes nothing: {what} expired, but it is not the hour ({due})."


def _used(plan: CleanPlan) -> str:
    return f"{round(max(plan.trigger.log_ratio, plan.trigger.queue_ratio or 0) * 100, 2):g}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def moment(timestamp: int | None, plan: CleanPlan) -> str:
    """A time in the broker's zone, ``2026-11-22 04:00 +08:00``; with its number where no calendar has it."""
    if timestamp is None:
        return "never"
    if not 0 <= timestamp <= MAX_TIME:
        return f"at {timestamp} ms"
    text = local_time(timestamp, plan.rules.zone).strftime("%Y-%m-%d %H:%M %z")
    return f"{text[:-2]}:{text[-2:]}"


def duration(milliseconds: int) -> str:
    """A length of time in its two largest units, such as ``3 d 4 h``."""
    minutes = abs(milliseconds) // _MINUTE_MS
    days, hours, rest = minutes // 1440, minutes // 60 % 24, minutes % 60
    if days:
        return f"{days} d {hours} h" if days < 100 else f"{days} d"
    return f"{hours} h {rest} min" if hours else f"{rest} min"
