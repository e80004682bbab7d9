"""Damage, rebuild, nothing more to do, undo: the two rebuilds as commands on copies of golden stores."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.errors import Exit
from rmqtool.formats.message import MAGIC_CODE_V2
from rmqtool.transaction.system import System
from tests.building import LogBuilder
from tests.commands.running import Result, answered, killed_at_a_call, rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.real_broker.harness import GEOMETRY
from tests.real_broker.versions import VERSIONS
from tests.rebuild.damaging import (
    INDEX_DAMAGE,
    QUEUE_DAMAGE,
    Damage,
    all_queues_gone,
    entry_points_past_the_log,
    entry_zeroed,
    index_gone,
    index_slots_zeroed,
    one_queue_gone,
)
from tests.unchanged import Entry, snapshot, unchanged

VERSION = "5.3.3"


def copy(golden: Path, into: Path) -> Path:
    """A store to be written to."""
    return copied(golden, into / "store")


def contents(root: Path, *without: str) -> dict[str, bytes]:
    """The bytes of every file of a store, ours aside."""
    left_out = (".rmqtool", "lock", *without)
    files = (path for path in root.rglob("*") if path.is_file())
    found = {str(path.relative_to(root)): path.read_bytes() for path in files}
    return {name: data for name, data in found.items() if name.partition("/")[0] not in left_out}


def rebuild(command: str, store: Path, *options: str | Path, version: str = VERSION) -> Result:
    """Run a rebuild as of a version, with the sizes of the golden stores."""
    conf = store.parent / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in GEOMETRY.items()))
    return rmqtool(command, store, "--json", "--broker-version", version, "--broker-conf", conf, *options)


def result_of(found: Result) -> Any:
    return found.document["result"]


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests prove what is written, not that it outlives a loss of power."""
    for name in ("sync", "sync_all"):
        monkeypatch.setattr(System, name, lambda self, what: None)


@pytest.fixture
def one(golden_store: GoldenStore, tmp_path: Path) -> Path:
    """A copy of one golden store."""
    return copy(golden_store(f"{VERSION}-clean"), tmp_path)


def cases(every: tuple[Damage, ...], in_all_versions: Damage) -> list[Any]:
    """All damage to a store of one version, and some to those of the others."""
    found = [(VERSION, damage) for damage in every]
    found += [(version, in_all_versions) for version in VERSIONS if version != VERSION]
    return [pytest.param(*case, id=f"{case[0]}-{case[1].__name__}") for case in found]


@pytest.mark.one_in(6)
@pytest.mark.slow
@pytest.mark.parametrize(("version", "damage"), cases(QUEUE_DAMAGE, all_queues_gone))
def test_damaged_queues(golden_store: GoldenStore, tmp_path: Path, version: str, damage: Damage) -> None:
    """A rebuild gives the store that the broker had written; a second one finds nothing; undo takes it back."""
    store = copy(golden_store(f"{version}-clean"), tmp_path)
    sound = contents(store)
    damage(store)
    damaged = snapshot(store)
    with unchanged(store):
        planned = rebuild("rebuild-cq", store, "--dry-run", version=version)
    assert result_of(planned)["state"] == "planned"

    done = rebuild("rebuild-cq", store, "--yes", version=version)
    assert (done.status, result_of(done)["state"]) == (Exit.OK, "done")
    assert result_of(done)["queues"] == result_of(planned)["queues"]
    assert contents(store, "checkpoint") == {name: data for name, data in sound.items() if name != "checkpoint"}

    assert_clean(store, version)
    again = rebuild("rebuild-cq", store, "--yes", version=version)
    assert (again.status, result_of(again)["state"], result_of(again)["transaction"]) == (Exit.OK, "nothing", None)
    assert rmqtool("undo", store, "--yes").status == Exit.OK
    assert_same_tree(snapshot(store), damaged)


