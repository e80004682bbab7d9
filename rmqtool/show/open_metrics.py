"""A verification or an overview as OpenMetrics text, for Prometheus: a textfile collector, or a push gateway."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, get_args

from rmqtool.findings.finding import Finding
from rmqtool.findings.report import Verdict
from rmqtool.inspect.overview import Overview
from rmqtool.inspect.summary import group_failures, waiting
from rmqtool.store.queue_range import QueueRange
from rmqtool.verify.outcome import Outcome

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
