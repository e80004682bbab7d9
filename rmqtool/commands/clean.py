"""`rmqtool clean STORE`: what the broker's cleaner would delete, and doing it."""

from __future__ import annotations

import time
from datetime import tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rmqtool.broker_conf import BrokerConf
from rmqtool.commands.clean_options import cleaner_options, given_options
from rmqtool.commands.options import examples_and_statuses, global_options, store_options
from rmqtool.errors import Exit, UsageError
from rmqtool.output import Style, write_document
from rmqtool.versions import Version

if TYPE_CHECKING:
    from rmqtool.clean.plan import Plan
    from rmqtool.files import RateLimit

_EPILOG = examples_and_statuses(
    (
        "rmqtool clean /data/rocketmq/store --dry-run",
        "rmqtool clean /data/rocketmq/store --dry-run --until-stable",
        "rmqtool clean /data/rocketmq/store --dry-run --file-reserved-time 24",
        "rmqtool clean /data/rocketmq/store --dry-run --disk-used-percent 91",
    ),
    {
        Exit.OK: "done, whether or not anything would go",
        Exit.USAGE: "the command line or broker.conf is wrong",
        Exit.FAILED: "something cannot be read, or a layout is not supported",
        Exit.IN_USE: "without --dry-run: a broker runs on the store",
        Exit.NOT_A_STORE: "not a RocketMQ store",
    },
)


@click.command("clean", epilog=_EPILOG)
@click.argument("path", metavar="STORE", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Only show what the cleaner's next run would delete.")
@click.option("--until-stable", is_flag=True, help="With --dry-run: show all runs until one deletes nothing.")
@click.option("--manual", is_flag=True, help="As after mqadmin deleteExpiredCommitLog: expired files go at any hour.")
@click.option("--first-file-in-use", is_flag=True, help="As if a consumer still read the first file (hanged file).")
@cleaner_options
@store_options
@global_options
@click.pass_obj
def clean(
    style: Style,
    path: Path,
    dry_run: bool,
    until_stable: bool,
    manual: bool,
    first_file_in_use: bool,
    options: dict[str, str],
    now: int | None,
    zone: tzinfo | None,
    disk_used_percent: float | None,
    broker_version: Version | None,
    broker_conf: BrokerConf,
    limit_rate: RateLimit | None,
) -> Exit:
    """What the broker's cleaner deletes with its next run, why, when the rest goes, and who loses what.

    STORE is the directory that broker.conf calls storePathRootDir. With --dry-run nothing is changed, and a broker
    may run on it.
    """
    from rmqtool.clean.facts import gather
    from rmqtool.clean.plan import plan
    from rmqtool.retention.runs import Rules
    from rmqtool.retention.settings import settings_of
    from rmqtool.store import open_store

    style.store = str(path)
    if not dry_run:
        raise UsageError("only --dry-run", hint="rmqtool clean STORE --dry-run")
    store = open_store(path, broker_conf)
    ratio = None if disk_used_percent is None else disk_used_percent / 100
    facts = gather(store, broker_version, ratio, limit_rate)
    settings = settings_of(broker_conf.settings, options, facts.version)
    rules = Rules(settings, facts.version, zone, manual, first_file_in_use)
    moment = time.time_ns() // 1_000_000 if now is None else now
    _show(style, plan(facts, rules, moment, until_stable), given_options(options, broker_conf, broker_version))
    return Exit.OK


def _show(style: Style, found: Plan, options: str) -> None:
    from rmqtool.clean.findings import findings_of
    from rmqtool.clean.forecast import forecast
    from rmqtool.clean.losses import losses_of
    from rmqtool.clean_json import clean_json
    from rmqtool.clean_text import note_next, show_plan

    losses, outlook, findings = losses_of(found), forecast(found), list(findings_of(found))
    if style.json:
        result: Any = clean_json(found, losses, outlook)
        write_document("clean", style.store, result, findings=findings)
        return
    show_plan(found, losses, outlook, findings, style)
    if not style.quiet:
        note_next(found, options)