@pytest.mark.one_in(3)
@pytest.mark.slow
@pytest.mark.parametrize(("version", "damage"), cases(INDEX_DAMAGE, index_gone))
def test_damaged_index(golden_store: GoldenStore, tmp_path: Path, version: str, damage: Damage) -> None:
    """The files hold what the broker had written, in its order; a second run finds nothing."""
    store = copy(golden_store(f"{version}-clean"), tmp_path)
    sound = [data for name, data in sorted(contents(store).items()) if name.startswith("index/")]
    damage(store)
    damaged = snapshot(store)
    done = rebuild("rebuild-index", store, "--yes", version=version)

    assert (done.status, result_of(done)["state"]) == (Exit.OK, "done")
    assert [data for name, data in sorted(contents(store).items()) if name.startswith("index/")] == sound
    assert_clean(store, version)
    assert result_of(rebuild("rebuild-index", store, "--yes", version=version))["state"] == "nothing"
    assert rmqtool("undo", store, "--yes").status == Exit.OK
    assert_same_tree(snapshot(store), damaged)


def assert_clean(store: Path, version: str) -> None:
    """A verification has nothing to say of queues and index."""
    conf = store.parent / "broker.conf"
    found = rmqtool("verify", store, "--json", "--broker-version", version, "--broker-conf", conf).document
    assert found["result"]["verdict"] == "clean"
    assert [entry for entry in found["findings"] if entry["code"].startswith(("consumequeue.", "index."))] == []


def assert_same_tree(found: dict[str, Entry], expected: dict[str, Entry]) -> None:
    """Every entry is as before, with its mode and owner, and its time where it is a file; the lock is the broker's."""
    assert found.keys() - {"lock"} == expected.keys() - {"lock"}
    for name in expected.keys() - {"lock"}:
        new, old = found[name], expected[name]
        assert (new.content, new.mode, new.owner) == (old.content, old.mode, old.owner)
        if old.content:
            assert new.mtime_ns == old.mtime_ns


@pytest.mark.slow
def test_only_what_differs_is_written(one: Path) -> None:
    """A queue that is sound, and the sound files of one that is not, are not touched."""
    before = snapshot(one)
    entry_zeroed(one)
    found = result_of(rebuild("rebuild-cq", one, "--yes"))
    changed = [queue for queue in found["queues"] if queue["action"] != "keep"]
    assert [(queue["topic"], queue["queue_id"], queue["action"], queue["added"]) for queue in changed] == [
        ("orders", 0, "replace", 1)
    ]
    after = snapshot(one)
    first = "consumequeue/orders/0/00000000000000000000"
    touched = {name for name in before if before[name].mtime_ns != after[name].mtime_ns and "." not in name}
    assert touched <= {first, "consumequeue/orders/0", "checkpoint", "lock"}
    assert after[first].content == before[first].content


@pytest.mark.slow
def test_selection(one: Path) -> None:
    """Only the queues that were asked for are looked at."""
    all_queues_gone(one)
    found = result_of(rebuild("rebuild-cq", one, "--yes", "--topic", "orders", "--queue", "1"))
    assert [(queue["topic"], queue["queue_id"]) for queue in found["queues"]] == [("orders", 1)]
    assert [path.name for path in (one / "consumequeue").iterdir()] == ["orders"]


@pytest.mark.slow
def test_only_damaged(one: Path) -> None:
    """What verify finds wrong, and nothing else; without anything wrong there is nothing to do."""
    with unchanged(one):
        for command in ("rebuild-cq", "rebuild-index"):
            found = rebuild(command, one, "--only-damaged", "--yes")
            assert (found.status, result_of(found)["state"]) == (Exit.OK, "nothing")
    one_queue_gone(one)
    index_slots_zeroed(one)
    found = result_of(rebuild("rebuild-cq", one, "--only-damaged", "--yes"))
    assert [(queue["topic"], queue["queue_id"], queue["action"]) for queue in found["queues"]] == [
        ("orders", 1, "create")
    ]
    assert result_of(rebuild("rebuild-index", one, "--only-damaged", "--yes"))["state"] == "done"
    assert result_of(rebuild("rebuild-index", one, "--only-damaged", "--yes"))["state"] == "nothing"


@pytest.mark.slow
def test_abort_and_checkpoint(golden_store: GoldenStore, tmp_path: Path) -> None:
    """All queues complete: the next start need not recover. Some queues: it still must."""
    store = copy(golden_store(f"{VERSION}-killed"), tmp_path)
    rebuild("rebuild-cq", store, "--yes", "--topic", "orders")
    assert (store / "abort").exists()
    all_queues_gone(store)
    assert rebuild("rebuild-cq", store, "--yes").status == Exit.OK
    assert not (store / "abort").exists()
    checkpoint = (store / "checkpoint").read_bytes()
    assert len(checkpoint) == 4096
    assert checkpoint[:8] == checkpoint[8:16] != bytes(8)


