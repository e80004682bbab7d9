"""`rmqtool copy`: a copy that verify finds clean, killed runs, updates, what is refused, restores."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from rmqtool.base.files import InputFile
from rmqtool.copy import run, transfer
from rmqtool.copy.manifest import MANIFEST, read_manifest
from rmqtool.copy.order import Found, Step
from rmqtool.copy.run import Copying
from rmqtool.salvage import new_store
from rmqtool.store.lock import Holder
from rmqtool.transaction.system import System, remove_tree
from tests.building import LOG
from tests.commands.running import Result, killed_at_a_call, rmqtool
from tests.conftest import GoldenStore
from tests.copies import contents, copied, grown
from tests.sampling import one_in
from tests.unchanged import snapshot, unchanged
from tests.verify.small_store import FILE_SIZE, StoreBuilder, small_store

GOLDEN = ("4.4.0-clean", "4.9.7-clean", "5.3.3-shop", "5.5.0-clean", "5.5.0-trimmed", "5.3.3-empty",
          "more/5.3.3-rocksdb-twice", "more/4.7.1-differing")  # fmt: skip
DAY_S = 86_400


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return small_store(tmp_path / "store")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "copy"


def copy(store: Path, target: Path, *options: str | Path) -> Result:
    """Copy a store, and assert that it is as before."""
    with unchanged(store):
        return rmqtool("copy", store, "--output", target, *options)


@pytest.mark.slow
@pytest.mark.parametrize("name", GOLDEN)
def test_a_stopped_store(golden_store: GoldenStore, target: Path, name: str) -> None:
    """The copy of a stopped store has the same bytes, times, modes and holes, and a manifest of all of them."""
    store = golden_store(name)
    done = copy(store, target, "--json")
    assert (done.status, done.document["result"]["proven"]) == (Exit.OK, True)
    assert contents(target) == contents(store)
    before, after = snapshot(store), snapshot(target)
    for file in contents(store):
        assert (after[file].mtime_ns, after[file].mode) == (before[file].mtime_ns, before[file].mode)
        assert os.stat(target / file).st_blocks <= os.stat(store / file).st_blocks + 8
    manifest = read_manifest(target)
    assert manifest
    assert {file.path for file in manifest.files} == contents(target).keys()
    assert rmqtool("copy", "--verify", target).status == Exit.OK


@pytest.mark.slow
@pytest.mark.parametrize("name", ["4.4.0-killed", "5.3.3-killed", "5.5.0-killed", "more/5.5.0-rocksdb"])
def test_what_a_killed_broker_has_left_is_settled(golden_store: GoldenStore, target: Path, name: str) -> None:
    """The copy is as after a clean stop: verify finds nothing, there is no `abort`, and its start loses nothing."""
    done = copy(golden_store(name), target, "--json")
    assert (done.status, done.document["result"]["settled"], done.document["result"]["proven"]) == (Exit.OK, True, True)
    assert not (target / "abort").exists()
    checked = rmqtool("copy", "--verify", target, "--json")
    assert (checked.status, checked.document["result"]["verdict"]) == (Exit.OK, "clean")


@pytest.mark.slow
def test_the_end_is_a_whole_record_and_zeros_follow(store: Path, target: Path) -> None:
    """A record that is only half written goes, and what stands after it does not come back."""
    last = max((store / LOG).iterdir())
    data = bytearray(last.read_bytes())
    whole = rmqtool("verify", store, "--json").document["result"]["start"]["max_offset_after"]
    end = whole % FILE_SIZE
    data[end : end + 60] = data[:60]
    last.write_bytes(data)
    (store / "abort").touch()
    done = copy(store, target, "--json")
    assert done.document["result"]["end_offset"] == whole
    assert (target / LOG / last.name).read_bytes() == bytes(data[:end]).ljust(FILE_SIZE, b"\0")
    assert rmqtool("verify", target).status == Exit.OK


def test_raw_is_as_after_a_crash(store: Path, target: Path) -> None:
    """With `abort`, and a checkpoint that lets a start keep the newest index file."""
    (store / "abort").touch()
    assert copy(store, target, "--raw").status == Exit.OK
    assert (target / "abort").exists()
    checkpoint = (target / "checkpoint").read_bytes()
    assert int.from_bytes(checkpoint[16:24], "big") > 0
    checked = rmqtool("copy", "--verify", target, "--json")
    assert (checked.status, checked.document["result"]["verdict"]) == (Exit.OK, "dirty")


@pytest.mark.slow
def test_raw_ends_where_a_start_reads(
    store: Path, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start of 5.4 or later reads a few files of the log: no message of the copy may be without its queue entry."""
    (store / "abort").touch()
    step, before = Copying._copy_step, len([*(store / LOG).iterdir()])

    def copy_step(self: Copying, name: Step) -> None:
        if name == "log":
            grown(store, 200)
        step(self, name)

    monkeypatch.setattr(Copying, "_copy_step", copy_step)
    (conf := tmp_path / "broker.conf").write_text("commitLogRecoverMaxNum=4\n")
    words = ("--broker-version", "5.5.0", "--broker-conf", conf)
    assert rmqtool("copy", store, "--output", target, "--raw", *words).status == Exit.OK
    assert len([*(store / LOG).iterdir()]) > before + 4
    assert len([*(target / LOG).iterdir()]) == before + 1
    start = rmqtool("verify", target, "--json", *words).document["result"]["start"]
    assert sum(each["lost"] for each in start["queues"]) == 0


