"""Index files: their headers, and the geometry that is stored nowhere."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from rmqtool.base.errors import UnsupportedError
from rmqtool.formats.index_file import (
    DEFAULT_SLOTS,
    DEFAULT_UNITS,
    HEADER_DTYPE,
    HEADER_SIZE,
    SLOT_DTYPE,
    UNIT_DTYPE,
    file_size,
    key_hash,
    unit_position,
)
from rmqtool.inspect.overview import overview_of
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.store.index_files import Geometry, IndexFile, geometry_of, list_index_files, read_header
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.building import START_TIME, write_sparse
from tests.conftest import GoldenStore
from tests.golden import stores
from tests.unchanged import unchanged

NAME = "20260101000000000"
MOST_SECONDS = 30  # a geometry takes milliseconds; searching for it without end would take minutes


class IndexModel:
    """`IndexFile#putKey`, step by step; the entries and the slots that were written, by their number."""

    def __init__(self, slots: int, units: int) -> None:
        self.slots = slots
        self.units = units
        self.index_count = 1
        self.hash_slot_count = 0
        self.newest: dict[int, int] = {}
        self.written: dict[int, tuple[int, int, int, int]] = {}
        self.begin = self.end = (0, 0)  # store timestamp, physical offset

    def put(self, topic: str, key: str, physical_offset: int, store_timestamp: int) -> None:
        """Put one key, as since 4.7.1."""
        assert self.index_count < self.units
        stored_hash = key_hash(topic, key)
        slot = stored_hash % self.slots
        previous = self.newest.get(slot, 0)
        seconds = (store_timestamp - self.begin[0]) // 1000 if self.begin[0] > 0 else 0
        self.written[self.index_count] = (stored_hash, physical_offset, seconds, previous)
        self.newest[slot] = self.index_count
        if self.index_count <= 1:
            self.begin = (store_timestamp, physical_offset)
        self.hash_slot_count += previous == 0
        self.index_count += 1
        self.end = (store_timestamp, physical_offset)

    def fill(self, count: int) -> IndexModel:
        """Put `count` keys, of which some share a slot."""
        for number in range(count):
            self.put("orders", f"key-{number}", 1000 + 300 * number, START_TIME + 700 * number)
        return self

    def pieces(self) -> dict[int, bytes]:
        """The bytes that were written, by their position in the file."""
        header = (self.begin[0], self.end[0], self.begin[1], self.end[1], self.hash_slot_count, self.index_count)
        pieces = {0: np.array([header], HEADER_DTYPE).tobytes()}
        for slot, number in self.newest.items():
            pieces[HEADER_SIZE + SLOT_DTYPE.itemsize * slot] = np.array(number, SLOT_DTYPE).tobytes()
        for number, unit in self.written.items():
            pieces[unit_position(self.slots, number)] = np.array([unit], UNIT_DTYPE).tobytes()
        return pieces

    def write(self, directory: Path, name: str = NAME) -> IndexFile:
        """Write the file, sparse as a broker's; read its header."""
        return read_header(write_sparse(directory / name, self.pieces(), file_size(self.slots, self.units)))


def geometry(file: IndexFile, configured: tuple[int, int] | None = None) -> Geometry:
    with unchanged(file.path.parent):
        started = time.process_time()
        try:
            return geometry_of(file, configured)
        finally:
            assert time.process_time() - started < MOST_SECONDS


@pytest.mark.parametrize("name", stores.names())
def test_golden_headers(name: str, golden_store: GoldenStore) -> None:
    """Headers are what the release read, and every file has 50 slots and room for 999 keys."""
    files = list(list_index_files(open_store(golden_store(name))))
    shown = [
        {
            "begin_timestamp": file.begin_timestamp,
            "end_timestamp": file.end_timestamp,
            "begin_phy_offset": file.begin_physical_offset,
            "end_phy_offset": file.end_physical_offset,
            "hash_slot_count": file.hash_slot_count,
            "index_count": file.index_count,
        }
        for file in files
    ]
    kept = len(shown) - name.endswith("-killed")  # a start after a kill deletes those that are not full
    told = stores.oracle(name)["index"]["files"]
    assert shown[:kept] == told[:kept]
    assert len(told) == kept or name.endswith("-killed")
    for file in files:
        assert file.size == file_size(50, 1000)
        assert file.keys == file.index_count - 1 > 0
        assert geometry_of(file) == geometry_of(file, (50, 1000)) == Geometry(50, 1000)


@pytest.mark.parametrize(
    ("slots", "units", "counts"),
    [
        (DEFAULT_SLOTS, DEFAULT_UNITS, (1, 2, 63, 64, 65, 300)),
        (50, 1000, (1, 2, 50, 998, 999)),
        (1, 10, (1, 2, 9)),
        (7, 3, (1, 2)),
        (1000, 4_000_000, (1, 100)),
        (4_999_999, 20_000_003, (1, 100)),
        (5_000_005, 19_999_999, (1, 100)),
        (20_000_000, 5_000_000, (1, 100)),
        (123_457, 87, (1, 86)),
    ],
)
def test_a_geometry_is_told_by_the_units(tmp_path: Path, slots: int, units: int, counts: tuple[int, ...]) -> None:
    """Default or odd, full or with one key: slots and units are found, and quickly."""
    for count in counts:
        file = IndexModel(slots, units).fill(count).write(tmp_path)
        assert (file.keys, file.size) == (count, file_size(slots, units))
        assert geometry(file) == Geometry(slots, units)
        assert geometry(file, (slots, units)) == Geometry(slots, units)


