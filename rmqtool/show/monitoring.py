"""A verification or an overview for monitoring: a Nagios plug-in's answer, and OpenMetrics for Prometheus."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal, get_args

from rmqtool.base.errors import Exit, failed_so_far
from rmqtool.base.paths import is_remote
from rmqtool.base.visible import visible
from rmqtool.findings.finding import Finding, counted
from rmqtool.findings.report import Verdict
from rmqtool.inspect.overview import Overview, group_failures, waiting
from rmqtool.store.queue_units import QueueRange
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


_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})


@dataclass
class Family:
    """One metric: name, meaning, and its samples, each with labels; `name` ends with `unit` where there is one."""

    name: str
    help: str
    type: Literal["gauge", "stateset"] = "gauge"
    unit: str | None = None
    samples: list[tuple[dict[str, str], float]] = field(default_factory=list)

    def add(self, value: float | None, **labels: object) -> None:
        """Add a sample; None is none."""
        if value is not None:
            self.samples.append(({name: str(text) for name, text in labels.items()}, value))

    def lines(self) -> Iterator[str]:
        """Its text; nothing without a sample."""
        if not self.samples:
            return
        yield f"# TYPE {self.name} {self.type}"
        if self.unit:
            yield f"# UNIT {self.name} {self.unit}"
        yield f"# HELP {self.name} {self.help.translate(_ESCAPES)}"
        for labels, value in self.samples:
            shown = ",".join(f'{name}="{_text(text)}"' for name, text in labels.items())
            yield f"{self.name}{{{shown}}} {value}" if shown else f"{self.name} {value}"


def verify_metrics(outcome: Outcome, seconds: float) -> str:
    """The text for a verification that took so many seconds."""
    store = str(outcome.root)
    verdict = Family("rmqtool_verify_verdict", "What verify says of the store.", "stateset")
    for name in get_args(Verdict):
        verdict.add(int(name == outcome.verdict), store=store, rmqtool_verify_verdict=name)
    messages = Family("rmqtool_verify_messages", "Messages that can be read.")
    messages.add(outcome.total.totals.messages, store=store)
    bad = Family("rmqtool_verify_bad_bytes", "Bytes of the commit log that are not as stored.", unit="bytes")
    bad.add(outcome.damaged_bytes, store=store)
    lost = Family("rmqtool_verify_lost_messages", "Messages that are proven to have been there, and cannot be read.")
    for topic, count in sorted(outcome.lost.items()):
        lost.add(count, store=store, topic=topic)
    families = [verdict, _findings(outcome.findings, store), messages, bad, lost, *_start(outcome, store)]
    complete = Family("rmqtool_verify_complete", "1 where the verification came to its end.")
    complete.add(int(outcome.complete), store=store)
    took = Family("rmqtool_verify_duration_seconds", "How long it took.", unit="seconds")
    took.add(round(seconds, 3), store=store)
    return _document([*families, complete, took, _now(store)])


def overview_metrics(overview: Overview) -> str:
    """The text for an overview of a store."""
    store = str(overview.snapshot.store.root)
    running = Family("rmqtool_broker_running", "1 where a broker runs on the store.")
    if overview.snapshot.broker_runs is not None:
        running.add(int(overview.snapshot.broker_runs), store=store)
    families = [running, *_commit_log(overview, store), *_queues(overview, store), *_groups(overview, store)]
    return _document([*families, _findings(overview.findings, store), _now(store)])


def _start(outcome: Outcome, store: str) -> Iterator[Family]:
    start = outcome.start
    refused = Family("rmqtool_start_refused", "1 where a broker would refuse to start.")
    lost = Family("rmqtool_start_lost_messages", "Readable messages that a start of the broker would lose.")
    clients = Family("rmqtool_start_clients_lose", "What clients had and do not get after a start, by kind.")
    if start:
        refused.add(int(start.refuses is not None), store=store)
        lost.add(start.messages_lost, store=store)
    for kind, count in outcome.clients.counts().items() if outcome.clients is not None else ():
        clients.add(count, store=store, kind=kind)
    yield from (refused, lost, clients)


def _commit_log(overview: Overview, store: str) -> Iterator[Family]:
    log, log_range = overview.snapshot.log, overview.log_range
    size = Family("rmqtool_commit_log_size_bytes", "Size of the commit log's files.", unit="bytes")
    size.add(log.size, store=store)
    files = Family("rmqtool_commit_log_files", "Files of the commit log.")
    files.add(len(log.files), store=store)
    yield from (size, files)
    if log_range:
        places = {"min": log_range.min_offset, "max": log_range.max_offset}
        for name, offset in places.items():
            family = Family(f"rmqtool_commit_log_{name}_offset_bytes", f"The log's {name} offset.", unit="bytes")
            family.add(offset, store=store)
            yield family
        times = {"first": log_range.first_store_timestamp, "last": log_range.last_store_timestamp}
        for name, stored in times.items():
            family = Family(f"rmqtool_{name}_message_timestamp_seconds", f"When the {name} message was stored.",
                            unit="seconds")  # fmt: skip
            family.add(None if stored is None else stored / 1000, store=store)
            yield family


def _queues(overview: Overview, store: str) -> Iterator[Family]:
    for name in ("min", "max"):
        family = Family(f"rmqtool_queue_{name}_offset", f"The queue's {name} offset, as the broker reports it.")
        for queue, offsets in overview.queues:
            value = _offset(offsets, name)
            family.add(value, store=store, topic=queue.topic, queue_id=queue.queue_id)
        yield family
    family = Family("rmqtool_queue_unreachable_messages", "Messages of the log without a way to them in their queue.")
    for (topic, queue_id), view in overview.views.items():
        family.add(view.unreachable, store=store, topic=topic, queue_id=queue_id)
    yield family


def _offset(offsets: QueueRange, name: str) -> int | None:
    return offsets.min_offset if name == "min" else offsets.max_offset


def _groups(overview: Overview, store: str) -> Iterator[Family]:
    lag = Family("rmqtool_group_lag", "Messages of the queue that the group has not committed.")
    missed = Family("rmqtool_group_unreachable_messages", "Messages that the group does not get: entries are missing.")
    for committed in overview.snapshot.committed.offsets:
        labels = {"store": store, "group": committed.group, "topic": committed.topic, "queue_id": committed.queue_id}
        lag.add(overview.lag(committed), **labels)
        missed.add(overview.unreachable(committed), **labels)
    retries = Family("rmqtool_group_retry_messages", "Messages in the group's retry topic that it has not consumed.")
    dead = Family("rmqtool_group_dead_letters", "Messages in the group's dead letter topic.")
    for group in group_failures(overview):
        retries.add(group.retry_messages, store=store, group=group.group)
        dead.add(group.dead_letter_messages, store=store, group=group.group)
    held = waiting(overview)
    delayed = Family("rmqtool_delayed_messages", "Delayed messages that were not delivered yet, by level.")
    for level in held.delayed:
        delayed.add(level.messages, store=store, level=level.level)
    half = Family("rmqtool_half_messages", "Half messages in the half topic, answered ones included.")
    half.add(held.half_messages, store=store)
    yield from (lag, missed, retries, dead, delayed, half)


def _findings(findings: Iterable[Finding], store: str) -> Family:
    counts = Counter[tuple[str, str]]()
    for finding in findings:
        counts[finding.code, finding.severity] += finding.count
    family = Family("rmqtool_findings", "Findings, by code and severity.")
    for (code, severity), count in counts.items():
        family.add(count, store=store, code=code, severity=severity)
    return family


def _now(store: str) -> Family:
    made = Family("rmqtool_run_timestamp_seconds", "When these figures were made.", unit="seconds")
    made.add(round(time.time(), 3), store=store)
    return made


def _document(families: Iterable[Family]) -> str:
    return "".join(f"{line}\n" for family in families for line in family.lines()) + "# EOF\n"


def _text(value: str) -> str:
    return value.translate(_ESCAPES).encode("utf-8", "replace").decode()
