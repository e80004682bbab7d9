"""A verification or an overview as a monitoring plug-in answers: always one line with figures, and an exit status.

The statuses are those of Nagios, Icinga and Zabbix plug-ins, and so other ones than usual.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

from rmqtool.base.errors import Exit, failed_so_far
from rmqtool.base.paths import is_remote
from rmqtool.base.visible import visible
from rmqtool.findings.finding import Finding, counted
from rmqtool.inspect.overview import Overview
from rmqtool.verify.outcome import Outcome

_MAX_CODES = 4
_MAX_LENGTH = 300  # of the sentence about an error
_ENDS = {None: "interrupted", "time-limit": "time limit reached", "sample": "a sample"}


class PluginStatus(IntEnum):
    """What a plug-in exits with."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


_ORDER = (PluginStatus.OK, PluginStatus.UNKNOWN, PluginStatus.WARNING, PluginStatus.CRITICAL)
"""From good to bad: what is known to be wrong counts more than what is not known."""

Measure = Literal["lag", "disk", "age"]
"""Messages that groups have not consumed; percent used of the fullest disk; seconds since the last message."""

_UNITS: Mapping[Measure, str] = {"lag": "", "disk": "%", "age": "s"}
_NAMES: Mapping[Measure, str] = {"lag": "lag", "disk": "disk used", "age": "last message"}


@dataclass(frozen=True)
class Limits:
    """Values above which the answer is WARNING or CRITICAL."""

    warning: Mapping[Measure, float] = field(default_factory=dict)
    critical: Mapping[Measure, float] = field(default_factory=dict)

    def judge(self, measure: Measure, value: float | None) -> tuple[PluginStatus, str | None]:
        """The status by one value, and what is wrong with it; UNKNOWN where a limit has no value to judge."""
        if measure not in self.warning and measure not in self.critical:
            return PluginStatus.OK, None
        if value is None:
            return PluginStatus.UNKNOWN, f"{_NAMES[measure]} not known"
        for status, limits in ((PluginStatus.CRITICAL, self.critical), (PluginStatus.WARNING, self.warning)):
            if measure in limits and value > limits[measure]:
                after = " ago" if measure == "age" else ""
                return status, f"{_NAMES[measure]} {value:.10g}{_UNITS[measure]}{after}"
        return PluginStatus.OK, None

    def shown(self, measure: Measure) -> str:
        """The limits after a figure, as plug-ins have them: ``;WARNING;CRITICAL``."""
        if measure not in self.warning and measure not in self.critical:
            return ""
        return "".join(
            f";{limits[measure]:.10g}" if measure in limits else ";" for limits in (self.warning, self.critical)
        )


@dataclass(frozen=True)
class PluginAnswer:
    """The status, and the text on standard output."""

    status: PluginStatus
    text: str


def verify_answer(outcome: Outcome, seconds: float) -> PluginAnswer:
    """CRITICAL for errors, and a start that refuses or loses; WARNING for the rest of the findings.

    UNKNOWN where something could not be looked at; what the user has left out does not count.
    """
    start = outcome.start
    lost_at_start = start.messages_lost if start else 0
    status = _status_of(outcome.findings)
    clients = outcome.clients.in_words if outcome.clients is not None else ""
    if start and (start.refuses is not None or lost_at_start or clients):
        status = PluginStatus.CRITICAL
    if status == PluginStatus.OK and outcome.status is not Exit.OK:
        status = PluginStatus.UNKNOWN
    what = outcome.verdict if outcome.complete else f"{_ENDS[outcome.ended_by]}, {outcome.verdict} so far"
    if start and start.refuses is not None:
        what += ", the broker would refuse to start"
    elif clients:
        what += f", a start leaves {clients}"
    elif lost_at_start:
        what += f", a start would lose {counted(lost_at_start, 'message')}"
    figures = {
        "messages": str(outcome.total.totals.messages),
        "lost": str(sum(outcome.lost.values())),
        "lost_at_start": str(lost_at_start),
        **_counts(outcome.findings),
        "time": f"{seconds:.3f}s",
    }
    return _answer(status, what, figures, outcome.findings)


