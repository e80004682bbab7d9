"""What a pass over the log compares with what is there."""

from __future__ import annotations

from collections import Counter, defaultdict

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.rebuild.derive import Outputs
from rmqtool.rebuild.index_diff import IndexComparison
from rmqtool.rebuild.queue_diff import Comparison
from rmqtool.rebuild.row_diff import RowComparison
from rmqtool.rebuild.sinks import UnitSink
from rmqtool.rebuild.source import RebuildSource
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
