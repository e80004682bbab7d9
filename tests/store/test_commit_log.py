"""Where a commit log begins and ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import list_mapped_files
from rmqtool.formats.file_name import file_name
from rmqtool.formats.message import build_blank
from rmqtool.store import commit_log
from rmqtool.store.commit_log import LogRange, log_range
from tests.building import LOG, START_TIME, LogBuilder, message, write_log, write_sparse
from tests.conftest import GoldenStore
from tests.golden import stores
from tests.unchanged import unchanged

FILE = 4096
GIB = 1 << 30
MIB = 1 << 20
START = 3 * FILE  # the log's minimum after a retention


def found(store: Path, hint: int | None = None) -> LogRange:
    with unchanged(store):
        return log_range(list_mapped_files(store / LOG).files, hint)


def log(count: int, start: int = START) -> LogBuilder:
    """A log of `count` messages of about 1 KiB whose store timestamps count up from START_TIME."""
    return LogBuilder(FILE, start).add_all(
        {"body": bytes([65]) * (800 + 7 * number), "store_timestamp": START_TIME + number} for number in range(count)
    )


def hints(builder: LogBuilder) -> Iterator[int | None]:
    """Good ones and bad ones."""
    yield from (None, -1, 0, builder.start_offset, builder.end - 1, builder.end, builder.end + 1, 1 << 62)
    for offset in builder.offsets:
        yield from (offset, offset + 1, offset + 500)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 9, 13])
def test_a_hint_changes_nothing_but_speed(tmp_path: Path, count: int) -> None:
    """The range is that of the first and the last record, whatever the hint is."""
    builder = log(count)
    store = builder.write(tmp_path)
    expected = LogRange(START, builder.end, START_TIME, START_TIME + count - 1)
    with unchanged(store):
        files = list_mapped_files(store / LOG).files
        assert {hint: log_range(files, hint) for hint in hints(builder)} == dict.fromkeys(hints(builder), expected)
        assert {log_range(files, hint).last_record_offset for hint in hints(builder)} == {builder.offsets[-1]}


def test_a_blank_longer_than_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no record begins near the end of the data, the last file is read from its start."""
    monkeypatch.setattr(commit_log, "LONGEST_BLANK", 10)
    builder = LogBuilder(FILE, START, filler=b"x").add_all([{"store_timestamp": START_TIME}] * 3)
    end = builder.end
    builder.roll()
    assert found(builder.write(tmp_path)) == LogRange(START, START + FILE, START_TIME, START_TIME)
    assert end < START + FILE - 1000


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", stores.names())
def test_golden_logs(name: str, golden_store: GoldenStore) -> None:
    """With any hint and without one, the range is what the release told after its start."""
    files = list_mapped_files(golden_store(name) / LOG).files
    oracle = stores.oracle(name)
    records, told = oracle["records"], oracle["commit_log"]
    times = [record["store_timestamp"] for record in records]
    expected = LogRange(told["min_offset"], told["max_offset"], *((times[0], times[-1]) if times else ()))
    last = records[-1]["physical_offset"] if records else 0
    for hint in (None, last, last + 1, told["max_offset"], 1 << 40, -5, *[r["physical_offset"] for r in records[-9:]]):
        assert log_range(files, hint) == expected


def test_no_file() -> None:
    """Without a file the minimum is -1 and the maximum 0."""
    assert log_range(()) == LogRange(-1, 0, None, None)


