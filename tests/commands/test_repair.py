"""`rmqtool repair`: verify, the plan, one transaction, and verify again."""

from __future__ import annotations

import json
import os
import pty
import re
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from rmqtool.base.files import InputFile
from rmqtool.commands.writing import reporting_state
from rmqtool.scan.block import Block
from rmqtool.show.output import Style
from rmqtool.transaction.system import System
from tests.commands.running import Result, answered, finish, rmqtool, spawn
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.real_broker.harness import GEOMETRY
from tests.rebuild.damaging import entry_zeroed, index_gone, index_slots_zeroed, one_queue_gone
from tests.rebuild.log_damages import flip_a_body, overwrite
from tests.transaction.small import tree
from tests.unchanged import unchanged

VERSION = "5.3.3"
LOG = "commitlog/00000000000000000000"


@pytest.fixture(autouse=True)
def no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests prove what is written, not that it outlives a loss of power."""
    for name in ("sync", "sync_all"):
        monkeypatch.setattr(System, name, lambda self, what: None)


@pytest.fixture
def store(golden_store: GoldenStore, tmp_path: Path) -> Path:
    """A store with damage in log, queues and index."""
    root = copied(golden_store(f"{VERSION}-clean"), tmp_path / "store")
    overwrite(root / LOG)
    one_queue_gone(root)
    index_slots_zeroed(root)
    return root


def conf_of(store: Path) -> Path:
    """A broker.conf with the sizes of the golden stores."""
    conf = store.parent / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in GEOMETRY.items()))
    return conf


def repair(store: Path, *options: str | Path) -> Result:
    """Run it with that."""
    conf = conf_of(store)
    version = () if "--plan" in options else ("--broker-version", VERSION)
    return rmqtool("repair", store, "--broker-conf", conf, *version, *options)


@pytest.mark.slow
def test_repair_heals_once_and_undo_takes_it_back(store: Path) -> None:
    """The verdict is clean afterwards, a second run writes nothing, and undo brings back each byte.

    What the damage took is on record until that is acknowledged.
    """
    before = tree(store)
    done = repair(store, "--yes", "--json")
    assert done.status == Exit.FINDINGS
    assert {each["code"] for each in done.document["findings"] if each["severity"] != "info"} == {"store.recorded-loss"}
    result = done.document["result"]
    assert (result["state"], result["verdict"]) == ("done", "clean")
    assert result["rebuild"]["neutralised"]
    start, acknowledge = result["plan"]["steps"]
    assert start["text"] == "Start the broker."
    assert acknowledge["command"].endswith("--acknowledge")
    again = repair(store, "--yes", "--json").document["result"]
    assert (again["state"], again["transactions"]) == ("nothing", [])
    assert rmqtool("undo", store, "--yes").status == Exit.OK
    assert tree(store) == before


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_the_log_is_read_twice(store: Path, monkeypatch: pytest.MonkeyPatch, jobs: str) -> None:
    """Once to verify it and to derive what is rebuilt, once to verify what was written; no file is left of that."""
    read, fill = 0, Block.fill

    def counting(self: Block, file: InputFile, position: int, length: int, start_offset: int) -> None:
        nonlocal read
        read += length
        fill(self, file, position, length, start_offset)

    monkeypatch.setattr(Block, "fill", counting)
    assert rmqtool("verify", store, "--broker-version", VERSION).status == Exit.FINDINGS
    once, read = read, 0
    done = repair(store, "--yes", "--json", "-j", jobs)
    assert done.document["result"]["rebuild"]["neutralised"]
    assert once <= read < 2.5 * once
    assert sorted(entry.name for entry in (store / ".rmqtool").iterdir()) == done.document["result"]["transactions"]


@pytest.mark.slow
def test_a_dry_run_shows_all_and_changes_nothing(store: Path) -> None:
    with unchanged(store):
        found = repair(store, "--dry-run")
    assert found.status == Exit.OK
    assert "What to do  Do not start a broker until step 1 is done" in found.out
    assert "1 queue to create" in found.out
    assert re.search(r"index: \d+ files? to write", found.out)
    assert found.err.splitlines()[-1].startswith(f"nothing is written yet; next: rmqtool repair {store} --broker-conf ")


@pytest.mark.slow
def test_memory_is_bounded_and_kept(store: Path) -> None:
    """Too little is refused before anything is read; the next command has the same option."""
    refused = repair(store, "--dry-run", "--memory", "100MiB")
    assert refused.status == Exit.USAGE
    assert "at least 180 MiB are needed" in refused.err  # what a rebuild of the index takes
    found = repair(store, "--dry-run", "--memory", "256MiB")
    assert found.status == Exit.OK
    assert f" --memory {256 << 20} " in f"{found.err.splitlines()[-1]} "
    assert f"rmqtool repair {store} --broker-conf" in found.out
    assert f" --memory {256 << 20}" in found.out


@pytest.mark.slow
def test_a_sound_store_needs_none(golden_store: GoldenStore) -> None:
    store = golden_store(f"{VERSION}-clean")
    with unchanged(store):
        found = rmqtool("repair", store, "--dry-run")
    assert (found.status, found.err) == (Exit.OK, "nothing to repair\n")


@pytest.mark.slow
@pytest.mark.parametrize("options", [("--dry-run",), ("--yes",)])
def test_what_only_people_can_mend_is_not_called_nothing(
    golden_store: GoldenStore, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """A file of the log that cannot be read: there is a plan, of which a repair can do no step."""
    root = copied(golden_store(f"{VERSION}-clean"), tmp_path / "store")
    file = min((root / "commitlog").iterdir())
    file.unlink()
    file.symlink_to(root / "nowhere")
    found = rmqtool("repair", root, *options)
    assert "What to do" in found.out
    assert found.err.endswith("nothing to repair: do the steps above by hand\n")


@pytest.mark.slow
def test_a_saved_plan_is_for_the_store_that_it_was_made_from(store: Path, tmp_path: Path) -> None:
    """Carried out as it was shown, and refused when a file has changed since."""
    plan = tmp_path / "plan.json"
    with unchanged(store):
        assert repair(store, "--save-plan", plan).status == Exit.OK
    changed = copied(store, tmp_path / "changed")
    (changed / "config" / "topics.json").write_text("{}")
    refused = repair(changed, "--plan", plan, "--yes")
    assert refused.status == Exit.FAILED
    assert "the store has changed since" in refused.err
    assert repair(store, "--plan", plan, "--yes").status == Exit.FINDINGS
    assert repair(store, "--acknowledge", "--yes").out.startswith("lost: ")
    assert repair(store, "--acknowledge", "--yes").out == "no loss is recorded\n"
    assert rmqtool("verify", store).status == Exit.OK


@pytest.mark.parametrize(
    "text", ["", "\xd0\xff", "{}", "[1]", '{"schema": "rmqtool.repair-plan/1", "command": "repair"}']
)
def test_a_file_that_is_no_plan(store: Path, tmp_path: Path, text: str) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(text, "latin-1")
    with unchanged(store):
        refused = repair(store, "--plan", plan, "--yes")
    assert refused.status == Exit.USAGE
    assert "codec" not in refused.err


def test_no_choice_beside_a_plan(store: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({}))
    for option in ("--dry-run", "--keep-offsets", "--acknowledge"):
        assert repair(store, "--plan", plan, option).status == Exit.USAGE
    assert repair(store, "--acknowledge", "--keep-offsets").status == Exit.USAGE


def test_nobody_to_be_asked(store: Path) -> None:
    """Without a terminal and without --yes nothing is read, and nothing written."""
    with unchanged(store):
        assert repair(store).status == Exit.USAGE


@pytest.mark.slow
def test_saying_no(store: Path) -> None:
    """The plan is shown, and nothing is changed."""
    before = tree(store)
    found = answered(b"n\n", "repair", store, "--broker-version", VERSION, "--broker-conf", conf_of(store))
    assert "What to do" in found.out
    assert "nothing was changed" in found.err
    assert tree(store) == before


@pytest.mark.slow
def test_sizes_that_nothing_shows(golden_store: GoldenStore, tmp_path: Path) -> None:
    """It asks for broker.conf before it writes index files of another size than the broker's."""
    root = copied(golden_store(f"{VERSION}-clean"), tmp_path / "store")
    index_gone(root)
    before = tree(root)
    found = rmqtool("repair", root, "--yes")
    assert found.status == Exit.USAGE
    assert "--broker-conf FILE" in found.err
    assert tree(root) == before


