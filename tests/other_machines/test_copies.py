"""Copies of stores on other machines: made, brought up to date, checked, restored, and what goes wrong on the way."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from rmqtool.base.errors import Exit
from rmqtool.base.remote_files import RemoteSink, files_in, read_remote, write_remote
from rmqtool.base.remote_path import located
from rmqtool.copy import objects, remote_job, run
from rmqtool.copy.job import CopyJob, as_they_are
from rmqtool.copy.manifest import MANIFEST
from rmqtool.copy.objects import read_remote_manifest
from tests.building import LOG
from tests.commands.running import Result, rmqtool
from tests.conftest import GoldenStore
from tests.copies import contents, grown
from tests.export.killing import KilledError, killed_at
from tests.other_machines.conftest import Place, remote
from tests.other_machines.servers import s3_uri
from tests.sampling import one_in
from tests.unchanged import snapshot, unchanged
from tests.verify.small_store import FILE_SIZE, small_log, small_store

pytestmark = pytest.mark.slow

DAY_S = 86_400


@pytest.fixture(autouse=True)
def staging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where what still changes is put together; nothing is left there. Failed requests are repeated at once."""
    (staging := tmp_path / "staging").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(staging))
    monkeypatch.setattr(objects, "_PAUSE", 0)
    return staging


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return small_store(tmp_path / "store", small_log(70))


@pytest.fixture
def uri(s3: Place, tmp_path: Path) -> str:
    return s3.uri(f"copies/{tmp_path.name}")


def copy(store: Path, uri: str, *options: str | Path) -> Result:
    """Copy a store to there, and assert that it is as before."""
    with unchanged(store):
        return rmqtool("copy", store, "--output", uri, *options)


def restored(uri: str, to: Path, *options: str) -> dict[str, bytes]:
    """The files of a copy, restored."""
    done = rmqtool("copy", uri, "--output", to, "--yes", *options)
    assert done.status == Exit.OK, done.err
    return contents(to)


def check_nothing_else(uri: str) -> None:
    """Nothing is there that the manifest does not name."""
    manifest = read_remote_manifest(remote(uri))
    assert manifest
    expected = {file.object for file in manifest.files if file.object} | {MANIFEST}
    assert {name for name, _ in files_in(remote(uri))} == expected


def test_a_copy_there_and_back(place: Place, store: Path, tmp_path: Path, staging: Path) -> None:
    """Brought up to date, it reads only what has changed; restored, it is the store, with its times."""
    uri = place.uri(f"there/{tmp_path.name}")
    assert copy(store, uri).status == Exit.OK
    check_nothing_else(uri)
    grown(store, 90)
    done = copy(store, uri, "--update", "--json").document["result"]
    assert (done["mode"], done["proven"], done["files"]["same"] > 2) == ("update", True, True)
    check_nothing_else(uri)
    checked = rmqtool("copy", "--verify", uri, "--json")
    assert (checked.status, checked.document["result"]["differences"]) == (Exit.OK, [])
    assert restored(uri, tmp_path / "back") == contents(store)
    before, after = snapshot(store), snapshot(tmp_path / "back")
    assert all(after[name].mtime_ns == before[name].mtime_ns for name in contents(store))
    assert rmqtool("verify", tmp_path / "back").status == Exit.OK
    assert list(staging.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["4.9.7-killed", "5.3.3-killed", "5.5.0-killed", "5.3.3-shop", "5.5.0-trimmed", "more/5.5.0-rocksdb"]
)
def test_what_brokers_have_left_is_settled(golden_store: GoldenStore, uri: str, name: str, tmp_path: Path) -> None:
    """As in a copy on this machine; the source, to which links lead meanwhile, is as it was."""
    store = golden_store(name)
    done = copy(store, uri, "--json")
    assert (done.status, done.document["result"]["proven"]) == (Exit.OK, True)
    assert rmqtool("copy", store, "--output", tmp_path / "here").status == Exit.OK
    there, here = restored(uri, tmp_path / "back"), contents(tmp_path / "here")
    if "rocksdb" in name:  # its files have ids of their own
        there, here = ({key: data for key, data in files.items() if "rocks" not in key and "consumequeue" not in key}
                       for files in (there, here))  # fmt: skip
    assert there == here
    assert rmqtool("verify", tmp_path / "back").status == Exit.OK


