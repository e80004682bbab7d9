"""Plans for tests: a store, a time, settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timezone
from pathlib import Path
from typing import Any

from rmqtool.base.times import parse_time
from rmqtool.broker.cleaner import Rules
from rmqtool.clean.plan import CleanPlan, plan, take_snapshot
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.retention import settings_of
from rmqtool.rules.versions import Version
from rmqtool.store.store import open_store
from tests.building import LogBuilder

HOUR = 3_600_000
FOUR = parse_time("2026-11-25T04:00:00Z")
"""A time at which it is the hour of the default deleteWhen, in UTC, and no golden store's files are young."""


def planned(
    root: Path,
    *,
    now: int = FOUR,
    percent: float = 50,
    version: Version | None = None,
    conf: BrokerConf | None = None,
    all_runs: bool = False,
    first_in_use: bool = False,
    is_manual: bool = False,
    **settings: str,
) -> CleanPlan:
    """A plan with disks of `percent`, in UTC."""
    facts = take_snapshot(open_store(root, conf), version, percent / 100)
    found = settings_of(conf.settings if conf else {}, settings, facts.snapshot.release)
    rules = Rules(found, facts.snapshot.release, timezone.utc, manual=is_manual, first_in_use=first_in_use)
    return plan(facts, rules, now, all_runs=all_runs)


def aged_log(root: Path, *ages: float, now: int = FOUR, fields: Mapping[str, Any] | None = None) -> Path:
    """A log of one file for each age in hours; messages are as old as their file, and an empty queue is there."""
    log = LogBuilder(file_size=1024)
    for number, age in enumerate(ages):
        if number:
            log.roll()
        log.add(store_timestamp=now - round(age * HOUR), **(fields or {}))
    log.write(root)
    (root / "consumequeue" / "orders" / "0").mkdir(parents=True, exist_ok=True)
    for file, age in zip(sorted((root / "commitlog").iterdir()), ages, strict=True):
        set_mtime(file, now - round(age * HOUR))
    return root


def set_mtime(file: Path, timestamp: int) -> None:
    """Set a modification time, epoch ms."""
    os.utime(file, ns=(timestamp * 1_000_000, timestamp * 1_000_000))


def age(store: Path, keep: int) -> None:
    """Make all log files but the last `keep` a year old, and those young."""
    files = sorted((store / "commitlog").iterdir())
    now = max(file.stat().st_mtime_ns for file in files) // 1_000_000
    for number, file in enumerate(files):
        set_mtime(file, now - (366 * 24 * HOUR if number < len(files) - keep else 0))
