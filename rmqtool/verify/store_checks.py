"""Checks of names, sizes and small files of a store, before any record is read."""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from rmqtool.base.errors import WrongKindError, note_failure
from rmqtool.base.files import list_directory
from rmqtool.base.mapped_files import MappedFile, MappedFiles, list_mapped_files
from rmqtool.base.paths import DirectoryEntry, entry_path
from rmqtool.base.tolerant import skip_wrong_type
from rmqtool.base.visible import quote
from rmqtool.findings.report import Report
from rmqtool.formats.checkpoint import CHECKPOINT_DTYPE
from rmqtool.formats.file_name import is_index_name
from rmqtool.formats.layout import position_of
from rmqtool.rules.versions import Releases
from rmqtool.store.checkpoint import CHECKPOINT_TIMES
from rmqtool.store.config_tables import CONFIG_DATABASES
from rmqtool.store.dledger_node import NODE_CHECKPOINT, unreadable_committed_index
from rmqtool.store.file_findings import empty_file_finding, layout_findings, log_findings
from rmqtool.store.index_files import IndexFile
from rmqtool.store.lock import ABORT_FILE, LOCK_FILE, has_abort, unclean_stop
from rmqtool.store.paths import TIMER_LOG
from rmqtool.store.side_rows import POP_STORE
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import (
    BATCH_CONSUME_QUEUE,
    CHECKPOINT,
    CONFIG,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
    SIDE_STORE,
    Store,
    owners_of,
)
from rmqtool.transaction.home import interrupted_findings
from rmqtool.transaction.losses import choice_findings, loss_findings
from rmqtool.transaction.paths import HOME
from rmqtool.verify.config_checks import check_config_files
from rmqtool.verify.entry_checks import check_entry_index
from rmqtool.verify.log_witnesses import ScannedLog
from rmqtool.verify.timer_checks import check_wheel_size

_CODE = "store.dledger-checkpoint"


def check_node_checkpoint(snapshot: Snapshot, report: Report) -> None:
    """Check what a node reads of its checkpoint (`DLedgerMmapFileStore#recover`)."""
    node = snapshot.store.dledger_directory
    if node is None:
        return
    report.check(_CODE)
    text = unreadable_committed_index(node)
    if text is not None:
        path = node / NODE_CHECKPOINT
        remedy = f"mv {quote(str(path))} {quote(f'{path}.old')}"
        shown = snapshot.store.relative(path)
        report.add(_CODE, remedy=remedy, file=shown, details={"found": text})


def check_ext_files(store: Store, releases: Releases, report: Report) -> None:
    """Report files of 0 bytes, unless the settings switch ext units off, so that none is loaded."""
    if not store.conf.is_on("enableConsumeQueueExt", default=True):
        return
    with skip_wrong_type():
        for topic in list_directory(store.root / CONSUME_QUEUE_EXT):
            for queue in list_directory(entry_path(topic)) if topic.is_dir() else ():
                _check_queue(store, entry_path(queue), releases, report)


def _check_queue(store: Store, directory: Path, releases: Releases, report: Report) -> None:
    if not directory.is_dir():
        return
    files = list_mapped_files(directory).files
    for file in files:
        if not file.size:
            last = releases if file is files[-1] else None
            empty = empty_file_finding("consumequeue.empty-file", store, file, last, topic=directory.parent.name)
            report.add_finding(empty)


_NOTHING_READ = "the broker reads nothing from it, and fails when it has to write there"
_DIRECTORIES: Mapping[str, str] = {
    CONSUME_QUEUE: "the broker loads no consume queue, and fails when it has to write one",
    BATCH_CONSUME_QUEUE: "the broker loads no batch consume queue, and fails when it has to write one",
    INDEX: "the broker loads no index, and fails when it has to write one",
    CONFIG: "the broker starts without any topic, group or committed offset, and cannot save them",
    CONSUME_QUEUE_EXT: _NOTHING_READ,
    TIMER_LOG: _NOTHING_READ,
    SIDE_STORE: "brokers since 5.4.0 cannot open their database there",
    POP_STORE: "brokers with popConsumerKVServiceInit=true do not start",
    **dict.fromkeys(
        (f"{CONFIG}/{name}" for name in CONFIG_DATABASES),
        "brokers that keep topics, groups and offsets there do not start",
    ),
    HOME: "none; rmqtool keeps replaced files there, and refuses to repair this store",
}
"""Paths that must be directories if they exist, and the effect on a broker when they are not."""

_FILES: Mapping[str, str] = {
    CHECKPOINT: "the broker refuses to start",
    LOCK_FILE: "the broker refuses to start",
    ABORT_FILE: "the broker considers the last stop unclean, and cannot write its process id there",
}
"""Paths that must be files if they exist, and the effect on a broker when they are not."""


