"""The ranges of consume queues as the broker finds them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rmqtool.base.errors import UnreadableError
from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import list_mapped_files
from rmqtool.formats import consume_queue
from rmqtool.formats.consume_queue import PRE_BLANK_MESSAGE_SIZE, build_unit
from rmqtool.formats.file_name import file_name
from rmqtool.formats.layout import build
from rmqtool.rules.versions import NEWEST, Version, parse_version
from rmqtool.store import unit_files
from rmqtool.store.consume_queues import Kind, Queue, list_queues
from rmqtool.store.queue_units import QueueRange, queue_range
from rmqtool.store.store import open_store
from tests.conftest import GoldenStore
from tests.golden import stores
from tests.sampling import examples

V4 = Version(4, 9, 7)
V5 = Version(5, 0, 0)
SIZE = 100  # of each message, bytes


class Unit(NamedTuple):
    """A unit of either kind; of a simple one only the first two count."""

    physical_offset: int
    message_size: int = SIZE
    base: int = 0
    batch: int = 0

    @property
    def is_simple_written(self) -> bool:
        return self.physical_offset >= 0 and self.message_size > 0

    @property
    def is_batch_written(self) -> bool:
        return self.is_simple_written and self.base >= 0 and self.batch > 0


ZERO = Unit(0, 0)
PRE_BLANK = Unit(0, PRE_BLANK_MESSAGE_SIZE)
Files = Sequence[Sequence[Unit]]


# The model: what `broker-behaviour` says of ConsumeQueue and BatchConsumeQueue, unit by unit.


def recovered(files: Files, kind: Kind) -> list[list[Unit]]:
    """`ConsumeQueue#recover`: of the last three files the written units up to the first that is not."""
    number = max(0, len(files) - 3)
    kept = [list(units) for units in files[:number]]
    for units in files[number:]:
        written = []
        for unit in units:
            if not (unit.is_simple_written if kind == "simple" else unit.is_batch_written):
                break
            written.append(unit)
        kept.append(written)
        if len(written) < len(units):
            break
    return kept


def model_simple(files: Files, start: int, log_min_offset: int, version: Version) -> tuple[int, int]:
    """Minimum and maximum of a queue whose first file begins with unit `start`."""
    kept = recovered(files, "simple")
    if not kept:
        return 0, 0
    last_start = start + sum(len(units) for units in files[: len(kept) - 1])
    max_offset = last_start + len(kept[-1])
    if version < V5:
        for number, unit in enumerate(kept[0]):
            if unit.physical_offset >= log_min_offset:
                return start + number, max_offset
        return 0, max_offset
    if max_offset <= 0:
        return 0, max_offset
    if kept[-1] and kept[-1][-1].physical_offset < log_min_offset:
        return max_offset, max_offset
    number_5 = search_5(kept[0], start == 0, log_min_offset)
    return 0 if number_5 is None else start + number_5, max_offset


def search_5(units: Sequence[Unit], intact: bool, log_min_offset: int) -> int | None:
    """The search in the first file, positions in bytes as in Java."""
    if not units:
        return None
    if intact and units[0].physical_offset >= log_min_offset:
        return 0
    low, high = 0, len(units) * 20 - 20
    while high - low > 20:
        middle = (low + high) // 2 // 20 * 20
        found = units[middle // 20].physical_offset
        if found > log_min_offset:
            high = middle
        elif found == log_min_offset:
            low = high = middle
            break
        else:
            low = middle
    for position in range(low, high + 1, 20):
        if units[position // 20].physical_offset >= log_min_offset:
            return position // 20
    return None


def model_batch(files: Files, log_min_offset: int) -> tuple[int, int]:
    """Minimum and maximum of a batch queue."""
    kept = recovered(files, "batch")
    min_offset, max_offset = -1, 0
    if kept and kept[0]:
        min_offset = kept[0][0].base
        for unit in kept[0]:
            if unit.physical_offset >= log_min_offset:
                break
            min_offset = unit.base + unit.batch
    if kept:
        last = kept[-1] or (kept[-2] if len(kept) > 1 else [])
        max_offset = last[-1].base + last[-1].batch if last else 0
    return min_offset, max_offset


# Building queues.


def encode(unit: Unit, kind: Kind) -> bytes:
    if kind == "simple":
        return build_unit(unit.physical_offset, unit.message_size, 0)
    values = {
        "physical_offset": unit.physical_offset,
        "message_size": unit.message_size,
        "tags_code": 0,
        "store_timestamp": 0,
        "base_queue_offset": unit.base,
        "batch_size": unit.batch,
        "compacted_offset": 0 if unit == ZERO else -1,
        "reserved": 0,
    }
    return build(consume_queue.BatchConsumeQueueUnit, values)


UNIT_SIZES = {"simple": consume_queue.UNIT_SIZE, "batch": consume_queue.BATCH_UNIT_SIZE}


def write(directory: Path, files: Files, start: int = 0, kind: Kind = "simple") -> Queue:
    """Write a queue whose first file begins with unit `start`, all files as large as the first."""
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.iterdir():
        old.unlink()
    size = UNIT_SIZES[kind]
    for number, units in enumerate(files):
        name = file_name((start + number * len(files[0])) * size)
        (directory / name).write_bytes(b"".join(encode(unit, kind) for unit in units))
    return Queue("topic", 0, kind, list_mapped_files(directory))


def found_range(queue: Queue, log_min_offset: int, version: Version) -> tuple[int, int]:
    found = queue_range(queue, log_min_offset, version)
    return found.min_offset, found.max_offset


@st.composite
def queue_files(draw: st.DrawFn, kind: Kind) -> tuple[Files, int, int]:
    """Files as brokers leave them, the number of the first unit, and a log minimum near some unit."""
    count, room = draw(st.integers(0, 4)), draw(st.integers(3, 8))
    files_before = draw(st.integers(0, 2))
    units = [PRE_BLANK] * draw(st.integers(0, room)) if kind == "simple" else []
    offset, base = draw(st.integers(0, 3)) * SIZE, draw(st.integers(0, 50))
    while len(units) < count * room:
        batch = draw(st.integers(1, 5))
        units.append(Unit(offset, SIZE, base, batch))
        offset += SIZE * draw(st.integers(1, 3))
        base += batch + draw(st.sampled_from([0, 0, 0, 2]))
    units = units[: count * room]
    end = draw(st.integers(0, len(units)))
    stale = draw(st.booleans())  # a cut leaves the units after it, and later ones overwrite some of them
    tail = units[end : end + draw(st.integers(0, room))] if stale else []
    shift = draw(st.integers(-3, 3)) * SIZE
    tail = [unit._replace(physical_offset=max(0, unit.physical_offset + shift)) for unit in tail]
    units = (units[:end] + tail + [ZERO] * len(units))[: count * room]
    for hole in draw(st.lists(st.integers(0, max(0, count * room - 1)), max_size=2)):
        if units:
            units[hole] = ZERO
    files = [units[number * room : (number + 1) * room] for number in range(count)]
    near = draw(st.sampled_from([-1, 0, *(unit.physical_offset for unit in units), offset + SIZE]))
    return files, files_before * room, near + draw(st.sampled_from([0, 1, -1]))


anything = settings(
    max_examples=examples(250),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def live(*offsets: int) -> list[Unit]:
    return [Unit(offset) for offset in offsets]


@pytest.mark.slow
@anything
@given(case=queue_files("simple"), version=st.sampled_from([V4, V5]))
@example(case=([live(0, 100, 200)], 0, 0), version=V5).via("nothing expired")
@example(case=([live(0, 100, 200)], 0, 101), version=V4).via("an expired head")
@example(case=([live(0, 100, 200)], 0, 1000), version=V4).via("expired whole, before 5.0")
@example(case=([live(0, 100, 200)], 0, 1000), version=V5).via("expired whole, since 5.0")
@example(case=([live(0, 100, 200), live(300, 400, 500)], 0, 300), version=V5).via("the first file expired")
@example(case=([[ZERO] * 3], 6, 0), version=V5).via("nothing written")
@example(case=([live(0, 9, 2), [ZERO] * 3], 0, 0), version=V5).via("an empty last file")
@example(case=([[Unit(5), ZERO, Unit(9)], *[live(20, 30, 40)] * 3], 0, 7), version=V4).via("a hole nobody looks at")
@example(case=([[PRE_BLANK, PRE_BLANK, Unit(900)]], 0, 0), version=V4).via("pre-blank is the minimum")
@example(case=([[PRE_BLANK, PRE_BLANK, Unit(900)]], 3, 1), version=V5).via("pre-blank is below the log")
def test_simple_queues(tmp_path: Path, case: tuple[Files, int, int], version: Version) -> None:
    """Minimum and maximum are those of a literal model of the broker."""
    files, start, log_min_offset = case
    queue = write(tmp_path, files, start)
    assert found_range(queue, log_min_offset, version) == model_simple(files, start, log_min_offset, version)


@pytest.mark.slow
@anything
@given(case=queue_files("batch"))
@example(case=([[Unit(0, 1, 7, 3), Unit(5, 1, 12, 1)]], 0, 5)).via("a gap of queue offsets after an expired unit")
@example(case=([[Unit(0, 1, 0, 3)], [Unit(5, 1, 3, 1)], [ZERO], [ZERO], [ZERO]], 0, 0)).via("not the first file")
@example(case=([[ZERO], [Unit(5, 1, 3, 1)]], 0, 0)).via("nothing in the first file")
def test_batch_queues(tmp_path: Path, case: tuple[Files, int, int]) -> None:
    """Minimum and maximum come from the units' own queue offsets, as in a literal model of the broker."""
    files, start, log_min_offset = case
    queue = write(tmp_path, files, start, "batch")
    assert found_range(queue, log_min_offset, V5) == model_batch(files, log_min_offset)


