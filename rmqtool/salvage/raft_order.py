"""Terms and indices of DLedger entries, which no CRC covers: where a header is damaged those around it count."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from rmqtool.formats.dledger import ENTRY_HEADER_SIZE
from rmqtool.formats.message import MIN_MESSAGE_SIZE
from rmqtool.salvage.choose import Bytes
from rmqtool.salvage.extents import NO_TERM, Extents

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


def agreed_terms(sources: Sequence[Extents], source: Bytes) -> list[Extents]:
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


def _terms_of(record: np.void, others: Sequence[Extents], source: Bytes) -> Iterator[int]:
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
