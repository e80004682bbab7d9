"""Committed offsets of the consumer groups (`ConsumerOffsetManager`, `LmqConsumerOffsetManager`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rmqtool.rules.versions import LIGHT_OFFSETS, Version
from rmqtool.store.config_json import ConfigFile, load_config, read_config_file
from rmqtool.store.rocksdb_config import config_database, load_table
from rmqtool.store.store import CONFIG, Store

CONSUMER_OFFSET = "consumerOffset.json"
LMQ_CONSUMER_OFFSET = "lmqConsumerOffset.json"  # since 4.9.3: with `enableLmq` it replaces the other
_LMQ_QUEUE_ID = 0  # MixAll.LMQ_QUEUE_ID
_QUEUE_ID = re.compile(r"-?\d{1,10}", re.ASCII)
_MAX_OFFSET = (1 << 63) - 1


@dataclass(frozen=True, order=True)
class CommittedOffset:
    """The next queue offset that a group consumes of a queue."""

    group: str
    topic: str
    queue_id: int
    offset: int


@dataclass(frozen=True)
class CommittedOffsets:
    """All committed offsets of a store and the file that they come from."""

    file: ConfigFile
    offsets: tuple[CommittedOffset, ...]


def load_offsets(store: Store) -> CommittedOffsets:
    """Read the offsets that a start of the broker would use; where nothing says which file counts, those of one."""
    counting = counting_file(store)
    if counting == CONSUMER_OFFSET:
        file = load_table(store, CONSUMER_OFFSET)
        return CommittedOffsets(file, offsets_in(file.content))
    file = load_config(store.root / CONFIG / LMQ_CONSUMER_OFFSET, store.conf.release)
    is_in_rocksdb = config_database(store, CONSUMER_OFFSET) is not None
    if is_in_rocksdb or (file.path is None and counting is None):
        plain = load_table(store, CONSUMER_OFFSET)
        bad = plain.has_bad_backup or file.has_bad_backup
        file = replace(plain, problem=plain.problem or file.problem, has_bad_backup=bad)
    return CommittedOffsets(file, offsets_in(file.content))


def counting_file(store: Store, version: Version | None = None) -> str | None:
    """The file of offsets that a broker reads: with `enableLmq` one of its own; None where nothing says which.

    It then reads nothing from the other one (`LmqConsumerOffsetManager`). `version` is that of the start.
    """
    release = version or store.conf.release
    if release is not None and release < LIGHT_OFFSETS:
        return CONSUMER_OFFSET
    if not store.conf.decides("enableLmq"):
        return None
    return LMQ_CONSUMER_OFFSET if store.conf.is_on("enableLmq") else CONSUMER_OFFSET


def offsets_of_start(store: Store, version: Version) -> tuple[CommittedOffset, ...]:
    """The offsets that a start of `version` reads, by the rules of its decoder."""
    name = counting_file(store, version)
    if name is None or config_database(store, CONSUMER_OFFSET):
        return load_offsets(store).offsets
    return offsets_in(load_config(store.root / CONFIG / name, version).content)


def load_offsets_of(path: Path) -> tuple[CommittedOffset, ...]:
    """The offsets in one file or its ``.bak``."""
    return offsets_in(load_config(path).content)


def load_offsets_in(path: Path) -> tuple[CommittedOffset, ...]:
    """The offsets in this one file; raise RmqtoolError when there is none or it cannot be read."""
    return offsets_in(read_config_file(path))


def offsets_in(content: Mapping[str, Any]) -> tuple[CommittedOffset, ...]:
    """The offsets in a file's object."""
    return tuple(sorted([*_queue_offsets(content), *_lmq_offsets(content)]))


def _queue_offsets(content: Mapping[str, Any]) -> Iterator[CommittedOffset]:
    for topic_at_group, queues in _items(content.get("offsetTable")):
        topic, at, group = topic_at_group.partition("@")
        for queue_id, offset in _items(queues):
            if at and _is_offset(offset) and _QUEUE_ID.fullmatch(queue_id):
                yield CommittedOffset(group, topic, int(queue_id), offset)


def _lmq_offsets(content: Mapping[str, Any]) -> Iterator[CommittedOffset]:
    for topic_at_group, offset in _items(content.get("lmqOffsetTable")):
        topic, at, group = topic_at_group.partition("@")
        if at and _is_offset(offset):
            yield CommittedOffset(group, topic, _LMQ_QUEUE_ID, offset)


def _is_offset(value: object) -> bool:
    """Whether a value is a whole number that fits into Java's `long`."""
    return type(value) is int and abs(value) <= _MAX_OFFSET


def _items(table: object) -> Iterator[tuple[str, Any]]:
    if isinstance(table, dict):
        yield from table.items()
