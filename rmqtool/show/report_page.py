"""A report as one HTML file: it loads nothing, runs no script, and can be read without its pictures."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, islice
from operator import attrgetter
from pathlib import Path
from typing import Any

from rmqtool import __version__
from rmqtool.base.numbers import byte_size
from rmqtool.findings.finding import Finding, counted
from rmqtool.inspect.overview import Overview
from rmqtool.repair.plan import Plan
from rmqtool.report.facts import GroupPosition, Life, Retention, StoreReport, TierFacts
from rmqtool.scan.redaction import Redaction
from rmqtool.show.clean_text import answer
from rmqtool.show.query import PARTIAL, is_partial, story_lines, trace_lines
from rmqtool.show.report_pictures import (
    Clock,
    Content,
    Html,
    Span,
    axis,
    details,
    disk_picture,
    element,
    growth_picture,
    joined,
    lanes,
    legend,
    log_picture,
    position_line,
    retention_picture,
    table,
)
from rmqtool.show.times import sentence
from rmqtool.show.verify import how_many, location_of

_HOST = re.compile(
    r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?\b"
    r"|\[[0-9a-fA-F.]*:[0-9a-fA-F:.]+\](?::\d{1,5})?"
    r"|(?<![\w:.])(?:[0-9a-fA-F]{0,4}:){3,7}[0-9a-fA-F]{1,4}(?![\w:])"
)
_QUOTING = ("index.", "config.", "timer.", "consumequeue.tags-code", "consumequeue.ext-address", "commitlog.field")
"""Codes whose sentences or details may quote keys, tags codes or properties of messages."""


class ReportRedaction:
    """Redacts sentences and messages; without a redaction all stays as it is."""

    def __init__(self, redaction: Redaction | None) -> None:
        self._redaction = redaction

    @property
    def hides_keys(self) -> bool:
        """Whether unique keys and message ids are hidden: they hold hosts, too."""
        return self._redaction is not None and bool(self._redaction.what & {"keys", "hosts", "properties"})

    @property
    def hides_hosts(self) -> bool:
        """Whether hosts are hidden."""
        return self._redaction is not None and "hosts" in self._redaction.what

    def text(self, sentence: str) -> str:
        """A sentence or a command without the hosts in it."""
        redaction = self._redaction
        if redaction is None or not self.hides_hosts:
            return sentence
        return _HOST.sub(lambda found: redaction.text(found[0]), sentence)

    def finding(self, finding: Finding) -> str:
        """What a finding says."""
        if self._may_quote(finding):
            return "(left out: it may quote redacted values)"
        return self.text(finding.message)

    def redacted(self, finding: Finding) -> Finding:
        """A finding without what its sentence and its details quote; hosts stay in the details."""
        details = {} if self._may_quote(finding) else finding.details
        return replace(finding, message=self.finding(finding), details=details)

    def _may_quote(self, finding: Finding) -> bool:
        what = self._redaction.what if self._redaction else frozenset()
        return bool(what & {"keys", "properties"}) and finding.code.startswith(_QUOTING)

    def message(self, message: dict[str, Any]) -> dict[str, Any]:
        """A message with its trace."""
        redacted: dict[str, Any] = self._redaction.value(message) if self._redaction else message
        return redacted


_MAX_SHOWN = 3
_MAX_OF_A_CODE = 50
_MAX_CODES = 60


def findings_list(findings: Sequence[Finding], hidden: ReportRedaction) -> Html:
    """All above information, errors first."""
    told = sorted((each for each in findings if each.severity != "info"), key=attrgetter("severity"))
    if not told:
        return element("p", "None.")
    groups = ([*same] for _, same in groupby(told, key=attrgetter("severity", "code")))
    shown = joined(_of_code(same, hidden) for same in islice(groups, _MAX_CODES))
    left = sum(1 for _ in groups)
    return joined((shown, element("p", f"and findings of {counted(left, 'further code')}"))) if left else shown


def _of_code(findings: Sequence[Finding], hidden: ReportRedaction) -> Html:
    first = findings[0]
    head = element("h3", element("span", first.severity, class_=first.severity), " ", element("code", first.code),
                   how_many(findings))  # fmt: skip
    effects = list(dict.fromkeys(sentence(hidden.text(finding.effect)) for finding in findings))
    items = []
    for finding in findings[:_MAX_OF_A_CODE]:
        where = location_of(finding)
        place = [element("span", where, class_="where"), ": "] if where else []
        items.append(element("li", *place, sentence(hidden.finding(finding))))
    more = f"{len(findings) - _MAX_SHOWN} more" if len(findings) > _MAX_SHOWN else ""
    left = len(findings) - len(items)
    rest = [element("p", f"and {left} more")] if left > 0 else []
    return joined((
        head,
        *(element("p", _with_subject(effect), class_="soft") for effect in effects[:_MAX_SHOWN]),
        element("ul", *items[:_MAX_SHOWN]),
        details(more, element("ul", *items[_MAX_SHOWN:]), *rest) if more else "",
    ))  # fmt: skip


def _with_subject(effect: str) -> str:
    """What a broker does, as a sentence of its own: some effects name who does it, others are none."""
    if effect.lower().startswith("none"):
        return f"Effect: {effect[0].lower()}{effect[1:]}"
    names = effect.lower().startswith(("the broker ", "a broker ", "brokers ", "most versions "))
    return f"{effect[0].upper()}{effect[1:]}" if names else f"The broker: {effect}"


_STORED, _WAITS, _READ, _FAILED, _CLIENTS = "t0", "t6", "t2", "bad", "t3"
_MEANINGS = {
    _STORED: "sent or stored",
    _WAITS: "waits",
    _READ: "read, or passed, by a group",
    _FAILED: "failed, rolled back or given up",
    _CLIENTS: "what clients report",
}
_KINDS = {
    **dict.fromkeys(("sent", "stored", "half", "committed", "retry"), _STORED),
    **dict.fromkeys(("read", "passed"), _READ),
    **dict.fromkeys(("sent-back", "rolled-back", "dead-letter"), _FAILED),
}
_CLIENT = "trace-"


def life_of(life: Life, clock: Clock, hidden: ReportRedaction) -> Html:
    """The messages of an id, or why there is none."""
    if not life.messages:
        told = "It" if hidden.hides_keys else life.name
        why = "message not found" if hidden.hides_keys else "; ".join(life.notes)
        return element("p", f"{told}: {why}")
    return joined(_message(message, clock, hidden) for message in life.messages)


def _message(message: dict[str, Any], clock: Clock, hidden: ReportRedaction) -> Html:
    message = hidden.message(message)
    trace = message["places"]
    name = message["unique_key"] or message["message_id"] or message["physical_offset"]
    story = story_lines(trace["story"], clock.exact)
    events = element("ol", *(element("li", f"{when}: {told}") for when, told in story))
    partial = [element("p", PARTIAL)] if is_partial(trace) else []
    wrong = [element("p", f"WRONG: {each}", class_="lost") for each in trace["contradictions"]]
    lines = joined((f"{label:<12} {told}" for label, told in trace_lines(message)), "\n")
    return joined((element("h3", f"{message['topic']} {name}"), life_line(trace["story"], clock), events, *partial,
                   *wrong, details("Where it is, and what proves it",
                                   element("pre", lines, tabindex=0))))  # fmt: skip


def life_line(events: Sequence[dict[str, Any]], clock: Clock) -> Html:
    """The events of a message along its time, a lane for each kind; nothing where no time passes."""
    spans: dict[str, list[Span]] = {}
    for event in events:
        first, last, due = event["timestamp"], event["until_timestamp"], event["due_timestamp"]
        kind = _CLIENTS if event["event"].startswith(_CLIENT) else _KINDS.get(event["event"])
        if first is not None and kind:
            spans.setdefault(kind, []).append((first, first if last is None else max(first, last)))
        if first is not None and due is not None:
            spans.setdefault(_WAITS, []).append((first, max(first, due)))
    times = [time for each in spans.values() for span in each for time in span]
    low, high = min(times, default=0), max(times, default=0)
    if low == high:
        return Html("")
    kinds = [kind for kind in _MEANINGS if kind in spans]
    chart = lanes("Timeline; the list below has the same events", [(kind, spans[kind]) for kind in kinds], low, high)
    ends = axis(clock.exact(int(low)), clock.exact(int(high)))
    return element("figure", chart, ends, legend([(kind, _MEANINGS[kind]) for kind in kinds]))


_MAX_TOPICS = 200
_MAX_QUEUES = 500
_MAX_GROUPS = 200
_BY_SIGNS = ", inferred from the store"
_NO_DISK = "There is no forecast of the disk: the log is too short to show a growth, or its disk cannot be measured."
_VERDICTS = {
    "clean": "messages, queues and index are intact",
    "dirty": "the next start fixes it without loss",
    "corrupt": "see what to do",
    "unproven": "no problems in the parts checked",
}


def report_page(report: StoreReport, redaction: Redaction | None) -> str:
    """The file's text."""
    clock, hidden = Clock(report.zone), ReportRedaction(redaction)
    root = hidden.text(str(report.outcome.root))
    title = f"RocketMQ store {root}"
    head = element(
        "head",
        Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        element("title", title),
        element("style", Html(Path(__file__).with_name("report.css").read_text(encoding="utf-8"))),
    )
    made = f"Made on {clock.time(report.now)} by rmqtool {__version__}; nothing in the store was changed."
    body = element("body", element("header", element("h1", title), element("p", made, class_="soft")),
                   element("main", *_contents(_sections(report, clock, hidden))))  # fmt: skip
    return f'<!DOCTYPE html>\n<html lang="en">{head}{body}</html>\n'