def test_a_broker_that_starts_meanwhile(store: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was copied at once, while it wrote already, is copied again in order, and shares no data that it writes."""
    at_once, changing, log = Copying._copy_at_once, Copying._copy_changing, list[str]()
    shared = list[str]()  # in the second copying
    before = rmqtool("inspect", store, "--scan", "--json").document["result"]["commit_log"]["max_offset"]

    def copy_at_once(self: Copying, files: Sequence[Found], copy: Callable[..., None]) -> None:
        at_once(self, files, copy)
        if any(file.step == "log" and not file.is_full for file in files):
            grown(store, 90)
            monkeypatch.setattr(run, "lock_holder", lambda _: Holder(1, "lock"))

    def copy_changing(self: Copying, file: Found, *, is_one_of_many: bool = False) -> None:
        if file.step == "log" and not is_one_of_many:
            log.append(file.path.name)
        changing(self, file, is_one_of_many=is_one_of_many)

    def share(source: InputFile, _: int) -> bool:
        shared.extend([Path(source.path).name] if log else [])
        return False

    monkeypatch.setattr(Copying, "_copy_at_once", copy_at_once)
    monkeypatch.setattr(Copying, "_copy_changing", copy_changing)
    monkeypatch.setattr(transfer, "share", share)
    done = rmqtool("copy", store, "--output", target, "--json")
    end = rmqtool("inspect", store, "--scan", "--json").document["result"]["commit_log"]["max_offset"]
    assert log == sorted(log, reverse=True) != []
    assert shared
    assert {*log[:2]}.isdisjoint(shared)
    assert done.document["result"]["end_offset"] == end > before


@pytest.mark.slow
def test_an_update_reads_what_has_changed(store: Path, target: Path) -> None:
    """Full files are shared with the copy before; the copy is that of the store as it is now."""
    copy(store, target)
    grown(store, 90)
    done = copy(store, target, "--update", "--json").document["result"]
    assert done["mode"] == "update"
    assert done["files"]["same"] >= 2
    assert contents(target) == contents(store)
    assert rmqtool("copy", "--verify", target).status == Exit.OK
    assert sorted(path.name for path in target.parent.iterdir()) == ["copy", "store"]


@pytest.mark.slow
def test_what_the_cleaner_has_deleted_stays_unless_pruned(store: Path, target: Path) -> None:
    """Without --prune a copy is an archive; with it, it has what the store has."""
    grown(store, 90)
    copy(store, target)
    oldest = min((store / LOG).iterdir())
    oldest.unlink()
    kept = copy(store, target, "--update", "--json")
    assert (kept.status, kept.document["result"]["min_offset"]) == (Exit.OK, int(oldest.name))
    assert (target / LOG / oldest.name).exists()
    pruned = copy(store, target, "--update", "--prune", "--json")
    assert (pruned.status, pruned.document["result"]["min_offset"]) == (Exit.OK, int(oldest.name) + FILE_SIZE)
    assert not (target / LOG / oldest.name).exists()


@pytest.mark.parametrize("lost", ["all", "older", "cut"])
def test_a_wiped_store_does_not_wipe_its_backup(store: Path, target: Path, tmp_path: Path, lost: str) -> None:
    """An empty log, one that begins later, and one that went on otherwise after a cut are refused."""
    copy(store, target)
    logs = sorted((store / LOG).iterdir())
    if lost == "cut":
        other = StoreBuilder(file_size=FILE_SIZE)
        for number in range(80):
            other.put(body=b"another %d" % number)
        shutil.rmtree(store)
        small_store(store, other)
    else:
        for path in logs:
            path.unlink()
        if lost == "older":
            (store / LOG / f"{FILE_SIZE * 1000:020}").write_bytes(logs[0].name.encode().ljust(FILE_SIZE, b"\0"))
    with unchanged(target):
        refused = copy(store, target, "--update", "--prune")
    assert refused.status == Exit.FAILED
    assert str(store) in refused.err


@pytest.mark.slow
@pytest.mark.parametrize("update", [False, True])
def test_killed_anywhere(store: Path, target: Path, update: bool) -> None:
    """There is no copy, or the one before, or the new one, each of them whole; the next run goes on."""
    options = ["--update"] if update else []
    base = target.with_name("base")
    if update:
        copy(store, base)
        grown(store, 90)
    copy(store, target)
    new = contents(target)
    shutil.rmtree(target)
    old = contents(base) if update else None

    def again() -> None:
        shutil.rmtree(target, ignore_errors=True)
        shutil.rmtree(target.with_name(".copy.rmqtool-new"), ignore_errors=True)
        if update:
            copied(base, target)

    with killed_at_a_call("copy", store, "--output", target, *options) as run_until:
        for number in one_in(8, range(1000), "copy"):
            again()
            status = run_until(number)
            if target.exists():
                assert contents(target) in (old, new), number
                assert rmqtool("copy", "--verify", target).status == Exit.OK, number
            if status != 9:
                break
            if not target.exists() or contents(target) == old:
                assert copy(store, target, *options).status == Exit.OK, number
            assert contents(target) == new
    assert number > 20


def test_a_replaced_copy_that_could_not_be_removed(store: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays beside the new one; the next run does not take its files for those that were copied."""
    copy(store, target)
    grown(store, 70)

    def keep(system: System, path: str) -> None:
        if path.endswith(".rmqtool-new"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        remove_tree(system, path)

    with monkeypatch.context() as patched:
        patched.setattr(new_store, "remove_tree", keep)
        assert copy(store, target, "--update").status == Exit.OK
    for _ in range(2):
        assert contents(target) == contents(store)
        assert copy(store, target, "--update").status == Exit.OK
    assert {*os.listdir(target.parent)} == {"store", "copy"}


@pytest.mark.slow
def test_an_interrupted_run_goes_on(store: Path, target: Path) -> None:
    """Full files that it has copied are not read again, but for those that have changed since."""
    grown(store, 90)
    with killed_at_a_call("copy", store, "--output", target) as run_until:
        assert run_until(30) == 9
    assert not target.exists()
    done = copy(store, target, "--json").document["result"]
    assert done["files"]["went_on"] > 0
    assert contents(target) == contents(store)


@pytest.mark.slow
def test_what_is_gone_when_an_interrupted_run_goes_on(store: Path, target: Path) -> None:
    """What the cleaner has deleted meanwhile, of which a part may have been copied, is not in the copy."""
    grown(store, 90)
    with killed_at_a_call("copy", store, "--output", target) as run_until:
        assert run_until(30) == 9
    oldest = min((store / LOG).iterdir())
    oldest.unlink()
    (target.with_name(".copy.rmqtool-new") / "store" / LOG / oldest.name).write_bytes(b"a part of it")
    assert copy(store, target).status == Exit.OK
    assert contents(target).keys() == contents(store).keys()


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["content", "size", "missing", "extra"])
def test_a_check_finds_what_is_not_as_it_was(store: Path, target: Path, damage: str) -> None:
    copy(store, target)
    name = f"{LOG}/{min(os.listdir(store / LOG))}"
    path = target / name
    if damage == "content":
        with path.open("r+b") as file:
            file.seek(40)
            file.write(b"!")
    elif damage == "size":
        os.truncate(path, FILE_SIZE - 1)
    elif damage == "missing":
        path.unlink()
    else:
        name += "0"
        (target / name).touch()
    checked = rmqtool("copy", "--verify", target, "--json")
    assert checked.status == Exit.FINDINGS
    assert [(each["path"], each["problem"]) for each in checked.document["result"]["differences"]] == [(name, damage)]


def test_a_restore(store: Path, target: Path, tmp_path: Path) -> None:
    """The same bytes and times, but no manifest: a broker changes it from now on."""
    copy(store, target)
    done = copy(target, tmp_path / "restored", "--json")
    assert (done.status, done.document["result"]["mode"]) == (Exit.OK, "restore")
    assert contents(tmp_path / "restored") == contents(store)
    assert not (tmp_path / "restored" / MANIFEST).exists()


@pytest.mark.slow
def test_a_restore_of_databases(golden_store: GoldenStore, target: Path, tmp_path: Path) -> None:
    """Queues and configuration in RocksDB, each file of which is compared with the manifest."""
    copy(golden_store("more/5.5.0-rocksdb"), target)
    assert copy(target, tmp_path / "restored").status == Exit.OK
    assert contents(tmp_path / "restored") == contents(target)
    table = next((target / "consumequeue").glob("*.sst"))
    status = table.stat()
    with table.open("r+b") as file:
        file.write(b"!!")
    os.utime(table, ns=(status.st_atime_ns, status.st_mtime_ns))
    refused = copy(target, tmp_path / "again")
    assert (refused.status, table.name in refused.err) == (Exit.FAILED, True)


def test_a_damaged_copy_is_not_restored(store: Path, target: Path, tmp_path: Path) -> None:
    """Each byte is compared with the manifest, though sizes and times are as they were."""
    copy(store, target)
    path = min((target / LOG).iterdir())
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(40)
        file.write(b"!")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    refused = copy(target, tmp_path / "restored")
    assert refused.status == Exit.FAILED
    assert path.name in refused.err
    assert not (tmp_path / "restored").exists()


@pytest.mark.slow
def test_a_copy_on_which_a_broker_has_run_is_a_store(store: Path, target: Path, tmp_path: Path) -> None:
    copy(store, target)
    (target / "checkpoint").write_bytes((target / "checkpoint").read_bytes()[::-1])
    os.utime(target / "checkpoint", (0, 0))
    done = copy(target, tmp_path / "second", "--json")
    assert (done.status, done.document["result"]["mode"]) == (Exit.OK, "full")
    assert "treated as a plain store" in done.err


@pytest.mark.slow
def test_a_copy_that_was_moved_without_its_times(store: Path, target: Path, tmp_path: Path) -> None:
    """As from an object store: it is compared with its manifest all the same, and its times come from there."""
    copy(store, target)
    for path in target.rglob("*"):
        os.utime(path)
    done = copy(target, tmp_path / "restored", "--yes", "--json")
    assert (done.status, done.document["result"]["mode"]) == (Exit.OK, "restore")
    before, after = snapshot(store), snapshot(tmp_path / "restored")
    assert [after[name].mtime_ns for name in contents(store)] == [before[name].mtime_ns for name in contents(store)]


@pytest.mark.slow
def test_a_restore_asks_about_retention(store: Path, target: Path, tmp_path: Path) -> None:
    """Files that the first cleaning would delete are restored only where somebody agrees, or with new times."""
    grown(store, 90)
    for path in (store / LOG).iterdir():
        os.utime(path, (time.time() - 4 * DAY_S,) * 2)
    copy(store, target)
    asked = copy(target, tmp_path / "restored")
    assert asked.status == Exit.USAGE
    assert "fileReservedTime" in asked.err
    assert copy(target, tmp_path / "agreed", "--yes").status == Exit.OK
    assert copy(target, tmp_path / "fresh", "--fresh-times").status == Exit.OK
    times = [path.stat().st_mtime for path in sorted((tmp_path / "fresh" / LOG).iterdir())]
    assert times == sorted(times)
    assert min(times) > time.time() - DAY_S
    (conf := tmp_path / "broker.conf").write_text("fileReservedTime=240\n")
    assert copy(target, tmp_path / "kept", "--broker-conf", conf).status == Exit.OK


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["{store}"], "--output is missing"),
        (["--verify", "{store}"], "not a copy"),
        (["--verify", "{store}", "--output", "{new}"], "--verify checks"),
        (["{store}", "--output", "{store}/inside"], "inside"),
        (["{store}", "--output", "{new}", "--prune"], "--prune is for --update"),
        (["{store}", "--output", "{new}", "--fresh-times"], "--fresh-times is for"),
        (["{store}", "--output", "{new}", "--update"], "this is not a copy"),
        (["{store}", "--output", "{copy}"], "there is already a copy"),
        (["{store}", "--output", "{store}/../other"], "empty directory"),
    ],
)
def test_what_is_refused(store: Path, target: Path, tmp_path: Path, words: list[str], said: str) -> None:
    """Each with a sentence, and nothing is written."""
    copy(store, target)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with unchanged(tmp_path):
        refused = rmqtool("copy", *(word.format(store=store, new=tmp_path / "new", copy=target) for word in words))
    assert refused.status == Exit.USAGE
    assert said in refused.err


def test_a_store_that_a_repair_changes(store: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unlike a broker it replaces files that no longer change."""
    holder = Holder(1, "lock", "rmqtool repair")
    monkeypatch.setattr("rmqtool.store.snapshot.lock_holder", lambda _: holder)
    refused = copy(store, target)
    assert refused.status == Exit.IN_USE
    assert "rmqtool repair" in refused.err


def test_a_dry_run_writes_nothing(store: Path, target: Path, tmp_path: Path) -> None:
    with unchanged(tmp_path):
        planned = copy(store, target, "--dry-run", "--json")
    assert planned.document["result"]["state"] == "planned"
    assert planned.document["result"]["needed_bytes"] > 0


def test_a_manifest_that_cannot_be_read(store: Path, target: Path) -> None:
    copy(store, target)
    (target / MANIFEST).write_text(json.dumps({"format": 99}))
    assert rmqtool("copy", "--verify", target).status == Exit.FAILED
