"""Log files that cannot be read, wholly or in part: all else is verified, and nothing is made of what they hold."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from rmqtool.show.verify_reports import outcome_json
from rmqtool.store.store import open_store
from rmqtool.verify import read_errors
from rmqtool.verify.outcome import Outcome, outcome_of
from rmqtool.verify.task import VerifyRequest
from rmqtool.verify.verification import Verification
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.store.other_process import JAVA, another_process
from tests.unreadable import bad_sectors, forbidden
from tests.verify.damages import DAMAGES, log_file
from tests.verify.small_store import FILE_SIZE, small_log, small_store
from tests.verify.verifying import codes_of, only, verify

SIZES = (1 << 40, 700)
"""Least sizes of the parts that the log is cut into, bytes: all of it at once, or several parts in each file."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return small_store(tmp_path / "store")


def files_of(store: Path) -> list[Path]:
    return sorted((store / "commitlog").iterdir())


def assert_only_unread(outcome: Outcome, path: Path) -> None:
    """Assert that the one file is what the verification speaks of."""
    found = [finding for finding in outcome.findings if finding.severity != "info"]
    assert [finding.code for finding in found] == ["commitlog.unreadable"]
    assert found[0].severity == "error"
    assert found[0].file == f"commitlog/{path.name}"
    assert (outcome.verdict, outcome.status) == ("unproven", Exit.FINDINGS)
    assert any(path.name in text for text in outcome.unproven)
    assert not outcome.lost


def unread_in(outcome: Outcome) -> list[tuple[int, int]]:
    """The extents of the map that were not read, neighbours as one: start and stop."""
    found: list[tuple[int, int]] = []
    for extent in outcome.log_map:
        if extent.state == "unread":
            start, stop = extent.physical_offset, extent.physical_offset + extent.size
            if found and found[-1][1] == start:
                start = found.pop()[0]
            found.append((start, stop))
    return found


@pytest.mark.parametrize(
    ("name", "size"),
    [
        *(("5.5.0-shop", size) for size in SIZES),
        ("4.9.7-clean", SIZES[0]),
        pytest.param("5.3.3-clean", SIZES[1], marks=pytest.mark.rare),
    ],
)
def test_each_file_of_a_healthy_store(name: str, size: int, golden_store: GoldenStore) -> None:
    """The files before and after it are read, queues and index that lead into it are neither right nor wrong."""
    store = golden_store(name)
    messages, seen = verify(store).total.totals.messages, 0
    for path in files_of(store):
        begin, length = int(path.name), path.stat().st_size
        with forbidden(path):
            outcome = verify(store, part_size=size)
        assert_only_unread(outcome, path)
        assert unread_in(outcome) == [(begin, begin + length)]
        assert outcome.total.totals.messages <= messages
        seen += messages - outcome.total.totals.messages
    assert seen == messages


