"""The steps that verify prints, run as they are printed: each does what it says, and none is printed again."""

from __future__ import annotations

import os
import shlex
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.errors import Exit
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied

_MAX_ROUNDS = 4
_CONF = "maxHashSlotNum=50\nmaxIndexNum=1000\nmapperFileSizeBatchConsumeQueue=460\n"
_WITH_YES = ("repair", "rebuild-cq", "rebuild-index")


def verified(store: Path) -> tuple[dict[str, Any], set[str]]:
    """The plan, and the codes above information."""
    document = rmqtool("verify", store, "--json").document
    return document["result"]["plan"], {each["code"] for each in document["findings"] if each["severity"] != "info"}


def follow(store: Path) -> tuple[dict[str, Any], set[str]]:
    """Run the first command that verify prints, and verify again, until it prints none; what is left."""
    conf = store.with_suffix(".conf")
    conf.write_text(_CONF)
    for _ in range(_MAX_ROUNDS):
        plan, codes = verified(store)
        commands = [step["command"] for step in plan["steps"] if step["command"]]
        if not commands:
            return plan, codes
        program, name, *words = (str(conf) if word == "BROKER_CONF" else word for word in shlex.split(commands[0]))
        assert program == "rmqtool"
        found = rmqtool(name, *words, *(["--yes"] if name in _WITH_YES else []))
        assert found.status in (Exit.OK, Exit.FINDINGS), found.err
        assert "nothing to" not in found.err, commands[0]
    raise AssertionError(f"printed again and again: {commands}")


def overwrite(file: Path, position: int, data: bytes) -> None:
    """Put bytes into a file."""
    with file.open("r+b") as opened:
        opened.seek(position)
        opened.write(data)


def cut_a_file_of_a_whole_unit(store: Path) -> None:
    """Of a queue of which the log holds no message."""
    os.truncate(store / "consumequeue/early/0/00000000000000000600", 40)


def cut_a_file_in_a_unit(store: Path) -> None:
    """Of a queue of which the log holds no message."""
    os.truncate(store / "consumequeue/SCHEDULE_TOPIC_XXXX/16/00000000000000000000", 599)


def lose_a_unit_before_the_log(store: Path) -> None:
    """Of a queue that has messages in the log after it."""
    overwrite(store / "consumequeue/orders/1/00000000000000000600", 20, bytes(20))


def lose_the_index(store: Path) -> None:
    """The whole directory: no file shows the size of index files any more."""
    shutil.rmtree(store / "index")


def pipe_in_place_of_the_index(store: Path) -> None:
    """It is taken out of the way first; then no file shows the size of index files."""
    (file,) = (store / "index").iterdir()
    file.unlink()
    os.mkfifo(file)


def link_in_place_of_the_checkpoint(store: Path) -> None:
    """It points to nothing."""
    (store / "checkpoint").unlink()
    (store / "checkpoint").symlink_to(store / "gone")


def cut_a_batch_queue(store: Path) -> None:
    """Its only file: none shows the size any more."""
    os.truncate(store / "batchconsumequeue/bulk/0/00000000000000000000", 191)


def cut_a_log_file_in_its_blank(store: Path) -> None:
    """The file is filled up, and with it the blank: they are not two changes of one file."""
    os.truncate(store / "commitlog/00000000000000196608", 65516)