def test_full_files_that_must_be_completed(store: Path, uri: str, tmp_path: Path) -> None:
    """Files to which links lead are replaced by others in the copy: the source's stay as they are."""
    queue = store / "consumequeue" / "orders" / "0"
    first = min(queue.iterdir())
    first.write_bytes(first.read_bytes()[:-20] + bytes(20))
    (store / "abort").touch()
    whole = (store / LOG / f"{FILE_SIZE * 2:020}").read_bytes()
    for number in range(3, 9):  # an end that is before files that are taken for full
        (store / LOG / f"{FILE_SIZE * number:020}").write_bytes(bytes(FILE_SIZE))
    (store / LOG / f"{FILE_SIZE * 2:020}").write_bytes(whole[:2000] + b"\1" * 100 + bytes(len(whole) - 2100))
    done = copy(store, uri, "--json")
    assert done.document["result"]["state"] == "done"
    back = restored(uri, tmp_path / "back")
    assert rmqtool("copy", store, "--output", tmp_path / "here").status == done.status
    assert back == contents(tmp_path / "here")


_STEPS = ("write_remote", "remove_remote", "_written")


@pytest.mark.parametrize("update", [False, True])
def test_killed_anywhere(s3: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, update: bool) -> None:
    """There is no copy, the one before or the new one, each of them whole; the next run goes on."""
    monkeypatch.setattr(objects, "_NOTED", 0)
    for number in one_in(5, range(200), f"copy there {update}"):
        uri, source = s3.uri(f"killed/{tmp_path.name}-{number}"), small_store(tmp_path / f"{number}", small_log(70))
        old = contents(source)
        if update:
            copy(source, uri)
            grown(source, 90)
        new = contents(source)
        with monkeypatch.context() as patched:
            left = killed_at(number, objects, _STEPS, patched)
            with suppress(KilledError):
                copy(source, uri, *(["--update"] if update else []))
        manifest = read_remote_manifest(remote(uri))
        if manifest:
            assert restored(uri, tmp_path / f"back-{number}") in (old, new)
        if left() >= 0:
            break
        again = copy(source, uri, *(["--update"] if manifest else []), "--json")
        assert again.status == Exit.OK
        noted = number > 2 * run._UPLOADS  # what is written and noted by then, of files that are sent at once
        assert update or not noted or manifest or again.document["result"]["files"]["went_on"]
        check_nothing_else(uri)
        assert restored(uri, tmp_path / f"again-{number}") == new
    assert number > 10


def failing(monkeypatch: pytest.MonkeyPatch, error: OSError, times: int) -> list[int]:
    """Let writing there fail so often, after some bytes; how often that is still to come."""
    left, write = [times], RemoteSink.write

    def written(sink: RemoteSink, data: Any) -> int:
        if left[0] > 0 and sink.size > 0:
            left[0] -= 1
            raise error
        return write(sink, data)

    monkeypatch.setattr(RemoteSink, "write", written)
    return left


