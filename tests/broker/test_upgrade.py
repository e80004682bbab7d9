"""What a newer release refuses and changes; `tests/real_broker/test_upgrade.py` holds it to the broker."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.broker.upgrade import changed_defaults, changes, refusals, switches
from rmqtool.formats.checkpoint import CHECKPOINT_FILE_SIZE
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import Version, parse_version
from rmqtool.store.checkpoint import checkpoint_file
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.golden.rocksdb import ROCKSDB
from tests.unchanged import unchanged
from tests.verify.small_store import small_store

V54, V55 = Version(5, 4, 0), Version(5, 5, 0)
TWICE = {"rocksdbCQDoubleWriteEnable": "true"}
BOTH = {**TWICE, "combineCQUseRocksdbForLmq": "true"}
ACCELERATED = {"enableAcceleratedRecovery": "true"}


def refused(store: Path, settings: dict[str, str], version: str = "5.5.0") -> list[str]:
    """The first words of the reasons why a release does not start."""
    with unchanged(store):
        snapshot = Snapshot(open_store(store, BrokerConf(settings)))
        return [refusal.why.split()[0] for refusal in refusals(snapshot, parse_version(version))]


def database(name: str) -> Callable[[Path], None]:
    def make(store: Path) -> None:
        (store / name).mkdir(exist_ok=True)
        (store / name / "CURRENT").touch()

    return make


def killed(store: Path) -> None:
    (store / "abort").touch()
    (store / "checkpoint").write_bytes(checkpoint_file({"physic_message_timestamp": 1}))


def killed_in_5_5(store: Path) -> None:
    (store / "abort").touch()
    fields = {"physic_message_timestamp": 1, "logics_physical_offset": 1}
    (store / "checkpoint").write_bytes(checkpoint_file(fields))


def batch_queue(store: Path) -> None:
    (store / "batchconsumequeue" / "t" / "0").mkdir(parents=True)


@pytest.mark.parametrize(
    ("settings", "version", "prepare", "word"),
    [
        (TWICE, "5.5.0", None, "rocksdbCQDoubleWriteEnable=true"),
        (TWICE, "5.4.0", None, None),
        (BOTH, "5.5.0", None, None),
        ({**TWICE, "storeType": "DefaultRocksDB"}, "5.5.0", None, None),
        (BOTH, "5.5.0", batch_queue, "rocksdbCQDoubleWriteEnable=true,"),
        (TWICE, "5.3.4", batch_queue, "rocksdbCQDoubleWriteEnable=true,"),
        (TWICE, "5.3.3", batch_queue, None),
        (BOTH, "5.5.0", database("consumequeue_rocksdb"), "useSeparateStorePathForRocksdbCQ=false,"),
        ({**BOTH, "useSeparateStorePathForRocksdbCQ": "true"}, "5.5.0", database("consumequeue_rocksdb"), None),
        ({**BOTH, "useSeparateStorePathForRocksdbCQ": "true"}, "5.5.0", database("consumequeue"),
         "useSeparateStorePathForRocksdbCQ=true,"),
        ({}, "5.5.0", database("consumequeue_rocksdb"), None),
        (ACCELERATED, "5.5.0", killed, "enableAcceleratedRecovery=true"),
        (ACCELERATED, "5.5.0", killed_in_5_5, None),
        (ACCELERATED, "5.4.0", killed, None),
        (ACCELERATED, "5.5.0", None, None),
        ({"enableControllerMode": "true", "enableDLegerCommitLog": "true"}, "5.1.1", None, "enableControllerMode"),
        ({"enableControllerMode": "true", "enableDLegerCommitLog": "true"}, "5.1.0", None, None),
        ({"enableControllerMode": "true"}, "5.1.1", None, None),
        ({"mapedFileSizeCommitLog": "4096"}, "5.5.0", None, "mapedFileSizeCommitLog"),
        ({"mapedFileSizeCommitLog": "4096"}, "4.5.1", None, None),
        ({"mappedFileSizeCommitLog": "4096", "mapedFileSizeCommitLog": "4096"}, "5.5.0", None, None),
        ({"mapedFileSizeConsumeQueue": "600"}, "5.5.0", None, "mapedFileSizeConsumeQueue"),
    ],
)  # fmt: skip
def test_refusals(
    settings: dict[str, str], version: str, prepare: Callable[[Path], None] | None, word: str | None, tmp_path: Path
) -> None:
    store = small_store(tmp_path / "store")
    if prepare:
        prepare(store)
    assert refused(store, settings, version) == ([word] if word else [])


def test_a_flag_is_on_when_it_is_true_and_nothing_else(tmp_path: Path) -> None:
    """`Boolean#parseBoolean` trims nothing."""
    store = small_store(tmp_path / "store")
    assert refused(store, {"rocksdbCQDoubleWriteEnable": "TRUE"})
    assert not refused(store, {"rocksdbCQDoubleWriteEnable": "true "})


@pytest.mark.parametrize("size", [0, 40, CHECKPOINT_FILE_SIZE])
def test_a_checkpoint_of_any_size(size: int, tmp_path: Path) -> None:
    """What is cut off counts as 0."""
    store = small_store(tmp_path / "store")
    killed_in_5_5(store)
    data = (store / "checkpoint").read_bytes()[:size]
    (store / "checkpoint").write_bytes(data)
    assert refused(store, ACCELERATED) == (["enableAcceleratedRecovery=true"] if size == 40 else [])


def test_releases_that_overwrite_files_of_another_size(tmp_path: Path) -> None:
    """4.9.2 starts, with an empty log; others do not start."""
    snapshot = Snapshot(open_store(small_store(tmp_path / "store"), BrokerConf({"mapedFileSizeCommitLog": "4096"})))
    effects = [next(refusals(snapshot, parse_version(version))).instead for version in ("4.9.1", "4.9.2", "4.9.3")]
    assert [bool(effect) for effect in effects] == [False, True, False]


def test_files_of_the_default_size_need_no_setting(tmp_path: Path) -> None:
    """What is not read is what the broker takes anyhow."""
    queue = tmp_path / "consumequeue" / "t" / "0"
    queue.mkdir(parents=True)
    (queue / f"{0:020}").touch()
    os.truncate(queue / f"{0:020}", 6_000_000)
    assert refused(tmp_path, {"mapedFileSizeConsumeQueue": "6000000"}) == []


def test_queues_are_not_listed_for_nothing(tmp_path: Path) -> None:
    """They are listed after the log is read, for a running broker makes more of them meanwhile."""
    snapshot = Snapshot(open_store(small_store(tmp_path / "store"), BrokerConf({"flushDiskTyp": "x"})))
    assert not [*refusals(snapshot, V55), *switches(snapshot, V55)]
    list(changes(snapshot, V55))
    assert "queues" not in vars(snapshot)


def test_changes_that_concern_the_store(tmp_path: Path) -> None:
    store = small_store(tmp_path / "store")
    (store / "consumequeue" / "%LMQ%x" / "0").mkdir(parents=True)
    conf = BrokerConf({"commitLogRecoverMaxNum": "2"})
    found = list(changes(Snapshot(open_store(store, conf)), V55))
    assert [str(change.since) for change in found] == ["4.9.2", "5.1.1", "5.1.3", "5.4.0", "5.4.0", "5.5.0"]
    assert [str(change.since) for change in changes(Snapshot(open_store(store)), Version(5, 3, 3))] == [
        *("4.9.2", "5.1.1", "5.1.3"),
    ]
    assert "the last 2 of the 3" in found[4].what
    enough = BrokerConf({"commitLogRecoverMaxNum": "3"})
    assert len(list(changes(Snapshot(open_store(store, enough)), V55))) == len(found) - 1


@pytest.mark.parametrize(
    ("role", "version", "lacking"),
    [
        ("SLAVE", "5.5.0", "committed offsets"),
        ("SYNC_MASTER", "5.5.0", "committed offsets"),
        ("SLAVE", "5.5.1", None),
        ("SLAVE", "5.3.2", "topics with attributes"),
        ("SLAVE", "5.3.3", "topics with attributes"),
        ("SLAVE", "5.3.1", None),
        ("SLAVE", "5.3.4", None),
        ("ASYNC_MASTER", "5.5.0", None),
    ],
)
def test_what_a_slave_does_not_take_over(role: str, version: str, lacking: str | None, tmp_path: Path) -> None:
    """Run with a real master and slave: 5.3.3 and 5.5.0 lack that; 4.9.7, 5.1.4 and 5.5.1 lack nothing."""
    store = open_store(small_store(tmp_path / "store"), BrokerConf({"brokerRole": role}))
    found = [each.what for each in changes(Snapshot(store), parse_version(version)) if "slave" in each.what]
    assert [lacking in message for message in found] == [True] if lacking else not found


SELECTED = {"enableLmq": "true", **ROCKSDB["more/5.5.1-rocksdb-selected"]}
"""With these a real broker puts messages of its shop's light queues into none."""