@pytest.mark.slow
def test_index_is_vouched_for(one: Path) -> None:
    """A start after a crash deletes index files that are newer than the checkpoint says."""
    index_gone(one)
    rebuild("rebuild-index", one, "--yes")
    end = max(path.read_bytes()[8:16] for path in (one / "index").iterdir())
    assert (one / "checkpoint").read_bytes()[16:24] == end


@pytest.mark.slow
def test_saved_plan(one: Path) -> None:
    """A plan is carried out as it was saved."""
    one_queue_gone(one)
    plan = one.parent / "plan.json"
    with unchanged(one):
        assert rebuild("rebuild-cq", one, "--save-plan", plan).status == Exit.OK
    assert json.loads(plan.read_text())["result"]["state"] == "planned"
    done = rmqtool("rebuild-cq", one, "--json", "--plan", plan, "--yes")
    assert result_of(done)["state"] == "done"
    assert (one / "consumequeue" / "orders" / "1").is_dir()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["rebuild-cq", "rebuild-index"])
def test_saved_plan_of_nothing(one: Path, command: str) -> None:
    """A plan for what is damaged, where nothing is, can be carried out: nothing is done."""
    plan = one.parent / "plan.json"
    assert rebuild(command, one, "--only-damaged", "--save-plan", plan).status == Exit.OK
    done = rmqtool(command, one, "--json", "--plan", plan, "--yes")
    assert (done.status, result_of(done)["state"]) == (Exit.OK, "nothing")


def test_plan_of_another_state_is_refused(one: Path) -> None:
    """A store that was written to since is not the one that was reviewed."""
    one_queue_gone(one)
    plan = one.parent / "plan.json"
    rebuild("rebuild-cq", one, "--save-plan", plan)
    entry_zeroed(one)
    found = rmqtool("rebuild-cq", one, "--json", "--plan", plan, "--yes")
    assert (found.status, found.document["error"]["kind"]) == (Exit.FAILED, "changed")
    assert not (one / "consumequeue" / "orders" / "1").exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "rmqtool.rebuild-plan/1"}', "\0"])
def test_what_is_no_plan(one: Path, text: str) -> None:
    """Files that are no plans are usage errors."""
    plan = one.parent / "plan.json"
    plan.write_text(text)
    with unchanged(one):
        assert rmqtool("rebuild-cq", one, "--json", "--plan", plan, "--yes").status == Exit.USAGE


@pytest.mark.parametrize(
    "options",
    [
        ["--plan", "plan", "--topic", "orders"],
        ["--plan", "plan", "--dry-run"],
        ["--output", "out", "--dry-run"],
    ],
)
def test_options_that_do_not_fit(one: Path, options: list[str]) -> None:
    """Choices that contradict each other are usage errors."""
    with unchanged(one):
        assert rmqtool("rebuild-cq", one, *options).status == Exit.USAGE


@pytest.mark.slow
def test_index_of_one_topic_is_for_elsewhere(one: Path, tmp_path: Path) -> None:
    """In the store it would lose the keys of all others."""
    with unchanged(one):
        assert rmqtool("rebuild-index", one, "--topic", "orders", "--yes").status == Exit.USAGE
        found = rebuild("rebuild-index", one, "--topic", "orders", "--output", tmp_path / "out")
    assert 0 < result_of(found)["index_units"] < result_of(rebuild("rebuild-index", one, "--dry-run"))["index_units"]


def test_nobody_to_ask(one: Path) -> None:
    """Without a terminal and without --yes nothing is written."""
    one_queue_gone(one)
    with unchanged(one):
        assert rmqtool("rebuild-cq", one).status == Exit.USAGE


@pytest.mark.slow
@pytest.mark.parametrize("answer", [b"n\n", b"\x03"], ids=["no", "Ctrl-C"])
def test_nothing_is_written_without_a_yes(one: Path, answer: bytes) -> None:
    """The end says so."""
    one_queue_gone(one)
    with unchanged(one):
        found = answered(answer, "rebuild-cq", one)
    assert (found.status, found.err.splitlines()[-1]) == (Exit.INTERRUPTED, "nothing was changed")


