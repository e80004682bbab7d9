"""Offsets that lie outside of their queue, brought to the nearest offset that the queue has.

A group goes on there anyhow, but only when it connects before its queue has grown that far.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.repair.config_source import LMQ_TABLE
from rmqtool.repair.config_text import Member, edited, members, table_in, value_of
from rmqtool.repair.seen_queues import SeenQueue, SeenQueues

_FAR = 10_000  # from 0: of a queue without any message; a smaller offset may be that of messages that have expired
_LMQ_QUEUE_ID = "0"  # MixAll.LMQ_QUEUE_ID


NO_PROOF = "offsets past the ends of queues may be all that proves that the log has lost its end"
"""What no one can know any more when they are brought to those ends."""


class Moved(NamedTuple):
    """An offset that is brought to another one, and why to that one; `backup` is one that its queue has, too."""

    group: str
    topic: str
    queue_id: int
    offset: int
    to: int
    why: str
    backup: int | None = None

    @property
    def line(self) -> str:
        """The line that shows it."""
        why = self.why if self.backup is None else f"{self.why}; its .bak has {self.backup}"
        return f"group {self.group}, {self.topic} queue {self.queue_id}: {self.offset} -> {self.to} ({why})"


def with_real_offsets(text: str, queues: SeenQueues, backup: str | None = None) -> tuple[str, list[Moved]]:
    """The text of a file of committed offsets with each in the range of its queue, and those that are moved.

    Where the text of its ``.bak`` has another one in that range, somebody may prefer it: the group was there.
    """
    edits, moved = [], []
    older = {(group, topic, number.name): value_of(backup, number)
             for group, topic, number in offsets_in(backup)} if backup else {}  # fmt: skip
    for group, topic, number in offsets_in(text):
        offset = value_of(text, number)
        if type(offset) is not int or not number.name.isdecimal():
            continue
        queue_id = int(number.name)
        queue = queues.get(QueueName(topic, queue_id))
        nearest, why = _nearest(queue, offset)
        if nearest != offset:
            edits.append((number.value, number.stop, str(nearest)))
            backup_offset = _plausible(queue, older.get((group, topic, number.name)), nearest)
            moved.append(Moved(group, topic, queue_id, offset, nearest, why, backup_offset))
    return edited(text, edits), moved


def with_newer_offsets(text: str, entries: Mapping[str, str], queues: SeenQueues) -> tuple[str, list[str]]:
    """The text of a ``.bak`` with the offsets that the damaged file has whole in `entries`, and a line for each.

    Offsets grow: one that is less, or that its queue does not have, is not taken over.
    """
    newer = {(group, topic, number.name): value_of(entry, number)
             for entry in (f'{{"offsetTable":{{{each}}}}}' for each in entries.values())
             for group, topic, number in offsets_in(entry)}  # fmt: skip
    edits, lines = [], []
    for group, topic, number in offsets_in(text):
        before, after = value_of(text, number), newer.get((group, topic, number.name))
        queue = queues.get(QueueName(topic, int(number.name))) if number.name.isdecimal() else None
        if queue is not None and type(before) is type(after) is int and before < after <= queue.max_offset:
            edits.append((number.value, number.stop, str(after)))
            lines.append(f"group {group}, {topic} queue {number.name}: {after} (its .bak has {before})")
    return edited(text, edits), lines


def offsets_in(text: str) -> Iterator[tuple[str, str, Member]]:
    """Group, topic, and the number of each queue, which is named by its queue id."""
    for name in ("offsetTable", LMQ_TABLE):
        table = table_in(text, name)
        for entry in members(text, table.value) if table else ():
            topic, _, group = entry.name.partition("@")
            if text[entry.value] == "{":
                yield from ((group, topic, number) for number in members(text, entry.value))
            else:
                yield group, topic, entry._replace(name=_LMQ_QUEUE_ID)


def _plausible(queue: SeenQueue | None, offset: Any, nearest: int) -> int | None:
    """The offset of a ``.bak`` if its queue has it, and it is not the nearest one anyhow."""
    if queue is None or type(offset) is not int or offset == nearest:
        return None
    return offset if queue.min_offset <= offset <= queue.max_offset else None


def _nearest(queue: SeenQueue | None, offset: int) -> tuple[int, str]:
    if queue is None:
        return (0 if offset < 0 or offset >= _FAR else offset), "its queue has no message"
    nearest = min(max(offset, queue.min_offset), queue.max_offset)
    return nearest, "the end" if nearest == queue.max_offset else "the beginning"
