"""Whether the compacted logs are there, from which alone consumers of compacted topics read (`CompactionStore`)."""

from __future__ import annotations

from collections.abc import Iterator

from rmqtool.base.mapped_files import list_mapped_files
from rmqtool.findings.finding import counted
from rmqtool.findings.report import Report
from rmqtool.store.config_json import load_config
from rmqtool.store.paths import COMPACTION, COMPACTION_CHECKPOINT, COMPACTION_LOG, COMPACTION_QUEUE
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import Store

_CODE = "store.compacted-log"


def check_compacted_logs(snapshot: Snapshot, report: Report) -> None:
    """Check that each queue of a compacted topic that has messages has a log and a queue below ``compaction/``.

    Where the checkpoint there names the queue, they are lost; else they are, or the topic was made a compacted one
    after its messages were written: a broker does not compact what is in the log already.
    """
    store = snapshot.store
    if snapshot.holder is not None:  # which moves these files when it compacts
        return
    if not store.conf.is_on("enableCompaction", default=True):
        return  # the broker reads the plain queues
    compacted = set(_compacted_before(store))
    doubtful = []
    for topic, queue_id in _queues_with_messages(snapshot):
        report.check(_CODE)
        if missing := _missing_of(store, topic, queue_id):
            if f"{topic}_{queue_id}" in compacted:
                report.add(_CODE, topic=topic, queue_id=queue_id, file=missing)
            else:
                doubtful.append(f"{topic} {queue_id}")
    if doubtful:
        text = f"{counted(len(doubtful), 'queue')} of compacted topics ({doubtful[0]}) without a compacted log, which "
        text += "consumers read alone: it is lost, or the topic was made a compacted one later"
        report.doubt("whether compacted logs are lost", text)


def _queues_with_messages(snapshot: Snapshot) -> Iterator[tuple[str, int]]:
    topics = {name for name, topic in snapshot.topics.by_name.items() if topic.is_compacted}
    for queue in snapshot.queues if topics else ():
        if queue.topic in topics and (queue.files.files or queue.database):
            yield queue.topic, queue.queue_id


def _compacted_before(store: Store) -> Iterator[str]:
    """Queues as ``TOPIC_QUEUE`` that a compaction has reached (`CompactionPositionMgr`)."""
    positions = load_config(store.root / COMPACTION / COMPACTION_CHECKPOINT).content.get("queueOffsetMap")
    yield from positions if isinstance(positions, dict) else ()


def _missing_of(store: Store, topic: str, queue_id: int) -> str | None:
    """The folder without a file, of the two that a queue's messages are in."""
    for base in (COMPACTION_LOG, COMPACTION_QUEUE):
        folder = store.root / COMPACTION / base / topic / str(queue_id)
        if not list_mapped_files(folder).files:
            return store.relative(folder)
    return None
