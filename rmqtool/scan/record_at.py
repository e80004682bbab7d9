"""One record at a known physical offset, read without a scan (`CommitLog#getMessage`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rmqtool.base.mapped_files import MappedFile
from rmqtool.scan.block import Block
from rmqtool.scan.frames import RecordRun, sound_prefix
from rmqtool.scan.probe import Probe, read_message


def record_at(files: Sequence[MappedFile], physical_offset: int) -> RecordRun | None:
    """The sound record that begins at `physical_offset`, as a run of one; None when none does."""
    return read_message(files, physical_offset, _record)


def _record(probe: Probe) -> RecordRun | None:
    size = probe.position + probe.size - probe.record_position
    block = Block(size)
    block.fill(probe.file, probe.record_position, size, probe.start_offset + probe.record_position)
    return sound_prefix(block, np.zeros(1, dtype=np.intp)) or None
