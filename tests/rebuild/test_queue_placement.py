"""Where units of plain queues go, by the broker's order and by stored queue offsets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.broker.dispatched_units import QueueName, QueueUnits
from rmqtool.formats.consume_queue import UNIT_SIZE
from rmqtool.rebuild.existing import ExistingQueues, FileGrid, StoredUnits
from rmqtool.rebuild.queue_placement import Extent, LostExtents, Order, SimpleQueues
from tests.rebuild.units import SIZE, Kept, units

PER_FILE = 10
ORDERS: tuple[Order, ...] = ("stored", "broker")


def place(
    batches: Sequence[QueueUnits], order: Order = "stored", lost: Extent | None = None
) -> tuple[Kept, SimpleQueues]:
    sink, lost_extents = Kept(), LostExtents()
    if lost:
        lost_extents.add_extent(lost)
    names = [QueueName("orders", number) for number in range(1000)]
    none = ExistingQueues("simple", FileGrid(PER_FILE * UNIT_SIZE, UNIT_SIZE), -1, {})
    queues = SimpleQueues(names, [sink], none, order, lost_extents)
    for batch in batches:
        queues.add(StoredUnits.of(batch))
    queues.finish()
    return sink, queues


def lost(physical_offset: int, size: int, reason: str = "lengths") -> Extent:
    return Extent(physical_offset, size, reason, timestamp=0)


def at(*rows: int) -> list[int | None]:
    """Physical offsets of the records with these numbers."""
    return [row * SIZE for row in rows]


@pytest.mark.parametrize("order", ORDERS)
def test_regular_units_follow_each_other(order: Order) -> None:
    """Numbers are the stored queue offsets, over batches and queues."""
    batch = units([0, 0, 1, 2, 1], queues=[0, 1, 0, 0, 1])
    more = units([3, 2], [500, 600], queues=[0, 1])
    sink, queues = place([batch, more], order)

    assert sink.targets(0) == at(0, 2, 3, 5)
    assert sink.targets(1) == at(1, 4, 6)
    assert (queues.end(0), queues.end(1), queues.end(2)) == (4, 3, -1)
    assert not queues.irregular


@pytest.mark.parametrize("order", ORDERS)
def test_first_file_is_filled_before_the_first_unit(order: Order) -> None:
    """A queue whose first offset is not 0 begins with its file, filled up to it (`fillPreBlank`)."""
    sink, queues = place([units([23, 24])], order)

    assert min(sink.queues[0]) == 20
    assert sink.targets() == [None] * 3 + at(0, 1)
    assert (queues.first(0), queues.first_message(0)) == (20, 23)


def test_broker_closes_a_gap() -> None:
    """Records 7, 8, 12, 13 of an empty queue: seven filler units, then four units in a row, as all releases do it."""
    sink, queues = place([units([7, 8, 12, 13])], "broker")

    assert sink.targets() == [None] * 7 + at(0, 1, 2, 3)
    assert queues.irregular[0].shifted == 2


def test_broker_drops_what_comes_again_after_a_topic_was_made_anew() -> None:
    """Offsets 0, 1, 2 and then 0 to 4: 0 is always appended, lower ones than the end are dropped (spec 1.4)."""
    sink, queues = place([units([0, 1, 2, 0, 1, 2, 3, 4])], "broker")

    assert sink.targets() == at(0, 1, 2, 3, 7)
    assert queues.irregular[0].repeated == 3


@pytest.mark.parametrize("split", range(1, 8))
def test_broker_order_does_not_depend_on_batches(split: int) -> None:
    """Units in one batch or two: the same queue."""
    every = units([0, 1, 2, 0, 1, 2, 3, 4])
    sink, _ = place([every[:split], every[split:]], "broker")

    assert sink.targets() == at(0, 1, 2, 3, 7)


def test_stored_offsets_begin_anew_where_they_go_back() -> None:
    """The later messages count: those are what a broker serves that began the queue again."""
    offsets = [*range(20), *range(12)]
    sink, queues = place([units(offsets)])

    assert sink.targets() == at(*range(20, 32))
    assert queues.irregular[0].superseded == 20


def test_stored_offsets_that_go_back_a_little_cut_the_queue_there() -> None:
    """As a queue that was behind at a crash is continued: what stood from there on is replaced."""
    offsets = [*range(30), *range(25, 40)]
    sink, queues = place([units(offsets)])

    assert sink.targets() == at(*range(25), *range(30, 45))
    assert queues.irregular[0].superseded == 5


def test_queue_that_begins_again_below_its_first_file() -> None:
    """Then the first file is another one."""
    sink, queues = place([units([*range(53, 75), *range(11, 30)])])

    assert min(sink.queues[0]) == 10
    assert sink.targets() == [None, *at(*range(22, 41))]
    assert (queues.first(0), queues.first_message(0)) == (10, 11)


def test_queue_that_begins_again_below_its_first_message() -> None:
    """Filler stood for nothing that is lost; before the entry that is the first now messages are lost."""
    sink, queues = place([units([6, 7, 2], [100, 200, 800])], lost=lost(200, 600))

    assert sink.targets() == [800, 800, 800]
    assert (queues.first_message(0), queues.irregular[0].superseded) == (2, 2)


def test_gap_is_filled_with_the_next_unit() -> None:
    """Lost messages: the others keep their offsets, and no unit points to garbage."""
    sink, queues = place([units([0, 1, 5, 6], [0, 100, 800, 900])], lost=lost(200, 600))

    assert sink.targets() == [0, 100, 800, 800, 800, 800, 900]
    assert queues.irregular[0].neutral == 3


def test_gap_of_a_missing_file_is_filled_with_units_that_point_into_it() -> None:
    """A pull skips such units exactly."""
    sink, _ = place([units([0, 1, 5, 6], [0, 100, 800, 900])], lost=lost(256, 544, "missing"))

    assert sink.targets() == [0, 100, 256, 256, 256, 800, 900]


def test_lost_head_is_no_filler() -> None:
    """Messages before a queue's first one that are lost with bytes of the log: filler would hide what follows."""
    sink, queues = place([units([2, 3], [500, 600])], lost=lost(100, 400))

    assert sink.targets() == [500, 500, 500, 600]
    assert queues.irregular[0].neutral == 2
    few, _ = place([units([7, 8], [500, 600])], lost=lost(100, 400))
    assert few.targets() == [None] * 7 + [500, 600]


