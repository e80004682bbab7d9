"""Which records make the new log: those in their place first, then whatever fills what these leave open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.salvage.extents import NO_EXTENTS, Extents, ends, joined, shifts


class Bytes(Protocol):
    """The bytes of the sources."""

    def carve_between(self, extent: np.void, start: int, end: int) -> Extents:
        """The whole records of an extent between two physical offsets."""

    def have_same_record(self, one: np.void, other: np.void, physical_offset: int) -> bool:
        """Whether two extents hold the same message at an offset."""


class Choice(NamedTuple):
    """The records of the new log, by physical offset, and those refused as of another generation."""

    taken: Extents
    refused: Extents


def fill(
    taken: Extents,
    candidates: Extents,
    source: Bytes,
    *,
    in_place: bool = True,
    limit: int | None = None,
    before: int | None = None,
) -> Choice:
    """Fill what `taken` leaves open with `candidates`; with a `limit` not before it, nor from that offset on.

    With `before` not from that offset on. Where candidates overlap each other the newest comes first. Of those that are
    not `in_place` an older one after a newer one is what is left from before a cut.
    """
    refused = [NO_EXTENTS]
    for round_of in _without_overlap(candidates):
        pieces = _pieces(taken, round_of, source)
        fits = _fits(taken, pieces, round_of, source)
        if not in_place:
            fits &= _follow_older(pieces)
        if limit is not None:
            fits &= _are_inside(taken, pieces, limit)
        if before is not None:
            fits &= pieces["physical_offset"] < before
        refused.append(pieces[~fits])
        taken = joined(taken, pieces[fits])
    return Choice(taken, joined(*refused))


def fill_by_term(taken: Extents, candidates: Sequence[Extents], source: Bytes) -> Choice:
    """Fill what `taken` leaves open with records of several sources, those of the latest leader first.

    An entry that a later leader has at an offset was never committed otherwise there. Terms never go down in a Raft
    log: after an entry of a later term those of an earlier one are left from before a cut.
    """
    refused = [NO_EXTENTS]
    for term in reversed(np.unique(np.concatenate([extents["term"] for extents in candidates])).tolist()):
        later = taken[taken["term"] > term]["physical_offset"]
        for extents in candidates:
            taken, stale = fill(
                taken, extents[extents["term"] == term], source, before=int(later.min()) if len(later) else None
            )
            refused.append(stale)
    return Choice(taken, joined(*refused))


def _without_overlap(candidates: Extents) -> Iterator[Extents]:
    """The candidates in rounds, in which none overlaps another: of those that overlap, the newest in the first."""
    if not len(candidates):
        return
    reached = np.maximum.accumulate(ends(candidates))
    begins = np.concatenate([[True], candidates["physical_offset"][1:] >= reached[:-1]])
    cluster = np.cumsum(begins)
    order = np.lexsort((-candidates["size"], -candidates["last_time"], cluster))
    firsts = np.flatnonzero(np.concatenate([[True], np.diff(cluster[order]) > 0]))
    rank = np.arange(len(order)) - np.repeat(firsts, np.diff(np.append(firsts, len(order))))
    for number in range(int(rank.max()) + 1):
        yield candidates[np.sort(order[rank == number])]


def _pieces(taken: Extents, candidates: Extents, source: Bytes) -> Extents:
    """The parts of candidates that lie in the gaps of `taken`; both do not overlap themselves."""
    starts = np.append(taken["physical_offset"], MAX_OFFSET)  # where gap n ends
    behind = np.append(0, ends(taken))  # where gap n begins
    first = np.searchsorted(starts, candidates["physical_offset"], "right")
    last = np.searchsorted(behind, ends(candidates), "left")
    alone = (last - first == 1) & (behind[first] <= candidates["physical_offset"]) & (starts[first] >= ends(candidates))
    parts = [candidates[alone]]
    for row in np.flatnonzero(~alone).tolist():
        candidate = candidates[row]
        for gap in range(int(first[row]), int(last[row])):
            low = max(int(behind[gap]), int(candidate["physical_offset"]))
            high = min(int(starts[gap]), int(candidate["physical_offset"] + candidate["size"]))
            if low < high:
                parts.append(source.carve_between(candidate, low, high))
    return joined(*parts)


def _fits(taken: Extents, pieces: Extents, candidates: Extents, source: Bytes) -> NDArray[np.bool_]:
    """Which pieces are of the generation of their neighbours.

    Where the candidates hold the neighbours, too, these are the same; else the pieces were stored between them.
    """
    following = np.searchsorted(taken["physical_offset"], pieces["physical_offset"])
    has_before, has_after = following > 0, following < len(taken)
    before, after = taken[following[has_before] - 1], taken[following[has_after]]
    fits = np.ones(len(pieces), dtype=np.bool_)
    own_before, own_after = pieces[has_before], pieces[has_after]
    fits[has_before] &= (own_before["first_time"] >= before["last_time"]) | (own_before["term"] != before["term"])
    fits[has_after] &= (own_after["last_time"] <= after["first_time"]) | (own_after["term"] != after["term"])
    fits |= _continues(taken, pieces, following)
    for row, next_row in enumerate(following.tolist()):
        agrees = _agrees(taken[max(next_row - 1, 0) : next_row], taken[next_row : next_row + 1], candidates, source)
        fits[row] = fits[row] if agrees is None else agrees
    return fits


def _continues(taken: Extents, pieces: Extents, following: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Which pieces follow on what stands right before them in the same file, or go on to what is right behind."""
    continues = np.zeros(len(pieces), dtype=np.bool_)
    for step in (-1, 0):
        at = following + step
        has = (at >= 0) & (at < len(taken))
        near, own = taken[at[has]], pieces[has]
        touches = ends(near) == own["physical_offset"] if step else ends(own) == near["physical_offset"]
        continues[has] |= touches & (near["input"] == own["input"]) & (shifts(near) == shifts(own))
    return continues


def _follow_older(extents: Extents) -> NDArray[np.bool_]:
    newest = np.maximum.accumulate(extents["last_time"])
    return np.append(True, extents["first_time"][1:] >= newest[:-1])[: len(extents)]


def _are_inside(taken: Extents, pieces: Extents, limit: int) -> NDArray[np.bool_]:
    """Which pieces are behind the log's begin, and before `limit`."""
    if not len(taken):
        return np.zeros(len(pieces), dtype=np.bool_)
    offsets = pieces["physical_offset"]
    inside: NDArray[np.bool_] = (offsets > taken["physical_offset"][0]) & (offsets < limit)
    return inside


def _agrees(before: Extents, after: Extents, candidates: Extents, source: Bytes) -> bool | None:
    """Whether candidates hold the same messages as the neighbours of a piece; each is one extent, or none.

    None where they hold neither of them, or only one is the same.
    """
    last = before["physical_offset"] + before["size"] - before["last_size"]
    neighbours = [*zip(before, last.tolist(), strict=True), *zip(after, after["physical_offset"].tolist(), strict=True)]
    answers: set[bool] = set()
    for neighbour, offset in neighbours:
        row = int(np.searchsorted(candidates["physical_offset"], offset, "right")) - 1
        if row >= 0 and offset < candidates[row]["physical_offset"] + candidates[row]["size"]:
            answers.add(source.have_same_record(neighbour, candidates[row], offset))
    return answers.pop() if len(answers) == 1 else None
