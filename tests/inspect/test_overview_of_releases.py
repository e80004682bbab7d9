"""What inspect says about every golden store is what the release that wrote it says.

Of a store that was stopped cleanly everything must agree. A release that loads the store of a killed broker recovers
it: it dispatches the last records, and writes the index files after the checkpoint again. There the records of the log
and its end must agree, each queue up to the last record that was dispatched, and the index files up to the checkpoint.
"""

from __future__ import annotations

import base64
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from rmqtool.formats.properties import split_keys
from tests.commands.running import inspect, listing
from tests.conftest import GoldenStore
from tests.golden import stores
from tests.golden.stores import oracle

SAME_NAMES = (
    *("physical_offset", "message_size", "topic", "queue_id", "queue_offset", "flag", "sys_flag", "born_timestamp"),
    *("store_timestamp", "reconsume_times", "prepared_transaction_offset", "body_crc", "message_id", "properties"),
    *("unique_key", "tags"),
)
TRANSACTIONS = ("none", "prepared", "commit", "rollback")
COMPRESSIONS = ("zlib", "lz4", "zstd", "zlib")
MOST_NOT_DISPATCHED = 10
HEADER_NAMES = {
    "begin_timestamp": "begin_timestamp",
    "end_timestamp": "end_timestamp",
    "begin_phy_offset": "begin_physical_offset",
    "end_phy_offset": "end_physical_offset",
    "hash_slot_count": "slots_used",
}


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
    return result_of(golden_store(name), says["version"])


@cache
def result_of(root: Path, version: str) -> dict[str, Any]:
    """Asked once for all tests of a store, which only read it."""
    found = inspect(root, "--json", "--broker-version", version)
    assert found.status == 0
    return dict(found.document["result"])


def test_all_versions_are_there() -> None:
    """Seven releases, each stopped cleanly, killed, and trimmed by its cleaner."""
    versions = {name.partition("-")[0] for name in stores.names()}
    assert versions == {"4.4.0", "4.7.1", "4.9.7", "5.1.4", "5.3.3", "5.5.0", "5.5.1"}
    assert {f"{version}-{how}" for version in versions for how in ("clean", "killed", "trimmed")} <= {*stores.names()}


@pytest.mark.one_in(3)
def test_commit_log(says: dict[str, Any], result: dict[str, Any]) -> None:
    """Minimum and maximum are the broker's, times those of its first and its last record."""
    assert {field: result["commit_log"][field] for field in ("min_offset", "max_offset")} == says["commit_log"]
    times = [record["store_timestamp"] for record in says["records"]]
    assert result["commit_log"]["first_store_timestamp"] == (times[0] if times else None)
    assert result["commit_log"]["last_store_timestamp"] == (times[-1] if times else None)


def test_queues(says: dict[str, Any], result: dict[str, Any]) -> None:
    """Every queue with its kind, its minimum and its maximum; of a killed store, up to the last dispatched record."""
    found = {(queue["kind"], queue["topic"], queue["queue_id"]): queue for queue in result["queues"]}
    expected = {(queue["kind"], queue["topic"], queue["queue_id"]): queue for queue in says["queues"]}
    assert found.keys() == expected.keys()
    ranges = {key: (queue["min_offset"], queue["max_offset"]) for key, queue in found.items()}
    if says["scenario"] != "killed":
        assert ranges == {key: (queue["min_offset"], queue["max_offset"]) for key, queue in expected.items()}
        return
    last = last_dispatched(found, expected)
    assert ranges == {key: (queue["min_offset"], max_before(queue, last)) for key, queue in expected.items()}
    missing = [record for record in says["records"] if record["physical_offset"] > last]
    assert len(missing) <= MOST_NOT_DISPATCHED


