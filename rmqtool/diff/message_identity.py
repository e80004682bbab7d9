"""What makes two messages the same wherever they stand: topic, unique key and the CRC of the stored body."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqtool.broker.queue_numbers import TopicNumbers
from rmqtool.formats.properties import UNIQUE_KEY
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.properties import read_properties
from rmqtool.scan.windows import WINDOW, mask_words, words_of

IDENTITY_DTYPE = np.dtype(
    [
        ("key", "u8"),  # hash of topic and unique key
        ("whole", "u8"),  # hash of these and of the CRC of the stored body
        ("topic", "i4"),  # number of the topic in its log
        ("physical_offset", "i8"),
    ]
)

Identities = NDArray[np.void]
"""Rows of IDENTITY_DTYPE, one for each message, in the order of the log."""

_FACTORS = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9], dtype=np.uint64)
_SHIFTS = np.array([32, 29], dtype=np.uint64)


class IdentityReader:
    """Reads the identities of one log's messages; `topics` are the names by number."""

    def __init__(self) -> None:
        self._numbers = TopicNumbers()
        self.topics = self._numbers.topics
        self._hashes = np.empty(0, dtype=np.uint64)

    def topic_numbers(self, frames: RecordRun) -> NDArray[np.int32]:
        """The number in `topics` of each record's topic."""
        return self._numbers.of(frames)

    def read(self, frames: RecordRun) -> Identities:
        """The identities of a run."""
        numbers = self._numbers.of(frames)
        identities = np.empty(len(frames), dtype=IDENTITY_DTYPE)
        identities["key"] = mixed(self._topic_hashes()[numbers], _unique_keys(frames))
        identities["whole"] = mixed(identities["key"], frames.headers.field("body_crc").astype(np.uint64))
        identities["topic"], identities["physical_offset"] = numbers, frames.physical_offsets
        return identities

    def _topic_hashes(self) -> NDArray[np.uint64]:
        """A hash of each topic's name, the same in every log."""
        new = [_hash(name.encode("utf-8", "surrogatepass")) for name in self.topics[len(self._hashes) :]]
        if new:
            self._hashes = np.append(self._hashes, np.array(new, dtype=np.uint64))
        return self._hashes


def _unique_keys(frames: RecordRun) -> NDArray[np.uint64]:
    """A hash of each unique key, in 64 bits; that of nothing where there is none."""
    keys = read_properties(frames).texts(UNIQUE_KEY.encode())
    hashes: NDArray[np.uint64] = keys.sizes.astype(np.uint64)
    for word in mask_words(words_of(keys.data, keys.starts, WINDOW), np.minimum(keys.sizes, WINDOW)).T:
        hashes = mixed(hashes, word)
    for row in np.flatnonzero(keys.sizes > WINDOW).tolist():
        hashes[row] = _hash(keys.text(row))
    return hashes


def mixed(hashes: NDArray[np.uint64], words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The hashes with one word more each: multiplied and shifted so that each bit counts in all."""
    mixed: NDArray[Any] = hashes ^ words
    for factor, shift in zip(_FACTORS, _SHIFTS, strict=True):
        mixed = mixed * factor
        mixed ^= mixed >> shift
    return mixed


def _hash(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")
