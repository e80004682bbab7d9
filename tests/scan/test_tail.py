"""The end of the log: zeros, torn records, old bytes after the last record, files allocated in advance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqtool.scan.block import Blank, Damage, Reason
from tests.building import LOG, LogBuilder, message, write_log, write_sparse
from tests.sampling import one_in
from tests.scan.reading import agree, fast, messages, offsets, others

PAGE = 4096
FILE_SIZE = 3 * PAGE
PLAIN: dict[str, Any] = {"body": b"b" * 300, "properties": {"TAGS": "a"}}
SIZE = len(message(**PLAIN))


def log_of(count: int) -> LogBuilder:
    """A log of plain records in one file."""
    return LogBuilder(FILE_SIZE).add_all([PLAIN] * count)


def with_bytes_behind(log: LogBuilder, data: bytes, gap: int = 0) -> dict[int, bytes]:
    """The files of a log with `data` after its end."""
    image = bytearray(log.images()[0])
    start = log.end + gap
    image[start : start + len(data)] = data
    return {0: bytes(image)}


@pytest.mark.slow
def test_a_file_cut_inside_the_last_record_ends_with_a_torn_record(store: Path) -> None:
    """At every byte: the records before are read, and what is left of the last one is the tail, as torn."""
    log = log_of(3)
    last = log.offsets[-1]
    whole = log.images()[0]
    for end in range(last + 1, log.end):
        events = agree(write_log(store, {0: whole[:end]}), ("physical_offset",))
        assert offsets(events) == log.offsets[:-1]
        left = whole[last:end].rstrip(b"\0")
        assert others(events) == ([Damage(last, len(left), "torn", tail=True)] if left else [])


@pytest.mark.slow
def test_zeros_from_inside_the_last_record_on_end_it(store: Path) -> None:
    """At any byte: as long as its lengths do not add up the record is the tail; then only its properties differ."""
    log = log_of(3)
    last = log.offsets[-1]
    whole = log.images()[0]
    properties_at = log.end - len(b"TAGS\x01a\x02")
    for end in [
        *range(last + 1, last + 9),
        *one_in(2, range(last + 9, properties_at), "zeros"),
        *range(properties_at, log.end),
    ]:
        events = agree(write_log(store, {0: whole[:end].ljust(FILE_SIZE, b"\0")}), ("physical_offset",))
        if end >= properties_at:
            assert offsets(events) == log.offsets
            assert not others(events)
            continue
        assert offsets(events) == log.offsets[:-1]
        left = whole[last:end].rstrip(b"\0")
        reason: Reason = "leftover" if len(left) < 8 else "torn"  # nothing says of less than a magic code what it was
        assert others(events) == ([Damage(last, len(left), reason, tail=True)] if left else [])


@pytest.mark.parametrize("later", [0, 1, 3])
def test_zeros_end_the_log(store: Path, later: int) -> None:
    """Zeros to the end of the file, and files of zeros after it, are no damage."""
    log = log_of(3)
    images = log.images() | {number * FILE_SIZE: bytes(FILE_SIZE) for number in range(1, later + 1)}
    events = agree(write_log(store, images))
    assert offsets(events) == log.offsets
    assert not others(events)


@pytest.mark.parametrize("holes", [True, False])
def test_a_file_allocated_ahead_does_not_hide_a_torn_record(store: Path, holes: bool) -> None:
    """The torn record before it is still the log's tail, whether the zeros are holes or bytes."""
    log = log_of(3)
    write_log(store, {0: log.images()[0][: log.end - 100].ljust(FILE_SIZE, b"\0")})
    write_sparse(store / LOG / f"{FILE_SIZE:020d}", {} if holes else {0: bytes(FILE_SIZE)}, FILE_SIZE)
    (damage,) = others(agree(store))
    assert isinstance(damage, Damage)
    assert (damage.reason, damage.tail) == ("torn", True)


def test_only_zeros(store: Path) -> None:
    """A log of nothing but zeros has no events."""
    assert agree(write_log(store, {0: bytes(FILE_SIZE), FILE_SIZE: bytes(FILE_SIZE)})) == []


def test_no_files_and_empty_files(store: Path) -> None:
    """A log without a file, and one whose file is empty, have no events."""
    assert agree(write_log(store, {})) == []
    assert agree(write_log(store, {0: b""})) == []
    assert offsets(agree(write_log(store, {0: message(), len(message()): b""}))) == [0]


@pytest.mark.parametrize("first", [b"old bytes, no magic", bytes(20) + b"behind zeros"])
def test_old_bytes_up_to_the_end_of_the_page_are_left_over(store: Path, first: bytes) -> None:
    """What 5.5.0 leaves of its buffer after the last record is the tail, with a reason of its own."""
    log = log_of(3)
    rest = (first * PAGE)[: PAGE - log.end - 1] + b"x"
    (damage,) = others(agree(write_log(store, with_bytes_behind(log, rest))))
    assert damage == Damage(log.end, PAGE - log.end, "leftover", tail=True)


def test_old_bytes_beyond_the_page_are_not_left_over(store: Path) -> None:
    """One byte in the next page: no broker leaves that."""
    log = log_of(3)
    rest = b"x" * (PAGE - log.end + 1)
    (damage,) = others(agree(write_log(store, with_bytes_behind(log, rest))))
    assert damage == Damage(log.end, len(rest), "magic-code", tail=True)


