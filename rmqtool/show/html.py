"""Pieces of HTML: escaped text, elements, tables that scroll on narrow screens, pictures with their data beside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from rmqtool.base.visible import visible


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
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{given}>{''.join(map(text, contents))}</{name}>")


def empty_element(name: str, **attributes: str | int | float) -> Html:
    """An element of SVG without content."""
    given = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"' for key, value in attributes.items())
    return Html(f"<{name}{given}/>")


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


def details(summary: str, *contents: Content, is_open: bool = False) -> Html:
    """What can be opened: the numbers after a picture, or a long list."""
    return element("details", element("summary", summary), *contents, open="open" if is_open else None)