def test_a_request_that_fails_once(store: Path, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The object is written again, as a whole."""
    with monkeypatch.context() as patched:
        left = failing(patched, OSError("AWS Error SLOW_DOWN"), 2)
        assert copy(store, uri).status == Exit.OK
    assert left == [0]
    assert restored(uri, tmp_path / "back") == contents(store)


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (OSError("AWS Error SLOW_DOWN"), "run it again when that machine answers: it continues"),
        (PermissionError("AWS Error ACCESS_DENIED"), "check the credentials and their permission to write"),
    ],
)
def test_requests_that_go_on_failing(
    store: Path, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, hint: str
) -> None:
    """That is said; an update that fails so leaves the earlier copy as it was."""
    copy(store, uri)
    before = contents(store)
    grown(store, 90)
    with monkeypatch.context() as patched:
        failing(patched, error, 10**6)
        failed = copy(store, uri, "--update")
    assert failed.status == Exit.FAILED
    assert failed.err == (
        f"the same command continues with what has been uploaded\nrmqtool: {remote(uri)}: cannot write: {error}\n"
        f"  {hint}\n"
    )
    assert restored(uri, tmp_path / "back") == before


def test_no_permission_and_no_bucket(denying: tuple[str, list[str]], store: Path, s3_place: str) -> None:
    """Each is said at once, and nothing is read of the store."""
    denied = copy(store, s3_uri(denying[0], "copy"))
    assert denied.status == Exit.FAILED
    assert denied.err.endswith("\n  check the credentials and their permission to read\n")
    assert "secret" not in denied.err
    missing = copy(store, s3_uri(s3_place, "copy").replace("@bucket/", "@buckett/"))
    assert missing.status == Exit.FAILED
    assert missing.err == "rmqtool: s3://buckett: no such bucket\n  check its name and the endpoint\n"


def test_a_bucket_that_goes(store: Path, s3_place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is written to."""
    from pyarrow.fs import S3FileSystem

    system = S3FileSystem(access_key="key", secret_key="secret", endpoint_override=s3_place, scheme="http",
                          region="us-east-1", allow_bucket_creation=True, allow_bucket_deletion=True)  # fmt: skip
    system.create_dir("passing")
    sent, send, is_gone = count(), objects._send, threading.Event()

    def sent_away(*arguments: Any) -> Any:
        if next(sent) == 3:
            while not is_gone.is_set():  # what others write meanwhile is in the way
                with suppress(OSError):
                    system.delete_dir("passing")
                    is_gone.set()
        return send(*arguments)

    monkeypatch.setattr(objects, "_send", sent_away)
    failed = copy(store, s3_uri(s3_place, "copy").replace("@bucket/", "@passing/"))
    assert failed.status == Exit.FAILED
    assert "cannot write: " in failed.err
    assert "bucket" in failed.err.lower()


@pytest.mark.parametrize("damage", ["content", "cut", "missing"])
def test_a_damaged_copy(store: Path, uri: str, tmp_path: Path, damage: str) -> None:
    """A check names the file, and a restore refuses it."""
    copy(store, uri)
    manifest = read_remote_manifest(remote(uri))
    assert manifest
    file = next(file for file in manifest.files if file.kind == "log" and file.object)
    path = remote(uri) / str(file.object)
    system, place = located(path)
    data = read_remote(path)
    if damage == "missing":
        system.delete_file(place)
    else:
        write_remote(path, data[:-1] if damage == "cut" else data[:-1] + b"!")
    checked = rmqtool("copy", "--verify", uri, "--json")
    problem = "content" if damage == "content" else "missing"
    assert checked.status == Exit.FINDINGS
    assert [(each["path"], each["problem"]) for each in checked.document["result"]["differences"]] == [
        (file.path, problem)
    ]
    refused = rmqtool("copy", uri, "--output", tmp_path / "back")
    assert (refused.status, file.path in refused.err) == (Exit.FAILED, True)
    assert not (tmp_path / "back").exists()


def test_a_wiped_store_does_not_wipe_its_backup(store: Path, uri: str, tmp_path: Path) -> None:
    """One whose log went on otherwise after a cut, and one without a log, are refused."""
    copy(store, uri)
    before = contents(store)
    last = max(path for path in (store / LOG).iterdir() if path.read_bytes().strip(b"\0"))
    data = bytearray(last.read_bytes())
    data[100] ^= 1
    last.write_bytes(data)
    assert copy(store, uri, "--update").status == Exit.FAILED
    for path in (store / LOG).iterdir():
        path.unlink()
    assert copy(store, uri, "--update", "--prune").status == Exit.FAILED
    assert restored(uri, tmp_path / "back") == before


def test_what_the_cleaner_has_deleted_stays_unless_pruned(store: Path, uri: str, tmp_path: Path) -> None:
    """Without --prune a copy is an archive; with it, it has what the store has."""
    copy(store, uri)
    oldest = min((store / LOG).iterdir())
    oldest.unlink()
    kept = copy(store, uri, "--update", "--json").document["result"]
    assert kept["min_offset"] == int(oldest.name)
    assert f"{LOG}/{oldest.name}" in restored(uri, tmp_path / "archive")
    pruned = copy(store, uri, "--update", "--prune", "--json").document["result"]
    assert pruned["min_offset"] == int(oldest.name) + FILE_SIZE
    check_nothing_else(uri)
    assert restored(uri, tmp_path / "back") == contents(store)


def test_what_is_deleted_meanwhile(store: Path, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of the log that goes after it was copied: the copy begins with it or after it, and has no gap."""
    oldest, settle = min((store / LOG).iterdir()), CopyJob.settle

    def deleted(*arguments: Any) -> Any:
        oldest.unlink(missing_ok=True)
        return settle(*arguments)

    monkeypatch.setattr(CopyJob, "settle", deleted)
    (store / "abort").touch()
    assert rmqtool("copy", store, "--output", uri).status == Exit.OK
    back = restored(uri, tmp_path / "back")
    assert max(name for name in back if name.startswith(LOG)) == f"{LOG}/{max(os.listdir(store / LOG))}"
    assert rmqtool("verify", tmp_path / "back").status == Exit.OK


def test_objects_that_go_while_it_runs(store: Path, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No manifest names what is not there."""
    describe = as_they_are

    def removed(*arguments: Any) -> Any:
        system, place = located(remote(uri))
        system.delete_dir(f"{place}/{objects._OBJECTS}")
        return describe(*arguments)

    monkeypatch.setattr("rmqtool.copy.remote_job.as_they_are", removed)
    failed = copy(store, uri)
    assert (failed.status, "objects of this run are gone" in failed.err) == (Exit.FAILED, True)
    assert read_remote_manifest(remote(uri)) is None


def test_two_runs_at_once(store: Path, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The later one says so, and leaves the copy of the other alone."""
    describe = as_they_are

    def overtaken(*arguments: Any) -> Any:
        monkeypatch.setattr("rmqtool.copy.remote_job.as_they_are", describe)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # as on another machine
        assert copy(store, uri).status == Exit.OK
        return describe(*arguments)

    monkeypatch.setattr("rmqtool.copy.remote_job.as_they_are", overtaken)
    second = rmqtool("copy", store, "--output", uri)
    assert (second.status, "another run" in second.err) == (Exit.FAILED, True)
    assert restored(uri, tmp_path / "back") == contents(store)


def test_an_interrupted_restore_goes_on(store: Path, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has fetched is not fetched again."""
    copy(store, uri)
    with monkeypatch.context() as patched:
        killed_at(5, remote_job, ("new_file",), patched)
        with suppress(KilledError):
            rmqtool("copy", uri, "--output", tmp_path / "back")
    done = rmqtool("copy", uri, "--output", tmp_path / "back", "--json").document["result"]
    assert done["files"]["went_on"] == 5
    assert contents(tmp_path / "back") == contents(store)


def test_a_restore_asks_about_retention(store: Path, uri: str, tmp_path: Path) -> None:
    """As one from this machine; a slave's store has no name of a broker in it."""
    for path in (store / LOG).iterdir():
        os.utime(path, (time.time() - 4 * DAY_S,) * 2)
    (store / "brokerIdentity").write_text("a#b#1")
    copy(store, uri)
    asked = rmqtool("copy", uri, "--output", tmp_path / "back")
    assert (asked.status, "fileReservedTime" in asked.err) == (Exit.USAGE, True)
    back = restored(uri, tmp_path / "slave", "--fresh-times", "--as", "slave")
    assert "brokerIdentity" not in back
    assert min(path.stat().st_mtime for path in (tmp_path / "slave" / LOG).iterdir()) > time.time() - DAY_S


def test_what_is_raw_there(store: Path, uri: str, tmp_path: Path) -> None:
    """It is as after a crash when it comes back."""
    (store / "abort").touch()
    assert copy(store, uri, "--raw").status == Exit.OK
    restored(uri, tmp_path / "back")
    assert (tmp_path / "back" / "abort").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["{store}", "--output", "{copy}"], "there is a copy already"),
        (["{store}", "--output", "{new}", "--update"], "this is not a copy"),
        (["{store}", "--output", "{new}/../x"], "'..' is not allowed"),
        (["{copy}", "--output", "{new}"], "is restored to this one"),
        (["{copy}", "--output", "{here}", "--update"], "are for making a copy"),
        (["{new}", "--output", "{here}"], "not a copy"),
        (["--verify", "{new}"], "not a copy"),
        (["{store}", "--output", "{other}"], "must be empty"),
    ],
)
def test_what_is_refused(store: Path, uri: str, s3: Place, tmp_path: Path, words: list[str], said: str) -> None:
    """Each with a sentence."""
    new, other = s3.uri(f"new/{tmp_path.name}"), s3.uri(f"other/{tmp_path.name}")
    assert copy(store, uri).status == Exit.OK
    write_remote(remote(other) / "file", b"content")
    names = {"store": store, "copy": uri, "new": new.partition("?")[0] if "/../" in words[-1] else new,
             "other": other, "here": tmp_path / "here"}  # fmt: skip
    refused = rmqtool("copy", *(word.format(**names) for word in words))
    assert (refused.status, said in refused.err) == (Exit.USAGE, True), refused.err
    assert not (tmp_path / "here").exists()


