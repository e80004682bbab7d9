"""Where groups go on: had before, and after a start."""

from __future__ import annotations

import pytest

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.prediction import QueueChange, StartPrediction
from rmqtool.clients.groups import moved_groups, next_message, ranges_after_start
from rmqtool.clients.losses import MovedGroup
from rmqtool.rules.versions import Version
from rmqtool.store.config_tables import CommittedOffset
from rmqtool.store.queue_units import QueueRange

NEW, OLD = Version(5, 3, 3), Version(4, 9, 3)
QUEUE = QueueName("orders", 0)


@pytest.mark.parametrize(
    ("committed", "low", "high", "new", "old"),
    [
        (5, 0, 9, 5, 5),
        (9, 0, 9, 9, 9),
        (3, 5, 9, 5, 5),
        (12, 0, 9, 9, 0),
        (12, 4, 9, 9, 9),
        (7, 0, 0, 0, 0),
        (None, 0, 9, None, None),
        (-1, 0, 9, None, None),
    ],
)
def test_where_a_pull_leads(committed: int | None, low: int, high: int, new: int | None, old: int | None) -> None:
    """An offset out of range is corrected to the nearest one; before 4.9.4 to 0 where the queue begins there."""
    queue = QueueRange(low, high)
    assert (next_message(committed, queue, NEW), next_message(committed, queue, OLD)) == (new, old)


@pytest.mark.parametrize(("after", "moved"), [((0, 36), 0), ((30, 36), 0), ((0, 0), 3), (None, 3)])
def test_a_queue_whose_messages_have_all_expired(after: tuple[int, int] | None, moved: int) -> None:
    """Before 5.0 its minimum is 0 at a start; pulls lead to its end, unless the queue is gone and begins with 0."""
    committed = [CommittedOffset(group, "orders", 0, offset) for group, offset in (("a", 0), ("b", 18), ("c", 46))]
    ranges = {QUEUE: QueueRange(*after)} if after else {}
    expired = {QUEUE: QueueRange(0, 36, 5, expired=True)}
    assert len(moved_groups(committed, committed, expired.get, ranges.get, OLD)) == moved


def test_what_a_slave_corrects() -> None:
    """`#nextOffsetCorrection` of a slave leaves each offset as it is."""
    assert next_message(12, QueueRange(0, 9), NEW, is_slave=True) == 12


def test_a_queue_that_gets_shorter() -> None:
    """A group after the new end goes on there, one before it where it was; without an offset it begins again."""
    had = [CommittedOffset(group, "orders", 0, offset) for group, offset in (("a", 4), ("b", 8), ("c", 2))]
    after = [each for each in had if each.group != "c"]
    change = QueueChange("simple", "orders", 0, 0, 8, 0, 6, 2, 0)
    before = {QUEUE: QueueRange(0, 8)}
    shorter = ranges_after_start(StartPrediction("normal", "5.3.3", queues=[change]), twice=False)
    assert moved_groups(had, after, before.get, shorter.get, NEW) == [
        MovedGroup("b", "orders", 0, 8, 6),
        MovedGroup("c", "orders", 0, 2, None),
    ]
    assert moved_groups(had, had, before.get, before.get, NEW) == []


@pytest.mark.parametrize(("offset", "moved"), [(0, [MovedGroup("a", "orders", 0, 0, None)]), (-10, [])])
def test_a_queue_that_has_never_had_a_message(offset: int, moved: list[MovedGroup]) -> None:
    """A group that has committed 0 of it begins again without that; what a repair writes there changes nothing."""
    had = [CommittedOffset("a", "orders", 0, offset)]
    ranges: dict[QueueName, QueueRange] = {}
    assert moved_groups(had, [], ranges.get, ranges.get, NEW) == moved
    put_right = [CommittedOffset("a", "orders", 0, 0)]
    assert moved_groups(had, put_right, ranges.get, ranges.get, NEW) == []


def test_rows_of_queues_that_have_files() -> None:
    """Of queues that are written twice those in files count, as clients read them."""
    rows = QueueChange("simple", "orders", 0, 0, 8, 0, 1, 0, 0, in_rocksdb=True)
    files = QueueChange("simple", "orders", 0, 0, 8, 0, 7, 1, 0)
    start = StartPrediction("normal", "5.3.3", queues=[files, rows])
    assert ranges_after_start(start, twice=True) == {QUEUE: QueueRange(0, 7)}
    alone = StartPrediction("normal", "5.3.3", queues=[rows])  # the files are gone, and consumers get nothing
    assert ranges_after_start(alone, twice=True) == {}
    assert ranges_after_start(alone, twice=False) == {QUEUE: QueueRange(0, 1)}


def test_a_repair_brings_offsets_to_an_end_that_was_lost() -> None:
    """Where no loss is known of a topic they stay, and an old broker begins again with 0."""
    had = [CommittedOffset("a", "orders", 0, 9)]
    before, after = {QUEUE: QueueRange(0, 9)}, {QUEUE: QueueRange(0, 6)}
    assert moved_groups(had, had, before.get, after.get, OLD, to_end={"orders"}) == [MovedGroup("a", "orders", 0, 9, 6)]
    assert moved_groups(had, had, before.get, after.get, OLD) == [MovedGroup("a", "orders", 0, 9, 0)]