def test_jump_that_no_lost_bytes_explain_is_refused() -> None:
    """A damaged queue offset must not make a file of billions of units."""
    sink, queues = place([units([0, 1, *range(1 << 40, (1 << 40) + 20)])])

    assert sink.targets() == at(0, 1)
    assert queues.irregular[0].jump == (2, 1 << 40)


@pytest.mark.parametrize("wrong", [0, 2, 100, 1 << 50])
def test_one_damaged_queue_offset_is_refuted_by_its_neighbours(wrong: int) -> None:
    """No CRC covers the stored queue offset; where exactly one unit is missing, it stands there."""
    offsets = [*range(20), wrong, *range(21, 40)]
    sink, queues = place([units(offsets)])

    assert sink.targets() == at(*range(40))
    assert queues.irregular[0].renumbered == 1
    assert not queues.irregular[0].jump


@pytest.mark.parametrize("wrong", [0, 7, 100, 1 << 50])
def test_message_of_another_queue_takes_no_place(wrong: int) -> None:
    """Where a queue goes on as if a few messages were not there, these do not belong to it: nothing else is dropped."""
    sink, queues = place([units([*range(20), wrong, *range(20, 40)])])

    assert sink.targets() == at(*range(20), *range(21, 41))
    assert queues.irregular[0].strangers == 1
    assert (queues.irregular[0].superseded, queues.irregular[0].neutral) == (0, 0)


def test_negative_queue_offset_is_dropped() -> None:
    """No broker can put such a unit."""
    sink, queues = place([units([0, 1, -5, 2])])

    assert sink.targets() == at(0, 1, 3)
    assert queues.irregular[0].repeated == 1


@pytest.mark.parametrize("order", ORDERS)
def test_record_named_twice_for_a_queue_counts_once(order: Order) -> None:
    """A light queue may stand twice in a record's properties: the second is a repeat."""
    sink, _ = place([units([0, 1, 1, 2], [0, 100, 100, 200])], order)

    assert sink.targets() == at(0, 1, 2)


@pytest.mark.slow
@given(st.lists(st.integers(0, 12), min_size=1, max_size=40))
def test_broker_order_is_that_of_the_java_class(offsets: list[int]) -> None:
    """Any offsets: the queue is that of `ConsumeQueue#putMessagePositionInfo`, put one by one."""
    sink, _ = place([units(offsets)], "broker")

    assert sink.targets() == _one_by_one(offsets)


def _one_by_one(offsets: list[int]) -> list[int | None]:
    """The broker's rule as it is written: `expect` against where the queue ends."""
    base = offsets[0] - offsets[0] % PER_FILE
    queue: list[int | None] = [None] * (offsets[0] - base)
    for row, expect in enumerate(offsets):
        if expect != 0 and expect < base + len(queue):
            continue
        queue.append(row * SIZE)
    return queue


@pytest.mark.slow
@given(st.lists(st.integers(0, 30), max_size=40), st.integers(0, 40))
def test_stored_order_has_no_holes_and_ascends_in_each_life(offsets: list[int], split: int) -> None:
    """Whatever is stored: units without a hole, each real one once, and the same in one batch or two."""
    every = units(offsets)
    one, _ = place([every])
    two, _ = place([every[:split], every[split:]])

    assert one.queues == two.queues
    if one.queues:
        targets = one.targets()
        real = [target for target in targets if target is not None]
        assert np.all(np.diff(real) >= 0)
