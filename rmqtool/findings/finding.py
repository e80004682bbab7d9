"""A finding: one thing that is not as it should be, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from rmqtool.findings.remedy import Remedy

Severity = Literal["info", "warning", "error"]

_PLACE = ("file", "offset", "topic", "queue_id", "queue_offset", "count")


@dataclass(frozen=True)
class Finding:
    """One finding, as every command reports it.

    `code` is stable and dotted; `fault` the number in the fault catalogue; `offset` is in the commit log for codes
    that begin with ``commitlog.`` and in the file otherwise, bytes; `effect` is what the broker does with it;
    `next_command` the one to run next; `count` how many equal ones this one stands for.
    `details` are its facts as typed fields: programs decide by them, never by a sentence.
    """

    code: str
    severity: Severity
    message: str
    effect: str
    next_command: Remedy | None = None
    fault: str | None = None
    file: str | None = None
    offset: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    count: int = 1
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def queue(self) -> str | None:
        """The queue for people, ``orders, queue 3``; the topic where it is about no queue, None without a topic."""
        return self.topic if self.topic is None or self.queue_id is None else f"{self.topic}, queue {self.queue_id}"

    @property
    def remedy(self) -> str | None:
        """The command to run next, as it is shown."""
        return None if self.next_command is None else str(self.next_command)

    @property
    def facts(self) -> dict[str, Any]:
        """Its details, where it is, and how many it stands for: all that its sentence is made of."""
        place = {name: getattr(self, name) for name in _PLACE}
        return {**place, **self.details}

    def standing_for(self, count: int, others: int) -> Finding:
        """The finding as one that stands for `count`, itself included, of `others` more findings."""
        more = f" ({others} more like this)" if others else ""
        return replace(self, message=f"{self.message}{more}", count=count)

    def as_json(self) -> dict[str, Any]:
        """The JSON object of the contract."""
        named = {each.name: getattr(self, each.name) for each in fields(self)}
        return {("remedy" if name == "next_command" else name): value for name, value in named.items()} | {
            "remedy": self.remedy,
            "details": dict(self.details),
        }


def counted(count: int, noun: str) -> str:
    """A number with its noun, as a sentence has it: ``1 message``, ``2 messages``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
