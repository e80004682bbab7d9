"""The parts of a log that several processes share, those of a reader that goes backwards, and splits."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

from rmqtool.base.mapped_files import MappedFile, list_mapped_files
from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from rmqtool.store.splits import Split, find_source, log_parts, parts_from_end, split_source
from rmqtool.store.store import open_stores
from tests.building import LOG, LogBuilder, message, write_large_store, write_sparse
from tests.verify.small_store import small_store

WHOLE = 1 << 40


def log_of(folder: Path, *files: bytes) -> tuple[MappedFile, ...]:
    """A log of such files, one after the other."""
    start = 0
    for data in files:
        (folder / f"{start:020}").write_bytes(data)
        start += len(data)
    return tuple(list_mapped_files(folder).files)


def starts(files: tuple[MappedFile, ...], size: int) -> list[int]:
    return [start for start, _ in log_parts(files, least=size)]


def test_parts_meet(tmp_path: Path) -> None:
    """They cover all, begin where something stands, and files are no borders of large parts."""
    files = list_mapped_files(small_store(tmp_path / "store") / "commitlog").files
    for size in (500, 1000, 4096, 6000, WHOLE):
        parts = log_parts(files, least=size)
        assert (parts[0][0], parts[-1][1]) == (0, MAX_OFFSET)
        assert all(before[1] == after[0] for before, after in pairwise(parts))
        assert all(2 * (stop - start) >= size for start, stop in parts)
    assert starts(files, 1 << 12) == [0, 4096, 8192]
    assert starts(files, 800) == [0, 4096, 8192, 9636, 10358]


def test_parts_of_no_log_and_of_small_files(tmp_path: Path) -> None:
    assert log_parts([]) == [(0, MAX_OFFSET)]
    assert starts(log_of(tmp_path, b"x" * 100, b"x" * 100, b"x" * 100), 200) == [0, 100, 200]


def test_files_that_overlap_are_one_part(tmp_path: Path) -> None:
    """What begins at an offset is not one thing then."""
    (tmp_path / f"{0:020}").write_bytes(b"x" * 5000)
    (tmp_path / f"{4000:020}").write_bytes(b"x" * 5000)
    assert log_parts(list_mapped_files(tmp_path).files, least=1000) == [(0, MAX_OFFSET)]


def test_no_part_begins_behind_the_log(tmp_path: Path) -> None:
    """Files that were allocated in advance are left to the part in which the log ends."""
    assert starts(log_of(tmp_path, b"x" * 5000, bytes(5000)), 1000) == [0, 1250, 2500, 3750]


def test_a_preallocated_file_has_parts_by_its_data(tmp_path: Path) -> None:
    """The rest of the only file is a hole: parts are as large as in a file that ends where the data does."""
    data = b"x" * 80_000
    (tmp_path / "whole").mkdir()
    whole = starts(log_of(tmp_path / "whole", data), 10_000)
    (tmp_path / f"{0:020}").write_bytes(data)
    os.truncate(tmp_path / f"{0:020}", 1 << 30)
    assert starts(list_mapped_files(tmp_path).files, 10_000) == whole == [0, 20_000, 40_000, 60_000, 70_000]


def test_parts_of_which_the_results_are_taken_in_order(tmp_path: Path) -> None:
    """Whoever reads the next part must not wait long for the one before it, nor for the last one."""
    files = log_of(tmp_path, b"x" * 64_000)
    ordered = [start for start, _ in log_parts(files, least=1000, in_order=True)]
    sizes = [after - before for before, after in pairwise([*ordered, 64_000])]
    assert sizes == [2000] * 24 + [1000] * 12 + [250] * 16
    assert max(after - before for before, after in pairwise(starts(files, 1000))) == 4000


def test_parts_of_a_large_log(tmp_path: Path) -> None:
    """Of 1 TiB too they are small where results are taken in order: what is ready early has to be kept."""
    files = write_sparse_log(tmp_path, 1 << 40)
    assert largest(log_parts(files, in_order=True)) == 1 << 30
    assert largest(log_parts(files)) == 16 << 30


def write_sparse_log(folder: Path, size: int) -> tuple[MappedFile, ...]:
    """A log with something at the beginning of every 128 MiB and at its end."""
    path = folder / f"{0:020}"
    with path.open("wb") as file:
        for position in (*range(0, size, 128 << 20), size - 1):
            os.pwrite(file.fileno(), b"x", position)
    return tuple(list_mapped_files(folder).files)


def largest(parts: list[tuple[int, int]]) -> int:
    return max(stop - start for start, stop in parts[:-1])


def test_a_last_file_that_cannot_be_read_ends_where_it_ends(tmp_path: Path) -> None:
    """It lies in the last part; the others are cut as ever."""
    files = log_of(tmp_path, b"x" * 8000, b"x" * 8000)
    files[-1].path.unlink()
    assert starts(files, 1000) == [0, 4000]


def test_a_large_log_has_few_parts(tmp_path: Path) -> None:
    """Then they are larger."""
    assert 100 <= len(starts(log_of(tmp_path, *[b"x" * 1000] * 300), 10)) <= 256


def test_parts_from_the_end(tmp_path: Path) -> None:
    """They meet; zeros at the end are in the first of them."""
    files = log_of(tmp_path, b"x" * 1000, b"x" * 500 + bytes(500), bytes(1000))
    assert list(parts_from_end(files, 0, MAX_OFFSET, 600)) == [(900, MAX_OFFSET), (300, 900), (0, 300)]
    assert list(parts_from_end(files, 800, 1200, 600)) == [(800, 1200)]
    assert list(parts_from_end(files[1:], 0, 1200, 600)) == [(1000, 1200)]
    assert list(parts_from_end([], 0, MAX_OFFSET, 600)) == []


def splits_of(store: Path, size: int, start: int = 0) -> list[Split]:
    """The splits of a whole store, which meet."""
    [named] = open_stores([str(store)], BrokerConf())
    source = find_source(named, start)
    splits = list(split_source(source, size))
    assert (splits[0].start, splits[-1].stop) == (source.start, source.stop)
    assert all(before.stop == after.start for before, after in pairwise(splits))
    return splits


def records_in(splits: list[Split]) -> list[int]:
    """Physical offsets of the records in all splits, in their order."""
    offsets: list[int] = []
    for split in splits:
        for event in scan_files(split.files, split.start, split.stop):
            if isinstance(event, RecordRun):
                offsets += event.physical_offsets.tolist()
    return offsets


def test_splits_of_files_with_little_in_them_are_one(tmp_path: Path) -> None:
    """Twenty files of 1 GiB, with two records and a hole in each."""
    [split] = splits_of(write_large_store(tmp_path, 20, 0), 128 << 20)
    assert len(split.files) == 20
    size = len(message())
    assert records_in([split]) == [number << 30 | place for number in range(20) for place in (0, size)]


def test_a_part_of_such_files_is_one_split_too(tmp_path: Path) -> None:
    """From within the second on, as a later run of an export reads: the file before is only known."""
    [split] = splits_of(write_large_store(tmp_path, 3, 0), 128 << 20, start=(1 << 30) + 10)
    assert split.start == (1 << 30) + 10
    assert records_in([split]) == [(1 << 30) + len(message()), 2 << 30, (2 << 30) + len(message())]


def test_files_that_are_full_stay_splits_of_their_own(tmp_path: Path) -> None:
    """Those with little between them are one, and no more than a quarter of a split's size is joined."""
    size = 1 << 20
    contents = [size, 1000, 1000, size, size // 8, size // 8, size // 8, 0, size]
    for number, length in enumerate(contents):
        write_sparse(tmp_path / LOG / f"{number * size:020}", {0: b"x" * length}, size)
    starts = [split.start // size for split in splits_of(tmp_path, size)]
    assert starts == [0, 1, 3, 4, 6, 8]


def test_small_files_are_joined_and_each_record_is_in_one_split(tmp_path: Path) -> None:
    """Wherever the splits are cut, across a missing file as well."""
    builder = LogBuilder(4096).add_all([{"body": b"b" * (50 + number % 90)} for number in range(300)])
    store = builder.write(tmp_path / "store")
    (store / LOG / f"{3 * 4096:020}").unlink()
    there = [offset for offset in builder.offsets if offset // 4096 != 3]
    for size in (1000, 4096, 20_000, 1 << 20):
        splits = splits_of(store, size)
        assert records_in(splits) == there
    assert len(splits) == 1


def test_files_that_overlap_are_not_joined(tmp_path: Path) -> None:
    """What begins at an offset is not one thing then: each file is scanned apart."""
    for start in (0, 4000):
        write_sparse(tmp_path / LOG / f"{start:020}", {0: message(start)}, 5000)
    splits = splits_of(tmp_path, 128 << 20)
    assert [(split.start, split.stop) for split in splits][:1] == [(0, 4000)]
    assert records_in(splits) == [0, 4000]