def _contents(parts: Iterable[tuple[str, Html]]) -> Iterator[Html]:
    """The parts of the page; what has no title comes before the contents, which lead to the others."""
    shown = [*parts]
    yield from (part for title, part in shown if not title)
    links = (element("a", title, href=f"#{_anchor(title)}") for title, _ in shown if title)
    yield element("nav", *links, aria_label="Contents")
    for title, part in shown:
        if title:
            yield element("section", element("h2", title, id=_anchor(title)), part)


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def _sections(report: StoreReport, clock: Clock, hidden: ReportRedaction) -> Iterator[tuple[str, Html]]:
    """Titles and what stands below them."""
    yield "", _verdict(report, hidden)
    yield "", _facts(report, clock, hidden)
    if report.plan:
        yield "What to do", _plan(report.plan, hidden)
    yield "Findings", findings_list(report.outcome.findings, hidden)
    if report.outcome.unproven:
        yield "Not verified", element("ul", *(element("li", hidden.text(each)) for each in report.outcome.unproven))
    yield "The commit log", log_picture(report)
    yield "Growth", growth_picture(report, clock)
    yield "Retention", _retention(report, clock)
    yield "Consumer groups", _groups(report, clock)
    yield "Topics and queues", _topics(report)
    if report.tier:
        yield "Tiered storage", _tier(report.tier, hidden)
    if report.lives:
        yield "History of messages", joined(life_of(life, clock, hidden) for life in report.lives)


