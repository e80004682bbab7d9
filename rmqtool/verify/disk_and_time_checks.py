"""The store's environment: the disk, holes in files, modification times, `deleteWhen`."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from rmqtool.base.errors import RmqtoolError, UnreadableError
from rmqtool.base.mapped_files import MappedFile
from rmqtool.base.paths import is_remote
from rmqtool.broker.dispatched_record import Lookups
from rmqtool.broker.trigger import Disk, disk_of, failing_hours, matching_hours
from rmqtool.findings.finding import Finding
from rmqtool.findings.report import Report
from rmqtool.formats.consume_queue import UNIT_SIZE
from rmqtool.rules.retention import RetentionSettings, settings_of
from rmqtool.rules.versions import NEWEST
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import Store

_HOUR = 3_600_000  # ms
_TOLERANCE = _HOUR  # the kernel writes a map's pages, and sets the time, later than the message was stored
_SAME = 60_000  # modification times of files that were copied together differ by less, ms
_BLOCK = 512  # bytes, the unit of st_blocks
_FEW_INODES = 0.01  # of all


@dataclass(frozen=True)
class FirstRecord:
    """The first record of a commit log file: when it was stored (epoch ms) and by which host."""

    file: MappedFile
    store_timestamp: int
    store_host: str


def check_environment(snapshot: Snapshot, report: Report) -> None:
    """Check disk and settings by the rules of the store's release, or of the newest one."""
    store, log, version = snapshot.store, snapshot.log, snapshot.version or NEWEST
    settings = settings_of(store.conf.settings, {}, version)
    _check_delete_when(settings, report)
    if not log.files:
        return
    directory = log.files[-1].path.parent
    report.check("store.disk-full")
    try:
        disk = disk_of(directory, version)
    except RmqtoolError:
        return
    _check_disk(disk, disk.ratio(version), settings, live=snapshot.holder is not None, report=report)
    _check_inodes(directory, report)
    _check_holes(store, log.files, disk, report)


def first_records(files: Sequence[MappedFile], lookups: Lookups) -> Iterator[FirstRecord]:
    """The first records of the files; files that cannot be read or begin with none are left out."""
    for file in files:
        try:
            time_and_host = lookups.time_and_host_at(file.start_offset + file.header_size)
        except UnreadableError:
            continue
        if time_and_host is not None:
            yield FirstRecord(file, *time_and_host)


