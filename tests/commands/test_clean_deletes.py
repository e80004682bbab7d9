"""`rmqtool clean` without --dry-run: what goes, what is asked, what is refused, and what a kill leaves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from tests.building import LogBuilder
from tests.clean.planning import FOUR, HOUR, set_mtime
from tests.commands.cleaning import OPTIONS, files, planned
from tests.commands.running import KILLED_AT_A_DELETION, ROOT, Result, answered, rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.unchanged import unchanged

SIZES = {
    "mapedFileSizeCommitLog": 65536,
    "mapedFileSizeConsumeQueue": 600,
    "mapperFileSizeBatchConsumeQueue": 460,
    "maxHashSlotNum": 50,
    "maxIndexNum": 1000,
}

HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX, 1)
print(flush=True)
input()
"""


@pytest.fixture
def store(unpacked: GoldenStore, tmp_path: Path) -> Path:
    copied(unpacked("5.3.3-clean"), tmp_path / "store")
    return tmp_path / "store"


def clean(store: Path, *options: str | Path) -> Result:
    """A run that deletes, unread messages too."""
    return rmqtool("clean", store, *OPTIONS, "--allow-unread", *options)


@pytest.mark.slow
def test_the_first_pass_and_nothing_else(store: Path) -> None:
    """What the dry run names goes; all other bytes and modification times stay, and the next runs do the rest."""
    doomed, before = planned(store, "--delete-file-batch-max", "4"), files(store)
    kept = {path: (store / path).stat().st_mtime_ns for path in before - doomed}
    found = clean(store, "--delete-file-batch-max", "4", "--yes")
    assert found.status == Exit.OK
    assert "The next run deletes 4 of 10 log files" in found.out
    assert files(store) == before - doomed
    assert {path: (store / path).stat().st_mtime_ns for path in kept} == kept
    assert clean(store, "--yes").status == Exit.OK
    assert len(list((store / "commitlog").iterdir())) == 1
    last = clean(store, "--yes", "--json").document
    assert (last["result"]["state"], last["result"]["transaction"]) == ("nothing", None)


@pytest.fixture
def full_disk(store: Path, tmp_path: Path) -> Iterator[Path]:
    """The store on a file system without a free byte."""
    place = tmp_path / "full"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", place], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("nothing can be mounted here")
    try:
        copy = copied(store, place / "store")
        with suppress(OSError), (place / "filler").open("wb", buffering=0) as filler:
            while filler.write(bytes(1 << 20)):
                pass
        with suppress(OSError), (place / "filler").open("ab", buffering=0) as filler:
            while filler.write(bytes(4096)):
                pass
        assert os.statvfs(place).f_bavail == 0
        yield copy
    finally:
        subprocess.run(["umount", place], check=True)


@pytest.mark.slow
def test_a_full_disk(full_disk: Path) -> None:
    """Nothing is free, and what the dry run names goes."""
    doomed, before = planned(full_disk), files(full_disk)
    found = clean(full_disk, "--yes", "--json")
    assert (found.status, found.document["result"]["state"]) == (Exit.OK, "done")
    assert files(full_disk) == before - doomed


@pytest.mark.slow
def test_json(store: Path) -> None:
    document = clean(store, "--yes", "--json").document
    assert document["result"]["state"] == "done"
    assert document["result"]["transaction"]
    assert not any((store / file["file"]).exists() for file in document["result"]["passes"][0]["commit_log"])


def test_nobody_is_asked_in_a_script(store: Path) -> None:
    with unchanged(store):
        found = clean(store)
    assert found.status == Exit.USAGE
    assert "--yes" in found.err
    assert "deletes 9 of 10" in found.out


def test_only_one_run(store: Path) -> None:
    with unchanged(store):
        assert clean(store, "--all-runs", "--yes").status == Exit.USAGE


@pytest.mark.slow
def test_a_broker_conf_of_another_store_is_refused(store: Path, tmp_path: Path) -> None:
    """With other file sizes, given or by default, a start would destroy the store."""
    conf = tmp_path / "broker.conf"
    for name in SIZES:
        conf.write_text("".join(f"{key}={value}\n" for key, value in SIZES.items() if key != name))
        with unchanged(store):
            found = clean(store, "--yes", "--broker-conf", conf)
        assert found.status == Exit.USAGE
        assert "by broker.conf" in found.err
    conf.write_text("".join(f"{key}={value}\n" for key, value in SIZES.items()))
    assert clean(store, "--yes", "--broker-conf", conf).status == Exit.OK


@pytest.mark.slow
def test_the_log_of_another_store_is_not_deleted(store: Path, tmp_path: Path) -> None:
    """Not with the broker.conf of the store of which this is a copy, whether the copy has a log or none.

    So it is where broker.conf leaves storePathRootDir to its default.
    """
    copy = copied(store, tmp_path / "copy")
    conf = tmp_path / "broker.conf"
    log = f"storePathCommitLog={store}/commitlog\n"
    conf.write_text(log + "".join(f"{key}={value}\n" for key, value in SIZES.items()))
    with unchanged(store):
        assert clean(copy, "--yes", "--broker-conf", conf).status == Exit.USAGE
    paths = f"storePathRootDir={store}\n{log}"
    conf.write_text(paths + "".join(f"{key}={value}\n" for key, value in SIZES.items()))
    with unchanged(store):
        assert clean(copy, "--yes", "--broker-conf", conf).status == Exit.USAGE
        shutil.rmtree(copy / "commitlog")
        for text in (log, paths):
            conf.write_text(text + "".join(f"{key}={value}\n" for key, value in SIZES.items()))
            refused = clean(copy, "--yes", "--broker-conf", conf)
            assert refused.status == Exit.USAGE
            assert "files of its log would be deleted" in refused.err
    assert clean(store, "--yes", "--broker-conf", conf).status == Exit.OK


