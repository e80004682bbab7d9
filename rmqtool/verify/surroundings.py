"""What names, sizes and small files of a store show, before any record is read."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from rmqtool.checkpoint import read_checkpoint
from rmqtool.config_json import load_config
from rmqtool.errors import UnreadableError
from rmqtool.files import list_directory
from rmqtool.index import IndexFile
from rmqtool.lock import ABORT_FILE, Holder
from rmqtool.mapped_files import MappedFile, MappedFiles
from rmqtool.offsets import CONSUMER_OFFSET, LMQ_CONSUMER_OFFSET, load_offsets
from rmqtool.store import CHECKPOINT, CONFIG, Store
from rmqtool.store_findings import layout_findings, log_findings, offset_findings
from rmqtool.transaction.findings import interrupted_findings
from rmqtool.verify.report import Report

_CONFIG_NAME = re.compile(r"\w+\.json")
_TIMER_WHEEL = "timerwheel"
_TIMER_SLOTS = 7 * 86_400 * 1000  # TimerMessageStore.TIMER_WHEEL_TTL_DAY, ms
_TIMER_SLOT_SIZE = 2 * 32  # twice as many slots, so that the wheel has room for a second turn (Slot.SIZE)
_OTHER_WRITERS = 0o022


def check_surroundings(store: Store, log: MappedFiles, holder: Holder | None, report: Report) -> None:
    """Check what needs no scan."""
    report.check("store.unclean-stop")
    if holder is not None:
        report.add("store.in-use", f"a broker runs on this store ({holder.file}); what it writes meanwhile is no fault",
                   severity="info", file=holder.file)  # fmt: skip
    elif (store.root / ABORT_FILE).exists():
        report.add("store.unclean-stop",
                   "the last broker was killed or crashed: the file abort is there and no broker runs",
                   file=ABORT_FILE)  # fmt: skip
    for found in (*interrupted_findings(store.root), *layout_findings(store), *log_findings(store, log)):
        report.take(found)
    for code in ("commitlog.stray", "commitlog.file-size", "commitlog.gap", "commitlog.overlap"):
        report.check(code, len(log.files))
    if log.files and log.files[0].start_offset:
        message = f"begins at {log.files[0].start_offset}: older files were deleted"
        report.add("commitlog.no-first-file", message, offset=log.files[0].start_offset)
    for code, file, message in (*_duplicate_files(log), *_off_grid(log)):
        report.add(code, message, file=store.relative(file.path), offset=file.start_offset)
    if len(store.commit_log_directories) > 1:
        report.add("store.paths", f"{len(store.commit_log_directories)} directories hold the commit log")
    _check_owners(store, log, report)
    _check_config(store, report)
    _check_timer(store, report)


def _duplicate_files(log: MappedFiles) -> Iterator[tuple[str, MappedFile, str]]:
    for before, after in pairwise(log.files):
        if before.start_offset == after.start_offset:
            yield "commitlog.duplicate-file", after, f"{before.path} begins at the same offset"


def _off_grid(log: MappedFiles) -> Iterator[tuple[str, MappedFile, str]]:
    """Files whose start offset is not a whole number of files behind that of most."""
    rests = Counter(file.start_offset % log.file_size for file in log.files if log.file_size)
    usual = max(rests, key=lambda rest: rests[rest], default=0)
    for file in log.files if len(rests) > 1 else ():
        if file.start_offset % log.file_size != usual:
            yield "commitlog.off-grid", file, "its name does not fit those of the other files and their size"


def _check_owners(store: Store, log: MappedFiles, report: Report) -> None:
    """Files that another user than that of most owns, and that only their owner may write."""
    paths = [*(file.path for file in log.files), *(store.root / name for name in (CHECKPOINT, "lock", CONFIG))]
    found = {path: os.stat(path) for path in paths if path.exists()}
    usual = Counter(status.st_uid for status in found.values()).most_common(1)
    report.check("store.permission", len(found))
    for path, status in found.items():
        if status.st_uid != usual[0][0] and not status.st_mode & _OTHER_WRITERS:
            message = f"owned by user {status.st_uid}, the others by {usual[0][0]}"
            report.add("store.permission", message, file=store.relative(path))


def _check_config(store: Store, report: Report) -> None:
    offsets = load_offsets(store)
    for found in offset_findings(store, offsets.file):
        report.take(found)
    for name in _config_names(store):
        report.check("config.unreadable")
        file = load_config(store.root / CONFIG / name)
        if file.problem is None or name in (CONSUMER_OFFSET, LMQ_CONSUMER_OFFSET):
            continue
        shown, severity = (
            f"the broker reads {store.relative(file.path)}" if file.path else "no .bak that can be read",
            None,
        )
        effect = None
        if file.path is None:
            severity, effect = ("error", "the broker refuses to start") if file.has_bad_backup else ("warning", None)
        report.add("config.unreadable", f"{file.problem}; {shown}", file=f"{CONFIG}/{name}", severity=severity,
                   effect=effect)  # fmt: skip


def _config_names(store: Store) -> list[str]:
    """The JSON files, also those of which only the ``.bak`` is left."""
    names = {entry.name.removesuffix(".bak") for entry in list_directory(store.root / CONFIG)}
    return sorted(name for name in names if _CONFIG_NAME.fullmatch(name))


def _check_timer(store: Store, report: Report) -> None:
    """A wheel of another size stops the start (`TimerWheel`)."""
    wheel = store.root / _TIMER_WHEEL
    try:
        size = wheel.stat().st_size
    except OSError:
        return
    report.check("timer.wheel-size")
    precision = store.conf.size("timerPrecisionMs") or 1000
    expected = _TIMER_SLOTS // precision * _TIMER_SLOT_SIZE
    if size != expected:
        report.add(
            "timer.wheel-size", f"{size} bytes, with a precision of {precision} ms {expected}", file=_TIMER_WHEEL
        )


def check_checkpoint(
    store: Store, report: Report, latest: int, last_record: int | None, is_record: bool | None
) -> None:
    """Compare the checkpoint with the newest record, whose store timestamp is `latest`, epoch ms.

    `is_record` tells whether a record begins where the checkpoint's offset says; None when that is not known.
    """
    report.check("checkpoint.missing")
    try:
        checkpoint = read_checkpoint(store)
    except UnreadableError as error:
        report.add("checkpoint.missing", error.message, file=CHECKPOINT)
        return
    if last_record is None:
        return
    if checkpoint is None:
        report.add("checkpoint.missing", "the file is not there", file=CHECKPOINT)
        return
    for name in ("physic_message_timestamp", "logics_message_timestamp", "index_message_timestamp"):
        report.check("checkpoint.future")
        if checkpoint[name] > latest:
            message = f"{name} is {checkpoint[name]}, the newest message was stored at {latest}"
            report.add("checkpoint.future", message, file=CHECKPOINT)
    if checkpoint["physic_message_timestamp"] == 0 or checkpoint["logics_message_timestamp"] == 0:
        report.add("checkpoint.behind", "a timestamp is 0: after a crash the whole log is scanned", file=CHECKPOINT)
    offset = checkpoint["logics_physical_offset"]
    report.check("checkpoint.logics-offset")
    if offset and (offset > last_record or is_record is False):
        report.add("checkpoint.logics-offset", f"no record begins at {offset}", file=CHECKPOINT, offset=40)


def check_index_names(store: Store, files: list[IndexFile], report: Report) -> None:
    """File names are times and decide which file is the newest; contents should be in the same order."""
    report.check("index.name", len(files))
    for before, after in pairwise(file for file in files if file.keys):
        if after.begin_physical_offset < before.begin_physical_offset:
            message = f"sorts behind {before.path.name}, but holds older messages"
            report.add("index.name", message, file=store.relative(after.path))
