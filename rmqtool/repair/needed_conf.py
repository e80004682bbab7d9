"""Whether a rebuild needs broker.conf: for sizes and delays that no file of the store shows (`--broker-conf`)."""

from __future__ import annotations

from collections.abc import Sequence

from rmqtool.findings.finding import Finding
from rmqtool.rules.system_topics import SCHEDULE_TOPIC
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.unknown_sizes import unknown_sizes

CONF = ("--broker-conf", "BROKER_CONF")


def why_conf(snapshot: Snapshot, findings: Sequence[Finding], *, queues: bool, index: bool) -> str | None:
    """Why broker.conf has to go with a rebuild of `queues` or of the `index`; None where it need not."""
    has_files = snapshot.store.layout != "rocksdb" or snapshot.has_queues_twice
    wanted = {*(["simple"] if queues and has_files else []), *(["index"] if index else [])}
    unknown = sorted(wanted & unknown_sizes(snapshot))
    if queues and _lacks_delays(snapshot, findings):
        return "with its broker.conf: the rows of delayed messages follow from messageDelayLevel"
    if not unknown:
        return None
    names = " and ".join("an index file" if kind == "index" else "a queue file" for kind in unknown)
    return f"with its broker.conf, because no file shows the size of {names}"


def _lacks_delays(snapshot: Snapshot, findings: Sequence[Finding]) -> bool:
    """Whether only broker.conf may know the delays of rows, as `RebuildPlan.require_release` demands it."""
    return (
        snapshot.store.layout == "rocksdb"
        and snapshot.store.conf.path is None
        and any(
            each.code == "consumequeue.database"
            or (each.code == "consumequeue.missing-queue" and each.topic == SCHEDULE_TOPIC)
            for each in findings
        )
    )
