"""What waits in a store, as JSON and for people."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqtool.base.errors import Exit
from rmqtool.base.numbers import Count as Size
from rmqtool.base.numbers import Long
from rmqtool.base.times import Moment
from rmqtool.base.visible import visible
from rmqtool.findings.finding import counted, first_of
from rmqtool.pending.messages import OWED, Kind, Note
from rmqtool.pending.work import ByReason, Count, PendingWork, next_steps
from rmqtool.show.output import Style, show_apart, show_table, table, terminal_width, write_document
from rmqtool.show.shapes import Error, Shape, at, by
from rmqtool.show.tables import is_unfolded
from rmqtool.show.times import sentence, time_text
from rmqtool.show.wrapping import with_its_indent
from rmqtool.store.snapshot import Snapshot

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def write_pending(snapshot: Snapshot, work: PendingWork, style: Style) -> None:
    """Print the one document."""
    around = _Around(snapshot, work.request.now, next_steps(snapshot, work, style.again("--list")))
    status = Exit.OK if work.is_whole else Exit.LOSSY
    write_document(style, "pending", PendingResult.of(work, around), status=status)


class _Around(NamedTuple):
    snapshot: Snapshot
    now: int
    next: Sequence[str]


def _count(name: str) -> Any:
    """A field of a count, or of the count of what waits."""
    return by(lambda shown, _: getattr(shown if isinstance(shown, Count) else shown.count, name))


class Due(Shape):
    """How many messages wait, and when they are due."""

    messages: Size = _count("messages")  # How many.
    overdue: Size = _count("overdue")  # How many of them were due at `now`.
    first_due: Moment = _count("first_due")  # When the first is due; null when none has a time.
    next_due: Moment = _count("next_due")  # When the first is due that is not overdue; null without one.
    last_due: Moment = _count("last_due")  # When the last is due; null when none has a time.


class _OfReason(Shape):
    # delay: of a delay level. lost-delay: of a delay level that broker.conf does not have, so that no broker delivers
    # it. timer: of the timer. lost-timer: of the timer, and no start would deliver it. half: a half message without an
    # answer. lost-half: one before the committed offset, which no broker checks. pop: taken by a POP consumer and not
    # acknowledged. retry: in a retry topic. dead-letter: given up. lost-delay, lost-timer, lost-half and dead-letter
    # are not counted.
    kind: Kind
    level: Size | None  # The delay level; null of other kinds.


class _Topics(_OfReason):
    topics: list[str]  # Their destination, as consumers see it.
    groups: list[str]  # For which groups, where they are for some only; of half messages the producer groups.


class Waiting(Due, _Topics):
    """Messages that wait for the same reason."""


class _Receivers(_OfReason):
    topic: str | None  # Their destination, as consumers see it; null if the message does not show it.
    group: str | None  # The consumer group, where they are for one only; of half messages the producer group.


class ReceivingGroup(Due, _Receivers):
    """Messages of one kind for one topic and group."""


class WaitingMessage(_OfReason):
    """A message that waits."""

    # When it is due; of a half message, when its producer is asked first; null when it only waits for its group, or for
    # nothing.
    due: Moment = at("due_timestamp")
    # It was due at `now`.
    overdue: bool = by(lambda row, around: row["due_timestamp"] is not None and row["due_timestamp"] < around.now)
    to_topic: str | None  # Its destination, as consumers see it.
    to_queue_id: int | None  # Its destination queue; null if not decided.
    group: str | None  # As in `receivers`.
    topic: str  # The topic in which it waits.
    queue_id: int  # The queue in which it waits.
    queue_offset: Long  # Its queue offset there.
    # Its position in the commit log, bytes: rmqtool query STORE --offset finds it. null where only a tier, or a
    # compacted log, has it.
    physical_offset: Long | None
    unique_key: str | None  # Its unique key.
    keys: list[str] | None  # Its keys.
    reconsume_times: int  # How often it was tried.
    store: Moment = at("store_timestamp")  # When it was stored.


class PendingResult(Shape):
    """What waits."""

    now: Moment = at("request.now")  # The time that counts as now.
    broker_version: str = by(lambda _, around: str(around.snapshot.release))  # The release whose rules apply.
    running: bool = by(lambda _, around: around.snapshot.holder is not None)  # A broker runs on the store.
    owed: Due  # All messages still to be delivered: no lost-delay, no lost-timer, no lost-half, no dead-letter.
    # Whether it may be fewer, because it is not known what the groups have consumed: committed offsets are missing or
    # cannot be read.
    at_most: bool = at("notes.at_most")
    # By kind and level, the longest overdue first.
    waiting: list[Waiting] = at("reasons")
    receivers: list[ReceivingGroup]  # The same by topic and group.
    # With --list the most urgent --limit of them, by due time, those without one last; else null.
    messages: list[WaitingMessage] | None = by(
        lambda work, _: work.messages.to_pylist() if work.request.limit else None
    )
    unread: list[Error]  # Files and directories that could not be read.
    # What could not be read, or was not checked: there may be more. If this or `unread` is not empty, the exit status
    # is 3.
    not_looked_at: list[Note] = at("notes.unread")
    uncertain: list[Note] = at("notes.uncertain")  # What the files do not say.
    next: list[str] = by(lambda _, around: around.next)  # What to do, in order.


_REASONS = "Kind, Messages>, Overdue>, First due, Next due, Last due, For"
_NARROW = (0, 1, 2, 3, 6)  # kind, messages, overdue, first due, for
_TO_THE_MINUTE = re.compile(r"(T\d\d:\d\d):\d\d(?:\.\d+)?(Z|[+-]\d\d:\d\d)$")
_LEAST_NAME = 8  # columns
_SHOWN = 3  # topics and groups of one kind
_NAMES = {
    "delay": "delay level",
    "lost-delay": "lost, delay level",
    "timer": "timer",
    "lost-timer": "lost, timer",
    "half": "half message",
    "lost-half": "lost, half message",
    "pop": "taken by POP",
    "retry": "retry",
    "dead-letter": "dead letter (not delivered)",
}


def show_pending(snapshot: Snapshot, work: PendingWork, style: Style) -> None:
    """Print what waits."""
    console = style.console()
    _show_lines(console, [_sentence(work)])
    if rows := [_reason(each) for each in work.reasons]:
        console.print()
        show_table(console, _reason_table(rows, terminal_width()))
    if work.messages.num_rows:
        messages = [_message(row, work.request.now) for row in work.messages.to_pylist()]
        columns = "Due, , Kind, For, Stored in, Queue offset>, Offset>, Unique key, Keys"
        shown, count = work.messages.num_rows, sum(each.count.messages for each in work.receivers)
        title = counted(count, "message")
        show_apart(console, title if shown == count else f"{shown} of {title}", columns, messages)
    unread = [*work.notes.unread, *(Note(error.file or "the store", error.message) for error in work.unread)]
    lines = [*_notes("Not checked", unread), *_notes("Not known", work.notes.uncertain)]
    if not style.quiet and (steps := next_steps(snapshot, work, style.again("--list"))):
        lines += ["", "What to do", *(f"  {step}" for step in steps)]
    _show_lines(console, lines)


def _show_lines(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        console.print(with_its_indent(visible(line), terminal_width()), soft_wrap=True)


def _sentence(work: PendingWork) -> str:
    owed, request = work.owed, work.request
    at = f"at {time_text(request.now)}"
    if request.due_before is not None:
        at += f" and due before {time_text(request.due_before)}"
    lost = work.total("lost-delay", "lost-timer", "lost-half").messages
    never = f"; {counted(lost, 'message')} that no broker delivers or checks" if lost else ""
    if not owed.messages:
        return f"nothing awaits delivery {at}" + ("" if work.is_whole else ", as far as it could be read") + never
    overdue = f", {owed.overdue} of them overdue" if owed.overdue else ""
    how_exact = "at most " if work.notes.at_most else "" if work.is_whole else "at least "
    as_read = ", of what could be read" if work.notes.at_most and not work.is_whole else ""
    return f"{how_exact}{counted(owed.messages, 'message')} awaiting delivery {at}{overdue}{as_read}{never}"


def _reason(each: ByReason) -> list[object]:
    name, count = _NAMES[each.kind] if each.level is None else f"{_NAMES[each.kind]} {each.level}", each.count
    for_whom = _some(each.topics) + (f" (group {_some(each.groups)})" if each.groups else "")
    dues = (time_text(due) for due in (count.first_due, count.next_due, count.last_due))
    return [name, count.messages, (each.kind in OWED and count.overdue) or "-", *dues, for_whom]


def _reason_table(rows: Sequence[Sequence[object]], width: int | None) -> Table:
    """What waits, a line for each reason: a narrow terminal gets fewer times, to the minute, and names that are cut."""
    whole = table("What waits", _REASONS, rows)
    if width is None or is_unfolded(whole, width):
        return whole
    names = [_REASONS.split(", ")[place] for place in _NARROW]
    columns = ", ".join(names)
    left = [[_TO_THE_MINUTE.sub(r"\1\2", str(row[place])) for place in _NARROW] for row in rows]
    narrow = table("What waits", columns, left)
    if is_unfolded(narrow, width):
        return narrow
    widths = (
        max(len(name.removesuffix(">")), *(len(row[place]) for row in left)) for place, name in enumerate(names[:-1])
    )
    taken = sum(width + 2 for width in widths)
    room = max(_LEAST_NAME, width - taken)
    cut = [[*row[:-1], row[-1] if len(row[-1]) <= room else f"{row[-1][: room - 3]}..."] for row in left]
    return table("What waits", columns, cut)


def _some(names: Sequence[str]) -> str:
    return first_of(names, _SHOWN) or "-"


def _message(row: dict[str, Any], now: int) -> list[object]:
    due = row["due_timestamp"]
    group = f" (group {row['group']})" if row["group"] else ""
    level = f" {row['level']}" if row["level"] is not None else ""
    return [
        *(time_text(due), "overdue" if due is not None and due < now else "", f"{row['kind']}{level}"),
        *(f"{row['to_topic'] or '-'}{group}", f"{row['topic']} {row['queue_id']}"),
        row["queue_offset"],
        "-" if row["physical_offset"] is None else row["physical_offset"],
        row["unique_key"] or "-",
        " ".join(row["keys"] or ()) or "-",
    ]


def _notes(title: str, notes: Sequence[Note]) -> Iterator[str]:
    if notes:
        yield from ("", title, *(sentence(f"  {note.what}: {note.why}") for note in notes))