def test_a_path_out_of_the_copy(store: Path, uri: str, tmp_path: Path) -> None:
    """A manifest that somebody has changed writes nothing outside of the new store."""
    copy(store, uri)
    path = remote(uri) / MANIFEST
    write_remote(path, read_remote(path).replace(b'"config/topics.json"', b'"../../../topics.json"'))
    refused = rmqtool("copy", uri, "--output", tmp_path / "back")
    assert (refused.status, "outside" in refused.err) == (Exit.FAILED, True)


def test_a_dry_run_writes_nothing(store: Path, uri: str) -> None:
    planned = copy(store, uri, "--dry-run", "--json").document["result"]
    assert (planned["state"], planned["needed_bytes"] > 0) == ("planned", True)
    assert list(files_in(remote(uri))) == []


def test_what_may_not_be_deleted_stays(store: Path, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy is done without that."""
    copy(store, uri)
    grown(store, 90)

    def refused(*_: Any) -> None:
        raise PermissionError("AWS Error ACCESS_DENIED")

    with monkeypatch.context() as patched:
        patched.setattr(objects, "remove_remote", refused)
        done = copy(store, uri, "--update")
    assert (done.status, "cannot be deleted: AWS Error ACCESS_DENIED" in done.err) == (Exit.OK, True)
    assert restored(uri, tmp_path / "back") == contents(store)
