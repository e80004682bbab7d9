"""Where the log of a copy ends: after the last record that is whole, there and, a moment later, in the source."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import UNLIMITED, InputFile, ReadPolicy
from rmqtool.base.mapped_files import MappedFile, list_mapped_files
from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatcher import Dispatcher
from rmqtool.broker.log_walk import NO_ROWS, FileWalk, FileWalker, suspects_of
from rmqtool.broker.record_parser import parse_at
from rmqtool.copy.transfer import copy_attributes, copy_content
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files

_MOMENT = 0.1  # seconds, after which what was being written is written
_TRIES = 3
_HEAD = 8  # size and magic code of a record, bytes


@dataclass(frozen=True)
class LogEnd:
    """Where a log begins and ends, its last record and that one's store time; offsets in bytes, -1 without a record.

    `is_damaged`: readable records follow, so that nothing was cut. `walk` is the one through the last file, if all
    releases go through that in the same way.
    """

    start: int
    end: int
    last_record: int = -1
    last_store_timestamp: int = 0
    is_damaged: bool = False
    walk: FileWalk | None = field(default=None, compare=False)


@dataclass(frozen=True)
class _Walked:
    """The walk through the last file that has data, and where its last two records begin, in the file."""

    walk: FileWalk
    last: tuple[int, ...]


def end_log(
    directory: Path, source: Callable[[str], Path], rules: RecoveryRules, *, again: Callable[[str], None] | None
) -> LogEnd:
    """Find the end of a copied log, and make it the end: zeros follow it, and no file.

    `source` gives the path of a file in the source, `again` copies one from there again where a broker writes it; None
    where none does. What follows a record that is only half written comes back when a broker goes on up to there.
    """
    files = list_mapped_files(directory).files
    number = _last_with_data(files)
    if number < 0:
        start = files[0].start_offset if files else 0
        for file in files[1 if start else 0 :]:  # the first one shows where the log goes on
            file.path.unlink()
        return LogEnd(start, start)
    mapped = files[number]
    walked = _walk(mapped, rules)
    for _ in range(_TRIES):
        if again is None or not walked.walk.readable_behind:
            break
        time.sleep(_MOMENT)
        again(mapped.path.name)
        walked = _walk(mapped, rules)
    walk = walked.walk
    if walk.readable_behind:
        return LogEnd(files[0].start_offset, files[-1].end_offset,
                      mapped.start_offset + walked.last[-1] if walked.last else -1, is_damaged=True)  # fmt: skip
    for later in files[number + 1 :]:
        later.path.unlink()
    end, last = walk.end, walked.last
    if again is not None and last and not _is_same(mapped.path, source(mapped.path.name), last[-1], end):
        end, last = last[-1], last[:-1]
    if walk.outcome == "next" and end == walk.end:
        end = mapped.size
    else:
        _zero_from(mapped.path, end)
    ended = _ended(files[0].start_offset, files[: number + 1], end, last, rules)
    is_as_walked = walk.is_undamaged and last == walked.last
    return replace(ended, walk=walk) if is_as_walked else ended


def proven_end(files: Sequence[MappedFile], rules: RecoveryRules) -> LogEnd:
    """The end of the log of a store on which no broker runs; nothing is changed."""
    number = _last_with_data(files)
    if number < 0:
        start = files[0].start_offset if files else 0
        return LogEnd(start, start)
    mapped, start = files[number], files[0].start_offset
    walked = _walk(mapped, rules)
    if walked.walk.readable_behind:
        return LogEnd(start, mapped.start_offset + walked.walk.end, is_damaged=True)
    end = mapped.size if walked.walk.outcome == "next" else walked.walk.end
    return _ended(start, files[: number + 1], end, walked.last, rules)


def _ended(start: int, files: Sequence[MappedFile], end: int, last: tuple[int, ...], rules: RecoveryRules) -> LogEnd:
    """The end in the last of some files; its last record may be in the file before."""
    mapped = files[-1]
    if not last and len(files) > 1:
        last, mapped = _walk(files[-2], rules).last, files[-2]
    if not last:
        return LogEnd(start, files[-1].start_offset + end)
    with InputFile(mapped.path) as file:
        record = parse_at(file, last[-1], rules)
    return LogEnd(start, files[-1].start_offset + end, mapped.start_offset + last[-1], record.store_timestamp)


def _last_with_data(files: Sequence[MappedFile]) -> int:
    """The number of the last file in which anything is written; -1 without one."""
    for number in range(len(files) - 1, -1, -1):
        with InputFile(files[number].path) as file:
            if file.read(0, _HEAD).strip(b"\0"):
                return number
    return -1


def _walk(mapped: MappedFile, rules: RecoveryRules, reading: ReadPolicy = UNLIMITED) -> _Walked:
    """Walk through a file by the broker's rules: whole records, with their bodies' CRC."""
    last: tuple[int, ...] = ()

    def take(frames: RecordRun, is_shifted: bool) -> None:  # noqa: FBT001, ARG001 - as FileWalker calls it
        nonlocal last
        at = frames.positions - frames.positions[0] + frames.physical_offset - mapped.start_offset
        last = (*last, *(int(each) for each in at[-2:]))[-2:]

    dispatcher = Dispatcher(DispatchRules(rules.version))
    with InputFile(mapped.path, reading) as file:
        walker = FileWalker(file, mapped, rules, on_frames=take)
        for event in scan_files([mapped], reading=reading):
            walker.feed(event, suspects_of(event, dispatcher) if isinstance(event, RecordRun) else NO_ROWS)
        return _Walked(walker.finish(), last)


def _is_same(path: Path, source: Path, start: int, stop: int) -> bool:
    """Whether the last record is in the source, a moment later, as it was copied."""
    time.sleep(_MOMENT)
    try:
        with InputFile(path) as copied, InputFile(source) as there:
            return copied.read(start, stop - start) == there.read(start, stop - start)
    except RmqtoolError:
        return False


def _zero_from(path: Path, position: int) -> None:
    """Make all from a position on a hole, in a file of this copy alone: one that another copy shares is copied."""
    with InputFile(path) as file:
        size = file.size
        if file.next_data(position, size) >= size:
            return
    status = os.stat(path)
    if status.st_nlink > 1 or path.is_symlink():
        own = path.with_name(f"{path.name}.own")
        copy_content(path, own, UNLIMITED, lambda _: None)
        copy_attributes(status, own)
        own.replace(path)
    os.truncate(path, position)
    os.truncate(path, size)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
