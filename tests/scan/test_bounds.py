"""Nothing on disk is believed: memory and work stay in bounds whatever the bytes say."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from rmqtool.base import mapped_files
from rmqtool.base.errors import UnreadableError, WrongKindError
from rmqtool.base.files import InputFile, list_directory
from rmqtool.base.mapped_files import MappedFile, list_mapped_files
from rmqtool.base.paths import DirectoryEntry
from rmqtool.formats.message import MAGIC_CODE_V1, build_blank
from rmqtool.scan import reader
from rmqtool.scan.block import BLOCK_SIZE, MAX_MESSAGE_SIZE, Blank, Block, Damage, Positions, chain
from tests.building import LOG, LogBuilder, message, write_log, write_sparse
from tests.scan.reading import agree, damages, fast, files_of, messages, offsets, others, small_blocks

GIB = 1 << 30
MAX_MEMORY = 300 << 20
_MEASURE = """
import re, resource, sys
from pathlib import Path
from rmqtool.base.paths import DirectoryEntry
from rmqtool.base.mapped_files import list_mapped_files
from rmqtool.scan.columns import COLUMNS, record_batches
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
for event in scan_files(list_mapped_files(Path(sys.argv[1])).files):
    rows = sum(batch.num_rows for batch in record_batches(event, list(COLUMNS))) if isinstance(event, RecordRun) else 0
    print(rows, event.physical_offset, event.size)
if sys.platform == "darwin":
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
else:  # ru_maxrss would count the test process too, which this one was forked from
    print(int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) << 10)
