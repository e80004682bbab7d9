"""One record as brokers of each version parse it, field by field."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.files import InputFile
from rmqtool.broker.record_parser import NOTHING_WRITTEN, Parsed, parse_at
from rmqtool.formats.message import MAGIC_CODE_V2, build_blank
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.rules.versions import Version
from tests.building import START_TIME, message

OLD = RecoveryRules(Version(4, 4, 0))
MIDDLE = RecoveryRules(Version(5, 3, 1))
NEW = RecoveryRules(Version(5, 5, 0))
ALL = (OLD, MIDDLE, NEW)


def parse(path: Path, data: bytes, rules: RecoveryRules, size: int = 4096, crc: bool = True) -> Parsed:
    (path / "file").write_bytes(data.ljust(size, b"\0"))
    with InputFile(path / "file") as file:
        return parse_at(file, 0, rules, check_crc=crc)


def patched(data: bytes, position: int, layout: str, value: int) -> bytes:
    part = struct.pack(layout, value)
    return data[:position] + part + data[position + len(part) :]


@pytest.mark.parametrize("rules", ALL)
@pytest.mark.parametrize(
    "fields", [{}, {"body": b""}, {"properties": {"TAGS": "a", "DELAY": "x"}}, {"topic": "t" * 127}]
)
def test_a_sound_record(tmp_path: Path, rules: RecoveryRules, fields: dict[str, Any]) -> None:
    """Its size, and what decides where a recovery begins."""
    record = message(77, **fields)
    found = parse(tmp_path, record, rules)
    assert found.is_record
    assert (found.size, found.physical_offset, found.store_timestamp) == (len(record), 77, START_TIME + 1)


def test_what_only_later_versions_read(tmp_path: Path) -> None:
    """IPv6 hosts since 4.6.0, the second format since 5.1.0."""
    v6, v2 = message(sys_flag=0x30), message(magic_code=MAGIC_CODE_V2, topic="t" * 200)
    assert parse(tmp_path, v6, NEW).is_record
    assert parse(tmp_path, v6, RecoveryRules(Version(4, 6, 0))).is_record
    assert not parse(tmp_path, v6, OLD).ok
    assert parse(tmp_path, v2, RecoveryRules(Version(5, 1, 0))).is_record
    assert not parse(tmp_path, v2, RecoveryRules(Version(5, 0, 0))).ok


@pytest.mark.parametrize("rules", ALL)
def test_the_position_is_not_compared(tmp_path: Path, rules: RecoveryRules) -> None:
    """A record may tell any physical offset."""
    assert parse(tmp_path, message(-5), rules).physical_offset == -5


@pytest.mark.parametrize("rules", ALL)
def test_the_crc_counts_in_recovery_only(tmp_path: Path, rules: RecoveryRules) -> None:
    """Dispatch does not look at it; a body of no bytes has none; its sign bit counts."""
    wrong = message(body_crc=1)
    assert not parse(tmp_path, wrong, rules).ok
    assert parse(tmp_path, wrong, rules, crc=False).is_record
    assert parse(tmp_path, message(body=b"", body_crc=1), rules).is_record
    right = message()
    assert not parse(tmp_path, patched(right, 8, ">B", right[8] | 0x80), rules).ok


@pytest.mark.parametrize("rules", ALL)
def test_lengths_that_do_not_add_up(tmp_path: Path, rules: RecoveryRules) -> None:
    """A size too large by one is told as such, other lengths lead out of the record."""
    record = message()
    found = parse(tmp_path, patched(record, 0, ">i", len(record) + 1), rules)
    assert (found.size, found.ok) == (len(record) + 1, False)
    assert not parse(tmp_path, patched(record, 84, ">i", 1 << 20), rules).ok
    assert not parse(tmp_path, patched(record, 92, ">b", -1), rules).ok
    assert not parse(tmp_path, patched(record, 0, ">i", -1), rules).ok
    assert not parse(tmp_path, patched(record, 0, ">i", 5), rules).ok


@pytest.mark.parametrize("rules", ALL)
def test_negative_lengths_count_as_none(tmp_path: Path, rules: RecoveryRules) -> None:
    """Of the body and of the properties."""
    record = message(body=b"")
    assert parse(tmp_path, patched(record, 84, ">i", -3), rules).is_record
    assert parse(tmp_path, patched(record, len(record) - 2, ">h", -3), rules).is_record


@pytest.mark.parametrize("rules", ALL)
def test_properties_that_stop_the_broker(tmp_path: Path, rules: RecoveryRules) -> None:
    """DELAY of the schedule topic must be a number; batch properties since 5.0.0."""
    delayed: dict[str, Any] = {"topic": "SCHEDULE_TOPIC_XXXX", "properties": {"DELAY": "3"}}
    assert parse(tmp_path, message(**delayed), rules).is_record
    assert not parse(tmp_path, message(**{**delayed, "properties": {"DELAY": "3s"}}), rules).ok
    assert not parse(tmp_path, message(**{**delayed, "properties": {"DELAY": "3000000000"}}), rules).ok
    batch = message(properties={"INNER_NUM": "40000", "INNER_BASE": "7"})
    assert parse(tmp_path, batch, rules).is_record is (rules is OLD)


def test_blanks(tmp_path: Path) -> None:
    """Any length will do before 5.3.2; later one that leads out of the file is no blank."""
    for rules in ALL:
        assert parse(tmp_path, build_blank(4096), rules).is_blank
        assert parse(tmp_path, build_blank(8), rules).is_blank
    assert parse(tmp_path, build_blank(4097), MIDDLE).is_blank
    assert not parse(tmp_path, build_blank(4097), NEW).ok


@pytest.mark.parametrize(("version", "is_blank"), [(Version(5, 5, 0), True), (Version(5, 5, 1), False)])
def test_a_blank_of_negative_size(tmp_path: Path, version: Version, is_blank: bool) -> None:
    """Real brokers of 5.5.1 end the log there, and delete the files after it."""
    found = parse(tmp_path, patched(build_blank(4096), 0, ">i", -16), RecoveryRules(version))
    assert (found.is_blank, found.ok) == (is_blank, is_blank)


def test_a_huge_size(tmp_path: Path) -> None:
    """It costs the broker its memory before 5.3.2; later it is compared with the file first."""
    huge = patched(message(), 0, ">i", 0x7FFFFFF0)
    assert parse(tmp_path, huge, OLD).out_of_memory
    assert parse(tmp_path, huge, MIDDLE).out_of_memory
    found = parse(tmp_path, huge, NEW)
    assert (found.ok, found.out_of_memory) == (False, False)


@pytest.mark.parametrize("rules", ALL)
def test_the_end_of_a_file(tmp_path: Path, rules: RecoveryRules) -> None:
    """Zeros, a full file, and every cut of a record are no record, whatever is cut."""
    assert parse(tmp_path, b"", rules).why == NOTHING_WRITTEN
    record = message(properties={"TAGS": "a"})
    for size in range(len(record)):
        assert not parse(tmp_path, record[:size], rules, size=size).ok
