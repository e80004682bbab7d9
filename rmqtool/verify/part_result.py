"""The results of the parts of a verification, merged as if one pass over the log had found them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ParamSpec

from rmqtool.base.errors import UnreadableError, failed_so_far
from rmqtool.base.mapped_files import MappedFile
from rmqtool.base.signals import deferred_signals
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.field_damage import FieldDamage, Suspects
from rmqtool.broker.log_walk import FileWalk, join_walks
from rmqtool.clients.keys import KeyTally
from rmqtool.findings.report import Report
from rmqtool.store.store import Store
from rmqtool.verify.bad_extents import UNREAD, Extents
from rmqtool.verify.queue_progress import QueueProgress, report_jump
from rmqtool.verify.read_errors import INDEX_UNREAD, UnreadExtent, UnreadFiles
from rmqtool.verify.record_checks import RecordTotals, settle_held
from rmqtool.verify.task import AnyPart, LogPart, VerifyTask

_MAX_RECHECKS = 3  # boundaries whose parts are checked again as one; then all of the rest is one part


@dataclass
class PartBoundary:
    """Where the check of a part began and ended: parts whose boundaries meet give the same result as one pass.

    `first` is where the first event begins, `end` is past the last one (physical offsets; None without events).
    `index_start` and `index_at` are numbers among all index units. `open_start` and `open_end` are set for damage
    whose kind depends on the neighbouring part.
    """

    first: int | None = None
    end: int | None = None
    index_start: int = 0
    index_at: int = 0
    open_start: bool = False
    open_end: bool = False

    def meets(self, later: PartBoundary) -> bool:
        """Whether a later part has begun where this one has ended."""
        is_index_read = INDEX_UNREAD not in (self.index_at, later.index_at)
        if self.open_end or later.open_start or (is_index_read and self.index_at != later.index_start):
            return False
        return self.end is None or self.end == later.first

    def extend(self, later: PartBoundary) -> None:
        """Add a later part."""
        if later.first is not None:
            self.first = later.first if self.first is None else self.first
            self.end, self.index_at, self.open_end = later.end, later.index_at, later.open_end


@dataclass
class PartResult:
    """The result of one part; complete at the end, and usable before when the verification is interrupted."""

    report: Report
    extents: Extents = field(default_factory=Extents)
    totals: RecordTotals = field(default_factory=RecordTotals)
    states: dict[QueueName, QueueProgress] = field(default_factory=dict)
    keys: KeyTally = field(default_factory=KeyTally)
    damages: Sequence[FieldDamage] = ()  # fields of records, by the suspects of the whole log
    log_end: int | None = None  # after the last record
    stale_from: int | None = None  # where stale records begin, which are not part of the log
    walks: list[FileWalk] = field(default_factory=list)
    suspects: Suspects = field(default_factory=Suspects)  # records that may have damaged fields
    unread: str | None = None  # why the rest of the part was not read
    unreadable: dict[str, UnreadableError] = field(default_factory=dict)  # log files of which bytes were not read
    read_errors: UnreadFiles = field(default_factory=UnreadFiles)  # those of other files
    deleted: list[str] = field(default_factory=list)  # log files that were deleted meanwhile
    reached: list[list[int]] = field(default_factory=list)  # extents of the log that were checked, start and stop
    whole_from: int = 0  # after the last part that was left out, a physical offset
    boundary: PartBoundary = field(default_factory=PartBoundary)

    @property
    def queue_ends(self) -> dict[QueueName, int]:
        """Queue offsets after the last message of each queue."""
        return {name: state.next_offset for name, state in self.states.items()}

    def meets(self, later: PartResult) -> bool:
        """Whether both results together equal that of one pass over both parts."""
        return self.stale_from is None and self.boundary.meets(later.boundary)

    def add_unread(self, unread: UnreadExtent) -> None:
        """Note an extent that could not be read, after all others."""
        self.extents.add(unread.physical_offset, unread.size, UNREAD)
        file = unread.error.file or ""
        if unread.is_deleted:
            self.deleted.append(file)
        else:
            self.unreadable.setdefault(file, unread.error)

    def extend(self, later: PartResult) -> None:
        """Add the result of a later part of the log; `later` must not be used afterwards.

        Where others were left out between them, queue offsets that are not there may have been in those.
        """
        if later.reached and self.reached and later.reached[0][0] > self.reached[-1][1]:
            self.whole_from = later.reached[0][0]
        if later.totals.messages:
            settle_held(self.totals, self.report, self.extents)
        self.extents.extend(later.extents)
        self.read_errors.extend(later.read_errors)
        for name in self.read_errors.queues:
            self.states.pop(name, None)
            later.states.pop(name, None)
        for name, state in later.states.items():
            known = self.states.get(name)
            if known is None:
                self.states[name] = state
                continue
            is_whole = known.last_physical_offset >= self.whole_from
            if known.records and state.records and (is_whole or state.first_offset < known.next_offset):
                report_jump(known, state.first_offset, state.first_physical_offset, self.report, self.extents)
            known.extend(state)
        self.keys.extend(later.keys)
        self.suspects.extend(later.suspects)
        self.report.merge(later.report)
        self.totals.extend(later.totals)
        join_walks(self.walks, later.walks)
        self.unread = self.unread or later.unread
        self.unreadable = {**later.unreadable, **self.unreadable}
        self.deleted.extend(later.deleted)
        self.reached.extend(later.reached)
        self.log_end = later.log_end if later.log_end is not None else self.log_end
        self.stale_from = later.stale_from if later.stale_from is not None else self.stale_from
        self.boundary.extend(later.boundary)

    def extents_end(self) -> int:
        """The end of the last extent without a record, a physical offset; 0 without one."""
        return self.extents.starts[-1] + self.extents.sizes[-1] if len(self.extents) else 0


class PartMerger:
    """Merges results, as they come from several processes, where the boundaries of their parts meet.

    They do not meet where damage lies at a border, or the index is not in the order of the log: then both parts must be
    checked again, as one. While a broker writes, a part may have ended before its file was full, and the next one may
    have been read afterwards: then the first must be checked again.
    """

    def __init__(self, parts: Sequence[AnyPart], total: PartResult) -> None:
        self.done: set[int] = set()  # numbers of the parts that were checked to their ends
        self._parts = [part for part in parts if isinstance(part, LogPart)]  # the first ones
        self._of_index: dict[int, PartResult] = {}
        self._total = total
        self._waiting: dict[int, PartResult] = {}
        self._next = 0
        self._open: tuple[LogPart, PartResult] | None = None
        self._rechecks_left = _MAX_RECHECKS
        self._read_again: set[int] = set()  # where parts begin that a broker has filled meanwhile

    def add(self, part_number: int, result: PartResult) -> None:
        """Add the result of a part; then `merge`."""
        self.done.add(part_number)
        self.keep(part_number, result)

    def keep(self, part_number: int, result: PartResult) -> None:
        """Keep the result of a part, which may be interrupted: it is added to the total as it is."""
        if part_number >= len(self._parts):
            self._of_index[part_number] = result
        elif self._rechecks_left >= 0:  # else the last part covers it now
            self._waiting[part_number] = result

    def merge(self) -> LogPart | None:
        """Merge what meets; returns a part to check again, for `replace`, when two do not meet."""
        while self._next in self._waiting:
            part, result = self._parts[self._next], self._waiting[self._next]
            first, before = self._open or (part, None)
            if before is not None and self._has_grown(first, before, result):
                return first
            if before is not None and part.index_stop is None and result.boundary.first is None:
                before.reached.extend(result.reached)  # nothing begins there: the part before goes on
                self._advance(LogPart(first.start, part.stop, first.index_start), before)
            elif before is None or part.index_stop is not None or before.meets(result):
                self._advance(part, result, done=before)
            else:
                stop = part.stop if self._rechecks_left else self._parts[-1].stop
                return LogPart(first.start, stop, first.index_start)
        return None

    def replace(self, part: LogPart, result: PartResult) -> None:
        """Add the result of a part that was checked again; then `merge`."""
        with deferred_signals():
            if part.index_stop is not None:
                self._read_again.add(part.start)
                self._open = part, result
                return
            self._rechecks_left -= 1
            self._advance(part, result)

    def total(self) -> PartResult:
        """All results so far, complete or not; nothing can be added afterwards."""
        with deferred_signals():  # a total that is added to halfway is useless
            last = [self._open[1]] if self._open else []
            left = {**self._waiting, **self._of_index}
            for result in (*last, *(left[part_number] for part_number in sorted(left))):
                self._total.extend(result)
            self._open, self._waiting, self._of_index = None, {}, {}
        return self._total

    def _has_grown(self, part: LogPart, result: PartResult, later: PartResult) -> bool:
        """Whether a broker has filled the file of a part after it was read, for there is something in the later one."""
        if part.index_stop is None or part.start in self._read_again or later.boundary.first is None:
            return False
        return bool(result.reached) and result.reached[-1][1] < part.stop

    def _advance(self, part: LogPart, result: PartResult, done: PartResult | None = None) -> None:
        """Make `part` the last merged one; the one before is `done`, unless `part` includes it."""
        with deferred_signals():
            if done is not None:
                self._total.extend(done)
            self._open = part, result
            del self._waiting[self._next]
            self._next += 1
            if self._rechecks_left < 0:
                self._waiting.clear()
                self.done.update(range(len(self._parts)))


P = ParamSpec("P")


class StoreFindings:
    """What is found: by checks of the whole store, in its parts once they are merged, and files that cannot be read."""

    def __init__(self, task: VerifyTask, read_errors: UnreadFiles) -> None:
        self.report = task.report()
        self.read_errors = read_errors
        self.failed: dict[str, UnreadableError] = {}  # reads that failed, whether or not a check could do without them
        self.parts: PartMerger | None = None
        self._task = task
        self._total: PartResult | None = None

    def check(self, check: Callable[P, object], *arguments: P.args, **options: P.kwargs) -> None:
        """Run one check, which ends when a file cannot be read; the others go on."""
        with self.read_errors.scope():
            check(*arguments, **options)

    def begin(self, parts: PartMerger) -> None:
        """Take the results of a pass, in place of those of one before it."""
        self.parts, self._total = parts, None

    @property
    def total(self) -> PartResult:
        """The result of all parts, also of interrupted ones; nothing can be added afterwards."""
        if self._total is None:
            task = self._task
            total = self.parts.total() if self.parts else PartResult(task.report())
            _report_unreadable(task.store, task.files, total)
            self.read_errors.extend(total.read_errors)
            self._total = total
        return self._total

    def everything(self) -> Report:
        """The findings of the whole store together with those of its parts."""
        total = self.total
        self.note_unreported()
        both = self._task.report()
        both.merge(self.report)
        both.merge(total.report)
        for error in self.read_errors.findings(self._task.store, total.unreadable):  # which are findings of their parts
            both.add_always(error)
        return both

    def note_unreported(self) -> bool:
        """Note read errors that no check reports; whether there are any new ones."""
        if self.parts and not self._total:  # the parts may report them yet
            return False
        reported = {*self._total.unreadable, *self._total.deleted} if self._total else set()
        return self.read_errors.note_unreported([*self.failed.values(), *failed_so_far()], reported)


def _report_unreadable(store: Store, files: Sequence[MappedFile], total: PartResult) -> None:
    """Report the log files that could not be read, each with the count of unread bytes."""
    total.report.check("commitlog.unreadable", len(files))
    for file in files:
        error = total.unreadable.get(str(file.path))
        if error is not None:
            unread = [(start, size) for start, size, reason in total.extents if reason == UNREAD and file.holds(start)]
            size = sum(size for _, size in unread)
            total.report.add("commitlog.unreadable", file=store.relative(file.path),
                             offset=unread[0][0] if unread else None,
                             details={"unread_bytes": size, "why": error.message, "hint": error.hint})  # fmt: skip