@pytest.mark.one_in(3)
@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("where", [0, 1, 2])
def test_bad_sectors(where: int, size: int, golden_store: GoldenStore) -> None:
    """What stands before them in their file is read."""
    store = golden_store("5.3.3-clean")
    files = files_of(store)
    for path in (files[0], files[len(files) // 2], files[-1]):
        begin, length = int(path.name), path.stat().st_size
        at = (0, length // 3, length - 600)[where]
        with bad_sectors(path, at):
            outcome = verify(store, part_size=size)
        assert_only_unread(outcome, path)
        ((start, stop),) = unread_in(outcome)
        assert begin <= start <= begin + at
        assert stop == begin + length


@pytest.mark.slow
def test_two_files(golden_store: GoldenStore) -> None:
    """Each is named, and what lies between is read."""
    store = golden_store("5.3.3-clean")
    files = files_of(store)
    with forbidden(files[1], files[3]):
        outcome = verify(store)
    found = [finding.file for finding in outcome.findings if finding.code == "commitlog.unreadable"]
    assert found == [f"commitlog/{files[1].name}", f"commitlog/{files[3].name}"]
    assert codes_of(outcome) == {"commitlog.unreadable"}
    assert len(unread_in(outcome)) == 2


def test_all_files(store: Path) -> None:
    """Nothing is known of the log, and nothing is said of queues and index."""
    with forbidden(*files_of(store)):
        outcome = verify(store)
    assert codes_of(outcome) == {"commitlog.unreadable"}
    assert outcome.verdict == "unproven"


def test_damage_elsewhere_is_still_found(store: Path) -> None:
    """Findings decide the verdict before what was not read."""
    DAMAGES["body"].apply(store)
    DAMAGES["hole"].apply(store)
    with forbidden(log_file(store, 2)):
        outcome = verify(store)
    assert {"commitlog.body-crc", "consumequeue.hole", "commitlog.unreadable"} <= codes_of(outcome)
    assert outcome.verdict == "corrupt"


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1, 2])
def test_processes_find_the_same(number: int, store: Path) -> None:
    """Byte for byte, whoever does the part."""
    documents = []
    with forbidden(log_file(store, number)):
        for jobs in (1, 2):
            outcome = verify(store, jobs=jobs, part_size=350)
            documents.append((outcome_json(outcome), outcome.findings))
    assert documents[0] == documents[1]


def test_no_start_is_predicted(store: Path) -> None:
    """Where the broker's scan would end is not known, and that is said."""
    with forbidden(log_file(store, 1)):
        outcome = verify(store)
    assert outcome.start is None
    assert log_file(store, 1).name in (outcome.start_not_predicted or "")
    assert any(gap.codes == ("start.",) for gap in outcome.gaps)


def test_what_is_left_out_matters_only_when_it_was_asked_for(store: Path) -> None:
    """The finding belongs to the log; the gap belongs to all, for everything is held against the log."""
    with forbidden(log_file(store, 1)):
        outcome = verify(store, selection=only("index"))
    assert codes_of(outcome) == set()
    assert (outcome.verdict, outcome.status) == ("unproven", Exit.LOSSY)


def live(store: Path, make: Callable[[], AbstractContextManager[None]]) -> Outcome:
    with another_process(store / "lock", JAVA), make():
        verification = Verification(open_store(store), VerifyRequest())
        verification.run(lambda size: None)
        return outcome_of(verification)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_while_a_broker_runs(number: int, store: Path) -> None:
    """A file that may not be read is not taken for one that the broker has deleted."""
    outcome = live(store, lambda: forbidden(log_file(store, number)))
    assert_only_unread(outcome, log_file(store, number))
    assert unread_in(outcome) == [(number * FILE_SIZE, (number + 1) * FILE_SIZE)]


@pytest.mark.slow
@pytest.mark.parametrize("left", [0, 1, 4])
def test_a_file_that_is_filled_between_two_parts(left: int, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One part ends with the log as it was then, the next is read after the log has rolled: no gap is between them."""
    find, finds = read_errors.WrittenEnd.find, 0
    border = 2 * FILE_SIZE
    offsets = [offset for offset in small_log().offsets if FILE_SIZE < offset < border]

    def find_late(end: read_errors.WrittenEnd) -> int:
        nonlocal finds
        finds += 1
        found = find(end)
        if finds in (3, 4):  # of the second part
            found = end.found = offsets[-left] if left else FILE_SIZE
        return found

    monkeypatch.setattr(read_errors.WrittenEnd, "find", find_late)
    with another_process(store / "lock", JAVA):
        verification = Verification(open_store(store), VerifyRequest(sample=1.0))
        verification.run(lambda size: None)
        outcome = outcome_of(verification)
    parts = len(open_store(store).commit_log().files)
    assert finds == 2 * parts + 2, "only the second part is read again"
    assert codes_of(outcome) == codes_of(live(store, nullcontext))
    assert outcome.total.totals.messages == len(small_log().offsets)


def test_a_healthy_copy_has_no_such_finding(store: Path, tmp_path: Path) -> None:
    """The twin of all this."""
    copy = copied(store, tmp_path / "copy")
    outcome = verify(copy)
    assert outcome.verdict == "clean"
    assert unread_in(outcome) == []


def test_the_end_of_the_log(store: Path) -> None:
    """The newest messages are in a file that cannot be read: checkpoint, queues and index are not ahead of the log."""
    last = files_of(store)[-1]
    with forbidden(last):
        outcome = verify(store)
    assert_only_unread(outcome, last)
