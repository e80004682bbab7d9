"""What a rebuild reads: the store's log, its queues as they are, and what decides how units are derived."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from rmqtool.base.errors import UnsupportedError
from rmqtool.base.mapped_files import MappedFiles
from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatched_record import Lookups
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
from rmqtool.store.consume_queues import UNIT_SIZES, Kind, Queue, list_queues
from rmqtool.store.delays_seen import delay_levels_of_store
from rmqtool.store.paths import CONSUME_QUEUE_EXT
from rmqtool.store.splits import log_parts
from rmqtool.store.store import Store
from rmqtool.store.topics import load_topics
from rmqtool.store.version_signs import releases_of


@dataclass
class RebuildSource:
    """A store to rebuild from; `batch_topics` grows while the log tells more of them."""

    store: Store
    options: RebuildOptions
    log: MappedFiles
    queues: list[Queue]
    sizes: FileSizes
    releases: Releases
    findings: list[Finding]
    batch_topics: set[str]
    learns_batch_topics: bool
    existing: dict[Kind, ExistingQueues] = field(default_factory=dict)

    @property
    def version(self) -> Version:
        """The release whose rules count: the newest that fits."""
        return self.releases.newest

    @property
    def log_min_offset(self) -> int:
        """The commit log's minimum, bytes; -1 without a file."""
        return self.log.files[0].start_offset if self.log.files else -1

    @cached_property
    def lookups(self) -> Lookups:
        """Single records of the log."""
        return Lookups(self.log.files, Dispatcher(_task(self).rules, self.batch_topics))

    @property
    def has_ext_units(self) -> bool:
        """Whether there are any that a unit may lead to."""
        return (self.store.root / CONSUME_QUEUE_EXT).is_dir()

    def close(self) -> None:
        """Close the files that were read."""
        for existing in self.existing.values():
            existing.close()


def open_source(store: Store, options: RebuildOptions, releases: Releases | None = None) -> RebuildSource:
    """Look at a store; raise UnsupportedError for queues that are no files.

    `releases` are those that may have written it, by default what options and store show.
    """
    if store.layout == "rocksdb" and "queues" in options.parts:
        raise UnsupportedError("the consume queues are kept in RocksDB, which is not rebuilt", file=store.root)
    options, setting_findings = apply_conf(store, options)
    queues = list(list_queues(store))
    sizes = file_sizes(store, queues, options.parts)
    topics = load_topics(store).with_batch_queues
    releases = releases or releases_of(store, options.version, options.reading)
    findings = version_findings(store, releases, index="index" in options.parts)
    log = store.commit_log()
    has_batches = releases.newest >= BATCH_QUEUES
    found = {queue.topic for queue in queues if queue.kind == "batch"} | (topics or set()) if has_batches else set()
    source = RebuildSource(
        store=store,
        options=options,
        log=log,
        queues=queues,
        sizes=sizes,
        releases=releases,
        findings=[*sizes.findings, *findings, *setting_findings],
        batch_topics=found,
        learns_batch_topics=has_batches and topics is None,
    )
    for kind in UNIT_SIZES:
        grid = FileGrid(sizes.queues[kind], UNIT_SIZES[kind])
        source.existing[kind] = ExistingQueues(kind, grid, source.log_min_offset, queues)
    return source


def derive(
    source: RebuildSource, outputs: Outputs, progress: Progress, *, checks_bodies: bool = True
) -> Derivation | None:
    """Go over the log once.

    None where the pass has to begin again with new outputs: a topic turned out to have batch queues, or the log cannot
    be read in parts. The source knows it then.
    """
    jobs = source.options.jobs
    task = replace(_task(source), checks_bodies=checks_bodies)
    derivation = Derivation(task, outputs, source.existing, source.sizes.index)
    try:
        derivation.run(progress, log_parts(source.log.files, source.options.reading) if jobs > 1 else (), jobs)
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
        files=source.log.files,
        # A record tells offsets in light queues only when its broker had them enabled: what the log says is believed.
        rules=DispatchRules.of(
            source.version,
            source.store.conf,
            delay_levels_of_store(source.store),
            lmq_seen=True,
            may_be_older=not source.releases.is_named,
        ),
        selection=options.selection,
        order=options.order,
        reading=options.reading,
        drops_wrong_bodies=options.neutralise,
        batch_topics=frozenset(source.batch_topics),
        learns_batch_topics=source.learns_batch_topics,
    )
