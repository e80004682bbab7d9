"""A step of a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PlanStep:
    """One step: what to do in a sentence, the command that does it, what that changes, and what stays lost."""

    text: str
    command: str | None = None
    changes: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The JSON object of the contract."""
        return {"text": self.text, "command": self.command, "changes": list(self.changes), "lost": list(self.lost)}
