"""`rmqtool cut`: the log ends where it is asked to, all that leads past it goes, and undo brings it back."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import rmqtool
from rmqtool.base.errors import Exit
from rmqtool.base.files import no_progress
from rmqtool.broker.timer_start import timer_state_of
from rmqtool.cut.place import At, place_of
from rmqtool.cut.side import side_changes
from rmqtool.cut.tail import read_tail
from rmqtool.formats.rocksdb_rows import INDEXED_TIME, INDEXED_TO
from rmqtool.rules.system_topics import HALF_TOPIC, TIMER_TOPIC
from rmqtool.store.rocksdb import RocksDb
from rmqtool.store.side_rows import half_rows, held_messages, timer_rows
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from rmqtool.transaction.transaction import Transaction
from tests.building import LOG, START_TIME
from tests.changed_rocksdb import changed, pop_row, write_rows
from tests.commands.running import rmqtool as run
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.pending.waiting_store import REVIVE, REVIVING, WaitingStore
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
def test_timers_in_rocksdb_end_with_the_log(golden_store: GoldenStore, tmp_path: Path) -> None:
    """What was delivered after the cut is read again from the timer's queue; undo brings each byte back."""
    root = copied(golden_store(SIDE), tmp_path / "cut")
    before, timers = files(root), [each.physical_offset for each in rmqtool.open(root).messages(topic=TIMER_TOPIC)]
    rows = timer_rows(open_store(root))
    assert rows is not None
    assert (rows.physical_offsets.tolist(), rows.indexed_to) == (timers, 3)
    assert run("cut", root, "--at", str(timers[2]), "--yes").status == Exit.OK
    rows = timer_rows(open_store(root))
    assert rows is not None
    assert (rows.physical_offsets.tolist(), rows.indexed_to) == (timers[:2], 0)
    assert timer_state_of(Snapshot(open_store(root))).check.last_timer_queue_offset == 0
    assert run("undo", root, "--yes").status == Exit.OK
    assert files(root) == before


