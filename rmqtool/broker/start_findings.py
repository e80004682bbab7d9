"""Findings of a predicted start: data that it would lose, or reasons why it would fail."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Literal

from rmqtool.broker.log_walk import NO_FILE_FOLLOWS
from rmqtool.broker.prediction import QueueChange, StartPrediction
from rmqtool.broker.record_parser import NOTHING_WRITTEN, WRONG_BODY, WRONG_LEVEL
from rmqtool.broker.recovery import NO_CHECKPOINT, LogCut, Recovery
from rmqtool.broker.rocksdb_recovery import EXTRA_FILES
from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding, Remedy
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.rules.versions import (
    BATCH_QUEUES,
    MULTI_DISPATCH,
    MULTI_DISPATCH_SPARES,
    MULTI_DISPATCH_TAKES_NO_PROPERTIES,
    VALUES_MAY_HOLD_SEPARATOR,
    Releases,
    Version,
    ranges_of,
)

WHOLE_LOG = "commitLogRecoverMaxNum=1000000"
"""The setting with which a start looks at the whole log."""

_READ_FROM_FILES = (
    "consumers get them, since queues in files are read; a broker that reads RocksDB later does not have them"
)

_SAVE = Remedy("rmqtool export {store} --output DIRECTORY")
_LOSE = {
    WRONG_BODY: Remedy("rmqtool repair {store} --lose commitlog.body-crc"),
    WRONG_LEVEL: Remedy("rmqtool repair {store} --lose commitlog.properties"),
}
"""What ends the log after a crash is a message that clients get until then."""

LossCause = Literal["damage", "missing-file", "log-elsewhere"]
"""Why a start loses messages: damage ends the log, a file is missing before them, or the start finds no log."""

QueueEnds = Mapping[tuple[str, int], int]
"""Of each queue, by topic and queue id, the offset after its last message in the commit log."""


@dataclass(frozen=True)
class _OtherStart:
    when: str
    cut: LogCut


def start_findings(recovery: Recovery, start: StartPrediction, ends: QueueEnds | None = None) -> Iterator[Finding]:
    """The findings of a start; with `ends` also queues that it leaves shorter than their messages."""
    root = recovery.snapshot.store.root
    if start.refusal:
        code = "start.hangs" if start.hangs else "start.refuses"
        yield finding(code, store=root, details={**start.refusal.details(), "why": str(start.refusal)})
    elif start.setting:
        details = {"setting": start.setting, "messages": start.messages_lost, "version": start.version}
        yield finding("start.other-directory", store=root, details=details | {"end": start.end})
        return
    if start.messages_lost:
        yield _data_loss(recovery, start)
    yield from _queue_losses(recovery, start, ends or {})
    yield from _rows_lost(recovery, start)
    if not start.refuses:
        yield from _other_starts(recovery, start)


def _data_loss(recovery: Recovery, start: StartPrediction) -> Finding:
    root = recovery.snapshot.store.root
    if start.max_offset_after is None or start.scan_from is None:
        details = {"problem": "out-of-reach", "cause": "log-elsewhere", "messages": start.messages_lost}
        return finding("start.data-loss", store=root, remedy=_SAVE, details=details)
    store = recovery.snapshot.store
    in_log = tuple(f"{store.relative(directory)}/" for directory in store.commit_log_directories)
    files = sum(path.startswith(in_log) for path in start.files_deleted)
    details = {
        "problem": "cut", "cause": _cause(start.end), "version": start.version, "end_offset": start.max_offset_after,
        "why": _why(start.end), "messages": start.messages_lost, "files": files,
    }  # fmt: skip
    return finding("start.data-loss", store=root, remedy=_cure(start.end), details=details)


def _cause(end: str | None) -> LossCause:
    return "missing-file" if end == NO_FILE_FOLLOWS else "damage"


def _cure(end: str | None) -> Remedy | None:
    """The page's cure, dummy records in place of what ends the log; where a file is missing there is no such place."""
    return _SAVE if _cause(end) == "missing-file" else None


