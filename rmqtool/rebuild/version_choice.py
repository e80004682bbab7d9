"""Findings where the release that wrote the store is not named: assumed rules, and undecided units and keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding
from rmqtool.rebuild.derive import Derivation
from rmqtool.rebuild.queue_diff import Comparison
from rmqtool.rebuild.row_diff import RowComparison
from rmqtool.rules.releases import Releases
from rmqtool.rules.versions import (
    INDEX_OF_TAGS,
    MULTI_DISPATCH_SPARES_DEAD_LETTERS,
    MULTI_DISPATCH_SPARES_SYSTEM_TOPICS,
    VALUES_MAY_HOLD_SEPARATOR,
    Version,
)
from rmqtool.store.store import Store

_CODE = "rebuild.version-needed"


def version_findings(store: Store, releases: Releases, *, index: bool) -> list[Finding]:
    """A finding where the rules of the `index` are a choice, or were inferred."""
    if releases.is_named or not index:
        return []
    if releases.oldest >= INDEX_OF_TAGS:
        return []
    if releases.newest >= INDEX_OF_TAGS:
        details: dict[str, Any] = {"problem": "newest", "releases": str(releases), "since": str(INDEX_OF_TAGS),
                   "taken": str(releases.newest)}  # fmt: skip
    else:
        details = {"problem": "shown", "releases": str(releases), "evidence": [*releases.evidence]}
    return [finding("rebuild.version-assumed", store=store.root, details=details)]


@dataclass(frozen=True)
class Undecided:
    """Units by queue, and whether there are keys of the index, that depend on the release."""

    releases: Releases
    units: Counter[QueueName]
    index: bool

    @property
    def count(self) -> int:
        """Units, and 1 for the index; 0 when nothing depends on the release."""
        return self.units.total() + self.index

    def findings(self) -> Iterator[Finding]:
        """One for the queues and one for the index."""
        if self.units:
            name = min(self.units)
            details = {"problem": "units", "queues": len(self.units), "more": len(self.units) - 1,
                       "releases": str(self.releases)}  # fmt: skip
            yield finding(_CODE, topic=name.topic, queue_id=name.queue_id, count=self.units.total(), details=details)
        if self.index:
            yield finding(_CODE, details={"problem": "index", "releases": str(self.releases)})


def undecided_of(
    releases: Releases,
    derivation: Derivation,
    comparison: Comparison | RowComparison | None,
    changed: Sequence[QueueName],
    *,
    index_changes: bool,
) -> Undecided:
    """Units of the `changed` queues, and keys of the index, that only some of the fitting releases write."""
    multi_dispatch = _differ(releases, MULTI_DISPATCH_SPARES_SYSTEM_TOPICS, MULTI_DISPATCH_SPARES_DEAD_LETTERS)
    separator = _differ(releases, VALUES_MAY_HOLD_SEPARATOR)
    units: Counter[QueueName] = Counter()
    for name in changed:
        if multi_dispatch and derivation.optional and derivation.optional.undecided[name]:
            units[name] += derivation.optional.undecided[name]
        if separator and comparison and comparison.older[name]:
            units[name] += comparison.older[name]
    return Undecided(releases, units, separator and index_changes and derivation.has_optional_keys)


def _differ(releases: Releases, *changes: Version) -> bool:
    """Whether a rule changed between two of the releases."""
    return any(releases.oldest < change <= releases.newest for change in changes)
