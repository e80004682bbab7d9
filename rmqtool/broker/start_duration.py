"""How long a start takes: bounds, from what it reads and derives, the rate of the disk and this machine's speed.

`DefaultMessageStore#load` in a JVM without the second compiler, on two cores, measured with stores of up to 2 GiB, of
messages of 0.3, 1.2 and 20 KB, and of 4,000 queues. One thread scans the log; a start after a crash makes units and
index again.
"""

from __future__ import annotations

import mmap
import os
import time
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.prediction import Mode, ScanFrom, StartPrediction
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.rules.versions import BATCH_QUEUES, RECOVERED_FILES_LIMITED, Version, parse_version
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from rmqtool.store.checkpoint import CHECKPOINT_TIMES, credible
from rmqtool.store.commit_log import LogRange
from rmqtool.store.lock import has_abort
from rmqtool.store.snapshot import Snapshot

StepName = Literal["queues", "log", "dispatch"]
Shorter = Literal["settle", "fewer-queues"]
"""What makes a start shorter: `repair --settle`, fewer queues."""

WORTH_SAYING = 2.0
"""A start that may take so long is worth a word, seconds."""

_GIB = 1 << 30
_WARM_UP_S = 0.1  # until the JVM has compiled what scans
_SCAN_S = 0.4  # of a GiB of the log
_RECORD_S, _OLDER_RECORD_S = 1.4e-6, 1.0e-6  # of each record in it, since 5.0.0 and before
_DISPATCH_S = 3.7e-6  # of a record whose units and keys are derived again
_OLDER_DISPATCH_S = 3.2e-6  # the same before 5.0.0
_NEWER_DISPATCH_S = 1.3e-6  # since 5.4.0, and where units are rows of RocksDB, which has threads of its own
_QUEUE_S = 0.002  # of a queue of one file
_LOW, _HIGH = 0.5, 2.0
_LEAST_S = 0.5  # for which this machine's speed counts
_LEAST_MEASURED = 64 << 20  # bytes of a scan for which a disk is measured
_SAMPLE = 64 << 20  # bytes that are read for that
_PIECE = 4 << 20
_CALIBRATION_SIZE = 16 << 20
_REFERENCE_S = 0.004  # for its CRC-32, on the machine of the measurements
_MANY_QUEUES_SHARE = 0.3
_LONG_S = 5.0
_FILES_WHEN_CLEAN = 3  # CommitLog#recoverNormally
_LOOKED_AT = 1 << 20  # bytes


@dataclass(frozen=True)
class DurationStep:
    """A part of a start: how much it reads, and how long that takes, seconds."""

    name: StepName
    files: int
    bytes: int
    records: int
    seconds: float


@dataclass(frozen=True)
class StartDuration:
    """How long a start takes, from `low` to `high` seconds; `disk_rate` in bytes per second, None where not known.

    Without one the log is taken to be in memory. What is `shorter` makes it so.
    """

    steps: tuple[DurationStep, ...]
    disk_rate: int | None
    factor: float
    shorter: tuple[Shorter, ...] = ()

    @property
    def seconds(self) -> float:
        """The time that is most likely."""
        return sum(step.seconds for step in self.steps)

    @property
    def low(self) -> float:
        """The least."""
        return _LOW * self.seconds

    @property
    def high(self) -> float:
        """The most."""
        return _HIGH * self.seconds


def duration_of(
    start: StartPrediction,
    log: Sequence[MappedFile],
    record_size: float,
    queues: int,
    disk_rate: int | None,
    *,
    has_rows_only: bool = False,
    measures: bool = True,
) -> StartDuration | None:
    """The duration of a predicted start; None where no broker comes up. Records have `record_size` bytes on average.

    Without a `disk_rate` the disk is measured where much is read, if it `measures`.
    """
    end = start.max_offset_after
    if not start.is_up or end is None:
        return None
    begin = start.scan_from.physical_offset if start.scan_from else end
    scanned = [file for file in log if file.end_offset > begin and file.start_offset < max(end, begin + 1)]
    size = max(0, end - begin)
    if measures and disk_rate is None and size >= _LEAST_MEASURED:
        disk_rate = measured_disk_rate(scanned)
    records = int(size / record_size) if record_size else 0
    derived = max(0, end - start.dispatched_from) if start.dispatched_from is not None else 0
    derived_records = int(derived / record_size) if record_size else 0
    scan_s, version = size / _GIB * _SCAN_S, parse_version(start.version)
    record_s = _RECORD_S if version >= BATCH_QUEUES else _OLDER_RECORD_S
    of_log, of_queues = (_WARM_UP_S if size else 0) + scan_s + records * record_s, queues * _QUEUE_S
    of_dispatch = derived_records * _dispatch_seconds(version, has_rows_only=has_rows_only)
    factor = machine_factor() if of_queues + of_log + of_dispatch >= _LEAST_S else 1.0
    waiting = max(0.0, size / disk_rate - scan_s * factor) if disk_rate else 0.0
    steps = (
        DurationStep("queues", queues, 0, 0, of_queues * factor),
        DurationStep("log", len(scanned), size, records, of_log * factor + waiting),
        DurationStep("dispatch", 0, derived, derived_records, of_dispatch * factor),
    )
    found = StartDuration(steps, disk_rate, factor)
    return replace(found, shorter=tuple(_shorter(start, found)))


