"""The task of a verification, and the reader with which each of its processes reads the store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal, Protocol

from rmqtool.base.files import OpenFiles, RateLimit, ReadPolicy
from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatched_record import Lookups
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.dispatcher import Dispatcher
from rmqtool.broker.proven_records import ProvenRecords
from rmqtool.findings.report import Report, Selection
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.rules.versions import Version
from rmqtool.scan.filters import TopicChoice
from rmqtool.scan.reader import Event
from rmqtool.store.commit_log import log_start
from rmqtool.store.consume_queues import Kind, QueueTable
from rmqtool.store.rocksdb import is_readable
from rmqtool.store.rocksdb_queues import QueueDatabase, queue_database
from rmqtool.store.splits import PART_SIZE
from rmqtool.store.store import Store
from rmqtool.store.unit_files import UnitFiles
from rmqtool.verify.entry_checks import UnreadUnits
from rmqtool.verify.index_sequence import FileUnits, IndexUnits


class EventReader(Protocol):
    """Reads the events of one part of the log for another job; what `add` and `rest` return goes to its `Companion`."""

    def add(self, event: Event) -> object | None:
        """Read the next event."""

    def rest(self) -> object | None:
        """Return what is left at the end of the part."""


class Companion(Protocol):
    """Another job that goes over the same log, which is read once for both; `is_whole` once all of it was read."""

    is_whole: bool

    def reader(self, proven: ProvenRecords) -> Callable[[], EventReader]:
        """Begin, and begin again where records turn out to have damaged fields; returns what each process calls."""

    def add(self, part: int, derived: Any) -> None:
        """Take what a reader has returned of a part."""


@dataclass(frozen=True)
class VerifyTask:
    """What to check, by which rules; needed for all parts, and can be sent to another process."""

    store: Store
    version: Version | None
    rules: DispatchRules
    batch_topics: frozenset[str] | None = None  # those with batch queues; None when no file shows them
    selection: Selection = field(default_factory=Selection)
    max_examples: int = 10
    bodies: bool = True
    tags_expected: bool = False
    live: bool = False
    queues: bool = True
    index: bool = True
    files: tuple[MappedFile, ...] = ()  # of the log, as it stood when the verification began
    index_files: tuple[FileUnits, ...] = ()  # likewise
    rate: int | None = None  # bytes per second
    recovery: RecoveryRules | None = None  # of the start that is predicted
    listed: QueueTable | None = None  # the queues in files; None: to be looked for
    unread_units: UnreadUnits | None = None  # of a DLedger node's index
    plain_topics: frozenset[str] = frozenset()  # those with plain queues, whatever a record's flag says
    proven: ProvenRecords = field(default_factory=ProvenRecords)  # what records with damaged fields were
    companion: Callable[[], EventReader] | None = None

    def reading(self) -> ReadPolicy:
        """How files are read."""
        return ReadPolicy(RateLimit(self.rate) if self.rate else None, drop_page_cache=self.live)

    def report(self) -> Report:
        """An empty report."""
        return Report(self.selection, self.max_examples, str(self.store.root))

    def dispatcher(self) -> Dispatcher:
        """A dispatcher, which derives units and keys from records."""
        return Dispatcher(self.rules, self.batch_topics, self.proven, self.plain_topics)


class StoreReader:
    """The store as one process reads it, with its open files."""

    def __init__(self, task: VerifyTask, reading: ReadPolicy, database: QueueDatabase | None = None) -> None:
        """`reading` limits how fast files are read, for all that use this reader together.

        `database` has the queues, where it is open here already: the ends of many queues are held once then.
        """
        self.store = task.store
        self.task = task
        self.files = task.files
        self.log_start = log_start(task.files)
        self.reading = reading
        self.open_files = OpenFiles(self.reading)
        self.lookups = Lookups(task.files, task.dispatcher())
        self.index = IndexUnits(task.index_files, self.open_files)
        self.queues: dict[tuple[Kind, QueueName], UnitFiles | None] = {}  # queues read so far; None without units
        path = queue_database(task.store) if is_readable() and database is None else None
        self._own = QueueDatabase(path) if path else None
        self.database = database or self._own

    def close(self) -> None:
        """Close what was opened."""
        self.open_files.close()
        if self._own:
            self._own.close()


EarlyEnd = Literal["time-limit", "sample"]
"""What ends a verification before all is looked at: the time is up, or the rest was not asked for."""


@dataclass(frozen=True)
class VerifyRequest:
    """The options of a verification.

    `rate` is in bytes per second, `time_limit` of log and index in seconds, `sample` the share of both to look at.
    """

    version: Version | None = None
    selection: Selection = field(default_factory=Selection)
    max_examples: int = 10
    jobs: int = 1
    bodies: bool = True
    rate: int | None = None
    part_size: int = PART_SIZE
    time_limit: float | None = None
    sample: float | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """The options on which the results of parts depend, as on a command line."""
        given = [("--only", code) for code in self.selection.only] + [("--skip", code) for code in self.selection.skip]
        if isinstance(topics := self.selection.topics, TopicChoice):
            given += [("--topic", topic) for topic in topics.wanted]
            given += [("--exclude-topic", topic) for topic in topics.excluded]
        if self.version:
            given.append(("--broker-version", str(self.version)))
        if self.max_examples != VerifyRequest.max_examples:
            given.append(("--max-examples", str(self.max_examples)))
        return (*chain.from_iterable(given), *([] if self.bodies else ["--fast"]))


@dataclass(frozen=True)
class LogPart:
    """The records that begin at physical offsets from `start` to before `stop`, and the numbers of their index units.

    While a broker writes, parts are not compared with each other: the units of each end at `index_stop`.
    """

    start: int
    stop: int
    index_start: int = 0
    index_stop: int | None = None


@dataclass(frozen=True)
class IndexPart:
    """Index files from index `first` to before `stop`."""

    first: int
    stop: int


AnyPart = LogPart | IndexPart
