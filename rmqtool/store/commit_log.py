"""The commit log as a whole: where it begins and ends, found without reading all of it (`CommitLog`)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

from rmqtool.base.errors import UnreadableError, note_failure
from rmqtool.base.files import UNLIMITED, InputFile, ReadPolicy, is_zero
from rmqtool.base.mapped_files import MappedFile, MappedFiles, file_at
from rmqtool.base.paths import is_remote
from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.formats.layout import integer_at
from rmqtool.formats.message import HEADER_DTYPES, HOST_BITS, MAX_HEADER_SIZE, PREFIX_DTYPE
from rmqtool.rules.file_sizes import DEFAULT_LOG_FILE_SIZE
from rmqtool.scan.block import Blank
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import LONGEST_BLANK, scan_files
from rmqtool.scan.single_record import Probe
from rmqtool.store.store import COMMIT_LOG

_FIRST_PAGE = 4096
_WRITING_S = 0.05  # longer than a broker needs to write one record, even where it waits for a page of the file


@dataclass(frozen=True)
class LogRange:
    """Offsets as the broker reports them, the maximum exclusive, bytes; store timestamps, epoch ms, None without one.

    Without a file the minimum is -1 and the maximum 0 (`MappedFileQueue#getMinOffset`). `last_record_offset` is where
    the last record begins.
    """

    min_offset: int = -1
    max_offset: int = 0
    first_store_timestamp: int | None = None
    last_store_timestamp: int | None = None
    last_record_offset: int | None = field(default=None, compare=False)


class _LastRecord(NamedTuple):
    """Where the last record begins, where the log goes on after it, and when it was stored."""

    offset: int
    end: int
    store_timestamp: int


def log_range(files: Sequence[MappedFile], hint: int | None = None, reading: ReadPolicy = UNLIMITED) -> LogRange:
    """Find the range from the first and the last records.

    `hint` is the physical offset of a record near the end, such as the queues' last units have; without a good one
    the end of the last file that is not all zeros is read.
    """
    if not files:
        return LogRange()
    min_offset = files[0].start_offset
    file_number = _last_with_data(files, hint, reading)
    first = next((event for event in scan_files(files, reading=reading) if isinstance(event, RecordRun)), None)
    if file_number is None or first is None:
        return LogRange(min_offset, files[file_number or 0].start_offset)
    first_timestamp = int(first.headers.field("store_timestamp")[0])
    last_record = _last_record_of(files, file_number, reading, hint)
    if last_record:
        return LogRange(min_offset, last_record.end, first_timestamp, last_record.store_timestamp, last_record.offset)
    earlier = (_last_record_of(files, before, reading) for before in reversed(range(file_number)))
    last = next(filter(None, earlier), None)
    timestamp_and_offset = (last.store_timestamp, last.offset) if last else (None, None)
    return LogRange(min_offset, files[file_number].start_offset, first_timestamp, *timestamp_and_offset)


def near_end(files: Sequence[MappedFile], reading: ReadPolicy = UNLIMITED) -> LogRange:
    """The range without the first time, from a few MiB wherever the log ends: its end may be a little further.

    The last file is halved by its pages: those of zeros are taken for the rest. Where no record is near, it ends there.
    """
    if not files:
        return LogRange()
    number = next((each for each in reversed(range(len(files))) if _has_data(files[each], 0, reading)), 0)
    mapped, low, high = files[number], 0, files[number].size
    while high - low > _FIRST_PAGE:
        middle = (low + high) // 2
        low, high = (middle, high) if _has_data(mapped, middle, reading) else (low, middle)
    start = mapped.start_offset + max(0, low - LONGEST_BLANK)
    last = _last_record(files[number:], start, reading, mapped.start_offset + high)
    if last is None:
        return LogRange(files[0].start_offset, mapped.start_offset)
    return LogRange(files[0].start_offset, last.end, None, last.store_timestamp, last.offset)


def _has_data(mapped: MappedFile, position: int, reading: ReadPolicy) -> bool:
    """Whether a page's worth of bytes from a position of a file on is not all zeros."""
    with InputFile(mapped.path, reading) as file:
        return not is_zero(file.read(position, min(_FIRST_PAGE, max(0, file.size - position))))


