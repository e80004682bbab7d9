"""What is known of one queue while its records pass by: which of its units are proven, and which records lack one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.findings.finding import counted
from rmqtool.findings.report import Report
from rmqtool.verify.bad_extents import Extents

MAX_LOOKUPS = 4096
"""Wrong units of one queue that are looked into one by one; others that point elsewhere are counted with them."""

_MAX_OPTIONAL = 4096
MAX_EXAMPLES = 16
"""Places that are kept of what a queue lacks; all are counted."""


@dataclass(slots=True)
class MissingUnits:
    """Records without a unit: how many, and the first of them as (queue offset, physical offset)."""

    count: int = 0
    examples: list[tuple[int, int]] = field(default_factory=list)

    def add(self, offsets: list[tuple[int, int]], count: int) -> None:
        """Add `count` records, of which `offsets` are the first."""
        self.count += count
        self.examples.extend(offsets[: MAX_EXAMPLES - len(self.examples)])


@dataclass(slots=True)
class QueueProgress:
    """One queue in a part of the log.

    `proven` are ranges of unit numbers that are what a record gives, ascending; `missing` records without a unit by
    code; offsets are queue offsets, `first_offset` of the first record, `next_offset` behind the last one. `optional`
    are queue offsets of records that have no unit here, and would have one if an older release had written them.
    """

    name: QueueName
    records: int = 0
    first_offset: int = 0
    next_offset: int = 0
    first_physical_offset: int = 0
    last_physical_offset: int = 0
    restarts: int = 0
    proven: list[list[int]] = field(default_factory=list)
    missing: dict[str, MissingUnits] = field(default_factory=dict)
    optional: set[int] = field(default_factory=set)

    def add_optional(self, offset: int) -> None:
        """Note a record that only older releases give a unit, and that has none."""
        if len(self.optional) < _MAX_OPTIONAL:
            self.optional.add(offset)

    def may_hold_all_to(self, offset: int) -> bool:
        """Whether older releases give a unit to each queue offset from the next one to before `offset`."""
        return offset - self.next_offset <= len(self.optional) and self.optional.issuperset(
            range(self.next_offset, offset)
        )

    def prove(self, start: int, stop: int) -> None:
        """Note that units `start` to before `stop` are what the log says."""
        last = self.proven[-1] if self.proven else None
        if last and last[0] <= start <= last[1]:
            last[1] = max(last[1], stop)
        else:
            self.proven.append([start, stop])

    def add_missing(self, code: str, offsets: list[tuple[int, int]], count: int) -> None:
        """Note records without a unit."""
        self.missing.setdefault(code, MissingUnits()).add(offsets, count)

    def restart(self) -> None:
        """The queue's offsets begin again: what was lacking belongs to a queue that was deleted."""
        self.restarts += 1
        self.missing.clear()

    def extend(self, later: QueueProgress) -> None:
        """Add what a later part of the log says of the same queue."""
        if later.restarts:
            self.missing.clear()
        for start, stop in later.proven:
            self.prove(start, stop)
        for code, missing in later.missing.items():
            self.add_missing(code, missing.examples, missing.count)
        for offset in later.optional:
            self.add_optional(offset)
        if not later.records:
            return
        if not self.records:
            self.first_offset, self.first_physical_offset = later.first_offset, later.first_physical_offset
        self.records += later.records
        self.restarts += later.restarts
        self.next_offset, self.last_physical_offset = later.next_offset, later.last_physical_offset

    def unproven(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Ranges of unit numbers from `start` to before `stop` that no record has proven."""
        ranges, at = [], start
        for low, high in sorted(self.proven):
            if low >= stop:
                break
            if low > at:
                ranges.append((at, low))
            at = max(at, high)
        if at < stop:
            ranges.append((at, stop))
        return ranges


def report_jump(state: QueueProgress, offset: int, physical_offset: int, report: Report, extents: Extents) -> None:
    """Tell where a record's queue offset does not go on where the last record of its queue has left off."""
    if offset == state.next_offset:
        return
    details: dict[str, Any] = {"topic": state.name.topic, "queue_id": state.name.queue_id, "offset": physical_offset}
    if offset < state.next_offset:
        message = f"queue offset {offset} where {state.next_offset} was expected"
        report.add("commitlog.queue-offset-restart", message, queue_offset=offset, **details)
        state.restart()
    elif not (extents.between(state.last_physical_offset, physical_offset) or state.may_hold_all_to(offset)):
        skipped = offset - state.next_offset
        message = f"no record of {counted(skipped, 'queue offset')} from {state.next_offset} on"
        report.add("commitlog.queue-offset-gap", message, queue_offset=offset, **details)
