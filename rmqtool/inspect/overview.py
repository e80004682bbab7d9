"""What a store holds, from names, headers and first and last units; with a scan, from every record too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from shlex import quote

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import RateLimit, ReadPolicy
from rmqtool.base.mapped_files import MappedFile, MappedFiles
from rmqtool.base.tolerant import ReadErrors, ReadScope
from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding
from rmqtool.rules.releases import ANY_RELEASE, Releases
from rmqtool.rules.versions import EXPIRED_QUEUE_MIN_IS_MAX, NEWEST, Sign, Version, sorted_signs
from rmqtool.store.checkpoint import read_checkpoint
from rmqtool.store.commit_log import LogRange, log_range
from rmqtool.store.consume_queues import Queue, list_queues
from rmqtool.store.consumer_offsets import CommittedOffset, CommittedOffsets, load_offsets
from rmqtool.store.dledger_log import dledger_range
from rmqtool.store.file_findings import (
    index_finding,
    layout_findings,
    log_findings,
    offset_findings,
    one_of_each,
    queue_findings,
    unread_finding,
    with_next_command,
)
from rmqtool.store.index_files import Geometry, IndexFile, geometry_or_none, list_index_files
from rmqtool.store.lock import ABORT_FILE, LOCK_FILE, Holder, lock_holder
from rmqtool.store.queue_range import QueueRange, queue_range
from rmqtool.store.store import CHECKPOINT, Store
from rmqtool.store.version_signs import index_signs, sampled_signs, version_signs
from rmqtool.transaction.findings import interrupted_findings


@dataclass(frozen=True)
class Overview:
    """A store at a glance; every part is as its files stood when it was looked at.

    What could not be read is in `unread` and not in its part; without `log_range` the log's first or last records.
    `older_log` is the plain log of a broker that was converted to DLedger.
    """

    store: Store
    version: Version | None
    holder: Holder | None
    last_exit: str
    signs: list[Sign]
    log: MappedFiles
    log_range: LogRange | None
    queues: list[tuple[Queue, QueueRange]]
    index: list[tuple[IndexFile, Geometry | None]]
    checkpoint: dict[str, int] | None
    committed: CommittedOffsets
    unread: ReadErrors
    older_log: MappedFiles
    older_range: LogRange | None
    findings: list[Finding] = field(default_factory=list)

    def lag(self, committed: CommittedOffset) -> int | None:
        """Messages between a committed offset and its queue's maximum; negative beyond it, None without the queue."""
        found = self.range_of(committed.topic, committed.queue_id)
        return found.max_offset - committed.offset if found else None

    def add_unread(self, error: RmqtoolError) -> None:
        """Add what a scan of all records could not read."""
        self.unread.errors.append(error)
        self.findings.append(with_next_command(self.store, unread_finding(self.store, error)))

    def range_of(self, topic: str, queue_id: int) -> QueueRange | None:
        """The range of a queue, None without it."""
        return self._ranges.get((topic, queue_id))

    def add_signs(self, names: Iterable[str]) -> None:
        """Add signs of the version that a scan of all records has shown."""
        self.signs[:] = sorted_signs([*names, *(sign.name for sign in self.signs)])

    @cached_property
    def _ranges(self) -> dict[tuple[str, int], QueueRange]:
        return {(queue.topic, queue.queue_id): found for queue, found in self.queues}


def look(store: Store, version: Version | None = None, limit: RateLimit | None = None) -> Overview:
    """Look at a store; `version` decides rules that changed, and without it the newest that fits."""
    holder = lock_holder(store.root)
    reading = ReadPolicy(limit, drop_page_cache=holder is not None)
    unread = ReadErrors()
    log, older = store.commit_log(unread.part), store.older_log(unread.part)
    queues = list(_with_range(store, older.files or log.files, version or NEWEST, unread.part))
    index = list(_with_geometry(store, unread.part))
    checkpoint, found_range, older_range = None, None, None
    with unread.part():
        checkpoint = read_checkpoint(store)
    with unread.part():
        found_range = _log_range(store, log, queues, reading)
    with unread.part():
        older_range = log_range(older.files, reading=reading)
    committed = load_offsets(store)
    signs = version_signs(store, checkpoint, [queue for queue, _ in queues], [file for file, _ in index], committed)
    if found_range is not None:
        with unread.part():
            signs |= _signs_in_records(log, index, reading)
    overview = Overview(
        store=store,
        version=version,
        holder=holder,
        last_exit=_last_exit(store, holder),
        signs=sorted_signs(signs),
        log=log,
        log_range=found_range,
        queues=queues,
        index=index,
        checkpoint=checkpoint,
        committed=committed,
        unread=unread,
        older_log=older,
        older_range=older_range,
    )
    overview.findings.extend(with_next_command(store, found) for found in _findings(overview))
    return overview


