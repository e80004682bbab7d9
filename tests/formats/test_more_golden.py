"""Formats that only some brokers write, against files that the release's own classes wrote."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rmqtool.formats import consume_queue, dledger, timer_wheel
from rmqtool.formats.checkpoint import CHECKPOINT_FILE_SIZE, TIMER_CHECK_SIZE, TimerCheck
from rmqtool.formats.file_name import start_offset_of
from rmqtool.formats.java import string_hash
from rmqtool.formats.layout import build, decode_units, parse
from rmqtool.formats.message import MAGIC_CODE_BLANK, Blank, parse_message
from tests.conftest import GoldenStore

MESSAGES = 60
DELAY_MS = 3_600_000


@pytest.fixture(scope="module")
def extras(unpacked: GoldenStore) -> Path:
    return unpacked("more/5.5.0-extras")


@pytest.fixture(scope="module", params=["more/5.3.3-dledger", "more/4.9.7-dledger"])
def group(request: pytest.FixtureRequest, unpacked: GoldenStore) -> Path:
    return unpacked(request.param)


def images(folder: Path) -> dict[int, bytes]:
    """The files of a queue of mapped files by start offset."""
    return {start_offset_of(file.name) or 0: file.read_bytes() for file in sorted(folder.iterdir())}


def ext_unit(tags_code: int, store_timestamp: int, bit_map: bytes) -> bytes:
    """One unit, built."""
    fields = {"tags_code": tags_code, "store_timestamp": store_timestamp, "filter_bit_map": bit_map}
    sizes = {"size": consume_queue.MIN_EXT_UNIT_SIZE + len(bit_map), "bit_map_size": len(bit_map)}
    return build(consume_queue.ConsumeQueueExtUnit, fields | sizes)


@pytest.mark.slow
def test_ext_units_are_where_the_queue_points(extras: Path) -> None:
    """Each tags code is the address of the entry that follows the one before; every second unit has a bit map."""
    for queue in (0, 1):
        units = [
            (start + unit.position, unit)
            for start, data in images(extras / f"consumequeue_ext/orders/{queue}").items()
            for unit in consume_queue.decode_ext_units(data)
        ]
        [data] = images(extras / f"consumequeue/orders/{queue}").values()
        addresses = decode_units(consume_queue.UNIT_DTYPE, data)["tags_code"].tolist()
        assert [consume_queue.ext_address(offset) for offset, _ in units] == addresses
        assert [consume_queue.ext_offset(address) for address in addresses] == [offset for offset, _ in units]
        assert all(consume_queue.is_ext_address(address) for address in addresses)
        for number, (_, unit) in enumerate(units):
            assert unit.is_sound
            assert unit.tags_code == string_hash(f"Tag{(2 * number + queue) % 3}")
            assert unit.filter_bit_map == (bytes([1, 2, number + 128]) if number % 2 else b"")


@pytest.mark.slow
def test_ext_units_are_built_as_the_broker_builds_them(extras: Path) -> None:
    """The values of every unit give its bytes back."""
    for data in images(extras / "consumequeue_ext/orders/0").values():
        for unit in consume_queue.decode_ext_units(data):
            built = ext_unit(unit.tags_code, unit.store_timestamp, unit.filter_bit_map)
            assert built == data[unit.position : unit.position + unit.size]


@pytest.mark.parametrize("address", [0, 5, -1, -(1 << 31), (1 << 63) - 1])
def test_a_plain_tags_code_is_no_address(address: int) -> None:
    """What a hash or a delivery time can be never points to an ext unit."""
    assert consume_queue.ext_offset(address) is None


def test_ext_units_end_where_sizes_do_not_fit() -> None:
    """A wrong size is the last that is told, and never leads out of the data."""
    good = ext_unit(7, 8, b"abc")
    for bad in (good[:18] + b"\x00\x09abc", b"\x7f\xff" + good[2:], b"\x00\x01" + good[2:], good[:-1]):
        units = list(consume_queue.decode_ext_units(good + bad))
        assert [unit.is_sound for unit in units] == [True, False]
        assert units[-1].position == len(good)
    assert list(consume_queue.decode_ext_units(b"\xff\xff" + good)) == []
    assert list(consume_queue.decode_ext_units(b"\x00")) == []


def test_timer_log_units(extras: Path) -> None:
    """Each unit links to the one before of its slot and tells what was enqueued; a blank ends a full file."""
    position_of_slot: dict[int, int] = {}
    files = images(extras / "timerlog")
    number = 0
    for start, data in files.items():
        units = decode_units(timer_wheel.UNIT_DTYPE, data)
        for place, unit in enumerate(units[timer_wheel.is_written(units)]):
            due = int(unit["write_timestamp"]) + int(unit["delay"])
            assert unit["delay"] == DELAY_MS + number // 3 * 1000
            assert unit["magic"] == timer_wheel.MAGIC_DEFAULT
            assert unit["previous_position"] == position_of_slot.get(due, -1)
            assert unit["topic_hash"] == string_hash("orders")
            position_of_slot[due] = start + place * timer_wheel.UNIT_SIZE
            number += 1
    assert number == MESSAGES
    first = decode_units(timer_wheel.UNIT_DTYPE, files[0])
    [blank] = np.flatnonzero(timer_wheel.is_blank(first))
    rest = len(files[0]) - int(blank) * timer_wheel.UNIT_SIZE
    assert parse(timer_wheel.TimerLogBlank, files[0][-rest:]).size == rest
    assert not timer_wheel.is_written(first)[blank]


@pytest.mark.parametrize("name", ["timerwheel", f"timerwheel.{MESSAGES * timer_wheel.UNIT_SIZE}"])
def test_timer_wheel(extras: Path, name: str) -> None:
    """A slot stands at its time modulo the wheel and points to its first and newest unit; a snapshot is the same."""
    data = (extras / name).read_bytes()
    assert len(data) == timer_wheel.WHEEL_SIZE
    assert timer_wheel.is_wheel_name(name)
    slots = decode_units(timer_wheel.SLOT_DTYPE, data)
    used = np.flatnonzero(slots["time"])
    assert (slots["time"][used] % timer_wheel.WHEEL_SLOTS == used).all()
    assert slots["count"][used].tolist() == [3] * (MESSAGES // 3)
    files = images(extras / "timerlog")
    for slot in slots[used]:
        for field in ("first_position", "last_position"):
            start = max(start for start in files if start <= slot[field])
            unit = decode_units(timer_wheel.UNIT_DTYPE, files[start][int(slot[field]) - start :])[0]
            assert (unit["write_timestamp"] + unit["delay"]) // timer_wheel.DEFAULT_PRECISION_MS == slot["time"]


def test_timer_check(extras: Path) -> None:
    """The seven numbers, and nothing after them."""
    data = (extras / "config/timercheck").read_bytes()
    fields = parse(TimerCheck, data)
    assert fields.last_read_timestamp == 1_700_000_000_123
    assert fields.last_timer_log_flush_position == MESSAGES * timer_wheel.UNIT_SIZE
    assert (fields.last_timer_queue_offset, fields.master_timer_queue_offset) == (MESSAGES, MESSAGES + 1)
    assert (fields.state_version, fields.version_counter) == (7, 1)
    assert len(data) == CHECKPOINT_FILE_SIZE
    assert not any(data[TIMER_CHECK_SIZE:])


def test_compaction_queue_and_log(extras: Path) -> None:
    """A unit for each record of the log of the same name, an end mark after them; records tell their new place."""
    logs = images(extras / "compaction/compactionLog/state/0")
    queues = images(extras / "compaction/compactionCq/state/0")
    assert logs.keys() == queues.keys()
    number = 0
    for start, data in queues.items():
        units = decode_units(consume_queue.BATCH_UNIT_DTYPE, data)
        written = consume_queue.is_batch_written(units)
        for unit in units[written]:
            record = parse_message(logs[start][int(unit["physical_offset"]) - start :])
            assert record.physical_offset == unit["physical_offset"]
            assert record.queue_offset == unit["base_queue_offset"] == number
            assert record.body == b"state %d" % number
            number += 1
        if start != max(queues):
            assert consume_queue.is_end_mark(units).tolist() == [*[False] * int(written.sum()), True]
            end = int(units[written][-1]["physical_offset"] + units[written][-1]["message_size"]) - start
            assert parse(Blank, logs[start][end:]).magic_code == MAGIC_CODE_BLANK
    assert number == MESSAGES


def test_dledger_entries_and_index(group: Path) -> None:
    """Entries follow each other, wrap a record that tells the place after the header, and the index points to them."""
    files = images(next(group.glob("dledger-*/data")))
    [data] = images(next(group.glob("dledger-*/index"))).values()
    units = decode_units(dledger.INDEX_DTYPE, data)
    units = units[dledger.is_written(units)]
    expected = 0
    for number, unit in enumerate(units):
        start = max(start for start in files if start <= unit["position"])
        entry = files[start][int(unit["position"]) - start :]
        header = parse(dledger.DLedgerEntryHeader, entry)
        record = parse_message(entry[dledger.ENTRY_HEADER_SIZE :])
        assert (header.magic, header.index, header.term) == (dledger.MAGIC_ENTRY, number, 0)
        assert (header.position, header.size) == (unit["position"], unit["size"])
        assert header.size == dledger.ENTRY_HEADER_SIZE + header.body_size
        assert record.physical_offset == header.position + dledger.ENTRY_HEADER_SIZE
        assert record.message_size == header.body_size
        if header.position != expected:
            before = max(start for start in files if start < header.position - 1 and start <= expected)
            blank = parse(dledger.DLedgerBlank, files[before][expected - before :])
            assert (blank.magic, blank.size) == (dledger.MAGIC_BLANK, header.position - expected)
        expected = header.position + header.size
    assert len(units) == 400
    assert len(files) > 1
