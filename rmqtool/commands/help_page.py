"""How the help of a command reads: what it does, examples, options in groups, exit statuses; commands in sections.

The modules of commands are loaded when they are called: the help of their group needs none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from types import MappingProxyType
from typing import Any

import click

from rmqtool.base.errors import Exit
from rmqtool.show.output import Style
from rmqtool.show.pager import begin_paging

WIDTH = 100  # columns at most
_AROUND_COLUMNS = 6  # of a line of help: before, between and after a command's name and its help

_EVERY = "Options of every command"
_GROUPS: Mapping[str, tuple[str, ...]] = {
    "Which messages": (
        *("topic", "exclude-topic", "queue", "tag", "key", "transaction", "from", "to", "from-offset", "to-offset"),
        *("due-before", "hash-matches"),
        *("group", "kind", "unique-key", "id", "offset", "queue-offset", "time", "where", "body-contains", "include"),
    ),
    "Which messages, by their state": ("unconsumed-by", "dead-letters-of", "delays", "include-replays"),
    "Destination": ("to-topic", "to-retry-topic", "keep-dispatch", "empty-bodies"),
    "How it is sent": (
        *("look-up", "send-again", "rate", "batch", "loose-born-time", "keep-going", "timeout", "patience"),
        *("acl-file", "tls", "tls-ca", "tls-cert", "tls-key", "tls-no-verify"),
    ),
    "How it is shown": (
        *("limit", "reverse", "follow", "hex", "columns", "format", "count", "slots", "body", "body-format"),
        *("decoder", "max-examples", "only", "skip", "list", "all-runs", "save-body"),
        *("redact", "redact-as", "redact-salt"),
    ),
    "Settings of the cleaner, instead of those in broker.conf": (
        *("file-reserved-time", "delete-when", "disk-max-used-space-ratio", "disk-space-warning-level-ratio"),
        *("disk-space-clean-forcibly-ratio", "delete-file-batch-max", "clean-resource-interval"),
        *("replicas-per-disk-partition", "logical-disk-space-clean-forcibly-threshold", "clean-file-forcibly-enable"),
    ),
    "The broker, and the machine": (
        *("broker-version", "broker-conf", "allow-older-release", "tiered-path", "jobs", "limit-rate", "memory"),
        *("time-limit", "sample", "resume"),
    ),
    "Spark": ("engine", "master", "conf", "split-size"),
    _EVERY: ("json", "int64", "time-zone", "color", "progress", "no-pager", "quiet", "verbose", "version", "help"),
}
_GROUP_OF = {name: group for group, names in _GROUPS.items() for name in names}
_RANGE = re.compile(r"(?:; )?[-<=\d]*\bx[<>=]+-?\d+")  # of numbers, which an error tells whom it concerns
_EMPTY = re.compile(r" *\[\]")
_VERBOSE = "rmqtool.verbose-help"


class HelpPage(click.Command):
    """A command whose examples come before its options, which are in groups: its own `groups` first.

    The options of every command are one line, unless the help is verbose: `rmqtool --help` explains them.
    """

    def __init__(self, *args: Any, groups: Mapping[str, Sequence[str]] = MappingProxyType({}), **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.groups = groups

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The options; one that another tool, or another command, calls otherwise is named."""
        ctx.meta[_VERBOSE] = not {"-v", "--verbose"}.isdisjoint(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            from rmqtool.commands.other_names import OTHER_OPTIONS

            ours = {name for option in self.get_params(ctx) for name in option.opts}
            meant = [name for name in OTHER_OPTIONS.get(error.option_name, ()) if name in ours]
            others = [] if meant else _commands_with(error.option_name, ctx)
            if not meant and not others:
                raise
            hint = f"Did you mean '{meant[0]}'?" if meant else f"It is one of {' and '.join(others)}."
            raise click.NoSuchOption(
                error.option_name, f"No such option '{error.option_name}'. {hint}", ctx=ctx
            ) from None

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The whole page."""
        examples, _, statuses = (self.epilog or "").partition("\n\n")
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        _write(formatter, examples)
        self.format_options(ctx, formatter)
        _write(formatter, statuses)

    def get_help_option_names(self, ctx: click.Context) -> list[str]:
        """Those of all commands: click keeps the option that the first context gives, however a command is called."""
        return ["-h", "--help"]

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """The option of the help, which is longer than most screens."""
        option = super().get_help_option(ctx)
        if option:
            option.callback = _show_help
        return option

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options, those of this command alone first."""
        for group, lines in self.option_groups(ctx):
            if group == _EVERY and len(lines) > 1 and ctx.parent is not None and not _is_verbose(ctx):
                with formatter.section(f"{group} (rmqtool --help explains them)"):
                    formatter.write_text(", ".join(option.split(maxsplit=1)[0].rstrip(",") for option, _ in lines))
                continue
            with formatter.section(group):
                formatter.write_dl(lines)

    def option_groups(self, ctx: click.Context) -> list[tuple[str, list[tuple[str, str]]]]:
        """The title of each group that is not empty, and its options with their meanings."""
        rows: dict[str, list[tuple[str, str]]] = {group: [] for group in (*self.groups, "Options", *_GROUPS)}
        own = {name: group for group, names in self.groups.items() for name in names}
        order = {name: place for place, name in enumerate(own)}
        for option in sorted(self.get_params(ctx), key=lambda each: order.get(_longest(each), len(order))):
            record = option.get_help_record(ctx) if isinstance(option, click.Option) else None
            if record is not None:
                group = own.get(_longest(option)) or _group_of(option)
                rows[group].append((record[0], _EMPTY.sub("", _RANGE.sub("", record[1]))))
        return [(group, lines) for group, lines in rows.items() if lines]


def _commands_with(option: str, ctx: click.Context) -> list[str]:
    """The commands that have an option which this one does not have."""
    group = ctx.find_root().command
    if not isinstance(group, LazyGroup):
        return []
    commands = ((name, group.get_command(ctx, name)) for name in group.modules)
    return [f"rmqtool {name}" for name, each in commands
            if each is not None and any(option in param.opts for param in each.params)]  # fmt: skip


def examples_and_statuses(examples: Sequence[str], statuses: Mapping[Exit, str]) -> str:
    """The epilog of a command: examples to copy, and what its exit statuses mean."""
    shown = [f"  {example}" for example in examples]
    meanings = [f"  {int(status):<4} {meaning}" for status, meaning in statuses.items()]
    return "\n".join(("\b", "Examples:", *shown, "", "\b", "Exit statuses:", *meanings))


def _is_verbose(ctx: click.Context) -> bool:
    """Whether ``--verbose`` is given, before the command or after it."""
    return bool(ctx.meta.get(_VERBOSE)) or ctx.ensure_object(Style).verbosity > 0


def _show_help(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value and not ctx.resilient_parsing:
        begin_paging(ctx.ensure_object(Style))
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def _group_of(option: click.Parameter) -> str:
    if _longest(option) == "to" and isinstance(option.type, click.Choice):
        return "Options"  # where a rebuild puts the queues, and no time
    return _GROUP_OF.get(_longest(option), "Options")


def _longest(option: click.Parameter) -> str:
    return max(option.opts, key=len).removeprefix("--")


def _write(formatter: click.HelpFormatter, paragraph: str) -> None:
    if paragraph:
        formatter.write_paragraph()
        formatter.write_text(paragraph)


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
        """The command `name`; without one a usage error with what leads to it, or the nearest names."""
        command = self.get_command(ctx, name)
        if command is None:
            from rmqtool.commands.other_names import OTHER_COMMANDS

            if meant := OTHER_COMMANDS.get(name.lower()):
                ctx.fail(f"no command {name}; try: rmqtool {meant}")
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
