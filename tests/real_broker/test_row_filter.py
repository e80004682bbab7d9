"""Rows of queues in RocksDB after the release's own cleaner: those of deleted messages and of unknown topics go."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.clean.losses import losses_of
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import parse_version
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.clean.planning import age, planned
from tests.copies import copied
from tests.real_broker.harness import Harness

pytestmark = [pytest.mark.broker, pytest.mark.slow]
IN_ROCKSDB = {"storeType": "defaultRocksDB"}
TWICE = {"rocksdbCQDoubleWriteEnable": "true"}
EVERY_HOUR = {"deleteWhen": ";".join(f"{hour:02}" for hour in range(24))}
UNKNOWN = "sensors"
Queues = dict[tuple[str, int], list[int]]


@pytest.mark.rare
@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("version", "settings"),
    [
        ("5.2.0", IN_ROCKSDB),
        ("5.3.3", IN_ROCKSDB),
        ("5.3.3", TWICE),  # which has no filter
        ("5.4.0", IN_ROCKSDB),
        ("5.4.0", TWICE),
        ("5.5.0", IN_ROCKSDB),
        ("5.5.0", {**TWICE, "combineCQUseRocksdbForLmq": "true"}),
    ],
)
def test_rows_that_go(
    harness: Callable[[str], Harness], tmp_path: Path, version: str, settings: dict[str, str]
) -> None:
    """Queue by queue, and the minimum of each; the same rows stay where it is not the hour."""
    broker, root, release = harness(version), tmp_path / "store", parse_version(version)
    root.mkdir()
    broker.write(root, "clean", settings=settings)
    forget(root, UNKNOWN)
    age(root, keep=4)
    conf = BrokerConf({**settings, **EVERY_HOUR})
    plan = planned(root, version=release, conf=conf)
    losses = losses_of(plan)
    assert losses.rows is not None
    assert losses.is_known
    assert (losses.rows.now, len(plan.deleted)) == (0, losses_files(root) - 4)
    before = rows_of(root)
    asleep = copied(root, tmp_path / "asleep")
    minimum = broker.filter_rows(root, {**settings, **EVERY_HOUR})
    assert minimum == plan.min_offset
    assert losses.rows.is_filtered is ((version, settings) != ("5.3.3", TWICE))
    first = minimum if losses.rows.is_filtered else 0
    alive = {queue: [at for at in offsets if at >= first] for queue, offsets in before.items()}
    expected = {queue: offsets for queue, offsets in alive.items() if offsets and queue[0] != UNKNOWN}
    assert rows_of(root) == expected
    gone = Counter({queue: len(offsets) - len(alive[queue]) for queue, offsets in before.items()})
    assert losses.rows.dropped == [gone.total()]
    assert (losses.rows.left == 0) is losses.rows.is_filtered
    assert (gone.total() > 100) is losses.rows.is_filtered
    assert alive[UNKNOWN, 0]
    broker.filter_rows(asleep, settings)
    assert rows_of(asleep) == {queue: offsets for queue, offsets in before.items() if queue[0] != UNKNOWN}


def losses_files(root: Path) -> int:
    return len(list((root / "commitlog").iterdir()))


def forget(root: Path, topic: str) -> None:
    """Take a topic out of the configuration."""
    path = root / "config" / "topics.json"
    content = json.loads(path.read_text())
    del content["topicConfigTable"][topic]
    path.write_text(json.dumps(content))


def rows_of(root: Path) -> Queues:
    """The physical offsets of all rows, by queue."""
    database = Snapshot(open_store(root)).database
    assert database is not None
    queues = {queue: database.units(queue, 0, 1 << 40).values["physical_offset"].tolist() for queue in database.lasts}
    database.close()
    return {queue: offsets for queue, offsets in queues.items() if offsets}
