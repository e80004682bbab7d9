"""The log of a converted store: the messages of all committed entries in order, and nothing else."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from rmqtool.base.errors import UnsupportedError, UsageError, WrongKindError
from rmqtool.formats.dledger import ENTRY_HEADER_SIZE
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.salvage.conversion import ConversionPlan, conversion_of, plan_conversion, write_conversion
from rmqtool.store.store import open_store
from tests.building import LOG, START_TIME
from tests.dledger_building import NODE, EntryBuilder, entry_log, put_entries
from tests.salvage.damaged_logs import records_of, walked
from tests.salvage.entry_logs import file_at, messages, moved, overwrite
from tests.unchanged import unchanged
from tests.verify.small_store import FILE_SIZE, StoreBuilder


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return tmp_path / "new"


def converted(
    store: Path, new: Path, conf: BrokerConf | None = None, *, uncommitted: bool = False
) -> tuple[ConversionPlan, list[bytes]]:
    """Convert the log of a store, and read the new one as a broker does; the source stays as it is."""
    with unchanged(store):
        conversion = conversion_of(open_store(store, conf), with_uncommitted=uncommitted)
        plan = plan_conversion(conversion)
        write_conversion(plan, new)
    return plan, [moved(record) for _, record in sorted(walked(new).items())]


@pytest.mark.parametrize("start", [0, 7 * FILE_SIZE])
def test_headers_are_dropped(start: int, tmp_path: Path, new: Path) -> None:
    """All messages in order; the log begins where the entries began, and files have the time of their last message."""
    log = entry_log(60, start_offset=start)
    plan, found = converted(log.write(tmp_path / "store"), new)
    assert found == messages(log)
    offsets = walked(new)
    assert (plan.messages, plan.conversion.min_offset, min(offsets)) == (60, start, start)
    assert plan.end == max(offsets) + len(offsets[max(offsets)]) < log.end - 50 * ENTRY_HEADER_SIZE
    assert plan.files == len(os.listdir(new))
    assert not plan.is_lossy
    for path in new.iterdir():
        last = max(offset for offset in offsets if offset < int(path.name) + FILE_SIZE)
        assert path.stat().st_mtime_ns // 1_000_000 == int.from_bytes(offsets[last][56:64], "big")


@pytest.mark.parametrize("seed", range(20))
def test_files_of_any_fill(seed: int, tmp_path: Path, new: Path) -> None:
    """Messages of all sizes, up to those that fill a file but for the header and the room for a blank."""
    chance = random.Random(seed)
    log = EntryBuilder(file_size=FILE_SIZE)
    smallest = 88 + 1 + len("orders") + 2
    largest = FILE_SIZE - smallest - ENTRY_HEADER_SIZE - 8
    for number in range(chance.randrange(1, 40)):
        size = chance.choice((0, chance.randrange(200), chance.randrange(largest), largest))
        log.put("orders", 0, body=bytes(size), store_timestamp=START_TIME + number)
    assert converted(log.write(tmp_path / "store"), new)[1] == messages(log)


def test_uncommitted_entries_stay(tmp_path: Path, new: Path) -> None:
    """Those after the committed index are listed, and taken only when asked for."""
    log = entry_log(60)
    store = log.write(tmp_path / "store", committed=44)
    plan, found = converted(store, new)
    assert found == messages(log)[:45]
    assert plan.totals.keys() == {"uncommitted"}
    assert plan.totals["uncommitted"].records == sum(left.messages for left in plan.left) == 15
    assert plan.left[0].physical_offset == log.offsets[45]
    assert (plan.is_lossy, plan.missing) == (False, 0)
    assert converted(store, tmp_path / "all", uncommitted=True)[1] == messages(log)


def test_without_a_checkpoint(tmp_path: Path, new: Path) -> None:
    """Nothing shows what is committed: all is taken, as a group of one would commit it."""
    store = entry_log(60).write(tmp_path / "store", committed=44)
    (store / NODE / "checkpoint").unlink()
    plan, found = converted(store, new)
    assert (plan.conversion.committed, len(found)) == (None, 60)


@pytest.mark.parametrize("index", [30, 35, 59])
def test_stale_entries(index: int, tmp_path: Path, new: Path) -> None:
    """What an earlier leader has left past the end, where the log was cut, is of an older term."""
    old, log = entry_log(60), entry_log(30)
    log.index, log.term = 30, 2
    put_entries(log, 5, "new message")
    old.term = 1
    store = log.write(tmp_path / "store", committed=index)
    path = file_at(store, (len(log.files) - 1) * FILE_SIZE)
    end = len(log.files[-1])
    before = (old.files[len(log.files) - 1]).ljust(FILE_SIZE, b"\0")
    path.write_bytes(path.read_bytes()[:end] + before[end:])
    plan, found = converted(store, new)
    assert found == messages(log)[: index + 1]
    assert plan.totals["stale"].records > 0
    assert plan.missing == max(0, index - 34)


def test_entries_of_an_index_that_was_there(tmp_path: Path, new: Path) -> None:
    """Of two entries with one index, in one term, the first in the log counts."""
    log = entry_log(30)
    log.index = 20
    put_entries(log, 10, "again")
    plan, found = converted(log.write(tmp_path / "store", committed=29), new)
    assert found == messages(log)[:30]
    assert plan.totals["stale"].records == 10


@pytest.mark.parametrize("step_back", [0, 1])
@pytest.mark.parametrize(("row", "term"), [(0, 9), (30, 9), (30, 0), (58, 9), (59, 9)])
def test_a_damaged_term(row: int, term: int, step_back: int, tmp_path: Path, new: Path) -> None:
    """No other leader begins with one entry, with those of the leader before right after it: all is taken."""
    store = one_more_term(row, term, step_back).write(tmp_path / "store")
    plan, found = converted(store, new)
    assert (len(found), plan.missing, plan.totals) == (60, 0, {})


@pytest.mark.parametrize("row", [0, 1, 5])
def test_a_damaged_index(row: int, tmp_path: Path, new: Path) -> None:
    """The entries around it go on without it."""
    log = entry_log(60)
    store, position = log.write(tmp_path / "store"), log.offsets[row] - ENTRY_HEADER_SIZE + 8
    overwrite(file_at(store, 0), position + 2, position + 3)
    plan, found = converted(store, new)
    assert (found, plan.missing, plan.totals) == (messages(log), 0, {})


def test_a_damaged_term_before_a_damaged_entry(tmp_path: Path, new: Path) -> None:
    """As many entries are missing as have room: what is behind is taken."""
    log = one_more_term(30, 9, 1)
    store, offset = log.write(tmp_path / "store"), log.offsets[31]
    overwrite(file_at(store, offset // FILE_SIZE * FILE_SIZE), offset % FILE_SIZE, offset % FILE_SIZE + 9)
    plan, found = converted(store, new)
    assert (len(found), plan.missing) == (59, 1)


def test_one_entry_of_a_later_leader(tmp_path: Path, new: Path) -> None:
    """Entries after it that are older by more than clocks go back are stale, even where indices go on."""
    plan, found = converted(one_more_term(30, 9, 5000).write(tmp_path / "store", committed=30), new)
    assert (len(found), plan.totals["stale"].records) == (31, 29)


def one_more_term(row: int, term: int, step_back: int) -> EntryBuilder:
    """60 entries of which one has another term than all others; the next ones are stored so many ms before it."""
    log = EntryBuilder(file_size=FILE_SIZE)
    for number in range(60):
        log.term = term if number == row else 1
        log.put("orders", 0, body=f"{number}".encode(), store_timestamp=START_TIME - step_back * (number > row))
    return log


def test_inert_records_for_lost_entries(tmp_path: Path, new: Path) -> None:
    """Damage within a file: about as many bytes are taken by records of which no unit is derived."""
    log = entry_log(60)
    store = log.write(tmp_path / "store")
    overwrite(file_at(store, FILE_SIZE), 500, 1500)
    plan, found = converted(store, new)
    lost = set(messages(log)) - set(found)
    assert found == [record for record in messages(log) if record not in lost]
    assert plan.missing == len(lost) > 0
    assert plan.filled_bytes == plan.totals["damaged"].size == sum(size for _, size in plan.filled)
    offset, size = plan.filled[0]
    data = (new / f"{offset // FILE_SIZE * FILE_SIZE:020d}").read_bytes()[offset % FILE_SIZE :][:size]
    assert b"%RMQTOOL%LOST" in data


def test_a_lost_file(tmp_path: Path, new: Path) -> None:
    """A whole file of entries is gone: as much is filled, more than one file of the new log."""
    log = entry_log(60)
    store = log.write(tmp_path / "store")
    file_at(store, FILE_SIZE).unlink()
    plan, found = converted(store, new)
    assert found == [moved(record) for offset, record in records_of(log).items() if offset // FILE_SIZE != 1]
    assert plan.missing == sum(FILE_SIZE <= offset < 2 * FILE_SIZE for offset in log.offsets) > 0
    assert [left.reason for left in plan.left] == ["damaged"]
    assert FILE_SIZE <= plan.filled_bytes < FILE_SIZE + 200  # the smallest dummy record has more than a small rest


def test_committed_entries_that_are_gone(tmp_path: Path, new: Path) -> None:
    """The checkpoint knows of entries after the last one that is there."""
    log = entry_log(60)
    store = log.write(tmp_path / "store")
    file_at(store, (len(log.files) - 1) * FILE_SIZE).unlink()
    plan, found = converted(store, new)
    assert plan.missing == 60 - len(found) > 0
    assert plan.is_lossy


@pytest.mark.parametrize("is_ended", [True, False])
def test_plain_files_come_first(is_ended: bool, tmp_path: Path, new: Path) -> None:
    """A converted broker: its plain files as they are, the last one ended by a blank, and then the entries."""
    plain = put_entries(StoreBuilder(file_size=FILE_SIZE), 50)
    images = plain.images()
    log = entry_log(40, start_offset=FILE_SIZE * len(images))
    store = log.write(plain.write(tmp_path / "store"))
    last = store / LOG / f"{max(images):020d}"
    if is_ended:
        plain.roll()
        last.write_bytes(bytes(plain.files[-2]))
    plan, found = converted(store, new)
    assert found == messages(plain) + messages(log)
    assert (plan.conversion.min_offset, plan.conversion.start) == (0, FILE_SIZE * len(images))
    same = [
        name
        for name in sorted(os.listdir(store / LOG))
        if (new / name).read_bytes() == (store / LOG / name).read_bytes()
    ]
    assert len(same) == len(images) - (not is_ended)
    assert last.name not in same or is_ended
    stamp = int.from_bytes(records_of(plain)[plain.offsets[-1]][56:64], "big")
    assert (new / last.name).stat().st_mtime_ns // 1_000_000 == stamp


def test_damage_where_the_plain_log_ends(tmp_path: Path, new: Path) -> None:
    """A broker would stop at it, and never reach the entries: a dummy record and a blank take its place."""
    plain = put_entries(StoreBuilder(file_size=FILE_SIZE), 10)
    log = entry_log(5, start_offset=FILE_SIZE * len(plain.files))
    store = log.write(plain.write(tmp_path / "store"))
    last = store / LOG / f"{FILE_SIZE * (len(plain.files) - 1):020d}"
    overwrite(last, len(plain.files[-1]), FILE_SIZE)
    assert converted(store, new)[1] == messages(plain) + messages(log)


def test_several_paths(tmp_path: Path, new: Path) -> None:
    """The files of all commit log paths, in the order of their names."""
    log = put_entries(StoreBuilder(file_size=FILE_SIZE), 60)
    store = log.write(tmp_path / "store")
    (store / "second").mkdir()
    for path in sorted((store / LOG).iterdir())[1::2]:
        path.rename(store / "second" / path.name)
    conf = BrokerConf({"storePathCommitLog": f"{LOG},second"})
    plan, found = converted(store, new, conf)
    assert found == messages(log)
    assert sorted(os.listdir(new)) == [f"{start:020d}" for start in log.images()]
    assert plan.messages == 0
    for name in (LOG, "second"):
        for path in (store / name).iterdir():
            assert (new / path.name).read_bytes() == path.read_bytes()
    twice = store / "second" / f"{0:020d}"
    twice.write_bytes(bytes(FILE_SIZE))
    with pytest.raises(WrongKindError, match="the same log file"):
        converted(store, tmp_path / "other", conf)
    twice.unlink()
    (store / "second" / f"{FILE_SIZE:020d}").unlink()
    with pytest.raises(WrongKindError, match=f"the log file that begins at {FILE_SIZE} is missing"):
        converted(store, tmp_path / "other", conf)


def test_what_is_ordinary(tmp_path: Path, new: Path) -> None:
    """There is nothing to convert."""
    store = put_entries(StoreBuilder(file_size=FILE_SIZE), 5).write(tmp_path / "store")
    with pytest.raises(UnsupportedError, match="a plain store already"):
        converted(store, new)


def test_several_nodes(tmp_path: Path, new: Path) -> None:
    """Two nodes of a group in one directory: broker.conf names the broker's."""
    store = entry_log(5).write(tmp_path / "store")
    (store / NODE).rename(store / "dledger-n1")
    entry_log(9).write(store)
    with pytest.raises(UsageError, match="dledger-n0, dledger-n1"):
        converted(store, new)
    assert len(converted(store, new, BrokerConf({"dLegerSelfId": "n1"}))[1]) == 5


def test_entries_in_another_place(tmp_path: Path, new: Path) -> None:
    """`storePathDLedgerCommitLog` may have several paths; without its directories the copy beside it counts."""
    log = entry_log(60)
    store = log.write(tmp_path / "store", committed=49)
    conf = BrokerConf({"storePathDLedgerCommitLog": "a,b"})
    assert converted(store, new, conf)[1] == messages(log)[:50]
    for number, path in enumerate(sorted((store / NODE / "data").iterdir())):
        (store / "ab"[number % 2]).mkdir(exist_ok=True)
        path.rename(store / "ab"[number % 2] / path.name)
    (store / NODE / "data").rmdir()
    assert converted(store, tmp_path / "other", conf)[1] == messages(log)[:50]
