"""`rmqtool cut`: the log ends where it is asked to, all that leads past it goes, and undo brings it back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import rmqtool
from rmqtool.base.errors import Exit
from rmqtool.formats.rocksdb_rows import INDEXED_TIME, INDEXED_TO
from rmqtool.rules.system_topics import OP_TOPIC
from rmqtool.store.rocksdb import RocksDb
from tests.building import LOG
from tests.changed_rocksdb import changed
from tests.commands.running import rmqtool as run
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.sampling import one_in
from tests.unchanged import tree, unchanged
from tests.verify.small_store import FILE_SIZE, small_store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return small_store(tmp_path / "store")


def starts_of(store: Path) -> list[int]:
    return [each.physical_offset for each in rmqtool.open(store).messages()]


def files(store: Path) -> dict[str, bytes]:
    """The files of a store without those of the program's own directory, and the lock."""
    return {name: data for name, data in tree(store).items() if not name.startswith((".rmqtool/", "lock"))}


@pytest.mark.slow
def test_each_record_may_be_the_last(store: Path, tmp_path: Path) -> None:
    """What is left is clean, and is all that was before the cut; zeros follow it; undo brings each byte back."""
    before, starts = files(store), starts_of(store)
    for number, offset in one_in(9, list(enumerate(starts))[1:], "cut"):
        root = copied(store, tmp_path / "cut")
        done = run("cut", root, "--at", str(offset), "--yes", "--json")
        result = done.document["result"]
        assert (done.status, result["state"], result["proven"]) == (Exit.OK, "done", True)
        assert (result["messages"], result["last_record_offset"]) == (len(starts) - number, starts[number - 1])
        assert starts_of(root) == starts[:number]
        log = b"".join(file.read_bytes() for file in sorted((root / LOG).iterdir()))
        assert not log[offset:].strip(b"\0")
        checked = run("verify", root, "--json")
        assert (checked.status, checked.document["result"]["verdict"]) == (Exit.OK, "clean")
        assert run("undo", root, "--yes").status == Exit.OK
        assert files(root) == before
        shutil.rmtree(root)


def test_what_follows_the_end_goes_too(store: Path) -> None:
    """At the very end nothing is cut of the log, but what an earlier broker has left behind its end."""
    last = max((store / LOG).iterdir())
    end = run("cut", store, "--at", "last-1", "--dry-run", "--json").document["result"]["end_before"]
    assert run("cut", store, "--at", str(end), "--yes", "--json").document["result"]["state"] == "nothing"
    data = bytearray(last.read_bytes())
    position = end % FILE_SIZE + 500
    data[position : position + 100] = b"x" * 100
    last.write_bytes(data)
    done = run("cut", store, "--at", str(end), "--yes", "--json").document["result"]
    assert (done["state"], done["messages"]) == ("done", 0)
    assert not last.read_bytes()[end % FILE_SIZE :].strip(b"\0")


def test_a_dry_run_changes_nothing_and_names_the_command(store: Path) -> None:
    with unchanged(store):
        shown = run("cut", store, "--at", "last-7", "--dry-run")
    assert shown.status == Exit.OK
    assert "7 messages" in shown.out
    assert f"rmqtool cut {store} --at {starts_of(store)[-7]}" in shown.err


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ("100", "no record begins or ends at 100, but at 0 and at"),
        ("0", "nothing of the log would be left"),
        ("999999999", "the log ends at"),
        ("last-1000", "nothing of the log would be left"),
        ("2099-01-01T00:00:00Z", "no message was stored at"),
        ("last week", "--at"),
    ],
)
def test_places_that_are_none(store: Path, at: str, words: str) -> None:
    with unchanged(store):
        refused = run("cut", store, "--at", at, "--yes")
    assert refused.status == Exit.USAGE
    assert words in refused.err


def test_a_time(store: Path) -> None:
    """All that was stored at that time or later goes."""
    messages = [*rmqtool.open(store).messages()]
    chosen = messages[20]
    at = chosen.store_timestamp.isoformat()
    result = run("cut", store, "--at", at, "--dry-run", "--json").document["result"]
    assert (result["end_after"], result["messages"]) == (chosen.physical_offset, len(messages) - 20)


def test_groups(store: Path) -> None:
    """Offsets past the new ends are lowered in the file and its .bak; what was not read is said by group."""
    messages = [each for each in rmqtool.open(store).messages() if (each.topic, each.queue_id) == ("orders", 0)]
    end, cut = len(messages), messages[-4]
    offsets = {"offsetTable": {"orders@fast": {"0": end}, "orders@slow": {"0": 1}, "orders@far": {"0": end - 2}}}
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (store / "config" / name).write_text(json.dumps(offsets))
    result = run("cut", store, "--at", str(cut.physical_offset), "--yes", "--json").document["result"]
    groups = {each["group"]: each for each in result["groups"]}
    assert {name: (each["unread"], each["read"], each["lowered_to"]) for name, each in groups.items()} == {
        "fast": (0, 4, end - 4), "slow": (4, 0, None), "far": (2, 2, end - 4),
    }  # fmt: skip
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        table = json.loads((store / "config" / name).read_text())["offsetTable"]
        assert {key: value["0"] for key, value in table.items()} == {
            "orders@fast": end - 4, "orders@slow": 1, "orders@far": end - 4,
        }  # fmt: skip


