"""Findings where the release that wrote the store is not named: assumed rules, and undecided units and keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding, counted
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
        message = (
            f"releases {releases} fit this store, and from {INDEX_OF_TAGS} on tags are keys of the index too: "
            f"the rules of {releases.newest} are taken; --broker-version names another"
        )
        return [finding("rebuild.version-assumed", message, store=store.root)]
    shown = ", ".join(releases.evidence)
    message = f"rules of {releases} ({shown}): tags are not indexed; --broker-version names another"
    return [finding("rebuild.version-assumed", message, store=store.root)]


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
            message = (
                f"{counted(self.units.total(), 'unit')} of {counted(len(self.units), 'queue')} ({name.topic}, queue "
                f"{name.queue_id}{', ...' if len(self.units) > 1 else ''}) depend on the release that wrote them, one "
                f"of {self.releases}"
            )
            yield finding(_CODE, message, topic=name.topic, queue_id=name.queue_id, count=self.units.total())
        if self.index:
            message = "releases before 4.9.1 leave out keys that hold the byte 0x01, and it was one of "
            yield finding(_CODE, f"{message}{self.releases}")


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