def ends_in_a_record(file: MappedFile, end: int, reading: ReadPolicy = UNLIMITED) -> bool:
    """Whether a file whose last sound record ends at the physical offset `end` was cut, for no broker leaves it so.

    A file that is full ends with a blank of its own, any other with zeros.
    """
    if file.header_size:
        return False
    if end == file.end_offset:
        return True
    with InputFile(file.path, reading) as opened:
        rest = Probe(opened, file.start_offset, end - file.start_offset)
        return rest.kind == "truncated" or (rest.kind == "blank" and rest.position + rest.size > file.size)


def written_end(files: Sequence[MappedFile], hint: int | None = None, reading: ReadPolicy = UNLIMITED) -> int:
    """The maximum offset of a log to which a broker appends; all records before it are whole when this returns, bytes.

    Further on are records of which the broker has copied only a part into the file: a reader may have passed their
    middle before it was written, and find their end. Even the last record with the right lengths may lack the end of
    its properties for a moment.
    """
    end = log_range(files, hint, reading).max_offset
    time.sleep(_WRITING_S)
    return end


WORTH_A_PROCESS = 64 << 20
"""Bytes of a log that make one more process worth its start."""

_BLOCK = 512  # bytes, the unit of st_blocks


def log_bytes(root: Path) -> int:
    """The bytes that the log of the store at `root` takes on the disk; 0 where it cannot be seen, or is remote."""
    if is_remote(root):
        return 0
    try:
        with os.scandir(root / COMMIT_LOG) as entries:
            return sum(entry.stat().st_blocks * _BLOCK for entry in entries)
    except OSError as error:
        note_failure(root / COMMIT_LOG, error)
        return 0


def log_start(files: Sequence[MappedFile]) -> int:
    """Physical offset at which a log begins, 0 without a file."""
    return files[0].start_offset if files else 0


def data_end(files: Sequence[MappedFile], reading: ReadPolicy = UNLIMITED) -> int:
    """Physical offset after the last byte of a log that is not zero; where it begins without one."""
    for mapped in reversed(files):
        with InputFile(mapped.path, reading) as file:
            end = file.data_end()
        if end:
            return mapped.start_offset + end
    return log_start(files)


def readable_end(files: Sequence[MappedFile], reading: ReadPolicy = UNLIMITED, *, live: bool) -> int:
    """Where a scan of a log has to stop: `written_end` of a `live` one, of others nowhere."""
    return written_end(files, reading=reading) if live else MAX_OFFSET


def _last_record_of(
    files: Sequence[MappedFile], file_number: int, reading: ReadPolicy, hint: int | None = None
) -> _LastRecord | None:
    """The last record of file `file_number`; None when there is none in it."""
    mapped, rest = files[file_number], files[file_number:]
    if hint is not None and mapped.holds(hint) and (found := _last_record(rest, hint, reading)):
        return found
    with InputFile(mapped.path, reading) as file:
        near_end = mapped.start_offset + max(0, file.data_end() - LONGEST_BLANK)
    found = _last_record(rest, near_end, reading)
    return found if found or near_end == mapped.start_offset else _last_record(rest, mapped.start_offset, reading)


def _last_with_data(files: Sequence[MappedFile], hint: int | None, reading: ReadPolicy) -> int | None:
    """Number of the last file that is not all zeros.

    Only the first page is read of files after the hint, to which no queue points: the broker allocates them ahead and
    may write zeros to all of their pages, which would take long to read.
    """
    for file_number in reversed(range(len(files))):
        mapped = files[file_number]
        with InputFile(mapped.path, reading) as file:
            beyond = hint is not None and mapped.start_offset > hint
            end = min(file.size, _FIRST_PAGE) if beyond else file.size
            if file.next_data(0, end) < end:
                return file_number
    return None


