"""The pictures of a report that show the log: its state, its topics and its growth, each with its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from html import escape
from itertools import islice

from rmqtool.base.numbers import byte_size
from rmqtool.base.visible import visible
from rmqtool.broker.cleaner import FileDecision
from rmqtool.broker.trigger import MAX_TIME, local_time
from rmqtool.clean.forecast import Course
from rmqtool.report.facts import PIECES, Counts, Retention, StoreReport, Timeline
from rmqtool.verify.bad_extents import State, cells
from rmqtool.verify.outcome import Outcome


class Html(str):
    """Text that is HTML already; all other text is escaped where it is put into an element."""

    __slots__ = ()


Content = str | int | float


def text(content: object) -> Html:
    """Content as HTML, with control characters made visible."""
    if isinstance(content, Html):
        return content
    return Html("" if content is None else escape(visible(str(content))))


def element(name: str, *contents: Content, **attributes: str | int | float | None) -> Html:
    """An element; `class_` and names with ``_`` become attributes, those that are None are left out."""
    return Html(f"<{name}{_given(attributes)}>{''.join(map(text, contents))}</{name}>")


def empty_element(name: str, **attributes: str | int | float) -> Html:
    """An element of SVG without content."""
    return Html(f"<{name}{_given(attributes)}/>")


def _given(attributes: Mapping[str, object]) -> str:
    shown = ((key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items() if value is not None)
    return "".join(f' {key}="{escape(str(value))}"' for key, value in shown)


def joined(parts: Iterable[Content], between: str = "") -> Html:
    """Several parts as one."""
    return Html(escape(between).join(map(text, parts)))


def table(
    caption: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    numbers: Sequence[int] = (),
    times: Sequence[int] = (),
) -> Html:
    """A table; the columns `numbers`, counted from 0, are aligned to the right, those of `times` are not wrapped."""
    sides = ["number" if at in numbers else "time" if at in times else None for at in range(len(columns))]
    head = joined(element("th", name, scope="col", class_=side) for name, side in zip(columns, sides, strict=True))
    body = joined(
        element("tr", *(element("td", text(cell), class_=side) for cell, side in zip(row, sides, strict=True)))
        for row in rows
    )
    whole = element("table", element("caption", caption), element("thead", element("tr", head)), element("tbody", body))
    return element("section", whole, class_="wide", tabindex=0, aria_label=caption)


def picture(label: str, width: float, height: float, shapes: Iterable[Html], kind: str = "") -> Html:
    """Shapes in a box of `width` by `height` units, stretched to the width of the page."""
    return element(
        "svg", *shapes, viewBox=f"0 0 {width:g} {height:g}", preserveAspectRatio="none", role="img", aria_label=label,
        class_=f"picture {kind}".strip(),
    )  # fmt: skip


def details(summary: str, *contents: Content) -> Html:
    """What can be opened: the numbers after a picture, or a long list."""
    return element("details", element("summary", summary), *contents)


SCALE = 1000
"""Units from the left to the right end of a picture along time."""

_NARROWEST = 4.0  # units, so that a moment can be seen

Span = tuple[float, float]
"""Begin and end of a bar on the time that a picture shows, epoch ms; both are the same for a moment."""


def legend(rows: Sequence[tuple[str, str]]) -> Html:
    """What each class of shapes means."""

    def item(kind: str, name: Content) -> Html:
        square = empty_element("rect", width=1, height=1, class_=kind)
        return element("li", element("svg", square, viewBox="0 0 1 1", aria_hidden="true"), name)

    return element("ul", *(item(kind, name) for kind, name in rows), class_="legend")


def axis(begin: str, end: str) -> Html:
    """The two ends of what a picture shows."""
    return element("div", element("span", begin), element("span", end), class_="axis")


def scaled(chart: Html, ends: Html, heights: Sequence[str]) -> Html:
    """A chart with what its heights mean at its left, from top to bottom, and the ends of its axis below it."""
    scale = element("div", *(element("span", height) for height in heights), class_="scale", aria_hidden="true")
    return element("div", scale, chart, ends, class_="scaled")


def lanes(label: str, rows: Sequence[tuple[str, Sequence[Span]]], low: float, high: float) -> Html:
    """Bars along the time from `low` to `high`, epoch ms: a lane for each class of shapes, from top to bottom."""
    return picture(label, SCALE, max(1, len(rows)), _bars(rows, low, high), "lanes")


def _bars(rows: Sequence[tuple[str, Sequence[Span]]], low: float, high: float) -> Iterator[Html]:
    scale = SCALE / max(1, high - low)
    for lane, (kind, spans) in enumerate(rows):
        for begin, end in spans:
            left, right = ((min(max(each, low), high) - low) * scale for each in (begin, end))
            width = max(_NARROWEST, right - left)
            yield empty_element(
                "rect", x=number(min(left, SCALE - width)), y=lane + 0.15, width=number(width), height=0.7, class_=kind
            )


def line(name: str, kind: str, **points: str | float) -> Html:
    """A line that is as wide in a picture that is stretched."""
    return empty_element(name, class_=kind, vector_effect="non-scaling-stroke", **points)


def number(value: float) -> str:
    """A position in a picture."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


