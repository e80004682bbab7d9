"""A key in twenty index files of default size is found by reading a few places of each, never a whole file."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from rmqtool.base.files import InputFile
from rmqtool.formats.index_file import DEFAULT_SLOTS, DEFAULT_UNITS, HEADER_SIZE, file_size, key_hash, unit_position
from tests.building import START_TIME, LogBuilder, write_sparse
from tests.commands.running import rmqtool

FILES = 20
KEYS_OF_A_FILE = 40
MOST_BYTES_OF_A_FILE = 8192  # the header, and what proves the geometry: 64 entries and their slots


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A message for each key, and index files that are all hole but for them."""
    log = LogBuilder(file_size=1 << 20)
    for number in range(FILES):
        keys = []
        for key in range(number * KEYS_OF_A_FILE, (number + 1) * KEYS_OF_A_FILE):
            timestamp = START_TIME + 1000 * key
            keys.append((f"k{key}", timestamp))
            log.add(store_timestamp=timestamp, properties={"KEYS": f"k{key}"})
        write_index(tmp_path / "index" / f"202611211136{number:05d}", keys, log.offsets[-KEYS_OF_A_FILE:])
    (tmp_path / "consumequeue" / "orders" / "0").mkdir(parents=True)
    return log.write(tmp_path)


def write_index(path: Path, keys: list[tuple[str, int]], offsets: list[int]) -> None:
    pieces: dict[int, bytes] = {}
    begin = keys[0][1]
    newest: dict[int, int] = {}
    for number, ((key, timestamp), offset) in enumerate(zip(keys, offsets, strict=True), 1):
        stored_hash = key_hash("orders", key)
        slot = stored_hash % DEFAULT_SLOTS
        unit = struct.pack(">iqii", stored_hash, offset, (timestamp - begin) // 1000, newest.get(slot, 0))
        newest[slot] = number
        pieces[unit_position(DEFAULT_SLOTS, number)] = unit
    pieces |= {HEADER_SIZE + 4 * slot: struct.pack(">i", number) for slot, number in newest.items()}
    header = (begin, keys[-1][1], offsets[0], offsets[-1], len(newest), len(keys) + 1)
    pieces[0] = struct.pack(">qqqqii", *header)
    write_sparse(path, pieces, file_size(DEFAULT_SLOTS, DEFAULT_UNITS))


@pytest.mark.parametrize("key", ["k3", "k799", "nobody"])
def test_little_is_read(store: Path, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    """An old key, a new one, and one that no file has."""
    read: dict[Path, int] = {}
    original = InputFile.read

    def counted(self: InputFile, position: int, size: int) -> bytes:
        data = original(self, position, size)
        path = Path(self.path)
        read[path] = read.get(path, 0) + len(data)
        return data

    monkeypatch.setattr(InputFile, "read", counted)
    result = rmqtool("query", store, "--json", "--key", key, "--topic", "orders")
    assert result.status == (1 if key == "nobody" else 0)
    assert [line["keys"] for line in result.lines] == ([] if key == "nobody" else [[key]])
    of_index = {path: size for path, size in read.items() if path.parent.name == "index"}
    assert len(of_index) == FILES
    assert max(of_index.values()) <= MOST_BYTES_OF_A_FILE
