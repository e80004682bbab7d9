"""A verification or an overview for monitoring: a Nagios plug-in's answer, and OpenMetrics for Prometheus."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Literal, get_args

from rmqtool.base.errors import Exit, UnreadableError, failed_so_far
from rmqtool.base.paths import is_remote
from rmqtool.base.visible import visible
from rmqtool.broker.trigger import disk_of
from rmqtool.findings.finding import Finding, counted
from rmqtool.findings.report import Verdict
from rmqtool.inspect.overview import Overview, group_failures, waiting
from rmqtool.verify.outcome import Outcome

if TYPE_CHECKING:
    from rmqtool.report.status import Status

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
        shown = (f";{each[measure]:.10g}" if measure in each else ";" for each in (self.warning, self.critical))
        return "".join(shown) if measure in self.warning or measure in self.critical else ""


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


def status_answer(found: Status, limits: Limits) -> PluginAnswer:
    """By what names, sizes and small files show, and by `limits`, in bounded time.

    A lag that was read in part is UNKNOWN until it is above its limit.
    """
    holder, last = found.snapshot.holder, found.last_message
    runs = "broker running" if holder and holder.program is None else "broker not running"
    values: dict[Measure, float | None] = {
        "lag": None if found.snapshot.hides_entries else sum(each.messages for each in found.lags),
        "disk": None if found.disk is None else round(100 * found.disk.used_ratio, 1),
        "age": None if last is None else max(0, found.now - last) / 1000,
    }
    figures, statuses, said = dict(_counts(found.findings)), [_status_of(found.findings)], [runs]
    for name, value in values.items():
        status, text = limits.judge(name, value)
        if name == "lag" and "lags" in found.not_looked_at and status is PluginStatus.OK and limits.shown(name):
            status, text = PluginStatus.UNKNOWN, "lag not known: not everything was read in time"
        statuses.append(status)
        said += [text] if text else []
        if value is not None:
            figures[name] = f"{value:.10g}{_UNITS[name]}{limits.shown(name)}"
    return _answer(max(statuses, key=_ORDER.index), ", ".join(said), figures, found.findings)


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
        "lag": None if overview.snapshot.hides_entries else sum(max(lag, 0) for lag in lags),
        "disk": max(_disks_used(overview), default=None),
        "age": None if last is None else max(0, now - last) / 1000,
    }


def _disks_used(overview: Overview) -> Iterator[float]:
    """How full the disks of the store are, percent, as its broker computes it; none of those on another machine."""
    store, release = overview.snapshot.store, overview.snapshot.release
    for directory in () if is_remote(store.root) else (store.root, *store.log_directories):
        with suppress(UnreadableError):
            disk = disk_of(directory, release)
            if disk.total > 0:
                yield round(100 * disk.ratio(release), 1)


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


_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})
_WITH_UNITS = ("bytes", "seconds")  # what the name of a metric ends with is its unit


class Metrics:
    """The metrics of one store, in the order in which the first sample of each is added.

    What several commands have tells by which it was found: of two samples in two files a collector takes none.
    """

    def __init__(self, store: str, command: str) -> None:
        self._store, self._command = store, command
        self._lines: dict[str, list[str]] = {}

    def add(self, name: str, meaning: str, value: float | None, /, **labels: object) -> None:
        """Add a sample of a metric; None is none. All are gauges: other readers know no more kinds of OpenMetrics."""
        if value is None:
            return
        if name not in self._lines:
            unit = name.rpartition("_")[2]
            units = [f"# UNIT {name} {unit}"] if unit in _WITH_UNITS else []
            help_line = f"# HELP {name} {meaning.translate(_ESCAPES)}"
            self._lines[name] = [f"# TYPE {name} gauge", *units, help_line]
        texts = {label: str(text).translate(_ESCAPES) for label, text in {"store": self._store, **labels}.items()}
        shown = ",".join(f'{label}="{text.encode("utf-8", "replace").decode()}"' for label, text in texts.items())
        self._lines[name].append(f"{name}{{{shown}}} {value}")

    def add_findings(self, findings: Sequence[Finding]) -> None:
        """Add how many there are of each code and severity."""
        counts = Counter[tuple[str, str]]()
        for finding in findings:
            counts[finding.code, finding.severity] += finding.count
        for (code, severity), count in counts.items():
            self.add("rmqtool_findings", "Findings, by code and severity.", count, code=code, severity=severity,
                     command=self._command)  # fmt: skip

    def text(self) -> str:
        """The document, with the time when it was made."""
        self.add("rmqtool_run_timestamp_seconds", "When these figures were computed.", round(time.time(), 3),
                 command=self._command)  # fmt: skip
        return "".join(f"{line}\n" for lines in self._lines.values() for line in lines) + "# EOF\n"


def verify_metrics(outcome: Outcome, seconds: float) -> str:
    """The text for a verification that took so many seconds."""
    metrics, start = Metrics(str(outcome.root), "verify"), outcome.start
    add = metrics.add
    for name in get_args(Verdict):
        add("rmqtool_verify_verdict", "The verdict of verify.", int(name == outcome.verdict),
            rmqtool_verify_verdict=name)  # fmt: skip
    metrics.add_findings(outcome.findings)
    add("rmqtool_verify_messages", "Messages that can be read.", outcome.total.totals.messages)
    add("rmqtool_verify_bad_bytes", "Damaged bytes of the commit log.", outcome.damaged_bytes)
    for topic, count in sorted(outcome.lost.items()):
        add("rmqtool_verify_lost_messages", "Messages that are proven to have existed, and cannot be read.", count,
            topic=topic)  # fmt: skip
    if start:
        add("rmqtool_start_refused", "1 if a broker would refuse to start.", int(start.refuses is not None))
        add("rmqtool_start_lost_messages", "Readable messages that a start of the broker would lose.",
            start.messages_lost)  # fmt: skip
    for kind, count in outcome.clients.counts().items() if outcome.clients is not None else ():
        add("rmqtool_start_clients_lose", "What clients lose after a start, by kind.", count,
            kind=kind)  # fmt: skip
    add("rmqtool_verify_complete", "1 if the verification completed.", int(outcome.complete))
    add("rmqtool_verify_duration_seconds", "How long it took.", round(seconds, 3))
    return metrics.text()


def overview_metrics(overview: Overview) -> str:
    """The text for an overview of a store."""
    metrics = Metrics(str(overview.snapshot.store.root), "inspect")
    _add_log_and_queues(metrics.add, overview)
    _add_groups(metrics.add, overview)
    metrics.add_findings(overview.findings)
    return metrics.text()


def _add_log_and_queues(add: Callable[..., None], overview: Overview) -> None:
    snapshot, log_range = overview.snapshot, overview.log_range
    if snapshot.broker_runs is not None:
        add("rmqtool_broker_running", "1 if a broker runs on the store.", int(snapshot.broker_runs))
    add("rmqtool_commit_log_size_bytes", "Size of the commit log's files.", snapshot.log.size)
    add("rmqtool_commit_log_files", "Files of the commit log.", len(snapshot.log.files))
    if log_range:
        for name, offset in (("min", log_range.min_offset), ("max", log_range.max_offset)):
            add(f"rmqtool_commit_log_{name}_offset_bytes", f"The log's {name} offset.", offset)
        for name, stored in (("first", log_range.first_store_timestamp), ("last", log_range.last_store_timestamp)):
            add(f"rmqtool_{name}_message_timestamp_seconds", f"When the {name} message was stored.",
                None if stored is None else stored / 1000)  # fmt: skip
    for name in ("min", "max"):
        for queue, offsets in overview.queues:
            add(f"rmqtool_queue_{name}_offset", f"The queue's {name} offset, as the broker reports it.",
                getattr(offsets, f"{name}_offset"), topic=queue.topic, queue_id=queue.queue_id)  # fmt: skip
    for (topic, queue_id), view in overview.views.items():
        add("rmqtool_queue_unreachable_messages", "Messages of the log without a usable queue entry.",
            view.unreachable, topic=topic, queue_id=queue_id)  # fmt: skip


def _add_groups(add: Callable[..., None], overview: Overview) -> None:
    committed = [(each, {"group": each.group, "topic": each.topic, "queue_id": each.queue_id})
                 for each in overview.snapshot.committed.offsets]  # fmt: skip
    failures, held = group_failures(overview), waiting(overview)
    lags = [(overview.lag(each), labels) for each, labels in committed]
    for lag, labels in lags:
        add("rmqtool_group_lag", "Messages of the queue that the group has not committed.",
            None if lag is None else max(0, lag), **labels)  # fmt: skip
    for lag, labels in lags:
        add("rmqtool_group_offset_past_end", "How far the committed offset is past the end of the queue.",
            None if lag is None else max(0, -lag), **labels)  # fmt: skip
    for each, labels in committed:
        add("rmqtool_group_unreachable_messages", "Messages that the group does not get: entries are missing.",
            overview.unreachable(each), **labels)  # fmt: skip
    for group in failures:
        add("rmqtool_group_retry_messages", "Messages in the group's retry topic that it has not consumed.",
            group.retry_messages, group=group.group)  # fmt: skip
    for group in failures:
        add("rmqtool_group_dead_letters", "Messages in the group's dead letter topic.", group.dead_letter_messages,
            group=group.group)  # fmt: skip
    for level in held.delayed:
        add("rmqtool_delayed_messages", "Delayed messages that were not delivered yet, by level.", level.messages,
            level=level.level)  # fmt: skip
    add("rmqtool_half_messages", "Half messages in the half topic, answered ones included.", held.half_messages)
