"""`rmqtool diff`: verdicts and statuses, text and JSON of the same facts, real stores, what cannot be read."""

from __future__ import annotations

import os
import re
import tarfile
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from tests.commands.running import Result, rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.diff.pairs import FILE_SIZE, change, log_file, log_of, pair, write_epochs
from tests.samples import missing_line
from tests.store.other_process import JAVA, another_process
from tests.unchanged import unchanged
from tests.unreadable import forbidden

LOSS_STORES = Path(__file__).parents[1] / "verify" / "loss_stores"
PAGE = Path(__file__).parents[2] / "docs" / "diff.md"


def diff(a: Path, b: Path, *options: str) -> Result:
    """Compare, and assert that both are as before."""
    with unchanged(a), unchanged(b):
        return rmqtool("diff", a, b, *options)


@pytest.fixture
def parted(tmp_path: Path) -> tuple[Path, Path]:
    """Two stores that part at record 18."""
    return pair(tmp_path, log_of(), log_of(23, parted_at=18))


def test_same(golden_store: GoldenStore) -> None:
    store = golden_store("5.3.3-shop")
    found = diff(store, store)
    assert (found.status, found.err) == (Exit.OK, "")
    assert "\nsame: no difference\n" in found.out
    assert diff(store, store, "--fast").status == Exit.OK


