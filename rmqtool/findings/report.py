"""The report of the checks: findings by code with complete counts and a few examples, and how much was checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from rmqtool.findings.catalogue import CATALOGUE, finding
from rmqtool.findings.finding import Finding, Severity

NEEDING_QUEUES = (
    *("consumequeue.", "commitlog.queue-offset", "commitlog.deleted-topic", "commitlog.last-file-missing"),
    *("commitlog.head-missing", "commitlog.field"),
    *("config.", "timer.", "start.", "store.abort-missing", "store.mixed"),
)
NEEDING_INDEX = ("index.", "commitlog.field", "store.mixed")
"""Beginnings of the codes for which the queues, or the index, have to be held against the log."""

UNREADABLE = frozenset({"commitlog.unreadable", "store.unreadable"})
"""Codes of files that could not be read, of whose content nothing is known."""

Verdict = Literal["clean", "unproven", "dirty", "corrupt"]

_OURSELVES = "verify"
_ORDER: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}
_RANKS = {code: rank for rank, code in enumerate(CATALOGUE)}


class Topics(Protocol):
    """Some topics, by name or by pattern."""

    def __contains__(self, topic: str, /) -> bool: ...


@dataclass(frozen=True)
class Selection:
    """Which findings are wanted: their codes begin with one of `only` (all without one) and with none of `skip`.

    Those that name a topic are wanted where it is one of `topics`; None: all of them.
    """

    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    topics: Topics | None = None

    def wants(self, code: str) -> bool:
        """Whether findings of a code are reported, of some topic."""
        return (not self.only or code.startswith(self.only)) and not code.startswith(self.skip or ("\0",))

    def wants_finding(self, code: str, topic: str | None) -> bool:
        """Whether a finding of a code that names this topic, or none, is reported."""
        return self.wants(code) and (topic is None or self.topics is None or topic in self.topics)

    def wants_any(self, prefix: str) -> bool:
        """Whether a finding of some code that begins with `prefix` would be reported."""
        return any(self.wants(code) for code in CATALOGUE if code.startswith(prefix))


@dataclass
class Tally:
    """The findings of one code: how many, and the first of them."""

    total: int = 0
    examples: list[Finding] = field(default_factory=list)


class Report:
    """Collects findings, and how much was checked for each code."""

    def __init__(self, selection: Selection | None = None, max_examples: int = 10, root: str = "") -> None:
        """Examples beyond `max_examples` of a code are only counted; `root` is the store in the findings."""
        self.selection = selection or Selection()
        self.max_examples = max_examples
        self.checked = Counter[str]()
        self.doubts: dict[str, str] = {}
        self.root = root
        self._tallies: dict[str, Tally] = {}
        self._unwanted = Counter[str]()
        self._informative = Counter[str]()

    def check(self, code: str, count: int = 1) -> None:
        """Note that `count` more things were checked for a code."""
        if code in self.checked or self.selection.wants(code):
            self.checked[code] += count

    def wants_example(self, code: str, topic: str | None = None) -> bool:
        """Whether the next finding of a code would be an example, so that its details are needed."""
        tally = self._tallies.get(code)
        return self.selection.wants_finding(code, topic) and (tally is None or len(tally.examples) < self.max_examples)

    def add(self, code: str, *, count: int = 1, **given: Any) -> None:
        """Add a finding of the catalogue; `given` as in `catalogue.finding`. It stands for `count`."""
        if given.get("severity") == "info":
            self._informative[code] += count
        if self.wants_example(code, given.get("topic")):
            self.add_finding(finding(code, store=self.root, count=count, **given))
        else:
            self.count(code, count, given.get("topic"))

    def doubt(self, what: str, text: str) -> None:
        """Note a possible loss of which the store has no trace: `what` in a few words, `text` in a sentence."""
        self.doubts[what] = text

    def count(self, code: str, count: int, topic: str | None = None) -> None:
        """Count more findings of a code without an example; `topic` is the one that they name."""
        if not self.selection.wants_finding(code, topic):
            self._unwanted[code] += count
        elif count:
            self._tallies.setdefault(code, Tally()).total += count

    def add_finding(self, finding: Finding) -> None:
        """Add a finding; a remedy that is `rmqtool verify` itself is left out."""
        if not self.selection.wants_finding(finding.code, finding.topic):
            self.count(finding.code, finding.count, finding.topic)
            return
        if finding.next_command and finding.next_command.command == _OURSELVES:
            finding = replace(finding, next_command=None)
        tally = self._tallies.setdefault(finding.code, Tally())
        tally.total += finding.count
        if len(tally.examples) < self.max_examples:
            tally.examples.append(finding)

    def add_findings(self, findings: Iterable[Finding]) -> None:
        """Add several findings."""
        for each in findings:
            self.add_finding(each)

    def add_always(self, finding: Finding) -> None:
        """Add a finding whatever codes are selected: a file could not be read."""
        tally = self._tallies.setdefault(finding.code, Tally())
        tally.total += finding.count
        tally.examples.append(finding)

    def merge(self, other: Report) -> None:
        """Add the findings of another part of the verification."""
        self.checked.update(other.checked)
        self.doubts |= other.doubts
        self._unwanted.update(other._unwanted)
        self._informative.update(other._informative)
        for code, theirs in other._tallies.items():
            tally = self._tallies.setdefault(code, Tally())
            tally.total += theirs.total
            tally.examples.extend(theirs.examples[: self.max_examples - len(tally.examples)])

    def totals(self) -> dict[str, int]:
        """How many findings there are of each code."""
        return {code: tally.total for code, tally in self._tallies.items()}

    def all_totals(self) -> dict[str, int]:
        """How many findings there are of each code, selected or not: other checks depend on them."""
        return {**{code: count for code, count in self._unwanted.items() if count}, **self.totals()}

    def serious_totals(self) -> dict[str, int]:
        """Those of `all_totals` without the ones that were added as information."""
        return {code: count - self._informative[code] for code, count in self.all_totals().items()}

    def findings(self) -> list[Finding]:
        """The examples, the worst first; the last one of a code stands for all that are not shown, too."""
        shown = [finding for tally in self._tallies.values() for finding in _counted(tally)]
        return sorted(shown, key=lambda finding: (_ORDER[finding.severity], _RANKS[finding.code]))


def verdict_of(findings: list[Finding], *, is_proven: bool, in_doubt: bool = False, is_lost: bool = False) -> Verdict:
    """The verdict of the contract; without `is_proven` something was not checked, and nothing is called clean.

    With `in_doubt` something may be lost without a trace, or in a file that could not be read: a start may not fix the
    store without loss. With `is_lost` clients had something that they do not get after the next start, whatever the
    findings are.
    """
    if is_lost:
        return "corrupt"
    serious = [finding for finding in findings if finding.severity != "info" and finding.code not in UNREADABLE
               and CATALOGUE[finding.code].about == "messages"]  # fmt: skip
    if not serious:
        return "clean" if is_proven else "unproven"
    mended = all(CATALOGUE[finding.code].is_trace and finding.severity != "error" for finding in serious)
    if not mended:
        return "corrupt"
    return "unproven" if in_doubt else "dirty"


def _counted(tally: Tally) -> Iterator[Finding]:
    shown = sum(finding.count for finding in tally.examples)
    *earlier, last = tally.examples
    yield from earlier
    yield replace(last, count=last.count + tally.total - shown)


def to_be_treated(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Those above information, and what stands in the way of a queue that is missing."""
    found = tuple(findings)
    is_in_the_way = any(each.code == "consumequeue.missing-queue" for each in found)
    return tuple(
        each for each in found if each.severity != "info" or (is_in_the_way and each.code == "consumequeue.stray")
    )
