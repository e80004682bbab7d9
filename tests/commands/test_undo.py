"""`rmqtool undo`: what it puts back, what it refuses, and what it says."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from rmqtool.transaction.home import STAGING
from rmqtool.transaction.transaction import Transaction
from tests.commands.running import answered, finish, rmqtool, spawn
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.transaction.faults import Faulty, KilledError
from tests.transaction.small import Tree, tree
from tests.unchanged import unchanged

QUEUES = ("consumequeue/orders/0", "consumequeue/payments/1")
CHECKPOINT = "checkpoint"


@pytest.fixture
def store(unpacked: GoldenStore, tmp_path: Path) -> Path:
    """A store of a real broker to write to."""
    root = tmp_path / "store"
    copied(unpacked("5.3.3-clean"), root)
    return root


def repair(root: Path, *, name: str = "rebuild-cq", data: bytes = b"new") -> Tree:
    """Replace a file and make two queues; the store before."""
    before = tree(root)
    with Transaction(root, name) as transaction:
        for path in (f"{QUEUES[0]}/{0:020d}", f"{QUEUES[1]}/{0:020d}", CHECKPOINT):
            transaction.file(path, size=600).write(data, 20)
        for queue in QUEUES:
            transaction.put(queue)
        transaction.put(CHECKPOINT)
        transaction.commit()
    return before


@pytest.mark.slow
@pytest.mark.parametrize("queues", [("orders/0",), ("orders/0", "orders/1", "payments/0")])
def test_empty_directories_come_back(store: Path, queues: tuple[str, ...]) -> None:
    """A queue's directory that had no files when the queue was rebuilt."""
    for queue in queues:
        for file in (store / "consumequeue" / queue).iterdir():
            file.unlink()
    for file in (store / "index").iterdir():
        file.unlink()
    (store / "consumequeue" / "empty" / "7").mkdir(parents=True)
    before = tree(store)
    conf = store.parent / "broker.conf"  # which says what no index file is there to show
    conf.write_text("maxHashSlotNum=50\nmaxIndexNum=1000\n")
    for command in (["rebuild-cq"], ["rebuild-index", "--broker-conf", conf]):
        assert rmqtool(*command, store, "--yes").status == Exit.OK
        assert tree(store) != before
    for _ in range(2):
        assert rmqtool("undo", store, "--yes").status == Exit.OK
    assert tree(store) == before


def test_an_index_of_which_nothing_stays(store: Path) -> None:
    """All of its files are taken out at once, and come back; the directory stays."""
    before = tree(store)
    names = [f"index/{file.name}" for file in (store / "index").iterdir()]
    assert len(names) > 1
    with Transaction(store, "rebuild-index") as transaction:
        for name in names:
            transaction.remove(name)
        transaction.commit()
    assert list((store / "index").iterdir()) == []
    assert rmqtool("undo", store, "--yes").status == Exit.OK
    assert tree(store) == before


@pytest.mark.parametrize("command", ["rebuild-cq", "rebuild-index"])
def test_a_store_without_its_log_is_left_alone(store: Path, command: str) -> None:
    """A disk that is not mounted must not cost queues or index."""
    for file in (store / "commitlog").iterdir():
        file.unlink()
    with unchanged(store):
        found = rmqtool(command, store, "--yes", "--json").document
    assert found["result"]["state"] == "nothing"
    assert "rebuild.no-messages-in-log" in {finding["code"] for finding in found["findings"]}


def test_undo_puts_everything_back(store: Path) -> None:
    before = repair(store)
    assert tree(store) != before
    found = rmqtool("undo", store, "--yes")
    assert found.status == Exit.OK
    assert found.out.startswith("put back: what 0001-")
    assert "3 paths" in found.out
    assert "next: rmqtool verify" in found.err
    assert tree(store) == before
    assert not (store / ".rmqtool").exists()


