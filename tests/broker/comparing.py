"""A predicted start and a real one, side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmqtool.broker.prediction import StartPrediction
from rmqtool.broker.recovery import Recovery
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.rules.versions import parse_version
from rmqtool.store.consume_queues import list_queues
from rmqtool.store.queue_units import queue_range
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import Store, open_store
from tests.unchanged import unchanged

CONF = BrokerConf(
    {
        "enableLmq": "true",
        "enableMultiDispatch": "true",
        "mappedFileSizeCommitLog": "65536",
        "mappedFileSizeConsumeQueue": "600",
        "mapperFileSizeBatchConsumeQueue": "460",
        "mapedFileSizeCommitLog": "65536",
        "mapedFileSizeConsumeQueue": "600",
    }
)
"""Of the harness's settings those that decide what is loaded and dispatched, the sizes also as 4.4.0 spells them."""

DATA = ("commitlog", "consumequeue", "batchconsumequeue", "index")

Bounds = dict[tuple[str, str, int], tuple[int, int]]
"""Minimum and maximum offset by kind, topic and queue id."""


@dataclass(frozen=True)
class Disagreement:
    """A case in which prediction and broker differ, and in what."""

    what: str
    field: str
    predicted: Any
    real: Any


def predict(version: str, root: Path) -> tuple[StartPrediction, Bounds]:
    """The prediction, and with it minimum and maximum of every queue after the start."""
    with unchanged(root):
        store = open_store(root, CONF)
        rules = RecoveryRules.of(parse_version(version), CONF)
        start = Recovery(Snapshot(store), rules).predict()
        return start, _bounds(store, rules, start)


def _bounds(store: Store, rules: RecoveryRules, start: StartPrediction) -> Bounds:
    files = store.commit_log().files
    minimum = files[0].start_offset if files else -1
    found: Bounds = {}
    for queue in list_queues(store):
        bounds = queue_range(queue, minimum, rules.version)
        found[queue.kind, queue.topic, queue.queue_id] = bounds.min_offset, bounds.max_offset
    for change in start.queues:
        found[change.kind, change.topic, change.queue_id] = change.min_offset, change.max_offset
    return found


def files_of(root: Path) -> set[str]:
    paths = (path for part in DATA for path in (root / part).rglob("*"))
    return {str(path.relative_to(root)) for path in paths if path.is_file()}


def compare(what: str, prediction: tuple[StartPrediction, Bounds], real: dict[str, Any]) -> Iterator[Disagreement]:
    """In what the prediction and the real start differ."""
    start, bounds = prediction
    refusal = real["refuses"]
    if bool(start.refuses) != bool(refusal) or start.hangs != (refusal == "hang"):
        yield Disagreement(what, "refuses", start.refuses, refusal)
        return
    if refusal and not start.hangs:
        return
    if start.max_offset_after != real["max_offset"]:
        yield Disagreement(what, "max_offset", start.max_offset_after, real["max_offset"])
    if start.files_deleted != real["deleted"]:
        predicted, deleted = set(start.files_deleted), set(real["deleted"])
        yield Disagreement(what, "files", sorted(predicted - deleted), sorted(deleted - predicted))
    for kind, topic, queue_id, *found in real["queues"]:
        if kind == "batch" and start.version.startswith("4."):
            continue  # a directory that such a broker does not know
        expected = bounds.get((kind, topic, queue_id), (0, 0))
        if list(expected) != found:
            yield Disagreement(what, f"{kind} {topic}/{queue_id}", list(expected), found)