def test_output_must_be_empty_and_elsewhere(one: Path, tmp_path: Path) -> None:
    """Nothing of somebody else's is overwritten, and nothing is written into the store."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    with unchanged(one), unchanged(tmp_path / "full"):
        assert rmqtool("rebuild-cq", one, "--output", tmp_path / "full").status == Exit.USAGE
        assert rmqtool("rebuild-cq", one, "--output", one / "out").status == Exit.USAGE
        assert rmqtool("rebuild-cq", one, "--output", one).status == Exit.USAGE


@pytest.mark.slow
def test_killed_while_it_writes_elsewhere(tmp_path: Path) -> None:
    """No part of a tree is seen: the next run begins again, or says that one was killed while it moved the parts."""
    LogBuilder().add_all([{"queue_id": 0}, {"queue_id": 1}]).write(tmp_path / "store")
    out = tmp_path / "out"
    whole: list[str | Path] = ["rebuild-cq", tmp_path / "store", "--output", out]
    assert rmqtool(*whole).status == Exit.OK
    expected = contents(out)
    ends, hints = [], []
    with killed_at_a_call(*whole) as run_until:
        for number in range(1000):
            shutil.rmtree(out)
            ends.append(run_until(number))
            if ends[-1] != 9:
                break
            seen = [path.name for path in out.glob("[!.]*")] if out.exists() else []
            again = rmqtool(*whole)
            assert again.status == (Exit.USAGE if seen else Exit.OK), number
            if seen:
                hints.append(again.err.splitlines()[-1].strip())
            else:
                assert contents(out) == expected
                assert not list(out.glob(".*"))
    assert ends[-1] == Exit.OK
    assert len(ends) > 10
    assert set(hints) == {"an earlier run was killed while it put its files there: remove them"}


def test_consumers_whose_message_changes(one: Path) -> None:
    """A committed offset whose unit points elsewhere afterwards is listed."""
    offsets = json.dumps({"offsetTable": {"orders@shop": {"0": 5, "1": 5}}})
    (one / "config" / "consumerOffset.json").write_text(offsets)
    entry_points_past_the_log(one)
    found = result_of(rebuild("rebuild-cq", one, "--dry-run"))
    (moved,) = found["consumers_moved"]
    assert (moved["group"], moved["queue_id"], moved["committed_offset"]) == ("shop", 0, 5)
    assert moved["physical_offset_before"] == 1 << 50
    assert moved["physical_offset_after"] < 1 << 50


HOSTILE = ["../evil", "/tmp/evil", ".", "..", "a/b", "nul\0nul", "", "x" * 127]


def test_topic_names_never_leave_the_directory(tmp_path: Path) -> None:
    """Names that no directory may have are findings; the others are rebuilt."""
    log = LogBuilder(1 << 16).add_all({"topic": topic, "queue_offset": 0} for topic in [*HOSTILE, "orders"])
    store = log.write(tmp_path / "a" / "b" / "store")
    (store / "consumequeue").mkdir()
    outside = snapshot(tmp_path / "a" / "b").keys()
    found = rebuild("rebuild-cq", store, "--yes")

    assert found.status == Exit.LOSSY
    refused = [finding for finding in found.document["findings"] if finding["code"] == "rebuild.topic-name"]
    assert {finding["topic"] for finding in refused} == set(HOSTILE[:-1])
    assert sorted(path.name for path in (store / "consumequeue").iterdir()) == ["orders", "x" * 127]
    new = snapshot(tmp_path / "a" / "b").keys() - outside
    assert all(name.startswith("store/") for name in new - {"broker.conf"})


def test_longer_than_any_name(tmp_path: Path) -> None:
    """Records of the newer magic code may have topics of 32 KiB; a directory's name has 255 bytes."""
    topics = ["y" * 255, "y" * 256, "\N{EURO SIGN}" * 86]
    log = LogBuilder(1 << 16).add_all({"topic": topic, "magic_code": MAGIC_CODE_V2} for topic in topics)
    store = log.write(tmp_path / "store")
    found = rebuild("rebuild-cq", store, "--yes")

    refused = [entry["topic"] for entry in found.document["findings"] if entry["code"] == "rebuild.topic-name"]
    assert (found.status, sorted(refused)) == (Exit.LOSSY, sorted(topics[1:]))
    assert [path.name for path in (store / "consumequeue").iterdir()] == topics[:1]