def _queue_losses(recovery: Recovery, start: StartPrediction, ends: QueueEnds) -> Iterator[Finding]:
    for queue in start.queues:
        if recovery.twice and queue.in_rocksdb:
            continue  # the files decide
        missing = ends.get((queue.topic, queue.queue_id), 0) - queue.max_offset
        if missing > 0 and not start.messages_lost:
            yield finding("start.queue-loss", store=recovery.snapshot.store.root, topic=queue.topic,
                          queue_id=queue.queue_id, queue_offset=queue.max_offset,
                          details=_shifted(queue) or {"max_offset": queue.max_offset, "messages": missing,
                                                      "problem": "short"})  # fmt: skip


def _shifted(queue: QueueChange) -> dict[str, Any] | None:
    """The facts of a queue that is derived at other offsets than its messages have; None where it is not."""
    if not queue.misplaced:
        return None
    first = queue.derived_end - queue.misplaced
    return {"max_offset": queue.max_offset, "messages": queue.misplaced, "first_offset": first, "shift": queue.shift,
            "problem": "shifted"}  # fmt: skip


def _rows_lost(recovery: Recovery, start: StartPrediction) -> Iterator[Finding]:
    """Queues in RocksDB of which messages in the log never get a row again."""
    for queue in start.queues:
        if not queue.lost:
            continue
        details: dict[str, Any] = {"max_offset": queue.max_offset, "messages": queue.lost}
        if recovery.twice and queue.min_offset == queue.max_offset:
            details["problem"] = "begins-later"
        else:
            details |= _why_lost(recovery)
        lost = finding("start.rows-lost", store=recovery.snapshot.store.root, topic=queue.topic,
                       queue_id=queue.queue_id, queue_offset=queue.max_offset_before, count=queue.lost,
                       details=details)  # fmt: skip
        if recovery.twice and not recovery.twice.serves(queue):
            lost = replace(lost, severity="warning", effect=_READ_FROM_FILES)
        yield lost


def _why_lost(recovery: Recovery) -> dict[str, Any]:
    """Why a start does not make all rows again, and what has it make them, as facts."""
    rules, files = recovery.rules, len(recovery.loaded.files)
    is_limited = rules.limits_recovered_files and files > rules.recovered_files
    if recovery.twice and not recovery.twice.is_searched:
        return {"reason": "files-decide"}
    if recovery.twice:
        whole = f" and {WHOLE_LOG}" if is_limited else ""
        return {"reason": "few-files", "setting": f"{EXTRA_FILES}=1000000{whole}"}
    if is_limited:
        return {"reason": "limit", "read": rules.recovered_files, "files": files, "setting": WHOLE_LOG}
    return {"reason": "clean-stop"}


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
        problem = "memory"
        cause: LossCause | Literal["memory"] = "memory"
    elif worst.cut.messages_lost > start.messages_lost:
        problem = "cut"
        cause = _cause(worst.cut.end.why)
    else:
        return
    root = recovery.snapshot.store.root
    details = {"problem": problem, "cause": cause, "when": worst.when, "why": _why(worst.cut.end.why),
               "end_offset": worst.cut.end.offset, "messages": worst.cut.messages_lost}  # fmt: skip
    remedy = _LOSE.get(worst.cut.end.why or "", _cure(worst.cut.end.why))
    yield finding("start.other-mode-data-loss", store=root, remedy=remedy, details=details)


def _why(end: str | None) -> str | None:
    """Why a log ends before readable messages: zeros are then no end."""
    return "zero bytes where a record should begin" if end == NOTHING_WRITTEN else end


_DISPATCH_CHANGES = (
    *(VALUES_MAY_HOLD_SEPARATOR, MULTI_DISPATCH, BATCH_QUEUES),
    *MULTI_DISPATCH_SPARES,
)


def alike(releases: Releases, conf: BrokerConf) -> list[tuple[Version, ...]]:
    """The releases in groups that start by the same rules, the newest group first."""
    groups = groupby(releases.fitting, key=lambda version: _rules_of(version, conf))
    return [tuple(group) for _, group in groups][::-1]


def _rules_of(version: Version, conf: BrokerConf) -> tuple[object, ...]:
    rules = RecoveryRules.of(version, conf)
    changes = [*_DISPATCH_CHANGES, *([MULTI_DISPATCH_TAKES_NO_PROPERTIES] if conf.is_on("enableMultiDispatch") else [])]
    return (*rules.answers, *(version >= change for change in changes))


def label(versions: Iterable[Version]) -> str:
    """Releases in order, those that follow each other as a range: ``4.9.2, 5.0.0 to 5.1.2``."""
    return ", ".join(ranges_of(versions))
