"""Checks of names, sizes and small files of a store, before any record is read."""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from rmqtool.base.errors import WrongKindError
from rmqtool.base.mapped_files import MappedFile, MappedFiles
from rmqtool.base.tolerant import skip_wrong_type
from rmqtool.findings.report import Report
from rmqtool.formats.checkpoint import CHECKPOINT_DTYPE
from rmqtool.formats.layout import position_of
from rmqtool.store.checkpoint import CHECKPOINT_TIMES
from rmqtool.store.file_findings import layout_findings, log_findings
from rmqtool.store.index_files import IndexFile
from rmqtool.store.lock import ABORT_FILE, unclean_stop
from rmqtool.store.owners import owners_of
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CHECKPOINT, Store
from rmqtool.transaction.findings import interrupted_findings
from rmqtool.transaction.losses import loss_findings
from rmqtool.transaction.selections import choice_findings
from rmqtool.verify.config_checks import check_config_files
from rmqtool.verify.entry_index_check import check_entry_index
from rmqtool.verify.ext_checks import check_ext_files
from rmqtool.verify.file_type_checks import check_file_types
from rmqtool.verify.log_witnesses import ScannedLog
from rmqtool.verify.node_checkpoint_check import check_node_checkpoint
from rmqtool.verify.timer_checks import check_wheel_size

_CRASH_SIGNS = ("consumequeue.behind", "consumequeue.ahead")


def check_store_files(snapshot: Snapshot, report: Report) -> None:
    """Check the files that need no scan."""
    store, log, holder, releases = snapshot.store, snapshot.log, snapshot.holder, snapshot.releases
    report.check("store.unclean-stop")
    if holder is not None:
        details = {"problem": "program" if holder.program else "", "who": holder.who, "pid": holder.pid,
                   "program": holder.program}  # fmt: skip
        report.add("store.in-use", severity="info", file=holder.file, details=details)
    elif (store.root / ABORT_FILE).exists():
        report.add("store.unclean-stop", file=ABORT_FILE, details=unclean_stop(store.root))
    check_file_types(store, report)
    with skip_wrong_type():
        for interrupted in interrupted_findings(store.root):
            report.add_finding(interrupted)
    for each in (*layout_findings(store), *log_findings(store, log, releases, live=holder is not None)):
        report.add_finding(each)
    for code in ("commitlog.stray", "commitlog.file-size", "commitlog.gap", "commitlog.overlap"):
        report.check(code, len(log.files))
    if log.files and log.files[0].start_offset:
        report.add("commitlog.no-first-file", offset=log.files[0].start_offset)
    for code, file, facts in (*_duplicate_files(log), *_misaligned(log)):
        report.add(code, file=store.relative(file.path), offset=file.start_offset, details=facts)
    if len(store.commit_log_directories) > 1:
        report.add("store.paths", details={"directories": len(store.commit_log_directories)})
    _check_owners(store, log, report)
    check_config_files(snapshot, report)
    if holder is None:
        check_ext_files(store, releases, report)
    check_wheel_size(store, report)
    check_entry_index(snapshot, report)
    check_node_checkpoint(snapshot, report)


def check_recorded_losses(store: Store, report: Report) -> None:
    """Report the losses that runs of ours have recorded, until somebody acknowledges them."""
    report.check("store.recorded-loss")
    with skip_wrong_type():
        for each in loss_findings(store.root):
            report.add_finding(each)


def check_selection(store: Store, report: Report) -> None:
    """Say so where the store was made of chosen messages only."""
    report.check("store.selection")
    with skip_wrong_type():
        for each in choice_findings(store.root):
            report.add_finding(each)


def _duplicate_files(log: MappedFiles) -> Iterator[tuple[str, MappedFile, dict[str, Any]]]:
    for before, after in pairwise(log.files):
        if before.start_offset == after.start_offset:
            yield "commitlog.duplicate-file", after, {"other_file": str(before.path)}


def _misaligned(log: MappedFiles) -> Iterator[tuple[str, MappedFile, dict[str, Any]]]:
    """Files whose start offset is not a multiple of the file size away from those of the others."""
    rests = Counter(file.start_offset % log.file_size for file in log.files if log.file_size)
    usual = max(rests, key=lambda rest: rests[rest], default=0)
    for file in log.files if len(rests) > 1 else ():
        if file.start_offset % log.file_size != usual:
            yield "commitlog.misaligned-file", file, {"start_offset": file.start_offset, "file_size": log.file_size}


