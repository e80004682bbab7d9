"""Where a delay level's deliveries end, by the copies in the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from rmqtool.store.single_messages import Deliveries, LoggedLevels

_NEWEST = 1_000_000


@dataclass
class FakeMessages:
    """Messages of one level, each with its time and whether it has a copy; None is one that cannot be read."""

    due: Sequence[int]
    copies: Sequence[bool | None]

    def queue(self, topic: str, queue_id: int) -> Any:
        """The level's queue, and the topic of its messages."""
        return SimpleNamespace(name=topic, range=SimpleNamespace(min_offset=0, max_offset=len(self.due)))

    def waiting(self, queue: Any, queue_offset: int) -> tuple[dict[str, Any] | None, int]:
        """A message that waits, and when it is due."""
        return None if self.copies[queue_offset] is None else self.message(queue_offset, 0), self.due[queue_offset]

    def stored_from(self, queue: Any, store_timestamp: int) -> Iterator[dict[str, Any]]:
        """The copies."""
        yield from (self.message(number, 1) for number, has_copy in enumerate(self.copies) if has_copy)

    def message(self, number: int, physical_offset: int) -> dict[str, Any]:
        """What is read of a message."""
        properties = {"REAL_TOPIC": "orders", "REAL_QID": "0"}
        return {"unique_key": str(number), "reconsume_times": 0, "physical_offset": physical_offset,
                "store_timestamp": 5, "properties": properties}  # fmt: skip


@pytest.mark.parametrize(
    ("due", "copies", "end"),
    [
        ([1, 2, 3], [True, True, True], 3),
        ([1, 2, 3], [True, True, False], 2),
        ([1, 2, 3], [False, False, False], 0),
        ([1, 2, _NEWEST + 1, _NEWEST + 2], [True, True, False, False], 2),
        ([1, 2, _NEWEST + 1], [True, False, False], 1),
        ([_NEWEST + 1, _NEWEST + 2], [False, False], 0),
        ([1, 2, 3], [True, True, None], None),
        ([1, 2, 3], [True, None, False], None),
        ([1, _NEWEST + 1, 3], [True, False, True], None),
        ([1, _NEWEST + 1, _NEWEST + 2, 3], [True, False, False, False], None),
        ([1] * 600, [False] * 600, None),
    ],
)
def test_where_deliveries_end(due: Sequence[int], copies: Sequence[bool | None], end: int | None) -> None:
    """After the last message with a copy, when it is known that none follows; a level delivers in order."""
    messages: Any = FakeMessages(due, copies)
    assert Deliveries(messages, _NEWEST, _NEWEST + 1).end_of(1) == end


@pytest.mark.parametrize(
    ("moved", "copies", "end"),
    [
        (_NEWEST + 1, [True, True, True], 3),
        (_NEWEST + 1, [True, True, False], 2),
        (200, [True, True, True], 3),
        (200, [True, False, False], 1),
    ],
)
def test_a_moved_time_hides_no_delivery(moved: int, copies: Sequence[bool], end: int) -> None:
    """A copy proves that a message was delivered, whatever time its entry has now."""
    messages: Any = FakeMessages([15, 15, moved], copies)
    logged = LoggedLevels({1: 0}, {1: 3}, lambda *_: None, lambda *_: None, lambda _: 10)
    deliveries = Deliveries(messages, _NEWEST, _NEWEST + 1, 0, logged)
    assert deliveries.end_of(1) == end
    assert list(deliveries.levels(dict.fromkeys(range(65), end))) == []
