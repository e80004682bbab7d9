"""Options of `rmqtool clean` that carry the broker's own names in kebab case."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rmqtool.base.bounds import PERCENT
from rmqtool.base.shell import quote
from rmqtool.base.times import parse_zone, rfc3339
from rmqtool.broker.delete_when import MAX_TIME
from rmqtool.commands.options import now_option
from rmqtool.rules.retention import NAMES
from rmqtool.rules.versions import parse_version

if TYPE_CHECKING:
    from rmqtool.show.clean_text import NextOptions
    from rmqtool.transaction.plan_file import PlanFile

F = TypeVar("F", bound=Callable[..., Any])

_MAX_INT = (1 << 31) - 1
_HOURS = re.compile(r"(?:[01]?\d|2[0-3])(?:;(?:[01]?\d|2[0-3]))*", re.ASCII)
_WHOLE = re.compile(r"\d{1,10}", re.ASCII)
_DECIMAL = re.compile(r"\d{1,10}(?:\.\d{1,10})?", re.ASCII)

Check = Callable[[click.Context, click.Parameter, str | None], str | None]


def _number(low: int, high: int, *, whole: bool = True) -> Check:
    """A check of a number, which stays as it was written: broker.conf would hold it so."""
    form, kind = (_WHOLE, "whole number") if whole else (_DECIMAL, "number")

    def check(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
        if value is not None and not (form.fullmatch(value) and low <= float(value) <= high):
            raise click.BadParameter(f"{value!r} is not a {kind} from {low} to {high}", ctx, param)
        return value

    return check


def _hours(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    if value is not None and not _HOURS.fullmatch(value):
        raise click.BadParameter(f"{value!r} is not hours from 0 to 23 such as 04 or 04;16", ctx, param)
    return value


_PERCENT, _LEVEL = _number(0, 100), _number(0, 100, whole=False)
_COUNT = _number(1, _MAX_INT)
# What makes no sense is refused here, while a broker.conf is read as the broker reads it.
_SETTINGS: dict[str, tuple[str, Check, str]] = {
    "fileReservedTime": (
        "HOURS",
        _number(0, _MAX_INT),
        "How long a log file stays after its last change. Default: 72.",
    ),
    "deleteWhen": ("HOURS", _hours, "Hours of the day at which expired files go, such as 04 or 04;16. Default: 04."),
    "diskMaxUsedSpaceRatio": ("PERCENT", _PERCENT, "Above it expired files go at any hour. Default: 75."),
    "diskSpaceWarningLevelRatio": ("PERCENT", _LEVEL, "Above it the broker refuses messages. Default: 90."),
    "diskSpaceCleanForciblyRatio": ("PERCENT", _LEVEL, "Above it files go regardless of age. Default: 85."),
    "deleteFileBatchMax": ("N", _COUNT, "Most log files of one run. Default: 10."),
    "cleanResourceInterval": ("MS", _COUNT, "Time between two runs. Default: 10000."),
    "replicasPerDiskPartition": ("N", _COUNT, "Brokers that share the disk. Default: 1."),
    "logicalDiskSpaceCleanForciblyThreshold": (
        "FRACTION",
        _number(0, 1, whole=False),
        "With several: of its share, regardless of age. Default: 0.8.",
    ),
}
_FORCIBLY = "cleanFileForciblyEnable"


def _float(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    if value is not None and math.isnan(value):
        raise click.BadParameter("nan is not a number", ctx, param)
    return value


def cleaner_options(command: F) -> F:
    """The cleaner's settings, collected in `options` by the broker's own names; and the assumed time and disk."""

    @wraps(command)
    def collected(*args: Any, **kwargs: Any) -> Any:
        given = {name: kwargs.pop(_parameter(name)) for name in NAMES}
        kwargs["options"] = {name: _text(value) for name, value in given.items() if value is not None}
        return command(*args, **kwargs)

    options = [
        *(click.option(f"--{_kebab(name)}", metavar=metavar, callback=check, help=text)
          for name, (metavar, check, text) in _SETTINGS.items()),
        click.option(f"--{_kebab(_FORCIBLY)}/--no-{_kebab(_FORCIBLY)}", default=None,
                     help="Whether files may go regardless of age. Default: they may."),
        now_option,
        click.option("--disk-used-percent", type=click.FloatRange(*PERCENT), callback=_float, metavar="PERCENT",
                     help="As if every disk were this full, as that version computes it. Default: measured."),
    ]  # fmt: skip
    wrapped: Any = collected
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[no-any-return]


_CHOICES = ("now", "zone", "disk_used_percent", "manual", "first_file_in_use", "options", "broker_version")
"""What decides which files go, by the names of parameters; broker.conf is read again each time."""


def chosen(asked: Mapping[str, Any]) -> bool:
    """Whether a command line decides which files go, but for the zone, which is given for what is shown, too."""
    given = (asked[name] for name in _CHOICES if name != "zone")
    return any(value is not None and value is not False and value != {} for value in given)


def choices(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What decides which files go, as JSON."""
    texts = {name: None if asked[name] is None else str(asked[name]) for name in ("zone", "broker_version")}
    return {name: asked[name] for name in _CHOICES} | texts


