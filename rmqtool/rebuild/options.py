"""What a rebuild was asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from rmqtool.base.files import RateLimit
from rmqtool.rebuild.queue_placement import Order
from rmqtool.rebuild.selection import QueueSelection
from rmqtool.rules.versions import Version

Part = Literal["queues", "index"]


@dataclass(frozen=True)
class RebuildOptions:
    """Parts to rebuild, queues to take, whose rules count, how units get their numbers, what becomes of damage."""

    parts: frozenset[Part]
    selection: QueueSelection = field(default_factory=QueueSelection)
    version: Version | None = None
    order: Order = "stored"
    limit: RateLimit | None = None
    neutralise: bool = False
    jobs: int = 1  # processes that read the log


Progress = Callable[[int], None]
"""Told how many bytes of the log are done."""


def no_progress(done: int) -> None:
    """For those who do not wait."""
