"""`rmqtool status STORE`: what an operator asks first, in five lines and less than a second."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import click

from rmqtool.base.errors import Exit, UsageError
from rmqtool.base.times import parse_duration
from rmqtool.commands.options import command, flag, option, parsed
from rmqtool.commands.shared_options import OnStore, disk_rate_option, limits_option
from rmqtool.show.output import Style, flush, write_text

if TYPE_CHECKING:
    from rmqtool.base.files import RateLimit
    from rmqtool.report.status import Status
    from rmqtool.show.monitoring import Measure

Form = Literal["text", "nagios"]

_LEAST_MS = 100


@parsed
def _interval(value: str) -> float:
    milliseconds = parse_duration(value)
    if milliseconds < _LEAST_MS:
        raise ValueError(f"{value!r} is shorter than {_LEAST_MS}ms")
    return milliseconds / 1000


@dataclass(frozen=True, kw_only=True)
class StatusOptions(OnStore):
    """What was asked for."""

    watch: bool = flag("Repeat until Ctrl-C; --json prints one document per line.")
    form: Form = option(
        "Text for people, or a monitoring plug-in's answer.",
        "--format", type=click.Choice(["text", "nagios"]), default="text",
    )  # fmt: skip
    warning: dict[Measure, float] = limits_option("warning")
    critical: dict[Measure, float] = limits_option("critical")
    disk_rate: RateLimit | None = disk_rate_option()
    interval: float = option(
        "With --watch, how long to wait in between, such as 10s.",
        default="2s", callback=_interval, metavar="TIME",
    )  # fmt: skip


@command(
    "status",
    StatusOptions,
    (
        "rmqtool status /data/rocketmq/store",
        "rmqtool status /data/rocketmq/store --format nagios --critical lag=100000",
        "rmqtool status /data/rocketmq/store --json | jq .result.lag.largest",
    ),
    {
        Exit.OK: "no problem at a glance",
        Exit.FINDINGS: "there are findings above info",
        Exit.USAGE: "the command line is wrong",
        Exit.LOSSY: "no such findings, but not everything was read in time",
        Exit.FAILED: "the store cannot be listed or its layout read",
        Exit.INTERRUPTED: "--watch was ended by Ctrl-C",
    },
)
def status(style: Style, given: StatusOptions) -> int:
    """Show in five lines what an operator asks first.

    Shows whether a broker is running, what names, sizes and small files show, the disk and when it will be full, the
    largest lag of a group, and messages awaiting delivery. It takes less than a second on any store: the log is not
    read, and only some of very many queues. Nothing in the store is changed.
    """
    from rmqtool.report.status import status_of

    if given.form == "nagios" and (style.json or given.watch):
        raise UsageError(f"--format nagios does not go with {'--json' if style.json else '--watch'}")
    if (given.warning or given.critical) and given.form != "nagios":
        raise UsageError("--warning and --critical are for --format nagios")
    is_again: bool | None = False if given.watch else None
    while True:
        now = time.time_ns() // 1_000_000
        disk_rate = given.disk_rate.bytes_per_second if given.disk_rate else None
        found = status_of(given.opened.snapshot.store, given.broker_version, now, given.limit_rate, disk_rate)
        if given.form == "nagios":
            return _show_answer(found, given)
        from rmqtool.show.status import exit_of, show_status

        show_status(found, style, again=is_again)
        if not given.watch:
            return exit_of(found)
        is_again = True
        flush()
        time.sleep(given.interval)


def _show_answer(found: Status, given: StatusOptions) -> int:
    from rmqtool.show.monitoring import Limits, status_answer

    answer = status_answer(found, Limits(given.warning, given.critical))
    write_text(answer.text)
    return answer.status