def test_undo_takes_back_the_last_first(store: Path) -> None:
    before = repair(store)
    between = tree(store)
    repair(store, data=b"newer")
    assert rmqtool("undo", store, "--yes", "-q").status == Exit.OK
    assert tree(store) == between
    assert rmqtool("undo", store, "--yes", "-q").err == ""
    assert tree(store) == before
    told = "nothing to undo: no repair has kept files here (deletions by clean are final)\n"
    assert rmqtool("undo", store, "--yes").out == told


def test_json_says_the_same(store: Path) -> None:
    repair(store)
    with unchanged(store):
        planned = rmqtool("--json", "undo", store, "--dry-run").document["result"]
    done = rmqtool("--json", "undo", store, "--yes").document["result"]
    nothing = rmqtool("--json", "undo", store, "--yes").document["result"]
    assert (planned["state"], done["state"], nothing["state"]) == ("planned", "rolled_back", "nothing")
    assert {**planned, "state": done["state"]} == done
    assert [change["path"] for change in done["transactions"][0]["changes"]] == [*QUEUES, CHECKPOINT]
    assert nothing["transaction"] is None


def test_dry_run_lists_and_changes_nothing(store: Path) -> None:
    repair(store)
    with unchanged(store):
        found = rmqtool("undo", store, "--dry-run")
    assert found.status == Exit.OK
    assert [line.split()[-1] for line in found.out.splitlines()[1:]] == [*QUEUES, CHECKPOINT]


def test_discard_removes_the_replaced_files_of_all(store: Path) -> None:
    repair(store)
    repair(store, name="rebuild-index", data=b"newer")
    after = tree(store)
    with unchanged(store):
        assert rmqtool("undo", store, "--discard", "--dry-run").out.count("remove: ") == 2
    found = rmqtool("--json", "undo", store, "--discard", "--yes").document["result"]
    assert (found["state"], len(found["transactions"])) == ("done", 2)
    assert tree(store) == after
    assert not (store / ".rmqtool").exists()


@pytest.mark.parametrize("option", ["--yes", "--dry-run"])
def test_a_file_that_changed_since_is_kept(store: Path, option: str) -> None:
    repair(store)
    changed = store / QUEUES[0] / f"{0:020d}"
    changed.write_bytes(b"by a broker")
    with unchanged(store):
        found = rmqtool("--json", "undo", store, option)
    assert found.status == Exit.FAILED
    error = found.document["error"]
    assert (error["kind"], error["file"]) == ("changed", os.path.realpath(changed.parent))
    assert "--discard" in error["hint"]


@pytest.mark.slow
def test_what_stands_in_the_way_is_said_before_the_question(store: Path) -> None:
    """Of all transactions of a repair: here of the first, of whose paths the second has one, too."""
    repair(store, name="repair")
    repair(store, name="repair, continued", data=b"newer")
    with Transaction(store, "repair, continued") as transaction:
        transaction.file(CHECKPOINT, size=600).write(b"newest", 0)
        transaction.put(CHECKPOINT)
        transaction.commit()
    changed = store / QUEUES[0] / f"{0:020d}"
    changed.write_bytes(b"by a broker")
    with unchanged(store):
        found = finish(spawn("undo", store, "--yes"))
    assert found.status == Exit.FAILED
    assert f"{changed.parent}: has changed since: nothing is put back" in found.err
    assert "can no longer be taken back" in found.err
    assert f"to free it: rmqtool undo {store} --discard" in found.err
    assert rmqtool("undo", store).err == found.err  # and not that nobody is there to be asked


def test_several_transactions_on_the_same_paths_are_taken_back(store: Path) -> None:
    """What the newer ones have changed says nothing about the older ones."""
    before = repair(store, name="repair")
    with Transaction(store, "repair, continued") as transaction:
        transaction.remove("consumequeue/payments")
        transaction.file(f"{QUEUES[0]}/{600:020d}", size=600).write(b"next", 0)
        transaction.put(f"{QUEUES[0]}/{600:020d}")
        transaction.commit()
    repair(store, name="repair, continued", data=b"newest")
    with unchanged(store):
        assert rmqtool("undo", store, "--dry-run").status == Exit.OK
    assert rmqtool("undo", store, "--yes").status == Exit.OK
    assert tree(store) == before