def _dispatch_seconds(version: Version, *, has_rows_only: bool) -> float:
    if has_rows_only or version >= RECOVERED_FILES_LIMITED:
        return _NEWER_DISPATCH_S
    return _DISPATCH_S if version >= BATCH_QUEUES else _OLDER_DISPATCH_S


def rough_duration(
    snapshot: Snapshot, log_range: LogRange, first_times: Sequence[int | None], queues: int, disk_rate: int | None
) -> StartDuration | None:
    """The same without a look at the log but at some of its records; `first_times` are those of the files' first ones.

    After a crash the scan begins at the last file that the checkpoint is newer than.
    """
    files, rules = snapshot.log.files, RecoveryRules.of(snapshot.release, snapshot.store.conf)
    if not files or log_range.last_record_offset is None:
        return None
    begin = max(0, len(files) - (1 if rules.dispatches_when_clean else _FILES_WHEN_CLEAN))
    is_crashed = has_abort(snapshot.store.root)
    if is_crashed:
        fields = credible(snapshot.checkpoint)
        flushed = min((fields.get(name, 0) for name in CHECKPOINT_TIMES[:2]), default=0)
        older = (number for number, first in enumerate(first_times) if first is not None and first <= flushed)
        begin = max(older, default=0)
        begin = max(begin, len(files) - rules.recovered_files) if rules.limits_recovered_files else begin
    start = files[min(begin, len(files) - 1)].start_offset
    mode: Mode = "abnormal" if is_crashed else "normal"
    assumed = StartPrediction(mode, str(snapshot.release), ScanFrom("", start), start if is_crashed else None,
                              log_range.max_offset)  # fmt: skip
    size = _record_size(snapshot, log_range)
    return duration_of(assumed, files, size, queues, disk_rate, has_rows_only=snapshot.has_rows_only, measures=False)


def _record_size(snapshot: Snapshot, log_range: LogRange) -> float:
    """The average size of some of the last records."""
    start = max(snapshot.log.files[0].start_offset, (log_range.last_record_offset or 0) - _LOOKED_AT)
    records = size = 0
    for event in scan_files(snapshot.log.files, start, log_range.max_offset, snapshot.reading):
        if isinstance(event, RecordRun):
            records, size = records + len(event), size + event.record_bytes
    return size / records if records else 0


def _shorter(start: StartPrediction, found: StartDuration) -> list[Shorter]:
    by_name = {step.name: step for step in found.steps}
    ways: list[Shorter] = []
    if start.mode == "abnormal":
        ways.append("settle")
    if by_name["queues"].seconds > max(_LONG_S, _MANY_QUEUES_SHARE * found.seconds):
        ways.append("fewer-queues")
    return ways


@cache
def machine_factor() -> float:
    """How much slower this machine is than that of the measurements."""
    data = bytes(_CALIBRATION_SIZE)
    best = min(_timed(data) for _ in range(3))
    return max(0.25, best / _REFERENCE_S)


def _timed(data: bytes) -> float:
    began = time.process_time()
    zlib.crc32(data)
    return time.process_time() - began


def measured_disk_rate(files: Sequence[MappedFile]) -> int | None:
    """How fast the disk reads a part of some files past the page cache, bytes per second; None where it cannot say."""
    for file in files[:1]:
        with suppress(OSError, AttributeError, ValueError):
            descriptor = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
            try:
                return _rate_of(descriptor, min(file.size, _SAMPLE))
            finally:
                os.close(descriptor)
    return None


def _rate_of(descriptor: int, size: int) -> int | None:
    buffer = mmap.mmap(-1, _PIECE)  # at the beginning of a page, as reads past the page cache need it
    began, position = time.monotonic(), 0
    while position < size:
        done = os.preadv(descriptor, [buffer], position)
        if not done:
            break
        position += done
    seconds = time.monotonic() - began
    return int(position / seconds) if position and seconds > 0 else None
