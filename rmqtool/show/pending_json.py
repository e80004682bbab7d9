"""What waits in a store, as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rmqtool.base.errors import Exit
from rmqtool.base.times import rfc3339
from rmqtool.pending.advice import next_steps
from rmqtool.pending.work import Count, PendingWork
from rmqtool.show.output import Style, error_json, write_document
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
        "messages": [_message(row, request.now) for row in work.messages.to_pylist()] if request.limit else None,
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


def _message(row: dict[str, Any], now: int) -> dict[str, Any]:
    due = row.pop("due_timestamp")
    head = {"kind": row.pop("kind"), "level": row.pop("level"), **_moment("due", due)}
    head["overdue"] = due is not None and due < now
    stored = row.pop("store_timestamp")
    return {**head, **row, **_moment("store", stored)}


def _moment(name: str, timestamp: int | None) -> dict[str, Any]:
    return {f"{name}_timestamp": timestamp, f"{name}_time": rfc3339(timestamp)}
