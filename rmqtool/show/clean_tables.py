"""Rows of the table of commit log files: days, or files, with a bar for their size and one for their age."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from rmqtool.broker.delete_when import MAX_TIME, local_time
from rmqtool.broker.log_deletion import FileDecision
from rmqtool.clean.plan import CleanPlan
from rmqtool.show.clean_answer import moment
from rmqtool.show.output import Columns, byte_size, table

_BAR_WIDTH = 8
_PARTS = " ▏▎▍▌▋▊▉█"
_WHAT = {
    "expired": "goes: expired",
    "forced": "goes: disk full",
    "last-file": "stays: last file",
    "ahead": "allocated ahead",
    "shielded": "behind a younger",
    "next-run": "in a later run",
    "no-trigger": "waits for the hour",
    "cleaner-fails": "expired, run fails",
    "in-use": "stays: being read",
}


@dataclass
class _Row:
    """Files of one day with one fate; name and modification time (epoch ms) are the first one's."""

    label: str
    name: str
    what: str
    deleted: bool
    modified: int
    run: int
    bytes: int
    files: int = 1


def day_table(plan: CleanPlan) -> Table:
    """One row for each day and fate; the bar of an age is full when the file expires."""
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
    for number, run in enumerate(plan.runs, 1):
        for fate in run.log.deleted:
            yield _row_of(plan, fate, number)
    for fate in plan.kept:
        yield _row_of(plan, fate, 0)


def _end(plan: CleanPlan, row: _Row) -> tuple[str, Text, Text]:
    """Age, its bar, and what becomes of the file."""
    age = plan.now - row.modified
    bar = _bar(age / max(plan.rules.settings.reserved_ms, 1), row)
    return _age(age), bar, Text(row.what, style="red" if row.deleted else "")


def _row_of(plan: CleanPlan, fate: FileDecision, run: int) -> _Row:
    file = fate.log_file
    if 0 <= file.mtime <= MAX_TIME:
        label = local_time(file.mtime, plan.rules.zone).strftime("%Y-%m-%d")
    else:
        label = f"{file.mtime} ms"
    return _Row(label, file.file.path.name, _what(plan, fate), fate.deleted, file.mtime, run, file.allocated)


def _what(plan: CleanPlan, fate: FileDecision) -> str:
    if fate.reason == "not-expired":
        return f"expires {moment(fate.expires, plan)[:10]}"
    return _WHAT[fate.reason]


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
    bar = (_PARTS[8] * (eighths // 8) + _PARTS[eighths % 8]).strip().ljust(_BAR_WIDTH)
    return Text(bar, style="red" if row.deleted else "green")