@pytest.mark.slow
def test_a_start_that_most_releases_refuse_is_not_the_next_step(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Of the releases that fit only one starts on an empty log file: that the broker is that one, nobody knows."""
    store = copied(golden_store("4.7.1-killed"), tmp_path / "store")
    os.truncate(max((store / "commitlog").iterdir()), 0)
    result = rmqtool("verify", store, "--json").document["result"]
    assert result["verdict"] == "unproven"
    assert [step["command"] for step in result["plan"]["steps"]] == [
        f"rmqtool verify {store} --broker-version VERSION", f"rmqtool repair {store}", None,
    ]  # fmt: skip
    assert result["plan"]["start_after"] == 2
    for version, step in (
        ("4.9.2", "Start the broker: its startup recovery fixes this"),
        ("4.7.1", "Repair the store"),
    ):
        named = rmqtool("verify", store, "--json", "--broker-version", version).document["result"]["plan"]
        assert named["steps"][0]["text"].startswith(step)
    assert rmqtool("repair", store, "--yes").status == Exit.FINDINGS
    assert rmqtool("verify", store, "--json").document["result"]["verdict"] == "dirty"


DAMAGES: list[tuple[str, Callable[[Path], None]]] = [
    ("4.9.7-trimmed", cut_a_file_of_a_whole_unit),
    ("5.3.3-trimmed", cut_a_file_in_a_unit),
    ("5.3.3-trimmed", lose_a_unit_before_the_log),
    ("more/5.3.3-dledger", lose_the_index),
    ("5.5.0-shop", cut_a_batch_queue),
    ("4.9.7-killed", cut_a_log_file_in_its_blank),
    ("5.3.3-shop", pipe_in_place_of_the_index),
    ("5.3.3-shop", link_in_place_of_the_checkpoint),
]


@pytest.mark.one_in(2)
@pytest.mark.slow
@pytest.mark.parametrize(("name", "damage"), DAMAGES)
def test_the_steps_mend_all(
    golden_store: GoldenStore, tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    """Nothing above information is left, but for what a sound store has."""
    store = copied(golden_store(name), tmp_path / "store")
    sound = verified(store)[1]
    damage(store)
    assert verified(store)[1] - sound
    assert follow(store)[1] <= sound


@pytest.mark.slow
def test_a_log_that_no_repair_mends(golden_store: GoldenStore, tmp_path: Path) -> None:
    """No broker starts on it, and nobody is sent to start one: a new store is made of it."""
    store = copied(golden_store("4.9.7-killed"), tmp_path / "store")
    with (store / "commitlog/00000000000000131072").open("ab") as file:
        file.write(b"x")
    steps = verified(store)[0]["steps"]
    assert steps[-1]["command"] == f"rmqtool salvage {store} --output NEW"
    assert not [step for step in steps if step["text"].startswith("Start the broker")]
    assert rmqtool("salvage", store, "--output", tmp_path / "new").status == Exit.OK
    assert not verified(tmp_path / "new")[1]


@pytest.mark.slow
def test_a_queue_that_cannot_be_read(golden_store: GoldenStore, tmp_path: Path) -> None:
    """No repair is printed that would end there: others of the log's queues, and offsets in them, have to wait."""
    store = copied(golden_store("5.3.3-trimmed"), tmp_path / "store")
    overwrite(store / "consumequeue/orders/1/00000000000000001200", 40, bytes(20))
    file = store / "consumequeue/payments/0/00000000000000001200"
    file.unlink()
    file.symlink_to(tmp_path / "a disk that is not mounted")
    assert "consumequeue.hole" in follow(store)[1]
    shutil.copyfile(golden_store("5.3.3-trimmed") / file.relative_to(store), tmp_path / "a disk that is not mounted")
    assert not follow(store)[1]


@pytest.mark.slow
def test_an_empty_file_of_a_queue_without_messages(golden_store: GoldenStore, tmp_path: Path) -> None:
    """No broker of its release starts on it, and no rebuild writes it: it is filled up."""
    store = copied(golden_store("4.7.1-trimmed"), tmp_path / "store")
    os.truncate(store / "consumequeue/SCHEDULE_TOPIC_XXXX/16/00000000000000000000", 0)
    asked = ("verify", store, "--json", "--broker-version", "4.7.1")
    start = rmqtool(*asked).document["result"]["start"]
    assert start["clients"]["refuses"]
    rmqtool("repair", store, "--yes", "--broker-version", "4.7.1")
    result = rmqtool(*asked).document["result"]
    assert (result["verdict"], result["start"]["clients"]["refuses"]) == ("clean", None)


@pytest.mark.slow
def test_units_of_a_queue_without_messages(golden_store: GoldenStore, tmp_path: Path) -> None:
    """No rebuild fixes them: the plan says so, and what to do, and does not send anybody to a repair."""
    store = copied(golden_store("5.3.3-trimmed"), tmp_path / "store")
    file = store / "consumequeue/SCHEDULE_TOPIC_XXXX/16/00000000000000000000"
    first = min(int(path.name) for path in (store / "commitlog").iterdir())
    overwrite(file, 0, struct.pack(">q", first))
    plan, codes = follow(store)
    assert codes == {"consumequeue.wrong-record"}
    (left,) = plan["remaining"]
    assert "resetOffsetByTime" in left
