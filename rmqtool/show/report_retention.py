"""The log files in time with the groups that still read them, and the disk over the coming hours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rmqtool.base.byte_size import byte_size
from rmqtool.broker.log_deletion import FileDecision
from rmqtool.clean.forecast import Course
from rmqtool.report.facts import Retention, StoreReport
from rmqtool.report.positions import GroupPosition
from rmqtool.show.drawing import SCALE, axis, lanes, legend, line, mark, number
from rmqtool.show.html import Html, details, element, empty_element, joined, picture, table
from rmqtool.show.report_times import Clock

_HEIGHT = 100
_MAX_FILES = 500
_GROUP_COLORS = 8
_HOURS_OF_A_ROW = 24
_NARROWEST = 2.0
_BOXES = (
    "Each box is a log file, from its first message to its last change. The solid line is now; the dashed one is "
    "fileReservedTime ago."
)
_LANES = (
    "The bars below are what groups have still to read, from its oldest message on: below a file that goes, they lose "
    "it. All groups are in the table of consumer groups."
)
_FileSpan = tuple[FileDecision, int]


def retention_picture(report: StoreReport, retention: Retention, clock: Clock) -> Html:
    """The log files in time, which of them go next, and what groups have still to read of them."""
    decisions = [*retention.plan.deleted, *retention.plan.kept]
    firsts = {file.start_offset: time for file, time in
              zip(retention.plan.facts.log_files, retention.plan.facts.first_timestamps, strict=True)}  # fmt: skip
    spans = [(each, _begin(firsts.get(each.log_file.start_offset), each.log_file.mtime)) for each in decisions]
    if not spans:
        return element("p", "There is no commit log file.")
    low, high = min(begin for _, begin in spans), max([report.now, *(each.log_file.mtime for each, _ in spans)])
    kept_from = report.now - retention.plan.rules.settings.reserved_ms
    marks = [(report.now, "now"), *([(kept_from, "level")] if low < kept_from < high else [])]
    bars, names = _readers(report, low, high)
    figure = element(
        "figure",
        picture("Log files in time", SCALE, 1, _boxes(spans, low, high, marks), "strip"),
        bars,
        axis(clock.time(low), clock.time(high)),
        legend([("kept", "stays"), ("goes", "goes with the next run of the cleaner"), *names]),
        element("figcaption", f"{_BOXES} {_LANES}" if names else _BOXES),
    )
    return joined((figure, details("The files", *_files(spans, clock))))


def _boxes(spans: Sequence[_FileSpan], low: int, high: int, marks: Sequence[tuple[int, str]]) -> Iterator[Html]:
    scale = SCALE / max(1, high - low)
    for each, begin in spans:
        width = max(_NARROWEST, (max(each.log_file.mtime, begin) - begin) * scale - 1)
        yield empty_element("rect", x=number((begin - low) * scale), y=0.1, height=0.8, width=number(width),
                            class_="goes" if each.deleted else "kept")  # fmt: skip
    yield from (mark(time, low, scale, kind) for time, kind in marks)


def _readers(report: StoreReport, low: int, high: int) -> tuple[Html, list[tuple[str, str]]]:
    """What the groups that lose most, or are farthest behind, have still to read, a lane for each; their legend."""
    last = report.overview.log_range.last_store_timestamp if report.overview.log_range else None
    known = [(each, time) for each in report.positions if (time := each.next_timestamp) is not None][:_GROUP_COLORS]
    if last is None or not known:
        return Html(""), []
    rows = [(f"t{at}", [(time, max(time, last))]) for at, (_, time) in enumerate(known)]
    names = [(f"t{at}", _reader(each)) for at, (each, _) in enumerate(known)]
    return lanes("What groups have still to read, in time", rows, low, high), names


def _reader(each: GroupPosition) -> str:
    return f"{each.group}, {each.topic}" + (f": loses {each.lost}" if each.lost else "")


def _files(spans: Sequence[_FileSpan], clock: Clock) -> Iterator[Html]:
    rows = [
        [each.log_file.file.path.name, clock.time(begin), clock.time(each.log_file.mtime),
         byte_size(each.log_file.allocated), _end_of(each, clock)]
        for each, begin in spans[:_MAX_FILES]
    ]  # fmt: skip
    yield table("Log files", ["File", "First message", "Modified", "Size", "Expires"], rows, (3,), (1, 2, 4))
    if len(spans) > _MAX_FILES:
        yield element("p", f"and {len(spans) - _MAX_FILES} more")


def _begin(first: int | None, mtime: int) -> int:
    """The time of a file's first message; that of its last change where it is nonsense."""
    return first if first is not None and 0 < first <= mtime else mtime


def _end_of(decision: FileDecision, clock: Clock) -> str:
    if decision.deleted:
        return "goes with the next run"
    if decision.reason == "plain-files":
        return "not while plain log files are there"
    return "never, as the last" if decision.reason == "last-file" else clock.time(decision.expires)


def disk_picture(courses: Sequence[Course], levels: Sequence[tuple[str, float]]) -> Html:
    """The used part of the disk over the coming hours, and when it reaches each level."""
    hours = max(len(course.ratios) for course in courses)
    lines = [
        line("polyline", "course fast" if course.times > 1 else "course", points=_points(course.ratios))
        for course in courses
    ]
    heights = [number(_HEIGHT * (1 - level)) for _, level in levels]
    marks = [line("line", "level", x1=0, x2=max(1, hours - 1), y1=at, y2=at) for at in heights]
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
        axis("now", f"in {hours - 1} h"),
        element("figcaption", caption),
    )
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


def _points(ratios: Sequence[float]) -> str:
    return " ".join(f"{at},{number(_HEIGHT * (1 - ratio))}" for at, ratio in enumerate(ratios))


def _hours(hours: int | None) -> str:
    return "never" if hours is None else "now" if not hours else f"in {hours} h"


def position_line(next_timestamp: int, low: int, high: int) -> Html:
    """What a group has still to read, as a bar on the time from `low` to `high`."""
    share = min(max((next_timestamp - low) / max(1, high - low), 0.0), 0.99)
    bar = empty_element("rect", x=number(share * 100), y=3, width=number(100 - share * 100), height=4, class_="behind")
    return picture("what is not read yet", 100, 10, [bar], "line")
