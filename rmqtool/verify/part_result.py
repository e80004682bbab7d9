"""What one part of a verification has found, and whether what the next part of the log has found goes on there."""

from __future__ import annotations

from dataclasses import dataclass, field

from rmqtool.dispatch.units import QueueName
from rmqtool.recovery import FileWalk, join_walks
from rmqtool.verify.extents import Extents
from rmqtool.verify.queue_state import QueueState, tell_jump
from rmqtool.verify.records import RecordTotals
from rmqtool.verify.report import Report
from rmqtool.verify.unread import INDEX_UNREAD, Unread


@dataclass
class Seam:
    """Where a part of the log was begun and where it was left: parts are what one pass gives when their seams meet.

    `first` is where the first thing begins that was met, `end` is behind the last one (physical offsets; None when
    nothing was met). `index_start` and `index_at` are numbers among all index units. `open_start` and `open_end` tell
    of damage whose neighbour in the other part decides what it is.
    """

    first: int | None = None
    end: int | None = None
    index_start: int = 0
    index_at: int = 0
    open_start: bool = False
    open_end: bool = False

    def meets(self, later: Seam) -> bool:
        """Whether a later part has begun where this one has ended."""
        is_index_read = INDEX_UNREAD not in (self.index_at, later.index_at)
        if self.open_end or later.open_start or (is_index_read and self.index_at != later.index_start):
            return False
        return self.end is None or self.end == later.first

    def extend(self, later: Seam) -> None:
        """Add a later part."""
        if later.first is not None:
            self.first = later.first if self.first is None else self.first
            self.end, self.index_at, self.open_end = later.end, later.index_at, later.open_end


@dataclass
class PartResult:
    """What one part of the verification has found; complete only at the end, useful before."""

    report: Report
    extents: Extents = field(default_factory=Extents)
    totals: RecordTotals = field(default_factory=RecordTotals)
    states: dict[QueueName, QueueState] = field(default_factory=dict)
    log_end: int | None = None  # behind the last record
    ghosts_from: int | None = None  # where old records begin that are no part of the log
    walks: list[FileWalk] = field(default_factory=list)
    unread: str | None = None  # why the rest of the part was not read
    unreadable: Unread = field(default_factory=Unread)
    seam: Seam = field(default_factory=Seam)

    def meets(self, later: PartResult) -> bool:
        """Whether both together are what one pass over both parts would have found."""
        return self.ghosts_from is None and self.seam.meets(later.seam)

    def extend(self, later: PartResult) -> None:
        """Add what the part of the log behind this one has found; `later` is not to be used any more."""
        self.extents.extend(later.extents)
        self.unreadable.extend(later.unreadable)
        for name in self.unreadable.queues:
            self.states.pop(name, None)
            later.states.pop(name, None)
        for name, state in later.states.items():
            known = self.states.get(name)
            if known is None:
                self.states[name] = state
                continue
            tell_jump(known, state.first_offset, state.first_physical_offset, self.report, self.extents)
            known.extend(state)
        self.report.merge(later.report)
        self.totals.extend(later.totals)
        join_walks(self.walks, later.walks)
        self.unread = self.unread or later.unread
        self.log_end = later.log_end if later.log_end is not None else self.log_end
        self.ghosts_from = later.ghosts_from if later.ghosts_from is not None else self.ghosts_from
        self.seam.extend(later.seam)

    def extents_end(self) -> int:
        """Behind the last extent without a record; 0 without one."""
        return self.extents.starts[-1] + self.extents.sizes[-1] if len(self.extents) else 0
