"""The options of the two rebuilds, and the request that a command line makes with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

import rmqtool
from rmqtool.base.errors import UsageError
from rmqtool.base.shell import quote
from rmqtool.commands.filter_options import filter_options
from rmqtool.commands.memory_option import memory_option
from rmqtool.commands.options import F, global_options, jobs_option, store_options
from rmqtool.commands.store_path import StorePath
from rmqtool.commands.writing import dry_run_option, older_release_option, saved_plan_options, yes_option
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import Version

if TYPE_CHECKING:
    from rmqtool.base.files import RateLimit
    from rmqtool.rebuild.options import Part, RebuildOptions, Target
    from rmqtool.scan.filters import Filters
    from rmqtool.store.store import Store


def append_order_option(*, hidden: bool = False) -> Callable[[F], F]:
    """``--append-order``; hidden where it has no meaning, and is taken because 1.0.0rc1 had it."""
    return click.option("--append-order", is_flag=True, hidden=hidden,
                        help="Number units in the order in which a broker appends them to empty queues. "
                        "Default: stored queue offsets are kept.")  # fmt: skip


def rebuild_options(command: F) -> F:
    """The options of both rebuilds."""
    path = click.Path(path_type=Path)
    for option in reversed(
        (
            click.argument("path", type=StorePath(), metavar="STORE"),
            filter_options("topic", "exclude-topic", "queue"),
            click.option("--only-damaged", is_flag=True,
                         help="Only what `rmqtool verify` finds wrong: it is run first."),
            click.option("--neutralise", is_flag=True,
                         help="Put dummy records in place of damaged bytes of the log, so that no start of the broker "
                         "ends the log there; the bytes are kept until undo."),
            click.option("-o", "--output", type=path, metavar="DIR",
                         help="Write the files below DIR; the store is only read."),
            dry_run_option,
            saved_plan_options,
            yes_option,
            memory_option,
            jobs_option(),
            older_release_option,
            store_options,
            global_options,
        )
    ):  # fmt: skip
        command = option(command)
    return command


@dataclass
class RebuildRequest:
    """A request for a rebuild: arguments and options by the names that click gives them, and what follows from them.

    Raises UsageError for choices that contradict each other.
    """

    command: str
    part: Part
    path: Path
    filters: Filters
    only_damaged: bool
    append_order: bool
    neutralise: bool
    output: Path | None
    dry_run: bool
    save_plan: Path | None
    plan: Path | None
    jobs: int
    yes: bool
    allow_older_release: bool
    broker_version: Version | None
    broker_conf: BrokerConf
    limit_rate: RateLimit | None
    memory: int | None
    to: Target | None = None
    store: Store = field(init=False)
    options: RebuildOptions = field(init=False)

    def __post_init__(self) -> None:
        from rmqtool.rebuild.options import RebuildOptions
        from rmqtool.rebuild.selection import QueueSelection
        from rmqtool.store.store import require_plain_log

        self._require_consistent()
        self.store = rmqtool.open(self.path, broker_conf=self.broker_conf).snapshot.store
        if self.neutralise:
            require_plain_log(self.store, "--neutralise")
        self.options = RebuildOptions(
            parts=frozenset([self.part]),
            selection=QueueSelection(self.filters.topic_choice, frozenset(self.filters.queue_ids)),
            version=self.broker_version,
            order="broker" if self.append_order else "stored",
            limit=self.limit_rate,
            neutralise=self.neutralise,
            jobs=self.jobs,
            target=self.to,
        )
        if self.plan:
            from rmqtool.rebuild.saved_plan import SavedPlan

            self.options = SavedPlan(self.plan, self.command).options(self.options)

    @property
    def only_shows(self) -> bool:
        """Whether nothing is to be written."""
        return self.dry_run or self.save_plan is not None

    def _require_consistent(self) -> None:
        chooses = bool(self.filters.topic_choice or self.filters.queue_ids)
        selects = chooses or self.only_damaged
        if self.plan and (selects or self.append_order or self.neutralise or self.output or self.only_shows or self.to):
            raise UsageError("--plan carries out what was saved: it cannot be combined with other choices")
        if self.neutralise and (self.output or selects):
            raise UsageError(
                "--neutralise changes the store's log: it cannot be combined with --output, --topic, --queue or "
                "--only-damaged"
            )
        if self.to and (selects or self.neutralise or self.output):
            raise UsageError(
                "--to converts the whole store: it cannot be combined with --output, --topic, --queue, --only-damaged "
                "or --neutralise"
            )
        if self.output and self.only_shows:
            raise UsageError("--output writes at once and leaves the store alone: it cannot be combined with --dry-run")
        if self.part == "index" and chooses and not self.output:
            raise UsageError(
                "an index file holds the keys of all topics: it cannot be rebuilt for some",
                hint="drop --topic and --queue, or write elsewhere with --output DIR",
            )


def command_line(request: RebuildRequest, *more: str) -> str:
    """The command line that carries out the plan that was shown."""
    selection = request.options.selection
    words = ["rmqtool", request.command, str(request.store.root), *more]
    if not more:
        words += [word for topic in selection.topics.wanted for word in ("--topic", topic)]
        words += [word for topic in selection.topics.excluded for word in ("--exclude-topic", topic)]
        words += [word for queue_id in sorted(selection.queue_ids) for word in ("--queue", str(queue_id))]
        words += ["--only-damaged"] if request.only_damaged else []
        words += ["--neutralise"] if request.options.neutralise else []
        words += ["--append-order"] if request.options.order == "broker" else []
        words += ["--to", request.options.target] if request.options.target else []
    words += ["--jobs", str(request.options.jobs)] if request.options.jobs > 1 else []
    words += ["--memory", str(request.memory)] if request.memory is not None else []
    words += ["--broker-version", str(request.options.version)] if request.options.version else []
    words += ["--broker-conf", request.store.conf.path] if request.store.conf.path else []
    return " ".join(map(quote, words))
