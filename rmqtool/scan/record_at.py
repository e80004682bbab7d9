"""One record at a known physical offset, read without a scan (`CommitLog#getMessage`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rmqtool.base.files import InputFile
from rmqtool.base.mapped_files import MappedFile, file_at
from rmqtool.scan.block import Block
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


def _record(file: InputFile, mapped: MappedFile, position: int) -> RecordRun | None:
    probe = Probe(file, mapped.start_offset, position, mapped.header_size)
    if probe.kind != "message":
        return None
    size = probe.size - mapped.header_size
    block = Block(size)
    block.fill(file, probe.record_position, size, mapped.start_offset + probe.record_position)
    return sound_prefix(block, np.zeros(1, dtype=np.intp)) or None
