"""Checks of the timer's files: wheel, log and `timercheck`, each alone and against the others (`TimerMessageStore`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from rmqtool.base.errors import RmqtoolError, note_failure
from rmqtool.base.files import read_all
from rmqtool.base.mapped_files import MappedFiles, file_at
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.timer_start import timer_state
from rmqtool.findings.report import Report
from rmqtool.formats import timer_check, timer_wheel
from rmqtool.formats.layout import parse
from rmqtool.rules.releases import Releases
from rmqtool.rules.system_topics import TIMER_TOPIC
from rmqtool.store.single_messages import SingleMessages
from rmqtool.store.store import CONFIG, Store
from rmqtool.store.timer_wheel import WHEEL, newest_slot, written_unit
from rmqtool.verify.task import StoreReader
from rmqtool.verify.timer_messages import check_timers

_CHECK = f"{CONFIG}/timercheck"
_QUEUE = QueueName(TIMER_TOPIC, 0)


def check_wheel_size(store: Store, report: Report) -> None:
    """Check the wheel's size: with another one no broker starts; an empty wheel is created again (`TimerWheel`)."""
    try:
        size = (store.root / WHEEL).stat().st_size
    except OSError as error:
        note_failure(store.root / WHEEL, error)
        return
    report.check("timer.wheel-size")
    if size not in (0, timer_wheel.FILE_SIZE):
        report.add("timer.wheel-size", file=WHEEL, details={"size": size, "expected": timer_wheel.FILE_SIZE})


def check_timer(
    reader: StoreReader,
    log_end: int,
    ends: Mapping[QueueName, int],
    latest: int,
    messages: SingleMessages,
    releases: Releases,
    report: Report,
) -> None:
    """Check the timer's files and messages of a stopped broker.

    `ends` are the maximum offsets that the log gives the queues, up to its end at `log_end`; `latest` is the newest
    store timestamp, epoch ms.
    """
    store = reader.store
    state = timer_state(store, reader.reading, latest, log_end)
    log = state.log
    check_timers(reader, state, ends.get(_QUEUE, 0), messages, releases, report)
    report.check("timer.log", len(log.files))
    for file, facts in (*_files_out_of_line(store, log), *_checkpoint_ahead(store, log)):
        report.add("timer.log", file=file, details=facts)
    if log.files:
        _check_slots(reader, log, report)


def _files_out_of_line(store: Store, log: MappedFiles) -> Iterator[tuple[str, dict[str, Any]]]:
    for stray in log.strays:
        yield store.relative(stray.path), {"problem": "stray", "kind": stray.kind}
    expected = store.conf.size("mappedFileSizeTimerLog") or log.file_size
    for file in log.files:
        if file.size != expected:
            yield store.relative(file.path), {"problem": "size", "size": file.size, "expected": expected}
    for before, after in pairwise(log.files):
        if before.end_offset != after.start_offset:
            facts = {"problem": "gap", "start_offset": after.start_offset, "end_offset": before.end_offset}
            yield store.relative(after.path), facts


def _checkpoint_ahead(store: Store, log: MappedFiles) -> Iterator[tuple[str, dict[str, Any]]]:
    path = store.root / _CHECK
    try:
        data = read_all(path, timer_check.USED_SIZE)
    except RmqtoolError as error:
        if path.exists():
            yield _CHECK, {"problem": "unreadable", "why": error.message}
        return
    if len(data) < timer_check.USED_SIZE:
        yield _CHECK, {"problem": "short", "size": len(data), "expected": timer_check.USED_SIZE}
        return
    check = parse(timer_check.TimerCheck, data)
    end = log.files[-1].end_offset if log.files else check.last_timer_log_flush_position
    if check.last_timer_log_flush_position > end:
        flushed = check.last_timer_log_flush_position
        yield _CHECK, {"problem": "flushed", "flushed": flushed, "end_offset": end}


def _check_slots(reader: StoreReader, log: MappedFiles, report: Report) -> None:
    """Check that the newest position in the wheel is that of a unit in the timer log; slots are never cleared."""
    path = reader.store.root / WHEEL
    if not path.is_file():
        return
    slot = newest_slot(path, reader.reading)
    if slot is None:
        return
    newest = int(slot["last_position"])
    file = file_at(log.files, newest)
    if file is None and newest < log.files[0].start_offset:
        return  # its message is delivered, and its timer log file deleted
    if file is None:
        end = log.files[-1].end_offset
        facts = {"problem": "slot-behind", "position": newest, "end_offset": end}
        report.add("timer.log", file=WHEEL, details=facts)
        return
    if not len(written_unit(file, newest, reader.reading)):
        report.add("timer.log", file=WHEEL, details={"problem": "slot", "position": newest})