def test_a_queue_would_begin_again(store: Path) -> None:
    """Where older files of a queue are gone and no message is left, its next one would get offset 0: asked for."""
    queue = store / "consumequeue" / "orders" / "0"
    first, second, *_ = sorted(queue.iterdir())
    first.unlink()
    offset = int.from_bytes(second.read_bytes()[:8], "big")
    refused = run("cut", store, "--at", str(offset), "--yes")
    assert (refused.status, "--renumber" in refused.err) == (Exit.USAGE, True)
    assert run("cut", store, "--at", str(offset), "--yes", "--renumber").status == Exit.OK
    assert not queue.exists()


def test_one_node_of_several(store: Path) -> None:
    """A replica would bring back what is cut; terms that begin after the cut go."""
    lines = "2\n1234\n1-0\n2-9000\n"
    (store / "epochFileCheckpoint").write_text(lines)
    refused = run("cut", store, "--at", "4096", "--yes")
    assert (refused.status, "--node-only" in refused.err) == (Exit.USAGE, True)
    assert run("cut", store, "--at", "4096", "--yes", "--node-only").status == Exit.OK
    assert (store / "epochFileCheckpoint").read_text().splitlines()[2:] == ["1-0"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["4.4.0-clean", "4.9.7-shop", "5.3.3-shop", "5.5.0-trimmed", "more/5.3.3-rocksdb", "more/5.3.3-rocksdb-twice",
     "more/5.5.0-rocksdb-single", "more/5.3.3-rocksdb-second-config", "more/5.5.1-rocksdb-selected"],
)  # fmt: skip
def test_stores_of_brokers(golden_store: GoldenStore, tmp_path: Path, name: str) -> None:
    """With delays, timers, transactions and queues in RocksDB: verify finds nothing wrong with what is left."""
    store = golden_store(name)
    starts = starts_of(store)
    for part in (3, 5, 6):
        root = copied(store, tmp_path / "cut")
        done = run("cut", root, "--at", str(starts[len(starts) * part // 7]), "--yes", "--json")
        assert (done.status, done.document["result"]["proven"]) == (Exit.OK, True)
        checked = run("verify", root, "--json")
        assert (checked.status, checked.document["result"]["verdict"]) == (Exit.OK, "clean")
        shutil.rmtree(root)


@pytest.mark.slow
def test_what_was_delivered_after_the_cut_is_delivered_again(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Levels go back to before what they have delivered there, half messages whose answer goes are asked for again."""
    root = copied(golden_store("5.3.3-shop"), tmp_path / "cut")
    starts = starts_of(root)
    result = run("cut", root, "--at", str(starts[-50]), "--yes", "--json").document["result"]
    assert (result["delivered_again"], result["halves_unanswered"]) == (4, 2)


SIDE = "more/5.5.0-rocksdb-side"


@pytest.mark.slow
def test_an_index_in_rocksdb_ends_with_the_log(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Rows of what goes go, all others stay; the database keeps its lock, and undo brings each byte back."""
    root = copied(golden_store(SIDE), tmp_path / "cut")
    before, offset, rows = files(root), starts_of(root)[-12], index_rows(root)
    assert any(at >= offset for at in rows.values())
    assert run("cut", root, "--at", str(offset), "--yes").status == Exit.OK
    last = max(at for at in starts_of(root))
    left = {key: at for key, at in rows.items() if at < offset and len(key) > len(INDEXED_TIME)}
    assert index_rows(root) == {**left, INDEXED_TO: last, INDEXED_TIME: index_rows(root)[INDEXED_TIME]}
    (conf := tmp_path / "broker.conf").write_text("indexRocksDBEnable=true\ntimerRocksDBEnable=true\n")
    checked = run("verify", root, "--broker-conf", conf, "--json").document
    assert [each for each in checked["findings"] if each["severity"] != "info"] == []
    assert run("undo", root, "--yes").status == Exit.OK
    assert files(root) == before


def index_rows(root: Path) -> dict[bytes, int]:
    """The physical offset that each row of an index in RocksDB leads to, or holds."""
    with RocksDb(root / "rocksdbstore") as database:
        return {
            key: int.from_bytes((value if key in (INDEXED_TO, INDEXED_TIME) else key)[-8:], "big")
            for key, value in database.rows("default")
        }


@pytest.mark.slow
@pytest.mark.parametrize("family", ["timer", "trans"])
def test_rows_of_timers_and_halves_that_would_go(golden_store: GoldenStore, tmp_path: Path, family: str) -> None:
    """Of them, and of half messages whose answers go, there is no cut."""
    root = copied(golden_store(SIDE), tmp_path / "cut")
    offset = starts_of(root)[-12]
    with changed(root / "rocksdbstore") as families:
        if family == "timer":
            timer = (1).to_bytes(4, "big") + offset.to_bytes(8, "big")
            families["timer"][(1 << 40).to_bytes(8, "big") + b"key"] = timer
        else:
            families["trans"][(100).to_bytes(8, "big") + b"@orders@id"] = bytes(8)
            offset = next(each.physical_offset for each in rmqtool.open(root).messages(topic=OP_TOPIC))
    with unchanged(root):
        refused = run("cut", root, "--at", str(offset), "--dry-run")
    assert refused.status == Exit.FAILED
    assert ("timer's rows" if family == "timer" else "half messages are in RocksDB") in refused.err


@pytest.mark.slow
@pytest.mark.parametrize("name", [SIDE, "more/5.3.3-compacted", "more/5.5.1-tiered"])
def test_what_cannot_follow_is_refused(golden_store: GoldenStore, tmp_path: Path, name: str) -> None:
    """Timers in RocksDB, compacted logs and tiers would still lead to what goes."""
    root = copied(golden_store(name), tmp_path / "cut")
    with unchanged(root):
        refused = run("cut", root, "--at", str(starts_of(root)[1]), "--dry-run")
    assert refused.status == Exit.FAILED
