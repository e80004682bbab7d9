"""The lives of messages in a report: a picture along the time, the story, and what proves it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmqtool.report.facts import Life
from rmqtool.show.drawing import Span, axis, lanes, legend
from rmqtool.show.html import Html, details, element, joined
from rmqtool.show.report_redaction import ReportRedaction
from rmqtool.show.report_times import Clock
from rmqtool.show.story_text import PARTIAL, is_partial, story_lines
from rmqtool.show.trace_text import trace_lines

_STORED, _WAITS, _READ, _FAILED, _CLIENTS = "t0", "t6", "t2", "bad", "t3"
_MEANINGS = {
    _STORED: "sent or stored",
    _WAITS: "waits",
    _READ: "read, or passed, by a group",
    _FAILED: "failed, rolled back or given up",
    _CLIENTS: "what clients say",
}
_KINDS = {
    **dict.fromkeys(("sent", "stored", "half", "committed", "retry"), _STORED),
    **dict.fromkeys(("read", "passed"), _READ),
    **dict.fromkeys(("sent-back", "rolled-back", "dead-letter"), _FAILED),
}
_CLIENT = "trace-"


def life_of(life: Life, clock: Clock, hidden: ReportRedaction) -> Html:
    """The messages of an id, or why there is none."""
    if not life.messages:
        told = "It" if hidden.hides_keys else life.name
        why = "no such message is found" if hidden.hides_keys else "; ".join(life.notes)
        return element("p", f"{told}: {why}")
    return joined(_message(message, clock, hidden) for message in life.messages)


def _message(message: dict[str, Any], clock: Clock, hidden: ReportRedaction) -> Html:
    message = hidden.message(message)
    trace = message["places"]
    name = message["unique_key"] or message["message_id"] or message["physical_offset"]
    story = story_lines(trace["story"], clock.exact)
    events = element("ol", *(element("li", f"{when}: {told}") for when, told in story))
    partial = [element("p", PARTIAL)] if is_partial(trace) else []
    wrong = [element("p", f"WRONG: {each}", class_="lost") for each in trace["contradictions"]]
    lines = joined((f"{label:<12} {told}" for label, told in trace_lines(message)), "\n")
    return joined((element("h3", f"{message['topic']} {name}"), life_line(trace["story"], clock), events, *partial,
                   *wrong, details("Where it stands, and what proves it",
                                   element("pre", lines, tabindex=0))))  # fmt: skip


def life_line(events: Sequence[dict[str, Any]], clock: Clock) -> Html:
    """The events of a message along its time, a lane for each kind; nothing where no time passes."""
    spans: dict[str, list[Span]] = {}
    for event in events:
        first, last, due = event["timestamp"], event["until_timestamp"], event["due_timestamp"]
        kind = _CLIENTS if event["event"].startswith(_CLIENT) else _KINDS.get(event["event"])
        if first is not None and kind:
            spans.setdefault(kind, []).append((first, first if last is None else max(first, last)))
        if first is not None and due is not None:
            spans.setdefault(_WAITS, []).append((first, max(first, due)))
    times = [time for each in spans.values() for span in each for time in span]
    low, high = min(times, default=0), max(times, default=0)
    if low == high:
        return Html("")
    kinds = [kind for kind in _MEANINGS if kind in spans]
    chart = lanes("Its life in time; the list below says the same", [(kind, spans[kind]) for kind in kinds], low, high)
    ends = axis(clock.exact(int(low)), clock.exact(int(high)))
    return element("figure", chart, ends, legend([(kind, _MEANINGS[kind]) for kind in kinds]))