def test_not_everything(tmp_path: Path) -> None:
    """The last file is empty: without the others no message would be left."""
    log = LogBuilder(file_size=1024)
    for _ in range(2):
        log.add()
        log.roll()
    store = log.write(tmp_path / "store")
    (store / "consumequeue").mkdir()
    for file in (store / "commitlog").iterdir():
        set_mtime(file, FOUR - 100 * HOUR)
    with unchanged(store):
        found = clean(store, "--yes")
    assert found.status == Exit.FAILED
    assert "no message would be left" in found.err


@pytest.mark.slow
def test_a_store_in_use(store: Path) -> None:
    """Exit 5, before anybody is asked."""
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            HOLDER,
            str(store / "lock"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout
        holder.stdout.readline()
        with unchanged(store):
            found = clean(store)
            assert found.status == clean(store, "--yes").status == Exit.IN_USE
            assert f"process {holder.pid}" in found.err
    finally:
        holder.communicate(b"\n")


@pytest.mark.slow
@pytest.mark.one_in(2)
@pytest.mark.parametrize("deletions", [0, 1, 5, 20])
def test_a_kill_is_finished_by_the_next_run(store: Path, deletions: int) -> None:
    """Whatever had gone, the next run deletes the rest of the same files; before, the log has no hole."""
    doomed, before = planned(store), files(store)
    kill(store, deletions)
    left = files(store)
    assert len(before - left) == deletions
    assert before - left <= doomed
    log = sorted(int(path.name) for path in (store / "commitlog").iterdir())
    assert [b - a for a, b in pairwise(log)] == [65536] * (len(log) - 1)
    dry = rmqtool("clean", store, "--dry-run", *OPTIONS, "--json").document
    assert "store.interrupted-run" in {finding["code"] for finding in dry["findings"]}
    document = clean(store, "--yes", "--json").document
    assert document["result"]["state"] == "recovered"
    assert [found["outcome"] for found in document["result"]["recovered"]] == ["finished"]
    assert files(store) == before - doomed
    assert not (store / ".rmqtool").exists()


@pytest.mark.slow
def test_nobody_finishes_a_deletion_unasked(store: Path) -> None:
    """Each command says before what would still be deleted, that nothing takes it back, and how to keep it."""
    doomed = planned(store)
    kill(store, 5)
    (run,) = (path.name for path in (store / ".rmqtool").iterdir())
    left = f"clean {run} still has {len(doomed) - 5} files of "
    with unchanged(store):
        for command in ("repair", "rebuild-cq", "rebuild-index", "undo", "clean"):
            found = answered(b"n\n", command, store, *(("--allow-unread",) if command == "clean" else ()))
            question = " ".join(found.err.split())
            assert f"The interrupted {left}" in question, command
            assert f"to keep them, move .rmqtool/{run} out of the store first" in question
            assert question.endswith("nothing was changed")
        dry = rmqtool("undo", store, "--dry-run").out
        assert left in dry
        assert "put back" not in dry
        (step,) = rmqtool("verify", store, "--json").document["result"]["plan"]["steps"]
        assert left in step["text"]
        assert "takes it back" not in step["text"]
    shutil.move(store / ".rmqtool" / run, store.parent / run)
    kept = {path for path in files(store) if ".rmqtool" not in str(path)}
    assert rmqtool("undo", store, "--yes").status == Exit.OK
    assert files(store) == kept


def kill(store: Path, deletions: int) -> None:
    """Kill a run that deletes behind so many of its deletions."""
    words = ("clean", str(store), *OPTIONS, "--yes", "--allow-unread")
    command = [sys.executable, "-c", KILLED_AT_A_DELETION, str(deletions), *words]
    killed = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert killed.returncode == 9


def test_several_log_paths(store: Path, tmp_path: Path) -> None:
    """Files go wherever the log has them, oldest first; a directory that broker.conf does not name is let alone."""
    second, foreign = tmp_path / "second", tmp_path / "foreign"
    second.mkdir()
    foreign.mkdir()
    files_of_log = sorted((store / "commitlog").iterdir())
    for file in files_of_log[::2]:
        shutil.move(file, second / file.name)
    shutil.copy(files_of_log[1], foreign / files_of_log[1].name)
    conf = tmp_path / "broker.conf"
    paths = f"storePathCommitLog={store / 'commitlog'},{second}\n"
    conf.write_text(paths + "".join(f"{key}={value}\n" for key, value in SIZES.items()))
    result = clean(store, "--yes", "--json", "--broker-conf", conf, "--delete-file-batch-max", "5").document["result"]
    gone = [Path(file["file"]) for file in result["passes"][0]["commit_log"]]
    assert [file.parent for file in gone[:2]] == [second, Path("commitlog")]
    left = sorted(file.name for folder in (store / "commitlog", second) for file in folder.iterdir())
    assert left == [file.name for file in files_of_log[5:]]
    assert len(list(foreign.iterdir())) == 1
