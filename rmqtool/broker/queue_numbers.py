"""Dense numbers of the topics and queues that records name, for a whole run at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.formats.java import decode_text
from rmqtool.scan.block import Positions
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.windows import WORD, mask_words, words_of

_WIDTHS = (16, 32, 64, 128)  # bytes
_MULTIPLIERS = np.array(
    [0x9E3779B97F4A7C15 * (2 * word_index + 1) % (1 << 64) for word_index in range(_WIDTHS[-1] // WORD)],
    dtype=np.uint64,
)
_FEW_SLOTS = 1 << 12
_FEW = 64  # records: fewer are told apart without Arrow's functions, which take longer to load
_SLOTS_PER_TOPIC = 16
_USUAL_QUEUE_IDS = 1 << 6
_ID_BITS = 32


class TopicNumbers:
    """Numbers of topics: a record's topic, zero-padded, is hashed to a slot and compared with the slot's topic.

    Only where they differ the topic is looked up by its bytes: it is new, too wide, or its slot is taken by another.
    NumPy's `take` is used throughout: of few values it is several times as fast as an index.
    """

    def __init__(self) -> None:
        self.topics: list[str] = []
        self._numbers: dict[bytes, int] = {}
        self._forget(_WIDTHS[0], _FEW_SLOTS)

    def _forget(self, width: int, slots: int) -> None:
        self._width = width
        self._shift = np.uint64(64 - (slots - 1).bit_length())
        self._slots = np.zeros(slots, dtype=np.int32)
        self._taken: set[int] = set()
        self._sizes = np.full(1, -1, dtype=np.intp)  # of topics by number, -1 where no slot holds it
        self._words = np.zeros((1, width // WORD), dtype=np.uint64)

    def number(self, topic: bytes) -> int:
        """The number of one topic; a new topic gets the next one."""
        number = self._numbers.get(topic)
        if number is None:
            number = self._numbers[topic] = len(self.topics)
            self.topics.append(decode_text(topic))
        return number

    def known(self, topic: str) -> int | None:
        """The number of a topic that was seen."""
        return self._numbers.get(topic.encode("utf-8", "surrogatepass"))

    def of(self, frames: RecordRun) -> NDArray[np.int32]:
        """The number in `topics` of each record's topic."""
        sizes = frames.topic_sizes
        self._fit(int(sizes.max(initial=0)))
        words = self._padded(frames)
        slots = self._slots_of(words)
        numbers: NDArray[np.int32] = self._slots.take(slots)
        other = self._sizes.take(numbers) != sizes
        differ = words != self._words.take(numbers, axis=0)
        if differ.any():
            other |= differ.any(axis=1)
        if other.any():
            self._assign(frames, np.flatnonzero(other), numbers, words, slots)
        return numbers

    def _fit(self, size: int) -> None:
        """Make room for topics of `size` bytes, and add slots so that few topics share one."""
        width = max(self._width, next((width for width in _WIDTHS if size <= width), 0))
        slots = max(len(self._slots), 1 << (_SLOTS_PER_TOPIC * len(self.topics)).bit_length())
        if width > self._width or slots > len(self._slots):
            self._forget(width, slots)

    def _padded(self, frames: RecordRun) -> NDArray[np.uint64]:
        """The zero-padded topics, as far as they fit; shape (records, words)."""
        return mask_words(words_of(frames.block.bytes, frames.topic_positions, self._width), frames.topic_sizes)

    def _slots_of(self, words: NDArray[np.uint64]) -> Positions:
        codes: NDArray[np.uint64] = words[:, 0] * _MULTIPLIERS[0]
        for word_index in range(1, words.shape[1]):
            codes += words[:, word_index] * _MULTIPLIERS[word_index]
        codes >>= self._shift
        return codes.view(np.intp)

    def _assign(self, frames: RecordRun, rows: Positions, numbers: NDArray[np.int32],
                 words: NDArray[np.uint64], slots: Positions) -> None:  # fmt: skip
        """Write the numbers of `rows` into `numbers`, and enter their topics into free slots."""
        sizes = frames.topic_sizes[rows]
        topics = frames.block.slices(frames.topic_positions[rows], sizes)
        if len(rows) <= _FEW:
            firsts_of: dict[bytes, int] = {}
            texts = topics.to_pylist()
            for row, text in enumerate(texts):
                firsts_of.setdefault(text, row)
            number_of = {text: self.number(text) for text in firsts_of}
            distinct_numbers, firsts = [*number_of.values()], [*firsts_of.values()]
            numbers[rows] = [number_of[text] for text in texts]
        else:
            dictionary_encoded = topics.dictionary_encode()
            distinct_numbers = [self.number(topic) for topic in dictionary_encoded.dictionary.to_pylist()]
            indices = np.asarray(dictionary_encoded.indices)
            numbers[rows] = np.array(distinct_numbers, dtype=np.int32)[indices]
            firsts = np.unique(indices, return_index=True)[1].tolist()
        missing = len(self.topics) - len(self._sizes)
        if missing > 0:
            self._sizes = np.append(self._sizes, np.full(missing, -1))
            self._words = np.append(self._words, np.zeros((missing, self._words.shape[1]), dtype=np.uint64), axis=0)
        for number, first in zip(distinct_numbers, firsts, strict=True):
            slot = int(slots[rows[first]])
            if slot not in self._taken and sizes[first] <= self._width:
                self._taken.add(slot)
                self._slots[slot], self._sizes[number], self._words[number] = number, sizes[first], words[rows[first]]


