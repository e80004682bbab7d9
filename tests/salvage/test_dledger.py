"""DLedger logs, of one node or of several: every whole message is in the new log, in order, and nothing else."""

from __future__ import annotations

import json
import random
from pathlib import Path
from struct import unpack_from

import pytest

from rmqtool.base.errors import Exit
from rmqtool.formats.dledger import ENTRY_HEADER_SIZE
from tests.building import START_TIME
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.dledger_building import NODE, EntryBuilder, entry_log, put_entries
from tests.salvage.damaged_logs import damage
from tests.salvage.entry_logs import file_at, messages, moved, overwrite, salvaged
from tests.sampling import one_in
from tests.unchanged import unchanged
from tests.verify.small_store import FILE_SIZE, finish

STORES = ["more/4.9.7-dledger", "more/5.3.3-dledger", "more/5.3.3-converted"]


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return tmp_path / "new"


def checked_entries(records: int, start_offset: int = 0) -> EntryBuilder:
    """Messages that hold their own CRC, which covers the physical offset: any byte that is changed shows."""
    log = EntryBuilder(file_size=FILE_SIZE, start_offset=start_offset)
    for number in range(records):
        log.put("orders", number % 2, body=f"message {number} ".encode() * (1 + number * 7 % 9),
                store_timestamp=START_TIME + 400 * number, queue_offset=number // 2,
                properties={"UNIQ_KEY": f"7F{number:030X}"})  # fmt: skip
    return log