def _last_record(
    files: Sequence[MappedFile], start: int, reading: ReadPolicy, stop: int = MAX_OFFSET
) -> _LastRecord | None:
    """End and store timestamp of the last record from `start` on; after a blank the log goes on in the next file."""
    last_record = None
    for event in scan_files(files[:1], start, stop, reading):
        if isinstance(event, RecordRun):
            timestamp, offset = int(event.headers.field("store_timestamp")[-1]), int(event.positions[-1])
            last_record = _LastRecord(event.block.start_offset + offset, event.physical_offset + event.size, timestamp)
        elif isinstance(event, Blank) and last_record and len(files) > 1:
            last_record = last_record._replace(end=files[1].start_offset)
    return last_record


class LogBytes:
    """The log from its first file to `max_offset` (exclusive), bytes; a file stays open until `close`."""

    def __init__(self, log: MappedFiles, max_offset: int, reading: ReadPolicy = UNLIMITED) -> None:
        self.files = log.files
        self.file_size = log.file_size or DEFAULT_LOG_FILE_SIZE  # units may lead into a log without a file
        self.max_offset = max_offset
        self._reading = reading
        self._open: InputFile | None = None  # neighbours in a queue are neighbours in the log: one file will do

    @property
    def min_offset(self) -> int:
        """Where the first file begins, -1 without a file."""
        return self.files[0].start_offset if self.files else -1

    def file_of(self, physical_offset: int, size: int) -> MappedFile | None:
        """The file in which the broker reads `size` bytes at `physical_offset`; None when it does not find them.

        Offset 0 is searched in the first file when no file begins there, as the broker does.
        """
        mapped = file_at(self.files, physical_offset)
        if mapped is None and physical_offset == 0 and self.files:
            mapped = self.files[0]
        if mapped is None or size < 0:
            return None
        position = physical_offset % self.file_size
        written = min(mapped.size, self.max_offset - mapped.start_offset)
        return mapped if position + size <= written else None

    def next_file(self, physical_offset: int) -> int:
        """Where the file after the one of `physical_offset` begins (`CommitLog#rollNextFile`)."""
        return physical_offset + self.file_size - physical_offset % self.file_size

    def store_timestamp(self, physical_offset: int, size: int) -> int:
        """The store timestamp of the record there, epoch ms; -1 when it is not there (`#pickupStoreTimestamp`)."""
        if physical_offset < self.min_offset:
            return -1
        mapped = self.file_of(physical_offset, size)
        if mapped is None:
            return -1
        head = self._read(mapped, physical_offset % self.file_size, MAX_HEADER_SIZE)
        host_bits = integer_at(PREFIX_DTYPE, "sys_flag", head) & HOST_BITS
        return integer_at(HEADER_DTYPES[host_bits], "store_timestamp", head)

    def close(self) -> None:
        """Close the file."""
        if self._open:
            self._open.close()

    def _read(self, mapped: MappedFile, position: int, size: int) -> bytes:
        if self._open is None or self._open.path != mapped.path:
            self.close()
            self._open = InputFile(mapped.path, self._reading)
        return self._open.read(position, size).ljust(size, b"\0")


T = TypeVar("T")

_MAX_ATTEMPTS = 5
_RETRY_DELAY_S = 0.2


def retry_on_deletion(read: Callable[[], T], attempts: int = _MAX_ATTEMPTS) -> T:
    """The result of `read`, which is called again when a broker has deleted a file that it was about to read."""
    try:
        return read()
    except UnreadableError as error:
        if attempts == 1 or not isinstance(error.__cause__, FileNotFoundError):
            raise
    time.sleep(_RETRY_DELAY_S)
    return retry_on_deletion(read, attempts - 1)