def overview_answer(overview: Overview, limits: Limits | None = None, now: int | None = None) -> PluginAnswer:
    """By what is odd at first sight, and by `limits`; UNKNOWN where something could not be read, or has no figure.

    `now` is the time, epoch ms.
    """
    limits = limits or Limits()
    figures = {
        "log": f"{overview.snapshot.log.size}B",
        "queues": str(len(overview.queues)),
        **_counts(overview.findings),
    }
    if overview.log_range:
        figures["max_offset"] = f"{overview.log_range.max_offset}B"
    statuses = [_status_of(overview.findings)]
    if overview.unread:
        statuses.append(PluginStatus.UNKNOWN)
    said = [_running(overview)]
    for name, value in _measured(overview, int(time.time() * 1000) if now is None else now).items():
        status, text = limits.judge(name, value)
        statuses.append(status)
        said += [text] if text else []
        if value is not None:
            figures[name] = f"{value:.10g}{_UNITS[name]}{limits.shown(name)}"
    return _answer(max(statuses, key=_ORDER.index), ", ".join(said), figures, overview.findings)


def unknown_answer(text: str) -> PluginAnswer:
    """That an error kept the command from an answer."""
    return PluginAnswer(PluginStatus.UNKNOWN, f"RMQTOOL UNKNOWN - {_plain(text)[:_MAX_LENGTH]}\n")


def _running(overview: Overview) -> str:
    runs = overview.snapshot.broker_runs
    if runs is None:
        return f"not known whether a broker runs, last stop {overview.last_exit}"
    return "broker running" if runs else f"broker not running, last stop {overview.last_exit}"


def _measured(overview: Overview, now: int) -> dict[Measure, float | None]:
    """What limits are about; None where it cannot be known."""
    lags = [lag for committed in overview.snapshot.committed.offsets if (lag := overview.lag(committed)) is not None]
    last = overview.log_range.last_store_timestamp if overview.log_range else None
    return {
        "lag": sum(max(lag, 0) for lag in lags),
        "disk": max(_disks_used(overview), default=None),
        "age": None if last is None else max(0, now - last) / 1000,
    }


def _disks_used(overview: Overview) -> Iterator[float]:
    """How full the disks of the store are, percent; none of those on another machine."""
    store = overview.snapshot.store
    for directory in () if is_remote(store.root) else (store.root, *store.log_directories):
        try:
            usage = shutil.disk_usage(directory)
        except OSError:
            continue
        yield round(100 * usage.used / usage.total, 1) if usage.total else 0.0


def _status_of(findings: Sequence[Finding]) -> PluginStatus:
    severities = {finding.severity for finding in findings}
    if "error" in severities:
        return PluginStatus.CRITICAL
    return PluginStatus.WARNING if "warning" in severities else PluginStatus.OK


def _counts(findings: Sequence[Finding]) -> dict[str, str]:
    return {
        f"{severity}s": str(sum(finding.count for finding in findings if finding.severity == severity))
        for severity in ("error", "warning")
    }


def _answer(status: PluginStatus, what: str, figures: dict[str, str], findings: Sequence[Finding]) -> PluginAnswer:
    if status is PluginStatus.OK and failed_so_far():
        status, what = PluginStatus.UNKNOWN, f"{what}, and not all could be read"
    shown = " ".join(f"{name}={value}" for name, value in figures.items())
    wrong = Counter[str]()
    for finding in findings:
        if finding.severity != "info":
            wrong[finding.code] += finding.count
    codes = [f"{code} {count}" if count > 1 else code for code, count in [*wrong.items()][:_MAX_CODES]]
    codes += [f"and {counted(len(wrong) - _MAX_CODES, 'more code')}"] if len(wrong) > _MAX_CODES else []
    text = f"{what}: {', '.join(codes)}" if codes else what
    return PluginAnswer(status, f"RMQTOOL {status.name} - {_plain(text)} | {shown}\n")


def _plain(text: str) -> str:
    """Text in one line, without control characters and without the sign after which figures stand."""
    return visible(" ".join(text.replace("|", "/").split())).encode("utf-8", "replace").decode()