@st.composite
def whole_files(draw: st.DrawFn, kind: Kind) -> tuple[Files, int, int]:
    """Files whose written units are in one piece and ascend."""
    count, room = draw(st.integers(1, 4)), draw(st.integers(3, 8))
    start = draw(st.integers(0, 2)) * room
    blanks = draw(st.integers(0, room - 1)) if kind == "simple" else 0
    written = draw(st.integers(max(0, (count - 3) * room), count * room))  # files past the end are no more than three
    units = [Unit(10 + number * SIZE, SIZE, 3 * number, 3) for number in range(written)]
    units = ([PRE_BLANK] * blanks + units)[: count * room] + [ZERO] * (count * room)
    files = [units[number * room : (number + 1) * room] for number in range(count)]
    return files, start, draw(st.integers(-1, (written + 1) * SIZE))


@pytest.mark.slow
@anything
@given(case=whole_files("simple"), version=st.sampled_from([V4, V5]))
def test_searching_finds_what_reading_finds(tmp_path: Path, case: tuple[Files, int, int], version: Version) -> None:
    """Large files are searched, and give the same."""
    files, start, log_min_offset = case
    queue = write(tmp_path, files, start)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unit_files, "_READ_WHOLE", 0)
        assert found_range(queue, log_min_offset, version) == model_simple(files, start, log_min_offset, version)


