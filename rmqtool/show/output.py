"""How results look: JSON for programs, text for people. Data goes to stdout, everything else to stderr."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, Literal, TextIO

import click

from rmqtool.base.errors import Exit, RmqtoolError, failed_so_far
from rmqtool.base.numbers import Int64, with_int64
from rmqtool.base.visible import join, json_text, visible
from rmqtool.findings.finding import Finding
from rmqtool.show.shapes import Error
from rmqtool.show.times import sentence
from rmqtool.show.wrapping import wrapped

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

ColorChoice = Literal["auto", "always", "never"]
ProgressChoice = Literal["auto", "json", "never"]

SEVERITY_STYLES = {"info": "cyan", "warning": "yellow", "error": "bold red"}
_NARROWEST = 20  # columns; a terminal that is narrower breaks the lines by itself
_UNFOLDED = 1 << 16  # columns where no terminal reads: each row of a table stays one line


@dataclass
class Style:
    """How to print results, as the global options ask."""

    json: bool = False
    color: ColorChoice = "auto"
    verbosity: int = 0  # below 0 quiet, above 0 verbose
    store: str | None = None  # the path that the command was given, for its JSON
    progress: ProgressChoice = "auto"
    int64: Int64 = "number"  # in JSON
    pager: bool = True  # for output that is longer than the screen
    lines_begun: bool = False  # JSON lines are on their way: an error becomes a line too
    words: tuple[str, ...] = ()  # the command line, after the program's name

    def again(self, *more: str) -> str | None:
        """The same command line with more words, as it can be pasted; None where there was no command line."""
        return join(["rmqtool", *self.words, *more]) if self.words else None

    @property
    def quiet(self) -> bool:
        """Whether only results are wanted."""
        return self.verbosity < 0

    def wants_color(self, stream: TextIO | None = None) -> bool:
        """Whether text is coloured: on a terminal, unless ``--color``, NO_COLOR or FORCE_COLOR decide."""
        stream = stream or sys.stdout
        if self.color != "auto":
            return self.color == "always"
        if os.environ.get("NO_COLOR"):
            return False
        return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")

    def console(self) -> Console:
        """A console on stdout that wraps nothing where no terminal reads."""
        from rich.console import Console

        colored = self.wants_color()
        width = None if sys.stdout.isatty() else _UNFOLDED
        return Console(
            force_terminal=colored, no_color=not colored, highlight=False, width=width, emoji=False, markup=False
        )


def write_document(
    style: Style, command: str, result: Any, *, findings: Sequence[Finding] = (), status: Exit = Exit.OK
) -> None:
    """Print the one JSON document of a command."""
    write_text(document_text(style, command, result, findings, status))


def document_text(
    style: Style,
    command: str,
    result: Any,
    findings: Sequence[Finding] = (),
    status: Exit = Exit.OK,
    error: RmqtoolError | None = None,
    *,
    in_one_line: bool = False,
) -> str:
    """The one JSON document of a command; its exit is not OK where the command did without what could not be read."""
    if status is Exit.OK and failed_so_far():
        status = Exit.LOSSY
    document: dict[str, Any] = {
        "schema": f"rmqtool.{command}/1",
        "command": command,
        "store": style.store,
        "result": result,
        "findings": [finding.as_json() for finding in findings],
        "exit": {"code": int(status), "name": status.label},
    }
    if error:
        document["error"] = Error.of(error)
    return json_text(with_int64(document, style.int64), indent=None if in_one_line else 2) + "\n"


def write_line(style: Style, value: dict[str, Any]) -> None:
    """Print one JSON line."""
    style.lines_begun = True
    write_text(json_text(with_int64(value, style.int64)) + "\n")


def write_text(text: str) -> None:
    """Print text that is complete with its line ends."""
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))


def terminal_width() -> int | None:
    """Columns of the terminal that reads standard output; None where none does."""
    return max(_NARROWEST, get_terminal_size().columns) if sys.stdout.isatty() else None


def write_bytes(data: bytes | memoryview) -> None:
    """Print bytes that are complete with their line ends."""
    sys.stdout.buffer.write(data)


def flush() -> None:
    """Flush standard output; raise BrokenPipeError when nobody reads it any more, which a later write would show."""
    sys.stdout.flush()
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):  # a stream in memory
        return
    waiting = select.poll()
    waiting.register(descriptor, 0)
    if any(event & select.POLLERR for _, event in waiting.poll(0)):
        raise BrokenPipeError


def write_error(style: Style, command: str, error: RmqtoolError) -> None:
    """Print an error and its hint: for people on stderr, for programs as JSON on stdout."""
    if style.json and style.lines_begun:
        write_line(style, {**Error.of(error), "kind": "error", "error": error.kind})
        return
    if style.json:
        write_text(document_text(style, command, None, status=error.status, error=error))
        return
    colored = style.wants_color(sys.stderr)
    message = folded(f"rmqtool: {visible(sentence(str(error)))}")
    click.echo(click.style(message, fg="red") if colored else message, err=True, color=colored)
    if error.hint:
        click.echo(folded(visible(sentence(error.hint)), indent="  "), err=True)


def note(text: str) -> None:
    """A sentence beside the data, on stderr; names in it do not drive the terminal."""
    click.echo(folded("\n".join(map(visible, sentence(text).split("\n")))), err=True)


def folded(text: str, indent: str = "") -> str:
    """`text` for stderr: a terminal gets it wrapped between words, but a command that ends a line in one piece."""
    columns = os.get_terminal_size(sys.stderr.fileno()).columns if sys.stderr and sys.stderr.isatty() else 0
    if not columns:  # a terminal without a size, too
        return indent + text
    width = max(_NARROWEST, columns)
    return "\n".join("\n".join(wrapped(line, width, indent, commands=True)) for line in text.split("\n"))


def table(title: str, columns: str, rows: Iterable[Sequence[object]]) -> Table:
    """A table without frame; `columns` are names with commas between, ``>`` after those whose cells stand at the right.

    Texts are folded where the terminal is narrow, numbers and times are not.
    Only cells with a style are Text, which takes ten times the memory of a string: there may be 10,000 topics.
    """
    from rich.table import Table
    from rich.text import Text

    from rmqtool.show.tables import is_time, plain

    cells = [[cell if isinstance(cell, Text) else visible(str(cell)) for cell in row] for row in rows]
    shown = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")
    for index, name in enumerate(columns.split(", ")):
        is_right = name.endswith(">")
        is_whole = is_right or is_time([plain(row[index]) for row in cells])
        justify: Literal["left", "right"] = "right" if is_right else "left"
        shown.add_column(name.removesuffix(">"), justify=justify, overflow="fold", no_wrap=is_whole)
    for row in cells:
        shown.add_row(*row)
    return shown


def show_table(console: Console, shown: Table) -> None:
    """Print a table without the blanks that rich puts after the last column; on a narrow terminal row by row."""
    from rmqtool.show.tables import fits, is_unfolded, record_lines, table_lines

    if sys.stdout.isatty() and not fits(shown, console.width):
        for line in record_lines(shown, console):
            console.print(line, soft_wrap=True)
        return
    if is_unfolded(shown, console.width):
        lines = [*table_lines(shown, console)]
    else:
        with console.capture() as captured:
            console.print(shown)
        lines = [line.rstrip() for line in captured.get().splitlines()]
    console.file.write("".join(f"{line}\n" for line in lines))


def show_rows(console: Console, title: str, columns: str, rows: Iterable[Sequence[object]]) -> None:
    """A table below its title, which may be wider than the table."""
    print_lines(console, title)
    show_table(console, table("", columns, rows))


def show_apart(console: Console, title: str, columns: str, rows: Iterable[Sequence[object]]) -> None:
    """A table after an empty line."""
    console.print()
    show_table(console, table(title, columns, rows))


def show_effect(console: Console, finding: Finding) -> None:
    """Print what the broker does about a finding, on a line of its own; nothing where it does nothing."""
    from rich.text import Text

    if finding.effect != "none":
        print_labelled(console, Text("  broker: ", style="dim"), sentence(finding.effect), style="dim")


def show_finding(console: Console, finding: Finding) -> None:
    """Print one finding in a few lines: what, with the code to explain, what the broker does, what to run."""
    from rich.text import Text

    head = Text(f"{finding.severity}: ", style=SEVERITY_STYLES[finding.severity])
    message = sentence(finding.message)
    text = f"{finding.file}: {message}" if finding.file else message
    print_labelled(console, head, f"{text} ({finding.code})")
    show_effect(console, finding)
    if finding.remedy:
        print_labelled(console, Text("  next: "), finding.remedy)


def print_fact(
    console: Console, label: str, text: str, style: str = "", *, label_style: str = "dim", width: int = 12
) -> None:
    """Print `text` after its label of so many columns, one of several facts below each other."""
    from rich.text import Text

    print_labelled(console, Text(f"{label:<{width}} ", style=label_style), text, style)


def print_lines(console: Console, *lines: str) -> None:
    """Print lines as they are, however long."""
    for line in lines:
        console.print(visible(line), soft_wrap=True)


def print_labelled(console: Console, head: Text, text: str, style: str = "") -> None:
    """Print `text` after `head`; a terminal gets it wrapped between words, but a long path in one piece."""
    from rich.text import Text

    lines = [visible(text)]
    if sys.stdout.isatty():
        width = max(1, console.width - head.cell_len)
        lines = wrapped(lines[0], width) or lines  # a head alone, as a verdict without more to say
    for line in lines:
        console.print(Text.assemble(head, (line, style)), soft_wrap=True)
        head = Text(" " * head.cell_len)