@pytest.mark.parametrize("slots", range(40, 61))
def test_whatever_the_last_unit_ends_with(tmp_path: Path, slots: int) -> None:
    """Zero bytes at the end of the newest unit do not move the guess, whatever the position of the units is."""
    for physical_offset in (1, 1 << 8, 1 << 24, 1 << 56):
        model = IndexModel(slots, 200).fill(20)
        model.put("orders", f"alone-{slots}", physical_offset, START_TIME)
        _, _, _, previous = model.written[21]
        model.written[21] = (key_hash("orders", f"alone-{slots}"), physical_offset, 0, previous)
        assert geometry(model.write(tmp_path)) == Geometry(slots, 200)


def test_a_unit_that_the_header_does_not_count_yet(tmp_path: Path) -> None:
    """A broker writes the entry first: between the two writes the geometry is still told."""
    model = IndexModel(50, 1000).fill(30)
    model.written[31] = (12345, 67890, 1, 30)
    assert geometry(model.write(tmp_path)) == Geometry(50, 1000)


@pytest.mark.parametrize("more", [1, 3, 40, 300])
@pytest.mark.parametrize(("slots", "units"), [(50, 1000), (DEFAULT_SLOTS, DEFAULT_UNITS)])
def test_keys_that_are_put_since_the_header_was_read(tmp_path: Path, slots: int, units: int, more: int) -> None:
    """A broker goes on meanwhile, in the same slots too."""
    model = IndexModel(slots, units).fill(100)
    before = model.write(tmp_path)
    for number in range(more):
        model.put("orders", f"key-{number % 150}", 1 << 20, START_TIME)
    model.write(tmp_path)
    assert geometry(before) == Geometry(slots, units)


def test_keys_that_the_header_does_not_count_yet(tmp_path: Path) -> None:
    """A slot may lead to a unit whose put is not done."""
    model = IndexModel(50, 1000).fill(100)
    for number in range(3):
        model.put("orders", f"key-{number + 90}", 1 << 20, START_TIME)
    model.index_count -= 3
    file = model.write(tmp_path)
    assert geometry(file, (50, 1000)) == Geometry(50, 1000)
    model.newest[key_hash("orders", "key-90") % 50] = 999  # where there is no unit
    with pytest.raises(UnsupportedError):
        geometry(model.write(tmp_path), (50, 1000))


@pytest.mark.parametrize("configured", [(100, 990), (250, 960), (50, 1001), (1, 1), (DEFAULT_SLOTS, DEFAULT_UNITS)])
def test_a_wrong_broker_conf_is_not_believed(tmp_path: Path, configured: tuple[int, int]) -> None:
    """A configured geometry that the units do not prove gives way to the one that they do."""
    file = IndexModel(50, 1000).fill(100).write(tmp_path)
    assert geometry(file, configured) == Geometry(50, 1000)


def test_without_keys(tmp_path: Path) -> None:
    """A file without a key proves nothing: only the default and a configured geometry of its size are believed."""
    small = IndexModel(50, 1000).write(tmp_path, "1")
    assert small.keys == 0
    assert geometry(small, (50, 1000)) == Geometry(50, 1000)
    assert geometry(small, (100, 990)) == Geometry(100, 990)
    for configured in (None, (50, 999)):
        with pytest.raises(UnsupportedError):
            geometry(small, configured)
    default = IndexModel(DEFAULT_SLOTS, DEFAULT_UNITS).write(tmp_path / "default", "1")
    assert geometry(default) == Geometry(DEFAULT_SLOTS, DEFAULT_UNITS)


def test_a_chain_is_the_proof(tmp_path: Path) -> None:
    """A configured geometry of the right size whose slots do not lead to the newest units is refused."""
    model = IndexModel(50, 1000).fill(100)
    model.newest.clear()
    with pytest.raises(UnsupportedError):
        geometry(model.write(tmp_path), (50, 1000))


@pytest.mark.parametrize(("moved", "previous"), [(1, 0), (-(1 << 31), 0), (0, -1), (0, 100), (0, 101)])
@pytest.mark.parametrize("slots", [50, DEFAULT_SLOTS])
def test_damaged_units(tmp_path: Path, slots: int, moved: int, previous: int) -> None:
    """With a newest unit that is in another slot or links to no older one nothing is told, quickly and with a hint."""
    model = IndexModel(slots, 4 * slots).fill(100)
    stored_hash, physical_offset, seconds, older = model.written[100]
    if moved < 0:
        moved = -stored_hash // slots * slots  # a negative hash of the same slot
    model.written[100] = stored_hash + moved, physical_offset, seconds, previous or older
    file = model.write(tmp_path)
    with pytest.raises(UnsupportedError, match="number of hash slots") as caught:
        geometry(file)
    assert caught.value.file == str(file.path)
    assert caught.value.hint == "give --broker-conf with maxHashSlotNum and maxIndexNum"


