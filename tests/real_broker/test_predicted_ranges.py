"""Comparing what a start leaves with the prediction, where a queue is in files and in RocksDB; without Java."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.broker.recovery import Recovery
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.rules.versions import parse_version
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.broker.batches_twice import IN_FILES, IN_ROWS, TOPIC, batches_of_killed, make_rows
from tests.real_broker.predicted_ranges import PredictedRanges, Range

QUEUE = TOPIC, 0
TWICE = {"rocksdbCQDoubleWriteEnable": "true"}
ROWS_FIRST = {**TWICE, "combineCQPreferCQType": "defaultRocksDB"}


def predicted(root: Path) -> PredictedRanges:
    """What 5.3.3 would leave."""
    snapshot = Snapshot(open_store(root, BrokerConf(TWICE)), parse_version("5.3.3"))
    start = Recovery(snapshot, RecoveryRules.of(snapshot.release, snapshot.store.conf)).predict()
    return PredictedRanges.of(snapshot, start)


@pytest.mark.parametrize(
    ("settings", "answer", "differ"),
    [
        (TWICE, IN_FILES, []),
        (TWICE, IN_ROWS, [(QUEUE, IN_ROWS, IN_FILES)]),
        (ROWS_FIRST, IN_ROWS, []),
        (ROWS_FIRST, IN_FILES, [(QUEUE, IN_FILES, IN_ROWS)]),
    ],
)
def test_what_is_read(
    tmp_path: Path, settings: dict[str, str], answer: Range, differ: list[tuple[tuple[str, int], Range, Range]]
) -> None:
    """The broker's answer is that of the files, or that of the rows where it prefers them."""
    ranges = predicted(batches_of_killed(tmp_path))
    make_rows(tmp_path)
    after = Snapshot(open_store(tmp_path, BrokerConf(settings)), parse_version("5.4.0"))
    assert [each for each in ranges.compared(after, {QUEUE: answer}) if each[1] != each[2]] == differ


def test_what_is_not_read(tmp_path: Path) -> None:
    """Rows that were predicted, and are not there, are found though no answer comes from them."""
    ranges = predicted(batches_of_killed(tmp_path))
    after = Snapshot(open_store(tmp_path, BrokerConf(TWICE)), parse_version("5.3.3"))
    found = [each for each in ranges.compared(after, {QUEUE: IN_FILES}) if each[1] != each[2]]
    assert found == [(QUEUE, None, IN_ROWS)]
