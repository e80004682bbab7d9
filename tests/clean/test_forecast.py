"""Growth, and how long a disk lasts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqtool.broker.trigger import Disk
from rmqtool.clean.forecast import LEVELS, Forecast, forecast, growth_of
from rmqtool.clean.plan import CleanPlan
from tests.clean.planning import FOUR, HOUR, aged_log, planned

FILE = 1024


def with_disk(found: CleanPlan, total: int, used: int) -> CleanPlan:
    """The plan with disks of that size, bytes, and log files that take just their size."""
    disk = Disk(Path("disk"), 0, total, total - used, total - used)
    files = [replace(file, allocated=FILE, device=0) for file in found.facts.log_files]
    kept = tuple(
        replace(decision, log_file=replace(decision.log_file, allocated=FILE)) for decision in found.last.log.decisions
    )
    disks = replace(found.facts.disks, log=[disk], queues=disk)
    last = replace(found.last, log=replace(found.last.log, decisions=kept))
    return replace(found, facts=replace(found.facts, disks=disks, log_files=files), last=last)


def test_growth_is_that_of_the_last_day(tmp_path: Path) -> None:
    """From the file that was begun a day ago, or all of a younger log."""
    slow = planned(aged_log(tmp_path / "a", 100, 50, 30, 20, 0))
    growth = growth_of(slow.facts)
    assert growth
    assert growth.since == FOUR - 30 * HOUR
    assert growth.log_bytes_per_hour == pytest.approx((slow.facts.log_range.max_offset - 2 * FILE) / 30)
    young = growth_of(planned(aged_log(tmp_path / "b", 3, 2, 1)).facts)
    assert young
    assert young.since == FOUR - 3 * HOUR


@pytest.mark.parametrize("ages", [(), (5,), (5, 5)])
def test_no_growth_to_tell(tmp_path: Path, ages: tuple[float, ...]) -> None:
    found = planned(aged_log(tmp_path, *ages)) if ages else None
    assert found is None or growth_of(found.facts) is None


def outlook_of(root: Path, total: int, used: int, **settings: Any) -> Forecast:
    return forecast(with_disk(planned(root, now=FOUR + HOUR // 2, **settings), total, used))


def test_when_a_disk_reaches_its_levels(tmp_path: Path) -> None:
    """One file in an hour, on a disk of 1000 files of which 700 are used: 50 hours to 75 percent."""
    root = aged_log(tmp_path, *range(20, -1, -1))
    found = outlook_of(root, 1000 * FILE, 700 * FILE, fileReservedTime="168")
    now = found.at(168)
    assert now
    hours = [time and (time - FOUR) / HOUR for time in now.reached.values()]
    assert list(now.reached) == list(LEVELS)
    assert hours[0] == pytest.approx(50, abs=4)
    assert hours[1] == hours[2] is None
    assert now.most_used_ratio == pytest.approx(0.85, abs=0.03)  # 680 others and 168 to 192 of the log


def test_shorter_times_need_less(tmp_path: Path) -> None:
    """A disk that is too small for one time is large enough for a shorter one."""
    root = aged_log(tmp_path, *range(20, -1, -1))
    found = outlook_of(root, 200 * FILE, 120 * FILE)
    assert [outlook.file_reserved_time for outlook in found.outlooks] == [12, 24, 48, 72, 96, 168]
    most = [outlook.most_used_ratio for outlook in found.outlooks]
    assert most == sorted(most)
    short, long = found.at(12), found.at(168)
    assert short
    assert long
    assert set(short.reached.values()) == {None}
    assert None not in long.reached.values()
    assert list(long.reached.values()) == sorted(time or 0 for time in long.reached.values())


@pytest.mark.parametrize(
    ("age", "settings", "hours"),
    [
        (71, {}, 24),  # expires 05:00, goes the next day at 04
        (71, {"deleteWhen": "05"}, 1),
        (90, {}, 0),
        (90, {"deleteWhen": "06"}, 2),
        (90, {"deleteWhen": "24"}, None),
        (90, {"deleteWhen": "x"}, None),
    ],
)
def test_when_the_oldest_goes(tmp_path: Path, age: float, settings: dict[str, Any], hours: int | None) -> None:
    """At the first hour of deleteWhen after its age; of two old files the first run takes one."""
    plan = planned(aged_log(tmp_path, age, age, 1), deleteFileBatchMax="1", **settings)
    found = forecast(plan)
    assert found.next_deletion == (None if hours is None else FOUR + hours * HOUR)
    assert found.oldest_expires == FOUR + (72 - age) * HOUR
