"""Which records make the new log: those in their place first, then whatever fills what these leave open."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.formats.dledger import ENTRY_HEADER_SIZE
from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.formats.message import MIN_MESSAGE_SIZE
from rmqtool.salvage.carve import NO_EXTENTS, NO_TERM, Extents, Sources, ends, joined, of_records, shifts
from rmqtool.salvage.inputs import Input


class Choice(NamedTuple):
    """The records of the new log, by physical offset, and those refused as of another generation."""

    taken: Extents
    refused: Extents


def fill(
    taken: Extents,
    candidates: Extents,
    source: Sources,
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
            newest = np.maximum.accumulate(pieces["last_time"])
            fits &= np.append(True, pieces["first_time"][1:] >= newest[:-1])[: len(pieces)]
        if limit is not None:
            offsets, begin = pieces["physical_offset"], taken["physical_offset"][0] if len(taken) else limit
            fits &= (offsets > begin) & (offsets < limit)
        if before is not None:
            fits &= pieces["physical_offset"] < before
        refused.append(pieces[~fits])
        taken = joined(taken, pieces[fits])
    return Choice(taken, joined(*refused))


def fill_by_term(taken: Extents, candidates: Sequence[Extents], source: Sources) -> Choice:
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


def _pieces(taken: Extents, candidates: Extents, source: Sources) -> Extents:
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


def _fits(taken: Extents, pieces: Extents, candidates: Extents, source: Sources) -> NDArray[np.bool_]:
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


def _agrees(before: Extents, after: Extents, candidates: Extents, source: Sources) -> bool | None:
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


_SMALLEST_ENTRY = ENTRY_HEADER_SIZE + MIN_MESSAGE_SIZE  # bytes
_STEP_BACK = 1000  # a leader's clock corrects itself by less, and no election is as fast, ms

Numbers = NDArray[np.int64]


def go_on(rooms: Numbers, steps: Numbers, steps_back: Numbers) -> NDArray[np.bool_]:
    """Whether entries are the next ones of the log after those before them, whatever terms their headers have.

    Between two there is `rooms` for those that are missing there, bytes, their Raft indices differ by `steps`, and
    the store time of the second is `steps_back` before that of the first, ms.
    """
    return (steps >= 1) & (steps - 1 <= rooms // _SMALLEST_ENTRY) & (steps_back < _STEP_BACK)


def extents_go_on(extents: Extents) -> NDArray[np.bool_]:
    """Which extents but the first are entries that go on after those of the extent before them.

    Two of one term are of one leader: its clock may have gone back any time.
    """
    before, behind = extents[:-1], extents[1:]
    steps_back = np.where(before["term"] == behind["term"], 0, before["last_time"] - behind["first_time"])
    steps = behind["first_index"] - (before["first_index"] + before["records"] - 1)
    rooms = behind["physical_offset"] - (before["physical_offset"] + before["size"])
    are_entries = (before["header_size"] > 0) & (behind["header_size"] > 0)
    return are_entries & go_on(rooms, steps, steps_back)


def settle_terms(extents: Extents, entry_files: Collection[int], latest: int | None = None) -> Extents:
    """The same extents of one source, by physical offset, with the terms that they must have.

    A record without its header, in one of `entry_files` (by number), has the term of the record before. Terms never go
    down in a Raft log: where they do, and the log goes on, headers are damaged, as few as explain it. So is a single
    one above the `latest` term that the node knew: it notes each before it takes the first entry of it.
    """
    if not len(extents) or not entry_files:
        return extents
    settled = extents.copy()
    terms = settled["term"]
    is_entry = np.isin(settled["input"], list(entry_files))
    if latest is not None:
        terms[is_entry & (terms > latest) & (settled["records"] == 1)] = NO_TERM
    _fill_unknown(terms, is_entry)
    goes_back = settled["first_time"][1:] < settled["last_time"][:-1]  # as after the place where a log was cut
    goes_back &= ~extents_go_on(settled)
    for rows in np.split(np.arange(len(settled)), np.flatnonzero(goes_back) + 1):
        of_entries = rows[is_entry[rows]]
        if (np.diff(terms[of_entries]) < 0).any():
            terms[of_entries] = _rising(terms[of_entries].tolist(), settled["records"][of_entries].tolist())
    return settled


def without_single_changes(terms: Numbers, follow: NDArray[np.bool_]) -> Numbers:
    """Terms of entries; a single one that is above the next one or below the one before it is damaged.

    `follow` says which entries but the first go on after the one before. A damaged term is made that of the entry
    before, the first one that of the next. There are two entries at least.
    """
    one, two, three = terms[:-2], terms[1:-1], terms[2:]
    is_single = (one <= three) & ((two > three) | (two < one)) & follow[:-1] & follow[1:]
    settled = terms.copy()
    settled[1:-1][is_single] = one[is_single]
    if follow[0]:
        settled[0] = min(settled[0], settled[1])
    return settled


def _rising(terms: list[int], records: list[int]) -> list[int]:
    """Terms that never go down: those of the most records as they are, each other one as the term before it."""
    ends: list[tuple[int, int, int]] = []  # term, records up to there, row; terms and records rise
    before: list[int] = []
    for row, (term, count) in enumerate(zip(terms, records, strict=True)):
        at = bisect_right(ends, term, key=itemgetter(0))
        total = count + (ends[at - 1][1] if at else 0)
        before.append(ends[at - 1][2] if at else -1)
        behind = at
        while behind < len(ends) and ends[behind][1] <= total:
            behind += 1
        at -= bool(at and ends[at - 1][0] == term)
        ends[at:behind] = [(term, total, row)]
    kept, row = set[int](), ends[-1][2]
    while row >= 0:
        kept.add(row)
        row = before[row]
    last = terms[min(kept)]
    rising = []
    for row, term in enumerate(terms):
        last = term if row in kept else last
        rising.append(last)
    return rising


def _fill_unknown(terms: np.ndarray, is_entry: np.ndarray) -> None:
    known = np.flatnonzero(terms != NO_TERM)
    unknown = np.flatnonzero(is_entry & (terms == NO_TERM))
    if len(known):
        before = np.searchsorted(known, unknown) - 1
        terms[unknown] = terms[known[np.maximum(before, 0)]]


def agreed_terms(sources: Sequence[Extents], source: Sources) -> list[Extents]:
    """The records of several sources, by physical offset, where terms rise at a single one with that of the others.

    Nothing of an earlier term after it may prove a damaged header there wrong. The same message was never written in
    two terms.
    """
    agreed = [extents.copy() for extents in sources]
    for number, extents in enumerate(agreed):
        others = [*agreed[:number], *agreed[number + 1 :]]
        terms = extents["term"]
        rises = terms > np.append(NO_TERM, terms)[: len(terms)]
        for row in np.flatnonzero(rises & (extents["records"] == 1) & (extents["header_size"] > 0)).tolist():
            terms[row] = min(_terms_of(extents[row], others, source))
    return agreed


def _terms_of(record: np.void, others: Sequence[Extents], source: Sources) -> Iterator[int]:
    """The terms that other sources have for the same record, and its own."""
    yield int(record["term"])
    offset = int(record["physical_offset"])
    for other in others:
        row = int(np.searchsorted(other["physical_offset"], offset, "right")) - 1
        if row < 0 or not other[row]["header_size"]:
            continue
        is_there = offset < other[row]["physical_offset"] + other[row]["size"]
        if is_there and source.have_same_record(record, other[row], offset):
            yield int(other[row]["term"])


def by_index(extents: Extents, committed: int | None) -> tuple[int, int]:
    """How many committed entries are missing between the saved ones and after them, and how many are not committed.

    `committed` is the last committed index, None where nothing says it. More entries are never missing than have room.
    """
    missing = uncommitted = end = 0
    following: int | None = None  # the index after the last entry
    columns = extents[["physical_offset", "size", "records", "header_size", "first_index"]].tolist()
    for offset, size, records, header_size, first_index in columns:
        if following is None:
            following = first_index if header_size else None
        elif header_size and following < first_index <= following + (offset - end) // _SMALLEST_ENTRY:
            missing += _committed_in(following, first_index, committed)
            following = first_index
        if following is not None:
            uncommitted += records - _committed_in(following, following + records, committed)
            following += records
        end = offset + size
    if following is not None and committed is not None:
        missing += max(0, committed + 1 - following)
    return missing, uncommitted


def _committed_in(first: int, behind: int, committed: int | None) -> int:
    """How many of some indices are those of committed entries."""
    return behind - first if committed is None else max(0, min(behind, committed + 1) - first)


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