def check_times(store: Store, firsts: Sequence[FirstRecord], report: Report) -> None:
    """Compare the files' modification times, from which retention counts, with the times of their messages."""
    if is_remote(store.root):
        return
    modified_files = [(first, status.st_mtime_ns // 10**6) for first in firsts if (status := _status_of(first.file))]
    times = [modified for _, modified in modified_files]
    report.check("store.modification-times", len(modified_files))
    for first, modified in modified_files:
        file = store.relative(first.file.path)
        if modified < first.store_timestamp - _TOLERANCE:
            facts = {"problem": "before", "modified": modified, "store_timestamp": first.store_timestamp}
            effect = "the file is deleted earlier than its messages expire; up to 5.1.0 searches by time may go wrong"
            report.add("store.modification-times", file=file, effect=effect, details=facts)
        elif modified > time.time() * 1000 + _TOLERANCE:
            report.add("store.retention-blocked", details={"problem": "future", "modified": modified}, file=file,
                       effect="keeps it and all newer ones until then, and for the retention time")  # fmt: skip
    if len(times) > 1 and max(times) - min(times) <= _SAME:
        span = modified_files[-1][0].store_timestamp - modified_files[0][0].store_timestamp
        if span > _HOUR:
            facts = {"problem": "copied", "files": len(times), "modified": max(times), "hours": span // _HOUR}
            report.add("store.modification-times", details=facts)


def _check_delete_when(settings: RetentionSettings, report: Report) -> None:
    report.check("store.retention-blocked")
    given = settings.delete_when
    if failing_hours(given):
        facts = {"problem": "delete-when", "delete_when": given}
        effect = "deletes nothing in those hours, not even when the disk is full"
        report.add("store.retention-blocked", effect=effect, details=facts)
    elif not matching_hours(given):
        facts = {"problem": "no-hour", "delete_when": given}
        report.add("store.retention-blocked", effect="deletes only when the disk is too full", details=facts)


def _check_disk(disk: Disk, ratio: float, settings: RetentionSettings, *, live: bool, report: Report) -> None:
    """Above the warning level a broker refuses messages: a fault where one runs; a copy may lie on a full disk."""
    if ratio <= settings.forcibly_level:
        return
    refused = ratio > settings.warning_level
    effect = "a broker would delete its oldest files, whether they have expired or not"
    if refused:
        effect = f"{'the broker refuses' if live else 'a broker would refuse'} messages, and delete its oldest files"
    report.add("store.disk-full", effect=effect, severity="warning" if live and refused else "info",
               details={"problem": "bytes", "directory": str(disk.path), "used": ratio})  # fmt: skip


def _check_inodes(directory: Path, report: Report) -> None:
    space = os.statvfs(directory)
    if space.f_files and space.f_favail < space.f_files * _FEW_INODES:
        facts = {"problem": "inodes", "left": space.f_favail, "inodes": space.f_files, "directory": str(directory)}
        report.add("store.disk-full", severity="info", effect="new files cannot be made", details=facts)


def _check_holes(store: Store, files: Sequence[MappedFile], disk: Disk, report: Report) -> None:
    """Holes do no harm while the disk has room for them."""
    report.check("commitlog.sparse", len(files))
    holes = [(file, file.size - status.st_blocks * _BLOCK) for file in files if (status := _status_of(file))]
    missing = sum(size for _, size in holes if size > 0)
    if missing > disk.usable:
        first = next(file for file, size in holes if size > 0)
        report.add("commitlog.sparse", file=store.relative(first.path), offset=first.start_offset,
                   details={"bytes": missing, "usable": disk.usable})  # fmt: skip


def latest_modification(files: Sequence[MappedFile]) -> int:
    """The latest modification time of the files, epoch ms; 0 without files."""
    return max((status.st_mtime_ns // 10**6 for file in files if (status := _status_of(file))), default=0)


def _status_of(file: MappedFile) -> os.stat_result | None:
    """The status of a file, None when a running broker has deleted it."""
    try:
        return file.path.stat()
    except FileNotFoundError:
        return None


_OF_OTHERS = ("consumequeue.wrong-record", "consumequeue.missing-unit", "commitlog.duplicate-file")
"""Codes of findings where queues are not of the same broker as the log.

Units of the index are none: a kill loses pages of it, and leaves units of messages that the log has lost, in whose
place the next broker writes. Where all queues lead to their messages, the files of the log belong together.
"""

_WRONG, _PAGE = "consumequeue.wrong-record", 4096
_NO_BROKER = "0.0.0.0:0"  # of dummy records in place of damage


def check_hosts(store: Store, firsts: Sequence[FirstRecord], report_so_far: Report, report: Report) -> None:
    """Report that the broker's address changes from file to file.

    An error when `report_so_far` has queues that contradict the log; else information, since a broker may move, a pod
    has another address after each start, and after a switch of roles the log goes on with that of the new master.
    """
    report.check("store.mixed", len(firsts))
    of_brokers = [first for first in firsts if first.store_host != _NO_BROKER]
    runs = [list(run) for _, run in groupby(of_brokers, key=lambda first: first.store_host)]
    if len(runs) < 2:
        return
    counts = Counter(report_so_far.serious_totals())
    counts[_WRONG] -= sum(each.count for each in report_so_far.findings() if each.code == _WRONG and _is_half(each))
    contradicted = [code for code in _OF_OTHERS if counts[code] > 0]
    hosts = dict.fromkeys(run[0].store_host for run in runs)
    facts: dict[str, Any] = {"problem": "alone", "brokers": len(hosts), "hosts": [*hosts]}
    facts["first_hosts"] = ", ".join([*hosts][:4]) + (", ..." if len(hosts) > 4 else "")
    file = store.relative(runs[1][0].file.path)
    if contradicted:
        facts |= {"problem": "contradicted", "contradicted": contradicted}
        report.add("store.mixed", file=file, details=facts)
    else:
        effect = "none, when the broker's address has changed or another one has become the master"
        report.add("store.mixed", severity="info", effect=effect, file=file, details=facts)


def _is_half(finding: Finding) -> bool:
    """Whether a queue entry stands across the end of a page: a kill may have kept one half of it and lost the other."""
    return finding.offset is not None and finding.offset % _PAGE > _PAGE - UNIT_SIZE