@pytest.mark.slow
def test_the_next_command_has_the_options_of_the_repair(store: Path) -> None:
    """They are kept with it, and the path of a file can be read from any directory; an id does not depend on them."""
    options = ("--broker-version", "5.3.3", "--broker-conf", os.path.relpath(store.with_name("broker.conf")))
    store.with_name("broker.conf").touch()
    (store / QUEUES[0] / f"{0:020d}").unlink()
    found = rmqtool("rebuild-cq", store, "--yes", *options)
    words = f"--broker-conf {store.with_name('broker.conf')} --broker-version 5.3.3"
    assert f"next: rmqtool verify {store} --broker-conf {options[3]} --broker-version 5.3.3\n" in found.err
    assert f"next: rmqtool verify {store} {words}\n" in rmqtool("undo", store, "--yes").err
    again = rmqtool("rebuild-cq", store, "--yes", "--json").document["result"]["transaction"]
    assert again in found.err


def test_a_replaced_file_that_rotted_is_not_put_back(store: Path) -> None:
    repair(store)
    old = next((store / ".rmqtool").glob(f"*/old/{CHECKPOINT}"))
    old.write_bytes(b"rotten")
    with unchanged(store):
        found = rmqtool("undo", store, "--yes")
    assert found.status == Exit.FAILED
    assert "has changed since it was replaced: nothing is put back" in found.err
    assert f"The other replaced files are still in {old.parent.relative_to(store)}" in found.err
    assert "only take space" not in found.err


def test_nobody_to_ask_changes_nothing(store: Path) -> None:
    repair(store)
    with unchanged(store):
        found = rmqtool("undo", store)
    assert found.status == Exit.USAGE
    assert "--yes" in found.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "status"), [(b"y\n", Exit.OK), (b"n\n", Exit.INTERRUPTED), (b"\x03", Exit.INTERRUPTED)]
)
def test_a_terminal_is_asked(store: Path, answer: bytes, status: Exit) -> None:
    """A no and Ctrl-C change nothing, and say so."""
    before = repair(store)
    after = tree(store)
    found = answered(answer, "undo", store)
    assert "Put back what 0001-" in found.err
    assert found.status == status
    assert tree(store) == (before if status == Exit.OK else after)
    assert ("nothing was changed" in found.err) == (status != Exit.OK)


def kill_repair(store: Path, name: str) -> None:
    """Interrupt a repair before its last call of this name."""
    counting = Faulty(Transaction.__init__.__defaults__[0])  # type: ignore[index]
    copy = store.with_name("copy")
    copied(store, copy)
    run(copy, counting)
    at = len(counting.names) - 1 - counting.names[::-1].index(name)
    faulty = Faulty(Transaction.__init__.__defaults__[0], "kill-before", at)  # type: ignore[index]
    with pytest.raises(KilledError):
        run(store, faulty)
    faulty.clean_up()


def run(root: Path, system: Faulty) -> None:
    with Transaction(root, "rebuild-cq", system) as transaction:  # type: ignore[arg-type]
        transaction.file(CHECKPOINT, size=600).write(b"new", 0)
        transaction.put(CHECKPOINT)
        transaction.remove(QUEUES[0])
        transaction.commit()


def test_an_interrupted_repair_is_finished_and_taken_back(store: Path) -> None:
    before = tree(store)
    kill_repair(store, "exchange")
    with unchanged(store):
        assert "is finished first" in rmqtool("undo", store, "--dry-run").out
    found = rmqtool("--json", "undo", store, "--yes")
    assert found.document["result"]["recovered"][0]["outcome"] == "finished"
    assert "is now finished" in found.err
    assert tree(store) == before


