"""Pairs of stores with a known answer: two copies of one log, of which one was cut, parted, trimmed or damaged."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

from rmqtool.base.files import RateLimit
from rmqtool.diff.comparison import StoreComparison, compare
from rmqtool.diff.log_pass import DiffRequest
from rmqtool.diff.records import side_of
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.building import START_TIME
from tests.unchanged import unchanged
from tests.verify.small_store import StoreBuilder, small_store

RECORDS = 30
FILE_SIZE = 2048


def log_of(
    records: int = RECORDS,
    parted_at: int | None = None,
    filler: bytes = b"\0",
    file_size: int = FILE_SIZE,
    start_offset: int = 0,
) -> StoreBuilder:
    """A log of `records`; from record `parted_at` on they are those of another master."""
    builder = StoreBuilder(file_size=file_size, start_offset=start_offset, filler=filler)
    for number in range(records):
        master = "2" if parted_at is not None and number >= parted_at else "1"
        builder.put(
            ("orders", "payments")[number % 2],
            queue_id=number // 2 % 2,
            body=f"message {number} of master {master}".encode() * (1 + number * 7 % 5),
            store_timestamp=START_TIME + 400 * number + int(master),
            properties={"UNIQ_KEY": f"7F00000{master}000018B4AAC2{number:012X}"},
        )
    return builder


def compared(a: Path, b: Path, request: DiffRequest | None = None, limit: RateLimit | None = None) -> StoreComparison:
    """Compare two stores, which stay as they are."""
    with unchanged(a), unchanged(b):
        sides = side_of("a", Snapshot(open_store(a), limit=limit)), side_of("b", Snapshot(open_store(b), limit=limit))
        return compare(*sides, request or DiffRequest(), lambda done: None)


def pair(directory: Path, a: StoreBuilder, b: StoreBuilder) -> tuple[Path, Path]:
    """Write both with what is derived from them."""
    return small_store(directory / "a", a), small_store(directory / "b", b)


def change(path: Path, position: int, new: Callable[[int], int] = lambda byte: byte ^ 1) -> None:
    """Change one byte of a file."""
    data = bytearray(path.read_bytes())
    data[position] = new(data[position])
    path.write_bytes(data)


def log_file(store: Path, offset: int) -> tuple[Path, int]:
    """The log file that holds a physical offset, and the position in it."""
    return store / "commitlog" / f"{offset // FILE_SIZE * FILE_SIZE:020d}", offset % FILE_SIZE


def write_epochs(store: Path, entries: Iterable[tuple[int, int]]) -> None:
    """Write `epochFileCheckpoint`."""
    lines = [f"{epoch}-{start}\n" for epoch, start in entries]
    crc = zlib.crc32("".join(lines).encode()) & 0x7FFFFFFF
    (store / "epochFileCheckpoint").write_text(f"{len(lines)}\n{crc}\n{''.join(lines)}")