@pytest.mark.slow
def test_what_no_rebuild_mends_is_told(golden_store: GoldenStore, tmp_path: Path) -> None:
    """A damaged body is taken out; what else there is to do is shown afterwards, with status 1."""
    root = copied(golden_store(f"{VERSION}-clean"), tmp_path / "store")
    flip_a_body(root / LOG)
    entry_zeroed(root)
    (root / "commitlog" / "00000000000000065536").unlink()
    found = repair(root, "--yes")
    assert found.status == Exit.FINDINGS
    assert "Restore commitlog/00000000000000065536 " in found.out
    assert "to undo it, before a broker starts: rmqtool undo" in found.err


@pytest.mark.slow
def test_undo_takes_back_all_transactions_of_a_repair(golden_store: GoldenStore, tmp_path: Path) -> None:
    """Log files get their names in a first one; what is left is repaired in a second."""
    root = copied(golden_store(f"{VERSION}-trimmed"), tmp_path / "store")
    last, before_it = sorted((root / "commitlog").iterdir())[:-3:-1]
    last.rename(tmp_path / "spare")
    before_it.rename(last)
    (tmp_path / "spare").rename(before_it)
    one_queue_gone(root)
    before = tree(root)
    result = repair(root, "--yes", "--json").document["result"]
    assert len(result["transactions"]) == 2
    assert result["verdict"] == "clean"
    undone = rmqtool("undo", root, "--yes", "--json").document["result"]
    assert [each["command"] for each in undone["transactions"]] == ["repair, continued", "repair"]
    assert tree(root) == before


