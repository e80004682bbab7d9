"""Queues of which a converted log holds no message: their units lead to where the messages were before."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np

from rmqtool.base.errors import UnsupportedError
from rmqtool.base.files import read_all
from rmqtool.base.mapped_files import MappedFile, list_mapped_files
from rmqtool.base.new_files import create_file, set_time, write_all
from rmqtool.findings.finding import Finding
from rmqtool.store.consume_queues import UNIT_FORMATS, Kind

_JUMP = "rebuild.queue-offset-jump"


def require_derived(findings: Iterable[Finding]) -> None:
    """Raise UnsupportedError where a queue was not derived from the log, so that its units lead to other messages.

    `findings` are those of the rebuild.
    """
    for finding in findings:
        if finding.code == _JUMP:
            raise UnsupportedError(f"topic {finding.topic}, queue {finding.queue_id}: {finding.message}")


def cut_queue(kind: Kind, directory: Path, start: int) -> None:
    """Cut a queue that was copied at its first unit of a message from physical offset `start` on.

    Raises OSError.
    """
    files = list_mapped_files(directory).files
    for number, file in enumerate(files):
        units = UNIT_FORMATS[kind].decode(read_all(file.path, file.size))
        moved = np.flatnonzero(UNIT_FORMATS[kind].is_written(units) & (units["physical_offset"] >= start))
        if not len(moved):
            continue
        if not (number or moved[0]):
            shutil.rmtree(directory)
            with suppress(OSError):  # other queues of the topic stay
                directory.parent.rmdir()
            return
        for behind in files[number + 1 :]:
            behind.path.unlink()
        _zero_from(file, int(moved[0]) * units.itemsize)
        return


def _zero_from(file: MappedFile, position: int) -> None:
    timestamp = file.path.stat().st_mtime_ns // 1_000_000
    descriptor = create_file(file.path, file.size)
    try:
        write_all(descriptor, bytes(file.size - position), position)
        set_time(descriptor, timestamp)
    finally:
        os.close(descriptor)
