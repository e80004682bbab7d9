"""What keeps the cleaner from its work is told, and only then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rmqtool.clean.findings import findings_of
from rmqtool.clean.plan import CleanPlan
from rmqtool.findings.finding import Finding
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import NEWEST, Version
from tests.clean.planning import FOUR, HOUR, aged_log, planned, set_mtime
from tests.conftest import GoldenStore

AGES = (40, 30, 20, 10)


def of(found: CleanPlan, code: str) -> Finding | None:
    """The finding of that code."""
    codes = (f"clean.{code}", f"store.{code}")
    return next((finding for finding in findings_of(found) if finding.code in codes), None)


def codes(found: CleanPlan) -> set[str]:
    return {finding.code for finding in findings_of(found)}


def told(found: CleanPlan, code: str) -> Finding:
    finding = of(found, code)
    assert finding
    return finding


def files(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def test_nothing_to_say(tmp_path: Path) -> None:
    assert codes(planned(aged_log(tmp_path, *AGES), version=NEWEST)) == set()


@pytest.mark.parametrize(
    ("delete_when", "severity", "words"),
    [("04; 16", "error", "23 of 24"), ("x", "error", "each run"), ("24", "warning", "no hour"), ("04;16", None, "")],
)
def test_delete_when(tmp_path: Path, delete_when: str, severity: str | None, words: str) -> None:
    found = of(planned(aged_log(tmp_path, *AGES), deleteWhen=delete_when), "delete-when")
    assert (found.severity if found else None) == severity
    assert words in (found.message if found else "")


def test_a_younger_file_in_front(tmp_path: Path) -> None:
    root = aged_log(tmp_path, 90, 80, 75, 10)
    set_mtime(files(root)[0], FOUR - HOUR)
    finding = told(planned(root), "blocked-by-older-file")
    assert (finding.count, finding.file) == (2, "commitlog/00000000000000000000")
    assert of(planned(aged_log(tmp_path / "b", 90, 80, 10)), "blocked-by-older-file") is None


@pytest.mark.parametrize(
    ("number", "hours", "lie"),
    [(1, +2, "future"), (1, -3, "later"), (1, -300, "earlier"), (3, -2, "later"), (1, -25, "")],
)
def test_modification_times_that_lie(tmp_path: Path, number: int, hours: float, lie: str) -> None:
    """Against the messages of the file and the first of the next; what flushing late explains is no lie."""
    root = aged_log(tmp_path, *AGES)
    set_mtime(files(root)[number], FOUR + round(hours * HOUR))
    assert {code for code in codes(planned(root)) if "mtime" in code} == ({f"clean.mtime-{lie}"} if lie else set())
    if lie:
        finding = told(planned(root), f"mtime-{lie}")
        assert finding.file == f"commitlog/{number * 1024:020}"
        assert (finding.remedy or "").startswith("touch -m -d 2026-11-2")


def test_a_restored_store(tmp_path: Path) -> None:
    """All files from one moment are one finding that counts them."""
    root = aged_log(tmp_path, 400, 300, 200, 100)
    for file in files(root):
        set_mtime(file, FOUR - HOUR)
    finding = told(planned(root), "mtime-later")
    assert finding.count == 4
    assert "up to 299 h longer" in finding.effect  # the first file's last message is older than 300 h
    assert "3 more" in finding.message


@pytest.mark.parametrize(
    ("percent", "settings", "words"),
    [
        (80, {}, "only above 85%"),
        (88, {"cleanFileForciblyEnable": "false"}, "cleanFileForciblyEnable=false"),
        (92, {"cleanFileForciblyEnable": "false"}, "cleanFileForciblyEnable=false"),
        (88, {}, None),
        (60, {}, None),
    ],
)
def test_why_nothing_goes_from_a_full_disk(
    tmp_path: Path, percent: float, settings: dict[str, Any], words: str | None
) -> None:
    found = of(planned(aged_log(tmp_path, *AGES), percent=percent, **settings), "disk-full-nothing-deleted")
    assert (found is None) == (words is None)
    assert (words or "") in (found.message if found else "")


def test_one_file_on_a_full_disk(tmp_path: Path) -> None:
    found = planned(aged_log(tmp_path, 500), percent=91)
    assert "last file is never deleted" in told(found, "disk-full-nothing-deleted").message
    assert told(found, "disk-full").severity == "error"


def test_overdue(tmp_path: Path) -> None:
    """An hour of deleteWhen has passed since the first file expired, and no broker was there."""
    assert "no broker runs" in told(planned(aged_log(tmp_path / "a", 98, 5)), "overdue").message
    assert of(planned(aged_log(tmp_path / "b", 90, 5)), "overdue") is None


def test_versions_that_differ(tmp_path: Path) -> None:
    """Told only when no version is given: at 88 percent and diskMaxUsedSpaceRatio=95 only 5.x deletes."""
    root = aged_log(tmp_path, *AGES)
    options: dict[str, Any] = {"diskMaxUsedSpaceRatio": "95", "deleteWhen": "5"}
    finding = told(planned(root, percent=88, **options), "version-ambiguous")
    assert "4.4.0 would delete 0" in finding.message
    assert of(planned(root, percent=88, version=Version(5, 3, 3), **options), "version-ambiguous") is None
    assert of(planned(root, percent=60, **options), "version-ambiguous") is None


def test_settings_that_do_not_count(tmp_path: Path) -> None:
    finding = told(planned(aged_log(tmp_path, *AGES), fileReservedTime="48 "), "setting")
    assert "fileReservedTime=48 " in finding.message
    assert finding.effect == "works with 72"


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ({"mappedFileSizeCommitLog": "65536", "mappedFileSizeConsumeQueue": "600"}, 0),
        ({"mapedFileSizeCommitLog": "65536", "mapedFileSizeConsumeQueue": "590"}, 0),  # rounded up to 600
        ({"mappedFileSizeCommitLog": "1073741824"}, 1),
        ({"mappedFileSizeConsumeQueue": "6000000", "maxHashSlotNum": "50", "maxIndexNum": "999"}, 2),
        ({"mapperFileSizeBatchConsumeQueue": "460", "maxHashSlotNum": "50", "maxIndexNum": "1000"}, 0),
        ({}, 0),
    ],
)
def test_file_sizes_of_broker_conf(golden_store: GoldenStore, settings: dict[str, Any], wrong: int) -> None:
    found = planned(golden_store("5.3.3-clean"), conf=BrokerConf(settings))
    assert sum(finding.code == "clean.file-size" for finding in findings_of(found)) == wrong


def test_a_file_without_sizes_means_the_defaults(golden_store: GoldenStore) -> None:
    """A broker that starts with such a file takes 1 GiB."""
    found = planned(golden_store("5.3.3-clean"), conf=BrokerConf({"deleteWhen": "04"}, path="broker.conf"))
    assert "1073741824" in told(found, "file-size").message
