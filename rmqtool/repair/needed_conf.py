"""Whether a rebuild needs broker.conf: for sizes and delays that no file of the store shows (`--broker-conf`)."""

from __future__ import annotations

from collections.abc import Sequence

from rmqtool.findings.finding import Finding
from rmqtool.rules.system_topics import SCHEDULE_TOPIC
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.unknown_sizes import unknown_sizes

CONF = ("--broker-conf", "BROKER_CONF")
_NAMES = {"simple": "a queue file", "batch": "a batch queue file", "index": "an index file"}


def why_conf(snapshot: Snapshot, findings: Sequence[Finding], *, queues: bool, index: bool) -> str | None:
    """Why broker.conf has to go with a rebuild of `queues` or of the `index`; None where it need not."""
    has_files = snapshot.store.layout != "rocksdb" or snapshot.has_queues_twice
    is_batch = _is_of_batch_queue(snapshot, findings)
    wanted = {"simple": queues and has_files, "batch": queues and has_files and is_batch, "index": index}
    unknown = sorted(kind for kind in unknown_sizes(snapshot) if wanted[kind])
    if queues and _lacks_delays(snapshot, findings):
        return "with its broker.conf: the rows of delayed messages follow from messageDelayLevel"
    if not unknown:
        return None
    names = " and ".join(_NAMES[kind] for kind in unknown)
    return f"with its broker.conf, because no file shows the size of {names}"


def _is_of_batch_queue(snapshot: Snapshot, findings: Sequence[Finding]) -> bool:
    """Whether a finding is about a batch queue: one that is there, or that its topic is configured to have."""
    topics = {queue.topic for queue in snapshot.queues if queue.kind == "batch"}
    topics |= snapshot.topics.with_batch_queues or frozenset()
    return any(each.topic in topics for each in findings if each.code.startswith("consumequeue."))


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
