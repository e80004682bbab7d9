"""A queue under the broker's own hands: appended to, cut, and cut where it should not be."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from rmqtool.base.mapped_files import list_mapped_files
from rmqtool.broker.queue_recovery import SimulatedQueue, recover_queue
from rmqtool.broker.recovery import _change
from rmqtool.formats.consume_queue import build_unit
from rmqtool.formats.file_name import file_name
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.rules.versions import Version
from rmqtool.store.consume_queues import Queue
from rmqtool.store.queue_units import QueueRange

OLD, NEW = RecoveryRules(Version(4, 4, 0)), RecoveryRules(Version(5, 5, 0))
UNITS = 10  # of a file
FILE_SIZE = 20 * UNITS
SIZE = 100  # of every record
LOG_END = 100 * SIZE


def state_of(
    directory: Path, offsets: list[int | None], rules: RecoveryRules = NEW, first: int = 0, log_end: int = LOG_END
) -> SimulatedQueue:
    """A queue with units at these physical offsets, None for a unit of zeros; `first` is the first file's base."""
    directory.mkdir(exist_ok=True)
    units = [bytes(20) if offset is None else build_unit(offset, SIZE, 0) for offset in offsets]
    for number in range(0, len(units), UNITS):
        data = b"".join(units[number : number + UNITS]).ljust(FILE_SIZE, b"\0")
        (directory / file_name(first + 20 * number)).write_bytes(data)
    queue = Queue("orders", 0, "simple", list_mapped_files(directory))
    return SimulatedQueue(recover_queue(queue), rules, FILE_SIZE, log_end)


def append(state: SimulatedQueue, records: list[tuple[int, int]]) -> None:
    """Append records, given as physical and queue offsets, as one run."""
    offsets, queue_offsets = np.array(records, dtype=np.int64).T
    sizes, batches = np.full(len(records), SIZE, np.int32), np.ones(len(records), np.int16)
    state.append_all(offsets, sizes, queue_offsets, batches)


def run(first: int, count: int) -> list[tuple[int, int]]:
    return [(SIZE * number, number) for number in range(first, first + count)]


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 25])
def test_recovery_finds_the_end(tmp_path: Path, count: int) -> None:
    """After the last unit that is written, whatever the file; one that was never written has none."""
    for empty in ([], [None]) if count % UNITS == 0 else ([],):
        state = state_of(tmp_path / str(len(empty)), [*(SIZE * number for number in range(count)), *empty])
        assert state.max_offset == count
        assert state.max_physical == (SIZE * count if count else -1)
        assert not state.is_changed


def test_the_last_three_files_decide(tmp_path: Path) -> None:
    """A hole in the fourth last file is not noticed; in the third last it is the end, and the files behind go."""
    offsets: list[int | None] = [SIZE * number for number in range(35)]
    assert state_of(tmp_path / "a", [*offsets[:5], None, *offsets[6:]]).max_offset == 35
    state = state_of(tmp_path / "b", [*offsets[:15], None, *offsets[16:]])
    assert state.max_offset == 15
    assert [path.name for path in state.deleted] == [file_name(400), file_name(600)]


@pytest.mark.parametrize(
    ("offsets", "expected"), [([], False), ([0], False), ([None], False), ([*range(0, 1000, SIZE), None], True)]
)
def test_a_last_file_without_a_unit(tmp_path: Path, offsets: list[int | None], expected: bool) -> None:
    """In a queue that begins with it there is nothing to correct (`ConsumeQueue#correctMinOffset`)."""
    assert state_of(tmp_path, offsets).ends_at_file == expected


@pytest.mark.parametrize("rules", [OLD, NEW])
def test_what_is_there_is_not_appended(tmp_path: Path, rules: RecoveryRules) -> None:
    """Records up to the last unit are dropped, those that follow make entries and files."""
    state = state_of(tmp_path, [SIZE * number for number in range(7)], rules)
    append(state, run(0, 7))
    state.append(SIZE * 6, SIZE, 0)  # also where its topic began again
    assert (state.appended, state.max_offset) == (0, 7)
    append(state, run(5, 20))
    assert (state.appended, state.max_offset, state.max_physical) == (18, 25, SIZE * (25 if rules is NEW else 24))
    assert (state.misplaced, state.shift, state.made) == (0, 0, {file_name(200), file_name(400)})


