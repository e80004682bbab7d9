"""`rmqtool query` on damaged and incomplete stores: an answer or a sentence, in bounded time, nothing changed."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from tests.building import write_sparse
from tests.commands.running import query
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.golden import stores

STORE = "5.3.3-clean"
ORDERS = ("--topic", "orders", "--queue", "0")


@pytest.fixture
def store(tmp_path: Path, unpacked: GoldenStore) -> Path:
    """A copy to damage."""
    return copied(unpacked(STORE), tmp_path / "store")


def first_index(store: Path) -> Path:
    return min((store / "index").iterdir())


def keyed(topic: str = "orders") -> str:
    """A key of the first index file."""
    return next(
        str(record["keys"].split()[0])
        for record in stores.oracle(STORE)["records"]
        if record["keys"] and record["topic"] == topic
    )


def overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def cut_index(store: Path) -> None:
    path = first_index(store)
    path.write_bytes(path.read_bytes()[:1000])


def cycle(store: Path) -> None:
    """Every link of the first file points to the newest unit."""
    path = first_index(store)
    for number in range(1, 900):
        overwrite(path, 40 + 4 * 50 + 20 * number + 16, struct.pack(">i", 999))


INDEX_DAMAGE: dict[str, Callable[[Path], object]] = {
    "no index": lambda store: shutil.rmtree(store / "index"),
    "an index file that was cut": cut_index,
    "chains without end": cycle,
    "zeroed slots": lambda store: overwrite(first_index(store), 40, bytes(200)),
    "random slots": lambda store: overwrite(first_index(store), 40, b"\x7f" * 200),
    "a zeroed header": lambda store: overwrite(first_index(store), 0, bytes(40)),
}


@pytest.mark.parametrize("case", INDEX_DAMAGE)
def test_keys_with_a_damaged_index(store: Path, case: str) -> None:
    """Not found, or not all: the scan is named as the way out, and finds the message."""
    INDEX_DAMAGE[case](store)
    key = ("--key", keyed(), "--topic", "orders")
    result = query(store, "--json", *key)
    assert result.status in (1, 3)
    assert "--scan" in result.err
    scanned = query(store, "--json", *key, "--scan")
    assert scanned.status == 0
    assert keyed() in scanned.lines[0]["keys"]


def test_queues_without_a_log(store: Path) -> None:
    """Units are there, records are not: where they lead is said, a pull answers as the broker, groups are shown."""
    shutil.rmtree(store / "commitlog")
    found = query(store, "--json", *ORDERS, "--queue-offset", "3")
    assert (found.status, found.out) == (1, "")
    assert "the store has no commit log" in found.err
    pulled = query(store, "--json", "--pull", *ORDERS, "--queue-offset", "3")
    (answer,) = pulled.lines
    assert (answer["status"], answer["messages"]) == ("MESSAGE_WAS_REMOVING", [])
    assert pulled.status == Exit.LOSSY
    passed_over = answer["next_begin_offset"] - 3
    assert f"{passed_over} messages skipped: no log file has the messages that they point to" in pulled.err
    assert query(store, "--json", "--group", "middle").lines[0]["committed_offset"] == 18
    assert query(store, "--scan").status == 1
    assert query(store, "--json", "--at", "0", "--topic", "orders").status == 0


@pytest.mark.slow
def test_a_log_without_queues(store: Path) -> None:
    """The log still has the messages, by key too; queues and pulls have nothing."""
    shutil.rmtree(store / "consumequeue")
    shutil.rmtree(store / "batchconsumequeue")
    assert query(store, *ORDERS, "--queue-offset", "3").status == 1
    (answer,) = query(store, "--json", "--pull", *ORDERS, "--queue-offset", "3").lines
    assert (answer["status"], answer["next_begin_offset"]) == ("NO_MESSAGE_IN_QUEUE", 0)
    (traced,) = query(store, "--json", "--key", keyed(), "--topic", "orders", "--limit", "1", "--trace").lines
    assert traced["places"]["consume_queue"]["state"] == "no-queue"
    assert query(store, "--json", "--key", keyed()).status == 0, "config/topics.json names the topics"


def test_a_deleted_topic(store: Path) -> None:
    shutil.rmtree(store / "consumequeue" / "orders")
    found = query(store, *ORDERS, "--queue-offset", "3")
    assert found.status == 3  # the newest part of the log has it
    assert "orders queue 0 offset 3" in found.out
    assert "rmqtool rebuild-cq" in " ".join((found.out + found.err).split())
    assert query(store, "--json", "--scan", "--topic", "orders", "--limit", "1").status == 0


def test_a_unit_that_leads_astray(store: Path) -> None:
    """A unit of another message, of no message, of the wrong size: each is said, with status 3 when one is shown."""
    path = min((store / "consumequeue" / "orders" / "0").iterdir())
    units = path.read_bytes()
    overwrite(path, 0, units[20:40])
    overwrite(path, 40, struct.pack(">q", 5))
    overwrite(path, 60 + 8, struct.pack(">i", 7))
    other = query(store, "--json", *ORDERS, "--queue-offset", "0")
    assert (other.status, len(other.lines)) == (3, 1)
    assert "a message with queue offset 1" in other.err
    astray = query(store, "--json", *ORDERS, "--queue-offset", "2")
    assert (astray.status, astray.out) == (1, "")
    assert "the entry of queue offset 2 points to 5: no record begins at offset 5; one begins at 0" in astray.err
    assert query(store, *ORDERS, "--queue-offset", "3").status == 3
    (pulled,) = query(store, "--json", "--pull", *ORDERS, "--queue-offset", "2", "--max", "2").lines
    assert [message["kind"] for message in pulled["messages"]] == ["damage", "damage"]


@pytest.mark.slow
def test_damage_in_the_log(store: Path) -> None:
    """In the damage nothing is found, and after it everything is; a scan says that it is not all."""
    record = stores.oracle(STORE)["records"][10]
    overwrite(min((store / "commitlog").iterdir()), record["physical_offset"] + 4, b"\0\0\0\0")
    found = query(store, "--offset", str(record["physical_offset"]))
    assert found.status == 1
    assert "neither a message nor a blank begins here" in found.err
    inside = query(store, "--offset", str(record["physical_offset"] + 20))
    assert f"in damage that begins at {record['physical_offset']}" in inside.err
    scanned = query(store, "--json", "--scan", "--body", "none")
    assert scanned.status == 3
    assert len(scanned.lines) == len(stores.oracle(STORE)["records"]) - 1
    assert "the log has damage" in scanned.err


def test_a_wrong_body(store: Path) -> None:
    record = next(r for r in stores.oracle(STORE)["records"] if r["sys_flag"] & 1 and r["physical_offset"] < 60_000)
    path = min((store / "commitlog").iterdir())
    overwrite(path, record["physical_offset"] + 100, b"\xff\xff\xff\xff")
    result = query(store, "--json", "--offset", str(record["physical_offset"]), "--trace")
    assert result.status == 3
    assert result.lines[0]["places"]["contradictions"] == ["body CRC mismatch"]


def test_a_huge_sparse_store(tmp_path: Path) -> None:
    """Index and queue files that are all hole: an answer at once."""
    write_sparse(tmp_path / "store" / "commitlog" / "00000000000000000000", {}, 1 << 40)
    write_sparse(tmp_path / "store" / "consumequeue" / "orders" / "0" / "00000000000000000000", {}, 20 << 36)
    write_sparse(tmp_path / "store" / "index" / "20261121113608128", {0: b"\x7f" * 40}, 420_000_040)
    store = tmp_path / "store"
    for question in (
        ("--key", "a", "--topic", "orders"),
        ("--offset", "123456789"),
        (*ORDERS, "--queue-offset", "77777777"),
        ("--at", "1700000000000", "--topic", "orders"),
        ("--time", "1700000000000"),
        ("--scan",),
        ("--pull", *ORDERS, "--queue-offset", "5"),
    ):
        assert query_large(store, *question) in (0, 1)


def query_large(store: Path, *question: str) -> int:
    """Without a digest of what is there: it would be of a terabyte."""
    from tests.commands.running import rmqtool

    return rmqtool("query", store, *question).status


def test_not_a_store(tmp_path: Path) -> None:
    assert query(tmp_path, "--key", "a").status == 6
    assert query(tmp_path, "--json", "--offset", "1").document["error"]["kind"] == "not-a-store"


def test_consumer_offsets_that_cannot_be_read(store: Path) -> None:
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (store / "config" / name).write_text("{", encoding="utf-8")
    result = query(store, "--group", "middle")
    assert result.status == 1
    assert "consumer offsets:" in result.err


@pytest.mark.parametrize("kind", ["unsupported", "unreadable"])
def test_queues_in_rocksdb(kind: str, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its library, or damaged, nothing is said of a database that may be wrong; the log is read."""
    if kind == "unsupported":
        monkeypatch.setattr("rmqtool.store.rocksdb.find_spec", lambda name: None)
    shutil.rmtree(store / "consumequeue")
    (store / "consumequeue").mkdir()
    (store / "consumequeue" / "CURRENT").touch()
    for question in (("--queue-offset", "3"), ("--pull", "--queue-offset", "3"), ("--at", "0")):
        result = query(store, "--json", *ORDERS, *question)
        assert result.status == 4
        assert result.document["error"]["kind"] == kind
    (traced,) = query(store, "--json", "--offset", "0", "--trace").lines
    assert traced["places"]["consume_queue"]["state"] == "unread"
    assert traced["places"]["contradictions"] == []


@pytest.mark.slow
def test_a_compacted_topic(store: Path) -> None:
    path = store / "config" / "topics.json"
    text = path.read_text(encoding="utf-8")
    topics = json.loads(text)
    topics["topicConfigTable"]["orders"]["attributes"] = {"cleanup.policy": "COMPACTION"}
    path.write_text(json.dumps(topics), encoding="utf-8")
    result = query(store, "--json", "--pull", *ORDERS, "--queue-offset", "3")
    assert "orders queue 0 is compacted" in result.err


def test_consumer_offsets_in_rocksdb(store: Path) -> None:
    (store / "config" / "consumerOffsets").mkdir()
    (store / "config" / "consumerOffsets" / "CURRENT").touch()
    result = query(store, "--json", "--group", "nobody")
    assert result.status == 1
    assert "consumer offsets: RocksDB cannot read it" in result.err
    assert "whether group nobody has committed an offset is not known" in result.err
    (store / "config" / "consumerOffsets" / "CURRENT").rename(store / "config" / "consumerOffsets" / "IDENTITY")
    assert "consumer offsets: RocksDB cannot read it" in query(store, "--group", "nobody").err
