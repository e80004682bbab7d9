"""What a store does not have: its log, files of it, sizes, messages for a filter; and why."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

from rmqtool.base.errors import UnreadableError
from rmqtool.base.times import rfc3339
from rmqtool.base.tolerant import skip_unreadable
from rmqtool.findings.finding import first_of
from rmqtool.formats.file_name import file_name
from rmqtool.rules.file_sizes import DEFAULT_LOG_FILE_SIZE, LOG_FILE_SIZE, queue_file_size
from rmqtool.rules.system_topics import is_system_topic
from rmqtool.scan.filters import Filters, TopicChoice, is_pattern
from rmqtool.store.checkpoint import CHECKPOINT_TIMES, credible
from rmqtool.store.commit_log import log_start
from rmqtool.store.consume_queues import Kind, Queue
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CHECKPOINT, COMMIT_LOG, Store

WHERE_IT_MAY_BE = "if broker.conf says that it is elsewhere, give it with --broker-conf"


def require_log(store: Store) -> None:
    """Raise UnreadableError for a store without its log."""
    if not store.commit_log().files and (error := missing_log(Snapshot(store))):
        raise error


def missing_log(snapshot: Snapshot) -> UnreadableError | None:
    """The error of a store that has no log file and once held messages; None for others.

    A broker never deletes the newest file of its log (`MappedFileQueue#deleteExpiredFileByTime`).
    """
    if snapshot.log.files:
        return None
    witness = _witness(snapshot)
    if witness is None:
        return None
    directories = snapshot.store.commit_log_directories
    shown = ", ".join(map(snapshot.store.relative, directories))
    message = f"no log file is in {shown}, but {witness} knows messages"
    return UnreadableError(message, file=snapshot.store.root, hint=WHERE_IT_MAY_BE)


def _witness(snapshot: Snapshot) -> str | None:
    """What of a store shows that it held messages."""
    with skip_unreadable():  # whoever reads them meets it again
        for queue in snapshot.queues:
            return f"the queue {queue.queue_id} of {queue.topic}"
    with skip_unreadable():
        checkpoint = credible(snapshot.checkpoint)
        if any(checkpoint.get(name) for name in CHECKPOINT_TIMES):
            return CHECKPOINT
    return None


MAX_NAMES = 20


def missing_files(snapshot: Snapshot, start: int, end: int) -> tuple[str, ...]:
    """The log files, with their sizes, that hold the bytes from `start` to before `end`; no more than MAX_NAMES.

    A file may be there though what it should hold is not: what it does hold may be all that is left of something else.
    """
    log = snapshot.log
    size = snapshot.right_log_file_size or snapshot.store.conf.size(*LOG_FILE_SIZE) or DEFAULT_LOG_FILE_SIZE
    starts = range(start - (start - log_start(log.files)) % size, end, size)
    present = {file.start_offset for file in log.files if file.size}
    names = tuple(
        f"{COMMIT_LOG}/{file_name(each)} ({size} bytes{'; keep the present one as well' if each in present else ''})"
        for each in starts[:MAX_NAMES]
    )
    return (*names, f"and {len(starts) - MAX_NAMES} more") if len(starts) > MAX_NAMES else names


def known_end(snapshot: Snapshot, without: Set[Path] = frozenset()) -> int:
    """The physical offset after which no queue and no index file leads, but for those `without`; 0 where none does."""
    loaded = (snapshot.queue(queue.topic, queue.queue_id) for queue in snapshot.queues)
    of_queues = (queue.range.last_physical_offset or -1 for queue in loaded if queue)
    of_index = (file.end_physical_offset for file in snapshot.index_files if file.keys and file.path not in without)
    return max(max(of_queues, default=-1), max(of_index, default=-1)) + 1


Sized = Kind | Literal["index"]
"""Kinds of files whose size only broker.conf and other files of their kind show."""

_QUEUE_KINDS: tuple[Kind, ...] = ("simple", "batch")


def unknown_sizes(snapshot: Snapshot) -> frozenset[Sized]:
    """The kinds of files whose size neither a file of the store nor broker.conf shows.

    None with a broker.conf: what it does not set is the default, as for the broker that reads it.
    """
    conf = snapshot.store.conf
    if conf.path is not None:
        return frozenset()
    shown: set[Sized] = {queue.kind for queue in snapshot.queues if any(_whole_file_sizes(queue))}
    shown |= {kind for kind in _QUEUE_KINDS if queue_file_size(conf, kind) is not None}
    if conf.index_geometry or snapshot.shown_index_geometry:
        shown.add("index")
    kinds: tuple[Sized, ...] = (*_QUEUE_KINDS, "index")
    return frozenset(kind for kind in kinds if kind not in shown)


def common_file_sizes(queues: Iterable[Queue]) -> dict[Kind, int]:
    """The size that most whole files of a kind have, the larger one of two that are as frequent, where it has some."""
    counts: dict[Kind, Counter[int]] = defaultdict(Counter)
    for queue in queues:
        counts[queue.kind].update(_whole_file_sizes(queue))
    return {kind: max(sizes, key=lambda size: (sizes[size], size)) for kind, sizes in counts.items() if sizes}


def _whole_file_sizes(queue: Queue) -> list[int]:
    """Sizes of the files that hold whole units only, bytes; the size of other files is no evidence."""
    return [file.size for file in queue.files.files if file.size > 0 and file.size % queue.unit_size == 0]


NOTHING_FITS = "no message matches the filters"
_FEW = 8  # names that are listed


def why_nothing(snapshot: Snapshot, filters: Filters) -> str:
    """A sentence for people; call it when nothing was found, for the log may have what queues and config lack."""
    if error := missing_log(snapshot):
        return f"{error.message} ({error.hint})"
    return "; ".join(_reasons(snapshot, filters)) or NOTHING_FITS


def _reasons(snapshot: Snapshot, filters: Filters) -> Iterator[str]:
    for topic in filters.topics:
        queue_ids = snapshot.queue_ids(topic)
        missing = [each for each in filters.queue_ids if each not in queue_ids]
        if unknown := unknown_topic(snapshot, topic):
            yield unknown
        elif is_pattern(topic):
            continue
        elif missing and not snapshot.leaves_queues_out:
            there = f"; there are {shown_ids(queue_ids)}" if queue_ids else ""
            yield f"topic {topic} has no queue {shown_ids(missing)}{there}"
    log = snapshot.log_range
    first, last = log.first_store_timestamp, log.last_store_timestamp
    if first is not None and last is not None and _is_outside(filters, first, last):
        yield f"the log has messages stored {rfc3339(first)} to {rfc3339(last)}"
    if log.max_offset <= max(0, log.min_offset):
        yield "the log is empty"
    elif not filters.start < log.max_offset or not filters.stop > log.min_offset:
        yield f"the log has the offsets {log.min_offset} to {log.max_offset}"


def excludes_nothing(snapshot: Snapshot, filters: Filters) -> Iterator[str]:
    """A sentence for each topic that is left out and that the store does not have."""
    for topic in filters.excluded_topics:
        if unknown := unknown_topic(snapshot, topic):
            yield f"--exclude-topic leaves nothing out: {unknown}"


def unknown_topic(snapshot: Snapshot, topic: str) -> str | None:
    """A sentence with the nearest names, None for a topic, or a pattern of some, that has queues or is configured."""
    names = snapshot.topic_names
    if is_pattern(topic) and any(name in TopicChoice((topic,)) for name in names):
        return None
    if not names or topic in names:
        return None
    return f"{'no topic is named' if is_pattern(topic) else 'there is no topic'} {topic}{instead_of(topic, names)}"


def instead_of(name: str, names: Sequence[str]) -> str:
    """The end of a sentence about a name that is none of `names`: the nearest of them, or which there are."""
    near = get_close_matches(name, names)
    if near:
        return f" (did you mean {' or '.join(near)}?)"
    return f"; there are {first_of(sorted(names, key=is_system_topic), _FEW)}"  # those of people first


def shown_ids(ids: Sequence[int]) -> str:
    """Numbers of queues for people: ``0 to 3``, or ``0, 2``."""
    if list(ids) == list(range(ids[0], ids[-1] + 1)) and len(ids) > 2:
        return f"{ids[0]} to {ids[-1]}"
    return ", ".join(map(str, ids))


def _is_outside(filters: Filters, first: int, last: int) -> bool:
    start, stop = filters.from_timestamp, filters.to_timestamp
    return (start is not None and start > last) or (stop is not None and stop <= first)