def check_file_types(store: Store, report: Report) -> None:
    """Check the types of the store's directories and small files; a missing one is not a fault."""
    for name, effect in (*_DIRECTORIES.items(), *_FILES.items()):
        report.check("store.wrong-kind")
        try:
            mode = (store.root / name).stat().st_mode
        except OSError as error:
            note_failure(store.root / name, error)
            continue  # reported by the checks that need it
        expected, fits = ("directory", stat.S_ISDIR(mode)) if name in _DIRECTORIES else ("file", stat.S_ISREG(mode))
        if not fits:
            actual = "a directory" if stat.S_ISDIR(mode) else "a file" if stat.S_ISREG(mode) else "something else"
            facts = {"problem": "other", "found": actual, "expected": expected}
            report.add("store.wrong-kind", effect=effect, file=name, details=facts)
    with skip_wrong_type():
        _check_index_directory(store, report)
    for name in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE):
        if store.layout != "rocksdb":
            _check_queue_directories(store, name, report)


def _check_index_directory(store: Store, report: Report) -> None:
    for entry in list_directory(store.root / INDEX):
        if is_index_name(entry.name) and not entry.is_file():
            effect = "the broker refuses to start; before 5.0.0 it loads no index file after it"
            report.add("store.wrong-kind", effect=effect, file=f"{INDEX}/{entry.name}", details={"problem": "index"})


def _check_queue_directories(store: Store, name: str, report: Report) -> None:
    """Report files in place of the directories of topics and queues, where the broker cannot write a queue."""
    entries: list[DirectoryEntry] = []
    for topic in _entries(store.root / name):
        if topic.is_dir():
            entries += (entry for entry in _entries(entry_path(topic)) if entry.name.isdecimal())
        else:
            entries.append(topic)
    report.check("consumequeue.stray", len(entries))
    for entry in entries:
        if not entry.is_dir():
            report.add("consumequeue.stray", severity="info", file=store.relative(entry_path(entry)),
                       effect="looks past it, and cannot write a queue of that name",
                       details={"problem": "directory"})  # fmt: skip


def _entries(directory: Path) -> list[DirectoryEntry]:
    """The entries of a directory; empty when it is a file."""
    entries: list[DirectoryEntry] = []
    with skip_wrong_type():
        entries += list_directory(directory)
    return entries


_CRASH_SIGNS = ("consumequeue.behind", "consumequeue.ahead")


def check_store_files(snapshot: Snapshot, report: Report) -> None:
    """Check the files that need no scan."""
    store, log, holder, releases = snapshot.store, snapshot.log, snapshot.holder, snapshot.releases
    report.check("store.unclean-stop")
    if holder is not None:
        details = {"problem": "program" if holder.program else "", "who": holder.who, "pid": holder.pid,
                   "program": holder.program}  # fmt: skip
        report.add("store.in-use", severity="info", file=holder.file, details=details)
    elif has_abort(store.root):
        report.add("store.unclean-stop", file=ABORT_FILE, details=unclean_stop(store.root))
    check_file_types(store, report)
    with skip_wrong_type():
        report.add_findings(interrupted_findings(store.root))
    report.add_findings((*layout_findings(store), *log_findings(store, log, releases, live=holder is not None)))
    _check_only_file(snapshot, report)
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


def _check_only_file(snapshot: Snapshot, report: Report) -> None:
    """Report the only file of the log where it was cut: no other file shows its size then."""
    log, right = snapshot.log, snapshot.right_log_file_size
    if right != log.file_size:
        details = {"problem": "cut", "size": log.file_size, "expected": right}
        report.add("commitlog.file-size", file=snapshot.store.relative(log.files[0].path), details=details)


def check_records(store: Store, report: Report) -> None:
    """Report what runs of ours have recorded: losses that nobody has acknowledged, and a choice of messages."""
    for code, findings_of in (("store.recorded-loss", loss_findings), ("store.selection", choice_findings)):
        report.check(code)
        with skip_wrong_type():
            report.add_findings(findings_of(store.root))


def _duplicate_files(log: MappedFiles) -> Iterator[tuple[str, MappedFile, dict[str, Any]]]:
    for before, after in pairwise(log.files):
        if before.start_offset == after.start_offset:
            yield "commitlog.duplicate-file", after, {"other_file": str(before.path)}


def _misaligned(log: MappedFiles) -> Iterator[tuple[str, MappedFile, dict[str, Any]]]:
    """Files whose start offset is not a multiple of the file size away from those of the others."""
    size = log.file_size
    rests = Counter(file.start_offset % size for file in log.files if size)
    usual = max(rests, key=lambda rest: rests[rest], default=0)
    for file in log.files if len(rests) > 1 else ():
        if file.start_offset % size != usual:
            yield "commitlog.misaligned-file", file, {"start_offset": file.start_offset, "file_size": size}


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
                   effect="the next start considers the stop clean, and cuts the torn end all the same")  # fmt: skip