"""


def measured(store: Path) -> tuple[list[str], int]:
    """Scan in a process of its own: a line for each event, and the most memory that the process had, bytes."""
    run = subprocess.run(
        [sys.executable, "-c", _MEASURE, str(store / LOG)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    *lines, peak = run.stdout.splitlines()
    return lines, int(peak)


@pytest.mark.slow
@pytest.mark.parametrize(("message_size", "with_body"), [(GIB - 1000, True), (2**31 - 1, False)])
def test_a_bogus_size_takes_no_memory(store: Path, message_size: int, with_body: bool) -> None:
    """A good head that calls a record as large as its file, alone or with a body as large, is damage, not a buffer."""
    second = len(message())
    record = bytearray(message(second))
    record[:4] = message_size.to_bytes(4, "big")
    if with_body:
        record[84:88] = (message_size - len(message(body=b"", topic=""))).to_bytes(4, "big")
    write_sparse(store / LOG / f"{0:020d}", {0: message(), second: bytes(record), 5000: message(5000)}, GIB)
    lines, peak = measured(store)
    assert lines == [f"1 0 {second}", f"0 {second} {5000 - second}", f"1 5000 {second}"]
    assert peak < MAX_MEMORY


@pytest.mark.slow
def test_a_record_of_zeros_as_large_as_allowed(store: Path) -> None:
    """Lengths that add up are believed up to the limit and not beyond it."""
    for size, count in ((MAX_MESSAGE_SIZE, 1), (MAX_MESSAGE_SIZE + 1, 0)):
        record = bytearray(message(body=b"", topic="", body_crc=0))
        body_size = size - len(record)
        record[:4], record[84:88] = size.to_bytes(4, "big"), body_size.to_bytes(4, "big")
        store.mkdir(exist_ok=True)
        path = write_sparse(store / LOG / f"{0:020d}", {0: bytes(record)}, size + 100)
        events = list(reader.scan_files([MappedFile(path, 0, size + 100)]))
        assert len(events) == 1
        assert isinstance(events[0], Damage) == (count == 0)


@pytest.mark.slow
@pytest.mark.parametrize("size", [BLOCK_SIZE, BLOCK_SIZE + 1, 20 << 20])
def test_records_larger_than_a_block(store: Path, size: int) -> None:
    """A record larger than a block is read, with its neighbours."""
    log = LogBuilder(32 << 20).add_all([{}, {"body": os.urandom(size)}, {}])
    found = messages(fast(log.write(store), ("physical_offset", "body_size", "body_crc_ok")))
    assert [row["physical_offset"] for row in found] == log.offsets
    assert [row["body_size"] for row in found] == [4, size, 4]
    assert all(row["body_crc_ok"] for row in found)


@dataclass
class Work:
    """What a scan has done: calls that read, bytes that they asked for, positions that chains gave."""

    calls: int = 0
    size: int = 0
    steps: int = 0


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    """Count the work of all scans."""
    done = Work()
    read, read_into = InputFile.read, InputFile.read_into

    def counting_read(self: InputFile, position: int, size: int) -> bytes:
        before = done.calls
        found = read(self, position, size)
        if done.calls == before:  # a large one goes through read_into
            done.calls, done.size = done.calls + 1, done.size + size
        return found

    def counting_read_into(self: InputFile, target: memoryview, position: int) -> int:
        done.calls, done.size = done.calls + 1, done.size + len(target)
        return read_into(self, target, position)

    def counting_chain(block: Block, start: int, most: int | None = None, header_size: int = 0) -> Positions:
        found = chain(block, start, most, header_size)
        done.steps += len(found)
        return found

    monkeypatch.setattr(InputFile, "read", counting_read)
    monkeypatch.setattr(InputFile, "read_into", counting_read_into)
    monkeypatch.setattr(reader, "chain", counting_chain)
    return done


def _wrong_offset(record: bytearray) -> None:
    record[28] ^= 0x40


def _wrong_magic(record: bytearray) -> None:
    record[4] ^= 0x40


def _wrong_lengths(record: bytearray) -> None:
    record[87] ^= 0x40


def _wrong_size(record: bytearray) -> None:
    record[:4] = (2**31 - 1).to_bytes(4, "big")


def _zeros(record: bytearray) -> None:
    record[:] = bytes(len(record))


def _wrong_blank(record: bytearray) -> None:
    record[:8] = build_blank(9)


@pytest.mark.slow
@pytest.mark.parametrize("damage", [_wrong_offset, _wrong_magic, _wrong_lengths, _wrong_size, _zeros, _wrong_blank])
def test_much_damage_takes_time_in_proportion(store: Path, work: Work, damage: Callable[[bytearray], None]) -> None:
    """Every second record of a block is damaged: what is read and walked for each does not grow with the block."""
    size, count = len(message(body=b"b" * 200)), 2000
    image = bytearray(b"".join(message(number * size, body=b"b" * 200) for number in range(count)))
    for start in range(0, count * size, 2 * size):
        record = image[start : start + size]
        damage(record)
        image[start : start + size] = record
    events = fast(write_log(store, {0: bytes(image)}), ("physical_offset",))
    assert len(damages(events)) == count // 2
    assert len(messages(events)) == count // 2
    assert work.calls < 20 * count // 2
    assert work.size < (64 << 10) * count // 2
    assert work.steps < 50 * count


@pytest.mark.slow
def test_large_damage_is_read_in_large_pieces(store: Path, work: Work) -> None:
    """A search through megabytes takes few calls, and reads each byte about once."""
    size = 16 << 20
    write_sparse(store / LOG / f"{0:020d}", {0: b"x" * size, size: message(size)}, size + 1000)
    assert damages(fast(store, ("physical_offset",))) == [Damage(0, size, "magic-code")]
    assert work.calls < 50
    assert work.size < size + 5 * BLOCK_SIZE


@pytest.mark.slow
def test_false_magic_codes_everywhere(store: Path, work: Work) -> None:
    """Bytes that are nothing but magic codes cost a bounded look each."""
    image = MAGIC_CODE_V1.to_bytes(4, "big", signed=True) * 4000
    assert len(damages(agree(write_log(store, {0: image})))) == 1
    assert work.calls < 4 * 4000


def test_many_files_of_zeros_are_looked_at_a_few_times(store: Path, work: Work) -> None:
    """Whether a file of zeros is the end of the log does not read all later files for each."""
    size, count = 1 << 16, 40
    write_log(store, {number * size: bytes(size) for number in range(count)} | {count * size: message(count * size)})
    assert len(damages(fast(store, ("physical_offset",)))) == count
    assert work.size < 8 * count * size


def test_zeros_to_the_end_of_a_file_are_read_once(store: Path, work: Work) -> None:
    """A broker that was killed filled no more of it; a later file goes on. They are stored, or a hole."""
    size, end = 32 << 20, len(message())
    write_sparse(store / LOG / f"{size:020d}", {0: message(size)}, size)
    expected = [Damage(end, size - end, "zeroed")]
    for content in ({0: message() + bytes(size - end)}, {0: message()}):
        write_sparse(store / LOG / f"{0:020d}", content, size)
        work.size = work.calls = 0
        assert damages(fast(store, ("physical_offset",))) == expected
        stored = max(map(len, content.values()))
        assert work.size < stored + 3 * BLOCK_SIZE
        assert work.calls < 80


@pytest.mark.slow
def test_a_part_of_zeros_reads_no_further(store: Path, work: Work) -> None:
    """And what covers its beginning: the part in which they begin has all of them."""
    size, part = 64 << 20, 16 << 20
    write_sparse(store / LOG / f"{0:020d}", {0: message() + bytes(size - len(message()))}, size)
    write_sparse(store / LOG / f"{size:020d}", {0: message(size)}, size)
    found = []
    for start in range(0, size, part):
        work.size = 0
        found += damages(fast(store, ("physical_offset",), (start, start + part)))
        assert work.size < (part if start else size) + reader.LONGEST_BLANK + 3 * BLOCK_SIZE
    assert found == [Damage(len(message()), size - len(message()), "zeroed")]


def test_lanes_are_not_led_astray(store: Path) -> None:
    """Bodies that hold whole records, chains of them, heads and magic codes are bodies."""
    magic = MAGIC_CODE_V1.to_bytes(4, "big", signed=True)
    chain_of_records = b"".join(message(number * 94, body=b"") for number in range(100))
    bodies = [
        chain_of_records,
        magic * 500,
        (b"\0\0\0\x5b" + magic) * 300,
        message(1 << 40) + build_blank(8),
        b"b" * 700,
    ]
    log = LogBuilder(1 << 20).add_all({"body": bodies[number % len(bodies)]} for number in range(300))
    log.write(store)
    for size in (1000, 20_000, BLOCK_SIZE):
        with small_blocks(size):
            events = fast(store, ("physical_offset",))
        assert offsets(events) == log.offsets
        assert not others(events)


@pytest.mark.slow
def test_records_at_their_own_position_inside_of_a_body(store: Path) -> None:
    """A body that holds a record with the position where it lands is a body, for splits that start in it as well."""
    log = LogBuilder(1 << 16)
    for _ in range(20):
        first = log.end + len(message(body=b"", topic="")) - 3 + 40
        second = first + len(message()) + 40
        log.add(body=b"x" * 40 + message(first) + b"y" * 40 + message(second) + b"z" * 40)
    whole = agree(log.write(store), ("physical_offset",))
    assert offsets(whole) == log.offsets
    for size in (1000, 2000, 4000, 8000):
        with small_blocks(size):
            assert offsets(fast(store, ("physical_offset",))) == log.offsets
    middle = log.offsets[10]
    with small_blocks(1000, longest_blank=1 << 12):
        for start in range(middle, log.offsets[11]):
            found = offsets(fast(store, ("physical_offset",), (start, 1 << 62)))
            assert found == log.offsets[10 + (start > middle) :]


def test_a_file_that_grows_is_read_as_it_was_when_opened(store: Path) -> None:
    """Bytes that are appended while the file is scanned do not disturb."""
    log = LogBuilder(1 << 20).add_all([{}] * 10)
    path = write_log(store, {0: log.images()[0][: log.end]}) / LOG / f"{0:020d}"
    found = []
    with small_blocks(120):
        for event in reader.scan_files(files_of(store)):
            assert not isinstance(event, Blank | Damage)
            found += (event.positions + event.block.start_offset).tolist()
            with path.open("ab") as file:
                file.write(message(path.stat().st_size))
    assert found == log.offsets


def test_a_record_that_is_written_while_it_is_looked_at(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The block was filled before the broker wrote the record: it is filled again, and nothing is damage."""
    log = LogBuilder(1 << 12).add_all([{}] * 3)
    last = log.offsets[-1]
    path = write_log(store, {0: log.images()[0][:last].ljust(1 << 12, b"\0")}) / LOG / f"{0:020d}"
    fill = Block.fill

    def fill_and_write(self: Block, *arguments: object) -> None:
        fill(self, *arguments)  # type: ignore[arg-type]
        path.write_bytes(log.images()[0])

    monkeypatch.setattr(Block, "fill", fill_and_write)
    found = []
    with small_blocks(len(message()) * 2):
        for event in reader.scan_files(files_of(store)):
            assert not isinstance(event, Blank | Damage)
            found += (event.positions + event.block.start_offset).tolist()
    assert found == log.offsets


