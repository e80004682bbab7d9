"""Queue entries that are missing, and the messages that consumers do not get because of that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rmqtool.findings.finding import counted


@dataclass(frozen=True)
class QueueHole:
    """Queue entries that are missing from `queue_offset` on, while the log has messages of them or past them.

    `entries` are missing; because of that consumers do not get `messages`, up to `last_queue_offset`. Where the queue
    ends at the hole, `messages_past` of these have written entries past it; else only the missing ones are lost.
    """

    queue_offset: int
    entries: int
    messages: int
    messages_past: int
    last_queue_offset: int
    ends_queue: bool

    def unread_from(self, committed: int) -> int:
        """How many of the messages a group at a committed offset has still to get."""
        if committed <= self.queue_offset:
            return self.messages
        return max(0, min(self.messages, self.last_queue_offset + 1 - committed))

    @property
    def told(self) -> str:
        """The hole in a sentence."""
        last = self.queue_offset + self.entries - 1
        which = f"queue entries {self.queue_offset} to {last} are missing"
        if self.entries <= 1:
            which = f"queue entry {last} is missing" if self.entries else f"the queue ends before entry {last + 1}"
        offsets = f" (queue offsets {self.queue_offset} to {self.last_queue_offset})" if self.messages_past else ""
        are = "is" if self.messages == 1 else "are"
        return f"{which}: {counted(self.messages, 'message')} of the log{offsets} {are} out of consumers' reach"

    def as_json(self) -> dict[str, Any]:
        """The object of the machine interface."""
        return {
            "queue_offset": self.queue_offset,
            "entries": self.entries,
            "messages_past": self.messages_past,
            "unreachable": self.messages,
            "last_queue_offset": self.last_queue_offset,
            "ends_queue": self.ends_queue,
        }


@dataclass(frozen=True)
class QueueView:
    """The holes of a queue in order, and how many messages the next start derives again, which are in none of them."""

    holes: tuple[QueueHole, ...] = ()
    derived: int = 0

    @property
    def unreachable(self) -> int:
        """How many messages of the log consumers do not get."""
        return sum(hole.messages for hole in self.holes)

    @property
    def end(self) -> QueueHole | None:
        """The hole at which the queue ends; None where it does not."""
        return next((hole for hole in self.holes if hole.ends_queue), None)

    def hole_at(self, queue_offset: int) -> QueueHole | None:
        """The hole because of which consumers do not get a queue offset; None where there is none."""
        return next((hole for hole in self.holes if hole.queue_offset <= queue_offset <= hole.last_queue_offset), None)

    def from_offset(self, committed: int) -> tuple[QueueHole | None, int]:
        """The first hole that concerns a group at a committed offset, and how many messages it misses for all."""
        unread = [(hole, hole.unread_from(committed)) for hole in self.holes]
        first = next((hole for hole, messages in unread if messages or hole.ends_queue), None)
        return first, sum(messages for _, messages in unread)