_UNITS = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1000, "second"))


@dataclass(frozen=True)
class Clock:
    """Shows times in one zone, None: this machine's."""

    zone: tzinfo | None

    def time(self, timestamp: int | None, timespec: str = "minutes") -> str:
        """``2026-11-21 14:34 +08:00`` of epoch ms; with its number where no calendar has it."""
        if timestamp is None:
            return "-"
        if not 0 <= timestamp <= MAX_TIME:
            return f"{timestamp} ms"
        text = local_time(timestamp, self.zone).isoformat(" ", timespec)
        return f"{text[:-6]} {text[-6:]}"

    def exact(self, timestamp: int) -> str:
        """The same with milliseconds."""
        return self.time(timestamp, "milliseconds")

    def span(self, first: int, last: int) -> tuple[str, str]:
        """Both ends of a span: in minutes, in seconds where the minute is the same."""
        timespec = "seconds" if first // _MINUTE_MS == last // _MINUTE_MS else "minutes"
        return self.time(first, timespec), self.time(last, timespec)

    def length(self, milliseconds: int) -> str:
        """``3 hours``, or ``hour`` for one of them, behind "each"."""
        size, name = next((unit for unit in _UNITS if milliseconds >= unit[0]), _UNITS[-1])
        count = milliseconds // size
        return name if count == 1 else f"{count} {name}s"


_HEIGHT = 100
_MINUTE_MS = 60_000
TOPIC_COLORS = 8
"""Topics with a colour of their own; all others share one."""

