"""Damage inside of the log: what it costs, what it is called, and that everything else is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.files import InputFile
from rmqtool.formats.message import HEADER_DTYPES
from rmqtool.scan.block import MAX_MESSAGE_SIZE, Damage
from rmqtool.scan.single_record import find_next
from tests.building import LOG, LogBuilder, message, write_log
from tests.scan.reading import agree, damages, fast, messages, offsets, others, small_blocks

FILE_SIZE = 4096
FIELDS: dict[str, Any] = {"body": b"the body", "topic": "orders", "properties": {"TAGS": "Aa", "KEYS": "k1"}}
HEADER_SIZE = HEADER_DTYPES[0].itemsize
TOPIC_AT = HEADER_SIZE + len(b"the body") + 1
PROPERTIES_AT = TOPIC_AT + len("orders") + 2
SIZE = len(message(**FIELDS))
SIZES = range(4), range(84, 88), range(TOPIC_AT - 1, TOPIC_AT), range(PROPERTIES_AT - 2, PROPERTIES_AT)
HOST_BITS = {(39, 4), (39, 5)}  # the sys flag's bits that change the width of the header
CHANGED = {
    "body_crc": {"body_crc", "body_crc_ok"},
    "store_host": {"store_host", "message_id"},
    "body": {"body", "stored_body", "body_crc_ok"},
    "topic": {"topic", "stored_topic"},
}
"""Columns that may change when a byte of that field does; others: the column with the field's name."""


@pytest.fixture
def log() -> LogBuilder:
    """Three records in a file of zeros."""
    return LogBuilder(FILE_SIZE).add_all([FIELDS] * 3)


def field_of(position: int) -> str:
    """Name of the field that a byte of a record belongs to."""
    if position >= PROPERTIES_AT:
        return "properties"
    if position >= HEADER_SIZE:
        return "topic" if position >= TOPIC_AT else "body"
    dtype = HEADER_DTYPES[0]
    names = dtype.names or ()
    widths = [dtype[name].itemsize for name in names]
    return next(name for number, name in enumerate(names) if position < sum(widths[: number + 1]))


def expected_reason(position: int, bit: int) -> str | None:
    """Why the record is damage after a flip; None when it is still sound."""
    if any(position in part for part in SIZES) or (position, bit) in HOST_BITS:
        return "lengths"
    return {"magic_code": "magic-code", "physical_offset": "physical-offset"}.get(field_of(position))


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_costs_one_record_at_most(store: Path, log: LogBuilder, bit: int) -> None:
    """Each bit of the middle record: the record is damage with the right reason, or only the field's columns change."""
    sound = messages(fast(log.write(store)))
    image = bytearray(log.images()[0])
    start = log.offsets[1]
    for position in range(SIZE):
        image[start + position] ^= 1 << bit
        events = fast(write_log(store, {0: bytes(image)}))
        image[start + position] ^= 1 << bit
        reason = expected_reason(position, bit)
        if reason is not None:
            if reason == "lengths" and damages(events)[0].reason == "truncated":
                reason = "truncated"  # a size that leads out of the file
                assert position < 4
            assert others(events) == [Damage(start, SIZE, reason)]  # type: ignore[arg-type]
            assert messages(events) == [sound[0], sound[2]]
            continue
        assert not others(events)
        assert_only_changed(messages(events), sound, field_of(position))


def assert_only_changed(found: list[dict[str, Any]], sound: list[dict[str, Any]], field: str) -> None:
    """The middle message differs from the sound one, and only in what the field says."""
    assert [found[0], found[2]] == [sound[0], sound[2]]
    changed = {name for name, value in found[1].items() if value != sound[1][name]}
    may = CHANGED.get(field, {field})
    if field == "sys_flag":
        may = {"sys_flag", "transaction", "compression"}
    if field == "properties":
        may = {"properties", "stored_properties", "tags", "keys", "unique_key"}
    assert changed
    assert changed <= may
    if field in ("body", "body_crc"):
        assert not found[1]["body_crc_ok"]


