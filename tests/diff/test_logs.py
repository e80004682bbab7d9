"""Where two logs part: pairs whose answer is known."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqtool.base.errors import Exit
from rmqtool.base.files import RateLimit
from rmqtool.diff.comparison import next_steps
from rmqtool.diff.log_pass import DiffRequest
from tests.building import START_TIME
from tests.diff.pairs import FILE_SIZE, RECORDS, change, compared, log_file, log_of, pair

FAST = DiffRequest(fast=True)
BODY_AT = 88  # after the fixed fields of a record
STORE_TIMESTAMP_AT = 63  # its last byte


def test_the_same(tmp_path: Path) -> None:
    found = compared(*pair(tmp_path, log_of(), log_of()))
    assert (found.verdict, found.status, found.not_compared) == ("same", Exit.OK, [])
    assert found.parting.extents == 0


def test_a_store_and_itself(tmp_path: Path) -> None:
    store, _ = pair(tmp_path, log_of(), log_of(1))
    assert compared(store, store).verdict == "same"


@pytest.mark.slow
@settings(max_examples=10)
@given(cut=st.integers(1, RECORDS - 1))
def test_one_is_ahead(cut: int) -> None:
    """Cut after any record: what only the other has is counted by topic, and queues differ as the logs do."""
    with TemporaryDirectory() as directory:
        whole, part = log_of(), log_of(cut)
        a, b = pair(Path(directory), whole, part)
        found, turned = compared(a, b), compared(b, a)
    topics = Counter(("orders", "payments")[number % 2] for number in range(cut, RECORDS))
    assert (found.verdict, turned.verdict, found.status) == ("a-ahead", "b-ahead", Exit.FINDINGS)
    assert dict(found.tails["a"].topics) == dict(turned.tails["b"].topics) == topics
    assert "b" not in found.tails
    assert found.own_queue_differences == turned.own_queue_differences == []


@pytest.mark.parametrize("is_older", [True, False])
def test_what_a_cut_slave_had_before(tmp_path: Path, *, is_older: bool) -> None:
    """It stays on the disk after what the new master sent, and a start would take it for messages: that is said."""
    whole, part = log_of(20), log_of(20)
    for number in range(5):
        whole.put("orders", store_timestamp=START_TIME + (1000 if is_older else 90_000) + number, body=b"of before")
    a, b = pair(tmp_path, whole, part)
    found = compared(a, b)
    assert (found.verdict, found.tails["a"].messages, found.tails["a"].is_older) == ("a-ahead", 5, is_older)
    assert ("do not make A a master" in " ".join(next_steps(found))) is is_older
    assert ("B catches up as a slave" in " ".join(next_steps(found))) is not is_older


@pytest.mark.slow
@settings(max_examples=10)
@given(at=st.integers(1, RECORDS - 1), length=st.integers(0, 5))
def test_diverged(at: int, length: int) -> None:
    """From any record on, with tails of any length: the place, and both tails."""
    with TemporaryDirectory() as directory:
        other = log_of(min(RECORDS, at + 1 + length), parted_at=at)
        found = compared(*pair(Path(directory), log_of(), other), DiffRequest(only="b", limit=100))
    assert (found.verdict, found.common_end) == ("diverged", other.offsets[at])
    assert found.tails["a"].messages == RECORDS - at
    assert [message["physical_offset"] for message in found.listed] == other.offsets[at:]
    assert found.own_queue_differences == []


def test_diverged_at_the_first_message(tmp_path: Path) -> None:
    """Logs of different brokers are not compared by offset."""
    found = compared(*pair(tmp_path, log_of(), log_of(parted_at=0)))
    assert (found.verdict, found.shares_beginning, found.tails, found.queues) == ("diverged", False, {}, ())
    assert "have no common beginning" in found.not_compared[0]


@pytest.mark.parametrize("start", [0, 1000 * FILE_SIZE])
def test_a_header_that_differs_at_the_first_message(start: int, tmp_path: Path) -> None:
    """No CRC says which side is wrong, and the logs go on together; also when the first files were deleted."""
    log = log_of(start_offset=start)
    a, b = pair(tmp_path, log, log_of(start_offset=start))
    path, position = log_file(b, log.offsets[0])
    change(path, position + STORE_TIMESTAMP_AT)
    found = compared(a, b)
    assert (found.verdict, found.parting.damaged, found.parting.extents, found.tails) == ("damaged", (), 1, {})


@pytest.mark.slow
@settings(max_examples=10)
@given(at=st.integers(0, RECORDS - 2), turned=st.booleans())
def test_a_damaged_body(at: int, turned: bool) -> None:
    """A flipped byte is damage of its side, not another log."""
    with TemporaryDirectory() as directory:
        log = log_of()
        a, b = pair(Path(directory), log, log_of())
        path, position = log_file(b, log.offsets[at])
        change(path, position + BODY_AT)
        found = compared(b, a) if turned else compared(a, b)
    assert (found.verdict, found.parting.damaged) == ("damaged", ("a",) if turned else ("b",))
    (difference,) = found.parting.differences
    assert (difference.offset, difference.start) == (log.offsets[at] + BODY_AT, log.offsets[at])


def test_damage_of_both(tmp_path: Path) -> None:
    """Each at its place; records that are whole in both lie between them."""
    log = log_of()
    a, b = pair(tmp_path, log, log_of())
    for store, number in ((a, 3), (b, 17)):
        path, position = log_file(store, log.offsets[number])
        change(path, position + BODY_AT)
    found = compared(a, b)
    assert [(one.start, one.damaged) for one in found.parting.differences] == [
        (log.offsets[3], ("a",)),
        (log.offsets[17], ("b",)),
    ]


def test_damage_before_they_part(tmp_path: Path) -> None:
    """The damage does not hide where they part."""
    log = log_of()
    a, b = pair(tmp_path, log, log_of(parted_at=20))
    path, position = log_file(b, log.offsets[2])
    change(path, position + BODY_AT)
    found = compared(a, b)
    assert (found.verdict, found.common_end, found.parting.damaged) == ("diverged", log.offsets[20], ("b",))


def test_a_field_that_no_crc_covers(tmp_path: Path) -> None:
    """The logs agree again after it: one of them was changed."""
    log = log_of()
    a, b = pair(tmp_path, log, log_of())
    path, position = log_file(b, log.offsets[5])
    change(path, position + 19)  # the flag
    found = compared(a, b)
    assert (found.verdict, found.parting.damaged) == ("damaged", ())


@pytest.mark.slow
@pytest.mark.parametrize("apart", [1, 400])
def test_a_changed_field_before_they_part(tmp_path: Path, apart: int) -> None:
    """Records between the two places agree: the first is no place where they part, however near or far it is."""
    log, other = log_of(apart + 24, file_size=1 << 20), log_of(apart + 24, parted_at=apart + 20, file_size=1 << 20)
    a, b = pair(tmp_path, log, other)
    change(b / "commitlog" / f"{0:020d}", log.offsets[5] + 19)
    found = compared(a, b)
    assert (found.verdict, found.common_end) == ("diverged", log.offsets[apart + 20])
    assert found.parting.extents == (2 if apart > 1 else 1)


@pytest.mark.parametrize("how", ["zeroed", "missing", "cut", "swapped"])
def test_a_damaged_file(tmp_path: Path, how: str) -> None:
    """A file in the middle that is damaged as a whole."""
    a, b = pair(tmp_path, log_of(), log_of())
    files = sorted((b / "commitlog").iterdir())
    data = [path.read_bytes() for path in files]
    match how:
        case "zeroed":
            files[1].write_bytes(bytes(FILE_SIZE))
        case "missing":
            files[1].unlink()
        case "cut":
            files[1].write_bytes(data[1][:1000])
        case "swapped":
            files[0].write_bytes(data[1])
            files[1].write_bytes(data[0])
    found = compared(a, b)
    assert (found.verdict, found.parting.damaged) == ("damaged", ("b",))


def test_filler_is_no_difference(tmp_path: Path) -> None:
    """Nobody reads what stands after a blank's first eight bytes."""
    found = compared(*pair(tmp_path, log_of(), log_of(filler=b"\xab\xcd")))
    assert found.verdict == "same"


