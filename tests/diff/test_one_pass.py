"""Each byte of both logs is read once, whatever is found in them: counted, not timed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rmqtool.diff.comparison import StoreComparison, compare
from rmqtool.diff.log_pass import DiffRequest
from rmqtool.diff.records import SIDES, side_of
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.building import LOG, LogBuilder
from tests.diff.pairs import change, write_epochs
from tests.unchanged import unchanged

FILE_SIZE = 16 << 20
BODY = os.urandom(1 << 20)
RECORDS = 260
"""Of 300 KiB: logs of five files, more than is kept of them in memory."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def whole() -> LogBuilder:
    return log_of()


@pytest.mark.budget(6)
def test_the_same(tmp_path: Path, whole: LogBuilder) -> None:
    found = read_once(tmp_path, whole, whole)
    assert found.verdict == "same"


@pytest.mark.budget(6)
def test_one_is_ahead(tmp_path: Path, whole: LogBuilder) -> None:
    found = read_once(tmp_path, log_of(150), whole, DiffRequest(only="b", limit=30))
    assert (found.verdict, found.tails["b"].messages, len(found.listed)) == ("b-ahead", RECORDS - 150, 30)


@pytest.mark.budget(6)
def test_they_part_early(tmp_path: Path, whole: LogBuilder) -> None:
    """All that follows is counted while it is compared."""
    found = read_once(tmp_path, whole, log_of(parted_at=5), DiffRequest(only="a", limit=200))
    assert (found.verdict, found.common_end) == ("diverged", whole.offsets[5])
    assert [found.tails[name].messages for name in ("a", "b")] == [RECORDS - 5] * 2
    assert [each["physical_offset"] for each in found.listed] == whole.offsets[5:205]


@pytest.mark.budget(6)
def test_damage_in_many_places(tmp_path: Path, whole: LogBuilder) -> None:
    """The records around each are read from what is kept."""
    places = [offset + 1000 for offset in whole.offsets[3::25]]
    found = read_once(tmp_path, whole, whole, damage=places)
    assert (found.verdict, found.parting.damaged, found.parting.extents) == ("damaged", ("b",), len(places))


@pytest.mark.budget(6)
def test_damage_before_they_part(tmp_path: Path, whole: LogBuilder) -> None:
    """Changed where no CRC covers it, long before: what was counted from there on is forgotten."""
    other = log_of(parted_at=200)
    found = read_once(tmp_path, whole, other, damage=[whole.offsets[2] + 19])  # the flag
    assert (found.verdict, found.common_end) == ("diverged", whole.offsets[200])
    assert found.parting.differences[0].start == whole.offsets[2]
    assert [found.tails[name].messages for name in ("a", "b")] == [RECORDS - 200] * 2


@pytest.mark.budget(6)
def test_what_a_slave_would_cut(tmp_path: Path, whole: LogBuilder) -> None:
    """By its epochs, which may begin earlier than the logs part."""
    epochs = [(1, 0), (2, whole.offsets[100])], [(1, 0), (3, whole.offsets[120])]
    found = read_once(tmp_path, whole, log_of(parted_at=120), epochs=epochs)
    assert found.epochs is not None
    cuts = [following.cut for following in (found.epochs.a_follows, found.epochs.b_follows)]
    assert [cut.messages if cut else 0 for cut in cuts] == [RECORDS - 100] * 2
    assert [found.tails[name].messages for name in ("a", "b")] == [RECORDS - 120] * 2


def log_of(records: int = RECORDS, parted_at: int | None = None) -> LogBuilder:
    """A log; from record `parted_at` on of another master."""
    log = LogBuilder(file_size=FILE_SIZE)
    for number in range(records):
        master = int(parted_at is not None and number >= parted_at)
        log.add(body=BODY[number + master : number + 300_000], store_timestamp=1_700_000_000_000 + number)
    return log


def read_once(
    directory: Path,
    first: LogBuilder,
    second: LogBuilder,
    request: DiffRequest | None = None,
    damage: tuple[int, ...] | list[int] = (),
    epochs: tuple[list[tuple[int, int]], list[tuple[int, int]]] | None = None,
) -> StoreComparison:
    """Compare two stores; assert that no page of their logs is read twice, and all of them are."""
    stores = first.write(directory / "a"), second.write(directory / "b")
    for offset in damage:
        start = offset // FILE_SIZE * FILE_SIZE
        change(stores[1] / LOG / f"{start:020d}", offset - start)
    for store, entries in zip(stores, epochs or (), strict=False):
        write_epochs(store, entries)
    sides = [side_of(name, Snapshot(open_store(store))) for name, store in zip(SIDES, stores, strict=True)]
    with unchanged(stores[0]), unchanged(stores[1]), counted_reads() as reads:
        found = compare(sides[0], sides[1], request or DiffRequest(), lambda done: None)
    for side in sides:
        for mapped in side.files:
            times = reads[str(mapped.path)]
            pages = range(min(side.end - mapped.start_offset, mapped.size) >> 12)
            assert {times[page] for page in pages} == {1}, mapped.path
            assert max(times.values()) == 1, mapped.path
    return found


@contextmanager
def counted_reads() -> Iterator[dict[str, Counter[int]]]:
    """How often each page of each file is read."""
    reads: dict[str, Counter[int]] = {}
    preadv, pread = os.preadv, os.pread

    def count(number: int, position: int, size: int) -> None:
        pages = range(position >> 12, (position + size + 4095) >> 12)
        reads.setdefault(os.readlink(f"/proc/self/fd/{number}"), Counter()).update(pages)

    def counted_preadv(number: int, buffers: Any, position: int, flags: int = 0) -> int:
        size = preadv(number, buffers, position, flags)
        count(number, position, size)
        return size

    def counted_pread(number: int, size: int, position: int) -> bytes:
        data = pread(number, size, position)
        count(number, position, len(data))
        return data

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "preadv", counted_preadv)
        patch.setattr(os, "pread", counted_pread)
        yield reads
