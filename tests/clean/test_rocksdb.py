"""Plans for stores with queues, offsets and half messages in RocksDB: as for files, and what becomes of the rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rmqtool.broker.cleaner import unconfigured_findings
from rmqtool.clean.losses import Losses, Undelivered, losses_of
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import NEWEST, Version, parse_version
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.building import LogBuilder
from tests.changed_rocksdb import (
    changed,
    half_row,
    manifest_cut,
    number,
    unit_key,
    unit_value,
    write_queues,
    write_rows,
)
from tests.clean.planning import FOUR, HOUR, planned, set_mtime
from tests.commands.running import rmqtool
from tests.golden import stores
from tests.golden.rocksdb import ROCKSDB
from tests.unchanged import unchanged

OTHER_QUEUES = ("5.1.4-rocksdb", "5.3.3-rocksdb-second-config", "5.5.0-rocksdb-side", "5.5.1-rocksdb-selected")
HALF = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
TWICE = {"rocksdbCQDoubleWriteEnable": "true"}
OLD = 3
"""Log files that have expired, of four messages each; a young one with four more follows."""


def store_of(root: Path, *topics: str, stale: int = 0, bodies: Mapping[int, str] | None = None) -> Path:
    """A message of each topic in turn, its row; `stale` rows before them lead to a file that is gone."""
    log, counts = LogBuilder(file_size=1200), dict.fromkeys(topics, 0)
    rows: list[tuple[str, int, int, bytes]] = []
    for each in range(4 * (OLD + 1)):
        if each and each % 4 == 0:
            log.roll()
        topic = (bodies or {}).get(each, topics[each % len(topics)])
        counts.setdefault(topic, 0)
        at = log.add(topic=topic, queue_offset=counts[topic], store_timestamp=FOUR - 100 * HOUR)
        rows.append((topic, 0, counts[topic], unit_value(at, 100, 7, FOUR - 100 * HOUR)))
        counts[topic] += 1
    log.write(root)
    files = sorted((root / "commitlog").iterdir())
    for file, age in zip(files, (*(100,) * OLD, 1), strict=True):
        set_mtime(file, FOUR - age * HOUR)
    if stale:
        files[0].unlink()
    write_queues(root, rows, log.end)
    (root / "config").mkdir()
    return configure(root, *topics)


def configure(root: Path, *topics: str) -> Path:
    table = {name: {"topicName": name, "readQueueNums": 1, "writeQueueNums": 1} for name in topics}
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    return root


def commit(root: Path, **offsets: int) -> None:
    table = {f"orders@{group}": {"0": offset} for group, offset in offsets.items()}
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": table}))


def losses(root: Path, conf: BrokerConf | None = None, **how: Any) -> Losses:
    with unchanged(root):
        return losses_of(planned(root, conf=conf, **{"version": NEWEST, **how}))


def test_groups_lose_what_the_rows_say(tmp_path: Path) -> None:
    """Group, queue and messages, as of queues in files."""
    root = store_of(tmp_path, "orders", "paper")
    commit(root, slow=2, fast=6, past=9)
    found = losses(root)
    assert [(each.group, each.queue_id, each.messages_lost, each.min_offset_after) for each in found.groups] == [
        ("fast", 0, 0, 6),
        ("past", 0, 0, 6),
        ("slow", 0, 4, 6),
    ]
    assert found.is_known
    assert found.messages_deleted == 12
    assert [(each.topic, each.messages_left) for each in found.topics] == [("orders", 2), ("paper", 2)]


@pytest.mark.parametrize(
    ("how", "dropped", "left"),
    [
        ({}, [12], 0),
        ({"now": FOUR + 2 * HOUR, "percent": 80}, [12], 0),  # the disk is too full
        ({"now": FOUR + 2 * HOUR, "is_manual": True}, [0], 12),
        ({"now": FOUR + 2 * HOUR}, [0], 0),  # nothing goes
        ({"version": Version(5, 3, 3)}, [12], 0),
    ],
)
def test_when_rows_go(tmp_path: Path, how: dict[str, Any], dropped: list[int], left: int) -> None:
    """With the hour, or the disk; not when an administrator has the files deleted."""
    rows = losses(store_of(tmp_path, "orders", "paper"), **how).rows
    assert rows is not None
    assert (rows.now, list(rows.dropped), rows.left, rows.is_filtered) == (0, dropped, left, True)


def test_rows_of_files_that_are_gone(tmp_path: Path) -> None:
    """They stay until a run finds the hour, though it has no file to delete."""
    root = store_of(tmp_path, "orders", stale=4)
    for file in sorted((root / "commitlog").iterdir()):
        set_mtime(file, FOUR)
    rows, later = losses(root).rows, losses(root, now=FOUR + 2 * HOUR).rows
    assert rows is not None
    assert later is not None
    assert (rows.now, list(rows.dropped), rows.left) == (4, [4], 0)
    assert (later.now, list(later.dropped), later.left) == (4, [0], 4)


@pytest.mark.parametrize(("taken", "attributes", "left"), [((0,), {}, 3), ((0, 2), {"queue.type": "BatchCQ"}, 2)])
def test_rows_that_an_earlier_compaction_left(
    tmp_path: Path, taken: tuple[int, ...], attributes: dict[str, str], left: int
) -> None:
    """They do not begin at 0; in a batch queue not every offset has one."""
    root = store_of(tmp_path, "orders", stale=4)
    with changed(root / "consumequeue") as families:
        for offset in taken:
            del families["default"][unit_key("orders", 0, offset)]
    topic = {"topicName": "orders", "readQueueNums": 1, "writeQueueNums": 1, "attributes": attributes}
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {"orders": topic}}))
    rows = losses(root, now=FOUR + 2 * HOUR).rows
    assert rows is not None
    assert rows.now == left


@pytest.mark.parametrize(("version", "dropped"), [("5.3.3", 0), ("5.3.4", 12), ("5.5.0", 12)])
def test_queues_that_are_written_twice(tmp_path: Path, version: str, dropped: int) -> None:
    """Before the combined store the second database has a log of its own, without a file."""
    root = store_of(tmp_path, "orders")
    (root / "consumequeue" / "orders" / "0").mkdir(parents=True)
    (root / "consumequeue" / "orders" / "0" / ("0" * 20)).write_bytes(bytes(600))
    rows = losses(root, BrokerConf(TWICE), version=parse_version(version)).rows
    assert rows is not None
    assert (rows.is_filtered, list(rows.dropped), rows.left) == (dropped > 0, [dropped], 12 - dropped)


def test_what_people_read(tmp_path: Path) -> None:
    """A line about the rows, with the reason why they stay."""
    root = store_of(tmp_path, "orders")
    done = rmqtool("clean", root, "--dry-run", "--now", "2026-11-25T04:00:00Z", "--time-zone", "+00:00")
    assert "rows         12 rows of consumequeue/ are deleted with their messages\n" in done.out
    manual = rmqtool("clean", root, "--dry-run", "--manual", "--now", "2026-11-25T06:00:00Z", "--time-zone", "+00:00")
    text = " ".join(manual.out.split())
    assert "12 rows of consumequeue/ lead to deleted messages then: a compaction drops them" in text
    assert "in an hour of deleteWhen ('04') or above 75%" in text


@pytest.mark.parametrize("version", [None, "5.3.3"])
def test_json(tmp_path: Path, version: str | None) -> None:
    """The rows of all passes; null for queues in files."""
    arguments = ["--dry-run", "--json", "--now", "2026-11-25T04:00:00Z", "--time-zone", "+00:00"]
    arguments += ["--broker-version", version] if version else []
    result = rmqtool("clean", store_of(tmp_path, "orders"), *arguments).document["result"]
    assert result["rocksdb_rows"] == {
        "database": "consumequeue", "filtered": True, "below_log": 0, "dropped": [12], "below_log_after": 0,
    }  # fmt: skip
    files = rmqtool("clean", stores.unpack("5.3.3-single", tmp_path / "files"), *arguments).document["result"]
    assert files["rocksdb_rows"] is None


def test_topics_that_are_not_configured(tmp_path: Path) -> None:
    """The broker deletes their rows, but for those of topics that it makes itself."""
    topics = ("orders", "paper", "%RETRY%desk", "%LMQ%lamp", "SCHEDULE_TOPIC_XXXX", "rmq_sys_own")
    root = configure(store_of(tmp_path, *topics), "orders")
    found = list(unconfigured_findings(Snapshot(open_store(root))))
    assert [(each.code, each.topic) for each in found] == [
        ("clean.topic-rows-dropped", "%RETRY%desk"), ("clean.topic-rows-dropped", "paper"),
    ]  # fmt: skip
    assert "3 rows of 1 queue" in found[1].message
    stale = configure(store_of(tmp_path / "stale", *topics, stale=4), "orders")
    assert "2 rows of 1 queue" in [*unconfigured_findings(Snapshot(open_store(stale)))][1].message
    (root / "config" / "topics.json").write_text("{")
    assert list(unconfigured_findings(Snapshot(open_store(root)))) == []


@pytest.mark.parametrize(
    ("waiting", "indexed", "lost", "exact"),
    [((), 99999, None, True), ((0, 1, 14), 99999, 2, True), ((), 0, 11, False), (None, 0, 12, False)],
)
def test_half_messages(
    tmp_path: Path, waiting: tuple[int, ...] | None, indexed: int, lost: int | None, exact: bool
) -> None:
    """Those with a row, and those that are no rows yet; all of them where no row can be read."""
    root = store_of(tmp_path, HALF)
    starts = [each.physical_offset for each in rows_in(root)]
    if waiting is not None:
        rows = dict(half_row(starts[each]) for each in waiting)
        write_rows(root / "rocksdbstore", {"trans": {**rows, b"lastOffsetPy": number(indexed)}})
    found = losses(root).undelivered
    expected = [] if lost is None else [Undelivered("transaction", HALF, 0, lost, exact=exact)]
    assert found == expected


def rows_in(root: Path) -> list[Any]:
    loaded = Snapshot(open_store(root)).queue(HALF, 0)
    assert loaded is not None
    return [loaded.unit_at(offset) for offset in range(loaded.range.max_offset)]


def test_a_database_that_cannot_be_read(tmp_path: Path) -> None:
    """Nobody knows who loses what: no plan is made of it."""
    root = store_of(tmp_path, "orders")
    manifest_cut(root)
    done = rmqtool("clean", root, "--dry-run")
    assert done.status == 4
    assert "consumequeue" in done.err


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ROCKSDB if not name.endswith(OTHER_QUEUES)])
def test_golden_stores(tmp_path: Path, name: str) -> None:
    """Offsets and queues of all modes are read: what groups lose is known."""
    found = losses_of(planned(stores.unpack(name, tmp_path)))
    assert found.is_known
    assert found.groups
    assert found.rows is not None
    assert found.rows.now == 0
