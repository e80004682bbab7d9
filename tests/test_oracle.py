"""What inspect says about every golden store is what the release that wrote it says.

Of a store whose broker was killed, the oracle's commit log and queues are those that the release reports after it has
loaded the files and before it recovers them: the same files as stand here. Where a test compares less, it says so.
"""

from __future__ import annotations

import base64
from functools import lru_cache
from ipaddress import ip_address
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rmqtool.formats.properties import split_keys
from tests.commands.running import inspect, listing
from tests.conftest import GoldenStore
from tests.golden import stores

SAME_NAMES = (
    *("physical_offset", "message_size", "topic", "queue_id", "queue_offset", "flag", "sys_flag", "born_timestamp"),
    *("store_timestamp", "reconsume_times", "prepared_transaction_offset", "body_crc", "message_id", "properties"),
    *("unique_key", "tags"),
)
TRANSACTIONS = ("none", "prepared", "commit", "rollback")
COMPRESSIONS = ("zlib", "lz4", "zstd", "zlib")
HEADER_NAMES = {
    "begin_timestamp": "begin_timestamp",
    "end_timestamp": "end_timestamp",
    "begin_phy_offset": "begin_physical_offset",
    "end_phy_offset": "end_physical_offset",
    "hash_slot_count": "slots_used",
}


@lru_cache(maxsize=2)
def oracle(name: str) -> dict[str, Any]:
    return stores.oracle(name)


@pytest.fixture(params=stores.names())
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def says(name: str) -> dict[str, Any]:
    """What the release says."""
    return oracle(name)


@pytest.fixture
def result(name: str, says: dict[str, Any], golden_store: GoldenStore) -> dict[str, Any]:
    """What inspect says, by the rules of that release."""
    found = inspect(golden_store(name), "--json", "--broker-version", says["version"])
    assert found.status == 0
    return dict(found.document["result"])


def test_all_versions_are_there() -> None:
    """Six releases, each stopped cleanly, killed, and trimmed by its cleaner."""
    versions = {name.partition("-")[0] for name in stores.names()}
    assert versions == {"4.4.0", "4.7.1", "4.9.7", "5.1.4", "5.3.3", "5.5.0"}
    assert {f"{version}-{how}" for version in versions for how in ("clean", "killed", "trimmed")} <= {*stores.names()}


def test_commit_log(name: str, says: dict[str, Any], result: dict[str, Any]) -> None:
    """Minimum and maximum are the broker's; after a kill the maximum is that of its recovery, the end of the records."""
    found = {field: result["commit_log"][field] for field in ("min_offset", "max_offset")}
    expected = says["recovered"]["commit_log"] if name.endswith("-killed") else says["commit_log"]
    assert found == expected
    times = [record["store_timestamp"] for record in says["records"]]
    assert result["commit_log"]["first_store_timestamp"] == (times[0] if times else None)
    assert result["commit_log"]["last_store_timestamp"] == (times[-1] if times else None)


def test_queues(says: dict[str, Any], result: dict[str, Any]) -> None:
    """Every queue with its kind, its minimum and its maximum, as the release reports them."""
    names = ("kind", "topic", "queue_id", "min_offset", "max_offset")
    found = [tuple(queue[field] for field in names) for queue in result["queues"]]
    assert sorted(found) == sorted(tuple(queue[field] for field in names) for queue in says["queues"])


def test_index_headers(says: dict[str, Any], result: dict[str, Any]) -> None:
    """Every value of every header; the release counts units from 1."""
    found = result["index"]
    assert len(found) == len(says["index"]["files"])
    for file, header in zip(found, says["index"]["files"], strict=True):
        assert {file[shown]: stored for stored, shown in HEADER_NAMES.items()} == {
            header[stored]: stored for stored in HEADER_NAMES
        } or [file[shown] for shown in HEADER_NAMES.values()] == [header[stored] for stored in HEADER_NAMES]
        assert file["keys"] == max(header["index_count"], 1) - 1
    assert {(file["slots"], file["capacity"]) for file in found} <= {(50, 999)}


def test_lags(says: dict[str, Any], result: dict[str, Any]) -> None:
    """Each lag is the release's maximum less what is committed; some groups are behind and some beyond."""
    maxima = {(queue["topic"], queue["queue_id"]): queue["max_offset"] for queue in says["queues"]}
    for item in result["consumers"]:
        assert item["lag"] == maxima[item["topic"], item["queue_id"]] - item["committed_offset"]
    if says["scenario"] in ("clean", "trimmed"):
        assert {item["lag"] < 0 for item in result["consumers"]} == {True, False}