@pytest.mark.slow
def test_what_a_later_transaction_needs_is_asked_for_first(golden_store: GoldenStore, tmp_path: Path) -> None:
    """A stray file would go first; the index that is gone asks for broker.conf, and nothing is written without it."""
    root = copied(golden_store(f"{VERSION}-clean"), tmp_path / "store")
    (root / "commitlog" / "notes.txt").write_text("notes")
    index_gone(root)
    with unchanged(root):
        found = rmqtool("repair", root, "--yes", "--broker-version", VERSION)
    assert found.status == Exit.USAGE
    assert "--broker-conf FILE" in found.err
    assert repair(root, "--yes").status == Exit.OK


@pytest.mark.slow
def test_a_repair_that_waits_for_its_answer_is_named(store: Path) -> None:
    """It has the store's lock: no broker is stopped for that, and none is said to run."""
    (ours, terminal), conf = pty.openpty(), conf_of(store)
    command = ("repair", store, "--broker-version", VERSION, "--broker-conf", conf)
    waiting = spawn(*command, stdin=terminal, stderr=terminal, start_new_session=True)
    os.close(terminal)
    asked = b""
    while not asked.rstrip().endswith(b"[y/N]:"):
        asked += os.read(ours, 1024)
    try:
        found = rmqtool("verify", store, "--json").document
        [in_use] = [each for each in found["findings"] if each["code"] == "store.in-use"]
        who = f"rmqtool repair (process {waiting.pid})"
        assert in_use["details"] == {
            "problem": "program", "who": who, "pid": waiting.pid, "program": "rmqtool repair"
        }  # fmt: skip
        [step] = found["result"]["plan"]["steps"]
        assert step["text"].startswith(f"rmqtool repair (process {waiting.pid}) is working on the store")
        assert rmqtool("inspect", store, "--json").document["result"]["broker"]["running"] is False
        refused = rmqtool("rebuild-cq", store, "--yes", *command[2:])
        assert refused.status == Exit.IN_USE
        assert f"in use by rmqtool repair (process {waiting.pid})" in refused.err
    finally:
        os.write(ours, b"n\n")
        finish(waiting)
        os.close(ours)


@pytest.mark.slow
def test_a_release_older_than_the_store_is_refused(store: Path) -> None:
    """Its rules would make queues and index that the broker may refuse: a script has to insist on it."""
    conf = ("--broker-conf", conf_of(store))
    for command in ("repair", "rebuild-cq", "rebuild-index"):
        with unchanged(store):
            found = rmqtool(command, store, "--yes", "--broker-version", "4.4.0", *conf)
        assert found.status == Exit.USAGE
        assert "the store was written by 5." in found.err
        assert "; you named 4.4.0: nothing was changed\n" in found.err
        assert "--allow-older-release" in found.err
    insisting = rmqtool("rebuild-cq", store, "--yes", "--broker-version", "4.4.0", "--allow-older-release", *conf)
    assert insisting.err.startswith("WARNING: the store was written by 5.")
    assert (store / ".rmqtool").exists()


@pytest.mark.one_in(3)
@pytest.mark.slow
@pytest.mark.parametrize("command", ["repair", "rebuild-cq", "rebuild-index"])
def test_a_release_older_than_the_store_is_asked_for_first(store: Path, command: str) -> None:
    """Before the store is read; a newer one is asked for as any is, and a plan that is only shown warns."""
    conf = ("--broker-conf", conf_of(store))
    with unchanged(store):
        found = answered(b"n\n", command, store, "--broker-version", "4.4.0", *conf)
        assert found.out == ""
        assert "Write by the rules of 4.4.0 anyway? [y/N]: " in found.err
        shown = rmqtool(command, store, "--dry-run", "--broker-version", "4.4.0", *conf)
        assert shown.status != Exit.USAGE
        assert "WARNING: the store was written by 5." in shown.err
    assert "; you named 4.4.0: name the release" in rmqtool("verify", store, "--broker-version", "4.4.0").out
    assert "WARNING" not in rmqtool(command, store, "--yes", "--broker-version", "5.5", *conf).err


@pytest.mark.slow
def test_a_reader_who_is_gone_hears_what_was_done(store: Path) -> None:
    """As after `| head -3`: nothing was interrupted, and nothing is left to go on with."""
    reader, writer = os.pipe()
    os.close(reader)
    found = finish(spawn("repair", store, "--yes", "--broker-conf", conf_of(store), stdout=writer))
    os.close(writer)
    assert found.status == Exit.OK
    assert "done: 0001-" in found.err
    assert "interrupted" not in found.err
    assert "to go on" not in found.err
    assert (store / ".rmqtool").exists()


def test_a_reader_who_is_gone_before_anything_is_written(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is shown before the question is not read: nobody can agree."""
    with pytest.raises(BrokenPipeError), reporting_state(Style(), store, "is written"):
        raise BrokenPipeError
    assert capsys.readouterr().err == "nothing reads the output any more: the store is as it was\n"
