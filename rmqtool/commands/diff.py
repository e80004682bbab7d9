"""`rmqtool diff A B`: two stores of one broker side by side, and where they part."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqtool.base.errors import Exit, UsageError
from rmqtool.base.files import RateLimit
from rmqtool.commands.help_page import HelpPage, examples_and_statuses
from rmqtool.commands.options import global_options, store_options
from rmqtool.commands.redact_options import redact_options
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import Version
from rmqtool.show.output import Style

if TYPE_CHECKING:
    from rmqtool.diff.side import Name
    from rmqtool.scan.redaction import Redaction

_EPILOG = examples_and_statuses(
    (
        "rmqtool diff /data/rocketmq/store /slave/store",
        "rmqtool diff /data/rocketmq/store /slave/store --fast",
        "rmqtool diff /data/rocketmq/store /slave/store --only b --limit 1000",
        "rmqtool diff /data/rocketmq/store /slave/store --json | jq .result",
    ),
    {
        Exit.OK: "the same",
        Exit.FINDINGS: "they differ",
        Exit.USAGE: "the command line is wrong",
        Exit.LOSSY: "no difference, but not all could be read",
        Exit.FAILED: "a store or its log cannot be read, or is not supported",
        Exit.NOT_A_STORE: "not a RocketMQ store",
    },
)


@click.command("diff", cls=HelpPage, epilog=_EPILOG)
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@click.option("--fast", is_flag=True, help="Offsets, epochs and a page of each log file only.")
@click.option("--only", type=click.Choice(["a", "b"]), help="List the messages that only A, or only B has.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    metavar="N",
    help="List at most so many of each kind; all are counted.",
)
@redact_options
@store_options
@global_options
@click.pass_obj
def diff(
    style: Style,
    /,
    *,
    a: Path,
    b: Path,
    fast: bool,
    only: Name | None,
    limit: int,
    redaction: Redaction | None,
    broker_version: Version | None,
    broker_conf: BrokerConf,
    limit_rate: RateLimit | None,
) -> Exit:
    """Compare a store with its replica or its backup.

    A and B are directories that broker.conf calls storePathRootDir. The logs of one broker are the same byte by byte
    up to where they part: that place is found, and what only one of them has. A store that a broker runs on is compared
    up to its end as it is now. Nothing in the stores is changed.
    """
    from rmqtool.diff.comparison import DiffRequest, compare
    from rmqtool.diff.side import side_of
    from rmqtool.show.diff_json import write_diff
    from rmqtool.show.diff_text import show_diff
    from rmqtool.show.progress import byte_progress
    from rmqtool.store.snapshot import Snapshot
    from rmqtool.store.store import open_store, require_plain_log

    style.store = str(a)
    if fast and only:
        raise UsageError("--only lists messages, which --fast does not read")
    rates = [RateLimit(max(1, limit_rate.bytes_per_second // 2)) if limit_rate else None for _ in range(2)]
    stores = [open_store(path, broker_conf) for path in (a, b)]
    for store in stores:
        require_plain_log(store, "diff")
    snapshots = [Snapshot(store, broker_version, rate) for store, rate in zip(stores, rates, strict=True)]
    first, second = side_of("a", snapshots[0]), side_of("b", snapshots[1])
    size = max(0, min(first.end, second.end) - max(first.start, second.start))
    with byte_progress("comparing the logs", size, style=style) as progress:
        comparison = compare(first, second, DiffRequest(fast, only, limit), progress.update)
    if redaction is not None:
        comparison = comparison.redacted(redaction)
    if style.json:
        write_diff(comparison, style)
    else:
        show_diff(comparison, style)
    return comparison.status