def _verdict(report: StoreReport, hidden: ReportRedaction) -> Html:
    outcome = report.outcome
    sentences = [_VERDICTS[outcome.verdict]]
    start = outcome.start
    if start and start.refuses is not None:
        sentences.append(f"a broker would refuse to start: {start.refuses}")
    elif outcome.clients is not None and outcome.clients:
        sentences.append(f"after a start now: {outcome.clients.in_words}")
    if outcome.lost:
        minimum = "at least " if outcome.lost_is_minimum else ""
        sentences.append(f"{minimum}{counted(outcome.lost.total(), 'message')} cannot be read")
    head = element("strong", f"Verdict: {outcome.verdict}")
    told = hidden.text("; ".join(sentences))
    return element("p", head, Html("<br>"), told, class_=f"verdict {outcome.verdict}")


def _broker(overview: Overview) -> str:
    if overview.snapshot.broker_runs is None:
        return f"not known whether it runs, last stop {overview.last_exit}"
    return "runs on the store" if overview.snapshot.broker_runs else f"not running, last stop {overview.last_exit}"


def _facts(report: StoreReport, clock: Clock, hidden: ReportRedaction) -> Html:
    outcome, overview = report.outcome, report.overview
    snapshot, log = outcome.snapshot, overview.log_range
    rows: list[tuple[str, str]] = [
        ("broker", _broker(overview)),
        ("release", f"rules of {snapshot.releases}{'' if snapshot.releases.is_named else _BY_SIGNS}"),
        ("commit log", f"{counted(len(snapshot.log.files), 'file')} of {byte_size(snapshot.log.file_size)}, "
                       f"{counted(outcome.total.totals.messages, 'message')}, {byte_size(outcome.total.totals.bytes)}"),
    ]  # fmt: skip
    if log and log.first_store_timestamp is not None:
        last = log.last_store_timestamp
        spans = clock.span(log.first_store_timestamp, log.first_store_timestamp if last is None else last)
        rows.append(("stored", " to ".join(spans)))
    topics = len({queue.topic for queue, _ in overview.queues})
    rows.append(("queues", f"{len(overview.queues)} of {counted(topics, 'topic')}"))
    shown = (joined((element("dt", label), element("dd", hidden.text(told)))) for label, told in rows)
    return element("dl", *shown, class_="facts")


