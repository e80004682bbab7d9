"""The pictures of a report, each with the numbers that it is drawn from: log, growth, retention, disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rmqtool.base.byte_size import byte_size
from rmqtool.broker.log_deletion import FileDecision
from rmqtool.clean.forecast import Course
from rmqtool.report.facts import Retention, StoreReport
from rmqtool.report.timeline import PIECES, Counts, Timeline
from rmqtool.show.html import Content, Html, details, element, empty_element, joined, picture, table
from rmqtool.show.report_times import Clock
from rmqtool.verify.log_map import State, cells

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


def log_picture(report: StoreReport) -> Html:
    """The log from its minimum to its maximum: its state, and which topics it holds where."""
    outcome, timeline = report.outcome, report.timeline
    if not outcome.snapshot.log.files:
        return element("p", "There is no commit log file.")
    states = cells(outcome.log_map, timeline.start, timeline.piece, PIECES)
    names = timeline.largest(TOPIC_COLORS)
    strip = picture("State of the commit log", PIECES, 1, _strip(states), "strip")
    shares = picture(
        "Topics along the commit log", PIECES, _HEIGHT, _stacked(timeline.rows(timeline.by_place, names), is_share=True)
    )
    present = [state for state in _MEANINGS if state in states]
    axis = _axis(f"offset {outcome.log_start}", f"{outcome.log_end}")
    return joined((
        element("figure", strip, axis, _legend([(state, _MEANINGS[state]) for state in present])),
        element("figure", shares, _topic_legend(names, timeline),
                element("figcaption", f"Which topics each {byte_size(timeline.piece)} of the log holds.")),
    ))  # fmt: skip


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
        _axis(clock.time(timeline.first, timespec), clock.time(end, timespec)),
        _topic_legend(names, timeline),
        element("figcaption", caption),
    )
    return joined((figure, details("The numbers", table(caption, heads, shown, range(1, len(heads)), (0,)))))


def retention_picture(report: StoreReport, retention: Retention, clock: Clock) -> Html:
    """The log files in time, and which of them go next."""
    decisions = [*retention.plan.deleted, *retention.plan.kept]
    firsts = {file.start_offset: time for file, time in
              zip(retention.plan.facts.log_files, retention.plan.facts.first_timestamps, strict=True)}  # fmt: skip
    spans = [(each, _begin(firsts.get(each.log_file.start_offset), each.log_file.mtime)) for each in decisions]
    if not spans:
        return element("p", "There is no commit log file.")
    low, high = min(begin for _, begin in spans), max([report.now, *(each.log_file.mtime for each, _ in spans)])
    scale = _HEIGHT * 10 / max(1, high - low)
    boxes = [
        empty_element("rect", x=_number((begin - low) * scale), y=0.1, height=0.8,
                      width=_number(max(2.0, (max(each.log_file.mtime, begin) - begin) * scale - 1)),
                      class_="goes" if each.deleted else "kept")
        for each, begin in spans
    ]  # fmt: skip
    kept_from = report.now - retention.plan.rules.settings.reserved_ms
    marks = [_mark(report.now, low, scale, "now")]
    marks += [_mark(kept_from, low, scale, "level")] if low < kept_from < high else []
    rows = [
        [each.log_file.file.path.name, clock.time(begin), clock.time(each.log_file.mtime),
         byte_size(each.log_file.allocated), _end_of(each, clock)]
        for each, begin in spans[:_MAX_FILES]
    ]  # fmt: skip
    heads = ["File", "First message", "Modified", "Size", "Expires"]
    more = [element("p", f"and {len(spans) - _MAX_FILES} more")] if len(spans) > _MAX_FILES else []
    figure = element(
        "figure",
        picture("Log files in time", _HEIGHT * 10, 1, [*boxes, *marks], "strip"),
        _axis(clock.time(low), clock.time(high)),
        _legend([("kept", "stays"), ("goes", "goes with the next run of the cleaner")]),
        element("figcaption", _BOXES),
    )
    return joined((figure, details("The files", table("Log files", heads, rows, (3,), (1, 2, 4)), *more)))


def _begin(first: int | None, mtime: int) -> int:
    """The time of a file's first message; that of its last change where it is nonsense."""
    return first if first is not None and 0 < first <= mtime else mtime