def test_the_last_of_many_records_tells_where_they_end(tmp_path: Path) -> None:
    state = state_of(tmp_path, [0])
    offsets, sizes = np.array([100, 300, 450], np.int64), np.array([200, 150, 70], np.int32)
    state.append_all(offsets, sizes, np.array([1, 2, 3], np.int64), np.ones(3, np.int16))
    assert (state.max_offset, state.max_physical) == (4, 520)


def test_filler_is_for_files_that_the_start_creates(tmp_path: Path) -> None:
    """A file without a unit that is there gets none (`MappedFile#isFirstCreateInQueue`)."""
    state = state_of(tmp_path, [None])
    append(state, [(SIZE, 5)])
    assert (state.max_offset, state.misplaced, state.shift) == (1, 1, 5)


@pytest.mark.parametrize(
    ("offsets", "records", "log_end"),
    [
        (7, [], LOG_END),
        (7, run(7, 1), LOG_END),
        (7, run(7, 8), LOG_END),
        (0, run(0, 1), LOG_END),
        (5, run(5, 1), SIZE * 6),
    ],
)
def test_a_cut_behind_the_end_reads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offsets: int, records: list[tuple[int, int]], log_end: int
) -> None:
    """Unless it goes on to a unit that was there."""
    units: list[int | None] = [SIZE * number for number in range(offsets)]
    state = state_of(tmp_path, [*units, None, None, SIZE * 9][: UNITS if units else 0], log_end=log_end)
    if records:
        append(state, records)
    end = state.end
    monkeypatch.setattr(SimulatedQueue, "_content", lambda *_: pytest.fail("units are read"))
    state.truncate(log_end)
    assert (state.end, state.cut) == (end, 0)


def test_a_gap_closes_and_a_repeat_is_dropped(tmp_path: Path) -> None:
    """Offsets 7, 8, 12, 13 in a new queue become 7 to 10 behind filler units (spec, 1.4)."""
    state = state_of(tmp_path, [])
    append(state, [(100, 7), (200, 8), (300, 12), (400, 13)])
    assert (state.max_offset, state.appended) == (11, 4)
    assert (state.misplaced, state.shift) == (2, 3)
    append(state, [(500, 9)])
    assert state.max_offset == 11
    append(state, [(600, 0)])
    assert state.max_offset == 12


def test_a_topic_that_began_again(tmp_path: Path) -> None:
    """Offsets 0, 1, 2 and then 0 to 4: five units (spec, 1.4)."""
    state = state_of(tmp_path, [])
    append(state, [(SIZE * number, offset) for number, offset in enumerate([0, 1, 2, 0, 1, 2, 3, 4])])
    assert state.max_offset == 5


def test_a_cut_takes_the_first_unit_of_an_empty_file_for_one(tmp_path: Path) -> None:
    """A repeated record makes the next file, without a unit (`truncateDirtyLogicFiles` does not check the first)."""
    state = state_of(tmp_path, [SIZE * number for number in range(10)])
    append(state, [(SIZE * 20, 5)])
    assert (state.end, state.made) == (200, {file_name(200)})
    state.truncate(SIZE * 30)
    assert (state.end, state.max_offset, state.max_physical) == (220, 11, 0)
    state = state_of(tmp_path / "appended", [SIZE * number for number in range(9)])
    append(state, [(SIZE * 9, 9), (SIZE * 20, 5)])
    assert (state.end, state.made) == (200, {file_name(200)})
    state.truncate(SIZE * 30)
    assert (state.end, state.max_physical) == (220, 0)


