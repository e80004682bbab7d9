"""The pictures of a report that show the log: its state, its topics and its growth, each with its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from rmqtool.base.byte_size import byte_size
from rmqtool.report.facts import StoreReport
from rmqtool.report.timeline import PIECES, Counts, Timeline
from rmqtool.show.drawing import axis, legend, number
from rmqtool.show.html import Html, details, element, empty_element, joined, picture, table
from rmqtool.show.report_times import Clock
from rmqtool.verify.log_map import State, cells
from rmqtool.verify.outcome import Outcome

_HEIGHT = 100
TOPIC_COLORS = 8
"""Topics with a colour of their own; all others share one."""

_MEANINGS: dict[State, str] = {
    "good": "can be read",
    "unreachable": "can be read, but the next start cuts it off",
    "torn": "torn end",
    "bad": "not as it was stored",
    "unread": "could not be read",
    "not-reached": "not checked",
}
_MAX_EXTENTS = 300
_PIECES_OF_A_ROW = 10


def log_picture(report: StoreReport) -> Html:
    """The log from its minimum to its maximum: its state, and which topics it holds where."""
    outcome, timeline = report.outcome, report.timeline
    if not outcome.snapshot.log.files:
        return element("p", "There is no commit log file.")
    states = cells(outcome.log_map, timeline.start, timeline.piece, PIECES)
    names = timeline.largest(TOPIC_COLORS)
    rows = timeline.rows(timeline.by_place, names)
    strip = picture("State of the commit log", PIECES, 1, _strip(states), "strip")
    shares = picture("Topics along the commit log", PIECES, _HEIGHT, _stacked(rows, is_share=True))
    present = [state for state in _MEANINGS if state in states]
    ends = axis(f"offset {outcome.log_start}", f"{outcome.log_end}")
    return joined((
        element("figure", strip, ends, legend([(state, _MEANINGS[state]) for state in present])),
        details("The extents", *_extents(outcome)),
        element("figure", shares, _topic_legend(names, timeline),
                element("figcaption", f"Which topics each {byte_size(timeline.piece)} of the log holds.")),
        details("The numbers", _places(timeline, names, rows)),
    ))  # fmt: skip


def _extents(outcome: Outcome) -> Iterator[Html]:
    """The state of the log in numbers."""
    extents = iter(outcome.log_map)
    rows = [
        [each.physical_offset, each.physical_offset + each.size, each.size, _MEANINGS[each.state]]
        for each in islice(extents, _MAX_EXTENTS)
    ]
    yield table("Extents of the log, by physical offset", ["From", "To", "Bytes", "State"], rows, (0, 1, 2))
    left = sum(1 for _ in extents)
    if left:
        yield element("p", f"and {left} more")


def _places(timeline: Timeline, names: Sequence[str], rows: Counts) -> Html:
    """What topics hold along the log, in pieces of the picture put together."""
    heads = ["From offset", *names, "others"]
    sums = rows.reshape(len(rows), -1, _PIECES_OF_A_ROW).sum(axis=2)
    size = timeline.piece * _PIECES_OF_A_ROW
    shown = (
        [timeline.start + at * size, *map(byte_size, map(int, column))]
        for at, column in enumerate(sums.T)
        if column.any()
    )
    return table(f"Bytes of topics in each {byte_size(size)} of the log", heads, shown, range(len(heads)))


def growth_picture(report: StoreReport, clock: Clock) -> Html:
    """Bytes stored over the time, by topic."""
    timeline = report.timeline
    names = timeline.largest(TOPIC_COLORS)
    rows = timeline.rows(timeline.by_time, names)
    most = int(rows.sum(axis=0).max(initial=0))
    if not most:
        return element("p", "The log holds no message.")
    chart = picture("Bytes stored over the time by topic", timeline.bins, _HEIGHT, _stacked(rows))
    end = timeline.first + timeline.bins * timeline.width
    timespec = "minutes" if timeline.width >= 60_000 else "seconds"
    caption = f"Stored in each {clock.length(timeline.width)}; the highest bar is {byte_size(most)}."
    heads = ["From", "All", *names, "others"]
    shown = (
        [
            clock.time(timeline.first + at * timeline.width, timespec),
            byte_size(int(column.sum())),
            *map(byte_size, map(int, column)),
        ]
        for at, column in enumerate(rows.T)
        if column.any()
    )
    figure = element(
        "figure",
        chart,
        axis(clock.time(timeline.first, timespec), clock.time(end, timespec)),
        _topic_legend(names, timeline),
        element("figcaption", caption),
    )
    return joined((figure, details("The numbers", table(caption, heads, shown, range(1, len(heads)), (0,)))))


def _strip(states: Sequence[State | None]) -> Iterator[Html]:
    begin = 0
    for at in range(1, len(states) + 1):
        if at == len(states) or states[at] != states[begin]:
            if states[begin] is not None:
                yield empty_element("rect", x=begin, y=0, width=at - begin, height=1, class_=str(states[begin]))
            begin = at


def _stacked(rows: Counts, *, is_share: bool = False) -> Iterator[Html]:
    """Bars of one unit's width; the height is the share of the highest bar, or of the bar itself."""
    sums = rows.sum(axis=0)
    most = int(sums.max(initial=0))
    for at, column in enumerate(rows.T.tolist()):
        whole, top = (int(sums[at]) if is_share else most), float(_HEIGHT)
        for row, size in enumerate(column):
            if size:
                height = size * _HEIGHT / whole
                top -= height
                color = row if row < len(rows) - 1 else TOPIC_COLORS
                yield empty_element("rect", x=at, y=number(top), width=1, height=number(height), class_=f"t{color}")


def _topic_legend(names: Sequence[str], timeline: Timeline) -> Html:
    rows = [(f"t{at}", name) for at, name in enumerate(names)]
    more = len(timeline.topics) - len(names)
    return legend([*rows, ("t8", f"{more} more topics" if more > 1 else "1 more topic")] if more > 0 else rows)
