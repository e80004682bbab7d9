"""Other files of a store as witnesses of messages that its commit log has lost.

The cleaner never deletes the newest file of the log (`MappedFileQueue#deleteExpiredFileByTime`). So a store that once
held a message always holds one, and after a clean stop none of its files refers to a newer message than the log's last.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import InputFile, read_all
from rmqtool.base.mapped_files import list_mapped_files
from rmqtool.base.tolerant import skip_unreadable
from rmqtool.broker.dispatched_record import index_of_another_log
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.findings.report import Report
from rmqtool.formats import timer_wheel
from rmqtool.formats.checkpoint import TIMER_CHECK_SIZE, TimerCheck
from rmqtool.formats.layout import decode_units, parse
from rmqtool.store.checkpoint import CHECKPOINT_TIMES, credible
from rmqtool.store.config_tables import (
    CONSUMER_OFFSET,
    DELAYS,
    LMQ_CONSUMER_OFFSET,
    CommittedOffset,
    load_delay_offsets,
)
from rmqtool.store.index_files import stored_offset
from rmqtool.store.lock import has_abort
from rmqtool.store.paths import TIMER_LOG
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CHECKPOINT, COMMIT_LOG, CONFIG, CONSUME_QUEUE, Store
from rmqtool.store.timer_wheel import newest_wheel
from rmqtool.verify.record_checks import RecordTotals
from rmqtool.verify.task import StoreReader

_EPOCHS = "epochFileCheckpoint"
_CHECKPOINT_OFFSETS = ("confirm_physical_offset", "logics_physical_offset")
_MAX_OFFSETS = 16 << 20  # of a file of offsets, bytes
_SOME_OFFSET = re.compile(rb'@[^"{}]*"\s*:\s*(\{[^{}]*?:\s*)?[1-9]')  # "topic@group":{0:42, or 42
_MAX_SHOWN = 4  # groups in one finding


@dataclass(frozen=True)
class ScannedLog:
    """The results of the scan of a log; `queue_ends` are queue offsets after the last message of each queue.

    With `queues_of_another` log hardly a queue entry leads to its message, and many lead elsewhere: a checkpoint that
    is newer than the log may have come with such queues, and proves nothing.
    """

    snapshot: Snapshot
    reader: StoreReader
    end: int
    totals: RecordTotals
    queue_ends: Mapping[QueueName, int]
    queues_of_another: bool = False

    @property
    def store(self) -> Store:
        """The store."""
        return self.reader.store

    def witnesses(self) -> list[Witness]:
        """The files that refer to newer messages than the log's last."""
        of_checkpoint = () if self.queues_of_another else _of_checkpoint(self)
        return [*of_checkpoint, *_of_index(self), *_of_epochs(self), *_of_rocksdb(self)]


@dataclass(frozen=True)
class Witness:
    """The evidence in one file of a message that the log does not hold; `problem` is of which kind it is.

    `physical_offset` is where the message began, or where the log ended after it, when the file stores it.
    """

    problem: str
    file: str
    physical_offset: int | None = None
    timestamp: int | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def facts(self) -> dict[str, Any]:
        """What a finding has of it."""
        known = {"problem": self.problem, "file": self.file, "physical_offset": self.physical_offset,
                 "timestamp": self.timestamp, **self.more}  # fmt: skip
        return {name: value for name, value in known.items() if value is not None}


def check_log_end(log: ScannedLog, report: Report) -> None:
    """Compare the end of a stopped broker's log with the evidence in its other files."""
    if not log.totals.messages:
        _check_nothing_left(log, report)
        return
    report.check("commitlog.end-missing")
    witnesses = log.witnesses()
    if has_abort(log.store.root):  # the system may have kept these files, and not the end of the log
        beyond = log.reader.files[-1].end_offset
        witnesses = [each for each in witnesses if each.physical_offset is not None and each.physical_offset >= beyond]
    if witnesses:
        facts = {"newest_timestamp": log.totals.latest, "log_end": log.end,
                 "witnesses": [each.facts for each in (*witnesses, *_consumed_beyond(log))]}  # fmt: skip
        report.add("commitlog.end-missing", offset=log.end, details=facts)


def _check_nothing_left(log: ScannedLog, report: Report) -> None:
    report.check("commitlog.missing")
    store, files = log.store, log.reader.files
    witnesses = [
        *log.witnesses(),
        *_of_offsets(store, log.snapshot.committed.offsets),
        *_of_unreadable_offsets(log.snapshot),
        *_of_timer_files(store),
    ]
    if files and has_abort(store.root):
        return  # a broker that was killed with its first messages: queues and index are checked by themselves
    if witnesses:
        facts = {"problem": "no-message" if files else "no-file", "has_files": bool(files),
                 "directories": [*map(store.relative, store.commit_log_directories)],
                 "witnesses": [each.facts for each in witnesses]}  # fmt: skip
        report.add("commitlog.missing", file=COMMIT_LOG, details=facts)