def _plan(plan: Plan, hidden: ReportRedaction) -> Html:
    parts: list[Html] = []
    if plan.start_after:
        parts.append(element("p", element("strong", f"Do not start a broker until step {plan.start_after} is done.")))
    items = []
    for step in plan.steps:
        inside: list[Content] = [hidden.text(step.text)]
        if step.command:
            inside.append(element("pre", element("code", hidden.text(step.command))))
        if step.changes:
            inside.append(element("ul", *(element("li", hidden.text(change)) for change in step.changes)))
        inside += [element("p", f"lost: {hidden.text(lost)}", class_="lost") for lost in step.lost]
        items.append(element("li", *inside))
    parts += [element("ol", *items)] if items else []
    parts += [element("p", f"remains: {hidden.text(told)}", class_="soft") for told in plan.remaining]
    return joined(parts)


def _retention(report: StoreReport, clock: Clock) -> Html:
    retention = report.retention
    if retention is None:
        return element("p", f"Not known: {report.no_retention}")
    at = retention.plan.now
    when = "" if at == report.now else f"At {clock.time(at)}, the next hour of deleteWhen: "
    return joined((element("p", when, answer(retention.plan, retention.losses)),
                   retention_picture(report, retention, clock), _disk(retention)))  # fmt: skip


def _disk(retention: Retention) -> Html:
    settings = retention.plan.rules.settings
    if not retention.courses:
        return element("p", _NO_DISK)
    levels = [("diskMaxUsedSpaceRatio", settings.disk_max_used_space_ratio / 100),
              ("diskSpaceCleanForciblyRatio", settings.forcibly_level),
              ("diskSpaceWarningLevelRatio", settings.warning_level)]  # fmt: skip
    return disk_picture(retention.courses, levels)


def _groups(report: StoreReport, clock: Clock) -> Html:
    if not report.positions:
        return element("p", "There are no committed offsets of groups, or they cannot be read.")
    log = report.overview.log_range
    low = log.first_store_timestamp if log and log.first_store_timestamp is not None else 0
    high = log.last_store_timestamp if log and log.last_store_timestamp is not None else 1
    rows = [_group_row(each, low, high, clock) for each in report.positions[:_MAX_GROUPS]]
    heads = ["Group", "Topic", "Not read", "Loses next", "Queues", "Oldest not read", "Along the log's time"]
    more = len(report.positions) - len(rows)
    shown = table("What each group still has to read", heads, rows, (2, 3, 4), (5,))
    return joined((shown, element("p", f"and {more} more, which have less to read"))) if more > 0 else shown


