"""A step of a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rmqtool.repair.proof import Difference


@dataclass(frozen=True)
class PlanStep:
    """One step: what to do in a sentence, the command that does it, what that changes, and what stays lost.

    `is_repair` says that `rmqtool repair` does it. `clients` is what it does to what clients lose by the next start,
    None where that is not known, or nobody but people do it.
    """

    text: str
    command: str | None = None
    changes: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    is_repair: bool = False
    clients: Difference | None = None

    def as_json(self) -> dict[str, Any]:
        """The JSON object of the contract."""
        return {
            "text": self.text,
            "command": self.command,
            "changes": list(self.changes),
            "lost": list(self.lost),
            "clients": self.clients and self.clients.as_json(),
        }
