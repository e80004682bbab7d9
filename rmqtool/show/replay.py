"""A replay as JSON and for people: what goes where, what is left out and why, what was sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rmqtool.base.errors import Exit
from rmqtool.base.numbers import byte_size
from rmqtool.findings.finding import counted, first_of
from rmqtool.replay.journal import EXPECTED, MEANINGS
from rmqtool.replay.planning import ReplayPlan
from rmqtool.replay.sending import Replay, Sent
from rmqtool.show.output import Style, print_lines, show_apart, write_document


def write_plan(plan: ReplayPlan, job: Replay, journal: Path, style: Style, status: Exit) -> None:
    """Print the document of a count."""
    write_document(style, "replay", {**_shared(plan, job, journal, "planned"), "sent": None}, status=status)


def write_sent(plan: ReplayPlan, sent: Sent, job: Replay, journal: Path, style: Style, status: Exit) -> None:
    """Print the document of messages that were sent; what was left out is what sending has met."""
    result = _shared(plan, job, journal, "stopped" if sent.is_stopped else "done")
    result |= {"left_out": _left_out_json(sent.outcome), "done_before": sent.outcome.done_before}
    refusal = sent.result.first_refusal
    result["sent"] = {
        "messages": sent.result.sent,
        "found": sent.result.found,
        "refused": sent.result.refused,
        "less_safe": sent.result.less_safe,
        "unproven_lookups": sent.result.unproven,
        "first_refusal": None if refusal is None else str(refusal),
    }
    write_document(style, "replay", result, status=status)


def _shared(plan: ReplayPlan, job: Replay, journal: Path, state: str) -> dict[str, Any]:
    return {
        "state": state,
        "name_servers": list(job.cluster.name_servers),
        "journal": str(journal),
        "messages": plan.total.messages,
        "body_bytes": plan.total.bytes,
        "targets": [
            {**place._asdict(), "messages": count.messages, "body_bytes": count.bytes}
            for place, count in sorted(plan.places.items())
            if job.cluster.is_known
        ],
        "topics": [
            {"source_topic": source, "topic": topic, "messages": count.messages, "body_bytes": count.bytes}
            for (source, topic), count in plan.by_topic.items()
        ],
        "brokers": [
            {
                "name": name,
                "release": facts.release,
                "max_message_size": facts.max_message_size,
                "unknown": list(facts.unknown),
            }
            for name, facts in sorted(plan.brokers.items())
        ],
        "unwritable_topics": [{"topic": topic, "reason": reason} for topic, reason in sorted(plan.unwritable.items())],
        "left_out": _left_out_json(plan),
        "done_before": plan.done_before,
        "unknown": plan.unknown,
        "looked_up": plan.looked_up,
        "damaged": {
            "extents": plan.reading.damaged_extents,
            "bytes": plan.reading.damaged_bytes,
            "first_physical_offset": plan.reading.first_damage,
        },
        "in_order": not plan.reading.is_unordered,
    }


def _left_out_json(plan: ReplayPlan) -> list[dict[str, Any]]:
    return [
        {
            "reason": reason,
            "messages": omitted.messages,
            "expected": reason in EXPECTED,
            "topics": [{"topic": topic, "messages": count} for topic, count in sorted(omitted.topics.items())],
            "physical_offsets": omitted.physical_offsets,
        }
        for reason in MEANINGS
        if (omitted := plan.left_out.get(reason)) is not None
    ]


_SHOWN = 200  # queues of the table
_TOPICS = 4  # topics of one reason


def show_plan(plan: ReplayPlan, job: Replay, style: Style) -> None:
    """Print what would be sent."""
    console = style.console()
    print_lines(console, *_head(plan, job))
    places = sorted(plan.places.items())
    if places and not job.cluster.is_known:
        topics = [(*names, count.messages, byte_size(count.bytes)) for names, count in plan.by_topic.items()]
        show_apart(console, "What would be sent", "From topic, To topic, Messages>, Bodies>", topics)
    elif places:
        rows = [(*place, count.messages, byte_size(count.bytes)) for place, count in places[:_SHOWN]]
        show_apart(console, "Destinations", "From topic, To topic, Broker, Queue>, Messages>, Bodies>", rows)
    print_lines(console, *_rest(plan, len(places)))


def show_sent(plan: ReplayPlan, sent: Sent, journal: Path, style: Style) -> None:
    """Print what was sent, and what was left out although the plan did not say so."""
    print_lines(style.console(), *_sent(plan, sent, journal))


def question(plan: ReplayPlan, job: Replay) -> str:
    """What is asked before messages are sent."""
    total = plan.total
    topics = sorted({place.topic for place in plan.places})
    named = first_of(topics, _TOPICS)
    servers = ", ".join(job.cluster.name_servers)
    return (
        f"Send {counted(total.messages, 'message')} ({byte_size(total.bytes)}) to {named} of the cluster of {servers}?"
    )


def _head(plan: ReplayPlan, job: Replay) -> Iterator[str]:
    total = plan.total
    servers = ", ".join(job.cluster.name_servers)
    to = f"to the cluster of {servers}" if servers else "not compared with a target: no --nameserver is given"
    yield f"{counted(total.messages, 'message')}, {byte_size(total.bytes)} of bodies, {to}"
    for name, facts in sorted(plan.brokers.items()):
        yield f"{name}: release {facts.release or 'unknown'}, messages of up to {byte_size(facts.max_message_size)}"
        if facts.unknown:
            yield f"  it does not say {', '.join(facts.unknown)}"
    if plan.done_before:
        yield f"{counted(plan.done_before, 'message')} more: already on the target, according to the journal"
    if plan.unknown:
        yield f"{counted(plan.unknown, 'message')} of them were being sent when a run ended: each is looked up first"


def _rest(plan: ReplayPlan, places: int) -> Iterator[str]:
    if places > _SHOWN:
        yield f"... and {places - _SHOWN} queues more (--json has all)"
    for topic, reason in sorted(plan.unwritable.items()):
        yield f"{topic}: cannot be sent to: {reason}"
    yield from _left_out(plan)
    if plan.reading.damaged_extents:
        size = byte_size(plan.reading.damaged_bytes)
        yield (
            f"{size} of the log are damaged in {counted(plan.reading.damaged_extents, 'place')}, the first at offset "
            f"{plan.reading.first_damage}: messages may be missing"
        )
    if plan.reading.is_unordered:
        yield "the rows of the export are not in log order: messages of a queue are sent in row order"


def _left_out(plan: ReplayPlan, shown: ReplayPlan | None = None) -> Iterator[str]:
    known = shown.left_out if shown else {}
    reasons = [
        (reason, omitted)
        for reason in MEANINGS
        if (omitted := plan.left_out.get(reason)) is not None and omitted != known.get(reason)
    ]
    if reasons:
        yield ""
        yield "Not sent"
    for reason, omitted in reasons:
        largest = sorted(omitted.topics.items(), key=lambda item: (-item[1], item[0]))
        topics = ", ".join(f"{topic} {count}" for topic, count in largest[:_TOPICS])
        more = f", {len(largest) - _TOPICS} topics more" if len(largest) > _TOPICS else ""
        yield f"  {omitted.messages} {MEANINGS[reason]}: {topics}{more}"


def _sent(plan: ReplayPlan, sent: Sent, journal: Path) -> Iterator[str]:
    result = sent.result
    yield f"sent {counted(result.sent, 'message')}"
    if result.found:
        yield f"{counted(result.found, 'message')} were already there, sent by an earlier replay: not sent again"
    yield from _left_out(sent.outcome, plan)
    for status, count in sorted(result.less_safe.items()):
        meaning = status.replace("-", " ")
        yield f"{counted(count, 'message')} of them are stored, but not as safely as configured: {meaning}"
    if result.unproven:
        yield (
            "a broker did not say that its index is complete: messages that were looked up and not found may have "
            "been sent twice"
        )
    if result.refused:
        yield f"{counted(result.refused, 'message')} refused, the first because:"
        yield f"  {result.first_refusal}"
        if result.first_refusal is not None and result.first_refusal.hint:
            yield f"  {result.first_refusal.hint}"
        if sent.is_stopped:
            yield "it stopped there; the same command continues, and --keep-going skips refused messages"
    yield f"receipts: {journal}"
