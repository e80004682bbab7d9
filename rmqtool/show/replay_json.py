"""A replay as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rmqtool.base.errors import Exit
from rmqtool.replay.outgoing import EXPECTED, MEANINGS
from rmqtool.replay.planning import ReplayPlan
from rmqtool.replay.run import Replay, Sent
from rmqtool.show.output import Style, write_document


def write_plan(plan: ReplayPlan, job: Replay, journal: Path, style: Style, status: Exit) -> None:
    """Print the document of a count."""
    write_document(
        style, "replay", style.store, {**_shared(plan, job, journal, "planned"), "sent": None}, status=status
    )


def write_sent(plan: ReplayPlan, sent: Sent, job: Replay, journal: Path, style: Style, status: Exit) -> None:
    """Print the document of messages that were sent; what was left out is what sending has met."""
    result = _shared(plan, job, journal, "stopped" if sent.is_stopped else "done")
    result |= {"left_out": _left_out(sent.outcome), "done_before": sent.outcome.done_before}
    refusal = sent.result.first_refusal
    result["sent"] = {
        "messages": sent.result.sent,
        "found": sent.result.found,
        "refused": sent.result.refused,
        "less_safe": sent.result.less_safe,
        "unproven_lookups": sent.result.unproven,
        "first_refusal": None if refusal is None else str(refusal),
    }
    write_document(style, "replay", style.store, result, status=status)


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
        "left_out": _left_out(plan),
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


def _left_out(plan: ReplayPlan) -> list[dict[str, Any]]:
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
