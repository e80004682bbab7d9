"""Whether a repair needs broker.conf: for sizes and delays that no file of the store shows (`--broker-conf`)."""

from __future__ import annotations

from rmqtool.repair.diagnosis import Diagnosis, Repairs
from rmqtool.rules.system_topics import SCHEDULE_TOPIC
from rmqtool.store.missing import Sized, unknown_sizes

CONF = ("--broker-conf", "BROKER_CONF")
_NAMES = {"simple": "a queue file", "batch": "a batch queue file", "index": "an index file"}


def why_conf(diagnosis: Diagnosis, repairs: Repairs) -> str | None:
    """Why broker.conf has to go with a repair, whichever of its transactions needs it; None where it need not."""
    if _rebuilds_queues(diagnosis, repairs) and _lacks_delays(diagnosis):
        return "with its broker.conf: the rows of delayed messages follow from messageDelayLevel"
    unknown = sorted(needed_sizes(diagnosis, repairs))
    if not unknown:
        return None
    names = " and ".join(_NAMES[kind] for kind in unknown)
    return f"with its broker.conf, because no file shows the size of {names}"


def needed_sizes(diagnosis: Diagnosis, repairs: Repairs) -> frozenset[Sized]:
    """The kinds of files whose size a repair needs in one of its transactions, and which only broker.conf knows.

    The last whole file of a kind may be the one that it takes away first. Once the queues are rebuilt no start puts the
    keys any more that are missing after a crash, so that the index follows.
    """
    snapshot = diagnosis.snapshot
    queues = _rebuilds_queues(diagnosis, repairs) and (snapshot.store.layout != "rocksdb" or snapshot.has_queues_twice)
    is_later = "index" in diagnosis.by_treatment if repairs.goes_on else False
    follows = diagnosis.keys_missing and (repairs.queues or repairs.goes_on)
    wanted = {
        "simple": queues,
        "batch": queues and _is_of_batch_queue(diagnosis),
        "index": repairs.index or is_later or follows,
    }
    return frozenset(kind for kind in unknown_sizes(snapshot) if wanted[kind])


def _rebuilds_queues(diagnosis: Diagnosis, repairs: Repairs) -> bool:
    return repairs.queues or (repairs.goes_on and "queues" in diagnosis.by_treatment)


def _is_of_batch_queue(diagnosis: Diagnosis) -> bool:
    """Whether a finding is about a batch queue: one that is there, or that its topic is configured to have."""
    snapshot = diagnosis.snapshot
    topics = {queue.topic for queue in snapshot.queues if queue.kind == "batch"}
    topics |= snapshot.topics.with_batch_queues or frozenset()
    return any(each.topic in topics for each in diagnosis.findings if each.code.startswith("consumequeue."))


def _lacks_delays(diagnosis: Diagnosis) -> bool:
    """Whether only broker.conf may know the delays of rows, as `RebuildPlan.require_release` demands it."""
    store = diagnosis.snapshot.store
    return (
        store.layout == "rocksdb"
        and store.conf.path is None
        and any(
            each.code == "consumequeue.database"
            or (each.code == "consumequeue.missing-queue" and each.topic == SCHEDULE_TOPIC)
            for each in diagnosis.findings
        )
    )