_MEANINGS: dict[State, str] = {
    "good": "can be read",
    "unreachable": "can be read, but the next start cuts it off",
    "torn": "torn end",
    "bad": "damaged",
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
        details("The ranges", *_extents(outcome)),
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
    yield table("Ranges of the log, by physical offset", ["From", "To", "Bytes", "State"], rows, (0, 1, 2))
    left = sum(1 for _ in extents)
    if left:
        yield element("p", f"and {left} more")


def _places(timeline: Timeline, names: Sequence[str], rows: Counts) -> Html:
    """What topics hold along the log, in pieces of the picture put together."""
    heads = ["From offset", *names, "others"]
    sums = rows.reshape(len(rows), -1, _PIECES_OF_A_ROW).sum(axis=2)
    size = timeline.piece * _PIECES_OF_A_ROW
    shown = ([timeline.start + at * size, *map(byte_size, map(int, column))]
             for at, column in enumerate(sums.T) if column.any())  # fmt: skip
    return table(f"Bytes of topics in each {byte_size(size)} of the log", heads, shown, range(len(heads)))


def growth_picture(report: StoreReport, clock: Clock) -> Html:
    """Bytes stored over the time, by topic."""
    timeline = report.timeline
    names = timeline.largest(TOPIC_COLORS)
    rows = timeline.rows(timeline.by_time, names)
    most = int(rows.sum(axis=0).max(initial=0))
    if not most:
        return element("p", "The log has no message.")
    chart = picture("Bytes stored over the time by topic", timeline.bins, _HEIGHT, _stacked(rows))
    end = timeline.first + timeline.bins * timeline.width
    timespec = "minutes" if timeline.width >= 60_000 else "seconds"
    caption = f"Stored in each {clock.length(timeline.width)}; the highest bar is {byte_size(most)}."
    heads = ["From", "All", *names, "others"]
    shown = ([clock.time(timeline.first + at * timeline.width, timespec),
              *map(byte_size, (int(column.sum()), *map(int, column)))]
             for at, column in enumerate(rows.T) if column.any())  # fmt: skip
    ends = axis(clock.time(timeline.first, timespec), clock.time(end, timespec))
    drawn = scaled(chart, ends, [byte_size(most), byte_size(most // 2), "0"])
    figure = element("figure", drawn, _topic_legend(names, timeline), element("figcaption", caption))
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


_MAX_FILES = 500
_GROUP_COLORS = 8
_HOURS_OF_A_ROW = 24
_NARROWEST_FILE = 2.0
_BOXES = "Each box is a log file, from its first to its last message."
_RESERVED = "The dashed line is fileReservedTime ago."
_NOW, _LATER = "The solid line is now.", "Now is {} later."
_MUCH_LATER = 4  # times as long as the log: then now is off the picture, whose boxes would be too narrow
_LANES = (
    "The bars below show what groups have not read yet, from the oldest message on: the part below a deleted file is "
    "lost. All groups are in the table of consumer groups."
)
_FileSpan = tuple[FileDecision, int, int]


def retention_picture(report: StoreReport, retention: Retention, clock: Clock) -> Html:
    """The log files in time, which of them go next, and what groups have still to read of them."""
    decisions = [*retention.plan.deleted, *retention.plan.kept]
    firsts = {file.start_offset: time for file, time in
              zip(retention.plan.facts.log_files, retention.plan.facts.first_timestamps, strict=True)}  # fmt: skip
    times = [firsts.get(each.log_file.start_offset) or 0 for each in decisions]
    begins = [begin if 0 < begin <= each.log_file.mtime else each.log_file.mtime  # where that is nonsense
              for each, begin in zip(decisions, times, strict=True)]  # fmt: skip
    last = report.overview.log_range.last_store_timestamp if report.overview.log_range else None
    ends = (min(each.log_file.mtime, end or each.log_file.mtime)  # a copy may have been changed years later
            for each, end in zip(decisions, [*begins[1:], last], strict=True))  # fmt: skip
    spans = [*zip(decisions, begins, map(max, begins, ends), strict=True)]
    if not spans:
        return element("p", "There is no commit log file.")
    low, latest = min(begins), max(end for _, _, end in spans)
    is_later = report.now - latest > _MUCH_LATER * max(1, latest - low)
    high = latest if is_later else max(report.now, latest)
    kept_from = report.now - retention.plan.rules.settings.reserved_ms
    marks = [] if is_later else [(report.now, "now")]
    marks += [(kept_from, "level")] if low < kept_from < high else []
    bars, names = _readers(report, low, high)
    boxes = picture("Log files in time", SCALE, 1, _boxes(spans, low, high, marks), "strip")
    kinds = legend([("kept", "kept"), ("goes", "deleted by the next run of the cleaner"), *names])
    now = _LATER.format(clock.length(report.now - latest)) if is_later else _NOW
    reserved = [_RESERVED] if any(kind == "level" for _, kind in marks) else []
    caption = element("figcaption", " ".join([_BOXES, now, *reserved, *([_LANES] if names else [])]))
    figure = element("figure", boxes, bars, axis(*clock.span(low, high)), kinds, caption)
    return joined((figure, details("The files", *_files(spans, clock))))


def _boxes(spans: Sequence[_FileSpan], low: int, high: int, marks: Sequence[tuple[int, str]]) -> Iterator[Html]:
    scale = SCALE / max(1, high - low)
    for each, begin, end in spans:
        width = max(_NARROWEST_FILE, (end - begin) * scale - 1)
        yield empty_element("rect", x=number((begin - low) * scale), y=0.1, height=0.8, width=number(width),
                            class_="goes" if each.deleted else "kept")  # fmt: skip
    for time, kind in marks:
        at = number((time - low) * scale)
        yield line("line", kind, x1=at, x2=at, y1=0, y2=1)


def _readers(report: StoreReport, low: int, high: int) -> tuple[Html, list[tuple[str, str]]]:
    """What the groups that lose most, or are farthest behind, have still to read, a lane for each; their legend."""
    last = report.overview.log_range.last_store_timestamp if report.overview.log_range else None
    known = [(each, time) for each in report.positions if (time := each.next_timestamp) is not None][:_GROUP_COLORS]
    if last is None or not known:
        return Html(""), []
    rows = [(f"t{at}", [(time, max(time, last))]) for at, (_, time) in enumerate(known)]
    names = [(f"t{at}", f"{each.group}, {each.topic}" + (f": loses {each.lost}" if each.lost else ""))
             for at, (each, _) in enumerate(known)]  # fmt: skip
    return lanes("What groups still have to read, over time", rows, low, high), names


def _files(spans: Sequence[_FileSpan], clock: Clock) -> Iterator[Html]:
    rows = [
        [each.log_file.file.path.name, clock.time(begin), clock.time(each.log_file.mtime),
         byte_size(each.log_file.allocated), _end_of(each, clock)]
        for each, begin, _ in spans[:_MAX_FILES]
    ]  # fmt: skip
    yield table("Log files", ["File", "First message", "Modified", "Size", "Expires"], rows, (3,), (1, 2, 4))
    if len(spans) > _MAX_FILES:
        yield element("p", f"and {len(spans) - _MAX_FILES} more")


def _end_of(decision: FileDecision, clock: Clock) -> str:
    if decision.deleted:
        return "deleted by the next run"
    if decision.reason == "plain-files":
        return "not while plain log files exist"
    return "never, as the last" if decision.reason == "last-file" else clock.time(decision.expires)


def disk_picture(courses: Sequence[Course], levels: Sequence[tuple[str, float]]) -> Html:
    """The used part of the disk over the coming hours, and when it reaches each level."""
    hours = max(len(course.ratios) for course in courses)
    lines = []
    for course in courses:
        points = " ".join(f"{at},{number(_HEIGHT * (1 - ratio))}" for at, ratio in enumerate(course.ratios))
        lines.append(line("polyline", "course fast" if course.times > 1 else "course", points=points))
    heights = [number(_HEIGHT * (1 - level)) for _, level in levels]
    marks = [line("line", "level", x1=0, x2=max(1, hours - 1), y1=at, y2=at) for at in heights]
    rows = [
        [f"{name} ({level:.0%})", byte_size(round(courses[0].total * level)),
         *(_hours(course.reaches(level)) for course in courses)]
        for name, level in (*levels, ("full", 0.9999))
    ]  # fmt: skip
    speeds = ["As it grows now" if course.times == 1 else "Twice the traffic" for course in courses]
    heads = ["Level", "Of the disk", *speeds]
    caption = (
        f"Used part of a disk of {byte_size(courses[0].total)}, if files are deleted only by age: solid with the "
        "present growth, dashed with twice the traffic; the straight lines are the levels of the cleaner."
    )
    chart = picture("Used part of the disk over the coming hours", max(1, hours - 1), _HEIGHT, [*marks, *lines])
    drawn = scaled(chart, axis("now", f"in {hours - 1} h"), ["100%", "50%", "0%"])
    figure = element("figure", drawn, element("figcaption", caption))
    levels_table = table("When the disk reaches its levels", heads, rows, range(1, len(heads)))
    return joined((figure, levels_table, details("The numbers", _used(courses, hours, speeds))))


def _used(courses: Sequence[Course], hours: int, speeds: Sequence[str]) -> Html:
    """The used part of the disk day by day."""
    days = [*range(0, hours, _HOURS_OF_A_ROW), *([hours - 1] if (hours - 1) % _HOURS_OF_A_ROW else [])]
    rows = ([_hours(hour), *(_share(course, hour) for course in courses)] for hour in days)
    return table("Used part of the disk", ["When", *speeds], rows, range(1, 1 + len(courses)))


def _share(course: Course, hour: int) -> str:
    ratio = course.ratios[min(hour, len(course.ratios) - 1)]
    return f"{byte_size(round(course.total * ratio))} ({ratio:.1%})"


def _hours(hours: int | None) -> str:
    return "never" if hours is None else "now" if not hours else f"in {hours} h"


def position_line(next_timestamp: int, low: int, high: int) -> Html:
    """What a group has still to read, as a bar on the time from `low` to `high`."""
    share = min(max((next_timestamp - low) / max(1, high - low), 0.0), 0.99)
    bar = empty_element("rect", x=number(share * 100), y=3, width=number(100 - share * 100), height=4, class_="behind")
    return picture("unread messages", 100, 10, [bar], "line")