@pytest.mark.parametrize(
    ("size", "reason"),
    [
        (0, "lengths"),
        (90, "lengths"),
        (SIZE - 1, "lengths"),
        (SIZE + 1, "lengths"),
        (2 * SIZE, "lengths"),
        (FILE_SIZE, "truncated"),
        (MAX_MESSAGE_SIZE, "truncated"),
        (MAX_MESSAGE_SIZE + 1, "lengths"),
        (2**31 - 1, "lengths"),
        (-1, "lengths"),
        (-SIZE, "lengths"),
        (-(2**31), "lengths"),
    ],
)
@pytest.mark.parametrize("place", [0, 84])
def test_bogus_sizes(store: Path, log: LogBuilder, size: int, reason: str, place: int) -> None:
    """A message size or body size that is wrong costs its own record."""
    image = bytearray(log.images()[0])
    at = log.offsets[1] + place
    image[at : at + 4] = size.to_bytes(4, "big", signed=True)
    events = agree(write_log(store, {0: bytes(image)}))
    assert offsets(events) == [log.offsets[0], log.offsets[2]]
    assert others(events) == [Damage(log.offsets[1], SIZE, reason if place == 0 else "lengths")]  # type: ignore[arg-type]


@pytest.mark.slow
def test_zeroed_pages(tmp_path: Path) -> None:
    """Pages of zeros in the middle cost the records in them, and nothing after them."""
    log = LogBuilder(1 << 16).add_all([FIELDS] * 300)
    image = bytearray(log.images()[0])
    image[8192:16384] = bytes(8192)
    events = agree(write_log(tmp_path, {0: bytes(image)}))
    lost = [offset for offset in log.offsets if offset + SIZE > 8192 and offset < 16384]
    assert offsets(events) == [offset for offset in log.offsets if offset not in lost]
    assert others(events) == [Damage(lost[0], len(lost) * SIZE, "lengths")]


def test_zeros_from_a_record_on(store: Path, log: LogBuilder) -> None:
    """Zeros that begin where a record should are damage when records follow, in this file or in a later one."""
    image = bytearray(log.images()[0])
    second, third = log.offsets[1:]
    image[second:third] = bytes(SIZE)
    assert others(agree(write_log(store, {0: bytes(image)}))) == [Damage(second, SIZE, "zeroed")]
    image[third:] = bytes(FILE_SIZE - third)
    write_log(store, {0: bytes(image), FILE_SIZE: message(FILE_SIZE)})
    assert others(agree(store)) == [Damage(second, FILE_SIZE - second, "zeroed")]


@pytest.mark.parametrize("zeros", range(1, 10))
def test_the_record_behind_zeros_keeps_its_first_bytes(store: Path, zeros: int) -> None:
    """A size that begins with zero bytes is not taken for the end of the zeros before it."""
    record = message(zeros, body=b"")
    assert record.startswith(b"\0\0\0")
    events = agree(write_log(store, {0: bytes(zeros) + record}))
    assert others(events) == [Damage(0, zeros, "zeroed" if zeros + 3 >= 8 else "magic-code")]
    assert offsets(events) == [zeros]


def test_a_record_at_another_position_is_damage(store: Path, log: LogBuilder) -> None:
    """A record of another place of the log, whole and with right lengths, is not a message here."""
    image = bytearray(log.images()[0])
    first, second = log.offsets[:2]
    image[second : second + SIZE] = image[first : first + SIZE]
    events = agree(write_log(store, {0: bytes(image)}))
    assert offsets(events) == [first, log.offsets[2]]
    assert others(events) == [Damage(second, SIZE, "physical-offset")]


def test_a_missing_file_is_damage(store: Path) -> None:
    """The offsets that no file holds are reported between the files around them, once, whatever the splits."""
    log = LogBuilder(1024).add_all([FIELDS] * 20)
    images = log.images()
    del images[1024]
    events = agree(write_log(store, images))
    assert damages(events) == [Damage(1024, 1024, "missing")]
    assert offsets(events) == [offset for offset in log.offsets if not 1024 <= offset < 2048]
    found = [fast(store, span=span) for span in ((0, 1024), (1024, 1500), (1500, 2048), (2048, 1 << 62))]
    assert [len(damages(part)) for part in found] == [0, 1, 0, 0]