@pytest.mark.parametrize(
    ("settings", "version", "prepare", "count"),
    [
        ({"storeType": "defaultRocksDB"}, "5.2.0", None, 1),
        ({"storeType": "defaultRocksDB"}, "5.1.4", None, 0),
        ({"storeType": "defaultRocksDB"}, "5.5.0", database("consumequeue"), 0),
        ({"storeType": "default"}, "5.5.0", None, 0),
        ({"configManagerVersion": "v2"}, "5.3.2", None, 1),
        ({"configManagerVersion": "v2"}, "5.3.1", None, 0),
        ({"configManagerVersion": "v2"}, "5.5.0", database("config/rdb"), 0),
        ({"configManagerVersion": "v1"}, "5.5.0", None, 0),
        (SELECTED, "5.5.1", None, 1),
        (SELECTED, "5.5.0", None, 0),
        ({**SELECTED, "enableLmq": "false"}, "5.5.1", None, 0),
    ],
)
def test_what_settings_move_elsewhere(
    settings: dict[str, str], version: str, prepare: Callable[[Path], None] | None, count: int, tmp_path: Path
) -> None:
    store = small_store(tmp_path / "store")
    if prepare:
        prepare(store)
    assert len(list(switches(Snapshot(open_store(store, BrokerConf(settings))), parse_version(version)))) == count