@pytest.mark.slow
@anything
@given(case=whole_files("batch"))
def test_searching_batch_queues(tmp_path: Path, case: tuple[Files, int, int]) -> None:
    """Large files of batch queues are searched, and give the same."""
    files, start, log_min_offset = case
    queue = write(tmp_path, files, start, "batch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unit_files, "_READ_WHOLE", 0)
        assert found_range(queue, log_min_offset, V5) == model_batch(files, log_min_offset)


@pytest.mark.one_in(2)
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["simple", "batch"])
@pytest.mark.parametrize("written", [1, 4000, 4999, 5000, 7500, 14_999, 15_000])
def test_files_over_64_kib(tmp_path: Path, kind: Kind, written: int) -> None:
    """Files as large as a broker's are searched to the exact unit."""
    room = 5000
    units = [Unit(number * SIZE, SIZE, number * 2, 2) for number in range(written)] + [ZERO] * (3 * room - written)
    files = [units[:room], units[room : 2 * room], units[2 * room :]]
    queue = write(tmp_path, files, 0, kind)
    assert queue.files.file_size > unit_files._READ_WHOLE
    for log_min_offset in (0, 1, 399_900, 499_900, 499_901, written * SIZE, written * SIZE + 1):
        if kind == "simple":
            for version in (V4, V5):
                expected = model_simple(files, 0, log_min_offset, version)
                assert found_range(queue, log_min_offset, version) == expected
        else:
            assert found_range(queue, log_min_offset, V5) == model_batch(files, log_min_offset)


