"""What config/ knows of consumer groups: their committed offsets and their filters."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import LIGHT_OFFSETS, OLDEST, Version
from rmqtool.store.config_json import ConfigFile, load_config, read_config_file
from rmqtool.store.rocksdb_config import config_database, load_table
from rmqtool.store.store import CONFIG, Store

GROUPS = "subscriptionGroup.json"
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


CONSUMER_FILTER = "consumerFilter.json"
_ERROR_RATE, _GROUPS = "maxErrorRateOfBloomFilter", "expectConsumerNumUseFilter"
_ERROR_RATE_SET, _GROUPS_SET = 20, 32  # by default, BrokerConfig
_BYTE = 8


@dataclass(frozen=True)
class Bloom:
    """The broker's Bloom filter: how many bits it has, and how many positions each group takes."""

    bits: int
    positions: int

    def __str__(self) -> str:
        return f"{self.bits} bits, {self.positions} positions"


@dataclass(frozen=True)
class ConsumerFilter:
    """The filter of a group for a topic; `bloom` is that of the broker that wrote it, None without such data."""

    topic: str
    group: str
    expression: str
    bloom: Bloom | None


@dataclass(frozen=True)
class ConsumerFilters:
    """The file that a start reads, its filters, and those among them that make the broker ignore all."""

    file: ConfigFile
    filters: tuple[ConsumerFilter, ...]
    expected: Bloom
    is_size_known: bool
    """Whether broker.conf says of which size the broker's Bloom filter is."""

    @property
    def contradicting(self) -> tuple[ConsumerFilter, ...]:
        """The filters that are not of the broker's Bloom filter: one is enough for it to ignore all."""
        return tuple(each for each in self.filters if each.bloom != self.expected)

    @property
    def lost(self) -> int:
        """How many filters the broker ignores; none where its Bloom filter may be theirs."""
        return len(self.filters) if self.contradicting and not self.may_be_of_broker else 0

    @property
    def may_be_of_broker(self) -> bool:
        """Whether all are of one Bloom filter, which may be the broker's: nothing says of which size that is."""
        blooms = {each.bloom for each in self.filters}
        return not self.is_size_known and len(blooms) == 1 and None not in blooms


def load_filters(store: Store, version: Version = OLDEST) -> ConsumerFilters:
    """The filters that a start of `version` reads."""
    file, conf = load_config(store.root / CONFIG / CONSUMER_FILTER, version), store.conf
    is_size_known = conf.path is not None or bool(conf.settings)
    return ConsumerFilters(file, tuple(_filters(file.content)), bloom_of(conf) or Bloom(-1, -1), is_size_known)


def bloom_of(conf: BrokerConf) -> Bloom | None:
    """The Bloom filter of a broker (`BloomFilter#<init>`); None where its settings stop the start."""
    error_rate, groups = _bloom_settings(conf)
    if not 1 <= error_rate < 100 or groups < 1:
        return None
    rate = error_rate / 100
    bits = math.ceil(groups * (math.log(1 / rate) / math.log(2)) * (math.log(math.e) / math.log(2)))
    return Bloom(_BYTE * math.ceil(bits / _BYTE), math.ceil(math.log(rate) / math.log(0.5)))


def bloom_refusal(conf: BrokerConf) -> str | None:
    """Why a broker with these settings does not start: the filter's constructor refuses them."""
    if bloom_of(conf) is not None:
        return None
    error_rate, groups = _bloom_settings(conf)
    return (
        f"{_ERROR_RATE} must be from 1 to 99 and {_GROUPS} at least 1: found {error_rate} and {groups} "
        "(IllegalArgumentException)"
    )


def _bloom_settings(conf: BrokerConf) -> tuple[int, int]:
    """The error rate, percent, and the number of groups."""
    error_rate, groups = conf.number(_ERROR_RATE), conf.number(_GROUPS)
    return (_ERROR_RATE_SET if error_rate is None else error_rate, _GROUPS_SET if groups is None else groups)


def _filters(content: dict[str, Any]) -> Iterator[ConsumerFilter]:
    """The filters in a file; what is null is none."""
    for topic, groups in _items(content.get("filterDataByTopic")):
        for group, data in _items(groups.get("groupFilterData") if isinstance(groups, dict) else None):
            if isinstance(data, dict):
                yield ConsumerFilter(topic, group, str(data.get("expression")), _bloom_in(data.get("bloomFilterData")))


def _bloom_in(data: object) -> Bloom | None:
    if not isinstance(data, dict):
        return None
    bits, positions = data.get("bitNum", 0), data.get("bitPos")
    return Bloom(bits, len(positions)) if type(bits) is int and isinstance(positions, list) else None