@pytest.mark.parametrize("size", [0, 1, 39, 40, 44, 100, 4096, 21_000])
@pytest.mark.parametrize("filler", [b"\0", b"\xff", b"\x01"])
def test_no_index_file_at_all(tmp_path: Path, size: int, filler: bytes) -> None:
    """Zeros, ones and short files have a header, but no geometry."""
    path = tmp_path / NAME
    path.write_bytes(filler * size)
    file = read_header(path)
    assert file.size == size
    with pytest.raises(UnsupportedError):
        geometry(file)


def test_a_count_beyond_the_file(tmp_path: Path) -> None:
    """A header that counts more units than there is room for is believed by nobody."""
    for count in (1000, 1001, 1 << 30, (1 << 31) - 1):
        model = IndexModel(50, 1000).fill(10)
        model.index_count = count + 1 if count < (1 << 31) - 1 else count
        with pytest.raises(UnsupportedError):
            geometry(model.write(tmp_path), (50, 1000))


@pytest.mark.parametrize("size", [0, 1, 8, 33, 39])
def test_short_headers(tmp_path: Path, size: int) -> None:
    """What a short file lacks reads as 0, for the broker extends it with zeros."""
    path = tmp_path / NAME
    data = np.array([(1, 2, 3, 4, 5, 6)], HEADER_DTYPE).tobytes()
    path.write_bytes(data[:size])
    expected = np.frombuffer(data[:size].ljust(40, b"\0"), HEADER_DTYPE)[0].tolist()
    assert read_header(path) == IndexFile(path, size, *expected)


@pytest.mark.parametrize(("index_count", "keys"), [(0, 0), (-5, 0), (1, 0), (2, 1), (1000, 999)])
def test_keys(index_count: int, keys: int) -> None:
    """The count is the number of the next unit, and 0 in a file that was never written."""
    assert IndexFile(Path(NAME), 40, 0, 0, 0, 0, 0, index_count).keys == keys


def test_which_files_are_listed(tmp_path: Path) -> None:
    """Files whose name is a number are, in the order of their names; others and directories are not."""
    (tmp_path / "commitlog").mkdir()
    index = tmp_path / "index"
    (index / "20260101000000003").mkdir(parents=True)
    for name in ("20260101000000002", "20260101000000001", "5", "x", "20260101000000004.tmp", "٣"):
        (index / name).touch()
    store = open_store(tmp_path)
    with unchanged(tmp_path):
        assert [file.path.name for file in list_index_files(store)] == [
            "20260101000000001",
            "20260101000000002",
            "5",
        ]


def test_a_store_without_index(tmp_path: Path) -> None:
    """No directory, no file."""
    (tmp_path / "commitlog").mkdir()
    assert list(list_index_files(open_store(tmp_path))) == []


def test_a_store_s_files_share_a_geometry(tmp_path: Path) -> None:
    """What one file tells, or broker.conf, holds for a file after it that has no key yet."""
    (tmp_path / "commitlog").mkdir()
    IndexModel(50, 1000).write(tmp_path / "index", "1")
    IndexModel(50, 1000).fill(999).write(tmp_path / "index", "2")
    IndexModel(50, 1000).write(tmp_path / "index", "3")
    IndexModel(7, 9).fill(3).write(tmp_path / "index", "4")
    known = Geometry(50, 1000)
    with unchanged(tmp_path):
        assert [found for _, found in overview_of(open_store(tmp_path)).snapshot.index_geometries] == [
            None,
            known,
            known,
            Geometry(7, 9),
        ]
        conf = BrokerConf({"maxHashSlotNum": "50", "maxIndexNum": "1000"})
        assert [found for _, found in overview_of(open_store(tmp_path, conf)).snapshot.index_geometries] == [
            known,
            known,
            known,
            Geometry(7, 9),
        ]


def test_the_newest_index_file_is_read_alone(tmp_path: Path) -> None:
    """The files before it are read only where it has no key that would prove its geometry."""
    (tmp_path / "commitlog").mkdir()
    IndexModel(50, 1000).fill(999).write(tmp_path / "index", "1")
    IndexModel(7, 9).fill(3).write(tmp_path / "index", "2")
    IndexModel(7, 9).write(tmp_path / "index", "3")
    with unchanged(tmp_path):
        snapshot = Snapshot(open_store(tmp_path))
        assert snapshot.newest_index == (snapshot.index_files[1], Geometry(7, 9))
        assert "index_geometries" not in vars(snapshot)
        assert snapshot.index_geometry(snapshot.index_files[2]) == Geometry(7, 9)
        assert "index_geometries" in vars(snapshot)
