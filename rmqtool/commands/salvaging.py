"""The new store of a salvage, written step by step under progress bars."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rmqtool.base.errors import ChangedError, RmqtoolError, UnsupportedError
from rmqtool.commands.filter_options import filter_words
from rmqtool.commands.new_stores import cut_moved, derive
from rmqtool.show.output import Style

if TYPE_CHECKING:
    from rmqtool.base.mapped_files import MappedFile
    from rmqtool.broker.dispatched_units import QueueName
    from rmqtool.rebuild.options import RebuildOptions
    from rmqtool.rebuild.plan import RebuildPlan
    from rmqtool.rules.broker_conf import BrokerConf
    from rmqtool.salvage.carry_over import Carried
    from rmqtool.salvage.new_store import NewStore
    from rmqtool.salvage.plan import SalvagePlan
    from rmqtool.salvage.selected_log import SelectedLog
    from rmqtool.show.salvage_result import Choice, Salvaged
    from rmqtool.store.store import Store
    from rmqtool.transaction import Loss


@dataclass(frozen=True)
class Stores:
    """The stores, the one whose queues count, and what is taken from them beside the log."""

    all: Sequence[Store]
    main: Store | None
    carried: Sequence[Carried]


def require_movable(stores: Sequence[Store], *, is_numbered_anew: bool) -> None:
    """Raise UnsupportedError for committed offsets in RocksDB that would have to change."""
    from rmqtool.store.store import rocksdb_configs

    for store in stores if is_numbered_anew else ():
        for name in rocksdb_configs(store):
            raise UnsupportedError(
                "committed offsets are in RocksDB, and cannot be moved to queue offsets that are counted again",
                file=store.root / name,
                hint="--queue-offsets keep leaves them as they are",
            )


@dataclass(frozen=True)
class Making:
    """A new store that is being made of a plan."""

    style: Style
    plan: SalvagePlan
    stores: Stores
    new: NewStore
    conf: BrokerConf
    options: RebuildOptions

    def make(self) -> Salvaged:
        """Write all saved messages in their places, and what belongs to them."""
        from rmqtool.rebuild.losses import loss_of
        from rmqtool.salvage.carry_over import carried_bytes, carry_over
        from rmqtool.salvage.loss_record import COMMAND
        from rmqtool.salvage.write_log import write_log
        from rmqtool.show.progress import byte_progress
        from rmqtool.show.salvage_result import Salvaged
        from rmqtool.store.store import COMMIT_LOG

        if self.plan.layout.is_moved:
            return self._make_moved()
        plan, new, stores = self.plan, self.new, self.stores
        new.require_space(plan.needed + carried_bytes(stores.all, stores.carried))
        with byte_progress("writing the commit log", plan.size, style=self.style) as progress:
            write_log(plan, new.directory / COMMIT_LOG, self.options.limit, progress.update)
        problems = carry_over(stores.all, stores.carried, new.directory)
        rebuild, left_out = self._derive(stores.main, self.options)
        problems += left_out
        self._keep_losses(loss_of(rebuild, COMMAND), rebuild)
        return Salvaged(plan, self._carried(problems), rebuild)

    def _make_moved(self) -> Salvaged:
        """Write all saved messages of a DLedger log, which move, and what belongs to them."""
        from rmqtool.base.files import ReadPolicy
        from rmqtool.salvage.carry_over import carried_bytes, carry_over
        from rmqtool.salvage.for_conversion import without_offsets
        from rmqtool.salvage.moved_log import write_saved
        from rmqtool.show.progress import byte_progress
        from rmqtool.show.salvage_result import Salvaged
        from rmqtool.store.store import COMMIT_LOG

        plan, new, stores = self.plan, self.new, self.stores
        carried, not_carried = without_offsets(stores.carried)
        main = self._ordinary
        new.require_space(plan.needed + carried_bytes(stores.all, carried))
        with byte_progress("writing the commit log", plan.size, style=self.style) as progress:
            moved = write_saved(plan, new.directory / COMMIT_LOG, ReadPolicy(self.options.limit), progress.update)
        problems = carry_over(stores.all, carried, new.directory)
        rebuild, left_out = self._derive(main, replace(self.options, moved_from=self._old_log), moved_from=moved.start)
        problems += left_out
        self._keep_losses(None, rebuild, moved.filled)  # old units and keys lead to places of another log
        whole = [*(each for each in carried if not each.problem), *problems]
        return Salvaged(plan, whole, rebuild, not_carried=not_carried, moved=moved)

    @property
    def _ordinary(self) -> Store | None:
        """The main store as one with the new log."""
        from rmqtool.salvage.for_conversion import as_ordinary

        main = self.stores.main
        return as_ordinary(main) if main and main.dledger_directory else main

    @property
    def _old_log(self) -> Sequence[MappedFile]:
        """The files of the main store's log; none where they cannot be listed."""
        from rmqtool.store.snapshot import Snapshot

        with suppress(RmqtoolError):
            return Snapshot(self.stores.main).log.files if self.stores.main else ()
        return ()

    def make_chosen(self, choice: Choice) -> Salvaged:
        """Write a new log of chosen messages, and what belongs to them."""
        from rmqtool.rebuild.selection import QueueSelection
        from rmqtool.salvage.carry_over import carried_bytes, carry_over
        from rmqtool.salvage.for_rebuild import with_delays
        from rmqtool.salvage.selected_log import needed_bytes
        from rmqtool.show.salvage_result import Salvaged

        chosen, selection, stores = choice.chosen, choice.selection, self.stores
        self.new.require_space(needed_bytes(chosen, selection) + carried_bytes(stores.all, stores.carried))
        problems = carry_over(stores.all, stores.carried, self.new.directory)
        log = self._write_chosen(choice)
        filters = selection.effective_filters
        untouched = QueueSelection(filters.topic_choice, frozenset(filters.queue_ids))
        left_out = self.plan.records - chosen.messages
        is_new = selection.queue_offsets == "new"
        main = self._ordinary and with_delays(self._ordinary)
        options = replace(self.options, left_out=left_out, untouched=untouched, anew=is_new, moved_from=self._old_log)
        rebuild, unread = self._derive(main, options)
        problems += unread
        self._fit_config(choice, log, rebuild)
        self._keep_losses(None, None)
        self._keep_choice(choice)
        return Salvaged(self.plan, self._carried(problems), rebuild, replace(choice, log=log))

    def _carried(self, problems: Sequence[Carried]) -> list[Carried]:
        return [*(each for each in self.stores.carried if not each.problem), *problems]

    def _write_chosen(self, choice: Choice) -> SelectedLog:
        from rmqtool.base.files import ReadPolicy
        from rmqtool.salvage.moved_config import committed_offsets, timer_read_until
        from rmqtool.salvage.selected_log import write_selected
        from rmqtool.show.progress import byte_progress
        from rmqtool.store.store import COMMIT_LOG, CONFIG
        from rmqtool.transaction.selections import OFFSET_MAP

        directory, chosen = self.new.directory, choice.chosen
        config = directory / CONFIG
        with byte_progress("writing the commit log", chosen.size, style=self.style) as progress:
            return write_selected(
                self.plan,
                chosen,
                choice.selection,
                directory / COMMIT_LOG,
                directory / OFFSET_MAP,
                committed_offsets(config),
                timer_read_until(config),
                ReadPolicy(self.options.limit),
                progress.update,
            )

    def _derive(
        self, main: Store | None, options: RebuildOptions, moved_from: int | None = None
    ) -> tuple[RebuildPlan, list[Carried]]:
        """Write queues, index and checkpoint of the new log; raises ChangedError where it is not what was planned.

        After the plan come the queues that are left out. With `moved_from` messages from that offset on were elsewhere
        before: no unit may lead there.
        """
        from rmqtool.salvage.for_rebuild import rebuild_sources, write_checkpoint
        from rmqtool.store.store import open_store

        new = self.new
        sources = rebuild_sources(main, new.directory, self.conf)
        plan, left_out = derive(self.style, self.stores.main, sources, new, options)
        if plan.lost.is_lossy:
            raise ChangedError("the sources have changed while they were read: nothing is written")
        if moved_from is not None:
            cut_moved(plan, new.derived, moved_from)
        new.adopt_derived()
        write_checkpoint(open_store(new.directory), main, plan.last_record, options.version)
        return plan, left_out

    def _fit_config(self, choice: Choice, log: SelectedLog, rebuild: RebuildPlan) -> None:
        """Topics of the choice only, and committed offsets that do not lie past the end of their queues."""
        from rmqtool.salvage.moved_config import fit_config
        from rmqtool.store.store import CONFIG

        topics = choice.selection.effective_filters.topic_choice
        ends = {queue.name: queue.max_offset for queue in rebuild.queues}

        def moved(name: QueueName, offset: int) -> int | None:
            if name not in ends:
                return 0 if name.topic in topics else None
            return min(log.moved(name, offset), ends[name])

        is_new = choice.selection.queue_offsets == "new"
        fit_config(self.new.directory / CONFIG, topics, moved, log.first_timer, is_numbered_anew=is_new)

    def _keep_losses(
        self, derived: Loss | None, rebuild: RebuildPlan | None, filled: Sequence[tuple[int, int]] | None = None
    ) -> None:
        from rmqtool.salvage.loss_record import losses_of
        from rmqtool.transaction import keep_losses

        findings = rebuild.findings if rebuild else ()
        losses = losses_of(self.plan, derived, findings, self.stores.all, filled)
        if losses:
            keep_losses(self.new.directory, losses)

    def _keep_choice(self, choice: Choice) -> None:
        from rmqtool.transaction.selections import ChoiceRecord, keep_choice

        selection = choice.selection
        record = ChoiceRecord(
            "salvage",
            int(time.time() * 1000),
            self.plan.inputs.names,
            tuple(filter_words(selection.filters)),
            selection.queue_offsets,
            choice.chosen.messages,
            self.plan.records,
            choice.chosen.end,
        )
        keep_choice(self.new.directory, record)