def test_a_file_that_was_cut_leaves_a_gap(store: Path) -> None:
    """What a middle file lacks is a truncated record, and then missing up to the next file."""
    log = LogBuilder(1024).add_all([FIELDS] * 20)
    images = log.images()
    cut = log.offsets[1] + 50
    images[0] = images[0][:cut]
    events = agree(write_log(store, images))
    assert damages(events) == [
        Damage(log.offsets[1], 50, "truncated"),
        Damage(cut, 1024 - cut, "missing"),
    ]


def test_an_empty_file_in_the_middle_is_missing(store: Path) -> None:
    """A file of no bytes holds nothing of its offsets."""
    log = LogBuilder(1024).add_all([FIELDS] * 20)
    events = agree(write_log(store, {**log.images(), 1024: b""}))
    assert damages(events) == [Damage(1024, 1024, "missing")]


def test_a_file_of_zeros_in_the_middle(store: Path) -> None:
    """All of it is zeroed, and not the end of the log."""
    log = LogBuilder(1024).add_all([FIELDS] * 20)
    events = agree(write_log(store, {**log.images(), 1024: bytes(1024)}))
    assert damages(events) == [Damage(1024, 1024, "zeroed")]


def test_foreign_bytes_move_what_follows(store: Path, log: LogBuilder) -> None:
    """Records behind inserted bytes tell other positions than their own: they are damage up to the end."""
    image = bytearray(log.images()[0])
    second = log.offsets[1]
    image[second:second] = b"foreign"
    events = agree(write_log(store, {0: bytes(image)}))
    assert offsets(events) == log.offsets[:1]
    assert others(events) == [Damage(second, 7 + 2 * SIZE, "leftover", tail=True)]


@pytest.mark.parametrize("first", [(4, 0x40), (28, 0x40), (87, 0x40), (PROPERTIES_AT - 1, 0x01), (TOPIC_AT - 1, 0x01)])
@pytest.mark.parametrize("second", [(4, 0x40), (28, 0x40), (87, 0x04), (PROPERTIES_AT - 1, 0x10), (TOPIC_AT - 1, 0x04)])
def test_damage_beside_damage_is_one_extent(store: Path, first: tuple[int, int], second: tuple[int, int]) -> None:
    """The scan goes on only where a record is sound: the next damaged record is part of the extent."""
    log = LogBuilder(FILE_SIZE).add_all([FIELDS] * 4)
    image = bytearray(log.images()[0])
    for record, (position, bits) in zip(log.offsets[1:3], (first, second), strict=True):
        image[record + position] ^= bits
    events = agree(write_log(store, {0: bytes(image)}))
    assert offsets(events) == [log.offsets[0], log.offsets[3]]
    assert [(damage.physical_offset, damage.size) for damage in damages(events)] == [(SIZE, 2 * SIZE)]


def test_a_negative_topic_size_is_damage(store: Path, log: LogBuilder) -> None:
    """Also where the sizes would add up with it, because the body holds the size of properties that this leads to."""
    body, tail, topic_size = bytearray(200), 20, -100
    properties_size = tail - topic_size - 2
    place = 200 + 1 + tail - 2 - properties_size
    body[place : place + 2] = properties_size.to_bytes(2, "big")
    start = log.end
    log.add(body=bytes(body), topic="", properties=bytes(tail - 2))
    image = bytearray(log.images()[0])
    image[start + HEADER_SIZE + 200] = topic_size % 256
    image[log.end : log.end + len(message())] = message(log.end)
    events = agree(write_log(store, {0: bytes(image)}))
    assert others(events) == [Damage(start, log.end - start, "lengths")]


@pytest.mark.slow
@pytest.mark.parametrize("filler", [b"x", b"\0"])
def test_the_next_record_is_found_wherever_it_begins(store: Path, filler: bytes) -> None:
    """At every distance, across all borders of the pieces that the search reads."""
    for distance in range(1, 400):
        write_log(store, {0: filler * distance + message(distance)})
        with small_blocks(120), InputFile(store / LOG / f"{0:020d}") as file:
            assert find_next(file, 0, 0) == distance
            assert find_next(file, 0, distance) == distance
            assert find_next(file, 0, distance + 1) == file.size
