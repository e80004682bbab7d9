"""What triggers a run, and when files go regardless of age."""

from __future__ import annotations

from dataclasses import replace
from datetime import timezone
from pathlib import Path

import pytest

from rmqtool.base.times import parse_time
from rmqtool.broker.trigger import Disk, Disks, Trigger, disk_of, trigger_at
from rmqtool.rules.retention import settings_of
from rmqtool.rules.versions import NEWEST, OLDEST, Version

NOON = parse_time("2026-11-21T12:00:00Z")
V49 = Version(4, 9, 8)
PATH = Path("disk")


def used(percent: float) -> Disk:
    return Disk(PATH, fixed_ratio=percent / 100)


def found(version: Version, *log: float, queues: float | None = None, **settings: str) -> Trigger:
    """A run at noon with disks of so many percent."""
    disks = Disks([used(percent) for percent in log], used(log[0] if queues is None else queues))
    return trigger_at(settings_of(settings, {}, version), disks, NOON, timezone.utc, version)


@pytest.mark.parametrize("version", [OLDEST, V49, NEWEST])
@pytest.mark.parametrize(
    ("percent", "space", "forced", "refused"),
    [
        (75, False, False, False),
        (75.1, True, False, False),
        (85, True, False, False),
        (85.1, True, True, False),
        (90, True, True, False),
        (90.1, True, True, True),
    ],
)
def test_levels(version: Version, percent: float, space: bool, forced: bool, refused: bool) -> None:
    """Each level is passed only above it."""
    trigger = found(version, percent)
    assert (trigger.time, trigger.space, trigger.forced, trigger.writes_refused) == (False, space, forced, refused)
    assert trigger.runs == space


@pytest.mark.parametrize("version", [V49, NEWEST])
def test_several_paths_and_the_queues(version: Version) -> None:
    """Of the log's paths the emptiest counts, and the queues' disk by itself."""
    assert not found(version, 99, 40, queues=20).space
    assert found(version, 40, queues=80).space
    assert found(version, 40, queues=86).forced
    assert found(version, 40, queues=91).writes_refused


def test_a_high_ratio_before_5() -> None:
    """Between 85 percent and diskMaxUsedSpaceRatio it is not time to, but would be regardless of age."""
    trigger = found(V49, 88, diskMaxUsedSpaceRatio="95")
    assert (trigger.space, trigger.forced, trigger.runs) == (False, True, False)
    assert found(V49, 88, diskMaxUsedSpaceRatio="95", deleteWhen="12").runs
    assert found(NEWEST, 88, diskMaxUsedSpaceRatio="95").runs


def test_not_forcibly() -> None:
    trigger = found(NEWEST, 99, cleanFileForciblyEnable="false")
    assert (trigger.space, trigger.forced) == (True, False)


def test_a_run_that_fails() -> None:
    """An exception ends it before the disk is looked at."""
    trigger = found(NEWEST, 99, deleteWhen="04; 12")
    assert (trigger.failure, trigger.runs, trigger.forced, trigger.space) == (" 12", False, False, False)


def test_manual_and_time() -> None:
    settings, disks = settings_of({"deleteWhen": "12"}, {}, NEWEST), Disks([used(10)], used(10))
    assert trigger_at(settings, disks, NOON, timezone.utc, NEWEST).time
    later = trigger_at(settings, disks, NOON + 3_600_000, timezone.utc, NEWEST, manual=True)
    assert (later.time, later.manual, later.runs) == (False, True, True)


@pytest.mark.parametrize(
    ("size", "space", "forced"), [(700, False, False), (760, True, False), (810, True, True), (0, False, False)]
)
def test_brokers_that_share_a_disk(size: int, space: bool, forced: bool) -> None:
    """Of a disk for two each has the half."""
    disk = Disk(PATH, total=2000, free=1000, usable=1000)
    settings = settings_of({"replicasPerDiskPartition": "2"}, {}, NEWEST)
    trigger = trigger_at(settings, Disks([disk], disk, size), NOON, timezone.utc, NEWEST)
    assert (trigger.space, trigger.forced) == (space, forced)


def test_ratios_of_a_disk() -> None:
    """Before 4.9.2 of the whole disk; since then as `df` has it, whole percent rounded up."""
    disk = Disk(PATH, total=1000, free=300, usable=200)
    assert disk.ratio(OLDEST) == 0.7
    assert disk.ratio(V49) == 0.78  # 700 of 900
    assert disk.after(100).ratio(OLDEST) == 0.6
    assert replace(disk, missing=True).ratio(NEWEST) == -1
    assert Disk(PATH).ratio(NEWEST) == -1
    assert Disk(PATH, total=1000, fixed_ratio=0.8).after(100).ratio(NEWEST) == pytest.approx(0.7)


def test_a_missing_directory(tmp_path: Path) -> None:
    """Before 4.9.2 it makes the disk count as full; later releases create it."""
    missing = disk_of(tmp_path / "no" / "where", OLDEST, 0.1)
    assert missing.missing
    disks = Disks([used(10)], missing)
    trigger = trigger_at(settings_of({}, {}, OLDEST), disks, NOON, timezone.utc, OLDEST)
    assert (trigger.space, trigger.forced) == (True, False)
    assert disk_of(tmp_path / "no" / "where", V49).device == disk_of(tmp_path, V49).device
