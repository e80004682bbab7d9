"""Groups of releases that start by the same rules: one prediction stands for each group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.rules.releases import RELEASES, Releases
from rmqtool.rules.versions import (
    MULTI_DISPATCH,
    MULTI_DISPATCH_SPARES_DEAD_LETTERS,
    MULTI_DISPATCH_SPARES_SYSTEM_TOPICS,
    MULTI_DISPATCH_TAKES_NO_PROPERTIES,
    VALUES_MAY_HOLD_SEPARATOR,
    Version,
)

_RULES = [name for name, value in vars(RecoveryRules).items() if isinstance(value, property)]
_DISPATCH_CHANGES = (
    *(VALUES_MAY_HOLD_SEPARATOR, MULTI_DISPATCH),
    *(MULTI_DISPATCH_SPARES_SYSTEM_TOPICS, MULTI_DISPATCH_SPARES_DEAD_LETTERS),  # 5.0.0 brought batch queues, too
)


def alike(releases: Releases, conf: BrokerConf) -> list[tuple[Version, ...]]:
    """The releases in groups that start by the same rules, the newest group first."""
    groups = groupby(releases.fitting, key=lambda version: _rules_of(version, conf))
    return [tuple(group) for _, group in groups][::-1]


def _rules_of(version: Version, conf: BrokerConf) -> tuple[object, ...]:
    rules = RecoveryRules.of(version, conf)
    changes = [*_DISPATCH_CHANGES, *([MULTI_DISPATCH_TAKES_NO_PROPERTIES] if conf.is_on("enableMultiDispatch") else [])]
    return (*(getattr(rules, name) for name in _RULES), *(version >= change for change in changes))


def label(versions: Iterable[Version]) -> str:
    """Releases in order, those that follow each other as a range: ``4.9.2, 5.0.0 to 5.1.2``."""
    return ", ".join(_ranges(sorted(versions)))


def _ranges(versions: list[Version]) -> Iterator[str]:
    indices = {version: index for index, version in enumerate(RELEASES)}
    runs = groupby(enumerate(versions), key=lambda item: indices.get(item[1], 0) - item[0])
    for _, run in runs:
        first, *_, last = [version for _, version in run] * 2
        yield str(first) if first == last else f"{first} to {last}"
