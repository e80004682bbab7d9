"""`rmqtool salvage`: a store that verify finds clean, what is refused, JSON and text, runs that are killed."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from rmqtool.salvage import new_store
from rmqtool.salvage.new_store import NewStore, partial_directory
from rmqtool.transaction.losses import recorded_losses
from rmqtool.transaction.system import SYSTEM
from tests.building import LOG
from tests.commands.running import Result, killed_at_a_call, rmqtool
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.rebuild.log_damages import DAMAGE
from tests.salvage.damaged_logs import checked_log
from tests.transaction.disk import Recorder
from tests.unchanged import tree, unchanged
from tests.unreadable import bad_sectors
from tests.verify.small_store import FILE_SIZE, small_store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return small_store(tmp_path / "store", checked_log(40))


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return tmp_path / "new"


def salvage(store: Path, new: Path, *options: str | Path) -> Result:
    """Salvage one store, and assert that it is as before."""
    with unchanged(store):
        return rmqtool("salvage", store, "--output", new, *options)


def damage(store: Path) -> None:
    """Overwrite bytes of three messages."""
    path = store / LOG / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[1000:1600] = b"\xa5" * 600
    path.write_bytes(data)


def whole_tree(root: Path) -> dict[str, bytes]:
    """The files, but for the record of the loss, which has the time of the salvage."""
    found = tree(root)
    assert found.pop(".rmqtool/losses/new.json")
    return found


@pytest.mark.budget(1)
def test_healthy(store: Path, new: Path) -> None:
    """Log, queues, index and configuration are the same, and verify finds nothing."""
    found = salvage(store, new, "--json")
    assert found.status == Exit.OK
    assert found.document["result"]["left_behind"] == found.document["result"]["gaps"] == []
    for name in (LOG, "consumequeue", "config"):
        assert tree(new / name) == tree(store / name)
    assert rmqtool("verify", new, "--json").document["result"]["verdict"] == "clean"
    assert os.listdir(new.parent) == ["store", "new"] or set(os.listdir(new.parent)) == {"store", "new"}
    assert not (new / "abort").exists()


@pytest.mark.slow
def test_damaged(store: Path, new: Path) -> None:
    """What is lost is listed, in JSON and as text, and a broker of any kind of start keeps the rest."""
    damage(store)
    planned = salvage(store, new, "--json", "--dry-run")
    assert (planned.status, planned.document["result"]["state"]) == (Exit.FINDINGS, "planned")
    assert not new.exists()
    assert salvage(store, new, "--dry-run").out.startswith("saved: 37 messages")
    found = salvage(store, new, "--json")
    result = found.document["result"]
    assert (found.status, result["state"]) == (Exit.FINDINGS, "done")
    assert result["commit_log"]["messages"] == sum(queue["units"] for queue in result["queues"]) - 3 == 37
    assert (result["gap_count"], result["gap_bytes"]) == (1, sum(gap["size"] for gap in result["gaps"]))
    assert [left["reason"] for left in result["left_behind"]] == ["damaged"]
    (new / "abort").touch()
    (new / "checkpoint").unlink()
    document = rmqtool("verify", new, "--json").document
    [loss] = [finding["message"] for finding in document["findings"] if finding["code"] == "store.recorded-loss"]
    assert f"{result['gap_bytes']} bytes of the log held no record; messages by topic" in loss
    verdict = document["result"]
    assert verdict["start"]["messages_lost"] == 0
    assert verdict["start"]["max_offset_after"] == result["commit_log"]["max_offset"]
    text = rmqtool("salvage", store, "--output", new.parent / "other").out
    assert "lost: " in text
    assert "not copied: " in text


@pytest.mark.slow
def test_a_loss_on_record_goes_along(store: Path, new: Path, tmp_path: Path) -> None:
    """A salvage of a salvaged store lacks the same, unless another source has it."""
    whole = copied(store, tmp_path / "whole")
    damage(store)
    salvage(store, new)
    again, filled = tmp_path / "again", tmp_path / "filled"
    salvage(new, again)
    assert recorded_losses(again) == recorded_losses(new) != []
    assert salvage(new, filled, whole).status == Exit.OK
    assert not (filled / ".rmqtool").exists()


@pytest.mark.slow
def test_configuration_of_the_first_that_has_it(store: Path, new: Path, tmp_path: Path) -> None:
    """A file that cannot be decoded comes from the next source; what none has whole is named."""
    other = copied(store, tmp_path / "other")
    (store / "config" / "topics.json").write_text("{")
    for each in (store, other):
        (each / "config" / "consumerOffset.json").write_text("{")
    found = salvage(store, new, other, "--json")
    carried = {
        each["name"]: (each["source"], bool(each["problem"])) for each in found.document["result"]["carried_over"]
    }
    assert carried == {"config/topics.json": (str(other), False), "config/consumerOffset.json": (None, True)}
    assert found.status == Exit.FINDINGS
    assert [path.name for path in (new / "config").iterdir()] == ["topics.json"]


def test_output_must_be_free(store: Path, new: Path) -> None:
    """Not what holds something, not a file, not inside a source, and not below what does not exist."""
    (new / "something").mkdir(parents=True)
    (file := new.parent / "file").touch()
    for output in (new, store, store / "new", file, new.parent / "none" / "new"):
        with unchanged(new):
            assert salvage(store, output).status == Exit.USAGE
    (new / "something").rmdir()
    assert salvage(store, new, "--dry-run").status == Exit.OK


def test_nothing_to_save(tmp_path: Path, new: Path) -> None:
    """Without a source it is a wrong command line; without a message nothing is written."""
    assert rmqtool("salvage", "--output", new).status == Exit.USAGE
    (image := tmp_path / "image").write_bytes(b"nothing" * 1000)
    found = rmqtool("salvage", "--raw", image, "--output", new, "--json")
    assert (found.status, found.document["result"]["state"]) == (Exit.FINDINGS, "nothing")
    assert not new.exists()


def test_nothing_chosen(store: Path, new: Path) -> None:
    """Of a store that is not made it is not said where it begins, nor what it leaves behind."""
    found = salvage(store, new, "--topic", "other")
    assert (found.status, new.exists()) == (Exit.FINDINGS, False)
    assert "chosen: no message; left out: " in found.out
    assert "physical offset" not in found.out


def test_no_space(store: Path, new: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for before anything is written, and nothing is left of the try."""
    monkeypatch.setattr("rmqtool.transaction.system.System.free_bytes", lambda self, path: 1 << 20)
    found = salvage(store, new)
    assert found.status == Exit.FAILED
    assert os.listdir(new.parent) == ["store"]


