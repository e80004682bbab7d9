"""Stores of killed brokers: dirty with and without the release named, and the start is the predicted one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.formats.file_name import file_name
from rmqtool.rules.versions import CHECKPOINT_HAS_LOGICS_OFFSET, parse_version
from tests.broker.comparing import CONF
from tests.broker.damages import Case
from tests.copies import copied
from tests.golden import stores
from tests.real_broker.harness import VERSIONS, Harness
from tests.real_broker.starts import judge
from tests.sampling import one_in
from tests.verify.verifying import verify

pytestmark = [pytest.mark.broker, pytest.mark.slow]
_KILLS = range(2)
_OF_EMPTY_FILES = ("start.refuses", "commitlog.empty-file", "consumequeue.empty-file")


def empty_file_behind(directory: Path) -> None:
    """A file of 0 bytes after the last one."""
    last = max(path for path in directory.iterdir() if path.is_file())
    (directory / file_name(int(last.name) + last.stat().st_size)).touch()


def empty_index_file(store: Path) -> None:
    """A newest index file of 0 bytes."""
    (store / "index" / "20991121113608184").touch()


def queue_not_made(store: Path) -> None:
    """A queue that the broker had not made yet."""
    shutil.rmtree(store / "consumequeue" / "payments")


def unit_not_written(store: Path) -> None:
    """A last queue file that the broker had not written to yet."""
    last = max((store / "consumequeue" / "orders" / "0").iterdir())
    last.write_bytes(bytes(last.stat().st_size))


LEFT: dict[str, Callable[[Path], None]] = {
    "empty log file": lambda store: empty_file_behind(store / "commitlog"),
    "empty queue file": lambda store: empty_file_behind(store / "consumequeue" / "orders" / "0"),
    "empty index file": empty_index_file,
    "queue not made": queue_not_made,
    "unit not written": unit_not_written,
}


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_kill_leaves(harness: Callable[[str], Harness], tmp_path: Path, version: str) -> None:
    """Corrupt just where the real broker refuses; and it does what was predicted."""
    harness(version)
    golden = stores.unpack(f"{version}-killed", tmp_path)
    cases = []
    for what, leave in LEFT.items():
        store = copied(golden, tmp_path / what)
        leave(store)
        cases.append(Case(store, what))
    verdicts = [verify(case.root, version=version, conf=CONF).verdict for case in cases]
    answers = list(judge(version, cases))
    assert [found for _, disagreements in answers for found in disagreements] == []
    refused = [bool(real["refuses"]) for real, _ in answers]
    if parse_version(version) < CHECKPOINT_HAS_LOGICS_OFFSET:  # later ones derive from that on: what is gone stays away
        assert verdicts == ["corrupt" if refuses else "dirty" for refuses in refused]
    assert any(refused) == (version in ("4.7.1", "4.9.7"))


@pytest.mark.rare
@pytest.mark.parametrize("version", VERSIONS)
def test_fresh_kills(harness: Callable[[str], Harness], tmp_path: Path, version: str) -> None:
    """A broker that appends is killed: dirty, unless the start deletes index files whose keys it does not put again.

    Which of both it is depends on when its checkpoint was written for the last time. A kill that comes just when a file
    was created leaves it without a byte, with which some releases do not start.
    """
    cases = []
    for number in one_in(2, _KILLS, version):
        root = tmp_path / str(number)
        root.mkdir()
        harness(version).write(root, "killed")
        cases.append(Case(root, f"kill {number}"))
    for report in [
        verify(case.root, version=named, conf=conf) for case in cases for named, conf in ((version, CONF), (None, None))
    ]:
        errors = {finding.code for finding in report.findings if finding.severity == "error"}
        assert report.verdict == ("corrupt" if errors else "dirty")
        assert errors <= {"start.keys-lost", *_OF_EMPTY_FILES}
    assert [found for _, disagreements in judge(version, cases) for found in disagreements] == []