def test_bytes_behind_the_end_are_no_difference(tmp_path: Path) -> None:
    """They are mentioned."""
    log = log_of()
    a, b = pair(tmp_path, log, log_of())
    path, position = log_file(b, log.end)
    change(path, position + 9)
    found = compared(a, b)
    assert (found.verdict, found.b.data_end - found.b.end) == ("same", 10)


def test_a_trimmed_beginning(tmp_path: Path) -> None:
    """The rest is the same; that one begins later is a difference."""
    a, b = pair(tmp_path, log_of(), log_of())
    (b / "commitlog" / f"{0:020d}").unlink()
    assert compared(a, b).own_queue_differences == []
    for store in (a, b):
        shutil.rmtree(store / "consumequeue")
    found = compared(a, b)
    assert (found.log_verdict, found.verdict, found.start) == ("same", "differs", FILE_SIZE)


def test_no_overlap(tmp_path: Path) -> None:
    """One ends before the other begins."""
    log = log_of()
    a, b = pair(tmp_path, log_of(3), log)
    (b / "commitlog" / f"{0:020d}").unlink()
    found = compared(a, b)
    assert (found.verdict, found.shares_beginning, found.tails) == ("no-overlap", False, {})


def test_a_missing_log(tmp_path: Path) -> None:
    """All messages are only in the other store; two that have none are not proven the same."""
    a, b = pair(tmp_path, log_of(), log_of())
    shutil.rmtree(b / "commitlog")
    found = compared(a, b)
    assert (found.verdict, found.tails["a"].messages) == ("a-ahead", RECORDS)
    assert compared(b, b).verdict == "unproven"


def test_other_file_sizes(tmp_path: Path) -> None:
    """The logs part where the smaller file ends."""
    found = compared(*pair(tmp_path, log_of(), log_of(file_size=2 * FILE_SIZE)))
    assert found.verdict == "diverged"
    assert found.parting.differences[0].a.kind == "blank"


@pytest.mark.parametrize("at", [1, 12, RECORDS - 1])
def test_fast_finds_that_they_part(tmp_path: Path, at: int) -> None:
    """By a page of each file, and the last page."""
    a, b = pair(tmp_path, log_of(), log_of(parted_at=at))
    found = compared(a, b, FAST)
    assert (found.verdict, found.tails, found.configs) == ("diverged", {}, ())
    assert found.not_compared


def test_fast_reads_the_last_page(tmp_path: Path) -> None:
    """Where the last records are not the same, and no file begins."""
    a, b = pair(tmp_path, log_of(100, file_size=1 << 20), log_of(100, parted_at=97, file_size=1 << 20))
    assert compared(a, b, FAST).verdict == "diverged"


def test_fast_same(tmp_path: Path) -> None:
    assert compared(*pair(tmp_path, log_of(), log_of()), FAST).verdict == "same"


def test_a_limited_rate(tmp_path: Path) -> None:
    a, b = pair(tmp_path, log_of(), log_of())
    assert compared(a, b, limit=RateLimit(1 << 30)).verdict == "same"
