"""Rows of the table of commit log files: days, or files, with a bar for their size and one for their age."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.text import Text

from rmqtool.clean.plan import Plan
from rmqtool.clean_answer import duration, moment
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
    "shielded": "stays: younger file first",
    "next-run": "goes in a later run",
    "no-trigger": "expired, waits for the hour",
    "cleaner-fails": "expired, the cleaner fails",
    "in-use": "stays: still being read",
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
    fates = sorted((*plan.deleted, *plan.kept), key=lambda fate: fate.log_file.start_offset)
    rows: list[_Row] = []
    for fate in fates:
        row = _row_of(plan, fate)
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
            duration(age) if age >= 0 else "future",
            Text(_bar(age / reserved), style=style),
            Text(row.what, style="red" if row.deleted else ""),
        )


def _row_of(plan: Plan, fate: Fate) -> _Row:
    modified = fate.log_file.mtime
    if 0 <= modified <= MAX_TIME:
        label = local_time(modified, plan.rules.zone).strftime("%Y-%m-%d")
    else:
        label = f"{modified} ms"
    return _Row(label, _what(plan, fate), fate.deleted, modified)


def _what(plan: Plan, fate: Fate) -> str:
    if fate.reason == "not-expired":
        return f"expires {moment(fate.expires, plan)[:10]}"
    return _WHAT[fate.reason]


def _bar(share: float) -> str:
    """A bar of eighths of a column."""
    eighths = round(min(max(share, 0.0), 1.0) * _BAR_WIDTH * 8)
    return (_PARTS[8] * (eighths // 8) + _PARTS[eighths % 8]).strip().ljust(_BAR_WIDTH)
