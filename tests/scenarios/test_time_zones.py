"""Times in every output: people see them in their zone, programs in UTC."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.base.times import parse_zone, with_local_times
from tests.commands.running import Result, rmqtool
from tests.copies import copied

ZONE = "Asia/Kolkata"
NOW = ("--now", "2026-11-21T15:00:00Z")
QUIET = ("--progress", "never")
PULL = ("--topic", "orders", "--queue", "0", "--queue-offset", "3")
READING = {
    "overview": ("inspect", "{}", "--scan"),
    "log as text": ("inspect", "{}/commitlog", "--limit", "3"),
    "log as a table": ("inspect", "{}/commitlog", "--format", "table"),
    "log in columns": ("inspect", "{}/commitlog", "--limit", "3", "--columns", "store_time,born_time,topic"),
    "index": ("inspect", "{}/index", "--limit", "3"),
    "checkpoint": ("inspect", "{}/checkpoint"),
    "timer log": ("inspect", "{}/timerlog", "--limit", "3"),
    "pending": ("pending", "{}", "--list", *NOW),
    "trace": ("query", "{}", "--trace", *PULL),
    "pull": ("query", "{}", "--pull", *PULL),
    "a group": ("query", "{}", "--group", "billing"),
    "a time": ("query", "{}", "--at", "2026-11-21T14:36:10Z", "--topic", "orders"),
    "nothing stored then": ("inspect", "{}/commitlog", "--from", "2030-01-01T00:00:00Z"),
    "the wrong way round": ("inspect", "{}/commitlog", "--from", "2030-01-01T00:00:00Z", "--to", "2026-01-01T00:00Z"),
}
CSV = ("inspect", "{}/commitlog", "--format", "csv", "--limit", "3")
_UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


@pytest.fixture(scope="module")
def shop(unpacked: Callable[[str], Path]) -> Path:
    return unpacked("5.3.3-shop")


def run(store: Path, line: tuple[str, ...], *options: str) -> Result:
    return rmqtool(*(word.format(store) for word in line), *QUIET, *options)


def plain(text: str) -> str:
    """Without lengths of time and the blanks and dots that a longer zone pushes away."""
    return re.sub(r"\s+", " ", re.sub(r"\d+\.\d s", "", text))


@pytest.mark.parametrize("name", READING)
def test_people_see_their_zone(shop: Path, name: str) -> None:
    """Each time of the text is the same moment in the zone of --time-zone, and nothing else differs."""
    in_utc, local = run(shop, READING[name]), run(shop, READING[name], "--time-zone", ZONE)
    assert _UTC.search(in_utc.out + in_utc.err)
    assert not _UTC.search(local.out + local.err)
    assert plain(local.out) == plain(with_local_times(in_utc.out, parse_zone(ZONE)))
    assert plain(local.err) == plain(with_local_times(in_utc.err, parse_zone(ZONE)))
    assert run(shop, READING[name], "--time-zone", "UTC").status == local.status == in_utc.status


@pytest.mark.parametrize("name", READING)
def test_programs_see_utc(shop: Path, name: str) -> None:
    """JSON is the same in every zone; so is CSV, which a program reads as well."""
    with_seconds = re.compile(r'"seconds": [\d.]+')
    shown = [run(shop, READING[name], "--json", *more).out for more in ((), ("--time-zone", ZONE))]
    assert with_seconds.sub("", shown[0]) == with_seconds.sub("", shown[1])
    assert run(shop, CSV, "--time-zone", ZONE) == run(shop, CSV)


@pytest.mark.slow
def test_findings_and_plans_are_local_too(unpacked: Callable[[str], Path], tmp_path: Path) -> None:
    """Worker processes write their sentences in UTC; text shows them in the zone, JSON as they are."""
    store = copied(unpacked("5.3.3-single"), tmp_path / "store")
    (log,) = (store / "commitlog").iterdir()
    os.utime(log, (2_208_988_800, 2_208_988_800))
    for line in (("verify", "{}", "-v", "-j", "2"), ("clean", "{}", "--dry-run", *NOW)):
        in_utc, local = run(store, line, "--time-zone", "UTC"), run(store, line, "--time-zone", ZONE)
        assert "modified 2040-01-01T00:00:00.000Z" in in_utc.out
        assert "modified 2040-01-01T05:30:00.000+05:30" in local.out
        assert not _UTC.search(local.out + local.err)
        assert "2040-01-01T05:30" not in run(store, line, "--time-zone", ZONE, "--json").out


@pytest.mark.slow
def test_the_zone_of_the_environment(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RMQTOOL_TIME_ZONE is for all commands; the command line comes before it, before and after the command."""
    expected = run(shop, READING["overview"], "--time-zone", ZONE).out
    monkeypatch.setenv("RMQTOOL_TIME_ZONE", ZONE)
    assert run(shop, READING["overview"]).out == expected
    assert rmqtool("--time-zone", "+05:30", "inspect", shop, "--scan", *QUIET).out == expected
    monkeypatch.setenv("RMQTOOL_TIME_ZONE", "Asia/Tokyo")
    monkeypatch.setenv("RMQTOOL_INSPECT_TIME_ZONE", "Asia/Tokyo")
    assert rmqtool("--time-zone", "+05:30", "inspect", shop, "--scan", *QUIET).out == expected
    assert run(shop, READING["overview"], "--time-zone", ZONE).out == expected
    assert run(shop, READING["overview"]).out != expected


def test_a_time_without_a_zone_is_in_the_zone_that_is_shown(shop: Path) -> None:
    """What is shown without its zone, and given back, finds the same message."""
    shown = run(shop, READING["log in columns"], "--time-zone", ZONE).out
    stored = re.search(r"store_time +(\S+)\+05:30", shown)
    assert stored is not None
    again = rmqtool(
        *("inspect", shop / "commitlog", "--from", stored[1], "--limit", "1", "--columns", "store_time"),
        *("--time-zone", ZONE),
    )
    assert stored[1] in again.out
