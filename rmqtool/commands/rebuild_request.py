"""The options of the two rebuilds, and the request that a command line makes with them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from rmqtool.base.errors import UsageError
from rmqtool.commands.options import F, global_options, store_options
from rmqtool.commands.writing import older_release_option, saved_plan_options, yes_option
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import Version

if TYPE_CHECKING:
    from rmqtool.base.files import RateLimit
    from rmqtool.rebuild.options import Part, RebuildOptions
    from rmqtool.store.store import Store


def rebuild_options(command: F) -> F:
    """The options of both rebuilds."""
    path = click.Path(path_type=Path)
    for option in reversed(
        (
            click.argument("path", type=path, metavar="STORE"),
            click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Only this topic; may be repeated."),
            click.option("--queue", "queue_ids", multiple=True, type=click.IntRange(min=0), metavar="ID",
                         help="Only queues with this number; may be repeated."),
            click.option("--only-damaged", is_flag=True,
                         help="Only what `rmqtool verify` finds wrong: it is run first."),
            click.option("--append-order", is_flag=True,
                         help="Number units in the order in which a broker appends them to empty queues. "
                         "Default: stored queue offsets are kept."),
            click.option("--neutralise", is_flag=True,
                         help="Put inert records in place of damaged bytes of the log, so that no start of the broker "
                         "ends the log there; the bytes are kept until undo."),
            click.option("--output", type=path, metavar="DIR",
                         help="Write the files below DIR; the store is only read."),
            click.option("--dry-run", is_flag=True, help="Show the plan; nothing is written."),
            saved_plan_options,
            click.option("-j", "--jobs", type=click.IntRange(min=1, max=256), default=1, show_default=True,
                         metavar="N", help="Read the log with so many processes; the result is the same."),
        )
    ):  # fmt: skip
        command = option(command)
    return yes_option(older_release_option(store_options(global_options(command))))


@dataclass
class RebuildRequest:
    """A request for a rebuild: arguments and options by the names that click gives them, and what follows from them.

    Raises UsageError for choices that contradict each other.
    """

    command: str
    part: Part
    path: Path
    topics: tuple[str, ...]
    queue_ids: tuple[int, ...]
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
    store: Store = field(init=False)
    options: RebuildOptions = field(init=False)

    def __post_init__(self) -> None:
        from rmqtool.rebuild.options import RebuildOptions
        from rmqtool.rebuild.saved_plan import SavedPlan
        from rmqtool.rebuild.selection import QueueSelection
        from rmqtool.store.store import open_store

        self._require_consistent()
        self.store = open_store(self.path, self.broker_conf)
        self.options = RebuildOptions(
            parts=frozenset([self.part]),
            selection=QueueSelection(frozenset(self.topics), frozenset(self.queue_ids)),
            version=self.broker_version,
            order="broker" if self.append_order else "stored",
            limit=self.limit_rate,
            neutralise=self.neutralise,
            jobs=self.jobs,
        )
        if self.plan:
            self.options = SavedPlan(self.plan, self.command).options(self.options)

    @property
    def only_shows(self) -> bool:
        """Whether nothing is to be written."""
        return self.dry_run or self.save_plan is not None

    def _require_consistent(self) -> None:
        selects = self.topics or self.queue_ids or self.only_damaged
        if self.plan and (selects or self.append_order or self.neutralise or self.output or self.only_shows):
            raise UsageError("--plan carries out what was saved: no other choice may be made beside it")
        if self.neutralise and (self.output or selects):
            raise UsageError("--neutralise changes the store's log, for all of its queues: no choice goes with it")
        if self.output and self.only_shows:
            raise UsageError("--output writes at once and leaves the store alone: --dry-run does not go with it")
        if self.part == "index" and (self.topics or self.queue_ids) and not self.output:
            raise UsageError(
                "an index file holds the keys of all topics: it cannot be rebuilt for some",
                hint="leave --topic and --queue away, or write elsewhere with --output DIR",
            )


def command_line(request: RebuildRequest, *more: str) -> str:
    """The command line that carries out the plan that was shown."""
    selection = request.options.selection
    words = ["rmqtool", request.command, str(request.store.root), *more]
    if not more:
        words += [word for topic in sorted(selection.topics) for word in ("--topic", topic)]
        words += [word for queue_id in sorted(selection.queue_ids) for word in ("--queue", str(queue_id))]
        words += ["--only-damaged"] if request.only_damaged else []
        words += ["--neutralise"] if request.options.neutralise else []
        words += ["--append-order"] if request.options.order == "broker" else []
    words += ["--jobs", str(request.options.jobs)] if request.options.jobs > 1 else []
    words += ["--broker-version", str(request.options.version)] if request.options.version else []
    words += ["--broker-conf", request.store.conf.path] if request.store.conf.path else []
    return " ".join(map(quote, words))