def test_a_unit_behind_the_log_that_begins_a_file(tmp_path: Path) -> None:
    """The file goes with it."""
    state = state_of(tmp_path, [SIZE * number for number in range(10)])
    append(state, [(LOG_END, 10)])
    assert (state.max_offset, state.made) == (11, {file_name(200)})
    state.truncate(LOG_END)
    assert (state.max_offset, state.made, state.deleted) == (10, set(), [])


@pytest.mark.parametrize(("minimum", "expected"), [(0, 0), (SIZE * 5, 5), (SIZE * 9, 9), (SIZE * 12, 12)])
def test_the_minimum_in_the_first_file(tmp_path: Path, minimum: int, expected: int) -> None:
    """All of its units count where another file follows, however few that one holds; else those before the end."""
    offsets: list[int | None] = [SIZE * number for number in range(12)]
    assert state_of(tmp_path / "two", offsets).min_offset(minimum) == expected
    state = state_of(tmp_path / "one", [*offsets[:6], None, *offsets[7:9]])
    assert state.min_offset(minimum) == min(expected, 6)


@pytest.mark.parametrize(("rules", "expected"), [(OLD, 0), (NEW, 1)])
def test_the_minimum_of_a_single_unit_that_has_expired(tmp_path: Path, rules: RecoveryRules, expected: int) -> None:
    """Since 5.0.0 it is the maximum."""
    state = state_of(tmp_path, [SIZE], rules)
    assert [state.min_offset(minimum) for minimum in (SIZE, SIZE + 1)] == [0, expected]


def test_the_minimum_of_a_queue_that_begins_late(tmp_path: Path) -> None:
    """Filler units count as the minimum before 5.0, when the log begins at 0."""
    for rules, expected in ((OLD, 20), (NEW, 23)):
        state = state_of(tmp_path, [], rules)
        append(state, run(23, 4))
        assert (state.min_offset(0), state.max_offset) == (expected, 27)
        assert state.min_offset(50) == 23
        state.append(LOG_END, SIZE, 27)
        state.truncate(LOG_END)
        assert state.max_offset == 27  # filler units are written ones


@pytest.mark.parametrize("rules", [OLD, NEW])
def test_units_behind_the_log_are_cut(tmp_path: Path, rules: RecoveryRules) -> None:
    """In the last file, and with it whole files."""
    state = state_of(tmp_path, [SIZE * number for number in range(25)], rules)
    state.truncate(SIZE * 8)
    assert (state.max_offset, state.cut, state.revived) == (8, 17, 0)
    assert sorted(path.name for path in state.deleted) == [file_name(200), file_name(400)]
    assert state.max_physical == SIZE * (8 if rules is NEW else 7)
    state.truncate(0)
    assert (state.max_offset, state.max_physical) == (0, 0 if rules is NEW else -1)


def test_the_first_unit_of_a_file_is_taken_as_it_is(tmp_path: Path) -> None:
    """A file of zeros becomes a unit (E5); a queue that was cut at a hole gets the units after it back."""
    state = state_of(tmp_path / "a", [*(SIZE * number for number in range(10)), None])
    assert state.max_offset == 10
    state.truncate(SIZE * 10)
    assert (state.max_offset, state.is_changed) == (11, True)
    offsets: list[int | None] = [SIZE * number for number in range(9)]
    state = state_of(tmp_path / "b", [*offsets[:5], None, *offsets[6:]], log_end=SIZE * 9)
    append(state, run(5, 1))
    assert state.max_offset == 6
    assert state.revived == 0
    state.truncate(SIZE * 9)
    assert (state.max_offset, state.revived, state.cut) == (9, 3, 0)


def test_a_unit_far_beyond_cuts_what_follows(tmp_path: Path) -> None:
    """E6b: it lies between good ones, which go with it."""
    offsets: list[int | None] = [SIZE * number for number in range(9)]
    state = state_of(tmp_path, [*offsets[:5], 1 << 50, *offsets[6:]])
    assert state.max_offset == 9
    state.truncate(SIZE * 9)
    assert (state.max_offset, state.cut) == (5, 4)


