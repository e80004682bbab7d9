"""The log of chosen messages, written; what their queue offsets become, and which timer message comes next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.files import UNLIMITED, ReadPolicy
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.formats.properties import TIMER_DUE
from rmqtool.rules.system_topics import TIMER_TOPIC
from rmqtool.salvage.carve import Progress, no_progress
from rmqtool.salvage.compact_log import CompactLog, begin_of
from rmqtool.salvage.numbering import Numbering, OffsetMap, Renumbered
from rmqtool.salvage.plan import SalvagePlan
from rmqtool.salvage.selection import Chosen, Selection, choose, chosen_runs
from rmqtool.salvage.sources import Sources
from rmqtool.scan.columns import PROPERTY_COLUMN, record_batches
from rmqtool.scan.filters import Filters
from rmqtool.scan.frames import RecordRun

_TIMERS = Filters(topics=(TIMER_TOPIC,))
_DUE = f"{PROPERTY_COLUMN}{TIMER_DUE}"
_ROW_SIZE = 60  # units of queue and index for a message, bytes
_MAP_SIZE = 60  # a row of the map, bytes
_RESERVE = 1 << 20


@dataclass
class SelectedLog:
    """What was written: the map of queue offsets where they are counted again, and the first timer that still waits."""

    numbering: Numbering | None = None
    first_timer: int | None = None

    @property
    def renumbered(self) -> Sequence[Renumbered]:
        """The first rows of the map."""
        return self.numbering.map.listed if self.numbering else ()

    @property
    def map_rows(self) -> int:
        """All rows of the map."""
        return self.numbering.map.count if self.numbering else 0

    def moved(self, name: QueueName, offset: int) -> int:
        """What a committed offset becomes, however long the queue is."""
        return self.numbering.moved(name, offset) if self.numbering else offset


def find_chosen(
    plan: SalvagePlan, selection: Selection, reading: ReadPolicy = UNLIMITED, progress: Progress = no_progress
) -> Chosen:
    """Read the saved messages and choose; raises UnreadableError, ChangedError."""
    with Sources(plan.inputs.files, plan.layout.file_size, reading) as sources:
        start_offset = begin_of(plan.layout, plan.inputs)
        return choose(plan.layout, start_offset, selection, sources, progress)


def needed_bytes(chosen: Chosen, selection: Selection) -> int:
    """About how many bytes a store of chosen messages takes."""
    of_map = _MAP_SIZE if selection.queue_offsets == "new" else 0
    return chosen.size + chosen.messages * (_ROW_SIZE + of_map) + _RESERVE


def write_selected(
    plan: SalvagePlan,
    chosen: Chosen,
    selection: Selection,
    directory: Path,
    map_file: Path,
    committed: Mapping[QueueName, Sequence[int]],
    timers_read_until: int | None = None,
    reading: ReadPolicy = UNLIMITED,
    progress: Progress = no_progress,
) -> SelectedLog:
    """Write the log into `directory`, and the map into `map_file` where queue offsets are counted again.

    `committed` are the offsets that `SelectedLog.moved` can be asked for. Raises OSError, ChangedError.
    """
    written, done = SelectedLog(), 0
    with ExitStack() as stack:
        sources = stack.enter_context(Sources(plan.inputs.files, plan.layout.file_size, reading))
        log = stack.enter_context(CompactLog(directory, chosen.start_offset, plan.layout.file_size))
        if selection.queue_offsets == "new":
            written.numbering = stack.enter_context(Numbering(committed, OffsetMap(map_file)))
        for frames in chosen_runs(plan.layout, chosen, selection, sources):
            offsets = written.numbering.offsets(frames) if written.numbering else None
            if timers_read_until is not None and written.first_timer is None:
                written.first_timer = _first_waiting(frames, offsets, timers_read_until)
            log.add(frames, offsets)
            done += int(frames.message_sizes.sum())
            progress(done)
    return written


def _first_waiting(frames: RecordRun, offsets: NDArray[np.int64] | None, read_until: int) -> int | None:
    """The queue offset of the first timer message that is due later than `read_until`, epoch ms."""
    timers = _TIMERS.select(frames)
    if timers is None:
        return None
    places = np.searchsorted(frames.positions, timers.positions)
    stored = timers.headers.field("queue_offset") if offsets is None else offsets[places]
    [batch] = record_batches(timers, (_DUE,))
    for offset, due in zip(stored.tolist(), batch.column(0).to_pylist(), strict=True):
        if due is not None and due.isdecimal() and int(due) > read_until:
            return int(offset)
    return None
