"""A command's options: each is a field of one frozen dataclass, which click fills and the command is given."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import click

import rmqtool
from rmqtool.base.errors import Exit, RmqtoolError
from rmqtool.base.files import RateLimit
from rmqtool.base.numbers import JOBS
from rmqtool.base.times import parse_time, parse_zone
from rmqtool.broker.trigger import MAX_TIME
from rmqtool.commands.completion import complete_from, releases, time_zones
from rmqtool.commands.help_page import HelpPage, examples_and_statuses
from rmqtool.rules.broker_conf import BrokerConf, read_broker_conf
from rmqtool.rules.versions import Version, parse_version
from rmqtool.show.output import Style
from rmqtool.show.times import show_times_in, shown_zone

if TYPE_CHECKING:
    from rmqtool.library.store import Store as OpenedStore

F = TypeVar("F", bound=Callable[..., Any])
V = TypeVar("V")
R = TypeVar("R")
OptionsT = TypeVar("OptionsT", bound="Options")

_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]i?)?b?(?:/s)?", re.IGNORECASE | re.ASCII)
_SIZE = re.compile(r"(\d+)\s*(?:([kmg])(?:i?b)?)?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_FACTORS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30}


@dataclass(frozen=True)
class _Declared:
    """What a field is made of: click's parameters for its name, and a function that makes one value of theirs.

    The function is given the values by the names of their parameters, and the fields above this one.
    """

    parameters: Callable[[str], Sequence[click.Parameter]]
    made: Callable[[Mapping[str, Any], Mapping[str, Any]], Any] | None = None
    words: Callable[[Any], list[str]] | None = None


def option(help_text: str, *names: str, default: Any = None, show_default: bool = True, **settings: Any) -> Any:
    """A field that is an option, of the field's name unless `names` are given."""

    def parameters(name: str) -> list[click.Parameter]:
        long = [] if any(each.startswith("--") for each in names) else [f"--{name.replace('_', '-')}"]
        # Of an option that is required, None would be taken for its value.
        usual = {} if default is None else {"default": default, "show_default": show_default}
        return [click.Option([name, *names, *long], help=help_text, **usual, **settings)]

    return field(metadata={"declared": _Declared(parameters)})


def flag(help_text: str, *names: str, **settings: Any) -> Any:
    """A field that is true where its option is given."""
    return option(help_text, *names, default=False, show_default=False, is_flag=True, **settings)


def argument(metavar: str | None, kind: click.ParamType[Any] | None = None, **settings: Any) -> Any:
    """A field that stands on the command line without a name; one that chooses defaults comes before all options."""
    settings.setdefault("is_eager", getattr(kind, "chooses_defaults", False))
    make = _Declared(lambda name: [click.Argument([name], metavar=metavar, type=kind, **settings)])
    return field(metadata={"declared": make})


def joined(
    parameters: Sequence[click.Parameter],
    made: Callable[[Mapping[str, Any], Mapping[str, Any]], Any],
    words: Callable[[Any], list[str]] | None = None,
) -> Any:
    """A field whose one value is made of those of several options; `words` are these options of such a value."""
    return field(metadata={"declared": _Declared(lambda _: parameters, made, words)})


@dataclass(frozen=True, kw_only=True)
class Options:
    """The arguments and options of a command."""

    @property
    def named(self) -> str | None:
        """The store that the command was given."""
        return None

    def words(self, *names: str) -> tuple[str, ...]:
        """What was given in the options `names`, as words of a command line that gives it again."""
        by_name = {each.name: each for each in declared_fields(type(self))}
        asked = (by_name[name] for name in names if name in by_name)
        return tuple(word for each in asked for word in _words_of(each, getattr(self, each.name)))


def declared_fields(options: type[Options]) -> list[Field[Any]]:
    """The fields of a command in the order of its help: its own ones, then those that it has in common with others."""
    by_name = {each.name: each for each in fields(options) if each.metadata}
    own = dict.fromkeys(name for kind in options.__mro__ for name in vars(kind).get("__annotations__", ()))
    return [by_name[name] for name in own if name in by_name]


def _words_of(of: Field[Any], value: Any) -> Iterator[str]:
    declared: _Declared = of.metadata["declared"]
    if declared.words:
        yield from declared.words(value)
        return
    [parameter] = declared.parameters(of.name)
    for each in value if type(value) is tuple else (value,):  # a Version is one, too
        yield from _word(parameter, each)


def _word(parameter: click.Parameter, value: Any) -> Iterator[str]:
    if isinstance(value, BrokerConf):
        value = value.path
    if value is None or value is False or value == parameter.default:
        return
    if isinstance(parameter, click.Option):
        yield max(parameter.opts, key=len)
    if value is not True:
        yield str(value.bytes_per_second if isinstance(value, RateLimit) else value)