def _of_checkpoint(log: ScannedLog) -> Iterator[Witness]:
    try:
        checkpoint = credible(log.snapshot.checkpoint)
    except RmqtoolError:
        return  # which has its own finding
    newest = max((checkpoint.get(name, 0) for name in CHECKPOINT_TIMES), default=0)
    if newest > log.totals.latest:
        yield Witness("time", CHECKPOINT, None, newest)
    for name in _CHECKPOINT_OFFSETS:
        offset = checkpoint.get(name, 0)
        is_beyond = offset > log.end if name == "confirm_physical_offset" else offset >= log.end
        if offset and is_beyond:
            yield Witness("offset", CHECKPOINT, offset, more={"name": name})


def _of_index(log: ScannedLog) -> Iterator[Witness]:
    """The last index file that is beyond the log's end; its header counts only where its last unit agrees."""
    of_another = index_of_another_log(log.snapshot)
    for index_file in reversed(log.reader.index.files):
        file, offset = index_file.file, index_file.file.end_physical_offset
        if index_file.units and offset >= log.end and file.path not in of_another:
            if stored_offset(file.path, index_file.geometry, index_file.units) != offset:
                continue
            yield Witness("index", log.store.relative(file.path), offset, file.end_timestamp)
            return


def _of_epochs(log: ScannedLog) -> Iterator[Witness]:
    """The last epoch of a broker under a controller began where the log ended then (`EpochFileCache`)."""
    try:
        text = read_all(log.store.root / _EPOCHS, 1 << 20).decode("ascii", "replace")
    except RmqtoolError:
        return
    epoch, _, start = (text.split() or [""])[-1].partition("-")
    if epoch.isdecimal() and start.isdecimal() and int(start) > log.end:
        yield Witness("epoch", _EPOCHS, int(start), more={"epoch": int(epoch)})


def _of_rocksdb(log: ScannedLog) -> Iterator[Witness]:
    """The end of what was dispatched to queues in RocksDB, which each start moves back to the end of the log."""
    end = None
    with skip_unreadable():  # which has its own finding
        end = log.snapshot.database.dispatched_end if log.snapshot.database else None
    if end is not None and end > log.end:
        yield Witness("rocksdb", CONSUME_QUEUE, end - 1, more={"end": end})


def _of_offsets(store: Store, committed: Sequence[CommittedOffset]) -> Iterator[Witness]:
    """Evidence that groups, delay levels or the timer have read messages, in a store without any."""
    groups = [each for each in committed if each.offset > 0]
    if groups:
        yield Witness("consumed", CONFIG, more=_listed(groups))
    offsets = load_delay_offsets(store).by_level.items()
    levels = [f"level {level} up to {offset}" for level, offset in offsets if offset > 0]
    if levels:
        yield Witness("delivered", DELAYS, more={"levels": levels[:_MAX_SHOWN]})
    try:
        data = read_all(store.root / CONFIG / "timercheck", TIMER_CHECK_SIZE)
    except RmqtoolError:
        return
    check = parse(TimerCheck, data.ljust(TIMER_CHECK_SIZE, b"\0"))
    if check.last_timer_queue_offset > 0:
        yield Witness("timers-read", f"{CONFIG}/timercheck", more={"messages": check.last_timer_queue_offset})


def _of_unreadable_offsets(snapshot: Snapshot) -> Iterator[Witness]:
    """Evidence in what is left of a file of offsets that cannot be read as a whole."""
    if snapshot.committed.file.problem is None:
        return
    for name in (f"{each}{end}" for each in (LMQ_CONSUMER_OFFSET, CONSUMER_OFFSET) for end in ("", ".bak")):
        with skip_unreadable():
            if _SOME_OFFSET.search(read_all(snapshot.store.root / CONFIG / name, _MAX_OFFSETS)):
                yield Witness("readable-part", f"{CONFIG}/{name}")
                return


def _of_timer_files(store: Store) -> Iterator[Witness]:
    """Evidence of timer messages in the timer log or the wheel."""
    for mapped in list_mapped_files(store.root / TIMER_LOG).files[-1:]:
        with skip_unreadable(), InputFile(mapped.path) as file:
            if any(file.read(0, timer_wheel.UNIT_SIZE)):
                yield Witness("timer-log", store.relative(mapped.path))
    wheel = newest_wheel(store)
    with skip_unreadable():
        times = decode_units(timer_wheel.SLOT_DTYPE, read_all(wheel, timer_wheel.WHEEL_SIZE))["time"]
        if slots := int(np.count_nonzero(times > 0)):
            yield Witness("timer-wheel", store.relative(wheel), more={"slots": slots})


def _consumed_beyond(log: ScannedLog) -> list[Witness]:
    """Groups that have committed offsets beyond the ends of their queues."""
    beyond = [
        each for each in log.snapshot.committed.offsets
        if each.offset > log.queue_ends.get(QueueName(each.topic, each.queue_id), each.offset)
    ]  # fmt: skip
    return [Witness("beyond", CONFIG, more=_listed(beyond, log.queue_ends))] if beyond else []


def _listed(groups: Sequence[CommittedOffset], ends: Mapping[QueueName, int] = MappingProxyType({})) -> dict[str, Any]:
    """The first of the groups with the ends of their queues, and how many there are more."""
    shown = [{"group": each.group, "topic": each.topic, "queue_id": each.queue_id, "offset": each.offset,
              "end": ends.get(QueueName(each.topic, each.queue_id))} for each in groups[:_MAX_SHOWN]]  # fmt: skip
    return {"groups": shown, "more": max(0, len(groups) - _MAX_SHOWN)}