@pytest.mark.slow
def test_half_messages_in_rocksdb(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Rows of half messages that go; one whose answer goes gets its row back."""
    root = copied(golden_store(SIDE), tmp_path / "cut")
    halves = [*rmqtool.open(root).messages(topic=HALF_TOPIC)]
    answered, waiting, cut = halves[0], halves[2], halves[5].physical_offset
    with changed(root / "rocksdbstore") as families:
        for each in halves[2:7]:
            families["trans"][each.physical_offset.to_bytes(8, "big") + b"@orders@id"] = bytes(8)
        families["trans"][INDEXED_TO] = halves[6].physical_offset.to_bytes(8, "big")
    tail = replace(read_tail(Snapshot(open_store(root)), cut, no_progress),
                   ended_halves=frozenset({answered.physical_offset}))  # fmt: skip
    snapshot = Snapshot(open_store(root))
    [change] = side_changes(snapshot, place_of(snapshot, At("offset", cut)), tail, None)
    with Transaction(snapshot.store, "test") as transaction:
        snapshot.databases.close()
        change.stage(transaction)
        transaction.commit()
    rows = half_rows(open_store(root))
    assert rows is not None
    kept = [each.physical_offset for each in halves[2:5]]
    assert rows.physical_offsets.tolist() == [answered.physical_offset, *kept]
    assert rows.indexed_to < cut
    assert waiting.physical_offset in kept


@pytest.mark.slow
@pytest.mark.parametrize("name", ["more/5.3.3-compacted", "more/5.5.1-tiered"])
def test_what_cannot_follow_is_refused(golden_store: GoldenStore, tmp_path: Path, name: str) -> None:
    """Compacted logs and tiers would still lead to what goes."""
    root = copied(golden_store(name), tmp_path / "cut")
    with unchanged(root):
        refused = run("cut", root, "--at", str(starts_of(root)[1]), "--dry-run")
    assert refused.status == Exit.FAILED


def test_what_pop_consumers_hold(tmp_path: Path) -> None:
    """A group goes on before what it holds by a check point that goes; offsets of pulls end with their queue."""
    builder = WaitingStore()
    for _ in range(10):
        builder.message("tasks")
    begin = builder.message("orders")
    fields = {"t": "tasks", "q": 0, "c": "workers", "so": 2, "pt": START_TIME}
    check_point = json.dumps({**fields, "n": 3, "bm": 0, "d": [0, 1, 2], "it": 60_000}).encode()
    builder.timer(START_TIME + 60_000, REVIVE, check_point, TAGS="ck")
    builder.timer(START_TIME + 60_000, REVIVE, json.dumps({**fields, "ao": 2}).encode(), TAGS="ack")
    builder.committed = {("workers", "tasks"): 8, ("others", "tasks"): 8}
    store = builder.build(tmp_path / "store")
    offsets = store / "config" / "consumerOffset.json"
    table = {**json.loads(offsets.read_text()), "pullOffsetTable": {"tasks@workers": {"0": 10}}}
    offsets.write_text(json.dumps(table))
    cut = copied(store, tmp_path / "cut")
    result = run("cut", cut, "--at", str(begin), "--yes", "--json").document["result"]
    assert result["taken_again"] == 2
    assert tables_of(cut) == ({"tasks@workers": {"0": 3}, "tasks@others": {"0": 8}}, {"tasks@workers": {"0": 10}})
    tasks = [each.physical_offset for each in rmqtool.open(store).messages(topic="tasks")]
    assert run("cut", store, "--at", str(tasks[6]), "--yes").status == Exit.OK
    assert tables_of(store) == ({"tasks@workers": {"0": 3}, "tasks@others": {"0": 6}}, {"tasks@workers": {"0": 6}})


def tables_of(store: Path) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, int]]]:
    """Committed offsets, and those of pulls."""
    table = json.loads((store / "config" / "consumerOffset.json").read_text())
    return table["offsetTable"], table["pullOffsetTable"]


@pytest.mark.parametrize(("revived", "left"), [(1, {"0": 0}), (0, {})])
def test_what_came_back_after_the_cut(tmp_path: Path, revived: int, left: dict[str, int]) -> None:
    """The broker looks again at the check points of which a retry goes: its group commits the last one that is done."""
    builder = WaitingStore()
    keys = [f"7F000001000018B4AAC3{number:012X}" for number in range(2)]
    for key in keys:
        builder.message("tasks", UNIQ_KEY=key)
    for number in range(2):
        builder.check_point(so=number, n=1, bm=0, it=60_000)
    retry = builder.put("%RETRY%workers_tasks", reconsume_times=1, properties={"UNIQ_KEY": keys[revived]})
    builder.committed = {(REVIVING, REVIVE): 1, ("workers", "tasks"): 2}
    store = builder.build(tmp_path)
    assert run("cut", store, "--at", str(retry), "--yes").status == Exit.OK
    table = json.loads((store / "config" / "consumerOffset.json").read_text())["offsetTable"]
    assert table == {f"{REVIVE}@{REVIVING}": left, "tasks@workers": {"0": 2}}


def test_what_pop_consumers_hold_in_rocksdb(tmp_path: Path) -> None:
    """Rows of messages that go would bring other ones later."""
    pytest.importorskip("rocksdict")
    builder = WaitingStore()
    starts = [builder.message("tasks") for _ in range(6)]
    store = builder.build(tmp_path)
    write_rows(store / "kvStore", {"popState": dict(pop_row(offset) for offset in (0, 3, 4, 5))})
    assert run("cut", store, "--at", str(starts[4]), "--yes").status == Exit.OK
    assert [each.queue_offset for each in held_messages(open_store(store))] == [0, 3]
    assert run("undo", store, "--yes").status == Exit.OK
    assert len([*held_messages(open_store(store))]) == 4
