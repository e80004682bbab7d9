"""What is known of one queue while its records pass by: which of its units are proven, and which records lack one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.findings.finding import counted
from rmqtool.findings.report import Report
from rmqtool.verify.bad_extents import Extents

MOST_LOOKS = 4096
"""Wrong units of one queue that are looked into one by one; others that point elsewhere are counted with them."""

_MOST_OPTIONAL = 4096
MAX_PLACES = 16
"""Places that are kept of what a queue lacks; all are counted."""


@dataclass(slots=True)
class Lacking:
    """Records without a unit: how many, and the first of them as (queue offset, physical offset)."""

    count: int = 0
    places: list[tuple[int, int]] = field(default_factory=list)

    def add(self, offsets: list[tuple[int, int]], count: int) -> None:
        """Add `count` records, of which `offsets` are the first."""
        self.count += count
        self.places.extend(offsets[: MAX_PLACES - len(self.places)])


@dataclass(slots=True)
class QueueProgress:
    """One queue in a part of the log.

    `proven` are ranges of unit numbers that are what a record gives, ascending; `lacking` records without a unit by
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
    lacking: dict[str, Lacking] = field(default_factory=dict)
    optional: set[int] = field(default_factory=set)

    def may_have(self, offset: int) -> None:
        """Note a record that only older releases give a unit, and that has none."""
        if len(self.optional) < _MOST_OPTIONAL:
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

    def lack(self, code: str, offsets: list[tuple[int, int]], count: int) -> None:
        """Note records without a unit."""
        self.lacking.setdefault(code, Lacking()).add(offsets, count)

    def restart(self) -> None:
        """The queue's offsets begin again: what was lacking belongs to a queue that was deleted."""
        self.restarts += 1
        self.lacking.clear()

    def extend(self, later: QueueProgress) -> None:
        """Add what a later part of the log says of the same queue."""
        if later.restarts:
            self.lacking.clear()
        for start, stop in later.proven:
            self.prove(start, stop)
        for code, lacking in later.lacking.items():
            self.lack(code, lacking.places, lacking.count)
        for offset in later.optional:
            self.may_have(offset)
        if not later.records:
            return
        if not self.records:
            self.first_offset, self.first_physical_offset = later.first_offset, later.first_physical_offset
        self.records += later.records
        self.restarts += later.restarts
        self.next_offset, self.last_physical_offset = later.next_offset, later.last_physical_offset

    def unproven(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Ranges of unit numbers from `start` to before `stop` that no record has proven."""
        found, at = [], start
        for low, high in sorted(self.proven):
            if low >= stop:
                break
            if low > at:
                found.append((at, low))
            at = max(at, high)
        if at < stop:
            found.append((at, stop))
        return found


def report_jump(state: QueueProgress, offset: int, physical_offset: int, report: Report, extents: Extents) -> None:
    """Tell where a record's queue offset does not go on where the last record of its queue has left off."""
    if offset == state.next_offset:
        return
    place: dict[str, Any] = {"topic": state.name.topic, "queue_id": state.name.queue_id, "offset": physical_offset}
    if offset < state.next_offset:
        message = f"queue offset {offset} where {state.next_offset} was expected"
        report.add("commitlog.queue-offset-restart", message, queue_offset=offset, **place)
        state.restart()
    elif not (extents.between(state.last_physical_offset, physical_offset) or state.may_hold_all_to(offset)):
        missing = offset - state.next_offset
        message = f"no record of {counted(missing, 'queue offset')} from {state.next_offset} on"
        report.add("commitlog.queue-offset-gap", message, queue_offset=offset, **place)
