"""Damages of tiered storage, done to the recorded stores that have a tier."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rmqtool.formats.tiered import cluster_directory, segment_name
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.store.config_json import load_config

QUEUE = Path("tiered") / cluster_directory("LabCluster") / "broker-a" / "history" / "0"
LOG, UNITS = QUEUE / "COMMIT_LOG", QUEUE / "CONSUME_QUEUE"
FIRST = segment_name(0)
METADATA = Path("config") / "tieredStoreMetadata.json"
UNIT = 20


def conf_of(store: Path, **settings: str) -> BrokerConf:
    """The broker.conf that such a store was written with."""
    return BrokerConf({
        "messageStorePlugIn": "org.apache.rocketmq.tieredstore.TieredMessageStore",
        "tieredBackendServiceProvider": "org.apache.rocketmq.tieredstore.provider.PosixFileSegment",
        "tieredStoreFilePath": str(store / "tiered"), "brokerName": "broker-a", "brokerClusterName": "LabCluster",
        **settings,
    })  # fmt: skip


def expire(store: Path) -> None:
    """Take away the first file of the local commit log, and files of units that lead there, as the cleaner does."""
    min(path for path in (store / "commitlog").iterdir()).unlink()
    for queue in (store / "consumequeue" / "history").iterdir():
        for path in sorted(queue.iterdir())[:2]:  # 60 units; the third file leads into both
            path.unlink()


def with_ends(store: Path, first: int, step: int) -> None:
    """Give the first segment of each flat file its end, and each after it one that is `step` later, ms."""
    metadata: dict[str, Any] = load_config(store / METADATA).content
    for table in ("commitLogFileSegmentTable", "consumeQueueFileSegmentTable"):
        for rows in metadata[table].values():
            for number, base in enumerate(sorted(rows, key=int)):
                rows[base]["endTimestamp"] = first + number * step
    (store / METADATA).write_text(json.dumps(metadata))


def overwrite(path: Path, position: int, data: bytes) -> None:
    """Write `data` into a file."""
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


def _without_metadata(store: Path) -> None:
    for name in (METADATA, METADATA.with_name(f"{METADATA.name}.bak")):
        (store / name).unlink(missing_ok=True)


def _ends_early(store: Path) -> None:
    """The tier of a queue has its first segment of units only, and the local store begins after it."""
    expire(store)
    metadata: dict[str, Any] = load_config(store / METADATA).content
    rows = metadata["consumeQueueFileSegmentTable"]["broker-a/history/0"]
    for base in [each for each in rows if int(each) > 0]:
        del rows[base]
        (store / UNITS / segment_name(int(base))).unlink()
    (store / METADATA).write_text(json.dumps(metadata))


def begin_later(store: Path) -> None:
    """Take away the first segments of the tier of a queue, as the tier's own expiry does."""
    metadata: dict[str, Any] = load_config(store / METADATA).content
    for table, part in (("commitLogFileSegmentTable", LOG), ("consumeQueueFileSegmentTable", UNITS)):
        del metadata[table]["broker-a/history/0"]["0"]
        (store / part / FIRST).unlink()
    (store / METADATA).write_text(json.dumps(metadata))


def with_tags(store: Path, tags: bytes) -> None:
    """Give the first record of a tier that has Tag1 others of this size; its entry keeps the hash of the old ones."""
    data = (store / LOG / FIRST).read_bytes()
    overwrite(store / LOG / FIRST, data.index(b"TAGS\1Tag1") + 5, tags)


class Damage(NamedTuple):
    """A damage, and what is found under which code: its problem."""

    apply: Callable[[Path], object]
    code: str
    problem: str = ""
    others: frozenset[str] = frozenset()


def _last(store: Path, part: Path) -> Path:
    return max((store / part).iterdir(), key=lambda path: path.name[8:])


DAMAGES = {
    "no metadata": Damage(_without_metadata, "tiered.metadata"),
    "torn metadata": Damage(
        lambda s: [(s / each).write_text("{") for each in (METADATA, f"{METADATA}.bak")], "tiered.metadata"
    ),
    "the tier ends early": Damage(_ends_early, "tiered.destroyed"),
    "no last segment of units": Damage(lambda s: _last(s, UNITS).unlink(), "tiered.segment", "missing"),
    "no log segment": Damage(lambda s: (s / LOG / FIRST).unlink(), "tiered.segment", "missing"),
    "torn units": Damage(lambda s: os.truncate(s / UNITS / FIRST, 993), "tiered.segment", "short"),
    "a torn end": Damage(lambda s: os.truncate(_last(s, UNITS), 393), "tiered.segment", "short"),
    "another name": Damage(lambda s: (s / UNITS / FIRST).rename(s / UNITS / "x"), "tiered.segment", "stray"),
    "a unit": Damage(lambda s: overwrite(s / UNITS / FIRST, 3 * UNIT + 6, b"\1"), "tiered.unit"),
    "a tag": Damage(lambda s: overwrite(s / UNITS / FIRST, 3 * UNIT + 18, b"\1"), "tiered.unit"),
    "a record's tag": Damage(lambda s: with_tags(s, b"Tag\x91"), "tiered.record", "tags"),
    "a body": Damage(lambda s: overwrite(s / LOG / FIRST, 90, b"\0"), "tiered.record", "body"),
    "a key": Damage(lambda s: overwrite(s / LOG / FIRST, 120, b"\x7f"), "tiered.record", "fields"),
    "a time of birth": Damage(lambda s: overwrite(s / LOG / FIRST, 45, b"\x7f"), "tiered.record", "differs"),
    "zeros after the log": Damage(
        lambda s: _last(s, LOG).write_bytes(_last(s, LOG).read_bytes() + bytes(100) + b"x"), "tiered.record"
    ),
}


def index_of(store: Path) -> Path:
    """The one index segment of a store; that of 5.1.4 had not been uploaded."""
    [path] = (store / QUEUE.parent.parent / "rmq_sys_INDEX" / "0" / "INDEX").iterdir()
    return path


INDEX_DAMAGES = {
    "size": lambda path: os.truncate(path, path.stat().st_size - 7),
    "slot": lambda path: overwrite(path, 28 + 50 * 8 + 3, b"\x99"),
    "item": lambda path: overwrite(path, 28 + 50 * 8 + 12 + 6, b"\x99"),
}
"""Damages of an index segment of 50 slots, by the problem that is found."""


def damaged(store: Path, name: str) -> Path:
    """The store with one of the damages."""
    DAMAGES[name].apply(store)
    return store
