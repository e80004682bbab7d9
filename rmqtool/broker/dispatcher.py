"""What the broker derives from each record: consume queue units and index keys (`DefaultMessageStore#doDispatch`).

Stateless: what a record gives does not depend on the records before it. A run of records in, columns out::

    dispatcher = Dispatcher(DispatchRules(version), topics.with_batch_queues)
    for event in scan_files(files):
        if isinstance(event, RecordRun):
            dispatched = dispatcher.dispatch(event)
            dispatched.units  # QueueUnits: arrays, one element for each consume queue unit, in log order
            dispatched.keys  # IndexKeys: arrays, one element for each index unit, in the order of the puts
            dispatched.malformed_rows  # rows of records that a broker takes for damaged, because of their properties

`units.queues` numbers the queues densely; `dispatcher.queues[number]` is its topic and queue id. Units of several runs
are put together with `QueueUnits.concatenate` and taken apart by queue with `units.by_queue()`, which keeps log order.
All arrays own their memory and may outlive the frames. Which units a queue really gets, given those that it holds
already (`ConsumeQueue#putMessagePositionInfo`: repeats are dropped, gaps close), is the matter of `rmqtool.rebuild`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatched_units import QueueName, QueueUnits
from rmqtool.broker.proven_records import ProvenRecord, ProvenRecords
from rmqtool.broker.queue_numbers import QueueNumbers, TopicNumbers
from rmqtool.formats import properties as names
from rmqtool.formats.java import decode_text, string_hash, whole_number
from rmqtool.formats.message import INNER_BATCH, TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from rmqtool.formats.properties import NAME_VALUE_SEPARATOR
from rmqtool.rules.system_topics import LMQ_PREFIX, SCHEDULE_TOPIC
from rmqtool.rules.versions import MULTI_DISPATCH_SPARES_SYSTEM_TOPICS
from rmqtool.scan.block import Positions, gather_slices
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.properties import read_properties
from rmqtool.scan.windows import POWERS, Hashes, Texts, hash_texts, signed

_LMQ_QUEUE_ID = 0  # MixAll.LMQ_QUEUE_ID
_QUEUE_SEPARATOR = ","


def multi_dispatch_targets(names: bytes, offsets: bytes, queue_id: int, *, lmq: bool) -> Iterator[tuple[str, int, int]]:
    """Topic, queue id and queue offset of each further queue of a record of queue `queue_id`.

    Lists of different lengths give none; a name with the file separator, or one without a number, is left out.
    """
    topics, offset_texts = _split(names), _split(offsets)
    if len(topics) != len(offset_texts):
        return
    for topic, offset_text in zip(topics, offset_texts, strict=True):
        if topic and "/" not in topic and (offset := whole_number(offset_text, _LONG)) is not None:
            yield topic, _LMQ_QUEUE_ID if lmq and topic.startswith(LMQ_PREFIX) else queue_id, offset


def bad_offset(names: bytes, offsets: bytes, *, skips_paths: bool) -> str | None:
    """The first offset that is no number, where `Long#parseLong` ends a dispatch; None where all are.

    With `skips_paths`, as since 5.1.3, those of names with the file separator are not looked at.
    """
    topics, offset_texts = _split(names), _split(offsets)
    if len(topics) != len(offset_texts):
        return None
    for topic, offset_text in zip(topics, offset_texts, strict=True):
        if whole_number(offset_text, _LONG) is None and not (skips_paths and "/" in topic):
            return offset_text
    return None


def _split(text: bytes) -> list[str]:
    """As `String#split` does: empty pieces at the end are none."""
    pieces = decode_text(text).split(_QUEUE_SEPARATOR)
    while pieces and not pieces[-1]:
        pieces.pop()
    return pieces


UNIQUE_KEY, KEY, TAGS, REPEATED = 0, 1, 2, 3
"""Kinds of keys: the unique key, one key of KEYS, the tags (since 5.4.0), or a key that the record has put already."""

_KEY_SEPARATOR = 0x20
_MOST_KEYS = 256  # of one record; repeated ones further apart are taken for others


@dataclass(frozen=True)
class IndexKeys:
    """Index units in the order of the puts, one array for each field, all of the same length.

    `key_hashes` are as stored, never negative; `kinds` are UNIQUE_KEY, ... REPEATED; `rows` are the records of the run.
    """

    key_hashes: NDArray[np.int32]
    physical_offsets: NDArray[np.int64]
    store_timestamps: NDArray[np.int64]
    kinds: NDArray[np.uint8]
    rows: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.key_hashes)

    @property
    def are_found(self) -> NDArray[np.bool_]:
        """Which of them are pairs of a key and a message that queries by key find: each once, and no tags."""
        return self.kinds < TAGS

    @property
    def hashes_without_tags(self) -> list[int]:
        """The hashes of keys, each key once, those of tags left out."""
        hashes: list[int] = self.key_hashes[self.are_found].tolist()
        return hashes

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
    return np.maximum(hashes, 0)  # Math.abs(Integer.MIN_VALUE) is negative


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


def _of_one_hash(rows: NDArray[np.intp], hashes: NDArray[np.int32]) -> Iterator[tuple[int, int]]:
    """The keys that have the hash of an earlier one of their record: of both the place."""
    for apart in range(1, min(_MOST_KEYS, len(rows))):
        same = rows[apart:] == rows[:-apart]
        if not same.any():
            return
        same &= hashes[apart:] == hashes[:-apart]
        yield from ((place, place + apart) for place in np.flatnonzero(same).tolist())


_TAG_KEY_PREFIX = "T#"  # topic#T#TAGS: IndexService#buildKey with MessageConst.INDEX_TAG_TYPE
_SEPARATOR = bytes([NAME_VALUE_SEPARATOR])
_SHORT, _INT, _LONG = 16, 32, 64  # bits


class Dispatcher:
    """Derives units and keys by the rules of one broker; its only state are the numbers of topics and queues.

    `batch_topics` are the topics with batch consume queues; when None, a record with the inner-batch bit has one.
    Even then those of `plain_topics` have none: their queues are there, and a flag is one bit that no CRC covers.
    Records with damaged fields give what their `proven` fields give.
    """

    def __init__(
        self,
        rules: DispatchRules,
        batch_topics: Collection[str] | None = None,
        proven: ProvenRecords | None = None,
        plain_topics: Collection[str] = (),
    ) -> None:
        self.rules = rules
        self.proven = proven or ProvenRecords()
        self._plain_topics = frozenset(plain_topics)
        self.batch_topics = batch_topics
        self._inner_batch_topics: set[str] = set()
        self._topic_numbers = TopicNumbers()
        self._queue_numbers = QueueNumbers()
        self.topics = self._topic_numbers.topics
        self.queues = self._queue_numbers.queues
        self._prefixes = np.empty((2, 0), dtype=np.uint32)
        self._has_prefixes = np.empty(0, dtype=np.bool_)
        self._in_batches = np.empty(0, dtype=np.bool_)

    def dispatch(self, frames: RecordRun) -> Dispatched:
        """What the records of a run give."""
        return Dispatched(self, frames)

    def topic_numbers(self, frames: RecordRun) -> NDArray[np.int32]:
        """The number in `topics` of each record's topic."""
        return self._topic_numbers.of(frames)

    def number_of(self, topic: str) -> int | None:
        """The number in `topics` of a topic; None where no record has had it yet."""
        return self._topic_numbers.known(topic)

    def queue_numbers(self, topics: NDArray[np.int32], queue_ids: NDArray[np.int32]) -> NDArray[np.int32]:
        """The number in `queues` of each record's queue."""
        return self._queue_numbers.of(topics, queue_ids, self.topics)

    def topic_number(self, topic: str) -> int:
        """The number in `topics` of a topic that a record should have."""
        return self._topic_numbers.number(topic.encode("utf-8", "surrogatepass"))

    def further_queue_number(self, topic: str, queue_id: int) -> int:
        """The number in `queues` of a queue that a record names in its properties."""
        return self._queue_numbers.number(self.topic_number(topic), queue_id, topic)

    def key_prefixes(self, topics: NDArray[np.int32], *, of_tags: bool) -> NDArray[np.uint32]:
        """Hash of the prefix ``topic#`` or ``topic#T#`` of an index key, for each record."""
        missing = len(self.topics) - len(self._has_prefixes)
        if missing > 0:
            self._prefixes = np.append(self._prefixes, np.zeros((2, missing), dtype=np.uint32), axis=1)
            self._has_prefixes = np.append(self._has_prefixes, np.zeros(missing, dtype=np.bool_))
        new = topics[~self._has_prefixes.take(topics)]
        for number in {*new.tolist()}:  # only those of records: a light queue is a topic, too
            prefixes = [string_hash(f"{self.topics[number]}#{kind}") % (1 << 32) for kind in ("", _TAG_KEY_PREFIX)]
            self._prefixes[:, number], self._has_prefixes[number] = prefixes, True
        prefixes_of_rows: NDArray[np.uint32] = self._prefixes[int(of_tags)].take(topics)
        return prefixes_of_rows

    def is_batch_topic(self, topic: str) -> bool:
        """Whether a topic is known to have batch consume queues: by configuration, or by records seen so far."""
        known = self._inner_batch_topics if self.batch_topics is None else self.batch_topics
        return topic in known

    def is_batch(self, topics: NDArray[np.int32], sys_flags: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether each record's queue is a batch consume queue."""
        if self.batch_topics is None:
            in_batches: NDArray[np.bool_] = (sys_flags & INNER_BATCH) != 0
            if self._plain_topics and in_batches.any():
                named = (self.topics[number] in self._plain_topics for number in topics.tolist())
                in_batches &= ~np.fromiter(named, np.bool_, len(topics))
            self._inner_batch_topics.update(self.topics[number] for number in set(topics[in_batches].tolist()))
            return in_batches
        if not self.batch_topics:
            return np.zeros(len(topics), dtype=np.bool_)
        new = [topic in self.batch_topics for topic in self.topics[len(self._in_batches) :]]
        self._in_batches = np.append(self._in_batches, np.array(new, dtype=np.bool_)) if new else self._in_batches
        return self._in_batches.take(topics)


class Dispatched:
    """What a broker derives from a run of records; computed on first access, while the frames are valid."""

    def __init__(self, dispatcher: Dispatcher, frames: RecordRun) -> None:
        self._dispatcher = dispatcher
        self._frames = frames
        self._rules = dispatcher.rules
        self._properties = read_properties(frames)
        self._sys_flags = frames.headers.field("sys_flag")
        self._topics = dispatcher.topic_numbers(frames)
        self._malformed = np.zeros(len(frames), dtype=np.bool_)
        self.proven_rows: dict[int, ProvenRecord] = dispatcher.proven.rows_of(frames) if dispatcher.proven else {}
        for row, proven in self.proven_rows.items():
            if proven.topic is not None:
                self._topics = self._topics.copy()
                self._topics[row] = dispatcher.topic_number(proven.topic)
        self._sys_flags = self._proven(self._sys_flags, "sys_flag")
        self.optional_units: QueueUnits | None = None
        """Units that only older releases derive, None without one; known once `units` are."""

    def rows_of(self, topic: str) -> Positions:
        """The records of a topic."""
        return np.flatnonzero(self._topics == self._dispatcher.number_of(topic))  # none where no record has had it

    def topics_of(self, rows: Positions) -> list[str]:
        """The topics of some records, each once for all of its records."""
        topics = self._dispatcher.topics
        return [topics[number] for number in dict.fromkeys(self._topics[rows].tolist())]

    @cached_property
    def units(self) -> QueueUnits:
        """The consume queue units: of records that are neither prepared nor rolled back."""
        frames, fields = self._frames, self._frames.headers.field
        bases, sizes, counts = self._batches
        units = QueueUnits(
            queues=self._dispatcher.queue_numbers(self._topics, self._proven(fields("queue_id"), "queue_id")),
            queue_offsets=bases,
            physical_offsets=frames.physical_offsets.astype(np.int64, copy=False),
            message_sizes=frames.message_sizes.astype(np.int32),
            tags_codes=self._tags_codes,
            tags_hashes=self._proven_hashes,
            store_timestamps=fields("store_timestamp"),
            batch_sizes=sizes,
            message_counts=counts,
            rows=np.arange(len(frames), dtype=np.int32),
        )
        kept = (self._sys_flags & TRANSACTION_PREPARED) == 0
        kept &= self._readable
        more = self._multi_dispatched(units, np.flatnonzero(kept), self._rules.multi_dispatches)
        if self._rules.may_be_older:
            self.optional_units = self._multi_dispatched(units, np.flatnonzero(kept), self._rules.may_multi_dispatch)
        if not kept.all():
            units = units[kept]
        if more is None:
            return units
        both = QueueUnits.concatenate([units, more])
        return both[np.argsort(both.rows, kind="stable")]

    @property
    def places(self) -> list[tuple[QueueName, int]]:
        """The queue of each unit, and its queue offset there."""
        numbers = zip(self.units.queues.tolist(), self.units.queue_offsets.tolist(), strict=True)
        return [(self._dispatcher.queues[queue], offset) for queue, offset in numbers]

    def failure(self, above: int) -> tuple[int, str] | None:
        """The first record that ends a dispatch with an exception, as a row, and why; None where none does.

        Only records with a physical offset greater than `above` are dispatched.
        """
        if not self._rules.multi_dispatch:
            return None
        dispatched = ((self._sys_flags & TRANSACTION_PREPARED) == 0) & ~self._malformed
        dispatched &= self._frames.physical_offsets > above
        if self._rules.fails_without_properties:
            bare = np.flatnonzero(dispatched & (self._frames.properties_sizes == 0))
            if len(bare):
                return int(bare[0]), "it has no properties: NullPointerException in checkMultiDispatchQueue"
        queues_of, offsets_of = self.values(names.INNER_MULTI_DISPATCH), self.values(names.INNER_MULTI_QUEUE_OFFSET)
        skips_paths = self._rules.version >= MULTI_DISPATCH_SPARES_SYSTEM_TOPICS
        for row in np.flatnonzero(dispatched & (queues_of.sizes > 0) & (offsets_of.sizes > 0)).tolist():
            if self._rules.multi_dispatches(self._dispatcher.topics[self._topics[row]]):
                bad = bad_offset(queues_of.text(row), offsets_of.text(row), skips_paths=skips_paths)
                if bad is not None:
                    return row, f"{names.INNER_MULTI_QUEUE_OFFSET} holds {bad!r}: NumberFormatException"
        return None

    @cached_property
    def keys(self) -> IndexKeys:
        """The index keys: of records that are not rolled back."""
        indexed = (self._sys_flags & TRANSACTION_MASK) != TRANSACTION_ROLLBACK
        if self.malformed_rows.size:
            indexed &= self._readable
        texts = [
            texts_at(self.values(names.UNIQUE_KEY), indexed),
            split_keys(texts_at(self.values(names.KEYS), indexed)),
        ]
        if self._rules.indexes_tags:
            texts.append(texts_at(self.values(names.TAGS), indexed))
        in_order = interleaving(texts)
        rows = in_order([text.rows for text in texts])
        hashes = in_order([self._key_hashes(kind, text) for kind, text in enumerate(texts)])
        kinds = in_order([np.full(len(text.rows), kind, np.uint8) for kind, text in enumerate(texts)])
        if pairs := [pair for pair in _of_one_hash(rows, hashes) if kinds[pair[1]] != TAGS]:
            numbers = in_order([np.arange(len(text.rows)) for text in texts])
            of = {at: texts[kinds[at]].texts.text(numbers[at]) for pair in pairs for at in pair}
            kinds[[again for first, again in pairs if of[first] == of[again]]] = REPEATED
        keys = IndexKeys(
            hashes,
            self._frames.physical_offsets.take(rows).astype(np.int64, copy=False),
            self._frames.headers.field("store_timestamp").take(rows),
            kinds,
            rows.astype(np.int32),
        )
        for row, proven in self.proven_rows.items():
            if proven.key_hashes is not None:
                keys = self._with_proven_keys(keys, row, proven.key_hashes)
        return keys

    def _with_proven_keys(self, keys: IndexKeys, row: int, hashes: tuple[int, ...]) -> IndexKeys:
        """`keys` with those of one record replaced by the ones that the index has of it."""
        low, high = (int(np.searchsorted(keys.rows, row, side)) for side in ("left", "right"))
        kinds = keys.kinds[low:high].tolist()
        count = len(hashes)
        timestamp = self._frames.headers.field("store_timestamp")[row]
        put = IndexKeys(
            np.array(hashes, dtype=np.int32),
            np.full(count, self._frames.physical_offsets[row], dtype=np.int64),
            np.full(count, timestamp, dtype=np.int64),
            np.array(kinds if len(kinds) == count else [KEY] * count, dtype=np.uint8),
            np.full(count, row, dtype=np.int32),
        )
        return IndexKeys(
            *(
                np.concatenate([old[:low], new, old[high:]])
                for old, new in zip(vars(keys).values(), vars(put).values(), strict=True)
            )
        )

    @property
    def _readable(self) -> NDArray[np.bool_]:
        """The records whose properties a broker can read, or could before they were damaged."""
        readable = ~self._malformed
        readable[list(self.proven_rows)] = True
        return readable

    @cached_property
    def malformed_rows(self) -> Positions:
        """Rows of records whose properties make a broker's parser fail: to the broker they are no records."""
        _ = self._tags_codes, self._batches  # they mark the rows
        return np.flatnonzero(self._malformed)

    @property
    def refused_rows(self) -> Positions:
        """Those of `malformed_rows` that end the log for a recovery, or have no unit that proves them."""
        topics = self._dispatcher.topics
        rows = self.malformed_rows
        kept = [row not in self.proven_rows or topics[self._topics[row]] == SCHEDULE_TOPIC for row in rows.tolist()]
        refused: Positions = rows[np.array(kept, dtype=np.bool_)]
        return refused

    def _proven(self, column: NDArray[Any], field: str) -> NDArray[Any]:
        """A column with the proven values of a field; the column itself without any."""
        for row, proven in self.proven_rows.items():
            if (value := getattr(proven, field)) is not None:
                column = column.copy()
                column[row] = value
        return column

    def has_proven_unit(self, row: int) -> bool:
        """Whether the queue entry of a record with damaged fields proves what they were."""
        proven = self.proven_rows.get(row)
        return proven is not None and proven.tags_code is not None

    def _key_hashes(self, kind: int, found: KeyTexts) -> NDArray[np.int32]:
        prefixes = self._dispatcher.key_prefixes(self._topics.take(found.rows), of_tags=kind == TAGS)
        if kind != TAGS:
            return key_hashes(prefixes, hash_texts(found.texts))
        values, lengths = self._tags  # which are hashed already
        return key_hashes(prefixes, Hashes(values[found.rows], lengths[found.rows]))

    @property
    def has_optional_keys(self) -> bool:
        """Whether releases before 4.9.1 leave out some of the keys, or put others."""
        return any(len(self._rows_with_separator(name)) for name in (names.UNIQUE_KEY, names.KEYS))

    def _rows_with_separator(self, name: str) -> Positions:
        """Records whose value of a property holds 0x01."""
        values = self._properties.texts(name.encode())
        if not values.hold(NAME_VALUE_SEPARATOR):
            return np.empty(0, dtype=np.intp)
        rows = np.flatnonzero(values.sizes)
        held = [_SEPARATOR in values.text(row) for row in rows.tolist()]
        rows_held: Positions = rows[np.array(held, dtype=np.bool_)]
        return rows_held

    def values(self, name: str) -> Texts:
        """The values of a property, of no bytes where this version reads none."""
        values = self._properties.texts(name.encode())
        if not self._rules.drops_values_with_separator:
            return values
        sizes = values.sizes.copy()
        for row in self._rows_with_separator(name).tolist():
            sizes[row] = _size_of_second(values.text(row))
        return Texts(values.data, values.starts, sizes)

    @cached_property
    def _tags(self) -> Hashes:
        return hash_texts(self.values(names.TAGS))

    @cached_property
    def _tags_hashes(self) -> NDArray[np.int64]:
        return signed(self._tags.values).astype(np.int64)

    @cached_property
    def _proven_hashes(self) -> NDArray[np.int64]:
        """The hashes of tags; proven tags codes count, except those that are times of delivery, which are larger."""
        hashes = self._proven(self._tags_hashes, "tags_code")
        counted: NDArray[np.int64] = np.where(hashes.astype(np.int32) == hashes, hashes, self._tags_hashes)
        return counted

    @cached_property
    def _tags_codes(self) -> NDArray[np.int64]:
        """Tags codes; those that are proven count."""
        return self._proven(self._derived_tags_codes, "tags_code")

    @cached_property
    def _derived_tags_codes(self) -> NDArray[np.int64]:
        """Those of the records as they are.

        Of a delayed message it is the time of its delivery (`CommitLog#checkMessageAndReturnSize`).
        """
        rows = self.rows_of(SCHEDULE_TOPIC)
        if not rows.size:
            return self._tags_hashes
        levels = self.values(names.DELAY)
        rows = rows[levels.sizes[rows] > 0]
        codes = self._tags_hashes.copy() if len(rows) else self._tags_hashes
        times = self._frames.headers.field("store_timestamp")
        for row, level in self._integers(rows, levels, _INT):
            due = self._rules.delay_levels.delivery_time(level, int(times[row]))
            codes[row] = codes[row] if due is None else due
        return codes

    @cached_property
    def _batches(self) -> tuple[NDArray[np.int64], NDArray[np.int16], NDArray[np.int16]]:
        """First queue offset of each record, messages in its unit (`BatchConsumeQueue`), and offsets that it takes."""
        offsets, sizes, taken = self._derived_batches
        sizes, taken = self._proven(sizes, "batch_size"), self._proven(taken, "batch_size")
        return self._proven(offsets, "queue_offset"), sizes, taken

    @cached_property
    def _derived_batches(self) -> tuple[NDArray[np.int64], NDArray[np.int16], NDArray[np.int16]]:
        """The same of the records as they are."""
        offsets = self._frames.headers.field("queue_offset")
        sizes = np.ones(len(offsets), dtype=np.int16)
        is_batch = self._dispatcher.is_batch(self._topics, self._sys_flags)
        if not is_batch.any():
            return offsets, sizes, sizes
        bases, counts = self.values(names.INNER_BASE), self.values(names.INNER_NUM)
        counted = is_batch & (counts.sizes > 0)
        with_base = counted & (bases.sizes > 0)
        of_one = np.zeros_like(counted) if self._rules.in_rocksdb else counted & ~with_base
        offsets, taken = offsets.copy(), sizes.copy()
        for row, base in self._integers(np.flatnonzero(with_base), bases, _LONG):
            offsets[row] = base
        for row, count in self._integers(np.flatnonzero(counted & ~of_one), counts, _SHORT):
            sizes[row] = taken[row] = count
        for row, count in self._integers(np.flatnonzero(of_one), counts, _SHORT, required=False):
            taken[row] = max(count, 1)
        self._malformed |= is_batch & ((offsets < 0) | (sizes < 0))  # "unexpected dispatch request": dropped
        return offsets, sizes, taken

    def _integers(
        self, rows: Positions, values: Texts, bits: int, *, required: bool = True
    ) -> Iterator[tuple[int, int]]:
        """Row and value of properties that are numbers; where they are `required`, a record without is malformed."""
        for row in rows.tolist():
            number = whole_number(decode_text(values.text(row)), bits)
            if number is not None:
                yield row, number
            elif required:
                self._malformed[row] = True

    def _multi_dispatched(
        self, units: QueueUnits, rows: Positions, takes_topic: Callable[[str], bool]
    ) -> QueueUnits | None:
        """The units of further queues that the records `rows` name, if `takes_topic` their topic; None without one."""
        if not self._rules.multi_dispatch:
            return None
        queues_of, offsets_of = self.values(names.INNER_MULTI_DISPATCH), self.values(names.INNER_MULTI_QUEUE_OFFSET)
        topics = self._dispatcher.topics
        queue_ids = self._frames.headers.field("queue_id")
        targets: list[tuple[int, int, int]] = []
        for row, proven in self.proven_rows.items():
            if proven.light_queues and row in rows and takes_topic(topics[self._topics[row]]):
                for topic, queue_id, offset in proven.light_queues:
                    targets.append((row, self._dispatcher.further_queue_number(topic, queue_id), offset))
        done = {row for row, proven in self.proven_rows.items() if proven.light_queues is not None}
        for row in rows[(queues_of.sizes[rows] > 0) & (offsets_of.sizes[rows] > 0)].tolist():
            if row in done or not takes_topic(topics[self._topics[row]]):
                continue
            for topic, queue_id, offset in multi_dispatch_targets(
                queues_of.text(row), offsets_of.text(row), int(queue_ids[row]), lmq=self._rules.lmq
            ):
                targets.append((row, self._dispatcher.further_queue_number(topic, queue_id), offset))
        if not targets:
            return None
        target_rows, queues, queue_offsets = np.array(targets, dtype=np.int64).T
        own = units[target_rows]  # those of the records' own queues
        return QueueUnits(
            queues.astype(np.int32), queue_offsets, own.physical_offsets, own.message_sizes, own.tags_hashes,
            own.tags_hashes, own.store_timestamps, np.ones(len(own), np.int16), np.ones(len(own), np.int16), own.rows,
        )  # fmt: skip


def _size_of_second(value: bytes) -> int:
    """Size of the one piece that `String#split` leaves of a value with separators, 0 when it leaves more."""
    first = value.rstrip(_SEPARATOR)
    return 0 if _SEPARATOR in first else len(first)
