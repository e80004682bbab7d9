"""For whom a message waits: the topic as its consumers see it, and the group, where it is for one only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rmqtool.rules.system_topics import DEAD_LETTER_PREFIX, RETRY_PREFIX

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
