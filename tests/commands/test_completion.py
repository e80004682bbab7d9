"""Shell completion: what each shell is told, and words that the store knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.running import environment, finish, spawn
from tests.conftest import GoldenStore

FOLDER = Path(__file__).parents[2] / "docs" / "completions"
INSTALLED = {"bash": FOLDER / "rmqtool", "zsh": FOLDER / "_rmqtool", "fish": FOLDER / "rmqtool.fish"}
"""The scripts that are installed along; `make pages` writes them."""


def completed(*words: str | Path, shell: str = "bash") -> list[str]:
    """What completes the last word, as bash is told: ``kind,value`` in lines."""
    line = ["rmqtool", *map(str, words)]
    asked = {"_RMQTOOL_COMPLETE": f"{shell}_complete", "COMP_WORDS": " ".join(line), "COMP_CWORD": str(len(line) - 1)}
    if shell == "fish":
        asked["COMP_CWORD"] = line[-1]
    found = finish(spawn(env=environment(**asked)))
    assert found.err == ""
    return found.out.strip().splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("part", ["", "commitlog", "consumequeue", "consumequeue/orders/0"])
def test_topics_of_the_store(golden_store: GoldenStore, part: str) -> None:
    """From the store or any place in it, those that begin with what was typed."""
    store = golden_store("5.3.3-clean")
    assert completed("inspect", store / part, "--topic", "ord") == ["plain,orders"]


@pytest.mark.slow
def test_queues_of_a_topic(golden_store: GoldenStore) -> None:
    """Of the topic on the line; without one, of all."""
    store = golden_store("5.3.3-clean")
    assert completed("inspect", store, "--topic", "payments", "--queue", "") == ["plain,0", "plain,1"]


@pytest.mark.slow
def test_batch_topics_too(golden_store: GoldenStore) -> None:
    assert completed("inspect", golden_store("5.3.3-clean"), "--topic", "bulk-i") == ["plain,bulk-inner"]


@pytest.mark.slow
def test_groups_of_the_store(golden_store: GoldenStore) -> None:
    """Those that have committed offsets, in whichever file the release keeps them."""
    assert completed("query", golden_store("5.3.3-shop"), "--group", "bil") == ["plain,billing"]
    assert completed("pending", golden_store("5.5.0-shop"), "--group", "de") == ["plain,desk"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("inspect", "--time-zone", "Asia/Shan"), ["plain,Asia/Shanghai"]),
        (("verify", "--broker-version", "5.3.3"), ["plain,5.3.3"]),
        (("verify", "--only", "commitlog.body"), ["plain,commitlog.body-compression", "plain,commitlog.body-crc"]),
        (
            ("verify", "--skip", "index,commitlog.body"),
            ["plain,index,commitlog.body-compression", "plain,index,commitlog.body-crc"],
        ),
        (("export", "--partition-by", "topic,da"), ["plain,topic,date"]),
        (("export", "--columns", "topic,body_si"), ["plain,topic,body_size"]),
        (("export", "--compression", "s"), ["plain,snappy"]),
    ],
)
def test_names_that_there_are_many_of(words: tuple[str, ...], expected: list[str]) -> None:
    assert completed(*words) == expected


@pytest.mark.slow
def test_without_a_store_there_is_nothing(tmp_path: Path) -> None:
    """No path, a path that is not there, and a place that is no store complete nothing and fail nothing."""
    for words in (["--topic", "o"], [tmp_path / "nowhere", "--topic", "o"], [tmp_path, "--queue", "1"]):
        assert completed("inspect", *words) == []


@pytest.mark.slow
def test_options_and_their_values() -> None:
    """Options, commands, kinds and formats; a path is left to the shell."""
    assert "plain,--topic" in completed("inspect", "--to")
    assert completed("ins") == ["plain,inspect"]
    assert "plain,consumequeue-ext" in completed("inspect", "--as", "consume")
    assert completed("inspect", "--format", "c") == ["plain,csv"]
    assert completed("inspect", "/data/ro") == ["file,/data/ro"]


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str) -> None:
    """The script names the program and comes back to it."""
    found = finish(spawn(env=environment(_RMQTOOL_COMPLETE=f"{shell}_source")))
    assert (found.status, found.err) == (0, "")
    assert "_RMQTOOL_COMPLETE=" + shell in found.out
    assert found.out.strip() == INSTALLED[shell].read_text().strip()


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_told_the_same(golden_store: GoldenStore, shell: str) -> None:
    """In their own forms."""
    assert any(
        "orders" in line for line in completed("inspect", golden_store("5.3.3-clean"), "--topic", "ord", shell=shell)
    )
