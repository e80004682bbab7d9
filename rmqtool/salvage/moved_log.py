"""Saved messages of a DLedger log, which move: each goes after the one before, without the header of its entry.

Where messages are lost dummy records of about that size stand between them, so that the queues of the new log keep the
offsets of all others.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rmqtool.base.files import UNLIMITED, ReadPolicy
from rmqtool.salvage.carve import Progress, no_progress
from rmqtool.salvage.entry_walk import Filling, Placement, Taken
from rmqtool.salvage.layout import Layout
from rmqtool.salvage.plan import SalvagePlan
from rmqtool.salvage.selection import Piece, runs_of
from rmqtool.salvage.sources import Sources
from rmqtool.salvage.write_conversion import MovedLog, write_moved


def write_saved(
    plan: SalvagePlan, directory: Path, reading: ReadPolicy = UNLIMITED, progress: Progress = no_progress
) -> MovedLog:
    """Write the new log into `directory`; it begins where the first of the old files did.

    Raises ChangedError where a source is not what was planned any more, WrongKindError for a message that no file of
    the new log can hold, OSError for what cannot be written.
    """
    layout = plan.layout
    with Sources(plan.inputs.files, layout.file_size, reading) as sources:
        return write_moved(_pieces(layout, sources), directory, begin_of_moved(layout), layout.file_size, progress)


def begin_of_moved(layout: Layout) -> int:
    """Physical offset at which the new log begins, bytes."""
    return layout.files[0].start_offset if layout.files else 0


def _pieces(layout: Layout, sources: Sources) -> Iterator[Taken | Filling]:
    placement, copies = Placement(begin_of_moved(layout), layout.file_size), layout.copies
    gaps = iter(layout.gaps)
    waiting = next(gaps, None)
    columns = copies[["physical_offset", "position", "size", "header_size"]].tolist()
    is_plain = not columns[0][-1]
    for number, (offset, position, size, header_size) in enumerate(columns):
        while waiting is not None and waiting.physical_offset < offset:
            yield placement.fill(waiting.size, waiting.timestamp)
            waiting = next(gaps, None)
        if is_plain and header_size:  # from before DLedger: a broker ends that log with a blank
            placement.next_file()
        is_plain = not header_size
        for _, run in runs_of(copies, Piece(number, position, size), sources):
            yield Taken(run, placement.place(run.message_sizes))