def test_a_strange_unit_is_cut_again(tmp_path: Path) -> None:
    """A record that tells a position after the log gives a unit that the cut finds."""
    state = state_of(tmp_path, [0, SIZE], log_end=SIZE * 5)
    state.append(1 << 40, SIZE, 2)
    append(state, run(3, 2))
    assert state.max_offset == 3  # what follows is behind, for the queue
    state.truncate(SIZE * 5)
    assert state.max_offset == 2


def test_destroyed(tmp_path: Path) -> None:
    """No file is left, and the next message gets offset 0."""
    state = state_of(tmp_path, [SIZE * number for number in range(12)], first=FILE_SIZE)
    assert state.max_offset == 22
    for _ in range(2):
        state.destroy()
        assert (state.max_offset, state.max_physical, len(state.deleted), state.cut) == (0, -1, 2, 12)


def test_batches_that_are_appended_and_cut_again(tmp_path: Path) -> None:
    """The queue ends after the last batch that the log still holds, whether its unit was on disk or not."""
    queue = Queue("bulk", 0, "batch", list_mapped_files(tmp_path))
    for stored in ([], [0, 1]):
        units = b"".join(batch_unit(number) for number in stored)
        if units:
            (tmp_path / file_name(0)).write_bytes(units.ljust(46 * UNITS, b"\0"))
            queue = Queue("bulk", 0, "batch", list_mapped_files(tmp_path))
        for end in (8, 9):
            state = SimulatedQueue(recover_queue(queue), NEW, 46 * UNITS, SIZE * end)
            assert state.max_offset == 5 * len(stored)
            for number in range(10):
                state.append(SIZE * number, SIZE, 5 * number, 5)
            assert (state.max_offset, state.min_offset(0)) == (50, 0)
            assert state.made == (set() if stored else {file_name(0)})
            state.truncate(SIZE * end)
            assert (state.max_offset, state.cut) == (5 * end, 10 - end)
    state = SimulatedQueue(recover_queue(queue), NEW, 46 * UNITS, SIZE)
    assert state.max_offset == 10
    state.truncate(SIZE)
    assert (state.max_offset, state.cut) == (5, 1)
    for is_cut in (True, False):
        state = SimulatedQueue(recover_queue(queue), NEW, 46 * UNITS, SIZE)
        state.truncate(0) if is_cut else state.destroy()
        assert (state.max_offset, state.end, state.min_offset(0)) == (0, 0, -1)


def test_batches_that_are_appended_as_one_run(tmp_path: Path) -> None:
    """Of one message each: their units are as many, but the queue ends where the last one says."""
    queue = Queue("bulk", 0, "batch", list_mapped_files(tmp_path))
    for first in (0, 3, 500):
        state = SimulatedQueue(recover_queue(queue), NEW, 46 * UNITS, LOG_END)
        append(state, [(SIZE * number, first + number) for number in range(6)])
        assert (state.min_offset(0), state.max_offset, state.appended) == (first, first + 6, 6)
        assert state.made == {file_name(0)}  # whatever their queue offsets are


@pytest.mark.parametrize(("topic", "misplaced"), [("orders", [1, 2]), ("%LMQ%a", [0, 1])])
def test_a_light_queue_that_begins_again(tmp_path: Path, topic: str, misplaced: list[int]) -> None:
    """At its first queue offset only: what comes after others elsewhere is misplaced."""
    queue = Queue(topic, 0, "simple", list_mapped_files(tmp_path))
    state = SimulatedQueue(recover_queue(queue), NEW, FILE_SIZE, LOG_END)
    append(state, run(0, 3))
    for record, count in zip([(SIZE * 10, 0), (SIZE * 11, 9)], misplaced, strict=True):
        append(state, [record])
        assert state.misplaced == count


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(("log_start", "min_offset"), [(0, 0), (3 * SIZE, 3), (8 * SIZE, 8), (12 * SIZE, 0)])
def test_the_minimum_is_in_the_log(tmp_path: Path, log_start: int, min_offset: int, at_once: bool) -> None:
    """Records of a file with a wrong name store offsets below the beginning of the log."""
    queue = Queue("orders", 0, "simple", list_mapped_files(tmp_path))
    state = SimulatedQueue(recover_queue(queue), OLD, FILE_SIZE, LOG_END, log_start=log_start)
    for records in [run(0, 12)] if at_once else [[each] for each in run(0, 12)]:
        append(state, records)
    assert (state.min_offset(log_start), state.max_offset) == (min_offset, 12)


