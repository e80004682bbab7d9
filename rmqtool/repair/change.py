"""One change of a repair: shown before it is made, made in a transaction, taken back by undo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from rmqtool.transaction import Transaction


class Change(Protocol):
    """What a plan shows of a change, and how it is made."""

    @property
    def codes(self) -> frozenset[str]:
        """The codes of the findings that it heals."""

    @property
    def what(self) -> str:
        """One line: what becomes of which file."""

    @property
    def lost(self) -> str | None:
        """What it cannot bring back; None for nothing."""

    @property
    def details(self) -> tuple[str, ...]:
        """More lines, shown one by one."""

    @property
    def size(self) -> int:
        """Bytes that it writes."""

    def stage(self, transaction: Transaction) -> None:
        """Prepare the change; the transaction's commit makes it."""


def change_json(change: Change) -> dict[str, Any]:
    """The JSON object of the contract."""
    return {
        "what": change.what,
        "details": list(change.details),
        "lost": change.lost,
        "codes": sorted(change.codes),
    }


@dataclass(frozen=True)
class FileChange:
    """A small file that is replaced or created, or, where `content` is None, a file or directory that is taken out.

    `name` is relative to the store.
    """

    name: str
    content: bytes | None
    codes: frozenset[str]
    what: str
    lost: str | None = None
    details: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes that are written."""
        return len(self.content or b"")

    def stage(self, transaction: Transaction) -> None:
        """Prepare the change; what is replaced is kept until undo."""
        if self.content is None:
            transaction.remove(self.name)
            return
        transaction.file(self.name).write(self.content, 0)
        transaction.put(self.name)
