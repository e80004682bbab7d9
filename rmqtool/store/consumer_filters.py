"""Filters that groups have registered, and the broker's Bloom filter that they must fit (`ConsumerFilterManager`)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import OLDEST, Version
from rmqtool.store.config_json import ConfigFile, is_damaged_name, load_config
from rmqtool.store.config_tables import CONSUMER_FILTER, entries_in
from rmqtool.store.store import CONFIG, Store

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
        """How many filters the broker ignores, or has for nobody; none where its Bloom filter may be theirs."""
        is_any = bool(self.contradicting) and not self.may_be_of_broker
        ignored = sum(is_any or is_damaged_name(each.topic) or is_damaged_name(each.group) for each in self.filters)
        return ignored + self.misplaced

    @property
    def misplaced(self) -> int:
        """How many filters stand below a key that no broker reads, of which damage has made that."""
        return max(0, _written_filters(self.file.content) - len(self.filters))

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


def _filters(content: Mapping[str, Any]) -> Iterator[ConsumerFilter]:
    """The filters in a file; what is null is none."""
    for topic, groups in entries_in(content, "filterDataByTopic").items():
        for group, data in entries_in(groups if isinstance(groups, dict) else {}, "groupFilterData").items():
            if isinstance(data, dict):
                yield ConsumerFilter(topic, group, str(data.get("expression")), _bloom_in(data.get("bloomFilterData")))


def _written_filters(content: object) -> int:
    """How many filters stand in a file, whatever the keys above them are."""
    if not isinstance(content, dict):
        return 0
    return 1 if "bloomFilterData" in content else sum(map(_written_filters, content.values()))


def _bloom_in(data: object) -> Bloom | None:
    if not isinstance(data, dict):
        return None
    bits, positions = data.get("bitNum", 0), data.get("bitPos")
    return Bloom(bits, len(positions)) if type(bits) is int and isinstance(positions, list) else None
