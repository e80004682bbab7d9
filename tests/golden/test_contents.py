"""The golden stores hold what they are there for; a test that relies on one of them relies on this."""

import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.golden import stores
from tests.golden.stores import oracle
from tests.real_broker.golden import HOW, NAMES
from tests.real_broker.harness import GEOMETRY
from tests.real_broker.versions import VERSIONS, features
from tests.unchanged import snapshot

LOG_FILE = int(GEOMETRY["mappedFileSizeCommitLog"])
COMPRESSED, TYPE_MASK, PREPARED, COMMIT, ROLLBACK = 0x1, 0x700, 0x4, 0x8, 0xC
SCHEDULE = "SCHEDULE_TOPIC_XXXX"

Record = dict[str, Any]
Queue = dict[str, Any]


def clean(version: str) -> list[Record]:
    records: list[Record] = oracle(f"{version}-clean")["records"]
    return records


def queue(name: str, topic: str, queue_id: int = 0) -> Queue:
    found = [q for q in oracle(name)["queues"] if (q["topic"], q["queue_id"]) == (topic, queue_id)]
    assert len(found) == 1
    return dict(found[0])


def with_feature(feature: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("version", [version for version in VERSIONS if feature in features(version)])


every_version = pytest.mark.parametrize("version", VERSIONS)


@pytest.mark.slow
def test_every_store_is_there_and_listed() -> None:
    """Each golden store has an oracle, and a line in the list that says how it was made."""
    lines = (stores.HERE / "README.md").read_text(encoding="utf-8").splitlines()
    assert stores.names() == sorted(NAMES)
    for name in NAMES:
        how = oracle(name)["how"]
        assert how == HOW[name.partition("-")[2]]
        assert f"| `{name}` | {how} |" in lines


def test_the_tests_that_the_page_names_are_there() -> None:
    page = (stores.HERE / "README.md").read_text(encoding="utf-8")
    for name in re.findall(r"`(tests/[\w./]+)`", page):
        assert (stores.HERE.parents[1] / name).exists(), name


@pytest.mark.parametrize("name", ["4.4.0-killed", "5.5.0-shop"])
def test_a_store_is_unpacked_as_tar_does(name: str, tmp_path: Path) -> None:
    """Bytes, sizes, modes and times of all entries, again and again; a timer wheel has holes."""
    with tarfile.open(stores.HERE / f"{name}.tar.xz") as archive:
        if hasattr(tarfile, "fully_trusted_filter"):
            archive.extraction_filter = tarfile.fully_trusted_filter
        archive.extractall(tmp_path / "tar")
    expected = {entry: value for entry, value in snapshot(tmp_path / "tar").items() if entry != "."}
    for number in range(2):
        root = stores.unpack(name, tmp_path / str(number))
        found = {entry: value for entry, value in snapshot(root).items() if entry != "."}
        assert {entry: value._replace(ctime_ns=0, owner=(0, 0)) for entry, value in found.items()} == {
            entry: value._replace(ctime_ns=0, owner=(0, 0)) for entry, value in expected.items()
        }
    assert sum(path.stat().st_blocks for path in root.rglob("*")) * 512 < 2 << 20


@every_version
def test_clean_has_many_files(version: str, tmp_path: Path) -> None:
    root = stores.unpack(f"{version}-clean", tmp_path)
    assert len(list((root / "commitlog").iterdir())) >= 6
    assert len(list((root / "index").iterdir())) >= 2
    for queue_id in range(4):
        assert len(list((root / "consumequeue" / "orders" / str(queue_id)).iterdir())) >= 3
    assert {path.name for path in (root / "config").iterdir()} == {"topics.json", "consumerOffset.json"}
    assert not (root / "abort").exists()


@every_version
def test_clean_has_bodies_of_every_kind(version: str) -> None:
    """Empty, not UTF-8, large enough for a large blank, and compressed; the decoder read each of them."""
    records = clean(version)
    assert all(record["body_base64"] is not None for record in records)
    assert any(record["body_base64"] == "" for record in records)
    assert any(record["body_base64"].startswith("/") for record in records)  # 0xff is no start of UTF-8
    assert any(record["message_size"] > 19_000 for record in records)
    assert max(blanks(records)) > 8_000
    types = {record["sys_flag"] & TYPE_MASK for record in records if record["sys_flag"] & COMPRESSED}
    assert types == ({0, 0x100, 0x200, 0x300} if "compression-types" in features(version) else {0})


def blanks(records: list[Record]) -> list[int]:
    """Sizes of the blanks at the ends of the commit log files."""
    ends = [record["physical_offset"] + record["message_size"] for record in records]
    return [after["physical_offset"] - end for after, end in zip(records[1:], ends, strict=False)]


@every_version
def test_clean_has_tags_and_keys_of_every_kind(version: str) -> None:
    records = clean(version)
    assert {None, "Aa", "BB", "支付😀"} <= {record["tags"] for record in records}
    assert {0, 1, 3} <= {len((record["keys"] or "").split()) for record in records}
    assert any("订单" in (record["keys"] or "") for record in records)
    assert {True, False} == {record["unique_key"] is None for record in records}
    assert any("区域" in record["properties"] for record in records)


@every_version
def test_clean_has_equal_hashes(version: str) -> None:
    """Aa and BB have one tags code, and a query for either key finds the messages of both."""
    codes = {unit[0]: unit[2] for unit in queue(f"{version}-clean", "payments")["units"]}
    tags = {record["tags"]: codes.get(record["physical_offset"]) for record in clean(version) if at_payments(record)}
    assert tags["Aa"] == tags["BB"] == 2112
    found = {
        query["key"]: query["physical_offsets"]
        for query in oracle(f"{version}-clean")["index"]["queries"]
        if query["topic"] == "payments" and query["key"] in {"Aa", "BB"}
    }
    assert found["Aa"] == found["BB"]
    assert len(found["Aa"]) > 100


def at_payments(record: Record) -> bool:
    return (record["topic"], record["queue_id"]) == ("payments", 0)


@every_version
def test_clean_has_delayed_messages(version: str) -> None:
    """All 18 levels, with the delivery time in place of the tags code."""
    delayed = [q for q in oracle(f"{version}-clean")["queues"] if q["topic"] == SCHEDULE]
    assert sorted(q["queue_id"] for q in delayed) == list(range(18))
    times = {r["physical_offset"]: r["store_timestamp"] for r in clean(version)}
    assert all(unit[2] >= times[unit[0]] + 1000 for q in delayed for unit in q["units"])


@every_version
def test_clean_has_transactions(version: str) -> None:
    """Prepared and rolled back messages are in no queue; a commit names the offset of its half."""
    records = clean(version)
    by_type = {kind: [r for r in records if r["sys_flag"] & ROLLBACK == kind] for kind in (PREPARED, COMMIT, ROLLBACK)}
    assert all(by_type.values())
    queued = {unit[0] for q in oracle(f"{version}-clean")["queues"] for unit in q["units"]}
    assert not queued & {r["physical_offset"] for r in by_type[PREPARED] + by_type[ROLLBACK]}
    halves = {r["physical_offset"] for r in records if r["topic"] == "RMQ_SYS_TRANS_HALF_TOPIC"}
    assert halves <= {r["prepared_transaction_offset"] for r in by_type[COMMIT]}
    assert any(r["topic"] == "RMQ_SYS_TRANS_OP_HALF_TOPIC" for r in records)


@every_version
def test_clean_has_batches(version: str) -> None:
    """Parts of a batch share one unique key in the releases that append the batch's properties to each."""
    parts = [record for record in clean(version) if record["topic"] == "bulk"]
    shared = len({record["unique_key"] for record in parts}) == len(parts) // 5
    assert len(parts) >= 50
    assert shared == (version in {"4.9.7", "5.1.4", "5.3.3"})


@with_feature("ipv6")
def test_clean_has_ipv6_hosts(version: str) -> None:
    """Born host, store host, and both."""
    pairs = {(":" in r["born_host_address"], ":" in r["store_host_address"]) for r in clean(version)}
    assert pairs == {(False, False), (True, False), (False, True), (True, True)}


@with_feature("lmq")
def test_clean_has_light_queues(version: str) -> None:
    """Units of a light queue point at records of another topic."""
    topics = {record["physical_offset"]: record["topic"] for record in clean(version)}
    for name in ("%LMQ%device-1", "%LMQ%device-2"):
        assert {topics[unit[0]] for unit in queue(f"{version}-clean", name)["units"]} == {"sensors"}


@with_feature("batch-queue")
def test_clean_has_a_batch_queue(version: str) -> None:
    """Units of five messages each, in more than one file."""
    batch = queue(f"{version}-clean", "bulk-inner")
    assert batch["kind"] == "batch"
    assert [unit[4:] for unit in batch["units"]] == [[5 * n, 5] for n in range(len(batch["units"]))]
    assert len(batch["units"]) * 5 == batch["max_offset"]
    assert len([file for file in oracle(f"{version}-clean")["recovered"]["files"] if "batchconsumequeue" in file]) > 1


@with_feature("v2")
def test_clean_has_the_second_message_version(version: str) -> None:
    """Exactly the records of the topic over 127 bytes."""
    assert {len(r["topic"].encode()) > 127 for r in clean(version) if r["magic"] == "v2"} == {True}
    assert {len(r["topic"].encode()) > 127 for r in clean(version) if r["magic"] == "v1"} == {False}


@with_feature("crc32-property")
def test_crc32_property_is_in_every_record(version: str) -> None:
    """Ten digits in every record, those of light queues and batches included."""
    records = oracle(f"{version}-crc32-property")["records"]
    assert all(len(record["properties"]["__CRC32#"]) == 10 for record in records)


@every_version
def test_killed_has_an_abort_file_and_a_zero_file(version: str, tmp_path: Path) -> None:
    """The next commit log file is there already, all zeros, and the start removes or reuses it."""
    root = stores.unpack(f"{version}-killed", tmp_path)
    assert (root / "abort").exists()
    assert max((root / "commitlog").iterdir()).read_bytes() == bytes(LOG_FILE)
    killed = oracle(f"{version}-killed")
    last = killed["records"][-1]
    assert killed["recovered"]["commit_log"]["max_offset"] == last["physical_offset"] + last["message_size"]
    assert len(killed["records"]) > len(clean(version))


@every_version
def test_trimmed_has_lost_its_front(version: str) -> None:
    """Six log files and an index file are gone; `early` expired whole, `orders` in part; offsets stand below."""
    name = f"{version}-trimmed"
    log = oracle(name)["commit_log"]
    assert log["min_offset"] == 6 * LOG_FILE
    early, orders = queue(name, "early"), queue(name, "orders")
    assert early["reachable"] == []
    assert early["units"][-1][0] < log["min_offset"]
    assert 0 < orders["first_unit"] <= orders["min_offset"] < orders["max_offset"]
    assert orders["reachable"][0][0] == orders["min_offset"]
    assert len(oracle(name)["index"]["files"]) == len(oracle(f"{version}-clean")["index"]["files"]) - 1


@every_version
def test_offsets_in_middle_behind_and_beyond(version: str, tmp_path: Path) -> None:
    """One group in the middle of its queue, one below the minimum, one beyond the maximum."""
    root = stores.unpack(f"{version}-trimmed", tmp_path)
    text = "".join((root / "config" / "consumerOffset.json").read_text(encoding="utf-8").split())
    orders = queue(f"{version}-trimmed", "orders")
    middle = (orders["min_offset"] + orders["max_offset"]) // 2
    assert f'"orders@middle":{{0:{middle},' in text
    assert '"orders@behind":{0:0,' in text
    assert f'"orders@beyond":{{0:{orders["max_offset"] + 10},' in text


def test_empty_and_single() -> None:
    assert oracle("5.3.3-empty")["records"] == []
    assert oracle("5.3.3-empty")["queues"] == []
    assert [record["keys"] for record in oracle("5.3.3-single")["records"]] == ["only"]


def test_unpack_keeps_times(tmp_path: Path) -> None:
    """Fractions of a second included: no file is older than the record it begins with, but for the kernel's tick."""
    root = stores.unpack("5.3.3-clean", tmp_path)
    first = {record["physical_offset"]: record["store_timestamp"] for record in clean("5.3.3")}
    for file in (root / "commitlog").iterdir():
        assert file.stat().st_mtime * 1000 >= first[int(file.name)] - 20
