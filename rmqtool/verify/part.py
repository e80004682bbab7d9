"""One part of the log: scanned once, and compared with the queues and the index on the way."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

from rmqtool.broker_conf import BrokerConf
from rmqtool.dispatch.dispatcher import Dispatcher
from rmqtool.dispatch.rules import DispatchRules
from rmqtool.dispatch.units import QueueName
from rmqtool.errors import UnreadableError
from rmqtool.files import RateLimit, Reading
from rmqtool.scan.events import Blank, Damage
from rmqtool.scan.frames import Frames
from rmqtool.scan.reader import scan_files
from rmqtool.store import Store, open_store
from rmqtool.topics import load_topics
from rmqtool.verify.damage import DamageChecks
from rmqtool.verify.extents import Extents
from rmqtool.verify.index_check import IndexCheck
from rmqtool.verify.index_files import check_chains
from rmqtool.verify.index_units import IndexUnits, known_geometries, parts_of
from rmqtool.verify.lookups import Lookups
from rmqtool.verify.open_files import OpenFiles
from rmqtool.verify.queue_check import QueueCheck
from rmqtool.verify.queue_state import QueueState
from rmqtool.verify.records import RecordChecks, RecordTotals
from rmqtool.verify.report import Report, Selection
from rmqtool.versions import Version

Progress = Callable[[int], None]
"""Told how many more bytes are done."""


@dataclass(frozen=True)
class Settings:
    """What a verification is asked for, as every part of it needs it; can be sent to another process."""

    root: Path
    conf: BrokerConf
    version: Version | None
    rules: DispatchRules
    selection: Selection = field(default_factory=Selection)
    max_examples: int = 10
    bodies: bool = True
    tags_expected: bool = False
    live: bool = False
    queues: bool = True
    index: bool = True
    rate: int | None = None  # bytes per second

    def reading(self) -> Reading:
        """How files are read."""
        return Reading(RateLimit(self.rate) if self.rate else None, spare_cache=self.live)

    def report(self) -> Report:
        """An empty report."""
        return Report(self.selection, self.max_examples, str(self.root))


@dataclass(frozen=True)
class LogPart:
    """What begins at physical offsets from `start` to before `stop`, and the index units that belong to it."""

    start: int
    stop: int
    index_start: int = 0
    index_stop: int = 0
    last: bool = True


@dataclass(frozen=True)
class IndexPart:
    """One index file, by its number."""

    number: int
    bytes: int


@dataclass
class PartResult:
    """What one part of the verification has found; complete only at the end, useful before."""

    report: Report
    extents: Extents = field(default_factory=Extents)
    totals: RecordTotals = field(default_factory=RecordTotals)
    states: dict[QueueName, QueueState] = field(default_factory=dict)
    log_end: int | None = None  # behind the last record
    ghosts_from: int | None = None  # where old records begin that are no part of the log

    def extend(self, later: PartResult) -> None:
        """Add what the part of the log behind this one has found."""
        self.report.merge(later.report)
        self.extents.extend(later.extents)
        self.totals.extend(later.totals)
        for name, state in later.states.items():
            if name in self.states:
                self.states[name].extend(state)
            else:
                self.states[name] = deepcopy(state)
        self.log_end = later.log_end if later.log_end is not None else self.log_end
        self.ghosts_from = later.ghosts_from if later.ghosts_from is not None else self.ghosts_from

    def extents_end(self) -> int:
        """Behind the last extent without a record; 0 without one."""
        return self.extents.starts[-1] + self.extents.sizes[-1] if len(self.extents) else 0


class PartCheck:
    """Does the parts that it is given, one after the other; what is known so far is always in `result`."""

    def __init__(self, settings: Settings, progress: Progress) -> None:
        self.settings = settings
        self._progress = progress
        self._store: Store = open_store(settings.root, settings.conf)
        self._files = self._store.commit_log().files
        self._batch_topics = load_topics(self._store).with_batch_queues
        self._index = parts_of(known_geometries(self._store)) if settings.index else []
        self.result = PartResult(settings.report())

    def check(self, part: LogPart | IndexPart) -> PartResult:
        """Do one part; raises UnreadableError."""
        self.result = PartResult(self.settings.report())
        if isinstance(part, IndexPart):
            reading = self.settings.reading()
            check_chains(self._store, self._index[part.number], self.result.report, reading, self.settings.live)
            self._progress(part.bytes)
        else:
            self._check_log(part)
        return self.result

    def _check_log(self, part: LogPart) -> None:
        settings, result = self.settings, self.result
        dispatcher = Dispatcher(settings.rules, self._batch_topics)
        lookups = Lookups(self._files, Dispatcher(settings.rules, self._batch_topics))
        open_files = OpenFiles(settings.reading())
        records = RecordChecks(result.report, result.extents, settings.version, settings.bodies, result.totals)
        damage = DamageChecks(self._store, self._files, result.report, result.extents, settings)
        queues = None
        if settings.queues:
            queues = QueueCheck(settings.root, result.report, result.extents, open_files, lookups.owner_of,
                                dispatcher.is_batch_topic)  # fmt: skip
            result.states = queues.states
        index = None
        if settings.index:
            index = IndexCheck(self._store, result.report, IndexUnits(self._index, open_files), result.extents,
                               lookups.hashes_at, part.index_start, part.index_stop, settings.tags_expected,
                               self._files[0].start_offset if self._files else 0)  # fmt: skip
        try:
            for event in scan_files(self._files, part.start, part.stop, settings.reading()):
                if isinstance(event, Frames):
                    if damage.are_ghosts(event, records.totals.last_timestamp):
                        result.ghosts_from = damage.ghosts(event.physical_offset)
                        break
                    damage.settle()
                    dispatched = dispatcher.dispatch(event)
                    records.add(event, dispatched)
                    damage.frames(event)
                    result.log_end = event.physical_offset + event.size
                    if queues is not None:
                        queues.add(dispatched.units, dispatcher.queues)
                    if index is not None:
                        index.add(dispatched.keys, event.physical_offset, result.log_end)
                elif isinstance(event, Blank):
                    damage.settle()
                    damage.blank(event)
                elif isinstance(event, Damage):
                    damage.settle()
                    damage.damage(event)
                self._progress(event.size)
            damage.settle()
            if queues is not None:
                queues.flush(dispatcher.queues)
            if index is not None:
                index.finish(result.log_end or part.start if part.last else None)
        except UnreadableError:
            if not settings.live:
                raise
        finally:
            open_files.close()

