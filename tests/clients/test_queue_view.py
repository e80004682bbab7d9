"""Holes of a queue: what each takes from a group at an offset, how it reads, and what a start leaves of it."""

from __future__ import annotations

import numpy as np
import pytest

from rmqtool.clients.queue_view import LoggedMessages, QueueHole, QueueView, _without

HOLE = QueueHole(10, 4, 3, 0, 13, ends_queue=False)
"""Entries 10 to 13, of which the log has three messages."""
END = QueueHole(20, 2, 6, 4, 25, ends_queue=True)
"""The queue ends before entries 20 and 21; the log has both messages and four past them."""


@pytest.mark.parametrize(
    ("hole", "committed", "unread"),
    [
        (HOLE, 0, 3), (HOLE, 10, 3), (HOLE, 11, 3), (HOLE, 12, 2), (HOLE, 13, 1), (HOLE, 14, 0), (HOLE, 99, 0),
        (END, 20, 6), (END, 21, 5), (END, 25, 1), (END, 26, 0),
    ],
)  # fmt: skip
def test_what_a_group_has_still_to_get(hole: QueueHole, committed: int, unread: int) -> None:
    """As many as are left of the hole, of which some may have no message."""
    assert hole.unread_from(committed) == unread


def test_a_view_sums_its_holes() -> None:
    view = QueueView((HOLE, END))
    assert (view.unreachable, view.end) == (9, END)
    assert QueueView((HOLE,)).end is None
    found = [view.hole_at(offset) for offset in (9, 10, 13, 14, 20, 25, 26)]
    assert found == [None, HOLE, HOLE, None, END, END, None]
    assert [view.from_offset(offset) for offset in (0, 13, 14, 26)] == [(HOLE, 9), (HOLE, 7), (END, 6), (END, 0)]
    assert QueueView((HOLE,)).from_offset(14) == (None, 0)


@pytest.mark.parametrize(
    ("hole", "told"),
    [
        (HOLE, "queue entries 10 to 13 are missing: 3 messages of the log are"),
        (END, "queue entries 20 to 21 are missing: 6 messages of the log (queue offsets 20 to 25) are"),
        (QueueHole(7, 1, 1, 0, 7, ends_queue=False), "queue entry 7 is missing: 1 message of the log is"),
        (
            QueueHole(7, 0, 2, 2, 8, ends_queue=True),
            "the queue ends before entry 7: 2 messages of the log (queue offsets 7 to 8) are",
        ),
    ],
)
def test_a_hole_in_words(hole: QueueHole, told: str) -> None:
    assert hole.told == f"{told} out of consumers' reach"


@pytest.mark.parametrize(
    ("derived", "left"),
    [
        (1, QueueHole(20, 2, 5, 3, 24, ends_queue=True)),
        (4, QueueHole(20, 2, 2, 0, 21, ends_queue=True)),
        (5, QueueHole(20, 1, 1, 0, 20, ends_queue=True)),
    ],
)
def test_a_start_derives_the_last_messages(derived: int, left: QueueHole) -> None:
    assert _without(END, derived) == left


def test_messages_of_the_log_by_offset() -> None:
    logged = LoggedMessages(np.array([4, 5, 8]), np.array([1, 3, 1]), np.array([100, 200, 300]))
    assert logged.behind(200).queue_offsets.tolist() == [8]
    assert logged.behind(99).queue_offsets.tolist() == [4, 5, 8]
    assert logged.within(4, 8).physical_offsets.tolist() == [100, 200]
    assert logged.within(5, 9).counts.tolist() == [3, 1]
