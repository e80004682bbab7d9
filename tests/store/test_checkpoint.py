"""The file `checkpoint`."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.base.errors import UnreadableError, WrongKindError
from rmqtool.rules.versions import Version, parse_version
from rmqtool.store.checkpoint import read_checkpoint
from rmqtool.store.store import open_store
from tests.conftest import GoldenStore
from tests.golden import stores
from tests.unchanged import unchanged

NAMES = (
    "physic_message_timestamp",
    "logics_message_timestamp",
    "index_message_timestamp",
    "master_flushed_offset",
    "confirm_physical_offset",
    "logics_physical_offset",
)
NUMBERS = bytes.fromhex(
    "0000019ABCDEF012 0000019ABCDEF013 0000019ABCDEF014 0000000000000400 0000000000000800 FFFFFFFFFFFFFFFF"
)
EXPECTED = (0x19ABCDEF012, 0x19ABCDEF013, 0x19ABCDEF014, 1024, 2048, -1)


def read(root: Path) -> dict[str, int] | None:
    (root / "commitlog").mkdir(exist_ok=True)
    with unchanged(root):
        return read_checkpoint(open_store(root))


@pytest.mark.parametrize("size", [48, 4096, 9000])
def test_all_numbers(tmp_path: Path, size: int) -> None:
    """Six numbers stand at the start, whatever follows them."""
    (tmp_path / "checkpoint").write_bytes(NUMBERS.ljust(size, b"\x01"))
    assert read(tmp_path) == dict(zip(NAMES, EXPECTED, strict=True))


@pytest.mark.parametrize(("size", "known"), [(24, 3), (40, 5), (0, 0), (8, 1)])
def test_a_short_file(tmp_path: Path, size: int, known: int) -> None:
    """What a short file lacks is 0, as in Java, which extends it."""
    (tmp_path / "checkpoint").write_bytes(NUMBERS[:size])
    assert read(tmp_path) == dict(zip(NAMES, (*EXPECTED[:known], *[0] * (6 - known)), strict=True))


def test_no_file(tmp_path: Path) -> None:
    """Without the file there is no checkpoint, which is not one of zeros."""
    assert read(tmp_path) is None


def test_a_directory(tmp_path: Path) -> None:
    """A directory of that name is told, and not taken for a missing file."""
    (tmp_path / "checkpoint").mkdir()
    with pytest.raises(WrongKindError, match="a directory where a file should be"):
        read(tmp_path)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """A file that is there, but cannot be opened, is not a missing one."""
    (tmp_path / "checkpoint").symlink_to("checkpoint")
    with pytest.raises(UnreadableError, match="cannot read"):
        read(tmp_path)


@pytest.mark.parametrize("name", stores.driven_names())
def test_golden_checkpoints(name: str, golden_store: GoldenStore) -> None:
    """Times are those of records or lie before the log's end, and 5.5 tells where its queues were flushed."""
    checkpoint = read_checkpoint(open_store(golden_store(name)))
    oracle = stores.oracle(name)
    records = oracle["records"]
    assert checkpoint is not None
    assert tuple(checkpoint) == NAMES
    killed = name.endswith("-killed")
    times = [record["store_timestamp"] for record in records] or [0]
    if not (killed or name.endswith("-trimmed")):  # the record of a time before may have been deleted since
        assert {checkpoint["physic_message_timestamp"], checkpoint["logics_message_timestamp"]} <= set(times)
    assert 0 <= checkpoint["physic_message_timestamp"] <= times[-1]
    assert bool(checkpoint["physic_message_timestamp"]) == bool(records)
    is_early = name in ("5.5.0-killed", "5.5.1-killed")  # before queues were flushed
    assert bool(checkpoint["logics_message_timestamp"]) == (bool(records) and not is_early)
    assert bool(checkpoint["index_message_timestamp"]) == (len(records) > 1)  # set when the first index file is full
    assert (checkpoint["master_flushed_offset"], checkpoint["confirm_physical_offset"]) == (0, 0)
    flushed = checkpoint["logics_physical_offset"]
    if parse_version(oracle["version"]) < Version(5, 5, 0) or killed:
        assert flushed == 0
    else:
        assert flushed in {record["physical_offset"] for record in records}
