"""Half messages that are done: op messages name their queue offsets (`TransactionalMessageServiceImpl#check`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.files import UNLIMITED, ReadPolicy
from rmqtool.base.mapped_files import MappedFile
from rmqtool.scan.columns import COLUMNS, ColumnRun
from rmqtool.scan.pointed_records import read_heads, sound_records
from rmqtool.store.consume_queues import Queue
from rmqtool.store.unit_files import written_units

_OFFSETS = re.compile(rb"\d{1,18}")


class EndedHalves(NamedTuple):
    """Queue offsets of half messages that were committed or rolled back; `unread` op messages may name more."""

    offsets: NDArray[np.int64]
    unread: int


def ended_halves(
    op_queue: Queue, start: int, stop: int, log: Sequence[MappedFile], reading: ReadPolicy = UNLIMITED
) -> EndedHalves:
    """What the op messages from queue offset `start` to before `stop` name; raises UnreadableError."""
    found, read = [np.zeros(0, dtype=np.int64)], 0
    for _, units in written_units(op_queue, start, stop, reading):
        targets = np.unique(units["physical_offset"].astype(np.int64))
        for _, frames in sound_records(log, read_heads(log, targets, reading), reading):
            bodies = COLUMNS["stored_body"].read(ColumnRun(frames)).to_pylist()
            found.append(np.array(_OFFSETS.findall(b",".join(bodies))).astype(np.int64))
            read += len(frames)
    return EndedHalves(np.unique(np.concatenate(found)), max(0, stop - start) - read)
