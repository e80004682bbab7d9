"""The filters on messages that all commands share, applied to columns of many messages at once.

A message must pass every filter that is given; of several values of one filter any will do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import and_

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.scan.columns import record_batches
from rmqtool.scan.frames import RecordRun, sound_prefix

ANY = "*"
"""Stands for any characters in a pattern; no broker takes it in the name of a topic (`TopicValidator`)."""


def is_pattern(topic: str) -> bool:
    """Whether a word stands for many topics."""
    return ANY in topic


@dataclass(frozen=True)
class TopicChoice:
    """Topics that are `wanted`, all without one, less those that are `excluded`: names, or patterns with ``*``."""

    wanted: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether any topic is left out."""
        return bool(self.wanted or self.excluded)

    def __contains__(self, topic: str) -> bool:
        """Whether a topic is chosen."""
        return (not self.wanted or _fits(topic, self.wanted)) and not (self.excluded and _fits(topic, self.excluded))

    @property
    def names(self) -> tuple[str, ...] | None:
        """The topics that are chosen, where all of them are named, else None."""
        if not self.wanted or any(map(is_pattern, self.wanted)):
            return None
        return tuple(topic for topic in dict.fromkeys(self.wanted) if topic in self)

    def among(self, topics: Iterable[str]) -> tuple[str, ...]:
        """The chosen topics: those that are named, and those of `topics` that are meant by patterns."""
        if self.names is not None:
            return self.names
        named = (topic for topic in self.wanted if not is_pattern(topic))
        return tuple(topic for topic in dict.fromkeys((*named, *topics)) if topic in self)

    def mask(self, column: pa.Array) -> NDArray[np.bool_]:
        """Which topics of a column are chosen, bool; each different one is looked at once. Null is none of `wanted`."""
        encoded = column.dictionary_encode()
        chosen = np.array([topic in self for topic in encoded.dictionary.to_pylist()], dtype=np.bool_)
        codes = np.asarray(pc.fill_null(encoded.indices, -1))
        mask: NDArray[np.bool_] = np.append(chosen, not self.wanted)[codes]
        return mask


def _fits(topic: str, words: tuple[str, ...]) -> bool:
    return _pattern(words).fullmatch(topic) is not None


@lru_cache
def _pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(".*".join(map(re.escape, word.split(ANY))) for word in words), re.DOTALL)


Mask = NDArray[np.bool_]

_FIELDS = {
    "topic": "topics", "exclude_topic": "excluded_topics", "queue": "queue_ids", "tag": "tags",
    "key": "keys", "from": "from_timestamp",
    "to": "to_timestamp", "from_offset": "from_offset", "to_offset": "to_offset",
    "transaction": "transactions",
}  # fmt: skip
FILTER_NAMES = frozenset(_FIELDS)
"""Filters by the names of their options."""


@dataclass(frozen=True)
class Filters:
    """Filters; an empty tuple or None leaves a property free. Small, immutable and picklable.

    Topics are names, or patterns with ``*``; queue ids, tags (the whole TAGS text) and transactions (``none``,
    ``prepared``, ``commit``, ``rollback``, as the column has them) are compared for equality. A key
    is one of KEYS or the unique key, as the index has them. Timestamps are store timestamps, epoch ms; offsets physical
    offsets of the records' first bytes. Both ranges begin at `from` and end before `to`.
    """

    topics: tuple[str, ...] = ()
    queue_ids: tuple[int, ...] = ()
    tags: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    from_timestamp: int | None = None
    to_timestamp: int | None = None
    from_offset: int = 0
    to_offset: int | None = None
    excluded_topics: tuple[str, ...] = ()
    transactions: tuple[str, ...] = ()

    @property
    def topic_choice(self) -> TopicChoice:
        """The filter on topics, true where there is one."""
        return TopicChoice(self.topics, self.excluded_topics)

    @property
    def start(self) -> int:
        """First physical offset, for `scan_files`."""
        return self.from_offset

    @property
    def stop(self) -> int:
        """Physical offset to stop before, for `scan_files`."""
        return MAX_OFFSET if self.to_offset is None else self.to_offset

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a scan that `mask` reads, physical offsets aside, in the order of COLUMNS."""
        wanted = {
            "topic": bool(self.topic_choice),
            "queue_id": bool(self.queue_ids),
            "unique_key": bool(self.keys),
            "keys": bool(self.keys),
            "tags": bool(self.tags),
            "store_timestamp": self.from_timestamp is not None or self.to_timestamp is not None,
            "transaction": bool(self.transactions),
        }
        return tuple(name for name, is_wanted in wanted.items() if is_wanted)

    def only(self, names: Iterable[str]) -> Filters:
        """The filters with these names of options, without the others."""
        return Filters(**{_FIELDS[name]: getattr(self, _FIELDS[name]) for name in names})

    def mask(self, batch: pa.RecordBatch) -> Mask:
        """Which rows pass, bool of shape ``(batch.num_rows,)``; `batch` has at least `columns`.

        Physical offsets are not compared: `scan_files(files, filters.start, filters.stop)` has done that.
        """
        tests: list[Mask] = []
        topics = self.topic_choice
        if topics:
            column = batch.column("topic")
            tests.append(_is_in(column, topics.names) if topics.names else topics.mask(column))
        for name, values in (("queue_id", self.queue_ids), ("tags", self.tags), ("transaction", self.transactions)):
            if values:
                tests.append(_is_in(batch.column(name), values))
        if self.keys:
            tests.append(_is_in(batch.column("unique_key"), self.keys) | _has_any(batch.column("keys"), self.keys))
        if "store_timestamp" in self.columns:
            tests.append(self.in_time(np.asarray(batch.column("store_timestamp"))))
        return reduce(and_, tests) if tests else np.ones(batch.num_rows, dtype=np.bool_)

    def in_time(self, timestamps: NDArray[np.int64]) -> Mask:
        """Which timestamps, epoch ms, pass."""
        passed = np.ones(len(timestamps), dtype=np.bool_)
        if self.from_timestamp is not None:
            passed &= timestamps >= self.from_timestamp
        if self.to_timestamp is not None:
            passed &= timestamps < self.to_timestamp
        return passed

    def select(self, frames: RecordRun) -> RecordRun | None:
        """The records of a run that pass, None without one; the others' bodies and columns are never read.

        The records that are left need not be contiguous: `size` is that of the whole span.
        """
        if not self.columns:
            return frames
        mask = np.concatenate([self.mask(batch) for batch in record_batches(frames, self.columns)])
        if mask.all():
            return frames
        return sound_prefix(frames.block, frames.positions[mask]) if mask.any() else None


def _is_in(column: pa.Array, values: tuple[str, ...] | tuple[int, ...]) -> Mask:
    """Which values of a column are among `values`; null is not."""
    if len(values) == 1:
        equal = pc.equal(column, pa.scalar(values[0], column.type))
        return np.asarray(equal.fill_null(False) if equal.null_count else equal)
    return np.asarray(pc.is_in(column, pa.array(values, column.type)))


def _has_any(lists: pa.ListArray, values: tuple[str, ...]) -> Mask:
    """Which lists hold one of `values`."""
    has_any = np.zeros(len(lists), dtype=np.bool_)
    has_any[np.asarray(pc.list_parent_indices(lists))[_is_in(lists.flatten(), values)]] = True
    return has_any
