"""What a verification found, and the plan that follows: for programs and for the commands that verify."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from rmqtool.findings.finding import Finding, counted
from rmqtool.findings.report import Verdict, to_be_treated
from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.verify.bad_extents import GAP, TORN, UNREAD, WRONG_BODY, WRONG_PROPERTIES
from rmqtool.verify.outcome import Outcome

if TYPE_CHECKING:  # what plans is loaded where something was found
    from rmqtool.repair.diagnosis import DamagedMessages, Diagnosis
    from rmqtool.repair.plan import Plan


@dataclass(frozen=True, repr=False)
class Verified:
    """What a verification found; `outcome`, `diagnosis` and `options` are for rmqtool's own commands.

    `options` are those that each command of the plan needs.
    """

    outcome: Outcome
    options: tuple[str, ...]

    def __repr__(self) -> str:
        """The verdict, how many findings of which severity, and how many messages cannot be read."""
        counts = Counter[str]()
        for each in self.findings:
            counts[each.severity] += each.count
        found = [counted(counts[severity], severity) for severity in ("error", "warning") if counts[severity]]
        lost = [f"{counted(self.outcome.lost.total(), 'message')} cannot be read"] if self.outcome.lost else []
        return f"<Verified {self.verdict}: {', '.join([*found, *lost]) or 'nothing wrong'}>"

    def _repr_html_(self) -> str:
        """Verdict, findings and plan in a notebook."""
        from rmqtool.library.notebook import command_list, rows_table

        serious = [each for each in self.findings if each.severity != "info"]
        rows = ((each.severity, each.code, each.count, each.file, each.message) for each in serious)
        shown = rows_table(repr(self), ("severity", "code", "count", "file", "what"), rows)
        return shown + command_list((step.text, step.command) for step in self.plan.steps if self.treated)

    @cached_property
    def treated(self) -> tuple[Finding, ...]:
        """The findings that a plan is about."""
        return to_be_treated(self.outcome.findings)

    @cached_property
    def plan(self) -> Plan:
        """What to do about it; nothing where not all was looked at."""
        from rmqtool.repair.diagnosis import repairs_of
        from rmqtool.repair.plan import Plan, plan_of

        return plan_of(self.diagnosis, repairs_of(self.diagnosis)) if self.outcome.complete else Plan()

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """The outcome as a plan sees it."""
        from rmqtool.repair.diagnosis import Diagnosis

        outcome, extents = self.outcome, self.outcome.total.extents
        damaged = (size for start, size, reason in extents
                   if reason not in (UNREAD, WRONG_BODY) and start not in self._proven)  # fmt: skip
        return Diagnosis(
            snapshot=outcome.snapshot,
            findings=self.treated,
            lost=outcome.lost,
            mended=outcome.verdict == "dirty",
            sound=outcome.verdict == "clean",
            options=self.options,
            damaged_bytes=sum(damaged),
            lost_is_minimum=outcome.lost_is_minimum,
            queues_in_log=outcome.queues_in_log,
            clients=outcome.clients,
            cuts_log=bool(outcome.start and outcome.start.messages_lost),
            keys_missing=any(each.code == "index.missing" for each in outcome.findings),
            bodies=self._bodies,
            properties=self._properties,
            damage=[(start, start + size) for start, size, reason in extents if reason not in (GAP, TORN)],
        )

    @property
    def _bodies(self) -> DamagedMessages:
        """Those that no start of a fitting release reads, or takes for the end of the log, are served after it, too."""
        from rmqtool.repair.diagnosis import DamagedMessages

        checks = self.outcome.snapshot.store.conf.is_on("checkCRCOnRecover", default=True)
        until = self._scanned_from if checks else MAX_OFFSET
        offsets = [start for start, _, reason in self.outcome.total.extents if reason == WRONG_BODY]
        served = sum(start < until for start in offsets)
        return DamagedMessages(until, served, len(offsets) - served)

    @property
    def _properties(self) -> DamagedMessages:
        """Those to which a queue entry leads, and that no start reads, are served after it, too."""
        from rmqtool.repair.diagnosis import DamagedMessages

        until, proven = self._scanned_from, self._proven
        offsets = {start for start, _, reason in self.outcome.total.extents if reason == WRONG_PROPERTIES}
        served = sum(start < until for start in offsets & proven)
        return DamagedMessages(until, served, len(offsets & proven) - served, offsets - proven)

    @property
    def _scanned_from(self) -> int:
        """The physical offset before which no start of a fitting release reads the log."""
        scans = [each.start.scan_from.physical_offset for each in self.outcome.starts if each.start.scan_from]
        return min(scans, default=MAX_OFFSET)

    @cached_property
    def _proven(self) -> Set[int]:
        """The physical offsets of records whose properties cannot be read, and that their queue entries prove."""
        total = self.outcome.total
        entries = {each.physical_offset for each in total.damages if each.proven.tags_code is not None}
        return entries & {start for start, _, reason in total.extents if reason == WRONG_PROPERTIES}

    @property
    def verdict(self) -> Verdict:
        """The verdict."""
        return self.outcome.verdict

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings, the worst first."""
        return self.outcome.findings

    @property
    def lost(self) -> Mapping[str, int]:
        """How many messages cannot be read, by topic."""
        return dict(self.outcome.lost)

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong and nothing was left out."""
        return self.verdict == "clean"
