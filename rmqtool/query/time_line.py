"""Where the reports of clients stand among the events of a story, whose order is that of the log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rmqtool.query.story import Event

_STORED = ("stored", "half", "delayed", "committed", "sent-back", "retry", "dead-letter")
_FAILURES = ("sent-back", "retry", "dead-letter")
_ENDS = ("committed", "rolled-back")


def with_reports(story: Sequence[Event], reports: Iterable[Event]) -> list[Event]:
    """The story with what clients say in it, each where its time is.

    The order of the story stays. Clocks of clients and brokers may differ: what is stored has been sent before, what is
    consumed has been stored, and what comes back has failed, whatever the clocks say.
    """
    line = list(story)
    for report in sorted(reports, key=lambda each: (each.timestamp or 0, each.event == "trace-consume-end")):
        low, high = _bounds(line, report)
        later = (at for at in range(low, high) if _is_later(line[at], report))
        line.insert(next(later, high), report)
    return line


def _is_later(event: Event, report: Event) -> bool:
    return event.timestamp is None or event.timestamp > (report.timestamp or 0)


def _bounds(line: Sequence[Event], report: Event) -> tuple[int, int]:
    """Positions in a line between which a report belongs: after its last cause, and before its first effect."""
    own = [(at, event) for at, event in enumerate(line) if not event.event.startswith("trace-")]
    low = max((at + 1 for at, event in own if _is_cause(event, report)), default=1)
    high = min((at for at, event in own if at >= low and _is_effect(event, report)), default=len(line))
    return low, high


def _is_cause(event: Event, report: Event) -> bool:
    """Whether a client could do what it reports only after an event."""
    if report.event == "trace-transaction-end":
        return event.event == "half"
    if report.event not in ("trace-consume-begin", "trace-consume-end"):
        return False
    if report.times:
        return event.event == "retry" and (event.group, event.times) == (report.group, report.times)
    return event.event in ("stored", "committed")


def _is_effect(event: Event, report: Event) -> bool:
    """Whether an event could happen only after what a client reports."""
    match report.event:
        case "trace-send":
            return report.result == "SUCCESS" and event.event in _STORED
        case "trace-transaction-end":
            return event.event in _ENDS
        case "trace-consume-begin" | "trace-consume-end":
            again = event.event in _FAILURES and event.group == report.group
            return again and report.times is not None and (event.times or 0) > report.times
    return False
