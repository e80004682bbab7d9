"""Directories in which no repair replaces files: the plan promises nothing there, and says what to do instead."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.findings.finding import Finding
from rmqtool.repair.diagnosis import BODY_CRC, DamagedMessages, Diagnosis, Repairs, repairs_of
from rmqtool.repair.plan import Plan, plan_of
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.commands.running import rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.findings.made import made
from tests.rebuild.damaging import one_queue_gone
from tests.rebuild.log_damages import overwrite
from tests.transaction.small import tree

OPTIONS = ("--broker-version", "5.3.3")


@pytest.fixture
def store(golden_store: GoldenStore, tmp_path: Path) -> Path:
    return copied(golden_store("5.3.3-clean"), tmp_path / "store")


def moved(store: Path, name: str) -> Path:
    """A directory of the store, moved away; nothing is left in its place."""
    return (store / name).rename(store.parent / name.replace("/", "-"))


def linked(store: Path, name: str) -> Path:
    """The same with a link in its place."""
    target = moved(store, name)
    (store / name).symlink_to(target)
    return target


def planned(store: Path, *codes: str, conf: BrokerConf | None = None) -> tuple[Repairs, Plan]:
    findings: list[Finding] = [made(code, f"message of {code}", store=store) for code in codes]
    of = Diagnosis(Snapshot(open_store(store, conf or BrokerConf())), findings, options=OPTIONS)
    repairs = repairs_of(of)
    return repairs, plan_of(of, repairs)


@pytest.mark.parametrize("away", [moved, linked])
def test_damage_of_a_log_elsewhere_is_for_a_new_store(store: Path, away: object) -> None:
    """Queues and index are rebuilt all the same; where a start would lose messages, none is the last step."""
    target = moved(store, "commitlog") if away is moved else linked(store, "commitlog")
    conf = BrokerConf({"storePathCommitLog": str(target)}) if away is moved else None
    repairs, plan = planned(store, "consumequeue.hole", "index.slot", "commitlog.zeroed", conf=conf)
    assert (repairs.neutralise, repairs.queues, repairs.index) == (False, True, True)
    new, repair, start = plan.steps
    assert new.command == f"rmqtool salvage {store} --broker-version 5.3.3 --output NEW"
    assert repair.command == f"rmqtool repair {store} --broker-version 5.3.3"
    assert start.text == "Start the broker."
    assert plan.remaining == ()
    lossy = planned(store, "consumequeue.hole", "commitlog.zeroed", "start.data-loss", conf=conf)[1]
    assert [step.command for step in lossy.steps] == [new.command, repair.command]
    assert lossy.start_after == 2
    for codes in (["consumequeue.hole"], ["consumequeue.hole", "commitlog.stray"], ["index.slot", "timer.log"]):
        others = planned(store, *codes, conf=conf)[1]
        assert not any("salvage" in (step.command or "") for step in others.steps)
    sound = planned(store, "consumequeue.hole", conf=conf)[1]
    assert [step.command for step in sound.steps] == [repair.command, None]


@pytest.mark.slow
def test_a_short_file_of_a_log_elsewhere_is_for_people(store: Path) -> None:
    """A broker refuses to start on it, whatever is repaired beside it."""
    last = max(linked(store, "commitlog").iterdir())
    os.truncate(last, 4097)
    plan = rmqtool("verify", store, *OPTIONS, "--json").document["result"]["plan"]
    commands = [step["command"] for step in plan["steps"]]
    assert f"rmqtool salvage {store} --broker-version 5.3.3 --output NEW" in commands
    assert "Start the broker." not in [step["text"] for step in plan["steps"]]


@pytest.mark.parametrize(
    ("name", "code", "command"),
    [("consumequeue", "consumequeue.hole", "rebuild-cq"), ("index", "index.slot", "rebuild-index")],
)
def test_queues_and_index_behind_links_are_made_elsewhere(store: Path, name: str, code: str, command: str) -> None:
    linked(store, name)
    repairs, plan = planned(store, code)
    assert not repairs
    assert plan.steps[0].command == f"rmqtool {command} {store} --broker-version 5.3.3 --output DIR"
    assert str(store / name) in plan.steps[0].text


def test_a_link_to_a_disk_that_is_not_mounted(store: Path) -> None:
    shutil.rmtree(linked(store, "index"))
    repairs, plan = planned(store, "index.missing")
    assert not repairs
    assert "in a linked directory" in plan.steps[0].text


def test_what_is_sound_behind_a_link_stays_there(store: Path) -> None:
    """Configuration that lacks nothing, and some that is not behind it."""
    linked(store, "index")
    plans = [planned(store, code)[1] for code in ("consumequeue.hole", "config.unreadable")]
    linked(store, "config")
    for plan in (*plans, planned(store, "consumequeue.hole")[1]):
        assert not any("in a linked directory" in step.text for step in plan.steps)


def test_config_behind_a_link_is_moved_first(store: Path) -> None:
    (linked(store, "config") / "topics.json").write_text("{")
    of = Diagnosis(Snapshot(open_store(store)), [made("config.unreadable", "", file="config/topics.json")])
    repairs = repairs_of(of)
    assert not repairs
    assert str(store / "config") in plan_of(of, repairs).steps[0].text
    assert plan_of(of, repairs).remaining == ()


def test_damage_behind_a_link_is_taken_from_nobody(store: Path) -> None:
    """Dummy records can stand in the place of what clients get only where a repair writes."""
    served = DamagedMessages(until=1000, served=2)
    for is_linked in (False, True):
        if is_linked:
            linked(store, "commitlog")
        of = Diagnosis(Snapshot(open_store(store)), [made(BODY_CRC, offset=4)], options=OPTIONS, bodies=served)
        commands = [step.command or "" for step in plan_of(of, repairs_of(of)).steps]
        assert any("--lose" in command for command in commands) != is_linked


def test_what_is_in_the_way_behind_a_link_is_moved_by_people(store: Path) -> None:
    """Before all else, for a start refuses it."""
    (linked(store, "commitlog") / "notes.txt").touch()
    stray = made("commitlog.stray", file="commitlog/notes.txt")
    of = Diagnosis(Snapshot(open_store(store)), [made("index.slot"), stray])
    first, *_ = plan_of(of, repairs_of(of)).steps
    assert first.command == f"mv {store}/commitlog/notes.txt DIRECTORY"


@pytest.mark.slow
def test_a_file_in_place_of_our_directory_is_moved_first(store: Path) -> None:
    """Nothing can be repaired before."""
    (store / ".rmqtool").touch()
    one_queue_gone(store)
    plan = rmqtool("verify", store, *OPTIONS, "--json").document["result"]["plan"]
    assert plan["steps"][0]["command"] == f"mv {store}/.rmqtool DIRECTORY"
    assert plan["steps"][1]["command"].startswith("rmqtool repair ")


@pytest.mark.slow
def test_the_steps_work_for_a_log_elsewhere(store: Path, tmp_path: Path) -> None:
    """Each command that is printed: the listing of the damage, the new store, the repair of the queues, and undo."""
    overwrite(store / "commitlog" / "00000000000000000000")
    one_queue_gone(store)
    log = moved(store, "commitlog")
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathCommitLog={log}\n")
    before, options = tree(store), (*OPTIONS, "--broker-conf", conf)
    found = rmqtool("verify", store, *options, "--json").document
    looks = {each["remedy"] for each in found["findings"] if (each["remedy"] or "").startswith("rmqtool inspect ")}
    assert looks
    for look in looks:
        assert rmqtool(*look.split()[1:]).status in (0, 3)
    assert rmqtool("salvage", store, *options, "--output", tmp_path / "new").status == 1
    assert "verdict  clean" in rmqtool("verify", tmp_path / "new", *OPTIONS).out
    done = rmqtool("repair", store, *options, "--yes", "--json").document
    assert done["result"]["state"] == "done"
    assert not any(each["code"].startswith("consumequeue.") for each in done["findings"] if each["severity"] != "info")
    assert rmqtool("undo", store, "--yes").status == 0
    assert tree(store) == before


def stray_in_a_log_path(store: Path) -> Path:
    (moved := linked(store, "commitlog") / "notes").mkdir()
    return moved


def stray_file_in_a_log_path(store: Path) -> Path:
    (stray := linked(store, "commitlog") / "nohup.out").write_text("x")
    return stray


def empty_file_in_a_log_path(store: Path) -> Path:
    (empty := linked(store, "commitlog") / f"{1 << 30:020d}").touch()
    return empty


def stray_in_a_queue(store: Path) -> Path:
    (stray := linked(store, "consumequeue") / "orders" / "0" / "x.bak").touch()
    return stray


def directory_in_a_queue_elsewhere(store: Path) -> Path:
    (stray := linked(store, "consumequeue/orders/0") / "old").mkdir()
    return stray


def directory_in_the_index(store: Path) -> Path:
    (stray := linked(store, "index") / "20261121113608199").mkdir()
    return stray


def directory_for_the_lock(store: Path) -> Path:
    (store / "lock").unlink(missing_ok=True)
    (store / "lock").mkdir()
    return store / "lock"


IN_THE_WAY = [
    stray_in_a_log_path, stray_file_in_a_log_path, empty_file_in_a_log_path, stray_in_a_queue,
    directory_in_a_queue_elsewhere, directory_in_the_index, directory_for_the_lock,
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("put", IN_THE_WAY, ids=lambda put: put.__name__)
def test_what_is_in_the_way_outside_the_store_is_moved_first(
    golden_store: GoldenStore, tmp_path: Path, put: Callable[[Path], Path]
) -> None:
    """The one command cures it: no new store is made for that, and a broker waits for it."""
    store = copied(golden_store("4.9.7-clean"), tmp_path / "store")
    path = put(store)
    [step] = (found := rmqtool("verify", store, "--json").document["result"])["plan"]["steps"]
    program, source, target = shlex.split(step["command"])
    assert (program, target) == ("mv", "DIRECTORY")
    assert Path(source).resolve() == path.resolve()
    assert (found["verdict"], found["plan"]["start_after"], found["plan"]["remaining"]) == ("corrupt", 1, [])
    shutil.move(source, tmp_path / "away")
    assert rmqtool("verify", store, "--json").document["result"]["verdict"] == "clean"


@pytest.mark.slow
def test_strays_in_several_log_paths(golden_store: GoldenStore, tmp_path: Path) -> None:
    """All go with one command, and what a start would refuse besides is judged after it."""
    store = copied(golden_store("4.9.7-clean"), tmp_path / "store")
    paths = [tmp_path / f"ssd{number}" / "commitlog" for number in (2, 3)]
    for path in paths:
        path.mkdir(parents=True)
        (path / f"of {path.parent.name}").touch()
    for number, file in enumerate(sorted((store / "commitlog").iterdir())):
        shutil.move(file, paths[number % 2] / file.name)
    (store / "commitlog").rmdir()
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathCommitLog={','.join(map(str, paths))}\n")
    plan = rmqtool("verify", store, "--json", "--broker-conf", conf).document["result"]["plan"]
    [step] = plan["steps"]
    program, *words, target = shlex.split(step["command"])
    assert (program, {Path(word).name for word in words}, target) == ("mv", {"of ssd2", "of ssd3"}, "DIRECTORY")
    for word in words:
        shutil.move(word, tmp_path)
    assert rmqtool("verify", store, "--json", "--broker-conf", conf).document["result"]["plan"]["steps"] == []
