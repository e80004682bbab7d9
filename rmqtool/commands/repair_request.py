"""The request for a repair that a command line makes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import rmqtool
from rmqtool.base.errors import UsageError
from rmqtool.library.repeated_options import repeated_options
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import Version

if TYPE_CHECKING:
    from rmqtool.base.files import RateLimit
    from rmqtool.library.store import Store as OpenedStore
    from rmqtool.repair.saved_plan import RepairOptions, SavedRepairPlan
    from rmqtool.store.store import Store


@dataclass
class RepairRequest:
    """The arguments and options of a repair, by the names that click gives them; so many `processes` work."""

    path: Path
    dry_run: bool
    save_plan: Path | None
    plan: Path | None
    keep_offsets: bool
    acknowledge: bool
    jobs: int
    memory: int | None
    yes: bool
    allow_older_release: bool
    broker_version: Version | None
    broker_conf: BrokerConf
    limit_rate: RateLimit | None
    processes: int = field(init=False)
    store: Store = field(init=False)
    options: RepairOptions = field(init=False)
    saved: SavedRepairPlan | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        from rmqtool.repair.saved_plan import RepairOptions, SavedRepairPlan
        from rmqtool.store.store import require_plain_log

        if self.acknowledge and (self.plan or self.keep_offsets or self.save_plan):
            raise UsageError("--acknowledge repairs nothing: no other choice may be made beside it")
        if self.plan and (self.only_shows or self.keep_offsets or self.broker_version):
            raise UsageError("--plan carries out what was saved: it cannot be combined with other choices")
        self.processes = self.jobs
        self.store = rmqtool.open(self.path, broker_conf=self.broker_conf).snapshot.store
        if not self.acknowledge:
            require_plain_log(self.store, "repair")
        self.options = RepairOptions(self.broker_version, self.keep_offsets)
        if self.plan:
            self.saved = SavedRepairPlan(self.plan)
            self.options = self.saved.options

    def reopen(self) -> None:
        """See the store as the last transaction has left it: queues may be in RocksDB again."""
        self.store = rmqtool.open(self.path, broker_conf=self.broker_conf).snapshot.store

    @property
    def opened(self) -> OpenedStore:
        """The store as it was seen last, by the rules of the release that a saved plan may name."""
        from rmqtool.library.store import Store as OpenedStore
        from rmqtool.store.snapshot import Snapshot

        return OpenedStore(Snapshot(self.store, self.options.version, self.limit_rate))

    @property
    def only_shows(self) -> bool:
        """Whether nothing is to be written."""
        return self.dry_run or self.save_plan is not None

    @property
    def words(self) -> tuple[str, ...]:
        """The options that other commands on the store need, too."""
        rate = self.limit_rate.bytes_per_second if self.limit_rate else None
        return repeated_options(self.broker_conf.path, self.options.version, rate, self.jobs, self.memory)