def read_choices(saved: PlanFile) -> dict[str, Any]:
    """What a saved plan was made with; raises UsageError for what no plan holds."""
    found = saved.document.get("options")
    if not (isinstance(found, dict) and found.keys() == set(_CHOICES) and _are_choices(found)):
        raise saved.odd_options()
    zone, version = found["zone"], found["broker_version"]
    try:
        return found | {
            "zone": None if zone is None else parse_zone(zone),
            "broker_version": None if version is None else parse_version(version),
        }
    except ValueError:
        raise saved.odd_options() from None


def _are_choices(found: Mapping[str, Any]) -> bool:
    percent, settings = found["disk_used_percent"], found["options"]
    return (
        (found["now"] is None or (type(found["now"]) is int and 0 <= found["now"] <= MAX_TIME))
        and (percent is None or (type(percent) in (int, float) and 0 <= percent <= 100))
        and all(found[name] is None or isinstance(found[name], str) for name in ("zone", "broker_version"))
        and all(isinstance(found[name], bool) for name in ("manual", "first_file_in_use"))
        and isinstance(settings, dict)
        and all(name in NAMES and isinstance(value, str) for name, value in settings.items())
    )


def next_options(asked: Mapping[str, Any], plan: Path | None) -> NextOptions:
    """What the next command lines need of this one; `plan` is the file to which the plan is saved.

    The consent of --allow-unread is for one run: it is in none of them.
    """
    from rmqtool.show.clean_text import NextOptions

    conf, rate = asked["broker_conf"].path, asked["limit_rate"]
    read = [("--broker-conf", conf), ("--limit-rate", rate and str(rate.bytes_per_second))]
    same = _words([*read, *_decisions(asked)])
    time = _words([("--now", None if asked["now"] is None else rfc3339(asked["now"]))])
    return NextOptions(same, time, _words([("--plan", str(plan)), *read]) if plan else same + time)


def _decisions(asked: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    """The options that decide which files go, but for the time; of value None where they were not given."""
    version, zone, percent = asked["broker_version"], asked["zone"], asked["disk_used_percent"]
    yield "--broker-version", version and str(version)
    yield "--time-zone", zone and str(zone)
    yield "--disk-used-percent", None if percent is None else str(percent).removesuffix(".0")
    for flag in ("manual", "first_file_in_use"):
        yield f"--{flag.replace('_', '-')}", "" if asked[flag] else None
    for name, value in asked["options"].items():
        if name == _FORCIBLY:
            yield f"--{'' if value == 'true' else 'no-'}{_kebab(name)}", ""
        else:
            yield f"--{_kebab(name)}", value


def _words(options: Iterable[tuple[str, str | None]]) -> str:
    """Options as they are written on a command line, each with a blank in front."""
    return "".join(f" {name} {quote(value)}" if value else f" {name}" for name, value in options if value is not None)


def _text(value: object) -> str:
    """As it would stand in broker.conf."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _kebab(name: str) -> str:
    return re.sub(r"(?<!^)([A-Z])", r"-\1", name).lower()


def _parameter(name: str) -> str:
    return _kebab(name).replace("-", "_")
