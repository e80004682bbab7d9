"""A plan: what a pass over the log finds different, and so the changes of a rebuild, without writing anything."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.errors import UnreadableError, UsageError
from rmqtool.base.files import Progress, no_progress
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.dispatcher import Dispatcher
from rmqtool.broker.field_damage import FieldJudge, Suspects
from rmqtool.findings.catalogue import finding
from rmqtool.findings.finding import Finding
from rmqtool.rebuild.conversion import Conversion, conversion_of, require_all
from rmqtool.rebuild.derive import Derivation, Outputs
from rmqtool.rebuild.existing import UnitSink
from rmqtool.rebuild.findings import (
    derivation_findings,
    no_messages_findings,
    patch_findings,
    row_findings,
    start_findings,
)
from rmqtool.rebuild.index_builder import IndexComparison
from rmqtool.rebuild.neutralise import Patch, patched_bytes, patches_of
from rmqtool.rebuild.options import QueueSelection, RebuildOptions
from rmqtool.rebuild.queue_diff import (
    Comparison,
    QueueDifference,
    QueueKind,
    RowComparison,
    undecided_findings,
    undecided_units,
)
from rmqtool.rebuild.queue_placement import NEUTRALISED, BatchQueues, LostExtents, SimpleQueues
from rmqtool.rebuild.source import RebuildSource, assumed_findings, derive, run_task, source_of
from rmqtool.rules.system_topics import DEAD_LETTER_PREFIX, SCHEDULE_TOPIC, is_filled_by_brokers
from rmqtool.rules.versions import ROCKSDB_LIGHT_QUEUES, VALUES_MAY_HOLD_SEPARATOR
from rmqtool.store.config_tables import CommittedOffset
from rmqtool.store.consume_queues import Kind, Queue
from rmqtool.store.delays_seen import observed_delays
from rmqtool.store.missing import Sized
from rmqtool.store.queue_units import ExtTags, queue_range
from rmqtool.store.rocksdb_queues import NO_UNIT


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
            is_older, store = source.lookups.has_older_tags_code, source.snapshot.store
            for kind, existing in source.existing.items():
                watched_of_kind = watched if kind == "simple" else {}
                if source.places.files:
                    self.queues[kind] = Comparison(
                        existing,
                        watched_of_kind,
                        takes=source.takes_files,
                        ext_of=partial(ExtTags, store) if store.has_ext_units else None,
                        is_older=is_older,
                    )
                if source.places.rocksdb:
                    self.rows[kind] = RowComparison(source.rows, kind, source.row_rules, watched_of_kind)
        if "index" in source.options.parts:
            snapshot = source.snapshot
            self.index = IndexComparison(snapshot.index_files, source.sizes.index, snapshot.log_min_offset)

    def outputs(self) -> Outputs:
        """The outputs of a pass that only compares."""
        sinks: dict[Kind, list[UnitSink]] = defaultdict(list)
        for comparison in self.of_queues:
            sinks[comparison.kind].append(comparison)
        return Outputs(sinks, self.index)

    @property
    def of_queues(self) -> list[Comparison | RowComparison]:
        """Those of queues, in files and in RocksDB."""
        return [*self.queues.values(), *self.rows.values()]

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


def learn_fields(source: RebuildSource, comparisons: Comparisons, plan: RebuildPlan) -> bool:
    """Judge what a pass found different, once; whether records have damaged fields, so that it has to begin again.

    A rebuild in the order of a broker, or of queues that are not to be believed, takes the log as it is. Queues are
    witnesses where only the index is rebuilt, too.
    """
    options = source.options
    if source.damages is not None or options.order != "stored" or options.anew:
        return False
    suspects = Suspects()
    if "queues" in options.parts:
        _add_suspects(suspects, source, comparisons, plan.derived)
    elif any(file.action != "keep" for file in plan.index) and not source.snapshot.leaves_queues_out:
        with suppress(UnreadableError):  # then they show nothing
            _add_suspects_of_queues(suspects, source)
    if comparisons.index:
        suspects.extend(comparisons.index.suspects)
    task = run_task(source)
    existing, rows = source.existing["simple"], source.rows if source.places.rocksdb else None

    def place_of(name: QueueName, queue_offset: int) -> int | None:
        """The physical offset in the unit of a queue offset."""
        unit = existing.unit_at(name, queue_offset)
        if unit is None and rows is not None:
            unit = rows.unit_at(name, queue_offset)
        return None if unit is None else int(unit["physical_offset"])

    dispatcher = Dispatcher(task.rules, source.batch_topics)
    topics = {name.topic for name in _names(source) | plan.derived} | {*source.snapshot.topics.by_name}
    source.damages = FieldJudge(task.files, dispatcher, place_of, topics).damages(suspects)
    return bool(source.damages)


def _add_suspects(suspects: Suspects, source: RebuildSource, comparisons: Comparisons, derived: set[QueueName]) -> None:
    """Add what the queues contradict; the pass has derived some of them."""
    for comparison in comparisons.of_queues:
        for name in _names(source) - derived:
            comparison.add_untouched(name)
        suspects.extend(comparison.suspects)


def _add_suspects_of_queues(suspects: Suspects, source: RebuildSource) -> None:
    """Compare the queues in a pass of their own, and add what they contradict."""
    options = replace(source.options, parts=frozenset({"queues"}), selection=QueueSelection(), neutralise=False)
    queues, derivation = source_of(source.snapshot, options, source.releases), None
    with closing(queues):
        while derivation is None:
            with closing(Comparisons(queues)) as comparisons:
                derivation = derive(queues, comparisons.outputs(), no_progress)
                if derivation:
                    _add_suspects(suspects, queues, comparisons, plan_of(queues, derivation, comparisons).derived)


def _names(source: RebuildSource) -> set[QueueName]:
    return {QueueName(queue.topic, queue.queue_id) for queue in source.snapshot.queues}


Action = Literal["create", "replace", "keep"]


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """The change of one queue; `min_offset` and `max_offset` are those after the rebuild."""

    name: QueueName
    kind: QueueKind
    action: Action
    min_offset: int
    max_offset: int
    difference: QueueDifference = field(default_factory=QueueDifference)
    has_messages: bool = True  # whether the log holds messages of it
    lacks_log_messages: bool = False  # whether it has units that point into the log, which holds no message of it
    neutral: int = 0  # units that stand for lost messages

    @property
    def units(self) -> int:
        """Queue offsets from the minimum on, for a batch queue messages."""
        return max(0, self.max_offset - self.min_offset)


@dataclass(frozen=True)
class IndexFilePlan:
    """The change of one index file."""

    name: str
    action: Literal["create", "replace", "keep", "remove"]


@dataclass(frozen=True)
class MovedConsumer:
    """A group whose committed offset means another message afterwards; physical offsets, None for no message."""

    committed: CommittedOffset
    physical_offset_before: int
    physical_offset_after: int | None


@dataclass(frozen=True)
class RebuildPlan:
    """All changes of a rebuild, and its findings."""

    source: RebuildSource
    queues: list[QueuePlan]
    index: list[IndexFilePlan]
    index_units: int
    lost: LostExtents
    consumers_moved: list[MovedConsumer]
    backup_bytes: int
    last_record: tuple[int, int]  # physical offset and store timestamp of the log's last record, -1 without one
    findings: list[Finding]
    patches: list[Patch] = field(default_factory=list)
    undecided: int = 0  # units and files that depend on the release, which is not known
    conversion: Conversion | None = None
    foreign_rows: int = 0  # of the database, which is written again without them

    @property
    def options(self) -> RebuildOptions:
        """The options that the plan was made with."""
        return self.source.options

    @property
    def is_empty(self) -> bool:
        """Whether nothing has to change."""
        converts = self.conversion is not None and not self.conversion.is_empty
        changes = self.changed_queues or self.patches or converts or self.foreign_rows
        return not changes and all(file.action == "keep" for file in self.index)

    @property
    def changed_queues(self) -> list[QueuePlan]:
        """The queues that change."""
        return [queue for queue in self.queues if queue.action != "keep"]

    @property
    def derived(self) -> set[QueueName]:
        """The queues of which the log holds messages."""
        return {queue.name for queue in self.queues if queue.has_messages}

    @property
    def changes_database(self) -> bool:
        """Whether the database of the queues is written again."""
        return self.foreign_rows > 0 or any(queue.kind == "rocksdb" for queue in self.changed_queues)

    @property
    def written_kinds(self) -> set[Sized]:
        """The kinds of the files that are written."""
        return _written_kinds(self.queues, self.index)

    @property
    def without_messages(self) -> list[QueuePlan]:
        """The queues that stay as they are, since the log holds no message of them."""
        return [queue for queue in self.queues if not queue.has_messages and not queue.difference.remove]

    def require_release(self) -> None:
        """Raise UsageError where the result depends on a release, or on delays, that no option names."""
        if self.undecided:
            needed = next(finding.message for finding in self.findings if finding.code == "rebuild.version-needed")
            raise UsageError(needed, hint="name the release with --broker-version; nothing was changed")
        if self.source.snapshot.store.conf.path is None and any(map(self._assumes_delay, self.changed_queues)):
            raise UsageError(
                "delivery times of delayed messages follow from messageDelayLevel, which no row shows any more",
                hint="give the broker's configuration with --broker-conf FILE; an empty file means a broker with "
                "default settings. Nothing was changed",
            )

    def _assumes_delay(self, queue: QueuePlan) -> bool:
        """Whether rows of delayed messages are written where no row, nor a file of the queue, shows their delay."""
        rows = self.source.rows
        is_new = queue.kind == "rocksdb" or (self.conversion and not self.source.file_queues)
        if not is_new or queue.name.topic != SCHEDULE_TOPIC or (queue.name in rows.lasts and rows.problem is None):
            return False
        return rows.problem is not None or queue.name.queue_id + 1 not in observed_delays(self.source.snapshot.store)

    @property
    def is_lossy(self) -> bool:
        """Whether some of the log is lost in the result."""
        return self.lost.is_lossy or any(finding.severity == "error" for finding in self.findings)


def make_plan(source: RebuildSource, progress: Progress = no_progress) -> RebuildPlan:
    """Derive queues and index from the log, and compare them with the store.

    Where only the release decides about keys, older rules are tried too: an index that fits them is kept.
    """
    plan = _compared(source, progress)
    releases = source.releases.narrow("keys-without-separator", before=VALUES_MAY_HOLD_SEPARATOR)
    if not plan.undecided or plan.changed_queues or releases == source.releases:
        return plan
    older = _compared(source_of(source.snapshot, source.options, releases), progress)
    return older if older.is_empty else plan


def _compared(source: RebuildSource, progress: Progress) -> RebuildPlan:
    with closing(source):
        while True:
            with closing(Comparisons(source)) as comparisons:
                derivation = derive(source, comparisons.outputs(), progress)
                if derivation is None:
                    continue
                plan = plan_of(source, derivation, comparisons)
                if not learn_fields(source, comparisons, plan):
                    return plan


def plan_of(source: RebuildSource, derivation: Derivation, comparisons: Comparisons) -> RebuildPlan:
    """The plan from a finished pass and its comparisons."""
    patches = patches_of(derivation.lost, source.snapshot.log.files) if source.options.neutralise else []
    queues = list(_queue_plans(source, derivation, comparisons))
    if source.options.neutralise and not comparisons.rows:
        dummies = _dummies(derivation.lost, patches)
        kept = {*derivation.queues, *_gone_on_with(source)} if len(dummies) else ()
        queues = [queue if queue.name in kept else _emptied(source, queue, dummies) for queue in queues]
    require_all(source, derivation)
    found = {queue.name for queue in queues if queue.has_messages}
    conversion = conversion_of(source, found, comparisons.left_out)
    queues = sorted(_with_carried(queues, conversion), key=lambda queue: (queue.name, queue.kind))
    has_log = derivation.last_physical_offset >= 0
    index = list(_index_plans(comparisons.index, derivation.index.names if derivation.index else [], has_log=has_log))
    releases, changed = source.releases, [queue for queue in queues if queue.action != "keep"]
    undecided = undecided_units(releases, derivation, comparisons.simple, [queue.name for queue in changed])
    if any(queue.kind == "rocksdb" for queue in changed):
        undecided.update(comparisons.undecided_rows)
    undecided_keys = derivation.has_optional_keys and any(file.action != "keep" for file in index)
    undecided_keys = undecided_keys and releases.differ_by(VALUES_MAY_HOLD_SEPARATOR)
    foreign = source.rows.foreign(found) if comparisons.rows and source.options.selection.is_all else 0
    return RebuildPlan(
        source=source,
        queues=queues,
        index=index,
        index_units=derivation.index.units if derivation.index else 0,
        lost=derivation.lost,
        consumers_moved=list(_moved_consumers(source, comparisons.simple, queues)),
        backup_bytes=_backup_bytes(source, queues, index, foreign) + patched_bytes(patches),
        last_record=(derivation.last_physical_offset, derivation.last_store_timestamp),
        findings=[
            *source.findings,
            *assumed_findings(source.sizes, _written_kinds(queues, index)),
            *derivation_findings(derivation, source.snapshot.store.root),
            *no_messages_findings(
                [queue.name for queue in queues if queue.lacks_log_messages], has_index=bool(index) and not has_log
            ),
            *start_findings(source, derivation),
            *(
                finding("commitlog.field", store=source.snapshot.store.root, **each.facts)
                for each in source.damages or ()
            ),
            *patch_findings(patches),
            *undecided_findings(releases, undecided, index=undecided_keys),
            *row_findings(source.rows, foreign, source.snapshot.store),
            *(conversion.findings if conversion else ()),
        ],
        patches=[patch for patch in patches if patch.is_possible],
        undecided=undecided.total() + undecided_keys,
        conversion=conversion,
        foreign_rows=foreign,
    )


def _with_carried(queues: list[QueuePlan], conversion: Conversion | None) -> Iterator[QueuePlan]:
    """The plans of queues, and those of the queues whose ends a conversion carries over."""
    carried = {queue.name: queue for queue in conversion.carried} if conversion else {}
    yield from (queue for queue in queues if queue.name not in carried)
    for name, queue in carried.items():
        kind: QueueKind = "rocksdb" if conversion and conversion.target == "rocksdb" else queue.kind
        end = queue.last.queue_offset + 1
        yield QueuePlan(name, kind, "create", end, end, has_messages=False)


def _written_kinds(queues: Iterable[QueuePlan], index: Iterable[IndexFilePlan]) -> set[Sized]:
    queue_kinds: set[Sized] = {queue.kind for queue in queues if queue.action != "keep" and queue.kind != "rocksdb"}
    return queue_kinds | ({"index"} if any(file.action in ("create", "replace") for file in index) else set())


def _queue_plans(source: RebuildSource, derivation: Derivation, comparisons: Comparisons) -> Iterator[QueuePlan]:
    done: set[tuple[QueueName, QueueKind]] = set()
    placements: dict[Kind, SimpleQueues | BatchQueues | None] = {"simple": derivation.simple, "batch": derivation.batch}
    for comparison in comparisons.of_queues:
        placement = placements[comparison.kind]
        for queue, name in enumerate(derivation.queues if placement else ()):
            if placement and placement.end(queue) >= 0 and comparison.takes(name):
                done.add((name, comparison.place))
                yield _derived(source, comparison, placement, queue, name)
    for existing in source.file_queues if comparisons.queues else ():
        name = QueueName(existing.topic, existing.queue_id)
        if (name, existing.kind) not in done and _stays(source, name):
            yield _untouched(source, existing, name)
    for name in source.rows.lasts if comparisons.rows else ():
        if (name, "rocksdb") not in done and _stays(source, name):
            yield _untouched_rows(source, name)


def _stays(source: RebuildSource, name: QueueName) -> bool:
    return source.options.selection.takes(*name) and source.keeps(name)


def _derived(
    source: RebuildSource,
    comparison: Comparison | RowComparison,
    placement: SimpleQueues | BatchQueues,
    queue: int,
    name: QueueName,
) -> QueuePlan:
    neutral = 0
    if isinstance(placement, SimpleQueues):
        low, high, neutral = placement.first_message(queue), placement.end(queue), placement.irregular[queue].neutral
        if placement.irregular[queue].jump and isinstance(comparison, RowComparison):
            return _untouched_rows(source, name)
        if placement.irregular[queue].jump:
            old = source.existing[comparison.kind].queues.get(name)
            return _untouched(source, old.queue if old else None, name)
    else:
        low, high = placement.ranges[queue]
    if isinstance(comparison, RowComparison):
        low, high = comparison.firsts[name], comparison.lasts[name].queue_offset + 1
    difference = comparison.difference(name, placement.first(queue), placement.end(queue))
    action: Action = "keep" if difference.is_none else "replace" if comparison.has(name) else "create"
    return QueuePlan(name, comparison.place, action, low, high, difference, neutral=neutral)


def _untouched_rows(source: RebuildSource, name: QueueName) -> QueuePlan:
    """The plan of a queue in RocksDB that is carried over as it is."""
    last = source.rows.lasts.get(name, NO_UNIT)
    lacks_messages = last.queue_offset >= 0 and last.physical_offset >= max(source.snapshot.log_min_offset, 1)
    end = last.queue_offset + 1
    return QueuePlan(name, "rocksdb", "keep", end, end, has_messages=False, lacks_log_messages=lacks_messages)


def _untouched(source: RebuildSource, existing: Queue | None, name: QueueName) -> QueuePlan:
    """The plan of a queue without messages in the log: they are deleted, or the topic was."""
    if existing is None:
        return QueuePlan(name, "simple", "keep", 0, 0, has_messages=False)
    now = queue_range(existing, source.snapshot.log_min_offset, source.version)
    lacks_messages = (now.last_physical_offset or 0) >= max(source.snapshot.log_min_offset, 1)
    return QueuePlan(name, existing.kind, "keep", now.min_offset, now.max_offset, has_messages=False,
                     lacks_log_messages=lacks_messages)  # fmt: skip


def _dummies(lost: LostExtents, patches: Iterable[Patch]) -> NDArray[np.int64]:
    """Where dummy records stand in the log, or are about to: where each begins, and where it ends."""
    known = [(each.physical_offset, each.size) for each in lost.extents if each.reason == NEUTRALISED]
    known += [(each.physical_offset, each.size) for each in patches if each.is_possible]
    return np.array([(start, start + size) for start, size in sorted(known)], np.int64).reshape(-1, 2)


def _emptied(source: RebuildSource, queue: QueuePlan, dummies: NDArray[np.int64]) -> QueuePlan:
    """The plan of a queue, without its files where all of its units lead to dummy records, which consumers would get.

    It begins again at 0, so it stays where somebody goes on at an offset of it: a group, or a broker itself.
    """
    units, topic = source.existing["simple"].queues.get(queue.name), queue.name.topic
    is_own = is_filled_by_brokers(topic) and not topic.startswith(DEAD_LETTER_PREFIX)
    if queue.has_messages or queue.kind != "simple" or units is None or is_own or not len(dummies):
        return queue
    if source.snapshot.committed.file.problem is not None:
        return queue
    count = 0
    for file in units.files:
        stored = units.units_in(file, 0, units.room_of(file))
        offsets = stored["physical_offset"][units.is_written(stored)]
        at = np.searchsorted(dummies[:, 0], offsets, side="right") - 1
        if (at < 0).any() or (offsets >= dummies[at, 1]).any():
            return queue
        count += len(offsets)
    if not count:
        return queue
    difference = QueueDifference(dropped=count, remove=frozenset(file.start_offset for file in units.files))
    return replace(queue, action="replace", min_offset=0, max_offset=0, difference=difference, lacks_log_messages=False)


def _gone_on_with(source: RebuildSource) -> Iterator[QueueName]:
    """The queues at an offset of which a group goes on."""
    return (QueueName(each.topic, each.queue_id) for each in source.snapshot.committed.offsets if each.offset)


def _index_plans(comparison: IndexComparison | None, names: Sequence[str], *, has_log: bool) -> Iterator[IndexFilePlan]:
    """The change of each index file; none where the log has no message, since it may be stored elsewhere."""
    if comparison is None:
        return
    old = [file.path.name for file in comparison.existing]
    if comparison.matches(names) or not has_log:
        yield from (IndexFilePlan(name, "keep") for name in old)
        return
    yield from (IndexFilePlan(name, "replace" if name in old else "create") for name in names)
    yield from (IndexFilePlan(name, "remove") for name in old if name not in names)


def _moved_consumers(
    source: RebuildSource, comparison: Comparison | RowComparison | None, queues: list[QueuePlan]
) -> Iterator[MovedConsumer]:
    if comparison is None:
        return
    changed = {queue.name for queue in queues if queue.kind != "batch" and queue.action != "keep"}
    for committed in source.snapshot.committed.offsets:
        name = QueueName(committed.topic, committed.queue_id)
        if name not in changed or committed.offset < 0:
            continue
        before = source.existing["simple"].unit_at(name, committed.offset)
        after = comparison.targets.get(name, {}).get(committed.offset)
        if before is not None and int(before["physical_offset"]) != after:
            yield MovedConsumer(committed, int(before["physical_offset"]), after)


def _backup_bytes(source: RebuildSource, queues: list[QueuePlan], index: list[IndexFilePlan], foreign_rows: int) -> int:
    total = 0
    for queue in queues:
        touched = queue.difference.write | queue.difference.remove
        old = source.existing[queue.kind].queues.get(queue.name) if queue.kind != "rocksdb" else None
        total += sum(file.size for file in (old.files if old else ()) if file.start_offset in touched)
    if foreign_rows or any(queue.kind == "rocksdb" and queue.action != "keep" for queue in queues):
        total += sum(size for _, size in source.rows.files())
    replaced = {file.name for file in index if file.action in ("replace", "remove")}
    return total + sum(file.size for file in source.snapshot.index_files if file.path.name in replaced)
