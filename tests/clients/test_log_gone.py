"""The log is gone: what units, index and offsets show of what clients had, as brokers of these releases answer."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.commands.running import rmqtool
from tests.golden import stores

pytestmark = pytest.mark.slow
CONF = "mappedFileSizeCommitLog=65536\nmapedFileSizeCommitLog=65536\nenableLmq=true\nenableMultiDispatch=true\n"
LOG, QUEUES, BATCHES = "commitlog", "consumequeue", "batchconsumequeue"


@pytest.mark.parametrize(
    ("name", "gone", "expected"),
    [
        # Units and keys of messages that had been deleted in time do not count.
        ("4.4.0-trimmed", [LOG], {"unreachable": 237, "keys_not_found": 443, "groups": 4, "delayed": 12}),
        ("5.1.4-shop", [LOG], {"unreachable": 164, "keys_not_found": 297, "groups": 9, "delayed": 5}),
        # The index has tags of all but batches: 305 keys of 178 messages.
        ("5.5.0-shop", [LOG], {"unreachable": 168, "keys_not_found": 305, "groups": 11, "delayed": 5}),
        # Where the queues are gone, too, only the groups show that there were any.
        ("5.1.4-shop", [LOG, QUEUES, BATCHES], {"unreachable": 0, "keys_not_found": 297, "groups": 9, "delayed": 0}),
    ],
)
def test_what_is_left_of_a_log(name: str, gone: list[str], expected: dict[str, int], tmp_path: Path) -> None:
    """A start and a plan lose the same, since nothing of it comes back."""
    store, conf = stores.unpack(name, tmp_path), tmp_path / "broker.conf"
    conf.write_text(CONF, encoding="utf-8")
    for directory in gone:
        shutil.rmtree(store / directory)
    version = name.partition("-")[0]
    result = rmqtool("verify", store, "--broker-version", version, "--broker-conf", conf, "--json").document["result"]
    for clients in (result["start"]["clients"], result["plan"]["clients"]):
        found = {
            "unreachable": clients["unreachable"]["messages"],
            "keys_not_found": clients["keys_not_found"],
            "groups": len(clients["groups"]),
            "delayed": clients["delayed"]["never"],
        }
        assert expected.items() <= found.items()
        assert not any(clients["delayed"][kind] for kind in ("early", "late", "again"))


@pytest.mark.parametrize(("size", "began_by"), [(1 << 16, 393216), (1 << 10, 429 << 10), (1 << 30, 0)])
def test_where_a_log_that_is_gone_began(size: int, began_by: int, tmp_path: Path) -> None:
    """The first file of a queue of several ends with a message of the log, which begins with a file."""
    store = stores.unpack("5.5.0-trimmed", tmp_path)
    shutil.rmtree(store / LOG)
    conf = {"mappedFileSizeCommitLog": str(size)}
    assert Snapshot(open_store(store, BrokerConf(conf))).log_began_by == began_by
    untrimmed = stores.unpack("5.5.0-clean", tmp_path)
    shutil.rmtree(untrimmed / LOG)
    assert Snapshot(open_store(untrimmed, BrokerConf(conf))).log_began_by == 0


@pytest.mark.parametrize(("deleted", "moved"), [(False, {"beyond", "middle"}), (True, set())])
def test_groups_of_expired_queues_that_are_gone(deleted: bool, moved: set[str], tmp_path: Path) -> None:
    """The log has no message of `early`: that it had a queue is shown by offsets, unless its topic was deleted."""
    store, conf = stores.unpack("4.4.0-trimmed", tmp_path), tmp_path / "broker.conf"
    conf.write_text(CONF, encoding="utf-8")
    shutil.rmtree(store / QUEUES)
    if deleted:
        topics = json.loads((store / "config/topics.json").read_text())
        del topics["topicConfigTable"]["early"]
        (store / "config/topics.json").write_text(json.dumps(topics))
    result = rmqtool("verify", store, "--broker-version", "4.4.0", "--broker-conf", conf, "--json").document["result"]
    for clients in (result["start"]["clients"], result["plan"]["clients"]):
        assert {each["group"] for each in clients["groups"] if each["topic"] == "early"} == moved


@pytest.mark.parametrize(
    ("gone", "file", "pattern", "new", "expected"),
    [
        # What was due before the last message of the log had been delivered, whatever the offsets say.
        ([LOG], "delayOffset.json", r":(\d+)(?=[,\n])", lambda _: ":0", {"groups": 9, "delayed": 5}),
        # A queue without a message in a log from 0 on cannot have had 100000 of them.
        ([QUEUES, BATCHES, "index"], "lmqConsumerOffset.json", r"(?<=\d:)(\d+)",
         lambda found: f"{int(found[1]) + 100000}", {"groups": 9}),
    ],
)  # fmt: skip
def test_offsets_that_are_wrong_too(
    gone: list[str], file: str, pattern: str, new: Callable[[re.Match[str]], str], expected: dict[str, int],
    tmp_path: Path,
) -> None:  # fmt: skip
    """They do not count as what clients had."""
    store, conf = stores.unpack("5.1.4-shop", tmp_path), tmp_path / "broker.conf"
    conf.write_text(CONF, encoding="utf-8")
    for directory in gone:
        shutil.rmtree(store / directory)
    for path in store.glob(f"config/{file}*"):
        table, content = '"offsetTable"', path.read_text()
        at = content.index(table)
        path.write_text(content[:at] + re.sub(pattern, new, content[at:]))
    result = rmqtool("verify", store, "--broker-version", "5.1.4", "--broker-conf", conf, "--json").document["result"]
    clients = result["start"]["clients"]
    assert expected.items() <= {"groups": len(clients["groups"]), "delayed": clients["delayed"]["never"]}.items()


@pytest.mark.parametrize(("size", "expected"), [(0, [11, 11]), (100, [11, None])])
def test_the_only_log_file_is_cut_and_the_queues_are_gone(
    size: int, expected: list[int | None], tmp_path: Path
) -> None:
    """What is left of it does not show how many messages the queues had: offsets do."""
    store, conf = stores.unpack("more/5.5.0-rocksdb", tmp_path), tmp_path / "broker.conf"
    conf.write_text(f"{CONF}storeType=defaultRocksDB\n", encoding="utf-8")
    shutil.rmtree(store / QUEUES)
    os.truncate(next((store / LOG).iterdir()), size)
    result = rmqtool("verify", store, "--broker-version", "5.5.0", "--broker-conf", conf, "--json").document["result"]
    known = [result[part]["clients"] for part in ("start", "plan")]
    assert [each and len(each["groups"]) for each in known] == expected
