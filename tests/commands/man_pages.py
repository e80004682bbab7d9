"""docs/man from the help of the commands: ``python -m tests.commands.man_pages`` writes it, a test holds it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import click

from rmqtool.cli import cli
from rmqtool.commands.help_page import HelpPage, LazyGroup

FOLDER = Path(__file__).parents[2] / "docs" / "man"
_WIDTH = 1000  # columns: man folds the lines itself


def pages() -> dict[str, str]:
    """Each page by its file's name: of the program, and of each command."""
    program = click.Context(cli, info_name="rmqtool", terminal_width=_WIDTH, **cli.context_settings)
    found = {"rmqtool.1": _page(program, "rmqtool", "inspect and repair the store of a RocketMQ broker")}
    for name, (summary, _) in cli.modules.items():
        command = cli.required(program, name)
        context = click.Context(command, program, info_name=name, terminal_width=_WIDTH)
        found[f"rmqtool-{name}.1"] = _page(context, f"rmqtool-{name}", summary.rstrip("."))
    return found


def _page(context: click.Context, name: str, summary: str) -> str:
    return "\n".join(_lines(context, name, summary)) + "\n"


def _lines(context: click.Context, name: str, summary: str) -> Iterator[str]:
    command = cast(HelpPage, context.command)
    yield f'.TH {name.upper()} 1 "" rmqtool "Store tools for Apache RocketMQ"'
    yield from (".SH NAME", f"{_text(name)} \\- {_text(summary)}")
    yield from (".SH SYNOPSIS", f".B {_text(context.command_path)}")
    yield _text(" ".join(command.collect_usage_pieces(context)))
    yield from (".SH DESCRIPTION", *_paragraphs(command.help or ""))
    examples, _, statuses = (command.epilog or "").partition("\n\n")
    yield from (".SH EXAMPLES", ".nf", *map(_text, _indented(examples)), ".fi")
    if isinstance(command, LazyGroup):
        yield from _commands(command)
    yield ".SH OPTIONS"
    for title, rows in command.option_groups(context):
        yield f".SS {_text(title)}"
        for option, meaning in rows:
            yield from (".TP", f".B {_text(option)}", _text(meaning))
    yield ".SH EXIT STATUS"
    for line in _indented(statuses):
        status, _, meaning = line.partition(" ")
        yield from (".TP", f".B {status}", _text(meaning.strip()))
    others = ["rmqtool"] if name != "rmqtool" else [f"rmqtool-{each}" for each in cli.modules]
    yield from (".SH SEE ALSO", ", ".join(f"{_text(each)}(1)" for each in others))


def _commands(group: LazyGroup) -> Iterator[str]:
    yield ".SH COMMANDS"
    for title, section in group.sections.items():
        yield f".SS {_text(title)}"
        for name, (summary, _) in section.items():
            yield from (".TP", f".B {_text(name)}", _text(summary))


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        yield from (".PP", _text(" ".join(paragraph.split())))


def _indented(paragraph: str) -> list[str]:
    return [line.strip() for line in paragraph.splitlines() if line.startswith("  ")]


def _text(text: str) -> str:
    """As roff has it: a line must not begin with a control character, and hyphens of options are to be copied."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    return f"\\&{escaped}" if escaped.startswith(".") else escaped


def main() -> None:
    """Write all pages."""
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.1"):
        old.unlink()
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
