"""The source of a rebuild: the store's log, its queues, and the rules by which units are derived."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from rmqtool.base.errors import UnsupportedError
from rmqtool.base.files import UNLIMITED, OpenFiles
from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatched_record import Lookups
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.dispatcher import Dispatcher
from rmqtool.findings.finding import Finding
from rmqtool.rebuild.conf_limits import apply_conf
from rmqtool.rebuild.derive import BatchTopicFoundError, Derivation, Outputs
from rmqtool.rebuild.existing import ExistingQueues
from rmqtool.rebuild.file_sizes import FileSizes, file_sizes
from rmqtool.rebuild.options import Progress, RebuildOptions
from rmqtool.rebuild.run_result import RunTask
from rmqtool.rebuild.sinks import FileGrid
from rmqtool.rebuild.version_choice import version_findings
from rmqtool.rebuild.workers import PartsDoNotMeetError
from rmqtool.rules.releases import Releases
from rmqtool.rules.versions import BATCH_QUEUES, Version
from rmqtool.store.consume_queues import UNIT_FORMATS, Kind
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.splits import log_parts
from rmqtool.store.store import Store
from rmqtool.store.unit_files import UnitFiles


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
    existing: dict[Kind, ExistingQueues] = field(default_factory=dict)
    open_files: OpenFiles = field(default_factory=lambda: OpenFiles(UNLIMITED))

    @property
    def version(self) -> Version:
        """The release whose rules count: the newest that fits."""
        return self.releases.newest

    @cached_property
    def lookups(self) -> Lookups:
        """Single records of the log."""
        return Lookups(self.snapshot.log.files, Dispatcher(_task(self).rules, self.batch_topics))

    def close(self) -> None:
        """Close the files that were read."""
        self.open_files.close()


def open_source(store: Store, options: RebuildOptions) -> RebuildSource:
    """The source of a rebuild of a store; raises UnsupportedError for queues in RocksDB."""
    snapshot = Snapshot(store, options.version, options.limit)
    return source_of(snapshot, options, snapshot.releases)


def source_of(snapshot: Snapshot, options: RebuildOptions, releases: Releases) -> RebuildSource:
    """The source of a rebuild, where one of `releases` wrote the store; may raise UnsupportedError."""
    store = snapshot.store
    if store.layout == "rocksdb" and "queues" in options.parts:
        raise UnsupportedError("the consume queues are kept in RocksDB, which is not rebuilt", file=store.root)
    options, setting_findings = apply_conf(store, options)
    sizes = file_sizes(snapshot, options.parts)
    topics = snapshot.topics.with_batch_queues
    findings = version_findings(store, releases, index="index" in options.parts)
    has_batches = releases.newest >= BATCH_QUEUES
    stored = {queue.topic for queue in snapshot.queues if queue.kind == "batch"}
    source = RebuildSource(
        snapshot=snapshot,
        options=options,
        sizes=sizes,
        releases=releases,
        findings=[*sizes.findings, *findings, *setting_findings],
        batch_topics=stored | (topics or set()) if has_batches else set(),
        learns_batch_topics=has_batches and topics is None,
    )
    for kind, units in UNIT_FORMATS.items():
        grid = FileGrid(sizes.queues[kind], units.dtype.itemsize)
        of_kind = (queue for queue in snapshot.queues if queue.kind == kind)
        queues = {QueueName(queue.topic, queue.queue_id): UnitFiles(queue, source.open_files) for queue in of_kind}
        source.existing[kind] = ExistingQueues(kind, grid, snapshot.log_min_offset, queues)
    return source


def derive(
    source: RebuildSource, outputs: Outputs, progress: Progress, *, checks_bodies: bool = True
) -> Derivation | None:
    """Make one pass over the log.

    None when the pass has to begin again with new outputs: a topic turned out to have batch queues, or the log cannot
    be read in parts. The source has been changed accordingly.
    """
    jobs = source.options.jobs
    task = replace(_task(source), checks_bodies=checks_bodies)
    derivation = Derivation(task, outputs, source.existing, source.sizes.index)
    parts = log_parts(source.snapshot.log.files, source.snapshot.reading) if jobs > 1 else ()
    try:
        derivation.run(progress, parts, jobs)
    except BatchTopicFoundError as error:
        source.batch_topics |= error.topics
    except PartsDoNotMeetError:
        source.options = replace(source.options, jobs=1)
    else:
        return derivation
    return None


def _task(source: RebuildSource) -> RunTask:
    options = source.options
    return RunTask(
        files=source.snapshot.log.files,
        # Records hold offsets in light queues only if their broker had these enabled, so the log decides.
        rules=DispatchRules.of(
            source.version,
            source.snapshot.store.conf,
            source.snapshot.delay_levels,
            has_light_queues=True,
            may_be_older=not source.releases.is_named,
        ),
        selection=options.selection,
        order=options.order,
        reading=source.snapshot.reading,
        drops_wrong_bodies=options.neutralise,
        batch_topics=frozenset(source.batch_topics),
        learns_batch_topics=source.learns_batch_topics,
    )