def test_old_bytes_from_the_start_of_a_page_are_not_left_over(store: Path) -> None:
    """A log that ends with its page leaves nothing to fill up."""
    log = LogBuilder(FILE_SIZE)
    log.add(body=b"b" * (PAGE - len(message(body=b""))))
    assert log.end == PAGE
    (damage,) = others(agree(write_log(store, with_bytes_behind(log, b"x" * 100))))
    assert damage == Damage(PAGE, 100, "magic-code", tail=True)


def test_ghosts_with_another_position_are_no_records(store: Path) -> None:
    """Well-formed records past the end that tell another position are the tail, not messages, and were not torn."""
    log = log_of(3)
    events = agree(write_log(store, with_bytes_behind(log, message(7, **PLAIN) + message(7 + SIZE, **PLAIN))))
    assert offsets(events) == log.offsets
    assert others(events) == [Damage(log.end, 2 * SIZE, "physical-offset", tail=True)]


@pytest.mark.parametrize("start", [FILE_SIZE, 5 * FILE_SIZE])
def test_a_file_with_another_name(store: Path, start: int) -> None:
    """Whole records that tell other positions are no torn record, though none follows that is sound."""
    log = log_of(3)
    (damage,) = others(agree(write_log(store, {start: log.images()[0]})))
    assert damage == Damage(start, log.end, "physical-offset", tail=True)


def test_a_record_without_its_head_is_torn(store: Path) -> None:
    """A page that was not written takes the position with it, and the lengths: that no file has another name."""
    log = log_of(3)
    image = bytearray(log.images()[0])
    last = log.offsets[-1]
    image[last + 12 : last + 200] = bytes(188)
    (damage,) = others(agree(write_log(store, {0: bytes(image)})))
    assert damage == Damage(last, log.end - last, "torn", tail=True)


def test_ghosts_at_their_own_position_are_records_again(store: Path) -> None:
    """What a truncation left in place is sound: the scan reads it, with the gap before it as damage."""
    log = log_of(3)
    ghost = message(log.end + 50, **PLAIN)
    events = agree(write_log(store, with_bytes_behind(log, ghost, gap=50)))
    assert offsets(events) == [*log.offsets, log.end + 50]
    assert others(events) == [Damage(log.end, 50, "zeroed")]


def test_a_blank_ends_the_file_whatever_stands_behind_it(store: Path) -> None:
    """A blank's filler of sound records, at their own positions, is part of the blank; also for splits inside it."""
    log = log_of(3)
    blank_at = log.end
    log.roll()
    log.add(**PLAIN)
    images = log.images()
    image = bytearray(images[0])
    ghosts = [blank_at + 8, blank_at + 8 + SIZE]
    image[blank_at + 8 : blank_at + 8 + 2 * SIZE] = b"".join(message(offset, **PLAIN) for offset in ghosts)
    write_log(store, {**images, 0: bytes(image)})
    events = agree(store)
    assert offsets(events) == log.offsets
    assert others(events) == [Blank(blank_at, FILE_SIZE - blank_at)]
    for start in (blank_at, blank_at + 1, blank_at + 8, blank_at + 9, blank_at + 8 + SIZE, FILE_SIZE - 1):
        found = fast(store, span=(start, FILE_SIZE))
        assert found == (others(events) if start == blank_at else [])


@pytest.mark.parametrize("size", [0, 8, 100, FILE_SIZE * 2, -1])
def test_a_blank_with_a_wrong_size_is_one_when_nothing_follows(store: Path, size: int) -> None:
    """No broker reads a blank's size; the file ends with it all the same."""
    log = log_of(3)
    blank_at = log.end
    blank = size.to_bytes(4, "big", signed=True) + b"\xcb\xd4\x31\x94"
    write_log(store, with_bytes_behind(log, blank + b"filler") | {FILE_SIZE: message(FILE_SIZE)})
    events = agree(store)
    assert others(events) == [Blank(blank_at, FILE_SIZE - blank_at)]
    assert offsets(events) == [*log.offsets, FILE_SIZE]


def test_a_blank_that_is_not_the_end_hides_no_records(store: Path) -> None:
    """A blank whose size does not lead to the end of the file, with records after it, is damage."""
    log = log_of(3)
    image = bytearray(log.images()[0])
    second = log.offsets[1]
    image[second : second + 8] = (100).to_bytes(4, "big") + b"\xcb\xd4\x31\x94"
    events = agree(write_log(store, {0: bytes(image)}))
    assert offsets(events) == [log.offsets[0], log.offsets[2]]
    assert others(events) == [Damage(second, SIZE, "lengths")]


def test_a_blank_of_eight_bytes(store: Path) -> None:
    """The smallest blank fills its file to the last byte."""
    log = LogBuilder(len(message(**PLAIN)) + 8).add_all([PLAIN, PLAIN])
    events = agree(log.write(store))
    assert others(events) == [Blank(SIZE, 8)]
    assert len(messages(events)) == 2


@pytest.mark.parametrize("rest", [1, 7])
def test_less_than_a_blank_at_the_end_of_a_file(store: Path, rest: int) -> None:
    """Bytes that no blank fits in are damage: zeroed or truncated; in the last file zeros are nothing."""
    record = message(**PLAIN)
    size = len(record) + rest
    write_log(store, {0: record + bytes(rest), size: message(size) + b"x" * rest})
    assert others(agree(store)) == [
        Damage(SIZE, rest, "zeroed"),
        Damage(size + len(message()), rest, "torn", tail=True),
    ]
