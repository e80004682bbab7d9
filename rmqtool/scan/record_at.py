"""One record at a known physical offset, read without a scan (`CommitLog#getMessage`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import MappedFile, file_at
from rmqtool.formats.java import decode_text
from rmqtool.formats.properties import decode_properties
from rmqtool.scan.block import Block, Positions
from rmqtool.scan.frames import RecordRun, sound_prefix
from rmqtool.scan.probe import Probe


def record_at(files: Sequence[MappedFile], physical_offset: int) -> RecordRun | None:
    """The sound record that begins at `physical_offset`, as a run of one; None when none does."""
    mapped = file_at(files, physical_offset)
    if mapped is None:
        return None
    position = physical_offset - mapped.start_offset - mapped.header_size
    if position < 0:
        return None
    with InputFile(mapped.path) as file:
        return _record(file, mapped, position)


def properties_at(files: Sequence[MappedFile], physical_offset: int) -> dict[str, str] | None:
    """The properties of the sound record at `physical_offset`; None without one, or where it cannot be read."""
    try:
        frames = record_at(files, physical_offset)
    except RmqtoolError:
        return None  # which the scan reports
    return None if frames is None else properties_of(frames)


def properties_of(record: RecordRun) -> dict[str, str]:
    """The properties of the first record of a run: of one record, a tenth of the time that columns take."""
    return decode_properties(_first(record, record.properties_positions, record.properties_sizes))


def topic_of(record: RecordRun) -> str:
    """The topic of the first record of a run."""
    return decode_text(_first(record, record.topic_positions, record.topic_sizes))


def _first(record: RecordRun, positions: Positions, sizes: Positions) -> bytes:
    start, size = int(positions[0]), int(sizes[0])
    return bytes(record.block.view[start : start + size])


def _record(file: InputFile, mapped: MappedFile, position: int) -> RecordRun | None:
    probe = Probe(file, mapped.start_offset, position, mapped.header_size)
    if probe.kind != "message":
        return None
    size = probe.size - mapped.header_size
    block = Block(size)
    block.fill(file, probe.record_position, size, mapped.start_offset + probe.record_position)
    return sound_prefix(block, np.zeros(1, dtype=np.intp)) or None
