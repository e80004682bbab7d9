"""Signs of the version that wrote a store."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.mapped_files import MappedFile, list_mapped_files
from rmqtool.formats.message import BORN_HOST_V6, COMPRESSED, INNER_BATCH, MAGIC_CODE_V2
from rmqtool.inspect.overview import overview_of
from rmqtool.rules.versions import parse_version
from rmqtool.store.index_files import IndexFile
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from rmqtool.store.version_signs import index_signs, sampled_signs
from tests.building import LOG, LogBuilder
from tests.conftest import GoldenStore
from tests.golden import stores
from tests.unchanged import unchanged

FILES = {
    "abort": b"",
    "checkpoint": bytes(4096),
    "lock": b"lock",
    "config/topics.json": b'{"dataVersion":{"counter":1,"timestamp":2},"topicConfigTable":{}}',
    "config/consumerOffset.json": b'{"offsetTable":{}}',
}
SHOWN_BY_FILES = {
    "abort.bak": "abort.bak",
    "timerwheel": "timer",
    "timerlog/0": "timer",
    "config/timercheck": "timer",
    "batchconsumequeue/topic/0/0": "batch-queue",
    "compaction/position-checkpoint": "compaction",
    "rocksdbstore/LOCK": "rocksdbstore",
    "consumequeue_rocksdb/CURRENT": "separate-rocksdb-queues",
    "consumequeue/CURRENT": "rocksdb-queues",
    "consumequeue/%LMQ%x/0/0": "lmq-queue",
    "config/lmqConsumerOffset.json": "lmq-consumer-offset",
    "config/topicQueueMapping.json": "config-5.0",
    "config/consumerOrderInfo.json": "config-5.0",
    "config/messageRequestMode.json": "config-5.0",
    "config/transactionMetrics": "transaction-metrics",
}
SHOWN_BY_CONTENT = {
    "abort": (b"4711", "abort-process-id"),
    "config/topics.json": (b'{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":2}}', "state-version"),
    "config/consumerOffset.json": (b'{"offsetTable":{},"pullOffsetTable":{}}', "pull-offset-table"),
    "config/topics.json.bak": (b'{"dataVersion":{"stateVersion":0}}', "state-version"),
}


def write(root: Path, files: dict[str, bytes]) -> Path:
    """Write a store of an old broker, with other `files` in place of or beside its own."""
    (root / "commitlog").mkdir(parents=True)
    for name, data in {**FILES, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def signs_of(root: Path, index: Iterable[IndexFile] = ()) -> set[str]:
    with unchanged(root):
        return Snapshot(open_store(root)).file_signs | index_signs(index)


def test_an_old_store_shows_none(tmp_path: Path) -> None:
    """What every version writes is no sign."""
    assert signs_of(write(tmp_path, {})) == set()


@pytest.mark.parametrize("path", SHOWN_BY_FILES)
def test_a_file_is_a_sign(tmp_path: Path, path: str) -> None:
    """The file alone shows its sign and no other."""
    assert signs_of(write(tmp_path, {path: b""})) == {SHOWN_BY_FILES[path]}


@pytest.mark.parametrize("path", SHOWN_BY_CONTENT)
def test_content_is_a_sign(tmp_path: Path, path: str) -> None:
    """What newer versions write into a file shows its sign and no other."""
    data, sign = SHOWN_BY_CONTENT[path]
    root = write(tmp_path, {path: data})
    if path.endswith(".bak"):
        (root / path.removesuffix(".bak")).write_bytes(b"")
    assert signs_of(root) == {sign}


@pytest.mark.parametrize(
    ("number", "sign"),
    [
        (3, "checkpoint-master-flushed-offset"),
        (4, "checkpoint-confirm-offset"),
        (5, "checkpoint-logics-offset"),
        (6, None),
    ],
)
def test_the_checkpoint_shows_signs(tmp_path: Path, number: int, sign: str | None) -> None:
    """A number that older versions leave at 0 is a sign; bytes that nobody uses are none."""
    data = bytes(8 * number) + (1).to_bytes(8, "big")
    root = write(tmp_path, {"checkpoint": data.ljust(4096, b"\0")})
    assert signs_of(root) == ({sign} if sign else set())


@pytest.mark.parametrize(
    ("slots", "units", "counted_once"), [(9, 10, True), (10, 10, False), (0, 10, False), (0, 0, False)]
)
def test_counted_slots_are_a_sign(tmp_path: Path, slots: int, units: int, counted_once: bool) -> None:
    """Fewer used slots than keys show that a slot is counted once; an untouched header shows nothing."""
    file = IndexFile(tmp_path / "index", 40, 0, 0, 0, 0, slots, units + 1)
    assert signs_of(write(tmp_path, {}), [file]) == ({"index-slots-counted-once"} if counted_once else set())


@pytest.mark.parametrize("data", [b"[]", b'{"dataVersion":1}', b'{"dataVersion":["stateVersion"]}', b"{", b"\xff", b""])
def test_odd_configuration_is_no_sign(tmp_path: Path, data: bytes) -> None:
    """Files of another shape, and broken ones, show nothing and break nothing."""
    assert signs_of(write(tmp_path, {"config/topics.json": data, "config/consumerOffset.json": data})) == set()


def test_an_abort_directory_is_no_sign(tmp_path: Path) -> None:
    """What cannot be read is passed over."""
    root = write(tmp_path, {})
    (root / "abort").unlink()
    (root / "abort").mkdir()
    assert signs_of(root) == set()


RECORDS: dict[str, dict[str, Any]] = {
    "ipv6-host": {"sys_flag": BORN_HOST_V6},
    "inner-batch": {"sys_flag": INNER_BATCH},
    "compression-type": {"sys_flag": COMPRESSED | 0x200, "body": b"x"},
    "magic-code-v2": {"magic_code": MAGIC_CODE_V2},
    "crc32-property": {"properties": b"__CRC32#\x010000000012\x02"},
}
PLAIN: list[dict[str, Any]] = [
    {},
    {"sys_flag": COMPRESSED},
    {"sys_flag": 0x200},
    {"properties": {"KEYS": "__CRC32#"}},
    {"body": b"__CRC32#\x010000000012\x02"},
    {"topic": "__CRC32#"},
]


def log_of(root: Path, *messages: dict[str, Any]) -> tuple[MappedFile, ...]:
    return list_mapped_files(LogBuilder().add_all(messages).write(root) / LOG).files


@pytest.mark.parametrize("sign", RECORDS)
def test_a_record_is_a_sign(tmp_path: Path, sign: str) -> None:
    """One record among others shows its sign and no other."""
    assert sampled_signs(log_of(tmp_path, *PLAIN, RECORDS[sign], *PLAIN)) == {sign}


def test_plain_records_show_nothing(tmp_path: Path) -> None:
    """What old brokers store too is no sign, nor is text that looks like one."""
    assert sampled_signs(log_of(tmp_path, *PLAIN)) == set()
    assert sampled_signs(()) == set()


@pytest.mark.parametrize("number", [0, 5, 8, 9, 10])
def test_some_files_are_sampled(tmp_path: Path, number: int) -> None:
    """The first, the middle and the last three files are looked at, also when the last is empty."""
    builder = LogBuilder()
    for current in range(11):
        if current:
            builder.roll()
        builder.add(**(RECORDS["magic-code-v2"] if current == number else {}))
    files = list_mapped_files(builder.write(tmp_path) / LOG).files
    assert sampled_signs(files) == {"magic-code-v2"}
    files[-1].path.write_bytes(bytes(4096))
    assert sampled_signs(files) == ({"magic-code-v2"} if number < 10 else set())


BOUNDS = {"4.4.0": None, "4.7.1": "4.7.1", "4.9.7": "4.9.4", "5.1.4": "5.1.0", "5.3.3": "5.1.0", "5.5.0": "5.5.0",
          "5.5.1": "5.5.0"}  # fmt: skip
EXCEPTIONS = {"4.9.7-shop": "4.9.3", "5.3.3-crc32-property": "5.2.0", "5.3.3-shop": "5.2.0", "5.5.0-shop": "5.4.0",
              "5.5.1-killed": "5.4.0"}  # fmt: skip


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", stores.names())
def test_golden_stores_show_a_lower_bound(name: str, golden_store: GoldenStore) -> None:
    """No release shows a sign of a later one, 4.4.0 shows nothing, and 5.5.0 mostly itself."""
    version = name.partition("-")[0]
    expected = EXCEPTIONS.get(name, BOUNDS[version])
    signs = overview_of(open_store(golden_store(name))).signs
    assert (str(signs[-1].since) if signs else None) == expected
    assert all(sign.since <= parse_version(version) for sign in signs)


@pytest.mark.parametrize(
    ("name", "shown"),
    [("5.5.0-clean", "5.5.0"), ("5.5.1-clean", "5.5.1"), ("5.5.0-shop", "5.5.0"), ("5.5.1-shop", "5.5.1")],
)
def test_the_newest_releases_are_told_apart(name: str, shown: str, golden_store: GoldenStore) -> None:
    """Only 5.5.0 keeps offsets of pulls in the file."""
    assert str(Snapshot(open_store(golden_store(name))).releases) == shown


@pytest.mark.parametrize(("name", "expected"), [("5.5.0-clean", True), ("4.9.7-trimmed", False)])
def test_whether_the_index_holds_tags(golden_store: GoldenStore, name: str, expected: bool) -> None:
    """By the newest units of messages that have tags."""
    assert Snapshot(open_store(golden_store(name))).index_holds_tags is expected
