"""A group of commands whose modules are loaded when a command is called: the help of the group needs none."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

from rmqtool.commands.help_page import HelpPage

_AROUND_COLUMNS = 6  # of a line of help: before, between and after a command's name and its help


class LazyGroup(HelpPage, click.Group):
    """A group of commands in `sections`: for each name the first sentence of its help, and ``module:attribute``."""

    def __init__(self, *args: Any, sections: Mapping[str, Mapping[str, tuple[str, str]]], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.sections = sections
        self.modules = {name: module for section in sections.values() for name, module in section.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands."""
        return sorted(self.modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command, loaded; None when there is none of this name."""
        if cmd_name not in self.modules:
            return None
        module, _, attribute = self.modules[cmd_name][1].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is called; an unknown name gets the nearest ones."""
        if args and not args[0].startswith("-"):
            self.required(ctx, args[0])
        return super().resolve_command(ctx, args)

    def required(self, ctx: click.Context, name: str) -> click.Command:
        """The command `name`; without one a usage error with the nearest names."""
        command = self.get_command(ctx, name)
        if command is None:
            near = get_close_matches(name, self.modules, cutoff=0.65)
            ctx.fail(f"no command {name}" + (f" (did you mean {' or '.join(near)}?)" if near else ""))
        return command

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands before the options."""
        self.format_commands(ctx, formatter)
        super().format_options(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands in their sections."""
        longest = max(map(len, self.modules))
        limit = formatter.width - _AROUND_COLUMNS - longest
        for title, section in self.sections.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(name.ljust(longest), click.Command(name, help=text).get_short_help_str(limit))
                     for name, (text, _) in section.items()]
                )  # fmt: skip
