"""Files and directories that give an I/O error: each is named, the rest is verified, and nothing is called clean."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from rmqtool.findings.finding import Finding
from rmqtool.findings.report import Selection
from rmqtool.store.store import open_store
from rmqtool.verify.bad_extents import UNREAD
from rmqtool.verify.outcome import Outcome, outcome_of
from rmqtool.verify.task import VerifyRequest
from rmqtool.verify.verification import Verification
from tests.commands.broken_disk import broken
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.unchanged import unchanged

PART = 1 << 16
SECTORS = ("scandir", "listdir", "pread", "preadv")
HARDER = ("open", "scandir", "listdir", "fstat", "lseek", "pread", "preadv", "read")
PLACES = (
    "batchconsumequeue",
    "batchconsumequeue/bulk-inner",
    "batchconsumequeue/bulk-inner/0",
    "batchconsumequeue/bulk-inner/0/00000000000000000000",
    "checkpoint",
    "commitlog/00000000000000000000",
    "commitlog/00000000000000131072",
    "commitlog/00000000000000589824",
    "config",
    "consumequeue",
    "consumequeue/SCHEDULE_TOPIC_XXXX",
    "consumequeue/SCHEDULE_TOPIC_XXXX/3",
    "consumequeue/SCHEDULE_TOPIC_XXXX/3/00000000000000000000",
    "index",
)


@pytest.fixture
def store(unpacked: GoldenStore) -> Path:
    return unpacked("5.3.3-clean")


def verify(store: Path, jobs: int = 1, only: Sequence[str] = ()) -> Outcome:
    verification = Verification(
        open_store(store), VerifyRequest(selection=Selection(tuple(only)), jobs=jobs, part_size=PART)
    )
    verification.run(lambda size: None)
    return outcome_of(verification)


def serious(findings: Sequence[Finding]) -> set[tuple[str, str | None]]:
    return {(found.code, found.file) for found in findings if found.severity != "info"}


def named(place: str) -> tuple[str, str]:
    """The finding about a place that cannot be read."""
    return f"{'commitlog' if place.startswith('commitlog/') else 'store'}.unreadable", place


@pytest.mark.one_in(2)
@pytest.mark.parametrize("calls", [SECTORS, pytest.param(HARDER, marks=pytest.mark.slow)], ids=["sectors", "harder"])
@pytest.mark.parametrize("place", PLACES)
def test_each_place_is_named_and_nothing_else(store: Path, place: str, calls: tuple[str, ...]) -> None:
    """What cannot be proven without it is not called wrong."""
    with unchanged(store), broken(store / place, calls):
        found = verify(store)
    assert serious(found.findings) == {named(place)}
    assert found.verdict == "unproven"
    assert found.total.totals.messages > 0


@pytest.mark.one_in(2)
@pytest.mark.parametrize("place", ["checkpoint", "config", "consumequeue", "commitlog/00000000000000000000"])
def test_what_an_unclean_stop_left_is_not_called_dirty(unpacked: Callable[[str], Path], place: str) -> None:
    """Nobody knows what clients lose of a place that cannot be read."""
    killed = unpacked("5.3.3-killed")
    assert verify(killed).verdict == "dirty"
    with broken(killed / place):
        assert verify(killed).verdict == "unproven"


@pytest.mark.one_in(4)
@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_with_processes(store: Path, place: str) -> None:
    with broken(store / place):
        found = verify(store, jobs=2)
    assert serious(found.findings) == {named(place)}


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("place", "start"),
    [
        ("commitlog/00000000000000131072", 30_000),
        ("commitlog/00000000000000589824", 512),
        ("consumequeue/SCHEDULE_TOPIC_XXXX/3/00000000000000000000", 20),
        ("index/20261121113608184", 40),
        ("index/20261121113608184", 2000),
    ],
)
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_bad_sector_within_a_file(store: Path, place: str, start: int, jobs: int) -> None:
    """What stands before it was read."""
    with broken(store / place, start=start):
        found = verify(store, jobs)
    assert serious(found.findings) == {named(place)}


@pytest.mark.slow
def test_index_files(store: Path) -> None:
    files = sorted(path.relative_to(store) for path in (store / "index").iterdir())
    for file in files:
        with broken(store / file):
            assert serious(verify(store).findings) == {("store.unreadable", str(file))}


@pytest.mark.slow
@pytest.mark.parametrize("place", ["commitlog/00000000000000131072", "consumequeue/SCHEDULE_TOPIC_XXXX", "index"])
def test_the_rest_is_verified(store: Path, tmp_path: Path, place: str) -> None:
    """A wrong body far behind the bad file, and a queue that is gone, are found as ever."""
    copy = copied(store, tmp_path / "store")
    log = copy / "commitlog" / "00000000000000458752"
    data = bytearray(log.read_bytes())
    data[200] ^= 1
    log.write_bytes(data)
    shutil.rmtree(copy / "batchconsumequeue" / "bulk-inner")
    with broken(copy / place):
        found = verify(copy)
    codes = {finding.code for finding in found.findings}
    assert named(place) in serious(found.findings)
    assert "consumequeue.missing-queue" in codes
    assert any(code.startswith("commitlog.") for code in codes)


@pytest.mark.slow
def test_bytes_that_were_not_read_are_listed(store: Path) -> None:
    with broken(store / "commitlog" / "00000000000000131072"):
        found = verify(store)
    assert [(start, size) for start, size, reason in found.total.extents if reason == UNREAD] == [(131072, 65536)]
    assert any("a start would do" in text for text in found.unproven)


def test_a_selection_does_not_hide_it(store: Path) -> None:
    with broken(store / "commitlog" / "00000000000000131072"):
        found = verify(store, only=("index.",))
    assert (found.verdict, found.status) == ("unproven", Exit.LOSSY)
    assert any("commitlog/00000000000000131072" in text for text in found.unproven)


@pytest.mark.parametrize("place", ["commitlog/00000000000000131072", "consumequeue/SCHEDULE_TOPIC_XXXX", "index"])
def test_a_user_without_permission(store: Path, place: str) -> None:
    """The store is not called corrupt, and the hint names the user who may read it."""
    with broken(store / place, HARDER, number=errno.EACCES):
        found = rmqtool("verify", store, "--json")
    assert (found.status, found.document["result"]["verdict"]) == (Exit.FINDINGS, "unproven")
    (finding,) = (line for line in found.document["findings"] if line["code"].endswith(".unreadable"))
    assert finding["file"] == place
    assert "run as the broker's user" in finding["message"]


@pytest.mark.slow
def test_the_command(store: Path) -> None:
    with broken(store / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "3"):
        found = rmqtool("verify", store, "--json")
    assert found.status == Exit.FINDINGS
    (finding,) = (line for line in found.document["findings"] if line["code"] == "store.unreadable")
    assert finding["message"].startswith("cannot read: input/output error: it is not verified")
    assert "ddrescue" in finding["message"]


@pytest.mark.parametrize("command", ["inspect", "rebuild-cq --dry-run", "clean --dry-run", "query --key k"])
def test_others_name_the_file(store: Path, command: str) -> None:
    """They say what they could not read, and never that the output could not be written."""
    name, *options = command.split()
    place = store / ("consumequeue" if name != "query" else "index")

    with unchanged(store), broken(place, HARDER):
        found = rmqtool(name, store, *options, "--json")
    assert found.status in (Exit.LOSSY, Exit.FAILED)
    text = found.out + found.err
    assert "cannot read: input/output error" in text
    assert str(place.name) in text
    assert "cannot write" not in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "code"),
    [("index/20991121113608184", "store.wrong-kind"), ("consumequeue/x", "consumequeue.stray"), ("index/x", None)],
)
def test_a_link_to_itself(store: Path, tmp_path: Path, name: str, code: str | None) -> None:
    """It is neither file nor directory, as one that leads nowhere; the rest is verified."""
    root = copied(store, tmp_path / "store")
    (root / name).symlink_to(Path(name).name)
    found = [finding for finding in verify(root).findings if finding.file == name]
    assert [finding.code for finding in found] == [code] * (code is not None)
