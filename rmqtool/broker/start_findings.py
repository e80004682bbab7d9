"""Findings of a predicted start: data that it would lose, or reasons why it would fail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rmqtool.base.shell import quote
from rmqtool.broker.log_walk import NO_FILE_FOLLOWS
from rmqtool.broker.prediction import StartPrediction
from rmqtool.broker.record_parser import NOTHING_WRITTEN
from rmqtool.broker.recovery import NO_CHECKPOINT, LogCut, Recovery
from rmqtool.broker.twice_recovery import EXTRA_FILES
from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding, counted

WHOLE_LOG = "commitLogRecoverMaxNum=1000000"
"""The setting with which a start looks at the whole log."""

_READ_FROM_FILES = (
    "consumers get them, since queues in files are read; a broker that reads RocksDB later does not have them"
)

QueueEnds = Mapping[tuple[str, int], int]
"""Of each queue, by topic and queue id, the offset behind its last message in the commit log."""


@dataclass(frozen=True)
class _OtherStart:
    when: str
    cut: LogCut


def start_findings(recovery: Recovery, start: StartPrediction, ends: QueueEnds | None = None) -> Iterator[Finding]:
    """The findings of a start; with `ends` also queues that it leaves shorter than their messages."""
    root = recovery.snapshot.store.root
    if start.hangs:
        yield finding("start.hangs", str(start.refuses), store=root)
    elif start.refuses:
        yield finding("start.refuses", str(start.refuses), store=root)
    if start.messages_lost:
        yield _data_loss(recovery, start)
    yield from _queue_losses(recovery, start, ends or {})
    yield from _rows_lost(recovery, start)
    if not start.refuses:
        yield from _other_starts(recovery, start)


def _data_loss(recovery: Recovery, start: StartPrediction) -> Finding:
    behind, root = f"{counted(start.messages_lost, 'readable message')} behind it", recovery.snapshot.store.root
    if start.max_offset_after is None or start.scan_from is None:
        return finding("start.data-loss", f"{behind} would be out of reach", store=root, remedy=_save(root))
    files = sum(path.startswith(_log_prefixes(recovery)) for path in start.files_deleted)
    message = (
        f"a start of {start.version} ends the commit log at offset {start.max_offset_after} ({_why(start.end)}): "
        f"{behind} would be lost, {counted(files, 'commit log file')} deleted"
    )
    return finding("start.data-loss", message, store=root, remedy=_cure(root, start.end))


def _cure(root: Path, end: str | None) -> str | None:
    """The page's cure, inert records in place of what ends the log; where a file is missing there is no such place."""
    return _save(root) if end == NO_FILE_FOLLOWS else None


def _save(root: Path) -> str:
    return f"rmqtool export {quote(str(root))} --output DIRECTORY"


def _log_prefixes(recovery: Recovery) -> tuple[str, ...]:
    store = recovery.snapshot.store
    return tuple(f"{store.relative(directory)}/" for directory in store.commit_log_directories)


def _queue_losses(recovery: Recovery, start: StartPrediction, ends: QueueEnds) -> Iterator[Finding]:
    for queue in start.queues:
        if recovery.twice and queue.in_rocksdb:
            continue  # the files decide
        missing = ends.get((queue.topic, queue.queue_id), 0) - queue.max_offset
        if missing > 0 and not start.messages_lost:
            message = f"would end at offset {queue.max_offset}, {counted(missing, 'message')} before its last one"
            yield finding("start.queue-loss", message, store=recovery.snapshot.store.root, topic=queue.topic,
                          queue_id=queue.queue_id, queue_offset=queue.max_offset)  # fmt: skip


def _rows_lost(recovery: Recovery, start: StartPrediction) -> Iterator[Finding]:
    """Queues in RocksDB of which messages in the log never get a row again."""
    for queue in start.queues:
        if not queue.lost:
            continue
        rows = counted(queue.lost, "message")
        if recovery.twice and queue.min_offset == queue.max_offset:
            message = f"RocksDB would begin at offset {queue.max_offset}, where the files end: {rows} before it would "
            message += "have no row that is read, unless `rmqtool rebuild-cq` makes the rows first"
        else:
            message = f"{rows} behind its last row would never get one: {_why_lost(recovery)}"
        lost = finding("start.rows-lost", message, store=recovery.snapshot.store.root, topic=queue.topic,
                       queue_id=queue.queue_id, queue_offset=queue.max_offset_before)  # fmt: skip
        lost = replace(lost, count=queue.lost)
        if recovery.twice and not recovery.twice.serves(queue):
            lost = replace(lost, severity="warning", effect=_READ_FROM_FILES)
        yield lost


def _why_lost(recovery: Recovery) -> str:
    """Why a start does not make all rows again, and what has it make them."""
    rules, files = recovery.rules, len(recovery.loaded.files)
    is_limited = rules.limits_recovered_files and files > rules.recovered_files
    if recovery.twice and not recovery.twice.is_searched:
        return "the start makes those of the log files that queues in files need, whatever is in RocksDB"
    if recovery.twice:
        whole = f" and {WHOLE_LOG}" if is_limited else ""
        return f"the start looks for them in few log files, and with {EXTRA_FILES}=1000000{whole} in all"
    if is_limited:
        read = rules.recovered_files
        return f"the start reads the last {read} of {counted(files, 'commit log file')}, and with {WHOLE_LOG} all"
    return "after a clean stop a start does not look for them"


def _other_starts(recovery: Recovery, start: StartPrediction) -> Iterator[Finding]:
    """The worst of the other starts that may follow, when it loses more than the predicted one."""
    if not recovery.loaded.files:
        return
    others = [
        _OtherStart("after a kill or crash", recovery.cut("abnormal")),
        _OtherStart("after a kill or crash, without the file checkpoint", recovery.cut("abnormal", NO_CHECKPOINT)),
        _OtherStart("after a clean stop", recovery.cut("normal")),
    ]
    worst = max(others, key=lambda other: (other.cut.end.out_of_memory, other.cut.messages_lost))
    if worst.cut.end.out_of_memory:
        message = f"{worst.when} a start would fail: OutOfMemoryError, for {worst.cut.end.why}"
    elif worst.cut.messages_lost > start.messages_lost:
        lost = counted(worst.cut.messages_lost, "readable message")
        position = f"at offset {worst.cut.end.offset} ({_why(worst.cut.end.why)})"
        message = f"{worst.when} a start would end the commit log {position} and lose {lost}"
    else:
        return
    root = recovery.snapshot.store.root
    yield finding("start.other-mode-data-loss", message, store=root, remedy=_cure(root, worst.cut.end.why))


def _why(end: str | None) -> str | None:
    """Why a log ends before readable messages: zeros are then no end."""
    return "zero bytes where a record should begin" if end == NOTHING_WRITTEN else end
