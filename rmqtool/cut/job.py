"""One cut: where the log ends, what goes with it, and the changes of one transaction that make it so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from rmqtool.base.errors import UnsupportedError, UsageError
from rmqtool.base.files import Progress, no_progress
from rmqtool.broker.prediction import StartPrediction
from rmqtool.copy.settle import is_whole, predicted, problems
from rmqtool.cut.files import CutIndex, checkpoint_change, cut_index, epoch_changes, log_changes
from rmqtool.cut.place import At, Place, place_of
from rmqtool.cut.positions import Positions, PositionsAfter, position_changes
from rmqtool.cut.queues import CutQueue, cut_queues, queue_changes
from rmqtool.cut.rows import NewRows, row_stops
from rmqtool.cut.side import pop_changes, side_changes, timers_cut
from rmqtool.cut.tail import Tail, read_tail
from rmqtool.cut.timer import timer_changes
from rmqtool.findings.finding import Finding, counted
from rmqtool.repair.change import Change, TakenOut
from rmqtool.rules.system_topics import TIMER_TOPIC
from rmqtool.store.compaction import list_compacted
from rmqtool.store.dledger_node import EPOCH_FILE
from rmqtool.store.lock import has_abort
from rmqtool.store.rocksdb import is_readable, without_library
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from rmqtool.store.tiered import tier_of
from rmqtool.transaction.transaction import Transaction

_MOST = 20


@dataclass(frozen=True)
class CutRequest:
    """What was asked for; `renumber` allows queues to begin again, `node_only` a node of several."""

    at: At
    renumber: bool = False
    node_only: bool = False


@dataclass(frozen=True)
class CutPlan:
    """What a cut does; offsets are bytes of the log."""

    place: Place
    end_before: int
    tail: Tail
    queues: tuple[CutQueue, ...]
    index: CutIndex
    positions: Positions
    changes: tuple[Change, ...]
    is_unclean: bool

    @property
    def by_topic(self) -> Mapping[str, int]:
        """How many messages of each topic go, the most first."""
        counts: Counter[str] = Counter()
        for queue in self.queues:
            counts[queue.name.topic] += queue.messages
        return dict(counts.most_common())

    @property
    def files_deleted(self) -> int:
        """How many files and directories are taken out."""
        return sum(len(change.details) for change in self.changes if isinstance(change, TakenOut))

    def stage(self, transaction: Transaction) -> None:
        """Stage all changes; raises UnwritableError."""
        transaction.require_space(sum(change.size for change in self.changes))
        for change in self.changes:
            change.stage(transaction)


class CutJob:
    """A cut of the store of a snapshot; raises UsageError, UnsupportedError for what cannot be done."""

    def __init__(self, snapshot: Snapshot, request: CutRequest) -> None:
        self._snapshot, self._request = snapshot, request

    @cached_property
    def place(self) -> Place:
        """Where the log ends then."""
        self._require_alone()
        self._require_rocksdb()
        return place_of(self._snapshot, self._request.at)

    @property
    def size(self) -> int:
        """How much of the log goes, bytes."""
        return self._snapshot.log_range.max_offset - self.place.offset

    def plan(self, progress: Progress = no_progress) -> CutPlan:
        """What it would do, after one reading of what goes."""
        snapshot, place = self._snapshot, self.place
        tail = read_tail(snapshot, place.offset, progress)
        queues = tuple(cut_queues(snapshot, place.offset))
        self._require_possible(queues, tail)
        index = cut_index(snapshot, place)
        positions = PositionsAfter(snapshot, queues, tail).found()
        changes = tuple(self._changes(place, tail, queues, index, positions))
        is_unclean = has_abort(snapshot.store.root)
        return CutPlan(place, snapshot.log_range.max_offset, tail, queues, index, positions, changes, is_unclean)

    def _changes(
        self, place: Place, tail: Tail, queues: Sequence[CutQueue], index: CutIndex, positions: Positions
    ) -> Iterator[Change]:
        """All changes in their order: what leads to messages before these, the log last."""
        snapshot, store = self._snapshot, self._snapshot.store
        yield from position_changes(snapshot, positions)
        timer = next((each.max_after for each in queues if each.name.topic == TIMER_TOPIC), None)
        rows = timers_cut(snapshot, place.offset, timer, tail)
        yield from timer_changes(snapshot, place.offset, rows.queue_offset if rows else timer, tail)
        yield from index.changes
        yield from side_changes(snapshot, place, tail, rows)
        yield from pop_changes(snapshot, queues)
        yield from queue_changes(store, queues)
        database = snapshot.database
        stops = row_stops(database, place.offset) if database is not None else {}
        if database is not None and stops:
            what = f"{database.path.name}: {counted(len(stops), 'queue')} written again without the deleted rows"
            yield NewRows(codes=frozenset(), what=what, directory=database.path, database=database, stops=stops,
                          end=place.offset)  # fmt: skip
        yield from epoch_changes(snapshot, place)
        yield from checkpoint_change(snapshot, place, index.end_timestamp)
        yield from log_changes(snapshot, place)

    def _require_alone(self) -> None:
        """Raise UsageError where another node would bring back what is cut."""
        store = self._snapshot.store
        is_replica = (store.root / EPOCH_FILE).exists() or (store.conf.text("brokerRole") or "").upper() == "SLAVE"
        if is_replica and not self._request.node_only:
            raise UsageError(
                "one node of several: a replica in sync would bring back the deleted messages",
                file=store.root, hint="cut all of them at the same offset, each with --node-only",
            )  # fmt: skip

    def _require_rocksdb(self) -> None:
        store = self._snapshot.store
        if (store.reads_only_rocksdb or store.layout == "rocksdb" or store.writes_queues_twice) and not is_readable():
            raise without_library(store.root)

    def _require_possible(self, queues: Sequence[CutQueue], tail: Tail) -> None:
        """Raise UnsupportedError for what would lead past the end, and UsageError for queues that begin again."""
        store, topics = self._snapshot.store, {each.name.topic for each in queues}
        anew = [each.name for each in queues if each.begins_again]
        if anew and not self._request.renumber:
            raise UsageError(
                f"{len(anew)} queues would have no message left, such as {anew[0].topic}, queue {anew[0].queue_id}: "
                "their next message would get queue offset 0 again, below the committed offsets of groups",
                file=store.root, hint="cut later, or add --renumber",
            )  # fmt: skip
        compacted = {each.topic for each in list_compacted(store)[0]} & topics
        if compacted:
            raise UnsupportedError(f"topic {min(compacted)} is compacted, and its compacted log may have deleted "
                                   "messages", file=store.root)  # fmt: skip
        if tail.records and tier_of(store) is not None:
            raise UnsupportedError("tiered storage may have deleted messages", file=store.root)


@dataclass(frozen=True)
class CutProof:
    """The starts that were predicted for the store as it is then, and what is wrong with them."""

    starts: tuple[StartPrediction, ...]
    findings: tuple[Finding, ...]

    @property
    def is_proven(self) -> bool:
        """Whether each start serves all, and ends the log where it was cut."""
        return bool(self.starts) and all(map(is_whole, self.starts))


def proof_of(snapshot: Snapshot) -> CutProof:
    """Predict the next start of the store of a snapshot, as it is now."""
    store = open_store(snapshot.store.root, snapshot.store.conf)
    starts = tuple(predicted(store, snapshot.releases))
    findings = tuple(problems(store, starts))[:_MOST]
    return CutProof(starts, findings)
