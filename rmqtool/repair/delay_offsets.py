"""Where each delay level goes on to deliver, by the deliveries that the log shows (`ScheduleMessageService`)."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property

from rmqtool.repair.config_text import edited, members, table_in, value_of, with_members
from rmqtool.repair.offset_ranges import NO_PROOF
from rmqtool.rules.system_topics import SCHEDULE_TOPIC
from rmqtool.store.deliveries import LEVELS, Deliveries
from rmqtool.store.queue_range import QueueRange
from rmqtool.store.single_messages import SingleMessages
from rmqtool.store.snapshot import Snapshot
from rmqtool.transaction.selections import chosen_until


class DelayOffsets:
    """The offsets of the levels that have messages."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    @cached_property
    def proven(self) -> dict[int, int]:
        """By level, the offset after its last delivery, where the log proves it."""
        snapshot, newest = self._snapshot, self._snapshot.log_range.last_store_timestamp
        if newest is None:
            return {}
        messages = SingleMessages(snapshot)
        deliveries = Deliveries(messages, newest, newest + 1, chosen_until(snapshot.store.root))
        ends = {level: deliveries.end_of(level) for level in range(1, LEVELS + 1)}
        return {level: end for level, end in ends.items() if end is not None}

    @cached_property
    def unproven(self) -> list[int]:
        """Levels that have messages, of which the log does not show which were delivered."""
        with_messages = {level for level, each in self._ranges.items() if each.max_offset > each.min_offset}
        return sorted(with_messages - self.proven.keys())

    @cached_property
    def _ranges(self) -> dict[int, QueueRange]:
        """The ranges of the levels' queues."""
        queues = {queue_id + 1: self._snapshot.queue(SCHEDULE_TOPIC, queue_id)
                  for queue_id in self._snapshot.queue_ids(SCHEDULE_TOPIC)}  # fmt: skip
        return {level: queue.range for level, queue in queues.items() if queue is not None}

    def completed(self, text: str) -> tuple[str, list[str]]:
        """A file's text with the levels that it lacks, as far as they are proven, and a line for each."""
        table = table_in(text, "offsetTable")
        there = {member.name for member in members(text, table.value)} if table else set()
        new = {level: offset for level, offset in self.proven.items() if str(level) not in there}
        if table is None or not new:
            return text, []
        lines = [f"delay level {level}: {offset} (where its deliveries end)" for level, offset in new.items()]
        return with_members(text, table, {str(level): f"{level}:{offset}" for level, offset in new.items()}), lines

    def lost(self, text: str) -> list[str]:
        """What goes with the levels of a file's text that are past the ends of their queues."""
        table = table_in(text, "offsetTable")
        is_behind = any(
            type(offset := value_of(text, member)) is int and offset > self._ranges[int(member.name)].max_offset
            for member in (members(text, table.value) if table else ())
            if member.name.isdecimal() and int(member.name) in self._ranges
        )
        return [f"where these levels were; {NO_PROOF}"] if is_behind else []

    def corrected(self, text: str, levels: Collection[int] | None = None) -> tuple[str, list[str]]:
        """A text with `levels` (or all) where they are proven, else in the range of their queue; and the lines."""
        table = table_in(text, "offsetTable")
        edits, lines = [], []
        for member in members(text, table.value) if table else ():
            offset = value_of(text, member)
            if type(offset) is not int or not member.name.isdecimal():
                continue
            level = int(member.name)
            if levels is not None and level not in levels:
                continue
            end = self._ranges[level].max_offset if level in self._ranges else offset
            right = self.proven.get(level, min(max(offset, 0), end))
            if right != offset:
                edits.append((member.value, member.stop, str(right)))
                place = "where its deliveries end" if level in self.proven else "the end of its queue"
                lines.append(f"delay level {level}: {offset} -> {right} ({place})")
        return edited(text, edits), lines