def _end_of(decision: FileDecision, clock: Clock) -> str:
    if decision.deleted:
        return "goes with the next run"
    return "never, as the last" if decision.reason == "last-file" else clock.time(decision.expires)


_MAX_FILES = 500
_BOXES = (
    "Each box is a log file, from its first message to its last change. The solid line is now; the dashed one is "
    "fileReservedTime ago."
)


def disk_picture(courses: Sequence[Course], levels: Sequence[tuple[str, float]]) -> Html:
    """The used part of the disk over the coming hours, and when it reaches each level."""
    hours = max(len(course.ratios) for course in courses)
    lines = [
        _line("polyline", "course fast" if course.times > 1 else "course", points=_points(course.ratios))
        for course in courses
    ]
    heights = [_number(_HEIGHT * (1 - level)) for _, level in levels]
    marks = [_line("line", "level", x1=0, x2=max(1, hours - 1), y1=at, y2=at) for at in heights]
    rows = [
        [
            f"{name} ({level:.0%})",
            byte_size(round(courses[0].total * level)),
            *(_hours(course.reaches(level)) for course in courses),
        ]
        for name, level in (*levels, ("full", 0.9999))
    ]
    speeds = ["As it grows now" if course.times == 1 else "Twice the traffic" for course in courses]
    heads = ["Level", "Of the disk", *speeds]
    caption = (
        f"Used part of a disk of {byte_size(courses[0].total)}, by age alone: solid as the log grows now, dashed with "
        "twice the traffic; the straight lines are the levels of the cleaner."
    )
    figure = element(
        "figure",
        picture("Used part of the disk over the coming hours", max(1, hours - 1), _HEIGHT, [*marks, *lines]),
        _axis("now", f"in {hours - 1} h"),
        element("figcaption", caption),
    )
    return joined((figure, table("When the disk reaches its levels", heads, rows, range(1, len(heads)))))


def _points(ratios: Sequence[float]) -> str:
    return " ".join(f"{at},{_number(_HEIGHT * (1 - ratio))}" for at, ratio in enumerate(ratios))


def _hours(hours: int | None) -> str:
    return "never" if hours is None else "now" if not hours else f"in {hours} h"


def position_line(next_timestamp: int, low: int, high: int) -> Html:
    """What a group has still to read, as a bar on the time from `low` to `high`."""
    share = min(max((next_timestamp - low) / max(1, high - low), 0.0), 0.99)
    bar = empty_element(
        "rect", x=_number(share * 100), y=3, width=_number(100 - share * 100), height=4, class_="behind"
    )
    return picture("what is not read yet", 100, 10, [bar], "line")


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
                yield empty_element("rect", x=at, y=_number(top), width=1, height=_number(height), class_=f"t{color}")


def _topic_legend(names: Sequence[str], timeline: Timeline) -> Html:
    rows = [(f"t{at}", name) for at, name in enumerate(names)]
    more = len(timeline.topics) - len(names)
    return _legend([*rows, ("t8", f"{more} more topics" if more > 1 else "1 more topic")] if more > 0 else rows)


def _legend(rows: Sequence[tuple[str, str]]) -> Html:
    def item(kind: str, name: Content) -> Html:
        square = empty_element("rect", width=1, height=1, class_=kind)
        return element("li", element("svg", square, viewBox="0 0 1 1", aria_hidden="true"), name)

    return element("ul", *(item(kind, name) for kind, name in rows), class_="legend")


def _axis(begin: str, end: str) -> Html:
    return element("div", element("span", begin), element("span", end), class_="axis")


def _mark(time: int, low: int, scale: float, kind: str) -> Html:
    at = _number((time - low) * scale)
    return _line("line", kind, x1=at, x2=at, y1=0, y2=1)


def _line(name: str, kind: str, **points: str | float) -> Html:
    """A line that is as wide in a picture that is stretched."""
    return empty_element(name, class_=kind, vector_effect="non-scaling-stroke", **points)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