def _group_row(each: GroupPosition, low: int, high: int, clock: Clock) -> list[object]:
    is_known = each.next_timestamp is not None
    bar = position_line(each.next_timestamp or 0, low, high) if is_known else ""
    oldest = clock.time(each.next_timestamp) if is_known else ""
    lost = element("strong", each.lost, class_="lost") if each.lost else 0
    lag = f"at least {each.lag}" if each.gone else f"{each.lag}"
    lag = "not known" if each.gone and each.gone == each.queues else lag
    if each.beyond and not each.lag:
        lag = "beyond the end"
    if each.unreachable:
        lag = f"{lag}, and {each.unreachable} out of reach"
    return [each.group, each.topic, lag, lost, each.queues, oldest, bar]


def _topics(report: StoreReport) -> Html:
    timeline = report.timeline
    sums = timeline.by_time.sum(axis=1)
    names = timeline.largest(len(timeline.topics))
    queues = Counter(queue.topic for queue, _ in report.overview.queues)
    rows = [[name, queues[name], int(timeline.messages[timeline.topics[name]]),
             byte_size(int(sums[timeline.topics[name]]))] for name in names[:_MAX_TOPICS]]  # fmt: skip
    parts = [table("Topics in the commit log", ["Topic", "Queues", "Messages", "Bytes"], rows, (1, 2, 3))]
    if len(names) > len(rows):
        parts.append(element("p", f"and {len(names) - len(rows)} smaller ones"))
    parts.append(_queues(report))
    return joined(parts)


def _tier(tier: TierFacts, hidden: ReportRedaction) -> Html:
    if tier.why:
        return element("p", f"Not read: {hidden.text(tier.why)}")
    only, size = (sum(getattr(each, name) for each in tier.queues) for name in ("only_there", "size"))
    told = f"{counted(len(tier.queues), 'queue')} in {byte_size(size)}; only the tier has {counted(only, 'message')}"
    largest = sorted(tier.queues, key=lambda each: (-each.lost, -each.only_there))[:_MAX_QUEUES]
    rows = [[each.topic, each.queue_id, each.min_offset, each.max_offset, byte_size(each.size), each.only_there,
             element("strong", each.lost, class_="lost") if each.lost else 0] for each in largest]  # fmt: skip
    heads = ["Topic", "Queue", "Minimum", "Maximum", "Bytes", "Only there", "Lost"]
    parts = [element("p", f"{told}.")]
    if tier.lost:
        what = f"Consumers do not get {counted(tier.lost, 'message')} after a start."
        parts.append(element("p", what, class_="lost"))
    parts.append(table("Queues of the tier", heads, rows, (1, 2, 3, 4, 5, 6)))
    if len(tier.queues) > len(rows):
        parts.append(element("p", f"and {len(tier.queues) - len(rows)} more"))
    return joined(parts)


def _queues(report: StoreReport) -> Html:
    ranges = sorted(report.overview.queues, key=lambda each: each[1].min_offset - each[1].max_offset)
    rows = [[queue.topic, queue.queue_id, offsets.min_offset, offsets.max_offset, len(queue.files.files)]
            for queue, offsets in islice(ranges, _MAX_QUEUES)]  # fmt: skip
    more = len(ranges) - len(rows)
    heads = ["Topic", "Queue", "Minimum", "Maximum", "Files"]
    shown = table("Consume queues, the longest first", heads, rows, (1, 2, 3, 4))
    rest = [element("p", f"and {more} shorter ones")] if more > 0 else []
    return details(counted(len(ranges), "consume queue"), shown, *rest)
