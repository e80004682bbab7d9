"""Of many places where a run can be cut, and of many examples, those that a test tries: all in `make everything`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar
from zlib import crc32

ALL = "RMQTOOL_TEST_ALL"
"""The variable with which every release and every rare case is run."""

_Place = TypeVar("_Place")


def one_in(every: int, places: Sequence[_Place], name: str) -> Sequence[_Place]:
    """Each `every`-th place, at least one; the first of them depends on the name of the case, not on the run."""
    if ALL in os.environ or not places:
        return places
    return places[crc32(name.encode()) % min(every, len(places)) :: every]


def examples(count: int) -> int:
    """How many of `count` examples of a property are tried: two of five."""
    return count if ALL in os.environ else count * 2 // 5
