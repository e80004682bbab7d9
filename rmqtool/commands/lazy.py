"""A group of commands whose modules are loaded when a command is called: the help of the group needs none."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

_AROUND_COLUMNS = 6  # of a line of help: before, between and behind a command's name and its help


class LazyGroup(click.Group):
    """A group whose commands are `modules`: for each name the first sentence of its help, and ``module:attribute``."""

    def __init__(self, *args: Any, modules: Mapping[str, tuple[str, str]], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.modules = modules

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
        if args and args[0] not in self.modules and not args[0].startswith("-"):
            near = get_close_matches(args[0], self.modules, cutoff=0.65)
            ctx.fail(f"no command {args[0]}" + (f" (did you mean {' or '.join(near)}?)" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands in the group's help, as click writes it."""
        limit = formatter.width - _AROUND_COLUMNS - max(map(len, self.modules))
        rows = [
            (name, click.Command(name, help=self.modules[name][0]).get_short_help_str(limit))
            for name in self.list_commands(ctx)
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