def _log_range(store: Store, log: MappedFiles, queues: list[tuple[Queue, QueueRange]], reading: ReadPolicy) -> LogRange:
    if store.layout == "dledger":
        return dledger_range(log.files, reading)
    return log_range(log.files, _last_record_hint(queues), reading)


def _signs_in_records(
    log: MappedFiles, index: list[tuple[IndexFile, Geometry | None]], reading: ReadPolicy
) -> set[str]:
    found = sampled_signs(log.files, reading)
    newest, geometry = index[-1] if index else (None, None)
    return found | set(index_signs(newest, geometry, log.files)) if newest and geometry else found


def _last_exit(store: Store, holder: Holder | None) -> str:
    """How the last broker ended: `abort` is there while one runs and after one that was killed."""
    if holder:
        return "unknown"
    if (store.root / ABORT_FILE).exists():
        return "unclean"
    return "clean" if (store.root / CHECKPOINT).exists() or (store.root / LOCK_FILE).exists() else "unknown"


def _last_record_hint(queues: list[tuple[Queue, QueueRange]]) -> int | None:
    ends = [found.last_physical_offset for _, found in queues if found.last_physical_offset is not None]
    return max(ends, default=None)


def _with_range(
    store: Store, log: Sequence[MappedFile], version: Version, part: ReadScope
) -> Iterator[tuple[Queue, QueueRange]]:
    """The queues that can be read, each with its range."""
    log_min_offset = log[0].start_offset if log else -1
    for queue in list_queues(store, part):
        with part():
            yield queue, queue_range(queue, log_min_offset, version)


def _with_geometry(store: Store, part: ReadScope) -> Iterator[tuple[IndexFile, Geometry | None]]:
    """The index files, each with its geometry, which is most often that of the one before."""
    known = store.conf.index_geometry
    for file in list_index_files(store, part):
        geometry = None
        with part():
            geometry = geometry_or_none(file, known)
            known = (geometry.slots, geometry.units) if geometry else known
        yield file, geometry


def _findings(overview: Overview) -> Iterator[Finding]:
    store = overview.store
    with overview.unread.part():
        yield from interrupted_findings(store.root)
    yield from (unread_finding(store, error) for error in overview.unread.errors)
    yield from layout_findings(store)
    if overview.last_exit == "unclean":
        message = "the last broker was killed or crashed: the file abort is there and no broker runs"
        yield finding("store.unclean-stop", message, store=store.root, file=ABORT_FILE)
    releases = Releases.named(overview.version) if overview.version else ANY_RELEASE
    yield from log_findings(store, overview.older_log, releases)
    yield from log_findings(store, overview.log, releases, live=overview.holder is not None)
    if overview.holder is None:  # a file that a broker has just begun is as long as it is for a moment only
        queues = [queue for queue, _ in overview.queues]
        yield from one_of_each(found for queue in queues for found in queue_findings(store, queue, releases))
    unread = {error.file for error in overview.unread.errors}
    for file, geometry in overview.index:
        if geometry is None and file.keys and str(file.path) not in unread:
            yield index_finding(store, file)
    yield from _version_findings(overview)
    yield from offset_findings(store, overview.committed.file)


def _version_findings(overview: Overview) -> Iterator[Finding]:
    oldest = max((sign.since for sign in overview.signs), default=None)
    expired = sum(found.expired for _, found in overview.queues)
    if overview.version is None and expired and not (oldest and oldest >= EXPIRED_QUEUE_MIN_IS_MAX):
        message = f"{expired} expired queues: before 5.0 their minimum is 0, since then their maximum (shown)"
        remedy = f"rmqtool inspect {quote(str(overview.store.root))} --broker-version 4.9"
        yield finding("store.version-ambiguous", message, remedy=remedy, count=expired)
