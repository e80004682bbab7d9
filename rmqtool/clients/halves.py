"""Half messages of which no broker asks the producers again."""

from __future__ import annotations

from rmqtool.broker.half_messages import skipped_halves
from rmqtool.store.snapshot import Snapshot


def half_messages_unchecked(snapshot: Snapshot) -> int:
    """How many half messages wait for an answer before the committed offset; raises UnreadableError."""
    return sum(len(skipped.offsets) for skipped in skipped_halves(snapshot))
