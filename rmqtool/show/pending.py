"""What waits in a store, as JSON and for people."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rmqtool.base.errors import Exit
from rmqtool.base.times import rfc3339
from rmqtool.base.visible import visible
from rmqtool.findings.finding import counted
from rmqtool.pending.messages import OWED, Note
from rmqtool.pending.work import Count, PendingWork, next_steps
from rmqtool.show.output import (
    Columns,
    Style,
    error_json,
    show_table,
    table,
    terminal_width,
    with_its_indent,
    write_document,
)
from rmqtool.show.tables import is_unfolded
from rmqtool.show.times import sentence, time_text
from rmqtool.store.snapshot import Snapshot


def write_pending(snapshot: Snapshot, work: PendingWork, style: Style) -> None:
    """Print the one document."""
    status = Exit.OK if work.is_whole else Exit.LOSSY
    write_document(style, "pending", style.store, pending_json(snapshot, work, style.again("--list")), status=status)


def pending_json(snapshot: Snapshot, work: PendingWork, listing: str | None = None) -> dict[str, Any]:
    """The `result` of ``pending STORE``."""
    request = work.request
    return {
        **_moment("now", request.now),
        "broker_version": str(snapshot.release),
        "running": snapshot.holder is not None,
        "owed": _count(work.owed),
        "at_most": work.notes.at_most,
        "waiting": [
            {"kind": kind, "level": level, "topics": topics, "groups": groups, **_count(count)}
            for (kind, level), topics, groups, count in work.reasons()
        ],
        "receivers": [
            {"kind": each.kind, "level": each.level, "topic": each.topic, "group": each.group, **_count(each.count)}
            for each in work.receivers
        ],
        "messages": [_message_json(row, request.now) for row in work.messages.to_pylist()] if request.limit else None,
        "unread": [error_json(error) for error in work.unread],
        "not_looked_at": [asdict(note) for note in work.notes.unread],
        "uncertain": [asdict(note) for note in work.notes.uncertain],
        "next": next_steps(snapshot, work, listing),
    }


def _count(count: Count) -> dict[str, Any]:
    return {
        "messages": count.messages,
        "overdue": count.overdue,
        **_moment("first_due", count.first_due),
        **_moment("next_due", count.next_due),
        **_moment("last_due", count.last_due),
    }


def _message_json(row: dict[str, Any], now: int) -> dict[str, Any]:
    due = row.pop("due_timestamp")
    head = {"kind": row.pop("kind"), "level": row.pop("level"), **_moment("due", due)}
    head["overdue"] = due is not None and due < now
    stored = row.pop("store_timestamp")
    return {**head, **row, **_moment("store", stored)}


def _moment(name: str, timestamp: int | None) -> dict[str, Any]:
    return {f"{name}_timestamp": timestamp, f"{name}_time": rfc3339(timestamp)}


_REASONS: Columns = [
    *(("Kind", "left"), ("Messages", "right"), ("Overdue", "right")),
    *(("First due", "left"), ("Next due", "left"), ("Last due", "left"), ("For", "left")),
]
_MESSAGES: Columns = [
    *(("Due", "left"), ("", "left"), ("Kind", "left"), ("For", "left"), ("Stored in", "left")),
    *(("Queue offset", "right"), ("Offset", "right"), ("Unique key", "left"), ("Keys", "left")),
]
_NARROW = (0, 1, 2, 3, 6)  # kind, messages, overdue, first due, for
_TO_THE_MINUTE = re.compile(r"(T\d\d:\d\d):\d\d(?:\.\d+)?(Z|[+-]\d\d:\d\d)$")
_LEAST_NAME = 8  # columns
_SHOWN = 3  # topics and groups of one kind
_NAMES = {
    "delay": "delay level",
    "lost-delay": "never delivered, delay level",
    "timer": "timer",
    "lost-timer": "timer, never delivered",
    "half": "half message",
    "lost-half": "half message, never checked",
    "pop": "taken by POP",
    "retry": "retry",
    "dead-letter": "dead letter",
}


def show_pending(snapshot: Snapshot, work: PendingWork, style: Style) -> None:
    """Print what waits."""
    console = style.console()
    _show_lines(console, [_sentence(work)])
    if rows := [_reason(*each) for each in work.reasons()]:
        console.print()
        show_table(console, _reason_table(rows, terminal_width()))
    if work.messages.num_rows:
        console.print()
        messages = [_message(row, work.request.now) for row in work.messages.to_pylist()]
        show_table(console, table(_title(work), _MESSAGES, messages))
    lines = [*_notes("Not checked", _unread(work)), *_notes("Not known", work.notes.uncertain)]
    if not style.quiet and (steps := next_steps(snapshot, work, style.again("--list"))):
        lines += ["", "What to do", *(f"  {step}" for step in steps)]
    _show_lines(console, lines)


def _show_lines(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        console.print(Text(with_its_indent(visible(line), terminal_width())), soft_wrap=True)


def _sentence(work: PendingWork) -> str:
    owed, request = work.owed, work.request
    at = f"at {time_text(request.now)}"
    if request.due_before is not None:
        at += f" and due before {time_text(request.due_before)}"
    if not owed.messages:
        return f"nothing awaits delivery {at}" + ("" if work.is_whole else ", as far as it could be read")
    overdue = f", {owed.overdue} of them overdue" if owed.overdue else ""
    how_exact = "at most " if work.notes.at_most else "" if work.is_whole else "at least "
    as_read = ", of what could be read" if work.notes.at_most and not work.is_whole else ""
    return f"{how_exact}{counted(owed.messages, 'message')} awaiting delivery {at}{overdue}{as_read}"


def _reason(reason: tuple[str, int | None], topics: Sequence[str], groups: Sequence[str], count: Count) -> list[object]:
    kind, level = reason
    name = f"{_NAMES[kind]} {level}" if level is not None else _NAMES[kind]
    owed = "" if kind in OWED else " (not delivered)"
    for_whom = _some(topics) + (f" (group {_some(groups)})" if groups else "")
    dues = (time_text(due) for due in (count.first_due, count.next_due, count.last_due))
    return [name + owed, count.messages, count.overdue or "-", *dues, for_whom]


def _reason_table(rows: Sequence[Sequence[object]], width: int | None) -> Table:
    """What waits, a line for each reason: a narrow terminal gets fewer times, to the minute, and names that are cut."""
    whole = table("What waits", _REASONS, rows)
    if width is None or is_unfolded(whole, width):
        return whole
    columns = [_REASONS[place] for place in _NARROW]
    left = [[_TO_THE_MINUTE.sub(r"\1\2", str(row[place])) for place in _NARROW] for row in rows]
    narrow = table("What waits", columns, left)
    if is_unfolded(narrow, width):
        return narrow
    taken = sum(max(len(name), *(len(row[place]) for row in left)) + 2 for place, (name, _) in enumerate(columns[:-1]))
    room = max(_LEAST_NAME, width - taken)
    cut = [[*row[:-1], row[-1] if len(row[-1]) <= room else f"{row[-1][: room - 3]}..."] for row in left]
    return table("What waits", columns, cut)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more or "-"


def _title(work: PendingWork) -> str:
    shown, count = work.messages.num_rows, sum(each.count.messages for each in work.receivers)
    return counted(shown, "message") if shown == count else f"{shown} of {counted(count, 'message')}"


def _message(row: dict[str, Any], now: int) -> list[object]:
    due = row["due_timestamp"]
    group = f" (group {row['group']})" if row["group"] else ""
    level = f" {row['level']}" if row["level"] is not None else ""
    return [
        time_text(due),
        "overdue" if due is not None and due < now else "",
        f"{row['kind']}{level}",
        f"{row['to_topic'] or '-'}{group}",
        f"{row['topic']} {row['queue_id']}",
        row["queue_offset"],
        row["physical_offset"],
        row["unique_key"] or "-",
        " ".join(row["keys"] or ()) or "-",
    ]


def _unread(work: PendingWork) -> list[Note]:
    return [*work.notes.unread, *(Note(error.file or "the store", error.message) for error in work.unread)]


def _notes(title: str, notes: Sequence[Note]) -> Iterator[str]:
    if notes:
        yield from ("", title, *(sentence(f"  {note.what}: {note.why}") for note in notes))
