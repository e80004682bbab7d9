"""A finding: one thing that is not as it should be, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from rmqtool.findings.remedy import Remedy

Severity = Literal["info", "warning", "error"]


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
    def gist(self) -> str:
        """The sentence up to its first semicolon, behind which it has the evidence."""
        return self.message.partition("; ")[0]

    def standing_for(self, count: int, others: str) -> Finding:
        """The finding as one that stands for `count`, itself included; `others` ends its sentence."""
        return replace(self, message=f"{self.message}{others}", count=count)

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