LIGHT, PLAIN = "lmqConsumerOffset.json", "consumerOffset.json"
COMMITTED = '{"offsetTable":{"orders@billing":{0:7}}}'


@pytest.mark.parametrize(("files", "setting", "said"), [
    ({PLAIN: COMMITTED}, "true", f"from {LIGHT}, which does not exist, and nothing from {PLAIN}"),
    ({PLAIN + ".bak": COMMITTED}, "true", f"from {LIGHT}, which does not exist, and nothing from {PLAIN}"),
    ({LIGHT: COMMITTED}, "false", f"from {PLAIN}, which does not exist, and nothing from {LIGHT}"),
    ({LIGHT: COMMITTED}, "true ", f"from {PLAIN}, which does not exist, and nothing from {LIGHT}"),
    ({LIGHT: '{"lmqOffsetTable":{"%LMQ%a@%LMQ%a":4}}'}, "false", f"nothing from {LIGHT}"),
    ({LIGHT: COMMITTED, PLAIN: COMMITTED}, "true", f"from {LIGHT}, which is older, and nothing from {PLAIN}"),
    ({PLAIN: COMMITTED, LIGHT: COMMITTED}, "true", None),
    ({PLAIN: COMMITTED}, "false", None), ({LIGHT: COMMITTED}, "true", None), ({LIGHT: COMMITTED}, None, None),
    ({PLAIN: '{"offsetTable":{}}'}, "true", None),
])  # fmt: skip
def test_enable_lmq_moves_all_committed_offsets(
    files: dict[str, str], setting: str | None, said: str | None, tmp_path: Path
) -> None:
    """Without a word of broker.conf nothing is known; files are given from the older to the newer."""
    store = small_store(tmp_path / "store")
    for file in (PLAIN, LIGHT):
        (store / "config" / file).unlink(missing_ok=True)
    for number, (name, text) in enumerate(files.items()):
        path = store / "config" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        os.utime(path, (1_700_000_000 + number,) * 2)
    conf = BrokerConf({} if setting is None else {"enableLmq": setting})
    with unchanged(store):
        found = list(switches(Snapshot(open_store(store, conf)), V55))
        assert not list(switches(Snapshot(open_store(store, conf)), Version(4, 9, 2)))
        elsewhere = BrokerConf({**conf.settings, "storeType": "defaultRocksDB", "configManagerVersion": "v2"})
        assert not [each for each in switches(Snapshot(open_store(store, elsewhere)), V55) if LIGHT in each]
    assert len(found) == bool(said)
    assert all(str(said) in each for each in found)


@pytest.mark.parametrize(
    ("version", "setting", "count"), [("4.9.3", "true", 1), ("4.9.3", "false", 0), ("4.9.4", "true", 0)]
)
def test_committed_offsets_that_a_start_does_not_read(version: str, setting: str, count: int, tmp_path: Path) -> None:
    """4.9.3 reads none where light queues are on."""
    store = small_store(tmp_path / "store")
    (store / "config" / (LIGHT if setting == "true" else PLAIN)).write_text(COMMITTED)
    (store / "config" / (PLAIN if setting == "true" else LIGHT)).unlink(missing_ok=True)
    found = [*switches(Snapshot(open_store(store, BrokerConf({"enableLmq": setting}))), parse_version(version))]
    assert len(found) == count
    assert all("reads no committed offsets at a start" in each for each in found)


def test_an_empty_store_has_no_queues_to_lose(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    assert [change.since for change in changes(Snapshot(open_store(tmp_path)), V55)] == [Version(4, 9, 2)]


def test_defaults_that_broker_conf_leaves_out() -> None:
    """What it sets stays as it is; settings of the tiered store concern only those who have it."""
    before = Version(5, 0, 0)
    found = [change.what for change in changed_defaults(BrokerConf(), before, V55)]
    assert "transactionCheckInterval 60000 -> 30000" in found
    assert not [message for message in found if message.startswith(("tiered", "aclEnable"))]
    given = BrokerConf({"transactionCheckInterval": "60000", "messageStorePlugIn": "tiered"})
    found = [change.what for change in changed_defaults(given, Version(5, 1, 0), V55)]
    assert not [message for message in found if message.startswith("transactionCheckInterval")]
    assert [message for message in found if message.startswith("tiered")]
    assert not list(changed_defaults(BrokerConf(), V55, V55))
