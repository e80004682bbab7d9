"""Rows of the table of commit log files: days, or files, with a bar for their size and one for their age."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.text import Text

from rmqtool.clean.plan import Plan
from rmqtool.clean_answer import moment
from rmqtool.output import byte_size
from rmqtool.retention.hours import MAX_TIME, local_time
from rmqtool.retention.log_files import Fate

_BAR_WIDTH = 8
_PARTS = " ▏▎▍▌▋▊▉█"
_WHAT = {
    "expired": "goes: expired",
    "forced": "goes: disk full",
    "last-file": "stays: last file",
    "ahead": "allocated ahead",
    "shielded": "behind a younger",
    "next-run": "goes in a later run",
    "no-trigger": "expired, not the hour",
    "cleaner-fails": "expired, run fails",
    "in-use": "stays: being read",
}


@dataclass
class _Row:
    """Files of one day with one fate; `modified` is the first one's modification time, epoch ms."""

    label: str
    what: str
    deleted: bool
    modified: int
    files: int = 0
    bytes: int = 0


def file_rows(plan: Plan, each: bool) -> Iterator[Sequence[object]]:
    """One row for each day and fate, or for each file; the bar of an age is full when the file expires."""
    several = each and len(plan.runs) > 1
    fates = [(fate, number if several else 0) for number, run in enumerate(plan.runs, 1) for fate in run.log.deleted]
    rows: list[_Row] = []
    for fate, number in (*fates, *((fate, 0) for fate in plan.kept)):
        row = _row_of(plan, fate, number)
        if each or not rows or (rows[-1].label, rows[-1].what) != (row.label, row.what):
            rows.append(row)
        rows[-1].files += 1
        rows[-1].bytes += fate.log_file.allocated
    largest = max((row.bytes for row in rows), default=0)
    reserved = max(plan.rules.settings.reserved_ms, 1)
    for row in rows:
        age = plan.now - row.modified
        style = "red" if row.deleted else "green"
        yield (
            row.label,
            row.files,
            byte_size(row.bytes),
            Text(_bar(row.bytes / largest if largest else 0), style=style),
            _age(age),
            Text(_bar(age / reserved), style=style),
            Text(row.what, style="red" if row.deleted else ""),
        )


def _row_of(plan: Plan, fate: Fate, run: int) -> _Row:
    modified = fate.log_file.mtime
    if 0 <= modified <= MAX_TIME:
        label = local_time(modified, plan.rules.zone).strftime("%Y-%m-%d")
    else:
        label = f"{modified} ms"
    return _Row(label, f"run {run}, {_what(plan, fate)}" if run else _what(plan, fate), fate.deleted, modified)


def _what(plan: Plan, fate: Fate) -> str:
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


def _bar(share: float) -> str:
    """A bar of eighths of a column."""
    eighths = round(min(max(share, 0.0), 1.0) * _BAR_WIDTH * 8)
    return (_PARTS[8] * (eighths // 8) + _PARTS[eighths % 8]).strip().ljust(_BAR_WIDTH)