@pytest.mark.budget(1)
def test_begins_anew(store: Path, new: Path) -> None:
    """What a run that was killed has left is removed, and it is said why nothing of it is used."""
    partial = partial_directory(new)
    partial.mkdir()
    (partial / "new-store.lock").touch()
    (partial / "store").mkdir()
    assert "begins again" in salvage(store, new).err
    assert not partial.exists()
    assert "must be an empty directory" in salvage(store, new).err


@pytest.mark.budget(1)
@pytest.mark.parametrize("left", [(), ("new-store.lock",), ("new-store.lock", "derived")])
def test_killed_when_it_was_in_place(store: Path, new: Path, left: tuple[str, ...]) -> None:
    """It is said that the new store is there, and what else is."""
    assert salvage(store, new).status == Exit.OK
    expected = tree(new)
    partial = partial_directory(new)
    partial.mkdir()
    for name in left:
        (partial / name).mkdir() if name == "derived" else (partial / name).touch()
    again = salvage(store, new)
    assert again.status == Exit.USAGE
    assert f"has left {partial}: remove that; next: rmqtool verify {new}" in again.err.replace("\n  ", " ")
    assert tree(new) == expected
    shutil.rmtree(partial)
    assert "has left" not in salvage(store, new).err


@pytest.mark.budget(1)
@pytest.mark.parametrize("way", ["all", "some", "none"])
def test_copies(store: Path, new: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """The log is the same whether the system copies it, a part of what it is asked for, or nothing."""
    copy = os.copy_file_range

    def copy_some(source: int, target: int, count: int, start: int, to: int) -> int:
        if way == "none" or count < 200:
            raise OSError(errno.EXDEV, "between file systems")
        return copy(source, target, count if way == "all" else count // 2, start, to)

    monkeypatch.setattr(os, "copy_file_range", copy_some)
    assert salvage(store, new).status == Exit.OK
    assert tree(new / LOG) == tree(store / LOG)


@pytest.mark.budget(1)
@pytest.mark.parametrize("options", [(), ("--topic", "orders")])
def test_rate_limit(store: Path, new: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]) -> None:
    """It counts for all readings: when messages are looked for, copied, and derived from."""
    spent = []
    monkeypatch.setattr("rmqtool.base.files.RateLimit.spend", lambda self, size: spent.append(size))
    assert salvage(store, new, "--limit-rate", "1GiB", *options).status == Exit.OK
    assert sum(spent) > (3 if options else 2) * sum(len(data) for data in tree(store / LOG).values())


@pytest.mark.slow
def test_jobs(store: Path, new: Path, tmp_path: Path) -> None:
    """Several processes find the same, pages that cannot be read included."""
    damage(store)
    files = sorted((store / LOG).iterdir())
    found = []
    for jobs in ("1", "3"):
        with bad_sectors(files[1], 1000):
            found.append(salvage(store, new, "--json", "--dry-run", "--jobs", jobs).document)
    assert found[0] == found[1]
    assert {left["reason"] for left in found[0]["result"]["left_behind"]} == {"damaged", "unreadable"}
    assert salvage(store, new, "--jobs", "3").status == Exit.FINDINGS
    assert salvage(store, tmp_path / "other").status == Exit.FINDINGS
    assert whole_tree(new) == whole_tree(tmp_path / "other")


def test_directory_of_others(store: Path, new: Path) -> None:
    """What is in the way and not left from a run of ours stays, and so does that of a run that goes on."""
    partial = partial_directory(new)
    (partial / "theirs").mkdir(parents=True)
    assert salvage(store, new).status == Exit.USAGE
    assert (partial / "theirs").is_dir()
    shutil.rmtree(partial)
    with NewStore(new).making():
        assert salvage(store, new).status == Exit.USAGE
        assert partial.is_dir()
    assert not partial.exists()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_file_beside_the_log_that_cannot_be_written(
    store: Path, new: Path, error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends the run: it was not in the source that something could not be read."""

    def fail(path: Path, to: Path) -> None:
        raise OSError(error, os.strerror(error), str(to))

    monkeypatch.setattr(new_store, "copy_file", fail)
    found = salvage(store, new)
    assert found.status == Exit.FAILED
    assert f"cannot be written: {os.strerror(error).lower()}" in found.err
    assert os.listdir(new.parent) == ["store"]


def test_what_is_done_is_on_the_disk(store: Path, new: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is there before anything else is, and both directories of each new name are synced in the end."""
    recorder = Recorder(SYSTEM)
    monkeypatch.setattr(new_store, "SYSTEM", recorder)
    assert salvage(store, new).status == Exit.OK
    calls, partial = recorder.calls, str(partial_directory(new))
    assert calls[:3] == [
        ("make_directory", (partial,)),
        ("sync", (partial,)),
        ("make_directory", (f"{partial}/store",)),
    ]
    renames = [(number, *arguments) for number, (name, arguments) in enumerate(calls) if name == "rename"]
    assert renames
    for number, *paths in renames:
        for path in paths:
            assert ("sync", (os.path.dirname(path),)) in calls[number:]


@pytest.mark.slow
def test_killed_anywhere(store: Path, new: Path) -> None:
    """There is no new store, or a complete one; the next run makes it, and leaves nothing else behind."""
    damage(store)
    salvage(store, new)
    expected = whole_tree(new)
    shutil.rmtree(new)
    ends = []
    with killed_at_a_call("salvage", store, "--output", new) as run_until:
        for number in range(0, 1000, 5):
            ends.append(run_until(number))
            if new.exists():
                assert whole_tree(new) == expected, number
                shutil.rmtree(new)
            if ends[-1] != 9:
                break
            if number % 10 == 0:
                assert salvage(store, new).status == Exit.FINDINGS
                assert whole_tree(new) == expected
                assert set(os.listdir(new.parent)) == {"store", "new"}
                shutil.rmtree(new)
    assert ends[-1] == Exit.FINDINGS
    assert len(ends) > 10


@pytest.mark.one_in(9)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["4.4.0-clean", "4.9.7-trimmed", "5.3.3-clean", "5.5.0-killed"])
def test_golden_stores(name: str, golden_store: GoldenStore, tmp_path: Path) -> None:
    """A store of a real broker, damaged in three ways: verify finds nothing wrong but what is lost."""
    root = copied(golden_store(name), tmp_path / "store")
    for number, change in enumerate(DAMAGE):
        change(sorted((root / LOG).iterdir())[number])
    found = rmqtool("salvage", root, golden_store(name), "--output", tmp_path / "both", "--json")
    assert found.document["result"]["gaps"] == []
    assert tree(tmp_path / "both" / "consumequeue").keys() <= tree(root / "consumequeue").keys()
    assert rmqtool("verify", tmp_path / "both", "--json").document["result"]["verdict"] == "clean"
    alone = rmqtool("salvage", root, "--output", tmp_path / "alone", "--json")
    assert alone.status == Exit.FINDINGS
    is_end = len(list((root / LOG).iterdir())) == len(DAMAGE)  # what is lost after the last message leaves no gap
    assert alone.document["result"]["gap_count"] == len(DAMAGE) - is_end
    found = rmqtool("verify", tmp_path / "alone", "--json")
    assert found.document["result"]["start"]["messages_lost"] == 0
    assert [each for each in found.document["findings"] if each["severity"] == "error"] == []


def test_raw_of_a_store_without_sizes(store: Path, new: Path, tmp_path: Path) -> None:
    """A loose file needs broker.conf for the size of files; what it has is found."""
    (conf := tmp_path / "broker.conf").write_text(f"mappedFileSizeCommitLog={FILE_SIZE}\n")
    file = store / LOG / f"{FILE_SIZE:020d}"
    found = rmqtool("salvage", "--raw", file, "--broker-conf", conf, "--output", new, "--dry-run", "--json")
    assert found.document["result"]["commit_log"]["min_offset"] == FILE_SIZE


@pytest.mark.slow
def test_a_copy_beside_a_store_whose_log_is_elsewhere(tmp_path: Path, new: Path) -> None:
    """The log paths of broker.conf are those of the first: the copy's own log fills what it has lost."""
    first, copy, place = small_store(tmp_path / "store", checked_log(40)), tmp_path / "copy", tmp_path / "disk"
    copied(first, copy)
    shutil.move(first / LOG, place)
    (place / f"{FILE_SIZE:020d}").write_bytes(bytes(FILE_SIZE))
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathCommitLog={place}\nmappedFileSizeCommitLog={FILE_SIZE}\n")
    with unchanged(place), unchanged(copy):
        found = rmqtool("salvage", first, copy, "--broker-conf", conf, "--output", new, "--json")
    assert (found.status, found.document["result"]["commit_log"]["messages"]) == (Exit.OK, 40)
    stores = f"a={first}", f"b={copy}"
    exported = rmqtool("export", *stores, "--broker-conf", conf, "--output", tmp_path / "rows", "--json")
    assert exported.document["result"]["rows"] == 24 + 40


@pytest.mark.slow
def test_a_log_in_several_places(tmp_path: Path, new: Path) -> None:
    """All of them are read, and none of them takes the new store; without the settings it is said what is missing."""
    store, places = small_store(tmp_path / "store", checked_log(40)), [tmp_path / "one", tmp_path / "two"]
    for place in places:
        place.mkdir()
    for number, path in enumerate(sorted((store / LOG).iterdir())):
        shutil.move(path, places[number % 2] / path.name)
    (store / LOG).rmdir()
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathCommitLog={places[0]},{places[1]}\nmappedFileSizeCommitLog={FILE_SIZE}\n")
    inside = salvage(store, places[1] / "new", "--broker-conf", conf)
    assert (inside.status, "must not be inside a source" in inside.err) == (Exit.USAGE, True)
    without = salvage(store, new)
    assert (without.status, "give it with --broker-conf" in without.err) == (Exit.FINDINGS, True)
    alone = salvage(places[0], new)
    assert alone.status == Exit.NOT_A_STORE
    assert "that file with --broker-conf: there are log files here" in alone.err
    with unchanged(places[0]), unchanged(places[1]):
        assert salvage(store, new, "--broker-conf", conf).status == Exit.OK
    assert rmqtool("verify", new).status == Exit.OK
    assert rmqtool("diff", store, new, "--broker-conf", conf).status == Exit.OK
    (new / LOG / f"{FILE_SIZE:020d}").write_bytes(bytes(FILE_SIZE))
    assert rmqtool("diff", store, new, "--broker-conf", conf).status == Exit.FINDINGS


@pytest.mark.slow
def test_sizes_of_a_source_that_cannot_be_read_as_a_whole(golden_store: GoldenStore, new: Path, tmp_path: Path) -> None:
    """What can be read of it shows the sizes of files, and the delays: no broker starts on queue files of others."""
    source = copied(golden_store("5.3.3-shop"), tmp_path / "source")
    shutil.rmtree(source / "index")
    (source / "index").touch()
    found = salvage(source, new, "--broker-version", "5.3.3")
    assert found.status == Exit.LOSSY
    assert "not copied: consumequeue: of " in found.out
    assert {path.stat().st_size for path in (new / "consumequeue").rglob("*") if path.is_file()} == {600}
    verified = rmqtool("verify", new, "--broker-version", "5.3.3", "--json").document
    assert (verified["result"]["verdict"], verified["exit"]["code"]) == ("clean", Exit.OK)
