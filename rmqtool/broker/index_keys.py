"""Index keys: the hashes that the broker puts into the index for each record (`IndexService#buildIndex`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqtool.scan.block import Positions, gather_slices
from rmqtool.scan.hashing import POWERS, Hashes, signed
from rmqtool.scan.windows import Texts

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


class KeyTexts(NamedTuple):
    """Texts of which text i is one of record ``rows[i]``."""

    rows: Positions
    texts: Texts


def texts_at(values: Texts, rows: NDArray[np.bool_]) -> KeyTexts:
    """One text for each record that has one and is among `rows`."""
    kept = np.flatnonzero(rows & (values.sizes > 0))
    return KeyTexts(kept, values if len(kept) == len(values) else values.take(kept))


def split_keys(found: KeyTexts) -> KeyTexts:
    """The non-empty pieces between single spaces, of texts in ascending order."""
    rows, texts = found
    if not texts.hold(_KEY_SEPARATOR):
        return found
    _, offsets, stored = gather_slices(pa.py_buffer(texts.data), texts.starts, texts.starts + texts.sizes).buffers()
    bounds = np.frombuffer(offsets, np.int32)[: len(rows) + 1].astype(np.intp)
    spaces = np.flatnonzero(np.frombuffer(stored, np.uint8)[: bounds[-1]] == _KEY_SEPARATOR)
    low, high = np.searchsorted(spaces, bounds[:-1]), np.searchsorted(spaces, bounds[1:])
    counts = high - low + 1
    firsts = np.cumsum(counts) - counts
    piece_numbers = np.arange(int(counts.sum())) - np.repeat(firsts, counts)  # of a piece within its text
    inner = np.repeat(low, counts) + piece_numbers
    padded = np.append(spaces, bounds[-1])
    piece_starts = np.where(piece_numbers == 0, np.repeat(bounds[:-1], counts), padded[np.maximum(inner - 1, 0)] + 1)
    last = piece_numbers == np.repeat(counts, counts) - 1
    piece_ends = np.where(last, np.repeat(bounds[1:], counts), padded[np.minimum(inner, len(spaces))])
    sizes = piece_ends - piece_starts
    piece_starts += np.repeat(texts.starts - bounds[:-1], counts)
    kept = sizes > 0
    return KeyTexts(np.repeat(rows, counts)[kept], Texts(texts.data, piece_starts[kept], sizes[kept]))


def key_hashes(prefixes: NDArray[np.uint32], texts: Hashes) -> NDArray[np.int32]:
    """Hash of each text after a prefix whose own hash is ``prefixes[i]`` (`IndexFile#indexKeyHashMethod`)."""
    hashes = np.abs(signed(prefixes * POWERS.take(texts.lengths) + texts.values))
    hashes[hashes < 0] = 0  # Math.abs(Integer.MIN_VALUE) is negative
    return hashes


def interleaving(texts: list[KeyTexts]) -> Callable[[Sequence[NDArray[Any]]], NDArray[Any]]:
    """What puts columns of the texts, one for each list of them, into the order of the puts.

    That is the order of the records, and within a record that of the lists.
    """
    rows = [one.rows for one in texts if len(one.rows)]
    is_aligned = all(len(other) == len(rows[0]) and (other == rows[0]).all() for other in rows[1:])
    if rows and is_aligned and (rows[0][1:] > rows[0][:-1]).all():
        return lambda columns: np.stack([column for column in columns if len(column)], axis=1).ravel()
    all_rows = np.concatenate([one.rows for one in texts])
    kind = np.uint16 if len(all_rows) == 0 or int(all_rows.max()) >> 16 == 0 else np.uint32
    order = np.argsort(all_rows.astype(kind), kind="stable")
    return lambda columns: np.concatenate(columns).take(order)