@pytest.mark.parametrize("sizes", [(0,), (FILE,), (FILE, FILE), (FILE, 0), (0, 0)])
def test_nothing_written(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    """Empty files and zeros hold no record: minimum and maximum are where the first begins."""
    write_log(tmp_path, {START + FILE * number: bytes(size) for number, size in enumerate(sizes)})
    assert found(tmp_path) == LogRange(START, START)


@pytest.mark.parametrize("zeros", [(FILE,), (FILE, FILE), (0,), (FILE, 0)])
def test_files_allocated_ahead(tmp_path: Path, zeros: tuple[int, ...]) -> None:
    """Files of zeros after the log are not its end, in a file that has room for more and in one that has not."""
    for count in (3, 4):
        builder = log(count)
        images = builder.images()
        images |= {max(images) + FILE * (number + 1): bytes(size) for number, size in enumerate(zeros)}
        write_log(tmp_path, images)
        for hint in (None, builder.offsets[-1]):
            assert found(tmp_path, hint) == LogRange(START, builder.end, START_TIME, START_TIME + count - 1)


@pytest.mark.parametrize("allocated", [True, False])
def test_a_log_that_ends_with_a_blank(tmp_path: Path, allocated: bool) -> None:
    """After the blank the log goes on in the next file; without one it ends at its last record, as at a start."""
    builder = log(3)
    end = builder.end
    builder.roll()
    images = builder.images()
    if not allocated:
        del images[START + FILE]
    write_log(tmp_path, images)
    expected = LogRange(START, START + FILE if allocated else end, START_TIME, START_TIME + 2)
    for hint in (None, *builder.offsets, end, end + 9):
        assert found(tmp_path, hint) == expected


def test_a_blank_with_old_bytes_behind_it(tmp_path: Path) -> None:
    """A record that was left behind a blank's eight bytes is not the last one."""
    builder = log(3)
    end = builder.end
    ghost = message(end + 8, body=b"old", store_timestamp=START_TIME + 99)
    (image,) = builder.images().values()
    rest = (build_blank(START + FILE - end) + ghost).ljust(START + FILE - end, b"x")
    write_log(tmp_path, {START: image[: end - START] + rest, START + FILE: bytes(FILE)})
    for hint in (None, *builder.offsets):
        assert found(tmp_path, hint) == LogRange(START, START + FILE, START_TIME, START_TIME + 2)


@pytest.mark.parametrize("left", [1, 4, 8, 50, 400, 863])
def test_a_torn_tail(tmp_path: Path, left: int) -> None:
    """The part of a record that an unclean stop leaves is not counted."""
    builder = log(5)
    images = builder.images()
    last = max(images)
    cut = builder.offsets[-1] - last + left
    images[last] = images[last][:cut].ljust(FILE, b"\0")
    write_log(tmp_path, images)
    for hint in hints(builder):
        assert found(tmp_path, hint) == LogRange(START, builder.offsets[-1], START_TIME, START_TIME + 3)


def test_a_file_that_begins_torn(tmp_path: Path) -> None:
    """Where the last file has no whole record, the log ends at its start, and an earlier record tells the time."""
    builder = log(5)
    images = builder.images()
    assert builder.offsets[-1] == max(images) == START + FILE
    images[START + FILE] = images[START + FILE][:300].ljust(FILE, b"\0")
    write_log(tmp_path, images)
    for hint in (None, *builder.offsets):
        assert found(tmp_path, hint) == LogRange(START, START + FILE, START_TIME, START_TIME + 3)


def test_a_damaged_head(tmp_path: Path) -> None:
    """The first time is that of the first record that can be read."""
    builder = log(9)
    images = builder.images()
    images[START] = bytes([0xFF]) * FILE
    write_log(tmp_path, images)
    assert found(tmp_path) == LogRange(START, builder.end, START_TIME + 4, START_TIME + 8)


def test_a_damaged_end(tmp_path: Path) -> None:
    """What can be read after damage is the end."""
    builder = log(9)
    images = builder.images()
    last = builder.offsets[-2] - max(images)
    images[max(images)] = images[max(images)][:last] + b"\xff" * 8 + images[max(images)][last + 8 :]
    write_log(tmp_path, images)
    for hint in hints(builder):
        assert found(tmp_path, hint).max_offset == builder.end


def test_nothing_but_garbage(tmp_path: Path) -> None:
    """Without any record the log ends where its last file begins that is not all zeros."""
    write_log(tmp_path, {0: b"\xff" * FILE, FILE: b"\xff" * 100 + bytes(FILE - 100), 2 * FILE: bytes(FILE)})
    assert found(tmp_path) == LogRange(0, FILE)


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes were read, call by call."""
    counted: list[int] = []
    read, read_into = InputFile.read, InputFile.read_into

    def counting_read(file: InputFile, position: int, size: int) -> bytes:
        before = len(counted)
        data = read(file, position, size)
        counted.extend([len(data)] if len(counted) == before else [])  # a large read goes through read_into
        return data

    def counting_read_into(file: InputFile, target: memoryview, position: int) -> int:
        done = read_into(file, target, position)
        counted.append(done)
        return done

    monkeypatch.setattr(InputFile, "read", counting_read)
    monkeypatch.setattr(InputFile, "read_into", counting_read_into)
    return counted


@pytest.mark.parametrize("hint", [None, "last", 0, -1, GIB // 2, GIB + 5000, 2 * GIB - 1, 3 * GIB, 1 << 62])
def test_little_is_read_of_large_files(tmp_path: Path, bytes_read: list[int], hint: int | str | None) -> None:
    """Of two files of 1 GiB with three records each no more than 20 MiB are read, whatever the hint is."""
    last = 0
    for start in (0, GIB):
        data = b""
        for number in range(3):
            last = start + len(data)
            data += message(last, body=b"x" * 5000, store_timestamp=START_TIME + number)
        if start == 0:
            data += build_blank(GIB - len(data))
        write_sparse(tmp_path / LOG / file_name(start), {0: data}, GIB)
    write_sparse(tmp_path / LOG / file_name(2 * GIB), {}, GIB)
    expected = LogRange(0, GIB + len(data), START_TIME, START_TIME + 2)
    assert found(tmp_path, last if isinstance(hint, str) else hint) == expected
    assert sum(bytes_read) <= 20 * MIB


@pytest.mark.slow
def test_little_is_read_of_a_full_file(tmp_path: Path, bytes_read: list[int]) -> None:
    """Of a file that is written to near its end, only what a blank or a record may cover is read."""
    size = 48 * MIB
    data, times = b"", iter(range(START_TIME, START_TIME + 1000))
    while len(data) < size - 4 * MIB:
        last = len(data)
        data += message(len(data), body=b"x" * (4 * MIB - 200), store_timestamp=next(times))
    write_sparse(tmp_path / LOG / file_name(0), {0: data}, size)
    expected = LogRange(0, len(data), START_TIME, next(times) - 1)
    assert found(tmp_path) == expected
    without_hint = sum(bytes_read)
    assert without_hint <= 30 * MIB
    bytes_read.clear()
    assert found(tmp_path, last) == expected
    assert sum(bytes_read) <= without_hint - 4 * MIB
