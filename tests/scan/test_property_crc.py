"""CRCs of many records at once are those of each record alone, and so is what a damaged `__CRC32#` gives."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.formats.message import (
    CRC32_PROPERTY,
    CRC32_PROPERTY_SIZE,
    CRC_MASK,
    body_crc,
    build_crc32_property,
    record_crc,
    stored_record_crc,
)
from rmqtool.scan.block import Block
from rmqtool.scan.frames import RecordRun, WrongCrc, crcs_of, read_property_crcs, wrong_property_crcs
from rmqtool.scan.reader import scan_files
from tests.building import LogBuilder
from tests.scan.reading import files_of

PROPERTY = build_crc32_property(1_234_567_890)
EVERY_CHANGE = [(position, value) for position in range(CRC32_PROPERTY_SIZE) for value in range(256)]


def records_with(properties: Sequence[bytes], body: bytes, store: Path) -> list[bytes]:
    """Write a log of a record for each of the last properties; an empty one stands for the right CRC."""
    builder = LogBuilder(file_size=8 << 20)
    for last in properties:
        at = builder.add(body=body, properties=b"KEYS\x01key\x02" + (last or PROPERTY))
        if not last:
            crc = record_crc(bytes(builder.files[-1][at:]))
            builder.files[-1][-CRC32_PROPERTY_SIZE:] = build_crc32_property(crc)
    builder.write(store)
    return [record for frames in runs_of(store) for record in split(frames)]


def runs_of(store: Path) -> list[RecordRun]:
    """The runs of a log that fits in one block."""
    events = list(scan_files(files_of(store)))
    return [event for event in events if isinstance(event, RecordRun)]


def split(frames: RecordRun) -> list[bytes]:
    spans = zip(frames.positions.tolist(), frames.message_sizes.tolist(), strict=True)
    return [bytes(frames.block.view[position : position + size]) for position, size in spans]


def one_by_one(records: Sequence[bytes]) -> dict[int, WrongCrc]:
    """What the plain way finds: of records whose property is named right but for one byte at most."""
    found = {}
    for row, record in enumerate(records):
        name = record[-CRC32_PROPERTY_SIZE:][: len(CRC32_PROPERTY)]
        differing = sum(a != b for a, b in zip(name, CRC32_PROPERTY, strict=True))
        if differing <= 1 and stored_record_crc(record) != record_crc(record):
            found[row] = WrongCrc(record_crc(record), stored_record_crc(record))
    return found


def at_once(frames: RecordRun) -> dict[int, WrongCrc]:
    return dict(wrong_property_crcs(frames))


@pytest.mark.slow
@pytest.mark.parametrize("body", [b"", b"body", b"body" * 100, b"body" * 600], ids=lambda body: f"{len(body)} bytes")
def test_every_change_of_one_byte(tmp_path: Path, body: bytes) -> None:
    """Each byte of the property, with each value, and records between them that are sound."""
    changed = EVERY_CHANGE[:: 1 + len(body) // 4]
    properties = [PROPERTY[:position] + bytes([value]) + PROPERTY[position + 1 :] for position, value in changed]
    records = records_with([*properties, b"", *properties[:9], b"", b"A\x01b\x02" * 6], body, tmp_path)
    [frames] = runs_of(tmp_path)
    expected = one_by_one(records)
    assert len(records) == len(properties) + 12
    assert at_once(frames) == expected
    assert len(records) - 12 < len(expected) + 40


@given(st.lists(st.tuples(st.binary(min_size=10, max_size=10), st.booleans()), min_size=1, max_size=20))
def test_any_digits(digits: list[tuple[bytes, bool]]) -> None:
    """Ten bytes in place of the digits, and numbers up to the largest that ten digits hold."""
    block = Block()
    data = b"".join(
        CRC32_PROPERTY + b"\x01" + (b"%010d" % (int.from_bytes(ten, "big") % 10**10) if is_number else ten) + b"\x02"
        for ten, is_number in digits
    )
    block.view[: len(data)] = data
    block.length = len(data)
    ends = np.arange(CRC32_PROPERTY_SIZE, len(data) + 1, CRC32_PROPERTY_SIZE)
    expected = [stored_record_crc(data[end - CRC32_PROPERTY_SIZE : end]) for end in ends.tolist()]
    rows, stored = read_property_crcs(block, ends, np.full(len(ends), CRC32_PROPERTY_SIZE))
    assert rows.tolist() == list(range(len(ends)))
    assert [None if value < 0 else value for value in stored.tolist()] == expected


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=40), st.integers(0, 255))
def test_slices_of_any_sizes(sizes: list[int], byte: int) -> None:
    """Small ones are copied, large ones are not, and both give the CRC of zlib."""
    block = Block()
    ends = np.cumsum(sizes)
    pattern = (np.arange(int(ends[-1])) * 31 + byte).astype(np.uint8).tobytes()
    block.view[: len(pattern)] = pattern
    block.length = len(pattern)
    starts = ends - np.array(sizes)
    expected = [
        zlib.crc32(pattern[start:end]) & CRC_MASK for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
    assert crcs_of(block, starts, np.array(sizes)).tolist() == expected
    assert body_crc(pattern[: sizes[0]]) == expected[0]