def test_negative_queue_number_is_refused(tmp_path: Path) -> None:
    """No broker gives one."""
    store = LogBuilder().add_all([{"queue_id": -1}, {}]).write(tmp_path / "store")
    found = rebuild("rebuild-cq", store, "--yes")
    assert [finding["queue_id"] for finding in found.document["findings"] if finding["severity"] == "error"] == [-1]
    assert [path.name for path in (store / "consumequeue" / "orders").iterdir()] == ["0"]


@pytest.mark.slow
def test_damaged_log_is_passed_over(one: Path) -> None:
    """What is behind the damage is rebuilt, what is lost is listed, offsets stay."""
    log = one / "commitlog" / "00000000000000000000"
    sound = result_of(rebuild("rebuild-cq", one, "--dry-run"))["queues"]
    with log.open("r+b") as file:
        file.seek(20_000)
        file.write(b"\xff" * 2_000)
    all_queues_gone(one)
    done = rebuild("rebuild-cq", one, "--yes")

    assert done.status == Exit.LOSSY
    (skipped,) = result_of(done)["skipped"]
    assert 20_000 - 2_000 < skipped["physical_offset"] <= 20_000
    assert "commitlog.skipped" in [finding["code"] for finding in done.document["findings"]]
    tops = {(queue["topic"], queue["queue_id"]): queue["max_offset"] for queue in sound}
    for queue in result_of(done)["queues"]:
        assert queue["max_offset"] == tops[queue["topic"], queue["queue_id"]]
    assert rebuild("rebuild-cq", one, "--yes").document["result"]["state"] == "nothing"


def test_a_running_broker_keeps_writers_out(one: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 5, and nothing is written; a dry run looks all the same."""
    from rmqtool.store.lock import Holder

    one_queue_gone(one)
    for module in ("rmqtool.store.lock", "rmqtool.transaction.session"):
        monkeypatch.setattr(f"{module}.lock_holder", lambda root: Holder(4711, "lock"))
    with unchanged(one):
        assert rmqtool("rebuild-cq", one, "--yes").status == Exit.IN_USE
        assert rebuild("rebuild-cq", one, "--dry-run").status == Exit.OK


@pytest.mark.slow
def test_text(one: Path) -> None:
    """Text tells what changes and what to run next."""
    one_queue_gone(one)
    found = rmqtool("rebuild-cq", one, "--dry-run")
    assert "1 queue to create, 0 to replace" in found.out
    assert f"next: rmqtool rebuild-cq {one}" in found.err
    done = rmqtool("rebuild-cq", one, "--yes")
    assert f"rmqtool undo {one}" in done.err
    assert f"next: rmqtool verify {one}" in done.err
    assert "nothing to do" in rmqtool("rebuild-cq", one, "--yes").err
    assert rmqtool("rebuild-cq", one, "--yes", "-q").err == ""


def test_store_without_a_log(tmp_path: Path) -> None:
    """There is nothing to rebuild from, and nothing is dropped."""
    (tmp_path / "commitlog").mkdir()
    queue = tmp_path / "consumequeue" / "orders" / "0"
    queue.mkdir(parents=True)
    (queue / ("0" * 20)).write_bytes(bytes(600))
    with unchanged(tmp_path):
        found = rmqtool("rebuild-cq", tmp_path, "--json", "--dry-run")
    assert (found.status, result_of(found)["state"]) == (Exit.OK, "nothing")


@pytest.mark.slow
def test_append_order_is_for_queues(golden_store: GoldenStore, tmp_path: Path) -> None:
    """The index is the same with it, which is said, and its help does not offer it."""
    store, files, errors = golden_store(f"{VERSION}-clean"), [], []
    for number, options in enumerate(((), ("--append-order",))):
        output = tmp_path / f"{number}"
        errors.append(rmqtool("rebuild-index", store, "--output", output, *options).err)
        files.append(sorted(path.read_bytes() for path in (output / "index").iterdir()))
    assert files[0]
    assert files[0] == files[1]
    note = "--append-order changes nothing here: keys in an index have no queue offsets\n"
    assert [note in error for error in errors] == [False, True]
    assert note not in rmqtool("rebuild-index", store, "--dry-run", "--append-order", "-q").err
    assert "--append-order" not in rmqtool("rebuild-index", "--help").out
    assert "--append-order" in rmqtool("rebuild-cq", "--help").out
