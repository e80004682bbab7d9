"""Delay levels: how much later a message of each level is delivered (`DefaultMessageStore#parseDelayLevel`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from rmqtool.base.errors import UsageError
from rmqtool.rules.broker_conf import BrokerConf

DEFAULT_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"  # MessageStoreConfig.messageDelayLevel
_UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True)
class DelayLevels:
    """Delays in ms; that of level n, from 1 on, is ``delays[n - 1]``."""

    delays: tuple[int, ...]

    @cached_property
    def highest(self) -> int:
        """The highest level; levels above it count as this one."""
        return len(self.delays)

    def delivery_time(self, level: int, store_timestamp: int) -> int | None:
        """When a message is due, epoch ms; None for a level that means no delay."""
        level = min(level, self.highest)
        return store_timestamp + self.delays[level - 1] if level > 0 else None


def parse_delay_levels(text: str) -> DelayLevels:
    """Parse the setting `messageDelayLevel`; raise UsageError where a broker would not start."""
    try:
        return DelayLevels(tuple(int(item[:-1]) * _UNITS[item[-1]] for item in text.strip().split(" ")))
    except (ValueError, KeyError, IndexError) as error:
        message = f"broker.conf: messageDelayLevel must look like '1s 5s 10m 2h', found {text!r}"
        raise UsageError(message) from error


def delay_levels_of(conf: BrokerConf) -> DelayLevels:
    """The levels that broker.conf sets, or the default ones."""
    return parse_delay_levels(conf.text("messageDelayLevel") or DEFAULT_LEVELS)


def known_levels(conf: BrokerConf) -> DelayLevels | None:
    """The levels that a broker with this broker.conf delivers; None where there is none that would show it."""
    return delay_levels_of(conf) if conf.decides("messageDelayLevel") else None
