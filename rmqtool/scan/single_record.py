"""One record at a known physical offset, read without a scan (`CommitLog#getMessage`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.mapped_files import MappedFile
from rmqtool.formats.java import decode_text
from rmqtool.formats.layout import integer_at, position_of
from rmqtool.formats.message import HEADER_DTYPES, HOST_BITS, PREFIX_DTYPE, PROPERTIES_SIZE_WIDTH
from rmqtool.formats.properties import decode_properties
from rmqtool.scan.block import Block
from rmqtool.scan.frames import RecordRun, sound_prefix
from rmqtool.scan.probe import Probe, read_message


class SingleRecord:
    """A sound record: the fields before its body, its topic and its properties."""

    def __init__(self, header: bytes, topic: bytes, properties: bytes) -> None:
        """`header` may be longer than the fields before the body."""
        self.header = header
        self.layout = HEADER_DTYPES[integer_at(PREFIX_DTYPE, "sys_flag", header) & HOST_BITS]
        self._topic = topic
        self._properties = properties

    def number(self, field: str) -> int:
        """An integer field of `MessageUnit` that stands before the body."""
        return integer_at(self.layout, field, self.header)

    @property
    def store_host(self) -> bytes:
        """The broker's host as stored."""
        start = position_of(self.layout, "store_host")
        return self.header[start : start + self.layout["store_host"].itemsize]

    @property
    def topic(self) -> str:
        """The topic."""
        return decode_text(self._topic)

    @cached_property
    def properties(self) -> dict[str, str]:
        """The properties."""
        return decode_properties(self._properties)


def single_record_at(files: Sequence[MappedFile], physical_offset: int) -> SingleRecord | None:
    """The sound record that begins at `physical_offset`; None when none does."""
    return read_message(files, physical_offset, _read)


def properties_at(files: Sequence[MappedFile], physical_offset: int) -> dict[str, str] | None:
    """The properties of the sound record at `physical_offset`; None without one, or where it cannot be read."""
    try:
        record = single_record_at(files, physical_offset)
    except RmqtoolError:
        return None  # which the scan reports
    return None if record is None else record.properties


def _read(probe: Probe) -> SingleRecord:
    header = probe.file.read(probe.record_position, HEADER_DTYPES[HOST_BITS].itemsize)
    rest = probe.file.read(probe.topic_position, probe.position + probe.size - probe.topic_position)
    return SingleRecord(header, rest[: probe.topic_size], rest[probe.topic_size + PROPERTIES_SIZE_WIDTH :])


def record_at(files: Sequence[MappedFile], physical_offset: int) -> RecordRun | None:
    """The sound record that begins at `physical_offset`, as a run of one; None when none does."""
    return read_message(files, physical_offset, _record)


def _record(probe: Probe) -> RecordRun | None:
    size = probe.position + probe.size - probe.record_position
    block = Block(size)
    block.fill(probe.file, probe.record_position, size, probe.start_offset + probe.record_position)
    return sound_prefix(block, np.zeros(1, dtype=np.intp)) or None