def batch_unit(number: int) -> bytes:
    return build_unit(SIZE * number, SIZE, 0) + struct.pack(">qqhii", 0, 5 * number, 5, -1, 0)


@pytest.mark.parametrize(("version", "min_offset"), [(Version(5, 5, 0), 37), (Version(5, 5, 1), 0)])
def test_the_minimum_of_a_queue_that_loses_its_only_file(tmp_path: Path, version: Version, min_offset: int) -> None:
    """It stays where it was, until 5.5.1 sets it back (as read in its sources)."""
    state = state_of(tmp_path, [], RecoveryRules(version))
    append(state, [(LOG_END - SIZE, 37)])
    assert state.min_offset(0) == 37
    state.truncate(0)
    state.destroy()
    assert state.min_offset(0) == min_offset


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(
    ("known", "appended", "cut_at", "expected"),
    [
        (7, 8, 15, (15, 0, 8, 0)),  # nothing is cut
        (7, 8, 14, (14, 1, 8, 1)),  # the last one begins at the end of the log
        (7, 8, 12, (12, 3, 8, 3)),  # three of those that were appended
        (7, 8, 7, (7, 8, 8, 8)),  # all of them
        (7, 8, 4, (4, 11, 8, 8)),  # and three that were there
        (7, 0, 4, (4, 3, 0, 0)),
    ],
)
def test_what_is_appended_and_cut_again(
    tmp_path: Path, known: int, appended: int, cut_at: int, expected: tuple[int, int, int, int], at_once: bool
) -> None:
    """It is neither gained nor lost."""
    state = state_of(tmp_path, [SIZE * number for number in range(known)], log_end=SIZE * cut_at)
    records = run(known, appended)
    for piece in [records] if at_once and records else [[each] for each in records]:
        append(state, piece)
    for _ in range(2):
        state.truncate(SIZE * cut_at)
        assert (state.max_offset, state.cut, state.appended, state.undone) == expected
    before = QueueRange(0, known)
    change = _change(state, before, 0)
    assert (change.truncated, change.dispatched, change.misplaced) == (
        max(0, known - cut_at),
        max(0, cut_at - known),
        0,
    )


def test_a_cut_in_a_later_file_goes_on_to_what_is_on_disk(tmp_path: Path) -> None:
    """The unit that is appended into a hole leads to one that was there; what follows was never written."""
    offsets: list[int | None] = [*(SIZE * number for number in range(12)), None, SIZE * 13]
    state = state_of(tmp_path, offsets, log_end=SIZE * 14)
    append(state, run(12, 1))
    assert state.max_offset == 13
    state.truncate(SIZE * 14)
    assert (state.max_offset, state.revived, state.max_physical, state.cut) == (14, 1, SIZE * 14, 0)


def test_misplaced_units_that_are_cut_again_are_none(tmp_path: Path) -> None:
    """What a start leaves of them is told."""
    state = state_of(tmp_path, [SIZE * number for number in range(7)], log_end=SIZE * 9)
    append(state, [(SIZE * 7, 8), (SIZE * 8, 9), (SIZE * 9, 10)])
    assert state.misplaced == 3
    state.truncate(SIZE * 9)
    change = _change(state, QueueRange(0, 7), 0)
    assert (change.max_offset, change.dispatched, change.misplaced, change.shift) == (9, 2, 2, 1)