def command(
    name: str,
    options: type[OptionsT],
    examples: Sequence[str],
    statuses: Mapping[Exit, str],
    groups: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Callable[[Callable[[Style, OptionsT], int]], click.Command]:
    """Make a function a command that gets its `options`; its docstring is the help, in which `groups` come first."""
    statuses = {**statuses, Exit.NOT_A_STORE: statuses.get(Exit.NOT_A_STORE, "not a RocketMQ store")}
    found = [(each.name, each.metadata["declared"]) for each in declared_fields(options)]
    parameters = {each: declared.parameters(each) for each, declared in found}
    in_order = [parameter for each in parameters.values() for parameter in each]

    def decorate(run: Callable[[Style, OptionsT], int]) -> click.Command:
        def callback(style: Style, /, **given: Any) -> int:
            made: dict[str, Any] = {}
            for each, declared in found:
                made[each] = declared.made(given, made) if declared.made else given[each]
            filled = options(**made)
            style.store = filled.named
            return run(style, filled)

        callback.__doc__ = run.__doc__
        epilog = examples_and_statuses(examples, statuses)
        make = click.command(name, cls=HelpPage, epilog=epilog, params=in_order, groups=groups)
        return make(global_options(click.pass_obj(callback)))

    return decorate


def is_given(name: str) -> bool:
    """Whether an option was given on the command line, and not by the environment."""
    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE


def parsed(read: Callable[[V], R]) -> Callable[[click.Context, click.Parameter, V | None], R | None]:
    """A callback that gives what `read` makes of a value; its ValueError says what is wrong. None stays None."""

    def callback(ctx: click.Context, param: click.Parameter, value: V | None) -> R | None:
        try:
            return None if value is None else read(value)
        except RmqtoolError as error:
            raise click.BadParameter(error.message, ctx, param) from error
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from error

    return callback


def size_of_at_least(least: int) -> Callable[[click.Context, click.Parameter, str | None], int | None]:
    """A callback that reads a size such as ``64MiB``, bytes; None without one."""

    @parsed
    def size_of(value: str) -> int:
        match = _SIZE.fullmatch(value.strip())
        size = int(match[1]) * _UNITS[(match[2] or "").lower()] if match else -1
        if size < least:
            shown = f" of at least {least >> 20}MiB" if least >> 20 else ""
            raise ValueError(f"{value!r} is not a size{shown}")
        return size

    return size_of


@parsed
def _spark_conf(values: tuple[str, ...]) -> dict[str, str]:
    """Settings of Spark, ``NAME=VALUE``."""
    settings = {}
    for value in values:
        name, separator, setting = value.partition("=")
        if not separator or not name.strip():
            raise ValueError(f"{value!r} is not NAME=VALUE")
        settings[name.strip()] = setting
    return settings


def conf_option() -> Any:
    """``--conf``, for commands that Spark may do: settings of Spark by name."""
    return option("Set a Spark property. Repeatable.", multiple=True, callback=_spark_conf, metavar="NAME=VALUE")


def master_option() -> Any:
    """``--master``, for commands that Spark may do."""
    return option("Spark's master. Default: local[*], all cores of this machine.", metavar="URL")


@parsed
def time_of(value: str) -> int:
    """The callback of an option for a time, epoch ms; in the zone of ``--time-zone``, wherever that stands."""
    return parse_time(value, zone=shown_zone())


def time_from(text: str, option: str, now: int) -> int:
    """The time that an option gives, epoch ms; distances are from `now`, which another option may have given."""
    try:
        return parse_time(text, now, shown_zone())
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=repr(option)) from error


@parsed
def _rate(value: str) -> RateLimit:
    """Bytes per second: ``50MiB``, ``200M``, ``1048576``."""
    match = _RATE.fullmatch(value.strip())
    rate = int(float(match[1]) * _FACTORS[(match[2] or "").lower()]) if match else 0
    if rate <= 0:
        raise ValueError(f"{value!r} is not a rate; examples: 50MiB, 200M (bytes per second)")
    return RateLimit(rate)


def rate_option(help_text: str, *names: str) -> Any:
    """An option for bytes per second."""
    return option(help_text, *names, callback=_rate, metavar="RATE")


@parsed
def _in_calendar(value: str) -> int:
    time = parse_time(value, zone=shown_zone())
    if not 0 <= time <= MAX_TIME:
        raise ValueError(f"{value!r} is not between the years 1970 and 9999")
    return time


