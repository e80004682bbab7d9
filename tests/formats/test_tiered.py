"""Segments of tiered storage that real brokers wrote."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rmqtool.formats.consume_queue import UNIT_DTYPE
from rmqtool.formats.java import string_hash
from rmqtool.formats.layout import decode_units, parse
from rmqtool.formats.tiered import (
    CODA_SIZE,
    INDEX_HEADER_SIZE,
    INDEX_ITEM_DTYPE,
    INDEX_MAGIC,
    INDEX_SLOT_DTYPE,
    TieredCoda,
    TieredIndexHeader,
    base_of,
    cluster_directory,
    segment_name,
)
from tests.conftest import GoldenStore

QUEUE = Path("tiered/24e289d7_LabCluster/broker-a/history/0")


def test_names() -> None:
    """Names that brokers gave: the first digits of an MD5, then the offset."""
    assert segment_name(0) == "cfcd208400000000000000000000"
    assert segment_name(19709) == "e259d9d700000000000000019709"
    assert cluster_directory("LabCluster") == "24e289d7_LabCluster"
    assert base_of("e259d9d700000000000000019709") == 19709
    for name in ("cfcd208400000000000000019709", "19709", "cfcd2084" + "9" * 20, "CFCD208400000000000000000000"):
        assert base_of(name) is None


@pytest.mark.parametrize("version", ["5.1.4", "5.3.3", "5.5.1"])
def test_units_and_records(golden_store: GoldenStore, version: str) -> None:
    """Units of 20 bytes lead to records, back to back, that have their own offset in the queue's log at byte 28."""
    store = golden_store(f"more/{version}-tiered")
    log = {base_of(path.name): path.read_bytes() for path in (store / QUEUE / "COMMIT_LOG").iterdir()}
    files = sorted((store / QUEUE / "CONSUME_QUEUE").iterdir(), key=lambda path: path.name[8:])
    units = decode_units(UNIT_DTYPE, b"".join(path.read_bytes() for path in files))
    assert len(units) == 120
    ends: dict[int | None, int] = {}
    for number, unit in enumerate(units):
        base = max(base for base in log if base is not None and base <= unit["physical_offset"])
        record = log[base][int(unit["physical_offset"]) - base :][: int(unit["message_size"])]
        assert int.from_bytes(record[:4], "big") == unit["message_size"] == len(record)
        assert int.from_bytes(record[28:36], "big") == unit["physical_offset"]
        assert int.from_bytes(record[20:28], "big") == number
        assert unit["tags_code"] == string_hash(f"Tag{number * 2 % 3}")
        ends[base] = int(unit["physical_offset"]) - base + len(record)
    for segment, end in ends.items():
        rest = log[segment][end:]
        if rest:  # up to 5.2.0, after a segment that was full
            coda = parse(TieredCoda, rest)
            assert (version, coda.size, coda.magic & 0xFFFFFFFF) == ("5.1.4", CODA_SIZE, 0xCBD43194)


@pytest.mark.parametrize("version", ["5.3.3", "5.5.1"])
def test_an_index_segment(golden_store: GoldenStore, version: str) -> None:
    """The items of each used slot, and each key with the hash of its release."""
    store = golden_store(f"more/{version}-tiered")
    [path] = (store / QUEUE.parent.parent / "rmq_sys_INDEX" / "0" / "INDEX").iterdir()
    data = path.read_bytes()
    header = parse(TieredIndexHeader, data[:INDEX_HEADER_SIZE])
    assert header.magic == INDEX_MAGIC
    slots = (int.from_bytes(data[INDEX_HEADER_SIZE : INDEX_HEADER_SIZE + 4], "big") - INDEX_HEADER_SIZE) // 8
    used = np.frombuffer(data, INDEX_SLOT_DTYPE, slots, INDEX_HEADER_SIZE)
    items = decode_units(INDEX_ITEM_DTYPE, data[INDEX_HEADER_SIZE + slots * INDEX_SLOT_DTYPE.itemsize :])
    assert (header["items"], int(used["length"].sum())) == (720, items.nbytes)
    hashes = set(items["hash"].tolist())
    found = 0
    for number in range(240):
        value = string_hash(f"history#k{number}")
        found += (value & 0x7FFFFFFF if version == "5.5.1" else abs(value)) in hashes
    # 5.5.1 itself leaves out items when it compacts an index, which its header still counts.
    assert (found, len(items)) == ((240, 720) if version == "5.3.3" else (132, 414))
