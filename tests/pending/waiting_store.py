"""A store in which messages wait for every reason, and what is there to know about it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rmqtool.base.tolerant import ReadErrors
from rmqtool.pending.work import PendingRequest, PendingWork, pending_work
from rmqtool.rules.broker_conf import delay_levels_of, parse_broker_conf
from rmqtool.rules.versions import parse_version
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.building import START_TIME
from tests.unchanged import unchanged
from tests.verify.small_store import StoreBuilder, finish

SCHEDULE, TIMER = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"
HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"
TRANSACTIONS, REVIVING = "CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_REVIVE_GROUP"
DELAYS = delay_levels_of(parse_broker_conf("")).delays


class WaitingStore(StoreBuilder):
    """A log of messages that wait; a message is stored a millisecond after the one before."""

    def __init__(self) -> None:
        super().__init__(file_size=1 << 16)
        self.committed: dict[tuple[str, str], int] = {}  # by group and topic, of queue 0
        self.delivered: dict[int, int] = {}  # by delay level
        self._count = 0

    def message(self, topic: str, queue_id: int = 0, body: bytes | None = None, /, **properties: str) -> int:
        """Store a message with a key of its own; return its physical offset."""
        self._count += 1
        named = {"KEYS": f"key-{self._count}", "UNIQ_KEY": f"7F000001000018B4AAC2{self._count:012X}", **properties}
        times: dict[str, Any] = {"store_timestamp": START_TIME + self._count, "born_timestamp": START_TIME}
        return self.put(topic, queue_id, body=body or b"body", properties=named, **times)

    def delay(self, level: int, to: str = "orders", /, **properties: str) -> int:
        """A message of a delay level; when it is due, epoch ms."""
        named = {"DELAY": str(level), "REAL_TOPIC": to, "REAL_QID": "0", **properties}
        self.message(SCHEDULE, level - 1, **named)
        return START_TIME + self._count + DELAYS[level - 1]

    def timer(self, due: int, to: str = "orders", body: bytes | None = None, /, **properties: str) -> int:
        """A message of the timer; its physical offset."""
        named = {"REAL_TOPIC": to, "REAL_QID": "0", "TIMER_OUT_MS": str(due), **properties}
        return self.message(TIMER, 0, body, **named)

    def half(self, **properties: str) -> int:
        """A half message; its queue offset."""
        named = {"REAL_TOPIC": "payments", "REAL_QID": "0", "PGROUP": "payers", **properties}
        self.message(HALF, **named)
        return self.next_offsets[HALF, 0] - 1

    def op(self, *halves: int) -> None:
        """An op message that ends half messages, by their queue offsets."""
        self.message(OP, 0, "".join(f"{offset}," for offset in halves).encode(), TAGS="d")

    def check_point(self, tag: str = "ck", topic: str = REVIVE, **fields: Any) -> None:
        """A check point or an acknowledgement of the group `workers`, in a revive topic or the timer's."""
        named = {"t": "tasks", "q": 0, "c": "workers", "so": 0, "pt": START_TIME, "bn": "shop", **fields}
        self.message(topic, 0, json.dumps(named).encode(), TAGS=tag)

    def build(self, root: Path) -> Path:
        """Write the store with its queues, the committed offsets and those of the delay levels."""
        finish(self.write(root), geometry=None)
        offsets = {f"{topic}@{group}": {"0": offset} for (group, topic), offset in self.committed.items()}
        self._write(root, "consumerOffset.json", offsets)
        self._write(root, "delayOffset.json", {str(level): offset for level, offset in self.delivered.items()})
        return root

    @staticmethod
    def _write(root: Path, name: str, table: Mapping[str, Any]) -> None:
        (root / "config" / name).write_text(json.dumps({"offsetTable": table}))


def work_of(
    root: Path, now: int = START_TIME, version: str | None = None, conf: str = "", **request: Any
) -> PendingWork:
    """What waits in a store, with all messages; the store is as before."""
    errors = ReadErrors()
    release = None if version is None else parse_version(version)
    with unchanged(root):
        snapshot = Snapshot(open_store(root, parse_broker_conf(conf)), release, scope=errors.scope)
        return pending_work(snapshot, errors, PendingRequest(now, **{"limit": 10_000, **request}), lambda done: None)


def rows_of(work: PendingWork, *kinds: str) -> list[dict[str, Any]]:
    """The listed messages of some kinds, or all."""
    rows: list[dict[str, Any]] = work.messages.to_pylist()
    return [row for row in rows if not kinds or row["kind"] in kinds]


def places(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, int, int]]:
    """Topic, queue and queue offset of each message."""
    return [(row["topic"], row["queue_id"], row["queue_offset"]) for row in rows]


def counts(work: PendingWork) -> dict[str, int]:
    """Messages by kind."""
    found: dict[str, int] = {}
    for each in work.receivers:
        found[each.kind] = found.get(each.kind, 0) + each.count.messages
    return found
