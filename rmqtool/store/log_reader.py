"""Bytes of the commit log by physical offset and size, unchecked as the broker reads them (`CommitLog#getMessage`)."""

from __future__ import annotations

from rmqtool.base.files import UNLIMITED, InputFile, ReadPolicy
from rmqtool.base.mapped_files import MappedFile, MappedFiles, file_at
from rmqtool.formats.layout import integer_at
from rmqtool.formats.message import HEADER_DTYPES, HOST_BITS, MAX_HEADER_SIZE, PREFIX_DTYPE
from rmqtool.rules.file_sizes import DEFAULT_LOG_FILE_SIZE


class LogBytes:
    """The log from its first file to `max_offset` (exclusive), bytes; files stay open until `close`."""

    def __init__(self, log: MappedFiles, max_offset: int, reading: ReadPolicy = UNLIMITED) -> None:
        self.files = log.files
        self.file_size = log.file_size or DEFAULT_LOG_FILE_SIZE  # units may lead into a log without a file
        self.max_offset = max_offset
        self._reading = reading
        self._open: dict[int, InputFile] = {}

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
        """Close the files."""
        while self._open:
            self._open.popitem()[1].close()

    def _read(self, mapped: MappedFile, position: int, size: int) -> bytes:
        file = self._open.get(mapped.start_offset)
        if file is None:
            self.close()  # neighbours in a queue are neighbours in the log: one open file will do
            file = self._open[mapped.start_offset] = InputFile(mapped.path, self._reading)
        return file.read(position, size).ljust(size, b"\0")
