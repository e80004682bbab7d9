"""Options that several commands share, spelt once."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import RateLimit
from rmqtool.base.numbers import JOBS
from rmqtool.base.times import parse_time, parse_zone
from rmqtool.broker.trigger import MAX_TIME
from rmqtool.commands.completion import complete_from, releases, time_zones
from rmqtool.rules.broker_conf import BrokerConf, read_broker_conf
from rmqtool.rules.versions import Version, parse_version
from rmqtool.show.output import Style
from rmqtool.show.times import show_times_in, shown_zone

F = TypeVar("F", bound=Callable[..., Any])

_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]i?)?b?(?:/s)?", re.IGNORECASE | re.ASCII)
_SIZE = re.compile(r"(\d+)\s*(?:([kmg])(?:i?b)?)?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_FACTORS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30}


def size_of_at_least(least: int) -> Callable[[click.Context, click.Parameter, str], int]:
    """A callback that reads a size such as ``64MiB``, bytes."""

    def callback(ctx: click.Context, param: click.Parameter, value: str) -> int:
        match = _SIZE.fullmatch(value.strip())
        size = int(match[1]) * _UNITS[(match[2] or "").lower()] if match else -1
        if size < least:
            shown = f" of at least {least >> 20}MiB" if least >> 20 else ""
            raise click.BadParameter(f"{value!r} is not a size{shown}", ctx, param)
        return size

    return callback


def _spark_conf(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """The callback of an option for settings of Spark, ``NAME=VALUE``."""
    settings = {}
    for value in values:
        name, separator, setting = value.partition("=")
        if not separator or not name.strip():
            raise click.BadParameter(f"{value!r} is not NAME=VALUE", ctx, param)
        settings[name.strip()] = setting
    return settings


def spark_options(command: F) -> F:
    """``--master`` and ``--conf``, for commands that Spark may do."""
    for option in (
        click.option("--conf", multiple=True, callback=_spark_conf, metavar="NAME=VALUE",
                     help="A setting of Spark. Repeatable."),
        click.option("--master", metavar="URL",
                     help="Spark's master. Default: local[*], all cores of this machine."),
    ):  # fmt: skip
        command = option(command)
    return command


def time_of(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """The callback of an option for a time, epoch ms; in the zone of ``--time-zone``, wherever that stands."""
    try:
        return None if value is None else parse_time(value, zone=shown_zone())
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error


def time_from(text: str, option: str, now: int) -> int:
    """The time that an option gives, epoch ms; distances are from `now`, which another option may have given."""
    try:
        return parse_time(text, now, shown_zone())
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=repr(option)) from error


def _rate(ctx: click.Context, param: click.Parameter, value: str | None) -> RateLimit | None:
    """Bytes per second: ``50MiB``, ``200M``, ``1048576``."""
    if value is None:
        return None
    match = _RATE.fullmatch(value.strip())
    rate = int(float(match[1]) * _FACTORS[(match[2] or "").lower()]) if match else 0
    if rate <= 0:
        raise click.BadParameter(f"{value!r} is not a rate; examples: 50MiB, 200M (bytes per second)", ctx, param)
    return RateLimit(rate)


def _version(ctx: click.Context, param: click.Parameter, value: str | None) -> Version | None:
    try:
        return None if value is None else parse_version(value)
    except RmqtoolError as error:
        raise click.BadParameter(error.message, ctx, param) from error


def _conf(ctx: click.Context, param: click.Parameter, value: Path | None) -> BrokerConf:
    return BrokerConf() if value is None else read_broker_conf(value)


def _in_calendar(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    time = time_of(ctx, param, value)
    if time is not None and not 0 <= time <= MAX_TIME:
        raise click.BadParameter(f"{value!r} is not between the years 1970 and 9999", ctx, param)
    return time


now_option = click.option(
    "--now",
    callback=_in_calendar,
    metavar="TIME",
    help="Answer for this time: '2026-11-21 04:00', tomorrow, +2h, with Z in UTC. Default: the clock.",
)
"""The time at which a command answers, the argument `now`: epoch ms, None for the clock."""


def _remember(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    """A callback that stores a global option's value in the Style, whether it stands before or after the command."""

    def callback(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if _counts(ctx, param):
            setattr(ctx.ensure_object(Style), name, value)

    return callback


def _time_zone(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None and _counts(ctx, param):
        try:
            show_times_in(parse_zone(value))
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from error


def _counts(ctx: click.Context, param: click.Parameter) -> bool:
    """Whether this value of a global option counts: the command line comes before the environment."""
    return _is_given(ctx, param) or (_is_in_environment(ctx, param) and not _is_given(ctx.parent, param))


def _is_given(ctx: click.Context | None, param: click.Parameter) -> bool:
    return ctx is not None and ctx.get_parameter_source(param.name or "") is click.core.ParameterSource.COMMANDLINE


def _is_in_environment(ctx: click.Context, param: click.Parameter) -> bool:
    return ctx.get_parameter_source(param.name or "") is click.core.ParameterSource.ENVIRONMENT


def _count_quiet(ctx: click.Context, param: click.Parameter, value: int) -> None:
    ctx.ensure_object(Style).verbosity += value if param.name == "verbose" else -value


def _without_pager(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value:
        ctx.ensure_object(Style).pager = False


def global_options(command: F) -> F:
    """Options of every command, accepted before and after its name."""
    for option in reversed(
        (
            click.option("--json", "as_json", is_flag=True, expose_value=False, callback=_remember("json"),
                         envvar="RMQTOOL_JSON", help="Print JSON: one document, or one object per line for lists."),
            click.option("--int64", type=click.Choice(["number", "string"]), default="number", expose_value=False,
                         callback=_remember("int64"), show_default=True,
                         help="64-bit numbers in JSON: as text for programs that round them, such as JavaScript."),
            click.option("--time-zone", is_eager=True, expose_value=False, callback=_time_zone, metavar="ZONE",
                         shell_complete=complete_from(time_zones),
                         help="Zone of times, shown and given, such as Asia/Shanghai, +08:00 or UTC; JSON has UTC. "
                         "Default: this machine's."),
            click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", expose_value=False,
                         callback=_remember("color"), show_default=True,
                         help="Colour text; NO_COLOR and FORCE_COLOR are obeyed."),
            click.option("--progress", type=click.Choice(["auto", "json", "never"]), default="auto",
                         expose_value=False, callback=_remember("progress"), show_default=True,
                         help="Progress on stderr: a bar on a terminal, or a JSON line each second."),
            click.option("--no-pager", is_flag=True, is_eager=True, expose_value=False, callback=_without_pager,
                         envvar="RMQTOOL_NO_PAGER", help="Print to the terminal itself, however long it gets."),
            click.option("-q", "--quiet", count=True, expose_value=False, callback=_count_quiet,
                         help="Results only: no progress, no notes."),
            click.option("-v", "--verbose", count=True, expose_value=False, callback=_count_quiet,
                         help="Show more detail."),
        )
    ):  # fmt: skip
        command = option(command)
    return command


def jobs_option(*, default: int | None = 1) -> Callable[[F], F]:
    """``--jobs N``, the argument `jobs`; without a `default` None, for all cores."""
    shown = "1" if default else "all cores"
    return click.option("-j", "--jobs", type=click.IntRange(*JOBS), default=default, metavar="N",
                        help=f"Work with N processes; the result is the same. Default: {shown}.")  # fmt: skip


def store_options(command: F) -> F:
    """Options of every command on a store."""
    for option in reversed(
        (
            click.option("--broker-version", callback=_version, metavar="VERSION",
                         shell_complete=complete_from(releases),
                         help="Release of the broker, such as 5.3 or 5.3.3. Default: the newest that fits."),
            click.option("--broker-conf", type=click.Path(path_type=Path), callback=_conf, metavar="FILE",
                         help="The broker's broker.conf: several commit log paths, index geometry."),
            click.option("--limit-rate", callback=_rate, metavar="RATE",
                         help="Read at most this many bytes per second, such as 50MiB: for a disk that a broker uses."),
        )
    ):  # fmt: skip
        command = option(command)
    return command
