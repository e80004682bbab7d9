"""The entries of a DLedger log in order: which messages are taken, and where each stands without the entries' headers.

An entry is a header of 48 bytes and one message (`DLedgerCommitLog`). Where entries are lost, dummy records take their
room, as after a salvage: so the consume queues keep the offsets of all other messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.files import UNLIMITED, ReadPolicy
from rmqtool.base.mapped_files import MappedFile
from rmqtool.formats.dledger import ENTRY_HEADER_SIZE
from rmqtool.salvage.choose import go_on, without_single_changes
from rmqtool.salvage.write_log import Filling, Offsets, Placement, Taken
from rmqtool.scan.block import Blank
from rmqtool.scan.frames import RecordRun, entry_headers
from rmqtool.scan.reader import scan_files

LeftReason = Literal["uncommitted", "stale", "damaged"]
LEFT_MEANINGS: dict[LeftReason, str] = {
    "uncommitted": "after the committed index of the DLedger checkpoint: another node may have other messages there",
    "stale": "older entries after newer ones, left where the log was cut",
    "damaged": "no entry with a whole message",
}
_KINDS: tuple[LeftReason | None, ...] = (None, "uncommitted", "stale")
# Of an entry; `begin` and `end` of its message in the log, `end` with the next entry's header, bytes, `time` epoch ms.
_STEP_DTYPE = np.dtype([("term", "i8"), ("index", "i8"), ("begin", "i8"), ("end", "i8"), ("time", "i8")])


class LeftOut(NamedTuple):
    """An extent of the DLedger log that is not taken: physical offset of its first message or byte, and bytes."""

    reason: LeftReason
    physical_offset: int
    size: int
    messages: int = 0


Piece = Taken | Filling | LeftOut


class EntryWalk:
    """One pass over the entries of `files`; runs are for use before the next step.

    `committed` is the Raft index up to which entries are taken, None for all. The new log has files of `file_size` from
    `start` on. `missing` is how many committed entries are nowhere, once the pass is over.
    """

    def __init__(self, files: Sequence[MappedFile], committed: int | None, start: int, file_size: int) -> None:
        self.missing = 0
        self._files = files
        self._committed = committed
        self._placement = Placement(start, file_size)

    def pieces(self, reading: ReadPolicy = UNLIMITED) -> Iterator[Piece]:
        """What is taken, what fills the room of lost entries, and what is left out, in the order of the log."""
        order, lost, timestamp = _RaftOrder(self._committed), 0, 0
        for event in scan_files(self._files, reading=reading):
            if isinstance(event, Blank):
                continue
            if not isinstance(event, RecordRun):
                lost += event.size
                yield LeftOut("damaged", event.physical_offset, event.size)
                continue
            for rows, reason in _groups(order.kinds(event)):
                run = event[rows]
                if reason:
                    yield LeftOut(reason, run.physical_offset, run.size, len(run))
                    continue
                if lost and timestamp:  # nothing has to fill the room before the first message
                    yield self._placement.fill(lost, timestamp)
                lost, timestamp = 0, int(run.headers.field("store_timestamp")[-1])
                yield Taken(run, self._placement.place(run.message_sizes))
        self.missing = order.missing


class _RaftOrder:
    """Entries by their headers: terms never go down in a Raft log, and each index is there once."""

    def __init__(self, committed: int | None) -> None:
        self._committed = committed
        self._gaps = 0
        self._last = np.zeros(0, _STEP_DTYPE)  # the last two entries that are no stale ones

    def kinds(self, run: RecordRun) -> NDArray[np.intp]:
        """The number in _KINDS of each entry of a run."""
        entries = np.append(self._last, _steps(run))
        _settle(entries)
        known, entries = entries[: len(self._last)], entries[len(self._last) :]
        terms, indices = entries["term"], entries["index"]
        term, index = (int(known["term"][-1]), int(known["index"][-1])) if len(known) else (-1, -1)
        in_order = np.flatnonzero(terms >= np.maximum.accumulate(np.append(term, terms))[:-1])
        rising = indices[in_order] > np.maximum.accumulate(np.append(index, indices[in_order]))[:-1]
        fresh = in_order[rising]
        kinds = np.full(len(run), _KINDS.index("stale"), np.intp)
        kinds[fresh] = 0 if self._committed is None else indices[fresh] > self._committed
        steps = np.append(known["index"][-1:], indices[fresh])
        self._gaps += sum(self._gap(before, after) for before, after in _jumps(steps))
        self._last = np.append(known, entries[fresh])[-2:]
        return kinds

    @property
    def missing(self) -> int:
        """Committed entries that were not met, from the first that was met on."""
        last = int(self._last["index"][-1]) if len(self._last) else -1
        return self._gaps + (0 if self._committed is None else max(0, self._committed - last))

    def _gap(self, before: int, after: int) -> int:
        """Committed entries between two that follow each other."""
        last = after - 1 if self._committed is None else min(after - 1, self._committed)
        return max(0, last - before)


def _steps(run: RecordRun) -> NDArray[np.void]:
    headers = entry_headers(run)
    steps = np.empty(len(run), _STEP_DTYPE)
    steps["term"], steps["index"], steps["begin"] = headers["term"], headers["index"], run.physical_offsets
    steps["end"] = run.physical_offsets + run.message_sizes + ENTRY_HEADER_SIZE
    steps["time"] = run.headers.field("store_timestamp")
    return steps


def _settle(entries: NDArray[np.void]) -> None:
    """Give entries whose terms or indices are damaged those that they must have."""
    before, behind = entries[:-1], entries[1:]
    _settle_indices(entries["index"], behind["begin"] == before["end"])
    if (behind["term"] < before["term"]).any():
        rooms, steps_back = behind["begin"] - before["end"], before["time"] - behind["time"]
        follow = go_on(rooms, behind["index"] - before["index"], steps_back)
        entries["term"] = without_single_changes(entries["term"], follow)


def _settle_indices(indices: Offsets, touches: NDArray[np.bool_]) -> None:
    """A single index is damaged where the next one goes on with that before; `touches` has all entries but the first.

    So is the first, where the next two go on.
    """
    goes_on = touches[1:] & touches[:-1] & (indices[2:] == indices[:-2] + 2)
    indices[1:-1][goes_on] = indices[:-2][goes_on] + 1
    if touches[:2].sum() == 2 and indices[2] == indices[1] + 1:
        indices[0] = indices[1] - 1


def _jumps(indices: Offsets) -> Iterator[tuple[int, int]]:
    for row in np.flatnonzero(np.diff(indices) != 1).tolist():
        yield int(indices[row]), int(indices[row + 1])


def _groups(kinds: NDArray[np.intp]) -> Iterator[tuple[slice, LeftReason | None]]:
    """Rows of one kind that follow each other."""
    edges = [0, *(np.flatnonzero(np.diff(kinds)) + 1).tolist(), len(kinds)]
    for start, stop in pairwise(edges):
        yield slice(start, stop), _KINDS[int(kinds[start])]
