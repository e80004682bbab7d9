"""A comparison of two stores by their messages, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rmqtool.base.byte_size import byte_size
from rmqtool.base.visible import visible
from rmqtool.diff.by_message import MessageComparison, Surplus
from rmqtool.diff.side import SIDES, Name
from rmqtool.findings.finding import counted
from rmqtool.scan.filters import Filters
from rmqtool.show.filters_json import filters_json
from rmqtool.show.output import Style, error_json, write_document, write_text

_TOPICS = 8  # topics of a count


def show_messages(comparison: MessageComparison, only: Name | None) -> None:
    """Print what was found; with `only` messages of that side alone are listed."""
    lines = [*_heads(comparison), "", _sentence(comparison)]
    for name in SIDES:
        surplus = comparison.only[name]
        if surplus.messages:
            lines += ["", *_surplus(name, surplus), *(_listed(surplus) if only in (None, name) else ())]
    errors = [f"  cannot be read: {error}{f'; {error.hint}' if error.hint else ''}" for error in comparison.unread]
    lines += ["", "Not compared", *errors] if errors else []
    write_text("".join(f"{visible(line)}\n" for line in lines))


def _heads(comparison: MessageComparison) -> Iterator[str]:
    for name, side in zip(SIDES, (comparison.a, comparison.b), strict=True):
        counts = comparison.counts[name]
        damaged = f"; {byte_size(counts.damaged)} hold no message" if counts.damaged else ""
        yield f"{name.upper()}  {side.snapshot.store.root}"
        if not side.files:
            yield "   no commit log file"
            continue
        left_out = "" if counts.left_out is None else f", {counts.left_out} left out"
        yield f"   {counted(counts.messages, 'message')} compared{left_out}{damaged}"


def _sentence(comparison: MessageComparison) -> str:
    both = f"{counted(comparison.in_both, 'message')} in both"
    so_far = ", of what could be read" if comparison.unread else ""
    match comparison.verdict:
        case "same":
            return f"same: {both}, and none in one of them only"
        case "unproven":
            return f"unproven: {both}, and none in one of them only{so_far}"
        case "a-has-more":
            return f"A has more: {both}; B has none that is not in A{so_far}"
        case "b-has-more":
            return f"B has more: {both}; A has none that is not in B{so_far}"
        case "differs":
            return f"differs: {both}{so_far}"


def _surplus(name: Name, surplus: Surplus) -> Iterator[str]:
    topics = sorted(surplus.topics.items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{topic} {count}" for topic, count in topics[:_TOPICS])
    more = f" and {counted(len(topics) - _TOPICS, 'more topic')}" if len(topics) > _TOPICS else ""
    other = "B" if name == "a" else "A"
    yield f"Only {name.upper()} has {counted(surplus.messages, 'message')} ({shown}{more})"
    if surplus.repeated:
        yield f"  {surplus.repeated} of them {other} has too, but fewer times"
    if surplus.other_body:
        yield f"  for {surplus.other_body} of them {other} has the unique key with another body"


def _listed(surplus: Surplus) -> Iterator[str]:
    for message in surplus.listed:
        place = f"{message['topic']} {message['queue_id']} {message['queue_offset']}"
        yield f"  {message['physical_offset']}  {place}  {message['store_time']}  {message['unique_key'] or '-'}"


def write_messages(comparison: MessageComparison, filters: Filters, only: Name | None, style: Style) -> None:
    """Print the one document."""
    write_document(style, "diff", style.store, _as_json(comparison, filters, only), status=comparison.status)


def _as_json(comparison: MessageComparison, filters: Filters, only: Name | None) -> dict[str, Any]:
    """The `result` of ``diff A B --by-message``."""
    sides = zip(SIDES, (comparison.a, comparison.b), strict=True)
    return {
        "by": "message",
        "verdict": comparison.verdict,
        "engine": comparison.engine,
        "filters": filters_json(filters),
        **{
            name: {
                "store": str(side.snapshot.store.root),
                "running": side.snapshot.holder is not None,
                "messages": comparison.counts[name].messages,
                "left_out": comparison.counts[name].left_out,
                "damaged_bytes": comparison.counts[name].damaged,
            }
            for name, side in sides
        },
        "in_both": comparison.in_both,
        "only_a": _surplus_json(comparison.only["a"], is_listed=only != "b"),
        "only_b": _surplus_json(comparison.only["b"], is_listed=only != "a"),
        "unread": [error_json(error) for error in comparison.unread],
    }


def _surplus_json(surplus: Surplus, *, is_listed: bool) -> dict[str, Any]:
    topics = sorted(surplus.topics.items(), key=lambda item: (-item[1], item[0]))
    return {
        "messages": surplus.messages,
        "topics": [{"topic": topic, "messages": count} for topic, count in topics],
        "repeated": surplus.repeated,
        "other_body": surplus.other_body,
        "listed": surplus.listed if is_listed else [],
    }
