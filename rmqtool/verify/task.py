"""The task of a verification, and the reader with which each of its processes reads the store."""

from __future__ import annotations

from dataclasses import dataclass, field

from rmqtool.base.files import RateLimit, ReadPolicy
from rmqtool.base.mapped_files import MappedFile
from rmqtool.base.open_files import OpenFiles
from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatched_record import Lookups
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.dispatcher import Dispatcher
from rmqtool.broker.proven_records import ProvenRecords
from rmqtool.findings.report import Report, Selection
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.rules.versions import Version
from rmqtool.store.commit_log import log_start
from rmqtool.store.consume_queues import Kind
from rmqtool.store.queue_table import QueueTable
from rmqtool.store.rocksdb import is_readable
from rmqtool.store.rocksdb_queues import QueueDatabase, queue_database
from rmqtool.store.store import Store
from rmqtool.store.unit_files import UnitFiles
from rmqtool.verify.entry_index_check import UnreadUnits
from rmqtool.verify.index_sequence import FileUnits, IndexUnits


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
        path = queue_database(task.store) if is_readable() else None
        self.database = database or (QueueDatabase(path) if path else None)

    def close(self) -> None:
        """Close what was opened."""
        self.open_files.close()
        if self.database:
            self.database.close()