def last_dispatched(found: dict[Any, Any], expected: dict[Any, Any]) -> int:
    """Physical offset of the last record that a unit of a simple queue points at, as the queues stand."""
    return max(
        int(queue["units"][found[key]["max_offset"] - queue["first_unit"] - 1][0])
        for key, queue in expected.items()
        if queue["kind"] == "simple"
    )


def max_before(queue: dict[str, Any], last: int) -> int:
    """The maximum of a queue whose last unit points at physical offset `last` or before it."""
    units = [unit for unit in queue["units"] if unit[0] <= last]
    if queue["kind"] == "batch":
        return int(units[-1][4] + units[-1][5])
    return int(queue["first_unit"] + len(units))


def test_index_headers(says: dict[str, Any], result: dict[str, Any]) -> None:
    """Every value of every header; of a killed store, of the files that its checkpoint covers."""
    found, expected = result["index"], says["index"]["files"]
    if says["scenario"] == "killed":
        covered = result["checkpoint"]["index_message_timestamp"]
        found = [file for file in found if file["end_timestamp"] <= covered]
        expected = expected[: len(found)]
        assert len(found) == len(result["index"]) - 1
    headers = [{stored: file[shown] for stored, shown in HEADER_NAMES.items()} for file in found]
    assert headers == [{name: header[name] for name in HEADER_NAMES} for header in expected]
    assert [file["keys"] for file in found] == [max(header["index_count"], 1) - 1 for header in expected]
    assert {(file["slots"], file["capacity"]) for file in found} <= {(50, 999)}


def test_lags(says: dict[str, Any], result: dict[str, Any]) -> None:
    """Each lag is a maximum less what is committed; where the maxima are the release's, some groups are beyond.

    After a kill the last message of a queue may have no unit yet, which the next start derives.
    """
    queues = result["queues"] if says["scenario"] == "killed" else says["queues"]
    maxima = {(queue["topic"], queue["queue_id"]): queue["max_offset"] for queue in queues}
    for item in result["consumers"]:
        maximum = maxima.get((item["topic"], item["queue_id"]))  # a queue that never had a message has no directory
        lags = [None] if maximum is None else [maximum - item["committed_offset"]]
        lags += [lags[0] + 1] if lags[0] is not None and says["scenario"] == "killed" else []
        assert item["lag"] in lags
        assert item["unreachable"] == 0
    if says["scenario"] in ("clean", "trimmed"):
        assert {item["lag"] < 0 for item in result["consumers"]} == {True, False}


def test_versions(says: dict[str, Any], result: dict[str, Any]) -> None:
    """The signs never tell a version above the one that wrote the store."""
    told = result["broker"]["version_at_least"]
    assert told is None or numbers(told) <= numbers(says["version"])
    assert result["broker"]["last_exit"] == ("unclean" if says["scenario"] == "killed" else "clean")


def numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]


@pytest.mark.slow
@pytest.mark.one_in(3)
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


@pytest.mark.one_in(3)
def test_stored_bodies(name: str, says: dict[str, Any], golden_store: GoldenStore) -> None:
    """As stored, each body is what stands in the log."""
    if not says["records"]:
        assert list((golden_store(name) / "commitlog").iterdir()) == []
        return
    messages = listing(golden_store(name), "--body", "stored").of_kind("message")
    expected = [base64.b64decode(record["body_stored_base64"]) for record in says["records"]]
    assert [body_of(message) for message in messages] == expected


@pytest.mark.one_in(3)
def test_nothing_but_messages_and_blanks(name: str, golden_store: GoldenStore) -> None:
    """A broker's own log has no damage, killed or not, and what is listed leaves no gap up to the last record."""
    lines = listing(golden_store(name)).lines
    assert {line["kind"] for line in lines} <= {"message", "blank"}
    ends = [line["physical_offset"] + line["message_size" if line["kind"] == "message" else "size"] for line in lines]
    assert ends[:-1] == [line["physical_offset"] for line in lines[1:]]


@pytest.mark.one_in(3)
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


@pytest.mark.slow
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
