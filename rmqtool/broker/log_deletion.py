"""The commit log files that one run deletes, and why it keeps others (`MappedFileQueue#deleteExpiredFileByTime`)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from rmqtool.base.errors import note_failure
from rmqtool.base.files import unreadable
from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.trigger import Trigger
from rmqtool.rules.retention import RetentionSettings

Reason = Literal[
    "expired",
    "forced",
    "last-file",
    "ahead",
    "not-expired",
    "shielded",
    "next-run",
    "no-trigger",
    "cleaner-fails",
    "in-use",
    "plain-files",
]
NOT_BY_AGE = ("last-file", "ahead", "plain-files")
"""Reasons to keep a file, however old it is."""

_BLOCK = 512  # of st_blocks, whatever the file system's own are, bytes


@dataclass(frozen=True)
class LogFile:
    """One commit log file; `mtime` is its modification time, epoch ms, `allocated` its bytes on the disk `device`."""

    file: MappedFile
    mtime: int
    allocated: int
    device: int

    @property
    def start_offset(self) -> int:
        """Physical offset of its first byte."""
        return self.file.start_offset


@dataclass(frozen=True)
class FileDecision:
    """Whether and why a run deletes one file; `expires` is when its age allows to delete it, epoch ms."""

    log_file: LogFile
    deleted: bool
    reason: Reason
    expires: int


@dataclass(frozen=True)
class LogRun:
    """One run over the commit log; `min_offset` is the log's minimum after it, -1 without a file."""

    decisions: tuple[FileDecision, ...]
    min_offset: int

    @property
    def deleted(self) -> list[FileDecision]:
        """The files that are deleted, oldest first."""
        return [decision for decision in self.decisions if decision.deleted]

    @property
    def kept(self) -> list[FileDecision]:
        """The files that are kept, oldest first."""
        return [decision for decision in self.decisions if not decision.deleted]


def allocated_bytes(path: Path) -> int:
    """Bytes that a file occupies on its disk; 0 when it no longer exists."""
    try:
        status = os.stat(path)
    except OSError as error:
        note_failure(path, error)
        return 0
    return status.st_blocks * _BLOCK


def stat_log_file(file: MappedFile) -> LogFile | None:
    """A file with its modification time and size on disk; None when a running broker has just deleted it.

    Raises UnreadableError.
    """
    try:
        status = os.stat(file.path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(file.path, None, error) from error
    return LogFile(file, status.st_mtime_ns // 1_000_000, status.st_blocks * _BLOCK, status.st_dev)


def run_over(
    files: Sequence[LogFile],
    max_offset: int,
    trigger: Trigger,
    settings: RetentionSettings,
    now: int,
    *,
    first_in_use: bool = False,
) -> LogRun:
    """One run at `now`, epoch ms; `max_offset` is the log's end.

    Files past the end are allocated ahead, and the store does not count them. With `first_in_use` a reader still
    holds the first file: the run ends with it, and the log's minimum moves after it although it is kept.
    """
    counted = sum(log_file.start_offset <= max_offset for log_file in files)
    deleted = _deleted(files[: max(0, counted - 1)], trigger, settings, now)
    gone = 0 if first_in_use else len(deleted)
    expires = [_expires(log_file, settings) for log_file in files]
    young = next((index for index, time in enumerate(expires) if now < time), len(files))
    decisions = []
    for index, log_file in enumerate(files):
        kept = _kept(index, counted, young, is_young=now < expires[index], trigger=trigger)
        reason = deleted[index] if index < gone else kept
        decisions.append(FileDecision(log_file, index < gone, reason, expires[index]))
    if first_in_use and deleted:
        decisions[0] = FileDecision(files[0], False, "in-use", decisions[0].expires)
        return LogRun(tuple(decisions), files[0].file.end_offset)
    return LogRun(tuple(decisions), files[gone].start_offset if files else -1)


def run_before_entries(
    files: Sequence[LogFile],
    trigger: Trigger,
    settings: RetentionSettings,
    now: int,
    *,
    deletes_last: bool,
    first_in_use: bool = False,
) -> LogRun:
    """One run where plain files stand before the entries of a DLedger node, whose own cleaner waits for their end.

    Where it `deletes_last` the last plain file goes alone in a run of its own (`DLedgerCommitLog#deleteExpiredFile`).
    """
    plain = [log_file for log_file in files if not log_file.file.header_size]
    entries = files[len(plain) :]
    run = run_over(plain, plain[-1].start_offset, trigger, settings, now, first_in_use=first_in_use)
    decisions, min_offset = list(run.decisions), run.min_offset
    last = decisions[-1]
    if deletes_last and last.reason == "last-file":
        young = next((index for index, each in enumerate(decisions) if now < each.expires), len(plain))
        is_young = now < last.expires
        goes = len(plain) == 1 and trigger.runs and (not is_young or trigger.forced)
        reason = _kept(len(plain) - 1, len(plain) + 1, young, is_young=is_young, trigger=trigger)
        decisions[-1] = replace(last, deleted=goes, reason=("forced" if is_young else "expired") if goes else reason)
        if goes:
            min_offset = entries[0].start_offset if entries else -1
    held = (FileDecision(log_file, False, "plain-files", _expires(log_file, settings)) for log_file in entries)
    return LogRun((*decisions, *held), min_offset)


def _deleted(candidates: Sequence[LogFile], trigger: Trigger, settings: RetentionSettings, now: int) -> list[Reason]:
    """The reasons why the first candidates are deleted, one for each."""
    reasons: list[Reason] = []
    if not trigger.runs:
        return reasons
    for log_file in candidates[: settings.delete_file_batch_max]:
        expired = now >= _expires(log_file, settings)
        if not expired and not trigger.forced:
            break
        reasons.append("expired" if expired else "forced")
    return reasons


def _kept(index: int, counted: int, young: int, *, is_young: bool, trigger: Trigger) -> Reason:
    """Why a file is kept: the reason that would hold even without the others.

    `counted` files are below the log's end; `young` is the index of the first one that has not expired.
    """
    if index >= counted:
        return "ahead"
    if index == counted - 1:
        return "last-file"
    forced = trigger.runs and trigger.forced
    if is_young and not forced:
        return "not-expired"
    if index > young and not forced:
        return "shielded"
    if trigger.failure is not None:
        return "cleaner-fails"
    return "next-run" if trigger.runs else "no-trigger"


def _expires(log_file: LogFile, settings: RetentionSettings) -> int:
    return log_file.mtime + settings.reserved_ms
