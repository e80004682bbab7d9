"""Queues of which the log holds no message: a rebuild leaves them as they are, but a broker must be able to load them.

Their units point to deleted messages, and only show at which offset the queue continues.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.findings.finding import Finding
from rmqtool.repair.log_files import Resized, is_resizable
from rmqtool.repair.places import name_in_store
from rmqtool.rules.file_sizes import queue_file_size
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.unknown_sizes import common_file_sizes

_WHY = (
    "the log holds no message of these queues, so that a rebuild leaves them as they are: put their files back from a "
    "backup or a replica. Without one set their groups after what is damaged, once the broker runs (mqadmin "
    "resetOffsetByTime -g GROUP -t TOPIC -s now)"
)
_WHY_AHEAD = (
    "the log holds no message of these queues, so that a rebuild leaves them as they are; a start cuts the units that "
    "lead past the end of the log"
)
_AHEAD = "consumequeue.ahead"
_OF_SIZE = frozenset({"consumequeue.file-size", "start.refuses"})
_OF_THE_STORE = frozenset({"store.abort-missing"})  # reported since units of some queue lead after the log
_MENDED = "consumequeue.row"  # a rebuild that writes the database again leaves such rows out


def split_kept(findings: Sequence[Finding], queues_in_log: Set[QueueName]) -> tuple[list[Finding], list[Finding]]:
    """Split `findings`, which a rebuild would treat: those about queues that it leaves as they are, and the others."""
    kept, rest = list[Finding](), list[Finding]()
    for each in findings:
        name = None if each.code == _MENDED else _queue_of(each)
        (rest if name is None or name in queues_in_log else kept).append(each)
    is_explained = any(each.code == _AHEAD for each in kept) and all(each.code in _OF_THE_STORE for each in rest)
    return ([*kept, *rest], []) if is_explained else (kept, rest)


def reasons_for(kept: Set[str]) -> Iterator[tuple[frozenset[str], str]]:
    """Why no repair fixes what is found of queues that a rebuild keeps, for each group of the codes."""
    ahead = kept & {_AHEAD, *_OF_THE_STORE}
    for codes, why in ((ahead, _WHY_AHEAD), (kept - ahead, _WHY)):
        if codes:
            yield frozenset(codes), why


def ends_behind_log(findings: Sequence[Finding], kept: Sequence[Finding]) -> bool:
    """Whether a rebuild cuts units that point after the log's end, as a start would: not those of `kept` queues."""
    if not any(finding.code == "commitlog.last-file-missing" for finding in findings):
        return False
    ahead = {each for each in findings if each.code == _AHEAD}
    return not ahead or not ahead.issubset(kept)


def resized_files(snapshot: Snapshot, kept: Sequence[Finding]) -> Iterator[Resized]:
    """The files of the queues of `kept` findings that are short, or have zeros after the size of all others."""
    names = {_queue_of(each) for each in kept if each.code in _OF_SIZE}
    usual = common_file_sizes(snapshot.queues) if names else {}
    for queue in snapshot.queues if names else ():
        size = queue_file_size(snapshot.store.conf, queue.kind) or usual.get(queue.kind)
        for file in queue.files.files if size and QueueName(queue.topic, queue.queue_id) in names else ():
            name = name_in_store(snapshot.store, file.path)
            if name and size and file.size != size and is_resizable(file, size):
                yield Resized(name, file.path, file.size, size, _OF_SIZE, queue.unit_size)


def _queue_of(finding: Finding) -> QueueName | None:
    """The queue that a finding names, or whose file a start is refused for."""
    if finding.topic is not None and finding.queue_id is not None:
        return QueueName(finding.topic, finding.queue_id)
    if finding.details.get("cause") == "queue-file":
        return QueueName(finding.details["topic"], finding.details["queue_id"])
    return None
