"""How the help of a command reads: what it does, examples, options in groups, exit statuses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import click

from rmqtool.base.errors import Exit
from rmqtool.show.output import Style
from rmqtool.show.pager import begin_paging

WIDTH = 100  # columns at most

_EVERY = "Options of every command"
_GROUPS: Mapping[str, tuple[str, ...]] = {
    "Which messages": (
        *(
            "topic",
            "exclude-topic",
            "queue",
            "tag",
            "key",
            "transaction",
            "from",
            "to",
            "from-offset",
            "to-offset",
            "due-before",
        ),
        *("group", "kind", "unique-key", "id", "offset", "queue-offset", "time", "where", "body-contains", "include"),
        *("hash-matches",),
    ),
    "Which messages, by what became of them": ("unconsumed-by", "dead-letters-of", "delays", "include-replays"),
    "What is sent of them, and where": ("to-topic", "to-retry-topic", "keep-dispatch", "empty-bodies"),
    "How it is sent": (
        *("look-up", "send-again", "rate", "batch", "loose-born-time", "keep-going", "timeout", "patience"),
        *("acl-file", "tls", "tls-ca", "tls-cert", "tls-key", "tls-no-verify"),
    ),
    "How it is shown": (
        *("limit", "reverse", "follow", "hex", "columns", "format", "count", "slots", "body", "body-format"),
        *("decoder", "max-examples", "only", "skip", "list", "all-runs", "save-body"),
        *("redact", "redact-as", "redact-salt"),
    ),
    "The cleaner's settings, in the place of those of broker.conf": (
        *("file-reserved-time", "delete-when", "disk-max-used-space-ratio", "disk-space-warning-level-ratio"),
        *("disk-space-clean-forcibly-ratio", "delete-file-batch-max", "clean-resource-interval"),
        *("replicas-per-disk-partition", "logical-disk-space-clean-forcibly-threshold", "clean-file-forcibly-enable"),
    ),
    "The broker, and the machine": (
        *("broker-version", "broker-conf", "allow-older-release", "jobs", "limit-rate"),
        *("time-limit", "sample", "resume"),
    ),
    "Spark": ("engine", "master", "conf", "split-size"),
    _EVERY: ("json", "int64", "time-zone", "color", "progress", "no-pager", "quiet", "verbose", "version", "help"),
}
_GROUP_OF = {name: group for group, names in _GROUPS.items() for name in names}
_OTHER_NAMES = {
    "--limit": ("--max", "--max-examples"),
    "--max": ("--limit", "--max-examples"),
    "--out": ("--output",),
    "--output-dir": ("--output",),
    "--queue-id": ("--queue",),
    "--msgid": ("--msg-id",),
    "--since": ("--from", "--time"),
    "--until": ("--to",),
    "--begin": ("--from",),
    "--end": ("--to",),
    "--threads": ("--jobs",),
    "--release": ("--broker-version",),
    "--config": ("--broker-conf",),
}
"""Options as other tools and commands call them, and ours."""
_RANGE = re.compile(r"(?:; )?[-<=\d]*\bx[<>=]+-?\d+")  # of numbers, which an error tells whom it concerns
_EMPTY = re.compile(r" *\[\]")


class HelpPage(click.Command):
    """A command whose examples stand before its options, which stand in groups."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The options; one that another tool, or another command, calls otherwise is named."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            ours = {name for option in self.get_params(ctx) for name in option.opts}
            meant = [name for name in _OTHER_NAMES.get(error.option_name, ()) if name in ours]
            if not meant:
                raise
            message = f"No such option '{error.option_name}'. Did you mean '{meant[0]}'?"
            raise click.NoSuchOption(error.option_name, message, ctx=ctx) from None

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
            with formatter.section(group):
                formatter.write_dl(lines)

    def option_groups(self, ctx: click.Context) -> list[tuple[str, list[tuple[str, str]]]]:
        """The title of each group that is not empty, and its options with their meanings."""
        rows: dict[str, list[tuple[str, str]]] = {"Options": [], **{group: [] for group in _GROUPS}}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx) if isinstance(option, click.Option) else None
            if record is not None:
                rows[_group_of(option)].append((record[0], _EMPTY.sub("", _RANGE.sub("", record[1]))))
        return [(group, lines) for group, lines in rows.items() if lines]


def examples_and_statuses(examples: Sequence[str], statuses: Mapping[Exit, str]) -> str:
    """The epilog of a command: examples to copy, and what its exit statuses mean."""
    shown = [f"  {example}" for example in examples]
    meanings = [f"  {int(status):<4} {meaning}" for status, meaning in statuses.items()]
    return "\n".join(("\b", "Examples:", *shown, "", "\b", "Exit statuses:", *meanings))


def _show_help(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value and not ctx.resilient_parsing:
        begin_paging(ctx.ensure_object(Style))
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def _group_of(option: click.Parameter) -> str:
    longest = max(option.opts, key=len)
    if longest == "--to" and isinstance(option.type, click.Choice):
        return "Options"  # where a rebuild puts the queues, and no time
    return _GROUP_OF.get(longest.removeprefix("--"), "Options")


def _write(formatter: click.HelpFormatter, paragraph: str) -> None:
    if paragraph:
        formatter.write_paragraph()
        formatter.write_text(paragraph)
