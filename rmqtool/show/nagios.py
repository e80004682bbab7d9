"""A verification or an overview as a monitoring plug-in answers: one line with figures, more lines, an exit status.

The statuses are those of Nagios, Icinga and Zabbix plug-ins, and so other ones than usual.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from rmqtool.base.errors import Exit
from rmqtool.findings.finding import Finding, counted
from rmqtool.inspect.overview import Overview
from rmqtool.verify.outcome import Outcome

_MAX_LINES = 20
_ENDS = {None: "interrupted", "time-limit": "time limit reached", "sample": "a sample"}


class PluginStatus(IntEnum):
    """What a plug-in exits with."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


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
    if start and (start.refuses is not None or lost_at_start):
        status = PluginStatus.CRITICAL
    if status == PluginStatus.OK and outcome.status is not Exit.OK:
        status = PluginStatus.UNKNOWN
    what = outcome.verdict if outcome.complete else f"{_ENDS[outcome.ended_by]}, {outcome.verdict} so far"
    if start and start.refuses is not None:
        what += ", the broker would refuse to start"
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


def overview_answer(overview: Overview) -> PluginAnswer:
    """By what is odd at first sight; UNKNOWN where something could not be read."""
    status = _status_of(overview.findings)
    if status == PluginStatus.OK and overview.unread:
        status = PluginStatus.UNKNOWN
    running = "broker running" if overview.snapshot.holder else f"broker not running, last stop {overview.last_exit}"
    lags = [lag for committed in overview.snapshot.committed.offsets if (lag := overview.lag(committed)) is not None]
    log_range = overview.log_range
    figures = {
        "log": f"{overview.snapshot.log.size}B",
        "queues": str(len(overview.queues)),
        "lag": str(sum(lags)),
        **_counts(overview.findings),
    }
    if log_range:
        figures["max_offset"] = f"{log_range.max_offset}B"
    return _answer(status, running, figures, overview.findings)


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
    shown = " ".join(f"{name}={value}" for name, value in figures.items())
    lines = [f"RMQTOOL {status.name} - {_plain(what)} | {shown}"]
    wrong = [finding for finding in findings if finding.severity != "info"]
    for finding in wrong[:_MAX_LINES]:
        place = "".join(f" {part}" for part in (finding.file, finding.topic) if part)
        times = f" ({finding.count} times)" if finding.count > 1 else ""
        lines.append(_plain(f"{finding.severity}: {finding.code}{place}: {finding.message}{times}"))
    if len(wrong) > _MAX_LINES:
        lines.append(f"... {counted(len(wrong) - _MAX_LINES, 'finding')} more")
    return PluginAnswer(status, "\n".join(lines) + "\n")


def _plain(text: str) -> str:
    """Text in one line, without the sign behind which figures stand."""
    return " ".join(text.replace("|", "/").split()).encode("utf-8", "replace").decode()
