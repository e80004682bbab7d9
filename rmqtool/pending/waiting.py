"""Messages that wait, as rows of one shape whatever they wait for, and what is not known about them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rmqtool.rules.system_topics import DEAD_LETTER_PREFIX, RETRY_PREFIX
from rmqtool.scan.text import constant_strings

Kind = Literal["delay", "lost-delay", "timer", "lost-timer", "half", "lost-half", "pop", "retry", "dead-letter"]
"""What a message waits for. delay: a delay level. lost-delay: a delay level that is not configured, so that no broker
delivers it. timer: the timer. lost-timer: the timer, and no start delivers it. half: a half message without an answer.
lost-half: one that no broker asks for. pop: taken by a POP consumer and not acknowledged. retry: tried again when its
group consumes it. dead-letter: given up, which nobody delivers."""

KINDS: tuple[Kind, ...] = get_args(Kind)
OWED: tuple[Kind, ...] = ("delay", "timer", "half", "pop", "retry")

SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("level", pa.int32()),
        ("due_timestamp", pa.int64()),
        ("to_topic", pa.string()),
        ("to_queue_id", pa.int32()),
        ("group", pa.string()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("physical_offset", pa.int64()),
        ("unique_key", pa.string()),
        ("keys", pa.list_(pa.string())),
        ("store_timestamp", pa.int64()),
        ("reconsume_times", pa.int32()),
    ]
)
"""A message that waits: when it is due (null: when its group consumes), where it goes, for whom, where it stands."""

_INTEGER = r"^\d{1,18}$"
_QUEUE_ID = r"^\d{1,9}$"


def waiting(kind: Kind, messages: pa.Table, **columns: Any) -> pa.RecordBatch:
    """Rows of SCHEMA from columns by their names: those of `messages`, or others instead; null where there is none.

    A column is an array as long as `messages`, or one value for all rows.
    """
    given = {"kind": kind, **columns}
    arrays = []
    for name in SCHEMA.names:
        kind_of = SCHEMA.field(name).type
        if name in given:
            arrays.append(_column(given[name], messages.num_rows, kind_of))
        elif name in messages.column_names:
            arrays.append(_column(messages.column(name), messages.num_rows, kind_of))
        else:
            arrays.append(pa.nulls(messages.num_rows, kind_of))
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _column(value: Any, count: int, kind: pa.DataType) -> pa.Array:
    if value is None:
        return pa.nulls(count, kind)
    if isinstance(value, str):
        return constant_strings(value, count)
    if isinstance(value, int):
        return pa.array(np.full(count, value), kind)
    if isinstance(value, pa.ChunkedArray):
        value = value.combine_chunks()
    return (value if isinstance(value, pa.Array) else pa.array(value)).cast(kind)


def integers(texts: pa.ChunkedArray, *, queue_ids: bool = False) -> pa.Array:
    """Texts as numbers, null where one is none that is usual."""
    pattern, kind = (_QUEUE_ID, pa.int32()) if queue_ids else (_INTEGER, pa.int64())
    is_number = pc.match_substring_regex(texts, pattern)
    numbers = pc.if_else(is_number, texts, pa.scalar(None, pa.string())).cast(kind)
    return numbers.combine_chunks() if isinstance(numbers, pa.ChunkedArray) else numbers


def is_true(mask: pa.ChunkedArray | pa.Array) -> NDArray[np.bool_]:
    """An Arrow mask as NumPy's, false where it is null."""
    filled = mask.fill_null(False)
    return np.asarray(filled)


@dataclass(frozen=True)
class Note:
    """What was not looked at, or cannot be known, and why."""

    what: str
    why: str


@dataclass
class Notes:
    """`unread` is what could not be read, for whatever reason; `uncertain` what no look at the files can tell.

    `at_most` is set where some of what is counted may be done.
    """

    unread: list[Note] = field(default_factory=list)
    uncertain: list[Note] = field(default_factory=list)
    at_most: bool = False

    def add_unread(self, what: str, why: str) -> None:
        """Note what could not be read, once."""
        note = Note(what, why)
        if note not in self.unread:
            self.unread.append(note)

    def add_uncertain(self, what: str, why: str) -> None:
        """Note what cannot be known, once."""
        note = Note(what, why)
        if note not in self.uncertain:
            self.uncertain.append(note)


RETRY_TOPIC, DEAD_LETTER_ORIGIN = "RETRY_TOPIC", "DLQ_ORIGIN_TOPIC"  # MessageConst.PROPERTY_...
_POP_SEPARATOR = "+"  # KeyBuilder.POP_RETRY_SEPARATOR_V2: not in the name of a group
_POP_SEPARATOR_V1 = "_"


def receivers(messages: pa.Table, topics: pa.ChunkedArray, groups: Iterable[str]) -> dict[str, Any]:
    """The columns `to_topic` and `group` of messages that are delivered to `topics`; `groups` are those known."""
    if not messages.num_rows:
        return {"to_topic": None, "group": None}
    distinct = pc.unique(topics).to_pylist()
    rows = pc.index_in(topics, pa.array(distinct, pa.string())).combine_chunks()
    owners = [owner_of(topic or "", groups) for topic in distinct]
    group, of_pop = (pa.array(column, pa.string()).take(rows) for column in zip(*owners, strict=True))
    origin = pc.coalesce(of_pop, topics)
    for name in (DEAD_LETTER_ORIGIN, RETRY_TOPIC):
        if name in messages.column_names:
            origin = pc.coalesce(messages.column(name), origin)
    return {"to_topic": pc.if_else(group.is_null(), topics, origin), "group": group}


def owner_of(topic: str, groups: Iterable[str]) -> tuple[str | None, str | None]:
    """The group of a retry or dead letter topic, None of others, and the topic that those of POP name after it."""
    prefix = next((prefix for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX) if topic.startswith(prefix)), None)
    if prefix is None:
        return None, None
    name = topic.removeprefix(prefix)
    known = [group for group in groups if name == group or name.startswith(group + _POP_SEPARATOR_V1)]
    if not known:
        group, _, of_pop = name.partition(_POP_SEPARATOR)
        return group, of_pop or None
    group = max(known, key=len)
    return group, name[len(group) + 1 :] or None
