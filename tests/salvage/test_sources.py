"""Where records come from: copies that fill each other, files under other names, images, recycled files."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from rmqtool.rules.broker_conf import BrokerConf
from tests.building import LOG, write_log
from tests.salvage.damaged_logs import CONF, checked_log, images_of, plan_of, records_of, salvaged, whole_in
from tests.verify.small_store import FILE_SIZE, StoreBuilder


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return tmp_path / "new"


def overwrite(store: Path, name: str, start: int, end: int, with_byte: bytes = b"\xa5") -> None:
    """Damage a log file of a store."""
    path = store / LOG / name
    data = bytearray(path.read_bytes())
    data[start:end] = with_byte * (end - start)
    path.write_bytes(data)


def named(start: int) -> str:
    return f"{start:020d}"


def test_healthy(tmp_path: Path, new: Path) -> None:
    """The same bytes, and nothing is left behind."""
    store = checked_log().write(tmp_path / "store")
    plan, found = salvaged(new, store)
    assert found == records_of(checked_log())
    assert (plan.layout.gaps, plan.left.listed, plan.is_lossy) == ([], [], False)
    assert {path.name: path.read_bytes() for path in new.iterdir()} == images_of(store)


def test_two_sources_fill_each_other(tmp_path: Path, new: Path) -> None:
    """Each has lost what the other has, and one file is gone from the first: all is there."""
    log = checked_log(60)
    a, b = log.write(tmp_path / "a"), log.write(tmp_path / "b")
    overwrite(a, named(0), 300, 2000)
    overwrite(b, named(0), 2500, 3500)
    overwrite(b, named(FILE_SIZE * 2), 0, 900)
    (a / LOG / named(FILE_SIZE)).unlink()
    plan, found = salvaged(new, a, b)
    assert found == records_of(log)
    assert not plan.is_lossy
    assert [plan.of_source(number)[0] for number in (0, 1)] == [37, 23]


@pytest.mark.parametrize(
    ("old", "damaged", "topics"),
    [
        (b"orders", b"orXers", ("orders", "payments")),
        (b"orders", b"or\x00ers", ()),
        (b"orders", b"or ers", ()),
        (b"some text", b"some\xfftext", ("orders",)),
        (b"some text", b"some\x00text", ()),
    ],
)
@pytest.mark.parametrize("rows", [(0,), (7,), (19,), (3, 4), (0, 10, 11, 19)])
def test_what_only_looks_damaged(
    rows: tuple[int, ...], old: bytes, damaged: bytes, topics: tuple[str, ...], tmp_path: Path, new: Path
) -> None:
    """No CRC covers topic and properties; a copy that has them as a broker writes them comes first, else they stay."""
    log = StoreBuilder(file_size=FILE_SIZE)
    for number in range(20):
        log.put("orders", 0, body=b"body", queue_offset=number, properties={"KEYS": "some text"})
    a, b = log.write(tmp_path / "a"), log.write(tmp_path / "b")
    path = a / LOG / named(0)
    data = bytearray(path.read_bytes())
    for offset in (log.offsets[row] for row in rows):
        record = records_of(log)[offset]
        data[offset : offset + len(record)] = record.replace(old, damaged)
    path.write_bytes(data)
    assert path.read_bytes() != (b / LOG / named(0)).read_bytes()
    assert salvaged(new, a, b, topics=topics)[1] == records_of(log)
    alone = salvaged(tmp_path / "alone", a, topics=topics)[1]
    assert alone.keys() == records_of(log).keys()
    assert alone[log.offsets[rows[0]]] != records_of(log)[log.offsets[rows[0]]]


def test_lost_in_both(tmp_path: Path, new: Path) -> None:
    """What both have lost is a gap of whole records, and both files are listed with it."""
    log = checked_log(60)
    a, b = log.write(tmp_path / "a"), log.write(tmp_path / "b")
    for store in (a, b):
        overwrite(store, named(0), 1000, 1100)
    plan, found = salvaged(new, a, b)
    lost = {
        offset: record for offset, record in records_of(log).items() if offset <= 1100 and offset + len(record) > 1000
    }
    assert found == {offset: record for offset, record in records_of(log).items() if offset not in lost}
    assert [(gap.physical_offset, gap.size) for gap in plan.layout.gaps] == [(min(lost), sum(map(len, lost.values())))]
    assert [(left.input, left.reason) for left in plan.left.listed] == [
        (0, "damaged"),
        (3, "damaged"),
    ] or plan.left.listed


def test_another_master_is_not_mixed_in(tmp_path: Path, new: Path) -> None:
    """A copy whose log went another way from some record on gives what is before it, and is listed after it."""
    a = checked_log(30).write(tmp_path / "a")
    other = checked_log(18)
    for number in range(18, 40):
        other.put("orders", number % 2, checked=True, body=f"message {number} of master 2".encode() * 3,
                  store_timestamp=1_700_000_000_007 + 400 * number)  # fmt: skip
    b = other.write(tmp_path / "b")
    overwrite(a, named(0), 300, 900)
    plan, found = salvaged(new, a, b)
    assert found == records_of(checked_log(30))
    assert plan.left.totals["stale"].records == 22


def test_renamed_file(tmp_path: Path, new: Path) -> None:
    """Files under other names, of the log or not, are put where their records say."""
    log = checked_log(60)
    store = log.write(tmp_path / "store")
    (store / LOG / named(FILE_SIZE)).rename(store / LOG / "copy.bak")
    (store / LOG / named(0)).rename(store / LOG / named(FILE_SIZE))
    plan, found = salvaged(new, store)
    assert found == records_of(log)
    assert not plan.is_lossy


def test_raw_image(tmp_path: Path, new: Path) -> None:
    """Log files in the wrong order, cut, between garbage, in a file without a name that means anything."""
    log, chance = checked_log(60), random.Random(1)
    pieces = list(images_of(log.write(tmp_path / "store")).values())
    image = tmp_path / "disk.img"
    data = chance.randbytes(777).join([b"", pieces[2][:3000], pieces[0], pieces[3], b"\0" * 5000, pieces[1][500:], b""])
    image.write_bytes(data)
    plan, found = salvaged(new, raw=[image])
    assert found == whole_in(records_of(log), [data])
    assert plan.left.totals["not-a-record"].size > 777


def test_recycled_file(tmp_path: Path, new: Path) -> None:
    """Behind new records stand those of the file that it was made of; they are older, and no part of the log."""
    whole = checked_log(120)
    images = whole.images()
    starts = sorted(images)
    reused = starts[-1]
    end = len(whole.files[-1])
    kept = {start: images[start] for start in starts[3:]}
    kept[reused] = images[reused][:end] + images[starts[0]][end:]
    store = write_log(tmp_path / "store", kept)
    plan, found = salvaged(new, store)
    assert found == {offset: record for offset, record in records_of(whole).items() if offset >= starts[3]}
    old = whole_in(records_of(whole), [kept[reused][end:]])
    assert (set(plan.left.totals), plan.left.totals["stale"].records) == ({"stale", "damaged"}, len(old))


def test_file_made_ahead_of_an_old_one(tmp_path: Path, new: Path) -> None:
    """All of the log's next file is old: none of it is part of the log."""
    whole = checked_log(120)
    images = whole.images()
    starts = sorted(images)
    kept = {start: images[start] for start in starts[3:]} | {starts[-1] + FILE_SIZE: images[starts[0]]}
    store = write_log(tmp_path / "store", kept)
    plan, found = salvaged(new, store)
    assert min(found) == starts[3]
    assert set(plan.left.totals) == {"stale"}