def test_leftovers_of_a_repair_that_had_not_begun_to_write_vanish(store: Path) -> None:
    before = tree(store)
    kill_repair(store, "open_to_write")
    assert (store / ".rmqtool" / STAGING).exists()
    found = rmqtool("--json", "undo", store, "--yes")
    assert found.document["result"]["recovered"] == [{"transaction": None, "command": None, "outcome": "rolled_back"}]
    assert tree(store) == before
    assert not (store / ".rmqtool").exists()


@pytest.mark.parametrize(("name", "text"), [("journal.json", "{"), ("journal.json", "[]"), ("state", "what")])
def test_a_journal_that_is_not_ours_is_an_error(store: Path, name: str, text: str) -> None:
    repair(store)
    next((store / ".rmqtool").glob(f"*/{name}")).write_text(text)
    with unchanged(store):
        found = rmqtool("--json", "undo", store, "--yes")
    assert found.status == Exit.FAILED
    assert found.document["error"]["file"].endswith(name)
    assert "docs/undo.md" in found.document["error"]["hint"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["journal.json", "state"])
def test_a_run_of_which_a_part_was_removed(store: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo refuses and says how to go on; the plan of verify has the command, and after it nothing is in the way."""
    repair(store)
    repair(store, name="again", data=b"newer")
    run = next((store / ".rmqtool").glob("0001-*"))
    (run / name).unlink()
    with unchanged(store):
        found = rmqtool("undo", store, "--yes", "--json").document["error"]
        assert (found["file"], found["message"].partition(":")[0]) == (str(run / name), "is missing")
        assert f"move {run} out of the store" in found["hint"]
    if name == "state":
        monkeypatch.chdir(store)  # out of the store leads another path than one beside "."
        (step,) = rmqtool("verify", ".", "--json").document["result"]["plan"]["steps"]
        subprocess.run(step["command"], shell=True, check=True)
        assert (store.parent / f"{store.name}-{run.name}").is_dir()
    else:
        run.rename(store.parent / run.name)
    assert rmqtool("undo", store, "--yes").status == Exit.OK
    assert not (store / ".rmqtool").exists()


def test_replaced_files_that_are_all_gone(store: Path) -> None:
    """Nothing is said to be left of them, and the repair can be let go of."""
    repair(store)
    shutil.rmtree(next((store / ".rmqtool").glob("*/old")))
    with unchanged(store):
        found = rmqtool("undo", store, "--yes")
    assert (found.status, "is missing, with all replaced files" in found.err) == (Exit.FAILED, True)
    assert found.err.rstrip().endswith(f"rmqtool undo {store} --discard")
    assert rmqtool("undo", store, "--discard", "--yes").status == Exit.OK


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    with unchanged(tmp_path):
        assert rmqtool("undo", tmp_path, "--yes").status == Exit.NOT_A_STORE


def times(store: Path) -> dict[str, int]:
    """When each directory was changed last, ns; `.rmqtool` is ours."""
    directories = (path for path in (store, *store.rglob("*")) if path.is_dir())
    return {
        str(path.relative_to(store)): path.stat().st_mtime_ns for path in directories if ".rmqtool" not in path.parts
    }


@pytest.mark.slow
def test_directories_get_their_times_back(store: Path) -> None:
    """Of each one in which something was replaced, made or removed, and of the store; of all transactions."""
    (store / "lock").touch()
    (store / "commitlog" / "notes.txt").write_text("notes")
    (store / "config" / "consumerOffset.json").write_text('{"offsetTable":{"orders@far":{0:5000}}}')
    (store / "checkpoint").unlink()
    shutil.rmtree(store / "consumequeue" / "orders" / "0")
    for number, path in enumerate([*store.rglob("*"), store]):
        os.utime(path, ns=(10**18 + number, 10**18 + number))
    before, trees = times(store), tree(store)
    assert rmqtool("repair", store, "--yes").status in (Exit.OK, Exit.FINDINGS)
    assert times(store) != before
    assert rmqtool("undo", store, "--yes").status == Exit.OK
    assert (times(store), tree(store)) == (before, trees)
