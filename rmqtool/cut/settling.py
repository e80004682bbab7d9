"""A store whose broker was killed becomes one that stopped cleanly, once it is proven that its start loses nothing.

A start after a crash deletes the newest index file and derives again what queues and index have; releases from 5.4.0 on
look at ten files of the log at most. After a clean stop it keeps all keys, and reads less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rmqtool.base.errors import UnsupportedError
from rmqtool.base.files import Progress
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.copy.log_end import LogEnd, proven_end
from rmqtool.copy.settle import settled_fields
from rmqtool.cut.job import CutJob, CutProof, CutRequest, proof_of
from rmqtool.cut.place import At
from rmqtool.cut.positions import Positions, position_changes
from rmqtool.cut.rows import GroupQueue
from rmqtool.findings.finding import counted
from rmqtool.rebuild.apply import stage_plan
from rmqtool.rebuild.options import Part, RebuildOptions
from rmqtool.rebuild.plan import RebuildPlan, make_plan
from rmqtool.rebuild.source import open_source, record, require_known_sizes
from rmqtool.repair.change import Change, FileChange
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.store.checkpoint import checkpoint_file
from rmqtool.store.index_files import list_index_files
from rmqtool.store.lock import ABORT_FILE, has_abort
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CHECKPOINT
from rmqtool.transaction.home import Recovered
from rmqtool.transaction.transaction import Transaction
from rmqtool.transaction.undo import CONTINUED

_REPAIR = "repair"


@dataclass
class Settling:
    """What is done to a store: sentences, the transactions, and the proof; `units` were missing in queues."""

    what: list[str] = field(default_factory=list)
    transactions: list[str] = field(default_factory=list)
    recovered: list[Recovered] = field(default_factory=list)
    units: int = 0
    proof: CutProof | None = None


class SettleJob:
    """The settling of a store, each step seen anew by `opened`; `options` are noted for undo."""

    def __init__(self, opened: Callable[[], Snapshot], *, jobs: int = 1, options: tuple[str, ...] = ()) -> None:
        self._opened, self._jobs, self._options = opened, jobs, options
        self._done = Settling()

    def plan(self, progress: Progress) -> Settling:
        """What would be done, as far as it shows before; raises UnsupportedError, UsageError."""
        snapshot = self._opened()
        end = self._proven_end(snapshot)
        self._done.what += [change.what for change in self._cut(snapshot, end)]
        rebuild = self._rebuild_plan(snapshot, None, progress)
        self._note(rebuild)
        self._done.what += [change.what for change in self._last_changes(snapshot, end, rebuild)]
        return self._done

    def settle(self, progress: Progress) -> Settling:
        """Do it, in up to three transactions; `abort` goes with the last of them."""
        with self._transaction() as transaction:
            snapshot = self._opened()
            end = self._proven_end(snapshot)
            changes = self._cut(snapshot, end)
            self._stage(transaction, changes)
        with self._transaction() as transaction:
            snapshot = self._opened()
            rebuild = self._rebuild_plan(snapshot, transaction, progress)
            self._note(rebuild)
            if not rebuild.is_empty:
                stage_plan(rebuild, transaction, progress)
                self._commit(transaction)
        with self._transaction() as transaction:
            snapshot = self._opened()
            self._stage(transaction, [*self._last_changes(snapshot, end, rebuild)])
            self._done.proof = proof_of(self._opened())
        return self._done

    @contextmanager
    def _transaction(self) -> Iterator[Transaction]:
        command = f"{_REPAIR}{CONTINUED}" if self._done.transactions else _REPAIR
        with Transaction(self._opened().store, command, options=self._options) as transaction:
            self._done.recovered += transaction.recovered
            yield transaction

    def _stage(self, transaction: Transaction, changes: list[Change]) -> None:
        transaction.require_space(sum(change.size for change in changes))
        for change in changes:
            change.stage(transaction)
        if changes:
            self._done.what += [change.what for change in changes]
            self._commit(transaction)

    def _commit(self, transaction: Transaction) -> None:
        done = transaction.commit().id
        if done:
            self._done.transactions.append(done)

    def _proven_end(self, snapshot: Snapshot) -> LogEnd:
        end = proven_end(snapshot.log.files, RecoveryRules.of(snapshot.release, snapshot.store.conf))
        if end.is_damaged:
            raise UnsupportedError(
                f"the log is damaged at {end.end}, and readable messages follow: it is not settled",
                file=snapshot.store.root, hint="rmqtool verify says what is lost there; repair it first",
            )  # fmt: skip
        return end

    def _cut(self, snapshot: Snapshot, end: LogEnd) -> list[Change]:
        """What stands after the end: bytes of the log, entries and keys that lead there."""
        if end.last_record < 0:
            return []
        plan = CutJob(snapshot, CutRequest(At("offset", end.end), renumber=True, node_only=True)).plan()
        return [change for change in plan.changes if getattr(change, "name", None) != CHECKPOINT]

    def _rebuild_plan(self, snapshot: Snapshot, transaction: Transaction | None, progress: Progress) -> RebuildPlan:
        """What queues and index lack; raises where it is not proven that nothing is lost."""
        store = snapshot.store
        parts: set[Part] = {"queues", *(("index",) if list_index_files(store) else ())}
        options = RebuildOptions(frozenset(parts), version=snapshot.version, jobs=self._jobs)
        source = open_source(store, options)
        plan = make_plan(source if transaction is None else record(source, transaction), progress)
        plan.require_release()
        require_known_sizes(store, plan.source.sizes.assumed, plan.written_kinds)
        errors = [each for each in plan.findings if each.severity == "error"]
        if errors or plan.lost.is_lossy:
            why = f"a rebuild reports {errors[0].code}" if errors else "records of the log cannot be read"
            raise UnsupportedError(f"not settled: {why}", file=store.root,
                                   hint="rmqtool verify says what is wrong; repair it first")  # fmt: skip
        return plan

    def _note(self, plan: RebuildPlan) -> None:
        self._done.units += sum(queue.difference.added for queue in plan.changed_queues)
        if plan.changed_queues:
            self._done.what.append(f"{counted(len(plan.changed_queues), 'queue')} completed from the log")
        files = [file for file in plan.index if file.action != "keep"]
        if files:
            self._done.what.append(f"{counted(len(files), 'index file')} written again from the log")

    def _last_changes(self, snapshot: Snapshot, end: LogEnd, plan: RebuildPlan) -> Iterator[Change]:
        """Offsets past their queues, the checkpoint, and `abort`."""
        is_unclean = has_abort(snapshot.store.root)
        ends = {queue.name: queue.max_offset for queue in plan.queues} if is_unclean else {}
        offsets: dict[GroupQueue, int] = {}
        for each in snapshot.committed.offsets:
            limit = ends.get(QueueName(each.topic, each.queue_id))
            if limit is not None and each.offset > limit:
                offsets[each.group, each.topic, each.queue_id] = limit
        yield from position_changes(snapshot, Positions(offsets))
        fields = settled_fields(snapshot.store, end, snapshot.release)
        if is_unclean and fields != snapshot.checkpoint:
            yield FileChange(codes=frozenset(), what=f"{CHECKPOINT}: everything is complete up to the last message",
                             name=CHECKPOINT, content=checkpoint_file(fields))  # fmt: skip
        if is_unclean:
            yield FileChange(codes=frozenset(), what="abort: removed, so that the next start is one after a clean stop",
                             name=ABORT_FILE, content=None)  # fmt: skip