def now_option() -> Any:
    """The time at which a command answers: epoch ms, None for the clock."""
    text = "Answer as of this time: '2026-11-21 04:00', tomorrow, +2h, with Z in UTC. Default: the clock."
    return option(text, callback=_in_calendar, metavar="TIME")


def time_or_clock(now: int | None) -> int:
    """The time of `now_option`, epoch ms; that of the clock where it is None."""
    return time.time_ns() // 1_000_000 if now is None else now


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
    """Whether this value of a global option counts: the command line, then the environment, then `rmqtool.toml`."""
    sources, name = click.core.ParameterSource, param.name or ""
    ranks = (sources.DEFAULT_MAP, sources.ENVIRONMENT, sources.COMMANDLINE)
    source, before = ctx.get_parameter_source(name), ctx.parent and ctx.parent.get_parameter_source(name)
    return source in ranks and (before not in ranks or ranks.index(source) >= ranks.index(before))


def _count_quiet(ctx: click.Context, param: click.Parameter, value: int) -> None:
    ctx.ensure_object(Style).verbosity += value if param.name == "verbose" else -value


def _without_pager(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value:
        ctx.ensure_object(Style).pager = False


def global_options(command: F) -> F:
    """Options of every command, accepted before and after its name."""
    for option in reversed(
        (
            click.option("--json", "as_json", is_flag=True, is_eager=True, expose_value=False,
                         callback=_remember("json"), envvar="RMQTOOL_JSON",
                         help="Print JSON: one document, or one object per line for lists."),
            click.option("--int64", type=click.Choice(["number", "string"]), default="number", expose_value=False,
                         callback=_remember("int64"), show_default=True,
                         help="64-bit numbers in JSON: as text for programs that round them, such as JavaScript."),
            click.option("--time-zone", is_eager=True, expose_value=False, callback=_time_zone, metavar="ZONE",
                         shell_complete=complete_from(time_zones),
                         help="Time zone of input and output, such as Asia/Shanghai, +08:00 or UTC; JSON has UTC. "
                         "Default: this machine's."),
            click.option("--color", type=click.Choice(["auto", "always", "never"]), default="auto", expose_value=False,
                         is_eager=True, callback=_remember("color"), show_default=True,
                         help="Colour text; NO_COLOR and FORCE_COLOR are obeyed."),
            click.option("--progress", type=click.Choice(["auto", "json", "never"]), default="auto",
                         expose_value=False, callback=_remember("progress"), show_default=True,
                         help="Progress on stderr: a bar on a terminal, or a JSON line each second."),
            click.option("--no-pager", is_flag=True, is_eager=True, expose_value=False, callback=_without_pager,
                         envvar="RMQTOOL_NO_PAGER", help="Never use a pager."),
            click.option("-q", "--quiet", count=True, expose_value=False, callback=_count_quiet,
                         help="Results only: no progress, no notes."),
            click.option("-v", "--verbose", count=True, expose_value=False, callback=_count_quiet,
                         help="Show more detail."),
        )
    ):  # fmt: skip
        command = option(command)
    return command


def jobs_option(usual: str = "one for each 64 MiB of log, up to 8 and all cores; 1 if a broker runs") -> Any:
    """``--jobs N``, None where it is not given."""
    text = f"Work with N processes; the result is the same. Default: {usual}."
    return option(text, "-j", "--jobs", type=click.IntRange(*JOBS), metavar="N")


@dataclass(frozen=True, kw_only=True)
class OnStores(Options):
    """Options of every command on stores."""

    broker_version: Version | None = option(
        "Release of the broker, such as 5.3 or 5.3.3. Default: the newest that fits.",
        callback=parsed(parse_version), metavar="VERSION", shell_complete=complete_from(releases),
    )  # fmt: skip
    broker_conf: BrokerConf = option(
        "The broker's broker.conf: several commit log paths, index geometry.",
        type=click.Path(path_type=Path), metavar="FILE",
        callback=lambda _context, _parameter, path: BrokerConf() if path is None else read_broker_conf(path),
    )  # fmt: skip
    limit_rate: RateLimit | None = rate_option(
        "Read at most this many bytes per second, such as 50MiB: for a disk that a broker uses."
    )

    @property
    def bytes_per_second(self) -> int | None:
        """Bytes per second to read at most."""
        return self.limit_rate.bytes_per_second if self.limit_rate else None

    @property
    def _conf(self) -> BrokerConf:
        """The broker.conf, with what other options say of its settings."""
        return self.broker_conf

    def open(self, path: Path) -> OpenedStore:
        """A store, as these options say."""
        return rmqtool.open(path, broker_conf=self._conf, broker_version=self.broker_version,
                            limit_rate=self.limit_rate)  # fmt: skip