class QueueNumbers:
    """Numbers of queues, each a topic's number and a queue id."""

    def __init__(self) -> None:
        self.queues: list[QueueName] = []
        self._numbers: dict[tuple[int, int], int] = {}
        self._usual = np.empty((0, 1), dtype=np.int32)  # by topic and queue id; -1 for a queue not seen

    def number(self, topic: int, queue_id: int, name: str) -> int:
        """The number of one queue; a new queue gets the next one. `name` is that of its topic."""
        number = self._numbers.get((topic, queue_id))
        if number is None:
            number = self._numbers[topic, queue_id] = len(self.queues)
            self.queues.append(QueueName(name, queue_id))
        return number

    def of(self, topics: NDArray[np.int32], queue_ids: NDArray[np.int32], names: Sequence[str]) -> NDArray[np.int32]:
        """The number in `queues` of each record's queue; topic ``topics[i]`` is called ``names[topics[i]]``."""
        ids = queue_ids.view(np.uint32)
        self._make_room(int(topics.max(initial=-1)) + 1, int(ids.max(initial=0)) + 1)
        width = self._usual.shape[1]
        unusual = ids >= width
        any_unusual = bool(unusual.any())
        cells = topics.astype(np.intp) * width
        cells += np.where(unusual, 0, ids) if any_unusual else ids
        numbers: NDArray[np.int32] = self._usual.take(cells)
        new = numbers < 0
        if any_unusual:
            new |= unusual
        if new.any():
            self._assign(np.flatnonzero(new), topics, queue_ids, names, numbers)
        return numbers

    def _make_room(self, topics: int, queue_ids: int) -> None:
        """Make room for this many topics of records, which light queues are not, and this many usual queue ids."""
        height, width = self._usual.shape
        if topics > height:
            height = 2 * topics - height
        if width < min(queue_ids, _USUAL_QUEUE_IDS):
            width = min(1 << (queue_ids - 1).bit_length(), _USUAL_QUEUE_IDS)
        if (height, width) != self._usual.shape:
            larger = np.full((height, width), -1, dtype=np.int32)
            larger[: len(self._usual), : self._usual.shape[1]] = self._usual
            self._usual = larger

    def _assign(self, rows: Positions, topics: NDArray[np.int32], queue_ids: NDArray[np.int32], names: Sequence[str],
                 numbers: NDArray[np.int32]) -> None:  # fmt: skip
        """Write the numbers of `rows` into `numbers`; topic and queue id are coded in one integer, to hash fast."""
        if len(rows) <= _FEW:
            pairs = [*zip(topics[rows].tolist(), queue_ids[rows].tolist(), strict=True)]
            for topic, queue_id in dict.fromkeys(pairs):
                self._enter(topic, queue_id, names[topic])
            numbers[rows] = [self._numbers[pair] for pair in pairs]
            return
        codes = topics[rows].astype(np.int64) << _ID_BITS
        codes |= queue_ids[rows].view(np.uint32)
        values = pa.Array.from_buffers(pa.int64(), len(codes), [None, pa.py_buffer(codes)])
        dictionary_encoded = values.dictionary_encode()
        distinct = np.asarray(dictionary_encoded.dictionary)
        ids = distinct.astype(np.uint32).view(np.int32).tolist()
        distinct_numbers = []
        for topic, queue_id in zip((distinct >> _ID_BITS).tolist(), ids, strict=True):
            distinct_numbers.append(self._enter(topic, queue_id, names[topic]))
        numbers[rows] = np.array(distinct_numbers, dtype=np.int32)[np.asarray(dictionary_encoded.indices)]

    def _enter(self, topic: int, queue_id: int, name: str) -> int:
        """The number of one queue, which is found in the table from now on."""
        number = self.number(topic, queue_id, name)
        if 0 <= queue_id < self._usual.shape[1]:
            self._usual[topic, queue_id] = number
        return number