def test_a_file_that_shrinks_is_no_crash(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the file ends between two reads, it cannot be read from there on, and that is said."""
    log = LogBuilder(1 << 12).add_all({"body": b"", "topic": ""} for _ in range(8))
    image = log.images()[0]
    path = write_log(store, {0: image}) / LOG / f"{0:020d}"
    read = InputFile.read
    left = 0

    def cut_and_read(self: InputFile, position: int, size: int) -> bytes:
        path.write_bytes(image[:left])
        return read(self, position, size)

    monkeypatch.setattr(InputFile, "read", cut_and_read)
    for left in range(0, log.end + 1, 7):
        path.write_bytes(image)
        with small_blocks(200), pytest.raises(UnreadableError, match="a moment ago it had 4096 bytes") as raised:
            list(reader.scan_files([MappedFile(path, 0, len(image))]))
        assert raised.value.file == str(path)
        assert raised.value.offset is not None
        assert raised.value.offset >= left


def test_symlinked_files_are_read(store: Path, tmp_path: Path) -> None:
    """A commit log file may be a link to another disk; what it points to is read and not changed."""
    log = LogBuilder(1024).add_all([{}] * 20)
    log.write(store)
    folder = store / LOG
    for path in list(folder.iterdir()):
        target = tmp_path / f"elsewhere-{path.name}"
        path.rename(target)
        path.symlink_to(target)
    assert offsets(agree(store)) == log.offsets


def test_what_is_no_file_is_left_out(store: Path) -> None:
    """A named pipe, a directory and another name are listed as strays, and a scan does not wait for them."""
    write_log(store, {0: message()})
    os.mkfifo(store / LOG / f"{1 << 20:020d}")
    (store / LOG / f"{1 << 21:020d}").mkdir()
    (store / LOG / "notes").touch()
    listed = list_mapped_files(store / LOG)
    assert [stray.kind for stray in listed.strays] == ["special", "directory", "name"]
    assert offsets(agree(store)) == [0]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_became_no_file_is_an_error(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """A pipe or directory that took a listed file's place is refused at once."""
    path = tmp_path / f"{0:020d}"
    make(path)
    with pytest.raises(WrongKindError):
        list(reader.scan_files([MappedFile(path, 0, 1024)]))


def test_a_file_deleted_while_listing_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker's cleaner takes a file away between listing the directory and looking at it."""
    for start in (0, 1024):
        (tmp_path / f"{start:020d}").write_bytes(bytes(1024))

    def list_and_delete(directory: Path) -> list[DirectoryEntry]:
        entries = list_directory(directory)
        (tmp_path / f"{0:020d}").unlink()
        return entries

    monkeypatch.setattr(mapped_files, "list_directory", list_and_delete)
    listed = list_mapped_files(tmp_path)
    assert listed.files == (MappedFile(tmp_path / f"{1024:020d}", 1024, 1024),)
    assert not listed.strays


def test_frames_of_one_block_do_not_share_the_next(store: Path) -> None:
    """Batches own their memory: they are the same after the block was filled again."""
    log = LogBuilder(1 << 16).add_all({"body": os.urandom(50), "topic": f"topic-{number}"} for number in range(50))
    with small_blocks(400):
        found = messages(fast(log.write(store)))
    assert [row["topic"] for row in found] == [f"topic-{number}" for number in range(50)]
    assert all(np.array([row["body_crc_ok"] for row in found]))
