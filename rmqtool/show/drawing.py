"""What the pictures of a report have in common: lanes, lines, legends and axes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rmqtool.show.html import Content, Html, element, empty_element, picture

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


def mark(time: int, low: int, scale: float, kind: str) -> Html:
    """A line at a time, epoch ms, in a picture of one unit's height."""
    at = number((time - low) * scale)
    return line("line", kind, x1=at, x2=at, y1=0, y2=1)


def line(name: str, kind: str, **points: str | float) -> Html:
    """A line that is as wide in a picture that is stretched."""
    return empty_element(name, class_=kind, vector_effect="non-scaling-stroke", **points)


def number(value: float) -> str:
    """A position in a picture."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