@pytest.mark.slow
@pytest.mark.parametrize("release", ["4.9.7", "5.3.3"])
def test_one_broker_earlier_and_later(tmp_path: Path, release: str) -> None:
    """What a broker wrote between two stops is what only the later store has, whichever is given first."""
    with tarfile.open(LOSS_STORES / f"{release}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    later, older = tmp_path / "store", tmp_path / "older"
    found = diff(later, older, "--json").document["result"]
    assert (found["verdict"], found["only_b"], found["queues"]["unexplained"]) == ("a-ahead", None, 0)
    scanned = [rmqtool("inspect", store, "--scan", "--json").document["result"]["scan"] for store in (later, older)]
    assert found["only_a"]["messages"] == scanned[0]["messages"] - scanned[1]["messages"]
    turned = diff(older, later, "--json").document["result"]
    assert (turned["verdict"], turned["only_b"]) == ("b-ahead", found["only_a"])
    assert all(one["file"] != "topics.json" for one in found["config"]["examples"])


def test_stores_of_two_brokers(golden_store: GoldenStore) -> None:
    found = diff(golden_store("5.3.3-shop"), golden_store("5.5.0-clean"))
    assert found.status == Exit.FINDINGS
    assert "not copies of one log" in found.out
    assert "--by-message" in found.out.splitlines()[-1]


def test_the_example_of_the_page(parted: tuple[Path, Path]) -> None:
    """The text in docs/diff.md is what the program prints, paths aside."""
    shown = re.findall(r"```text\n(.*?)```", PAGE.read_text(), re.DOTALL)[0].splitlines()
    a, b = parted
    printed = diff(a, b).out.replace(str(a), "/data/master/store").replace(str(b), "/data/slave/store").splitlines()
    assert missing_line([line for line in shown if line], printed) is None


def test_no_line_is_wider_than_a_terminal(parted: tuple[Path, Path]) -> None:
    """The picture and the verdict fit in 80 columns."""
    assert max(map(len, diff(*parted).out.split("\nWhere")[0].splitlines()[4:])) <= 80


@pytest.mark.slow
def test_text_says_what_json_says(parted: tuple[Path, Path]) -> None:
    """Where they part, what only one has, and what to do."""
    for store, epoch in zip(parted, (3, 2), strict=True):
        write_epochs(store, [(1, 0), (epoch, log_of().offsets[18])])
    text, found = diff(*parted).out, diff(*parted, "--json").document
    result = found["result"]
    assert (found["exit"]["code"], result["verdict"]) == (1, "diverged")
    assert f"diverged at {result['diverged_at']}:" in text
    assert f"Only A has {result['only_a']['messages']} messages" in text
    assert f"Only B has {result['only_b']['messages']} messages" in text
    assert f"B as slave of A cuts everything from {result['epochs']['b_follows_a']['consistent_point']} on" in text
    assert [step for step in result["next"] if step not in text] == []


def test_what_only_one_has_is_listed(parted: tuple[Path, Path]) -> None:
    """As text and as JSON, up to the limit; quiet leaves the next steps out."""
    found = diff(*parted, "--only", "b", "--limit", "3", "--json").document["result"]["listed"]
    assert [message["unique_key"][8:] for message in found] == [f"000018B4AAC2{number:012X}" for number in (18, 19, 20)]
    text = diff(*parted, "--only", "b", "--limit", "3", "-q").out
    assert [message for message in found if message["unique_key"] not in text] == []
    assert "What to do" not in text


def test_the_export_that_is_printed_saves_them(parted: tuple[Path, Path], tmp_path: Path) -> None:
    """The command that `diff` ends with exports what only B has."""
    found = diff(*parted, "--json").document["result"]
    (step,) = [step for step in found["next"] if "rmqtool export" in step and str(parted[1]) in step]
    words = step.partition("rmqtool ")[2].replace("DIR", str(tmp_path / "out")).split()
    exported = rmqtool(*words, "--engine", "local", "--json")
    assert exported.status == Exit.OK, exported.err
    assert exported.document["result"]["rows"] == found["only_b"]["messages"] == 5


def test_damage_is_named(tmp_path: Path) -> None:
    """With its side, its record, and the command to see more."""
    log = log_of()
    a, b = pair(tmp_path, log, log_of())
    path, position = log_file(b, log.offsets[7])
    change(path, position + 88)
    found = diff(a, b)
    assert found.status == Exit.FINDINGS
    for words in ("damaged: A and B are copies of one log, but B is damaged", "wrong body CRC", f"verify {b}"):
        assert words in found.out


@pytest.mark.slow
def test_what_was_lost_is_not_said_to_be_whole(tmp_path: Path) -> None:
    """A salvaged copy has nothing of what the damaged one has lost."""
    log = log_of()
    a, b = pair(tmp_path, log, log_of())
    path, position = log_file(a, log.offsets[7])
    change(path, position + 88)
    salvaged = rmqtool("salvage", a, "--output", tmp_path / "saved")
    assert salvaged.status == Exit.FINDINGS
    assert "commitlog.field" not in salvaged.out  # the queue entry of what was lost damages no dummy record
    found = diff(a, tmp_path / "saved")
    for words in ("a dummy record in place of what was lost", "neither has the original bytes", "queues differ, too"):
        assert words in found.out
    assert "rebuild A from B, whose" not in found.out
    assert "rebuild A from B, whose" in diff(a, b).out


def test_a_cut_file_does_not_catch_up(tmp_path: Path) -> None:
    """A broker refuses to start with it."""
    log = log_of()
    a, b = pair(tmp_path, log, log_of())
    path, position = log_file(b, log.offsets[-1])
    os.truncate(path, position + 10)
    found = diff(a, b)
    for words in (f"{path.name} has {position + 10} bytes: no broker", "set B up again from A: no broker starts"):
        assert words in found.out


def test_a_change_that_no_crc_covers(tmp_path: Path) -> None:
    """Nothing shows which of them was changed: both are to be verified."""
    log = log_of()
    a, b = pair(tmp_path, log, log_of())
    path, position = log_file(b, log.offsets[7])
    change(path, position + 19)
    found = diff(a, b)
    for words in ("but one of them was changed afterwards", f"verify {a}", f"verify {b}"):
        assert words in found.out


def test_an_unreadable_file_that_only_one_has(tmp_path: Path) -> None:
    """What is in the others is counted, and the file is named."""
    whole = log_of()
    a, b = pair(tmp_path, whole, log_of(3))
    second = sorted((a / "commitlog").iterdir())[1]
    with forbidden(second):
        answer = diff(a, b, "--json")
    result = answer.document["result"]
    held = [offset for offset in whole.offsets[3:] if offset // FILE_SIZE != 1]
    assert (answer.status, result["verdict"], result["only_a"]["messages"]) == (Exit.FINDINGS, "a-ahead", len(held))
    assert [each["file"] for each in result["unread"]] == [str(second)]


def test_an_unreadable_file(tmp_path: Path) -> None:
    """What is left is compared; no difference is not proven then."""
    a, b = pair(tmp_path, log_of(), log_of())
    first = sorted((b / "commitlog").iterdir())[1]
    with forbidden(first):
        found = diff(a, b)
        assert diff(a, b, "--json").status == Exit.LOSSY
    assert found.status == Exit.LOSSY
    assert f"cannot be read: {first}" in found.out


def test_a_broker_runs_on_it(tmp_path: Path) -> None:
    """Only whole messages are compared: what it is writing just now is no difference."""
    log = log_of()
    a, b = pair(tmp_path, log, log_of())
    path, position = log_file(a, log.end)
    change(path, position + 3)
    with another_process(a / "lock", JAVA):
        found = diff(a, b)
    assert (found.status, "a broker runs on it" in found.out, "after the last" in found.out) == (0, True, False)


def test_what_is_no_store(tmp_path: Path) -> None:
    store, _ = pair(tmp_path, log_of(1), log_of(1))
    empty = tmp_path / "empty"
    empty.mkdir()
    assert diff(store, empty).status == diff(empty, store).status == Exit.NOT_A_STORE
    assert rmqtool("diff", store, tmp_path / "nowhere").status == Exit.FAILED
    assert rmqtool("diff", store).status == Exit.USAGE
    assert rmqtool("diff", store, store, "--fast", "--only", "a").status == Exit.USAGE


def test_stores_without_messages(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Two of them are the same, and any log is ahead of one."""
    empty = golden_store("5.3.3-empty")
    copy = copied(empty, tmp_path / "copy")
    assert diff(empty, copy).status == Exit.OK
    assert diff(golden_store("5.3.3-shop"), empty, "--json").document["result"]["verdict"] == "a-ahead"
