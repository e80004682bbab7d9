"""Where records stand: in their place in the log, in another place, or after an end that the log once had.

A start cuts a log without erasing what follows the cut, and files are made of old ones: records of earlier
generations are whole and no part of the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rmqtool.salvage.extents import Extents, ends, joined, of_records, shifts
from rmqtool.salvage.inputs import Input
from rmqtool.salvage.raft_order import extents_go_on, settle_terms


@dataclass(frozen=True)
class SourceRecords:
    """The records of one source.

    `in_place` stand where the name of their file says, and so do `odd` ones; `moved` elsewhere, in a file without such
    a name too. Those in `recycled` stand in a file of the log and belong elsewhere, mostly before the log's begin,
    which they do not move. `stale` are past the end of the log.
    """

    in_place: Extents
    odd: Extents
    moved: Extents
    recycled: Extents
    stale: Extents


def classify(files: Sequence[Input], found: Sequence[Extents]) -> SourceRecords:
    """Sort what was found in the `files` of one source."""
    found = _with_terms(files, found)
    named = [(file, extents) for file, extents in zip(files, found, strict=True) if file.start_offset is not None]
    unnamed = [extents for file, extents in zip(files, found, strict=True) if file.start_offset is None]
    placed = [(file, *_split(extents, shifts(extents) == file.start_offset)) for file, extents in named]
    with_records = [file.start_offset or 0 for file, in_place, _ in placed if len(in_place)]
    last = max(with_records, default=-1)
    in_place: list[Extents] = []
    moved, recycled, stale = list(unnamed), list[Extents](), list[Extents]()
    for file, standing, other in placed:
        start = file.start_offset or 0
        sound, behind = _at_stale(standing) if start == last else (standing, standing[:0])
        in_place.append(sound)
        stale.append(behind)
        # A file that the broker made ahead of need, of an old one, stands after the log's last.
        is_reused = len(standing) > 0 or (last >= 0 and start > last)
        (recycled if is_reused else moved).append(other)
    all_in_place = joined(*in_place)
    sound, odd = _split(all_in_place, ~all_in_place["is_odd"])
    return SourceRecords(sound, odd, joined(*moved), joined(*recycled), joined(*stale))


def _with_terms(files: Sequence[Input], found: Sequence[Extents]) -> list[Extents]:
    """The records, where headers of entries are damaged with the terms of those around them in the log."""
    entry_files = [file.number for file in files if file.may_have_headers]
    latest = max((file.latest_term for file in files if file.latest_term is not None), default=None)
    settled = settle_terms(of_records(joined(*found)), entry_files, latest)
    return [settled[settled["input"] == file.number] for file in files]


def _split(extents: Extents, mask: np.ndarray) -> tuple[Extents, Extents]:
    return extents[mask], extents[~mask]


def _at_stale(extents: Extents) -> tuple[Extents, Extents]:
    """Records of the log's last file, and the stale ones: after a gap, and older than those before it.

    The clock of a later leader of a DLedger group may be behind, and one leader's clock may have gone back.
    """
    behind_gap = extents["physical_offset"][1:] > ends(extents)[:-1]
    older = (extents["first_time"][1:] < extents["last_time"][:-1]) & (extents["term"][1:] <= extents["term"][:-1])
    back = np.flatnonzero(behind_gap & older & ~extents_go_on(extents))
    count = int(back[0]) + 1 if len(back) else len(extents)
    return extents[:count], extents[count:]