def test_versions(says: dict[str, Any], result: dict[str, Any]) -> None:
    """The signs never tell a version above the one that wrote the store."""
    told = result["broker"]["version_at_least"]
    assert told is None or numbers(told) <= numbers(says["version"])
    assert result["broker"]["last_exit"] == ("unclean" if says["scenario"] == "killed" else "clean")


def numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]


def test_messages(name: str, says: dict[str, Any], golden_store: GoldenStore) -> None:
    """Every record of the log, of a killed store too, has every field that the release's decoder gives it."""
    lines = listing(golden_store(name)).lines if says["records"] else []
    messages = [line for line in lines if line["kind"] == "message"]
    assert len(messages) == len(says["records"])
    for message, record in zip(messages, says["records"], strict=True):
        assert {field: message[field] for field in SAME_NAMES} == {field: record[field] for field in SAME_NAMES}
        assert message["magic_code"] == record["magic"]
        assert message["keys"] == split_keys(record["keys"])
        assert message["born_host"] == host(record, "born_host")
        assert message["store_host"] == host(record, "store_host")
        assert message["transaction"] == TRANSACTIONS[record["sys_flag"] >> 2 & 3]
        compressed = record["sys_flag"] & 1
        assert message["compression"] == (COMPRESSIONS[record["sys_flag"] >> 8 & 7] if compressed else "none")
        assert body_of(message) == base64.b64decode(record["body_base64"])
        assert message["body_size"] == len(base64.b64decode(record["body_stored_base64"]))
        assert message["body_crc_ok"]
        assert message["file"] == f"commitlog/{record['physical_offset'] // 65536 * 65536:020d}"


def test_stored_bodies(name: str, says: dict[str, Any], golden_store: GoldenStore) -> None:
    """As stored, each body is what stands in the log."""
    if not says["records"]:
        assert list((golden_store(name) / "commitlog").iterdir()) == []
        return
    messages = listing(golden_store(name), "--body", "stored").of_kind("message")
    expected = [base64.b64decode(record["body_stored_base64"]) for record in says["records"]]
    assert [body_of(message) for message in messages] == expected


def test_nothing_but_messages_and_blanks(name: str, golden_store: GoldenStore) -> None:
    """A broker's own log has no damage, killed or not, and what is listed leaves no gap up to the last record."""
    lines = listing(golden_store(name)).lines
    assert {line["kind"] for line in lines} <= {"message", "blank"}
    sizes = [line["message_size" if line["kind"] == "message" else "size"] for line in lines]
    for (line, size), after in zip(zip(lines, sizes, strict=True), lines[1:], strict=False):
        assert line["physical_offset"] + size == after["physical_offset"]
    assert all(one["physical_offset"] < other["physical_offset"] for one, other in pairwise(lines))


def test_scan(name: str, says: dict[str, Any], golden_store: GoldenStore) -> None:
    """What a scan counts is what the release's records add up to, by topic and queue."""
    scan = inspect(golden_store(name), "--json", "--scan").document["result"]["scan"]
    totals: dict[tuple[str, int], list[int]] = {}
    for record in says["records"]:
        counted = totals.setdefault((record["topic"], record["queue_id"]), [0, 0])
        counted[0] += 1
        counted[1] += record["message_size"]
    found = {(queue["topic"], queue["queue_id"]): [queue["messages"], queue["bytes"]] for queue in scan["queues"]}
    assert found == totals
    assert scan["messages"] == len(says["records"])
    sizes = [record["message_size"] for record in says["records"]]
    assert scan["largest_message_bytes"] == max(sizes, default=None)
    assert scan["smallest_message_bytes"] == min(sizes, default=None)


def host(record: dict[str, Any], name: str) -> str:
    address, port = str(ip_address(record[f"{name}_address"])), record[f"{name}_port"]
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def body_of(message: dict[str, Any]) -> bytes:
    return base64.b64decode(message["body_base64"]) if message["body"] is None else message["body"].encode()


def test_paths_are_relative(golden_store: GoldenStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """From wherever it is run, the answer is the same but for the path as it was given."""
    store = golden_store("4.9.7-trimmed")
    here = inspect(store, "--json").document
    monkeypatch.chdir(store.parent)
    there = inspect(Path(store.name), "--json").document
    assert (here.pop("store"), there.pop("store")) == (str(store), store.name)
    findings = [[finding.pop("remedy") is None for finding in found.pop("findings")] for found in (here, there)]
    assert findings[0] == findings[1]
    assert here == there
