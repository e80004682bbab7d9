"""What a pass over the log compares with what is there."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.dispatcher import Dispatcher
from rmqtool.broker.field_damage import FieldJudge, Suspects
from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding
from rmqtool.rebuild.derive import Outputs
from rmqtool.rebuild.index_builder import IndexComparison
from rmqtool.rebuild.queue_diff import Comparison, RowComparison
from rmqtool.rebuild.sinks import UnitSink
from rmqtool.rebuild.source import RebuildSource, run_task
from rmqtool.rules.versions import ROCKSDB_LIGHT_QUEUES
from rmqtool.store.consume_queues import Kind


class Comparisons:
    """Comparisons of what one pass derives with the files of the store."""

    def __init__(self, source: RebuildSource) -> None:
        self.queues: dict[Kind, Comparison] = {}
        self.rows: dict[Kind, RowComparison] = {}
        self._may_have_light_queues = source.releases.newest >= ROCKSDB_LIGHT_QUEUES
        self.index: IndexComparison | None = None
        if "queues" in source.options.parts:
            watched: dict[QueueName, list[int]] = defaultdict(list)
            for committed in source.snapshot.committed.offsets:
                watched[QueueName(committed.topic, committed.queue_id)].append(committed.offset)
            is_older = source.lookups.has_older_tags_code
            for kind, existing in source.existing.items():
                watched_of_kind = watched if kind == "simple" else {}
                if source.places.files:
                    self.queues[kind] = Comparison(
                        existing, watched_of_kind, keeps_ext=source.snapshot.store.has_ext_units, is_older=is_older
                    )
                if source.places.rocksdb:
                    self.rows[kind] = RowComparison(source.rows, kind, source.row_rules, watched_of_kind)
        if "index" in source.options.parts:
            snapshot = source.snapshot
            self.index = IndexComparison(snapshot.index_files, source.sizes.index, snapshot.log_min_offset)

    def outputs(self) -> Outputs:
        """The outputs of a pass that only compares."""
        sinks: dict[Kind, list[UnitSink]] = defaultdict(list)
        for comparisons in (self.queues, self.rows):
            for kind, comparison in comparisons.items():
                sinks[kind].append(comparison)
        return Outputs(sinks, self.index)

    @property
    def simple(self) -> Comparison | RowComparison | None:
        """That of the simple queues; of those in files where they are in RocksDB too."""
        return self.queues.get("simple") or self.rows.get("simple")

    @property
    def left_out(self) -> Counter[QueueName]:
        """Units of light queues that get no rows."""
        counts: Counter[QueueName] = Counter()
        for comparison in self.rows.values():
            counts.update(comparison.left_out)
        return counts

    @property
    def undecided_rows(self) -> Counter[QueueName]:
        """Units of light queues without rows, which one of the fitting releases gives them."""
        return self.left_out if self._may_have_light_queues else Counter()

    def close(self) -> None:
        """Close the files that were read."""
        if self.index:
            self.index.close()


def learn_fields(source: RebuildSource, comparisons: Comparisons, derived: set[QueueName]) -> bool:
    """Judge what a pass found different, once; whether records have damaged fields, so that it has to begin again.

    `derived` are the queues that the pass has derived. A rebuild in the order of a broker, or of queues that are not
    to be believed, takes the log as it is.
    """
    options = source.options
    if source.damages is not None or options.order != "stored" or options.anew:
        return False
    suspects = Suspects()
    of_queues: list[Comparison | RowComparison] = [*comparisons.queues.values(), *comparisons.rows.values()]
    for comparison in of_queues:
        for name in _names(source):
            if name not in derived:
                comparison.add_untouched(name)
        suspects.extend(comparison.suspects)
    if comparisons.index:
        suspects.extend(comparisons.index.suspects)
    task = run_task(source)
    dispatcher = Dispatcher(task.rules, source.batch_topics)
    topics = {name.topic for name in _names(source)} | {*source.snapshot.topics.by_name}
    source.damages = FieldJudge(task.files, dispatcher, _Places(source), topics).damages(suspects)
    return bool(source.damages)


def field_findings(source: RebuildSource) -> Iterator[Finding]:
    """Findings of records with damaged fields."""
    for damage in source.damages or ():
        yield finding("commitlog.field", store=source.snapshot.store.root, **damage.facts)


def _names(source: RebuildSource) -> set[QueueName]:
    return {QueueName(queue.topic, queue.queue_id) for queue in source.snapshot.queues}


class _Places:
    """The physical offsets in units of simple queues, by queue and queue offset."""

    def __init__(self, source: RebuildSource) -> None:
        self._existing = source.existing["simple"]
        self._rows = source.rows if source.places.rocksdb else None

    def __call__(self, name: QueueName, queue_offset: int) -> int | None:
        """The physical offset in the unit of a queue offset; None without one."""
        unit = self._existing.unit_at(name, queue_offset)
        if unit is None and self._rows is not None:
            found = self._rows.rows(name, queue_offset, queue_offset + 1).values
            unit = found[0] if len(found) else None
        return None if unit is None else int(unit["physical_offset"])
