"""Index keys: the hashes that the broker puts into the index for each record (`IndexService#buildIndex`)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.scan.block import Positions
from rmqtool.scan.hashing import POWERS, Hashes, signed

UNIQUE_KEY, KEY, TAGS = 0, 1, 2
"""Kinds of keys: the unique key, one key of KEYS, or the tags (since 5.4.0)."""

_KEY_SEPARATOR = 0x20


@dataclass(frozen=True)
class IndexKeys:
    """Index units in the order of the puts, one array for each field, all of the same length.

    `key_hashes` are as stored, never negative; `kinds` are UNIQUE_KEY, KEY or TAGS; `rows` are the records of the run.
    """

    key_hashes: NDArray[np.int32]
    physical_offsets: NDArray[np.int64]
    store_timestamps: NDArray[np.int64]
    kinds: NDArray[np.uint8]
    rows: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.key_hashes)

    def __getitem__(self, rows: NDArray[np.bool_]) -> IndexKeys:
        return IndexKeys(*(getattr(self, field.name)[rows] for field in fields(self)))


class Texts(NamedTuple):
    """Texts in `data`: ``data[starts[i] : starts[i] + sizes[i]]`` is one of record ``rows[i]``."""

    rows: Positions
    starts: Positions
    sizes: Positions


def texts_at(starts: Positions, sizes: Positions, rows: NDArray[np.bool_]) -> Texts:
    """One text for each record that has one and is among `rows`."""
    kept = np.flatnonzero(rows & (sizes > 0))
    return Texts(kept, starts[kept], sizes[kept])


def split_keys(data: NDArray[np.uint8], texts: Texts) -> Texts:
    """The non-empty pieces between single spaces."""
    spaces = np.flatnonzero(data == _KEY_SEPARATOR)
    if not len(spaces):
        return texts
    ends = texts.starts + texts.sizes
    low, high = np.searchsorted(spaces, texts.starts), np.searchsorted(spaces, ends)
    counts = high - low + 1
    if (counts == 1).all():
        return texts
    firsts = np.cumsum(counts) - counts
    piece_numbers = np.arange(int(counts.sum())) - np.repeat(firsts, counts)  # of a piece within its text
    inner = np.repeat(low, counts) + piece_numbers
    padded = np.append(spaces, len(data))
    piece_starts = np.where(piece_numbers == 0, np.repeat(texts.starts, counts), padded[np.maximum(inner - 1, 0)] + 1)
    last = piece_numbers == np.repeat(counts, counts) - 1
    piece_ends = np.where(last, np.repeat(ends, counts), padded[np.minimum(inner, len(spaces))])
    sizes = piece_ends - piece_starts
    kept = sizes > 0
    return Texts(np.repeat(texts.rows, counts)[kept], piece_starts[kept], sizes[kept])


def key_hashes(prefixes: NDArray[np.uint32], texts: Hashes) -> NDArray[np.int32]:
    """Hash of each text behind a prefix whose own hash is ``prefixes[i]`` (`IndexFile#indexKeyHashMethod`)."""
    hashes = np.abs(signed(prefixes * POWERS[texts.lengths] + texts.values))
    hashes[hashes < 0] = 0  # Math.abs(Integer.MIN_VALUE) is negative
    return hashes


def interleave(texts: list[Texts]) -> NDArray[np.intp]:
    """The order of all texts by record, and within a record by the list that they are in."""
    rows = [one.rows for one in texts if len(one.rows)]
    is_aligned = all(len(other) == len(rows[0]) and (other == rows[0]).all() for other in rows[1:])
    if rows and is_aligned and (rows[0][1:] > rows[0][:-1]).all():
        return np.arange(len(rows) * len(rows[0])).reshape(len(rows), -1).T.ravel()
    all_rows = np.concatenate([one.rows for one in texts])
    kind = np.uint16 if len(all_rows) == 0 or int(all_rows.max()) >> 16 == 0 else np.uint32
    return np.argsort(all_rows.astype(kind), kind="stable")
