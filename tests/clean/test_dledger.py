"""Nodes of DLedger with plain log files from before: which of both go, in which release."""

from __future__ import annotations

from datetime import timezone
from pathlib import Path
from typing import Any

import pytest

from rmqtool.broker.cleaner import FileDecision
from rmqtool.clean.findings import findings_of
from rmqtool.clean.plan import AsIf, CleanPlan, next_deletions
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.versions import Version
from rmqtool.store.store import open_store
from tests.clean.planning import FOUR, HOUR, aged_log, set_mtime
from tests.dledger_building import NODE, EntryBuilder

OLD, NEW = Version(4, 9, 7), Version(5, 3, 3)
LATER = FOUR + 11 * HOUR  # no hour of deleteWhen
"""An hour at which only a full disk deletes."""


def node(root: Path, plain: tuple[float, ...], entries: tuple[float, ...]) -> Path:
    """A store with log files of these ages in hours, the plain ones before those of entries."""
    aged_log(root, *plain)
    log = EntryBuilder(file_size=1024, start_offset=1024 * len(plain))
    for number, age in enumerate(entries):
        if number:
            log.roll()
        log.add(store_timestamp=FOUR - round(age * HOUR))
    log.write(root)
    for file, age in zip(sorted((root / NODE / "data").iterdir()), entries, strict=True):
        set_mtime(file, FOUR - round(age * HOUR))
    return root


def planned(root: Path, version: Version | None, now: int = FOUR, used: float = 0.5, **settings: str) -> CleanPlan:

    as_if = AsIf(settings, used, timezone.utc)
    return next_deletions(open_store(root, BrokerConf()), version, now, as_if, all_runs=True)


def runs(plan: CleanPlan) -> list[list[int]]:
    """Start offsets of what each run deletes, in files of 1 KiB."""
    return [[decision.log_file.start_offset // 1024 for decision in run.log.deleted] for run in plan.runs]


def reasons(decisions: list[FileDecision]) -> list[str]:
    return [decision.reason for decision in decisions]


@pytest.mark.parametrize(
    ("plain", "entries", "expected"),
    [
        ((90, 80), (79, 78, 1), [[0], [1], [2, 3]]),  # the last plain file alone, and then DLedger's own cleaner
        ((90,), (79, 72.5, 1), [[0], [1]]),  # an hour longer
        ((90, 1), (79, 78, 1), [[0]]),
        ((1,), (79, 78, 1), [[]]),
        ((1, 90), (79, 78, 1), [[]]),
    ],
)
def test_until_4_9(
    plain: tuple[float, ...], entries: tuple[float, ...], expected: list[list[int]], tmp_path: Path
) -> None:
    found = planned(node(tmp_path, plain, entries), OLD)
    assert runs(found) == expected


@pytest.mark.parametrize(
    ("plain", "expected"), [((90, 80), [[0]]), ((90,), [[]]), ((90, 85, 80, 1), [[0, 1, 2]]), ((1, 90), [[]])]
)
def test_since_5_0(plain: tuple[float, ...], expected: list[list[int]], tmp_path: Path) -> None:
    """The last plain file never goes, and so no file of entries does."""
    found = planned(node(tmp_path, plain, (79, 78, 1)), NEW)
    assert runs(found) == expected
    assert reasons(found.kept)[-4:] == ["last-file", "plain-files", "plain-files", "plain-files"]
    assert found.holds_entries_back


def test_a_full_disk(tmp_path: Path) -> None:
    """What has not expired goes by the rules of all brokers, and entries only where no plain file holds them back."""
    root = node(tmp_path, (3, 2), (1, 1, 1))
    assert runs(planned(root, OLD, LATER, 0.95))[:3] == [[0], [1], [2, 3]]
    assert runs(planned(root, NEW, LATER, 0.95)) == [[0]]
    assert runs(planned(root, OLD, LATER, 0.95, cleanFileForciblyEnable="false")) == [[]]


def test_nodes_do_not_read_clean_file_forcibly_enable(tmp_path: Path) -> None:
    """Nobody calls what would read it since 5.0.0."""
    root = node(tmp_path, (3,), (1, 1, 1))
    next((root / "commitlog").iterdir()).unlink()
    off = {"cleanFileForciblyEnable": "false"}
    assert runs(planned(root, OLD, LATER, 0.95, **off)) == [[]]
    found = planned(root, NEW, LATER, 0.95, **off)
    assert runs(found)[0] == [1, 2]
    setting: Any = next(each for each in found.rules.settings.shown if each.name == "cleanFileForciblyEnable")
    assert (setting.given, setting.effective) == ("false", True)
    assert "does not read it" in setting.why


def test_other_releases_are_compared_by_their_own_rules(tmp_path: Path) -> None:
    """Of a node without plain files all decide alike; with them the finding has the numbers of both."""
    root = node(tmp_path, (90,), (79, 78, 1))
    assert "store.version-ambiguous" in {each.code for each in findings_of(planned(root, None))}
    next((root / "commitlog").iterdir()).unlink()
    codes = {each.code for each in findings_of(planned(root, None))}
    assert "store.version-ambiguous" not in codes


def test_the_age_of_what_never_goes_is_no_matter(tmp_path: Path) -> None:
    """Where the last plain file never goes, it is not overdue, and no modification time of a file after it counts."""
    root = node(tmp_path, (190,), (79, 78, 1))
    for file in (next((root / "commitlog").iterdir()), *(root / NODE / "data").iterdir()):
        set_mtime(file, FOUR - 150 * HOUR)
    codes = {each.code for each in findings_of(planned(root, NEW))}
    assert not codes & {"clean.overdue", "clean.mtime-later", "clean.mtime-earlier"}
    assert {"clean.overdue", "clean.mtime-earlier"} <= {each.code for each in findings_of(planned(root, OLD))}
