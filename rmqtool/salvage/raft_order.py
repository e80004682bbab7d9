"""Terms and indices of DLedger entries, which no CRC covers: where a header is damaged those around it count."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from rmqtool.formats.dledger import ENTRY_HEADER_SIZE
from rmqtool.formats.message import MIN_MESSAGE_SIZE
from rmqtool.salvage.extents import NO_TERM, Extents

_SMALLEST_ENTRY = ENTRY_HEADER_SIZE + MIN_MESSAGE_SIZE  # bytes


def settle_terms(extents: Extents, entry_files: Collection[int]) -> Extents:
    """The same extents of one source, by physical offset, with the terms that they must have.

    A record without its header, in one of `entry_files` (by number), has the term of the record before. Terms never go
    down in a Raft log: where one does, between entries that follow each other by index and store time, the header of a
    few in between is damaged.
    """
    if not len(extents) or not entry_files:
        return extents
    settled = extents.copy()
    terms = settled["term"]
    is_entry = np.isin(settled["input"], list(entry_files))
    _fill_unknown(terms, is_entry)
    follows = is_entry[1:] & _follows(settled)
    for row in np.flatnonzero(follows & (terms[1:] < terms[:-1])).tolist():
        if terms[row + 1] < terms[row]:  # not settled by a row before
            _settle(terms, follows, row)
    return settled


def _fill_unknown(terms: np.ndarray, is_entry: np.ndarray) -> None:
    known = np.flatnonzero(terms != NO_TERM)
    unknown = np.flatnonzero(is_entry & (terms == NO_TERM))
    if len(known):
        before = np.searchsorted(known, unknown) - 1
        terms[unknown] = terms[known[np.maximum(before, 0)]]


def _follows(extents: Extents) -> np.ndarray:
    """Whether each extent but the first goes on with the next Raft index, and was not stored before."""
    has_header = extents["header_size"] > 0
    next_index = extents["first_index"] + extents["records"]
    by_index = ~(has_header[1:] & has_header[:-1]) | (extents["first_index"][1:] == next_index[:-1])
    follows: np.ndarray = by_index & (extents["first_time"][1:] >= extents["last_time"][:-1])
    return follows


def _settle(terms: np.ndarray, follows: np.ndarray, row: int) -> None:
    """Settle where the term of the row behind `row` is lower: the one that is unlike its other neighbour is wrong."""
    high, low = terms[row], terms[row + 1]
    behind = terms[row + 2] if row + 2 < len(terms) and follows[row + 1] else None
    before = terms[row - 1] if row and follows[row - 1] else None
    if high in (before, behind):
        terms[row + 1] = high
    else:
        terms[row] = max(low, before) if before is not None and before <= low else low


def by_index(extents: Extents, committed: int | None) -> tuple[int, int]:
    """How many committed entries are missing between the saved ones and behind them, and how many are not committed.

    `committed` is the last committed index, None where nothing says it. More entries are never missing than have room.
    """
    missing = uncommitted = end = 0
    following: int | None = None  # the index behind the last entry
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
