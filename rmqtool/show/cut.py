"""A cut of a log, planned or done, as JSON and for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rmqtool.base.numbers import Count, Long
from rmqtool.base.times import Moment
from rmqtool.base.visible import visible
from rmqtool.cut.job import CutPlan, CutProof
from rmqtool.findings.finding import counted
from rmqtool.show.output import Style, print_fact, show_finding, write_text
from rmqtool.show.shapes import Recovered, Shape, at, by
from rmqtool.show.times import time_text

_MOST_SHOWN = 10


class TopicLoss(Shape):
    """A topic that loses messages."""

    topic: str = by(lambda row, _: row[0])
    messages: Count = by(lambda row, _: row[1])  # How many.


class QueueLoss(Shape):
    """A queue that ends earlier."""

    topic: str = at("name.topic")
    queue_id: Long = at("name.queue_id")
    max_before: Long  # Its end before, a queue offset, exclusive.
    max_after: Long  # Its end then.


class GroupOfLoss(Shape):
    """A group, and what it loses of a queue."""

    group: str
    topic: str
    queue_id: Long
    committed: Long  # Its committed offset before.
    unread: Count  # Removed messages that it has not read.
    read: Count  # Removed messages that it has read.
    lowered_to: Long | None  # Its committed offset afterwards; null if unchanged.


@dataclass(frozen=True)
class _Answer:
    state: str
    plan: CutPlan
    transaction: str | None
    proof: CutProof | None
    recovered: Sequence[Any]


class CutResult(Shape):
    """What a cut removes from a store."""

    state: Literal["planned", "nothing", "done"]  # planned: --dry-run. nothing: there was nothing after that offset.
    transaction: str | None  # Its id, for undo; null unless done.
    end_after: Long = at("plan.place.offset")  # Where the log ends afterwards, bytes.
    end_before: Long = at("plan.end_before")  # Where it ended, bytes.
    last_record_offset: Long = at("plan.place.last_record")  # Its last record afterwards.
    last_store: Moment = at("plan.place.last_store_timestamp")  # When that one was stored.
    messages: Count = at("plan.tail.records")  # Records removed from the log.
    keys: Count = at("plan.index.keys")  # Entries removed from the index.
    by_topic: list[TopicLoss] = by(lambda answer, _: [*answer.plan.by_topic.items()])  # Messages by topic, most first.
    queues: list[QueueLoss] = at("plan.queues")  # The queues that end earlier.
    groups: list[GroupOfLoss] = at("plan.positions.groups")  # What groups lose.
    delivered_again: Count = at("plan.positions.again")  # Delayed messages that are delivered again.
    taken_again: Count = at("plan.positions.taken")  # Messages that POP consumers took after the cut, and get again.
    halves_unanswered: Count = at(
        "plan.positions.halves"
    )  # Half messages whose answer is removed: producers are asked again.
    files_deleted: Count = at("plan.files_deleted")  # Files and directories removed; undo restores them.
    # Whether the predicted starts serve all remaining messages; null unless done.
    proven: bool | None = by(lambda answer, _: answer.proof and answer.proof.is_proven)
    recovered: list[Recovered]  # Interrupted runs that were completed first.


def cut_json(
    plan: CutPlan, state: str, transaction: str | None = None, proof: CutProof | None = None,
    recovered: Sequence[Any] = (),
) -> dict[str, Any]:  # fmt: skip
    """The `result` of a cut."""
    return CutResult.of(_Answer(state, plan, transaction, proof, recovered))


def show_cut(plan: CutPlan, proof: CutProof | None, style: Style) -> None:
    """Print what is removed, and what groups lose."""
    console, place = style.console(), plan.place
    print_fact(console, "log", f"ends at {place.offset} (before: {plan.end_before})")
    print_fact(console, "last", f"message at {place.last_record}, stored {time_text(place.last_store_timestamp)}")
    removed = [(plan.tail.records, "message"), (plan.index.keys, "key"), (plan.files_deleted, "whole file")]
    print_fact(console, "removes", ", ".join(counted(*each) for each in removed))
    for topic, messages in [*plan.by_topic.items()][:_MOST_SHOWN]:
        write_text(f"  {visible(topic)}: {counted(messages, 'message')}\n")
    if len(plan.by_topic) > _MOST_SHOWN:
        write_text(f"  and {len(plan.by_topic) - _MOST_SHOWN} more topics\n")
    _show_groups(plan)
    if plan.positions.again:
        print_fact(console, "delays", f"{counted(plan.positions.again, 'message')} delivered again")
    if plan.positions.taken:
        print_fact(console, "POP", f"{counted(plan.positions.taken, 'message')} taken after the cut: their groups get "
                                   "them again")  # fmt: skip
    if plan.positions.halves:
        print_fact(console, "halves", f"{counted(plan.positions.halves, 'half message')} lost the answer: producers "
                   "are asked again")  # fmt: skip
    if proof:
        state = "serves all remaining messages" if proof.is_proven else "see the findings"
        print_fact(console, "start", state)
        for finding in proof.findings:
            show_finding(console, finding)


def _show_groups(plan: CutPlan) -> None:
    unread = sorted((each for each in plan.positions.groups if each.unread), key=lambda each: -each.unread)
    for each in unread[:_MOST_SHOWN]:
        where = f"{visible(each.topic)} queue {each.queue_id}"
        write_text(f"group {visible(each.group)} loses {counted(each.unread, 'unread message')} of {where}\n")
    if len(unread) > _MOST_SHOWN:
        write_text(f"and {len(unread) - _MOST_SHOWN} more groups and queues lose unread messages\n")
    lowered = sum(each.lowered_to is not None for each in plan.positions.groups)
    if lowered:
        ends = "the new end of its queue" if lowered == 1 else "the new ends of their queues"
        write_text(f"{counted(lowered, 'committed offset')} lowered to {ends}\n")
