"""The source of a rebuild: the store's log, its queues, and the rules by which units are derived."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from rmqtool.base.errors import UsageError
from rmqtool.base.files import UNLIMITED, OpenFiles, Progress
from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatched_record import Lookups
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.dispatcher import Dispatcher
from rmqtool.broker.field_damage import FieldDamage
from rmqtool.broker.proven_records import ProvenRecords
from rmqtool.broker.rocksdb_recovery import has_rows, selects_rows
from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding
from rmqtool.formats.index_file import DEFAULT_SLOTS, DEFAULT_UNITS
from rmqtool.rebuild.derive import BatchTopicFoundError, Derivation, Outputs
from rmqtool.rebuild.existing import ExistingQueues, ExistingRows, FileGrid, StoredRows, grid_of
from rmqtool.rebuild.log_pass import PartsDoNotMeetError, Recording, RunTask
from rmqtool.rebuild.options import Part, RebuildOptions
from rmqtool.rebuild.queue_diff import RowRules, version_findings
from rmqtool.rebuild.queue_placement import KeptTimes
from rmqtool.rules.file_sizes import DEFAULT_QUEUE_FILE_SIZE, QUEUE_FILE_SIZE, queue_file_size
from rmqtool.rules.system_topics import LMQ_PREFIX
from rmqtool.rules.versions import BATCH_QUEUES, INDEX_OF_TAGS, ROCKSDB_LIGHT_QUEUES, ROCKSDB_QUEUES, Releases, Version
from rmqtool.store.consume_queues import UNIT_FORMATS, Kind, Queue
from rmqtool.store.index_files import Geometry
from rmqtool.store.missing import Sized, common_file_sizes, unknown_sizes
from rmqtool.store.rocksdb import DamagedDatabaseError, without_library
from rmqtool.store.rocksdb_queues import queue_database
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.splits import log_parts
from rmqtool.store.store import (
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    SEPARATE_ROCKSDB_QUEUES,
    Store,
    holds_rocksdb,
    is_rocksdb_directory,
)
from rmqtool.store.unit_files import UnitFiles

if TYPE_CHECKING:
    from rmqtool.transaction.transaction import Transaction


def apply_conf(store: Store, options: RebuildOptions) -> tuple[RebuildOptions, list[Finding]]:
    """The options without the parts that this broker does not write, and findings for the differences."""
    findings = []
    switched_off = _index_switched_off(store, options) if "index" in options.parts else None
    if switched_off:
        options = replace(options, parts=options.parts - {"index"})
        findings.append(finding("rebuild.index-disabled", file=store.conf.path, details={"setting": switched_off}))
    ext_units = store.root / CONSUME_QUEUE_EXT
    has_ext_units = store.conf.is_on("enableConsumeQueueExt") or (ext_units.is_dir() and any(ext_units.iterdir()))
    if "queues" in options.parts and has_ext_units:
        findings.append(finding("rebuild.ext-units"))
    return options, findings


def _index_switched_off(store: Store, options: RebuildOptions) -> str | None:
    """The setting that switches the index off, or None (`CommitLogDispatcherBuildIndex#dispatch`)."""
    names = ["messageIndexEnable"]
    if options.version is None or options.version >= INDEX_OF_TAGS:  # 5.4.0 brought both
        names.append("indexFileWriteEnable")
    return next((name for name in names if (store.conf.text(name) or "true").lower() == "false"), None)


_RECORDED_SHARE = 4  # of the log: units and keys of messages of 300 bytes have nearly so much, of larger ones less

_SETTINGS: dict[Sized, str] = {
    "simple": QUEUE_FILE_SIZE["simple"][0],
    "batch": QUEUE_FILE_SIZE["batch"][0],
    "index": "maxHashSlotNum and maxIndexNum",
}
_NAMES: dict[Sized, str] = {
    "simple": "a consume queue file",
    "batch": "a batch consume queue file",
    "index": "an index file",
}


@dataclass(frozen=True)
class FileSizes:
    """Bytes of a queue file of each kind, and the geometry of an index file; `findings` report contradictions."""

    queues: dict[Kind, int]
    index: Geometry
    findings: list[Finding] = field(default_factory=list)
    assumed: frozenset[Sized] = frozenset()  # kinds whose size neither a file nor broker.conf shows


def file_sizes(snapshot: Snapshot, parts: Collection[Part]) -> FileSizes:
    """Find the sizes; what broker.conf does not set is the default, as for the broker that reads it.

    Sizes of wanted parts that contradict each other are among the findings.
    """
    common = common_file_sizes(snapshot.queues)
    contradictions: list[Finding] = []
    kinds = DEFAULT_QUEUE_FILE_SIZE
    sizes = {kind: _queue_file_size(snapshot.store, kind, common.get(kind), contradictions) for kind in kinds}
    configured = snapshot.store.conf.index_geometry
    index = Geometry(*configured) if configured else snapshot.shown_index_geometry
    index = index or Geometry(DEFAULT_SLOTS, DEFAULT_UNITS)
    return FileSizes(sizes, index, contradictions if "queues" in parts else [], unknown_sizes(snapshot))


def assumed_findings(sizes: FileSizes, kinds: Collection[Sized]) -> Iterator[Finding]:
    """A finding for each kind of written files whose size is not known, so that the default is taken."""
    for kind in sorted(sizes.assumed.intersection(kinds)):
        details: dict[str, str | int] = {"kind": _NAMES[kind], "setting": _SETTINGS[kind]}
        if kind == "index":
            details |= {"problem": "index", "slots": sizes.index.slots, "units": sizes.index.units}
        else:
            details |= {"problem": "queues", "bytes": sizes.queues[kind]}
        yield finding("rebuild.file-size-assumed", severity="warning", details=details)


def require_known_sizes(store: Store, assumed: Collection[Sized], kinds: Collection[Sized]) -> None:
    """Raise UsageError when files of one of the `kinds` are written into the store and their size is only assumed."""
    unknown = [kind for kind in _SETTINGS if kind in kinds and kind in assumed]
    if unknown:
        names = " and ".join(f"{_NAMES[kind]} ({_SETTINGS[kind]})" for kind in unknown)
        raise UsageError(
            f"the size of {names} is unknown: no file of the store shows it. With queue files of another size than "
            "configured a broker refuses to start, and in such index files it finds nothing",
            file=store.root,
            hint="give the broker's configuration with --broker-conf FILE; unset values are the defaults, and an "
            "empty file means a broker with default settings. --dry-run works without it",
        )


def _queue_file_size(store: Store, kind: Kind, common: int | None, findings: list[Finding]) -> int:
    configured = queue_file_size(store.conf, kind)
    if configured is not None and common is not None and configured != common:
        details = {"setting": _SETTINGS[kind], "configured": configured, "found": common}
        findings.append(finding("rebuild.file-size-differs", file=store.conf.path, details=details))
    return configured or common or DEFAULT_QUEUE_FILE_SIZE[kind]


@dataclass(frozen=True)
class QueuePlaces:
    """Whether queues are written to files, to RocksDB, or both; `database` is where the one is, or would be."""

    files: bool
    rocksdb: bool
    database: Path


def queue_places(snapshot: Snapshot, release: Version) -> QueuePlaces:
    """The places of a store's queues.

    The broker.conf counts where the files leave it open: files stay behind where a broker began to use RocksDB.
    """
    store = snapshot.store
    has_files = any(queue.database is None for queue in snapshot.queues)
    path = _database_path(store)
    both = store.writes_queues_twice
    lost = store.is_of_rocksdb_type and not has_files and release >= ROCKSDB_QUEUES
    if not (is_rocksdb_directory(path) or both or lost):
        return QueuePlaces(files=True, rocksdb=False, database=path)
    return QueuePlaces(both or (has_files and not store.is_of_rocksdb_type), rocksdb=True, database=path)


def _database_path(store: Store) -> Path:
    separate = store.conf.is_on("useSeparateStorePathForRocksdbCQ")
    names = (SEPARATE_ROCKSDB_QUEUES, CONSUME_QUEUE) if separate else (CONSUME_QUEUE, SEPARATE_ROCKSDB_QUEUES)
    return queue_database(store) or store.root / names[0]


@dataclass
class RebuildSource:
    """A store to rebuild from; `batch_topics` grows with those that are found in the log."""

    snapshot: Snapshot
    options: RebuildOptions
    sizes: FileSizes
    releases: Releases
    findings: list[Finding]
    batch_topics: set[str]
    learns_batch_topics: bool
    places: QueuePlaces
    rows: StoredRows
    existing: dict[Kind, ExistingQueues] = field(default_factory=dict)
    damages: list[FieldDamage] | None = None  # fields of records that the queues and the index prove; None: not judged
    open_files: OpenFiles = field(default_factory=lambda: OpenFiles(UNLIMITED))
    recording: Recording | None = None  # of what a pass over the log has derived, or will

    @property
    def version(self) -> Version:
        """The release whose rules count: the newest that fits."""
        return self.releases.newest

    @cached_property
    def lookups(self) -> Lookups:
        """Single records of the log."""
        return Lookups(self.snapshot.log.files, Dispatcher(run_task(self).rules, self.batch_topics))

    @property
    def file_queues(self) -> list[Queue]:
        """The queues that have files."""
        return [queue for queue in self.snapshot.queues if queue.database is None]

    @cached_property
    def row_rules(self) -> RowRules:
        """Which rows the database of the queues has."""
        snapshot, is_newer = self.snapshot, self.releases.oldest >= ROCKSDB_LIGHT_QUEUES
        is_twice = self.places.files and self.places.rocksdb
        is_selected = is_twice and selects_rows(snapshot.store.conf, self.version)
        selects = partial(has_rows, snapshot.topics) if is_selected else None
        return RowRules(snapshot.log_min_offset, self._has_light_rows or is_newer, selects)

    def keeps(self, name: QueueName) -> bool:
        """Whether a queue stays as it is where the log holds no message of it."""
        return self.options.untouched.takes(*name) and not self.options.anew

    def takes_files(self, name: QueueName) -> bool:
        """Whether a queue has files: light queues may only be in RocksDB (`combineCQUseRocksdbForLmq`)."""
        return not (self._only_light_rows and name.topic.startswith(LMQ_PREFIX))

    @property
    def _has_light_rows(self) -> bool:
        return any(name.topic.startswith(LMQ_PREFIX) for name in self.rows.lasts)

    @cached_property
    def _only_light_rows(self) -> bool:
        if not self.places.rocksdb:
            return False
        is_seen = self._has_light_rows and not any(queue.topic.startswith(LMQ_PREFIX) for queue in self.file_queues)
        return is_seen or self.snapshot.store.conf.is_on("combineCQUseRocksdbForLmq")

    def close(self) -> None:
        """Close the files that were read."""
        self.open_files.close()
        self.rows.close()


def open_source(store: Store, options: RebuildOptions, releases: Releases | None = None) -> RebuildSource:
    """The source of a rebuild of a store, by the rules of `releases`, or else of those that it shows.

    Raises UnsupportedError for queues in RocksDB without its library.
    """
    snapshot = Snapshot(store, options.version, options.limit, scope=partial(suppress, DamagedDatabaseError))
    return source_of(snapshot, options, releases or snapshot.releases)


def source_of(snapshot: Snapshot, options: RebuildOptions, releases: Releases) -> RebuildSource:
    """The source of a rebuild, where one of `releases` wrote the store."""
    store = snapshot.store
    options, setting_findings = apply_conf(store, options)
    sizes = file_sizes(snapshot, options.parts)
    topics = snapshot.topics.with_batch_queues
    findings = version_findings(store, releases, index="index" in options.parts)
    has_batches = releases.newest >= BATCH_QUEUES
    stored = {queue.topic for queue in snapshot.queues if queue.kind == "batch"}
    places = queue_places(snapshot, releases.newest)
    if options.target:
        places = replace(places, files=options.target == "files", rocksdb=options.target == "rocksdb")
    if "queues" in options.parts and snapshot.leaves_queues_out:
        raise without_library(places.database)
    source = RebuildSource(
        snapshot=snapshot,
        options=options,
        sizes=sizes,
        releases=releases,
        findings=[*sizes.findings, *findings, *setting_findings],
        batch_topics=stored | (topics or set()) if has_batches else set(),
        learns_batch_topics=has_batches and topics is None,
        places=places,
        rows=StoredRows(places.database, snapshot.database),
    )
    for kind, units in UNIT_FORMATS.items():
        grid = FileGrid(sizes.queues[kind], units.dtype.itemsize) if places.files else grid_of(kind)
        of_kind = (queue for queue in source.file_queues if queue.kind == kind)
        queues = {QueueName(queue.topic, queue.queue_id): UnitFiles(queue, source.open_files) for queue in of_kind}
        if options.target == "rocksdb":
            queues = {}  # no row depends on a file
        existing = ExistingQueues(kind, grid, snapshot.log_min_offset, queues)
        if holds_rocksdb(places.database) and not source.file_queues and options.target != "files":
            existing = ExistingRows(kind, grid, snapshot.log_min_offset, queues, source.rows)
        source.existing[kind] = existing
    return source


def derive(
    source: RebuildSource, outputs: Outputs, progress: Progress, *, is_second: bool = False
) -> Derivation | None:
    """Make one pass over the log, or over what the source's recording has of it; a second pass records nothing.

    None when the pass has to begin again with new outputs: a topic turned out to have batch queues, or the log cannot
    be read in parts. The source has been changed accordingly.
    """
    jobs = source.options.jobs
    # The first pass has checked the bodies; they matter again only when wrong ones are neutralised.
    task = replace(run_task(source), checks_bodies=not is_second or source.options.neutralise)
    if source.recording:
        source.recording.keeps = not is_second
    snapshot = source.snapshot
    log, moved_from = snapshot.log.files, source.options.moved_from
    kept_times = KeptTimes(
        lambda: snapshot.queues, moved_from or log, snapshot.delay_levels, source.open_files, is_moved=bool(moved_from)
    )
    derivation = Derivation(task, outputs, source.existing, source.sizes.index, kept_times)
    parts = log_parts(source.snapshot.log.files, source.snapshot.reading, in_order=True) if jobs > 1 else ()
    try:
        derivation.run(progress, parts, jobs, source.recording)
    except BatchTopicFoundError as error:
        source.batch_topics |= error.topics
    except PartsDoNotMeetError:
        if source.recording is None:
            source.options = replace(source.options, jobs=1)
        source.recording = None
    else:
        return derivation
    return None


def record(source: RebuildSource, transaction: Transaction) -> RebuildSource:
    """A source whose first pass is recorded, so that the next one in the transaction does not read the log again."""
    descriptor = transaction.unnamed_file(source.snapshot.log.size // _RECORDED_SHARE)
    task = replace(run_task(source), drops_later=True)
    source.recording = None if descriptor is None else Recording(task, descriptor)
    return source


def run_task(source: RebuildSource) -> RunTask:
    """The task of a pass over the log."""
    options = source.options
    learns_plain = source.learns_batch_topics and not options.anew
    return RunTask(
        files=source.snapshot.log.files,
        # Records hold offsets in light queues only if their broker had these enabled, so the log decides.
        rules=DispatchRules.of(
            source.version,
            source.snapshot.store.conf,
            source.snapshot.delay_levels,
            has_light_queues=True,
            may_be_older=True,
        ),
        selection=options.selection,
        order=options.order,
        reading=source.snapshot.reading,
        drops_bodies_from=options.served_until if options.neutralise else None,
        drops_refused_from=options.readable_until if options.neutralise else 0,
        batch_topics=frozenset(source.batch_topics),
        learns_batch_topics=source.learns_batch_topics,
        anew=options.anew,
        left_out=options.left_out,
        plain_topics=source.snapshot.topics_with_plain_queues if learns_plain else frozenset(),
        proven=ProvenRecords({damage.physical_offset: damage.proven for damage in source.damages or ()}),
    )
