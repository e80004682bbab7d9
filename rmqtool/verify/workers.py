"""The processes of a verification, which are started before the store is read."""

from __future__ import annotations

import os
from pathlib import Path

from rmqtool.base.memory import MemoryNeed
from rmqtool.base.parallel import WorkerPool
from rmqtool.base.paths import is_remote
from rmqtool.verify.part_result import PartResult

VERIFY_NEED = MemoryNeed(least=170, usual=200, further_least=40, further_usual=65)

WORTH = 64 << 20
"""Bytes of a log that make one more process worth its start."""

_BLOCK = 512  # bytes, the unit of st_blocks


def workers_for(store: Path, jobs: int) -> WorkerPool[PartResult]:
    """As many processes as the size of the log calls for, besides this one."""
    size = 0
    if is_remote(store):
        return WorkerPool(may_copy=False)  # threads of its file system would be missing in a copy
    if jobs > 1:
        try:
            with os.scandir(store / "commitlog") as entries:
                size = sum(entry.stat().st_blocks * _BLOCK for entry in entries)
        except OSError:
            pass  # which is reported later
    return WorkerPool(min(jobs - 1, size // WORTH))