def _check_owners(store: Store, log: MappedFiles, report: Report) -> None:
    """Report files with another owner than most have, or that their owner may not write, unless all are read-only."""
    owners = owners_of(store, log)
    report.check("store.permission", len(owners.statuses))
    for path, status in owners.of_others():
        facts = {"problem": "owner", "uid": status.st_uid, "usual_uid": owners.usual[0]}
        report.add("store.permission", file=store.relative(path), details=facts)
    for path, status in owners.not_writable():
        mode = stat.S_IMODE(status.st_mode)
        report.add("store.permission", file=store.relative(path), details={"problem": "mode", "mode": mode})


def check_checkpoint(log: ScannedLog, report: Report, *, is_end_read: bool) -> None:
    """Compare the checkpoint of a stopped broker with the newest record and with the log's end.

    Without `is_end_read` the log's newest message may be of any later time.
    """
    report.check("checkpoint.missing")
    try:
        checkpoint = log.snapshot.checkpoint
    except WrongKindError:
        return  # reported already
    if not log.totals.messages:
        return
    if checkpoint is None:
        report.add("checkpoint.missing", file=CHECKPOINT)
        return
    report.check("checkpoint.future", len(CHECKPOINT_TIMES))
    ahead = [name for name in CHECKPOINT_TIMES if checkpoint[name] > log.totals.latest and is_end_read]
    if ahead:
        newest = max(checkpoint[name] for name in ahead)
        facts = {"fields": " and ".join(ahead), "time": newest, "newest": log.totals.latest}
        report.add("checkpoint.future", file=CHECKPOINT, details=facts)
    of_queues = 1 if log.store.layout == "rocksdb" else checkpoint["logics_message_timestamp"]  # 0 since 5.3.3
    if checkpoint["physic_message_timestamp"] == 0 or of_queues == 0:
        effect = "a start after a crash scans the whole log, since 5.4.0 the last ten files of it"
        report.add("checkpoint.behind", file=CHECKPOINT, effect=effect)
    offset = checkpoint["logics_physical_offset"]
    report.check("checkpoint.logics-offset")
    begins = not offset or offset < log.reader.log_start or log.reader.lookups.begins_at(offset) is not False
    if offset and (offset > log.end or not begins):
        is_used = log.store.conf.is_on("enableAcceleratedRecovery")
        report.add("checkpoint.logics-offset", details={"physical_offset": offset}, file=CHECKPOINT,
                   offset=position_of(CHECKPOINT_DTYPE, "logics_physical_offset"),
                   severity="error" if is_used else None)  # fmt: skip


def check_index_names(store: Store, files: list[IndexFile], report: Report) -> None:
    """Check that index files are in the order of their names, which are times and decide which file is the newest."""
    report.check("index.name", len(files))
    for before, after in pairwise(file for file in files if file.keys):
        if after.begin_physical_offset < before.begin_physical_offset:
            report.add("index.name", file=store.relative(after.path), details={"other_file": before.path.name})


def check_preallocated(store: Store, files: Sequence[MappedFile], end: int, report: Report) -> None:
    """Report log files, but for the first, that begin at `end`, after which nothing is written, or later."""
    for file in files[1:]:
        if file.size and file.start_offset >= end:
            report.add("commitlog.preallocated", file=store.relative(file.path), details={"size": file.size})


def check_abort_missing(counts: Mapping[str, int], report: Report) -> None:
    """Report a missing file `abort` when the `counts` of findings by code look like a crash.

    A torn end alone is cut by either kind of start.
    """
    if "store.unclean-stop" in counts:
        return
    if any(map(counts.get, _CRASH_SIGNS)):
        report.add("store.abort-missing", details={"problem": "crash"})
    elif counts.get("commitlog.torn"):
        report.add("store.abort-missing", details={"problem": "torn"}, severity="info",
                   effect="the next start takes the stop for clean, and cuts the torn end all the same")  # fmt: skip