@pytest.mark.slow
def test_few_reads_of_large_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue of large files is not read but searched: some units of a few files."""
    units = [Unit(number * SIZE) for number in range(10_000)]
    last = [Unit(2_000_000)] * 77 + [ZERO] * 9923
    queue = write(tmp_path, [units, units, units, last])
    read = InputFile.read
    sizes: list[int] = []

    def counting(file: InputFile, position: int, size: int) -> bytes:
        sizes.append(size)
        return read(file, position, size)

    monkeypatch.setattr(InputFile, "read", counting)
    assert found_range(queue, 500_000, V5) == (5000, 30_077)
    assert max(sizes) <= 4096
    assert len(sizes) < 60


@pytest.mark.parametrize("rest", [0, 1, 19])
def test_a_file_that_ends_inside_a_unit(tmp_path: Path, rest: int) -> None:
    """The part of a unit at the end of a file is none."""
    queue = write(tmp_path, [live(0, 100, 200)])
    queue.files.files[0].path.write_bytes(queue.files.files[0].path.read_bytes() + bytes([1] * rest))
    changed = Queue("topic", 0, "simple", list_mapped_files(tmp_path))
    assert found_range(changed, 0, V5) == (0, 3)


@pytest.mark.parametrize(("kind", "expected"), [("simple", (0, 0)), ("batch", (-1, 0))])
def test_queues_without_data(tmp_path: Path, kind: Kind, expected: tuple[int, int]) -> None:
    """No file, and a file of no byte, have the range that the broker begins with."""
    assert found_range(write(tmp_path, [], 0, kind), 0, V5) == expected
    assert found_range(write(tmp_path, [[]], 0, kind), 0, V5) == expected


def test_where_a_queue_ends_in_the_log(tmp_path: Path) -> None:
    """The last unit's physical offset is told, and whether the whole queue has expired."""
    files = [live(0, 100, 200)]
    assert queue_range(write(tmp_path, files), 200, V5) == QueueRange(2, 3, 200, expired=False)
    assert queue_range(write(tmp_path, files), 201, V5) == QueueRange(3, 3, 200, expired=True)
    assert queue_range(write(tmp_path, files), 201, V4) == QueueRange(0, 3, 200, expired=True)
    assert queue_range(write(tmp_path, [[ZERO] * 3]), 201, V5) == QueueRange(0, 0)
    batch = [[Unit(50, SIZE, 0, 4), ZERO]]
    assert queue_range(write(tmp_path, batch, 0, "batch"), 0, V5) == QueueRange(0, 4, 50)


def test_a_vanished_file_is_an_error(tmp_path: Path) -> None:
    """A file that is gone since it was listed is told by its name."""
    queue = write(tmp_path, [live(0, 100, 200)])
    queue.files.files[0].path.unlink()
    with pytest.raises(UnreadableError) as caught:
        queue_range(queue, 0, V5)
    assert caught.value.file == str(queue.files.files[0].path)


def golden_ranges(store: Path, version: Version) -> Iterator[tuple[tuple[str, str, int], QueueRange]]:
    opened = open_store(store)
    log = opened.commit_log().files
    for queue in list_queues(opened):
        name = (queue.kind, queue.topic, queue.queue_id)
        yield name, queue_range(queue, log[0].start_offset if log else -1, version)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", stores.names())
def test_golden_ranges(name: str, golden_store: GoldenStore) -> None:
    """Each queue has the range that the release told; after a kill what it dispatched while loading comes on top."""
    oracle = stores.oracle(name)
    expected = {(queue["kind"], queue["topic"], queue["queue_id"]): queue for queue in oracle["queues"]}
    found = dict(golden_ranges(golden_store(name), parse_version(oracle["version"])))
    killed = name.endswith("-killed")
    assert found.keys() == expected.keys()
    last = max((item.last_physical_offset or 0 for item in found.values()), default=0)
    for key, queue in expected.items():
        assert found[key].min_offset == queue["min_offset"]
        if queue["units"] and queue["kind"] == "simple":
            written = found[key].max_offset - queue["first_unit"]
            assert queue["units"][written - 1][0] == found[key].last_physical_offset
            assert killed or written == len(queue["units"])
            assert all(unit[0] > last for unit in queue["units"][written:])
        else:
            assert found[key].max_offset == queue["max_offset"]


@pytest.mark.slow
def test_golden_stores_have_every_case() -> None:
    """Some queue of a golden store begins after 0, and some has expired whole in 4.x and in 5.x."""
    cases = set()
    for name in stores.names():
        oracle = stores.oracle(name)
        for queue in oracle["queues"]:
            expired = queue["units"] and queue["units"][-1][0] < oracle["commit_log"]["min_offset"]
            cases.add((parse_version(oracle["version"]) >= V5, queue["min_offset"] > 0, bool(expired)))
    assert {(False, True, False), (True, True, False), (False, False, True), (True, True, True)} <= cases


def test_the_newest_version_has_the_new_rule(tmp_path: Path) -> None:
    """Without a version the rules since 5.0 count."""
    assert found_range(write(tmp_path, [live(0)]), 1, NEWEST) == (1, 1)
