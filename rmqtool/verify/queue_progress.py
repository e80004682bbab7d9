"""The state of one queue while its records are checked: its proven units, and its records without a unit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.findings.finding import counted
from rmqtool.findings.report import Report
from rmqtool.formats.message import MIN_MESSAGE_SIZE
from rmqtool.verify.bad_extents import Extents

MAX_LOOKUPS = 4096
"""Wrong units of one queue whose records are read one by one; further ones are only counted."""

_MAX_OPTIONAL = 4096
MAX_EXAMPLES = 16
"""Records without a unit that are kept as examples; all are counted."""


@dataclass(slots=True)
class MissingUnits:
    """Records without a unit: their count, and the first of them as (queue offset, physical offset)."""

    count: int = 0
    examples: list[tuple[int, int]] = field(default_factory=list)

    def add(self, offsets: list[tuple[int, int]], count: int) -> None:
        """Add `count` records; `offsets` are those of the first."""
        self.count += count
        self.examples.extend(offsets[: MAX_EXAMPLES - len(self.examples)])


@dataclass(slots=True)
class QueueProgress:
    """One queue in a part of the log.

    `proven` are ranges of unit numbers that match their records, start and stop in turns; `missing` are records without
    a unit, by code of the finding. `first_offset` is the queue offset of the first record, `next_offset` that behind
    the last one. `optional` are queue offsets of records without a unit, to which only older releases give one. `lost`
    counts queue offsets whose records can only have been in damage of the log. What is empty in most of many queues is
    None.
    """

    name: QueueName
    records: int = 0
    first_offset: int = 0
    next_offset: int = 0
    first_physical_offset: int = 0
    last_physical_offset: int = 0
    restarts: int = 0
    lost: int = 0
    proven: list[int] = field(default_factory=list)
    missing: dict[str, MissingUnits] | None = None
    optional: set[int] | None = None
    may_jump: bool = False  # a queue of batches in RocksDB, of whose last one a start knows the first offset only

    def add_optional(self, offset: int) -> None:
        """Note a record without a unit to which only older releases give one."""
        self.optional = self.optional or set()
        if len(self.optional) < _MAX_OPTIONAL:
            self.optional.add(offset)

    def may_hold_all_to(self, offset: int) -> bool:
        """Whether older releases give units to all queue offsets from the next one to before `offset`."""
        held = self.optional or ()
        return offset - self.next_offset <= len(held) and set(held).issuperset(range(self.next_offset, offset))

    @property
    def proven_ranges(self) -> Iterator[tuple[int, int]]:
        """Start and stop of each proven range."""
        return zip(self.proven[::2], self.proven[1::2], strict=True)

    def prove(self, start: int, stop: int) -> None:
        """Note that units `start` to before `stop` match their records."""
        proven = self.proven
        if proven and proven[-2] <= start <= proven[-1]:
            proven[-1] = max(proven[-1], stop)
        else:
            proven += (start, stop)

    def add_missing(self, code: str, offsets: list[tuple[int, int]], count: int) -> None:
        """Note records without a unit."""
        self.missing = self.missing or {}
        self.missing.setdefault(code, MissingUnits()).add(offsets, count)

    def restart(self) -> None:
        """Note that the queue's offsets begin again: missing units belong to a queue that was deleted."""
        self.restarts += 1
        self.missing = None

    def extend(self, later: QueueProgress) -> None:
        """Add the state of the same queue in a later part of the log."""
        if later.restarts:
            self.missing = None
        for start, stop in later.proven_ranges:
            self.prove(start, stop)
        for code, missing in (later.missing or {}).items():
            self.add_missing(code, missing.examples, missing.count)
        for offset in later.optional or ():
            self.add_optional(offset)
        if not later.records:
            return
        if not self.records:
            self.first_offset, self.first_physical_offset = later.first_offset, later.first_physical_offset
        self.records += later.records
        self.lost += later.lost
        self.may_jump |= later.may_jump
        self.restarts += later.restarts
        self.next_offset, self.last_physical_offset = later.next_offset, later.last_physical_offset

    def unproven(self, start: int, stop: int) -> list[tuple[int, int]]:
        """Ranges of unit numbers from `start` to before `stop` that match no record."""
        ranges, at = [], start
        for low, high in sorted(self.proven_ranges):
            if low >= stop:
                break
            if low > at:
                ranges.append((at, low))
            at = max(at, high)
        if at < stop:
            ranges.append((at, stop))
        return ranges


def report_jump(state: QueueProgress, offset: int, physical_offset: int, report: Report, extents: Extents) -> None:
    """Report a record whose queue offset does not follow that of the last record of its queue."""
    if offset == state.next_offset or state.may_jump:
        return
    details: dict[str, Any] = {"topic": state.name.topic, "queue_id": state.name.queue_id, "offset": physical_offset}
    if offset < state.next_offset:
        message = f"queue offset {offset} where {state.next_offset} was expected"
        report.add("commitlog.queue-offset-restart", message, queue_offset=offset, **details)
        state.restart()
    elif extents.between(state.last_physical_offset, physical_offset):
        room = extents.damaged_between(state.last_physical_offset, physical_offset) // MIN_MESSAGE_SIZE
        state.lost += min(offset - state.next_offset, room)
    elif physical_offset >= extents.chosen_until and not state.may_hold_all_to(offset):
        skipped = offset - state.next_offset
        message = f"no record of {counted(skipped, 'queue offset')} from {state.next_offset} on"
        report.add("commitlog.queue-offset-gap", message, queue_offset=offset, **details)