def whole_in(log: EntryBuilder, sources: list[Path]) -> list[bytes]:
    """The messages of which all bytes are somewhere in one of the files."""
    data = [path.read_bytes() for path in sources]
    found = []
    for offset in log.offsets:
        image = log.files[(offset - log.start_offset) // log.file_size]
        at = offset % log.file_size
        record = bytes(image[at : at + unpack_from(">i", image, at)[0]])
        if any(record in each for each in data):
            found.append(moved(record))
    return found


def files_of(*stores: Path) -> list[Path]:
    return [path for store in stores for path in sorted((store / NODE / "data").iterdir())]


@pytest.mark.parametrize("seed", range(40))
def test_random_damage(seed: int, tmp_path: Path, new: Path) -> None:
    """One copy or two, files flipped, zeroed, cut, swapped, grown, shrunk or gone."""
    chance = random.Random(seed)
    log = checked_entries(chance.choice((5, 40, 80)), chance.choice((0, FILE_SIZE * 7)))
    stores = [log.write(tmp_path / "a")]
    if chance.random() < 0.5:
        stores.append(copied(stores[0], tmp_path / "b"))
    for store in stores:
        for path in chance.sample(files := files_of(store), min(len(files), chance.randint(0, 4))):
            for _ in range(chance.randint(1, 3)):
                if path.stat().st_size:
                    damage(path, chance)
            if chance.random() < 0.1:
                path.unlink()
    expected = whole_in(log, files_of(*stores))
    with unchanged(stores[0]), unchanged(stores[-1]):
        plan, found = salvaged(new, *stores)
    everything = messages(log)
    # No CRC covers topic and properties: a record that is damaged there is taken as it is.
    known = [record for record in found if record in set(everything)]
    assert known == [record for record in expected if record in set(known)]
    lost = [record for record in expected if record not in set(known)]
    odd = [record for record in found if record not in set(everything)]
    assert len(lost) <= 2 * len(odd) <= 12, seed
    assert plan.records == len(found)


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_golden(name: str, golden_store: GoldenStore, tmp_path: Path) -> None:
    """Of a sound store byte for byte what convert makes, and nothing is lost."""
    store = golden_store(name)
    with unchanged(store):
        done = rmqtool("salvage", store, "--output", tmp_path / "new", "--json")
    assert done.status == Exit.OK, done.err
    assert done.document["result"]["left_behind"] == []
    assert rmqtool("convert", store, "--output", tmp_path / "converted").status == Exit.OK
    first, second = (tree(tmp_path / each) for each in ("new", "converted"))
    if name != STORES[2]:  # of a plain file convert copies the filler of its blank, too
        assert first == second
    assert first.keys() == second.keys()
    assert rmqtool("diff", store, tmp_path / "new").status == Exit.OK
    assert rmqtool("diff", tmp_path / "converted", tmp_path / "new").status == Exit.OK
    assert rmqtool("verify", tmp_path / "new", "--json").document["result"]["verdict"] == "clean"


def tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_damaged_golden_nodes_fill_each_other(name: str, golden_store: GoldenStore, tmp_path: Path) -> None:
    """Each of two copies has lost what the other has, and a header is damaged in both."""
    store = golden_store(name)
    copies = [copied(store, tmp_path / each) for each in "ab"]
    for number, copy in enumerate(copies):
        files = sorted((copy / NODE / "data").iterdir())
        overwrite(files[number], 20_000, 40_000)
        overwrite(files[0], 0, 40)
        overwrite(files[1], 9_800, 12_000)
        files[1 - number].write_bytes(files[1 - number].read_bytes()[:50_000])
        files[2].unlink() if number else None
    done = rmqtool("salvage", *copies, "--output", tmp_path / "new", "--json")
    result = done.document["result"]
    lost = result["dledger"]["missing_messages"]
    assert [each["messages"] > 50 for each in result["sources"]] == [True, True]
    assert result["commit_log"]["messages"] + lost == 400 + (name == STORES[2])
    found = rmqtool("diff", store, tmp_path / "new", "--json").document["result"]
    assert found["in_order"]["messages"] == result["commit_log"]["messages"]
    assert lost > 0
    assert done.status == Exit.FINDINGS
    verified = rmqtool("verify", tmp_path / "new", "--json").document
    expected = {"store.recorded-loss", "config.missing", "commitlog.neutralised", "consumequeue.neutral-unit"}
    assert {each["code"] for each in verified["findings"]} == expected


def test_later_leaders_come_first(tmp_path: Path, new: Path) -> None:
    """Where nodes have different entries at a place, those of the later leader are saved, whichever comes first."""
    a, b = entry_log(40), entry_log(40)
    a.term, b.term = 2, 3
    put_entries(a, 12, "never committed")
    put_entries(b, 5, "committed")
    stores = a.write(tmp_path / "a", committed=39), b.write(tmp_path / "b")
    for number, order in enumerate((stores, stores[::-1])):
        plan, found = salvaged(tmp_path / str(number), *order)
        assert found[: len(b.offsets)] == messages(b)
        assert plan.left.totals["stale"].records >= 5
        assert len(found) + plan.left.totals["stale"].records == 45 + 12


def test_a_later_leader_with_a_slow_clock(tmp_path: Path, new: Path) -> None:
    """Its messages have store times before those of the leader before it; after damage they are still its own."""
    log = entry_log(40)
    log.term = 2
    for number in range(40, 60):
        log.put("orders", number % 2, body=b"later", store_timestamp=START_TIME + number)
    store = log.write(tmp_path / "a")
    offset = log.offsets[40]
    overwrite(file_at(store, offset // FILE_SIZE * FILE_SIZE), offset % FILE_SIZE + 90, offset % FILE_SIZE + 94)
    _, found = salvaged(new, store)
    assert found == [each for number, each in enumerate(messages(log)) if number != 40]


@pytest.mark.slow
@pytest.mark.parametrize("row", [0, 1, 20, 38, 39])
def test_every_byte_of_a_header(row: int, tmp_path: Path) -> None:
    """No CRC covers it: whatever it says then, no message is lost, nor one of another entry."""
    log = entry_log(39)
    log.term = 2
    put_entries(log, 1)
    wanted = messages(log)
    for at in one_in(3, range(ENTRY_HEADER_SIZE), f"entry {row}"):
        store = log.write(tmp_path / str(at))
        path = file_at(store, log.offsets[row] // FILE_SIZE * FILE_SIZE)
        data = bytearray(path.read_bytes())
        data[log.offsets[row] % FILE_SIZE - ENTRY_HEADER_SIZE + at] ^= 0x44
        path.write_bytes(data)
        plan, found = salvaged(tmp_path / f"new-{at}", store)
        assert found == wanted, at
        assert plan.committed_missing == 0, at


def test_stale_entries(tmp_path: Path, new: Path) -> None:
    """What an earlier leader has left past the end is listed, and not part of the log."""
    old, log = entry_log(60), entry_log(30)
    log.term = 2
    for number in range(5):
        log.put("orders", 0, body=b"new message", store_timestamp=START_TIME + 400 * 60 + number)
    store = log.write(tmp_path / "a")
    path = file_at(store, (len(log.files) - 1) * FILE_SIZE)
    end, before = len(log.files[-1]), bytes(old.files[len(log.files) - 1])
    path.write_bytes((bytes(log.files[-1]) + before[end:]).ljust(FILE_SIZE, b"\0"))
    plan, found = salvaged(new, store)
    assert found == messages(log)
    assert plan.left.totals["stale"].records > 0


def test_uncommitted_and_missing(tmp_path: Path, new: Path) -> None:
    """Entries after the committed index are saved and counted; committed ones that are nowhere are counted."""
    log = entry_log(60)
    store = log.write(tmp_path / "a", committed=44)
    plan, found = salvaged(new, store)
    assert (plan.uncommitted, plan.committed_missing, found) == (15, 0, messages(log))
    log.write(store)
    at = log.offsets[20]
    overwrite(file_at(store, at // FILE_SIZE * FILE_SIZE), at % FILE_SIZE, at % FILE_SIZE + 8)
    overwrite(file_at(store, at // FILE_SIZE * FILE_SIZE), at % FILE_SIZE - ENTRY_HEADER_SIZE, at % FILE_SIZE)
    file_at(store, (len(log.files) - 1) * FILE_SIZE).unlink()
    gone = sum(offset >= (len(log.files) - 1) * FILE_SIZE for offset in log.offsets)
    plan, found = salvaged(tmp_path / "again", store)
    assert plan.committed_missing == 1 + gone == 60 - len(found)


@pytest.mark.parametrize("with_store", [False, True])
def test_raw(with_store: bool, tmp_path: Path, new: Path) -> None:
    """Files of entries cut, in the wrong order and between garbage, alone or beside the store that lost them."""
    log, chance = checked_entries(60), random.Random(3)
    store = log.write(tmp_path / "a")
    pieces = [path.read_bytes() for path in files_of(store)]
    image = tmp_path / "disk.img"
    image.write_bytes(chance.randbytes(777).join([b"", pieces[2][:3000], pieces[0], bytes(5000), pieces[1][500:], b""]))
    expected = whole_in(log, [image])
    if with_store:
        for path in files_of(store)[:3]:
            path.unlink()
        expected = whole_in(log, [image, *files_of(store)])
        plan, found = salvaged(new, store, raw=(image,))
    else:
        plan, found = salvaged(new, raw=(image,))
    assert found == expected
    assert plan.left.totals["not-a-record"].size > 777


@pytest.mark.slow
def test_filters(tmp_path: Path) -> None:
    """A small store of a large one."""
    store = finish(entry_log(60).write(tmp_path / "a"))
    new = tmp_path / "new"
    options = ("--topic", "orders", "--queue", "1", "--from", str(START_TIME + 4000))
    done = rmqtool("salvage", store, "--output", new, *options, "--json")
    assert done.document["result"]["commit_log"]["messages"] == 25
    listed = [rmqtool("inspect", each / part, *options, "--json").lines for each, part in
              ((store, NODE), (new, "commitlog"))]  # fmt: skip
    keys = [[row["unique_key"] for row in rows if row["kind"] == "message"] for rows in listed]
    assert keys[0] == keys[1] != []
    assert rmqtool("verify", new, "--json").document["result"]["verdict"] == "clean"


def test_stores_of_both_kinds(tmp_path: Path) -> None:
    """Offsets of one are not those of the other: nothing is mixed."""
    store = finish(entry_log(60).write(tmp_path / "a"))
    assert rmqtool("convert", store, "--output", tmp_path / "b").status == Exit.OK
    done = rmqtool("salvage", store, tmp_path / "b", "--output", tmp_path / "new")
    assert (done.status, (tmp_path / "new").exists()) == (Exit.USAGE, False)
    assert "some of the stores are of DLedger, others are not" in done.err


@pytest.mark.slow
def test_offsets_of_groups_stay(tmp_path: Path) -> None:
    """The first files are gone: queues begin where the log does, and committed offsets mean the same messages."""
    log = entry_log(120)
    store = finish(log.write(tmp_path / "a"))
    offsets = {"offsetTable": {"orders@readers": {"0": 55, "1": 50}}}
    (store / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    for path in files_of(store)[:2]:
        path.unlink()
    at = next(offset for offset in log.offsets[80:] if offset % FILE_SIZE > 500)
    overwrite(file_at(store, at // FILE_SIZE * FILE_SIZE), at % FILE_SIZE + 90, at % FILE_SIZE + 92)
    new = tmp_path / "new"
    done = rmqtool("salvage", store, "--output", new, "--json")
    assert done.status == Exit.FINDINGS
    assert json.loads((new / "config" / "consumerOffset.json").read_text()) == offsets
    key = f"7F{110:030X}"
    rows = [rmqtool("query", each, "--unique-key", key, "--json").lines[0] for each in (store, new)]
    assert rows[0]["queue_offset"] == rows[1]["queue_offset"] == 55
    findings = rmqtool("verify", new, "--json").document["findings"]
    assert {each["code"] for each in findings if each["severity"] == "error"} <= {"store.recorded-loss"}


def test_an_empty_node_comes_first(tmp_path: Path) -> None:
    """Queues are made as those of the node that shows their sizes."""
    store = finish(entry_log(60).write(tmp_path / "b"))
    (tmp_path / "a" / NODE / "data").mkdir(parents=True)
    done = rmqtool("salvage", tmp_path / "a", store, "--output", tmp_path / "new", "--json")
    assert (done.status, done.document["findings"]) == (Exit.OK, [])
    first, second = (sorted((root / "consumequeue").rglob("0*")) for root in (store, tmp_path / "new"))
    assert [path.stat().st_size for path in first] == [path.stat().st_size for path in second] != []


def test_without_names_nothing_is_lost_before_the_first(tmp_path: Path, new: Path) -> None:
    """Where the log of a raw file began is not known."""
    log = entry_log(60)
    (image := tmp_path / "image").write_bytes(log.images()[FILE_SIZE])
    plan, found = salvaged(new, raw=(image,))
    assert found == [
        each for each, at in zip(messages(log), log.offsets, strict=True) if FILE_SIZE <= at < 2 * FILE_SIZE
    ]
    assert (plan.layout.gaps, plan.is_lossy) == ([], False)


def test_a_log_that_is_elsewhere(tmp_path: Path) -> None:
    """Without its broker.conf a node has no log here, which is said."""
    store = finish(entry_log(60).write(tmp_path / "a"))
    (store / NODE / "data").rename(tmp_path / "data")
    done = rmqtool("salvage", store, "--output", tmp_path / "new")
    assert done.status == Exit.FINDINGS
    assert "the sources have no log file (if broker.conf says that it is elsewhere, give it" in done.err
    (conf := tmp_path / "broker.conf").write_text(f"storePathDLedgerCommitLog={tmp_path / 'data'}\n")
    done = rmqtool("salvage", store, "--output", tmp_path / "new", "--broker-conf", conf, "--json")
    assert done.document["result"]["commit_log"]["messages"] == 60


def test_queues_in_rocksdb(tmp_path: Path) -> None:
    """Refused before anything is read, also by a dry run: no queues can be made of them for a log that moves."""
    store = finish(entry_log(60).write(tmp_path / "a"))
    (store / "consumequeue" / "CURRENT").write_text("MANIFEST-000001\n")
    for options in (("--dry-run",), ()):
        done = rmqtool("salvage", store, "--output", tmp_path / "new", *options)
        assert (done.status, (tmp_path / "new").exists()) == (Exit.FAILED, False)
        assert "queues in RocksDB, which cannot be written for a log whose offsets change" in done.err
