"""`rmqtool diff A B`: two stores of one broker side by side, and where they part."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqtool.base.errors import Exit, UsageError
from rmqtool.base.files import RateLimit
from rmqtool.commands.options import OnStores, argument, command, conf_option, flag, master_option, option
from rmqtool.commands.shared_options import StorePath, filter_options, redact_options, tiered_path_option
from rmqtool.show.output import Style, write_document
from rmqtool.show.progress import byte_progress

if TYPE_CHECKING:
    from rmqtool.diff.by_message import MessageComparison
    from rmqtool.diff.records import Name, Side
    from rmqtool.scan.filters import Filters
    from rmqtool.scan.redaction import Redaction

_LOCAL_SPARK = {"spark.driver.memory": "2g"}  # rows are sorted in the JVM


@dataclass(frozen=True, kw_only=True)
class DiffOptions(OnStores):
    """What was asked for."""

    a: Path = argument(None, StorePath())
    b: Path = argument(None, StorePath())
    fast: bool = flag("Compare only offsets, epochs and one page of each log file.")
    only: Name | None = option("List the messages that only A, or only B has.", type=click.Choice(["a", "b"]))
    limit: int = option(
        "List at most this many of each kind; all are counted.", type=click.IntRange(min=1), default=20, metavar="N"
    )
    by_message: bool = flag(
        "Compare messages by topic, unique key and body, wherever they are stored: for stores of different brokers."
    )
    filters: Filters = filter_options()
    engine: str = option(
        "With --by-message: this machine, or Spark for stores of terabytes.",
        type=click.Choice(["local", "spark"]), default="local",
    )  # fmt: skip
    tiered_path_a: Path | None = tiered_path_option("A")
    tiered_path_b: Path | None = tiered_path_option("B")
    master: str | None = master_option()
    conf: dict[str, str] = conf_option()
    redaction: Redaction | None = redact_options()

    @property
    def named(self) -> str | None:
        """The first store."""
        return str(self.a)

    def require_consistent(self) -> None:
        """Raise UsageError for options that do not fit each other."""
        if self.fast and self.only:
            raise UsageError("--only lists messages, which --fast does not read")
        if self.by_message and self.fast:
            raise UsageError("--by-message reads all messages, which --fast does not")
        given = self.words("filters", "engine")
        if given and not self.by_message:
            raise UsageError(f"{given[0]} needs --by-message: logs are compared whole, byte by byte")
        tiers = self.words("tiered_path_a", "tiered_path_b")
        if tiers and (self.fast or self.by_message):
            raise UsageError(f"{tiers[0]}: tiers are compared without --fast and --by-message")
        if (self.master or self.conf) and self.engine != "spark":
            raise UsageError("--master and --conf are for --engine spark")


@command(
    "diff",
    DiffOptions,
    (
        "rmqtool diff /data/rocketmq/store /slave/store",
        "rmqtool diff /data/rocketmq/store /slave/store --fast",
        "rmqtool diff /data/rocketmq/store /slave/store --only b --limit 1000",
        "rmqtool diff /data/rocketmq/store /slave/store --json | jq .result",
        "rmqtool diff /data/rocketmq/store /slave/store --by-message",
        "rmqtool diff /data/rocketmq/store /slave/store --tiered-path-a /mnt/tier",
    ),
    {
        Exit.OK: "the same",
        Exit.FINDINGS: "they differ",
        Exit.USAGE: "the command line is wrong",
        Exit.LOSSY: "no difference, but not everything could be read",
        Exit.FAILED: "a store or its log cannot be read, or is not supported",
    },
)
def diff(style: Style, given: DiffOptions) -> Exit:
    """Compare a store with its replica or its backup.

    A and B are directories that broker.conf calls storePathRootDir. The logs of one broker are the same byte by
    byte up to where they diverge: diff shows that place, and what only one of them has. A store that a broker runs
    on is compared up to its present end. A DLedger store and the plain one that convert made of it are compared
    message by message, in their order. With --by-message stores of different brokers are compared, after a
    migration or a replay: which messages does only one of them have? Nothing in the stores is changed.
    """
    from rmqtool.diff.records import side_of
    from rmqtool.store.store import conf_for
    from rmqtool.store.tiered import with_tier

    given.require_consistent()
    halves = [RateLimit(max(1, given.bytes_per_second // 2)) if given.bytes_per_second else None for _ in range(2)]
    snapshots = [
        replace(given, broker_conf=with_tier(conf_for(path, given.broker_conf), tier), limit_rate=half)
        .open(path).snapshot
        for path, tier, half in zip((given.a, given.b), (given.tiered_path_a, given.tiered_path_b), halves, strict=True)
    ]  # fmt: skip
    nodes = [snapshot for snapshot in snapshots if snapshot.store.dledger_directory]
    if given.fast and len(nodes) == 1:
        raise UsageError("--fast compares offsets, and those of a DLedger log are not those of a plain one")
    sides = side_of("a", snapshots[0], given.redaction), side_of("b", snapshots[1], given.redaction)
    return _by_message(style, given, *sides) if given.by_message else _by_offset(style, given, *sides)


def _by_offset(style: Style, given: DiffOptions, a: Side, b: Side) -> Exit:
    from rmqtool.diff.comparison import compare
    from rmqtool.diff.log_pass import DiffRequest
    from rmqtool.show.diff import diff_json, show_diff

    is_moved = (a.node is None) != (b.node is None)
    size = a.end - a.start if is_moved else max(0, min(a.end, b.end) - max(a.start, b.start))
    with byte_progress("comparing the logs", size, style=style) as progress:
        comparison = compare(a, b, DiffRequest(given.fast, given.only, given.limit), progress.update)
    if style.json:
        write_document(style, "diff", diff_json(comparison), status=comparison.status)
    else:
        show_diff(comparison, style)
    return comparison.status


def _by_message(style: Style, given: DiffOptions, a: Side, b: Side) -> Exit:
    from rmqtool.show.diff import messages_json, show_messages

    for side in (a, b):
        side.leave_tier_out()
    compare = _compare_on_spark if given.engine == "spark" else _compare_here
    comparison = compare(style, given, a, b)
    if style.json:
        result = messages_json(comparison, given.filters, given.only)
        write_document(style, "diff", result, status=comparison.status)
    else:
        show_messages(comparison, given.only)
    return comparison.status


def _compare_here(style: Style, given: DiffOptions, a: Side, b: Side) -> MessageComparison:
    from rmqtool.diff.by_message import compare_messages

    with byte_progress("comparing messages", a.end - a.start + b.end - b.start, style=style) as progress:
        return compare_messages(a, b, given.filters, given.limit, progress.add)


def _compare_on_spark(style: Style, given: DiffOptions, a: Side, b: Side) -> MessageComparison:
    from rmqtool.diff.by_message import Counts, MessageComparison, Surplus, list_first
    from rmqtool.spark.multisets import compare_multisets
    from rmqtool.spark.session import spark_context

    with byte_progress("comparing messages", a.end - a.start + b.end - b.start, style=style) as progress:
        progress.wait_for("comparing with Spark")
        settings = {**({} if given.master else _LOCAL_SPARK), **given.conf}
        with spark_context(given.master, settings) as context:
            paths = os.path.abspath(given.a), os.path.abspath(given.b)
            # One store's log paths are not for the other, which is opened without them, see `conf_for`.
            conf = given.broker_conf
            conf_a, conf_b = (conf.path if side.snapshot.store.conf == conf else None for side in (a, b))
            found = compare_multisets(context, paths, given.filters, (conf_a, conf_b), given.limit)
    only: dict[Name, Surplus] = {}
    counts: dict[Name, Counts] = {}
    for side, each in zip((a, b), found, strict=True):
        only[side.name] = Surplus(each.topics, each.repeated, each.other_body, each.first)
        list_first(side, only[side.name])
        counts[side.name] = Counts(each.messages, left_out=None)
    in_both = found[0].messages - only["a"].messages
    return MessageComparison(a, b, counts, in_both, only, "spark")