def test_records_behind_a_cut(tmp_path: Path, new: Path) -> None:
    """A start has cut the log without erasing, and new messages have overwritten a part."""
    old, fresh = checked_log(15), checked_log(5)
    for number in range(3):
        fresh.put("orders", 0, checked=True, body=b"new" * 20, store_timestamp=1_700_000_900_000 + number)
    data = bytearray(old.images()[0])
    data[: len(fresh.files[0])] = fresh.files[0]
    store = write_log(tmp_path / "store", {0: bytes(data)})
    plan, found = salvaged(new, store, conf=CONF)
    assert found == records_of(fresh)
    assert plan.left.totals["stale"].records > 3


def test_size_of_files_is_found(tmp_path: Path) -> None:
    """Also where most files were cut, by the names; and a broker.conf counts before all."""
    store = checked_log(60).write(tmp_path / "store")
    for number, path in enumerate(sorted((store / LOG).iterdir())):
        path.write_bytes(path.read_bytes()[: 1000 + number])
    assert plan_of(store, conf=BrokerConf()).layout.file_size == FILE_SIZE
    assert plan_of(store, conf=BrokerConf({"mappedFileSizeCommitLog": "8192"})).layout.file_size == 8192


def test_second_salvage_takes_the_lost_from_another(tmp_path: Path, new: Path) -> None:
    """Dummy records of a first salvage give way to what another source has."""
    log = checked_log(60)
    a, b = log.write(tmp_path / "a"), log.write(tmp_path / "b")
    overwrite(a, named(0), 300, 2000)
    plan, _ = salvaged(tmp_path / "first" / LOG, a)
    assert plan.lost
    again, found = salvaged(new, tmp_path / "first", b)
    assert found == records_of(log)
    assert not again.is_lossy
    shutil.rmtree(new)
    assert salvaged(new, tmp_path / "first")[0].layout.gaps == plan.layout.gaps


def test_body_without_a_crc_of_the_record(tmp_path: Path, new: Path) -> None:
    """The CRC of its body is what proves a record of most brokers."""
    log = StoreBuilder(file_size=FILE_SIZE)
    for number in range(20):
        log.put("orders", body=b"some body" * 9, store_timestamp=1_700_000_000_000 + number)
    store = log.write(tmp_path / "store")
    lost = log.offsets[7]
    overwrite(store, named(0), lost + 100, lost + 101)
    plan, found = salvaged(new, store)
    assert found == {offset: record for offset, record in records_of(log).items() if offset != lost}
    assert [(gap.physical_offset, gap.size) for gap in plan.layout.gaps] == [(lost, log.offsets[8] - lost)]
