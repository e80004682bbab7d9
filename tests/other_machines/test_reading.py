"""Commands that read give the same answers where a store lies on another machine."""

from __future__ import annotations

import errno
import json
import os
import re
import tempfile
from pathlib import Path, PosixPath
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from rmqtool.base.errors import Exit
from rmqtool.base.filesystems import file_system
from rmqtool.store import rocksdb as rocksdb_copy
from tests.commands.running import environment, finish, rmqtool, spawn
from tests.conftest import GoldenStore
from tests.copies import copied
from tests.other_machines.conftest import Place, kept, remote
from tests.verify.tiered_damages import expire
from tests.verify.timer_store import store_with_timers

pytestmark = pytest.mark.slow

OF_THIS_MACHINE = {"commitlog.sparse", "store.modification-times"}
"""What only the store's own machine shows."""


def shown(uri: str) -> str:
    """The store as output names it: without credentials and options."""
    return str(remote(uri))


def verified(path: Path | str, *options: str) -> dict[str, Any]:
    """The document of a verification, less what differs between machines."""
    document: dict[str, Any] = rmqtool("verify", str(path), "--json", *options).document
    return comparable(document)


def comparable(document: dict[str, Any]) -> dict[str, Any]:
    result = document["result"]
    result["checks"] = [check for check in result["checks"] if check["code"] not in OF_THIS_MACHINE]
    result["unproven"] = [text for text in result["unproven"] if "whether a broker runs" not in text]
    return document


def same_here(text: str, uri: str, store: Path) -> str:
    """What is said of a store at `uri`, as of `store`.

    Whether a broker runs is known only on the store's own machine.
    """
    text = text.replace(shown(uri), str(store)).replace('"running": null', '"running": false')
    text = text.replace('"last_exit": "unknown"', '"last_exit": "unclean"')
    text = re.sub(r"""(["']details["']: ){\s*["']problem["']: ["']remote["']\s*}""", r"\1{}", text)
    there = "the file abort is there: a broker runs on the store, or the last one was killed or crashed"
    return text.replace(there, "the last broker was killed or crashed: the file abort is there and no broker runs")


STORES = {"s3": "4.9.7-trimmed", "gs": "4.9.7-trimmed", "abfs": "4.9.7-trimmed", "hdfs": "4.4.0-killed"}
"""One store for each kind of server: a whole verification is hundreds of requests."""


@pytest.mark.one_in(9)
def test_a_verification_says_the_same(golden_store: GoldenStore, place: Place) -> None:
    """All of the document, and with two processes; that locks and times stay behind is said."""
    store = golden_store(STORES[place.kind])
    uri = kept(place, store)
    local = verified(store)
    document = rmqtool("verify", uri, "--json").document
    assert any("whether a broker runs" in text for text in document["result"]["unproven"])
    for there in (comparable(document), verified(uri, "-j", "2")):
        assert same_here(str(there), uri, store) == str(local)


@pytest.mark.one_in(9)
def test_inspect_shows_the_same(golden_store: GoldenStore, place: Place) -> None:
    """A whole store, with all records too, and each kind of place in it."""
    store = golden_store(STORES[place.kind])
    uri = kept(place, store)
    base, _, query = uri.partition("?")
    for options in (("--json",), ("--json", "--scan")):
        here, there = (rmqtool("inspect", str(path), *options) for path in (store, uri))
        assert '"running": null' in there.out
        assert same_here(there.out, uri, store) == here.out
    for path in ("commitlog", "consumequeue", "index", "config", "checkpoint"):
        here = rmqtool("inspect", store / path, "--json", "--limit", "100")
        there = rmqtool("inspect", f"{base}/{path}?{query}", "--json", "--limit", "100")
        assert (there.status, there.out) == (here.status, here.out), path


def test_a_query_finds_the_same(golden_store: GoldenStore, place: Place) -> None:
    """By key, by place in a queue with its trace, and what a group has committed."""
    store = golden_store(STORES[place.kind])
    uri = kept(place, store)
    records = rmqtool("inspect", store / "commitlog", "--json", "--reverse", "--limit", "100").lines
    record = next(record for record in records if record["kind"] == "message" and record["keys"])
    key, topic, queue = record["keys"][0], record["topic"], str(record["queue_id"])
    for arguments in (
        ("--key", key, "--topic", topic),
        ("--topic", topic, "--queue", queue, "--queue-offset", str(record["queue_offset"])),
        ("--offset", str(record["physical_offset"]), "--trace"),
    ):
        here, there = (rmqtool("query", str(path), *arguments, "--json") for path in (store, uri))
        assert here.status == there.status == Exit.OK
        assert [without_times(line) for line in there.lines] == [without_times(line) for line in here.lines]


def without_times(line: dict[str, Any]) -> dict[str, Any]:
    """A message of a query, its places less those that have times of files."""
    places = {name: place for name, place in line.get("places", {}).items() if name not in ("consumers", "retention")}
    return {**line, "places": places}


def test_an_empty_place_is_no_store(place: Place) -> None:
    for name in ("nothing", "nothing/below"):
        answer = rmqtool("verify", place.uri(name))
        assert answer.status == Exit.FAILED
        assert "no such file or directory" in answer.err


def test_a_file_is_no_store(place: Place, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    answer = rmqtool("verify", place.put(tmp_path / "file", "file"))
    assert (answer.status, "a file, not a directory" in answer.err) == (Exit.NOT_A_STORE, True)
    assert "secret" not in answer.err


def test_a_pattern_without_a_match_is_shown_without_the_secret(s3: Place, tmp_path: Path) -> None:
    answer = rmqtool("export", s3.uri("no-*/store"), "-o", tmp_path / "out", "--engine", "local")
    assert answer.status == Exit.FAILED
    assert answer.err == "rmqtool: s3://bucket/no-*/store: no directory matches this pattern\n"


@pytest.mark.parametrize("command", ["repair", "rebuild-cq", "rebuild-index", "clean", "undo", "pending", "report"])
def test_other_commands_refuse_a_uri(command: str, place: Place, tmp_path: Path) -> None:
    """In one sentence, before anything is asked of the server."""
    options = ("-o", str(tmp_path / "page")) if command == "report" else ()
    answer = rmqtool(command, place.uri("store"), *options)
    assert answer.status == Exit.USAGE
    assert f"{command} works on stores of this machine only" in answer.err


def test_a_log_there_is_not_followed(place: Place) -> None:
    answer = rmqtool("inspect", place.uri("store/commitlog"), "--follow")
    assert (answer.status, "--follow works only on stores of this machine" in answer.err) == (Exit.USAGE, True)


def test_files_without_directories_are_a_store(golden_store: GoldenStore, gs: Place) -> None:
    """As programs of Google's copy a directory: nothing is there but files that have its name before theirs."""
    store = golden_store("4.9.7-trimmed")
    path = remote(gs.uri("bare/store"))
    system, prefix = file_system(path.scheme, path.authority)
    for file in store.rglob("*"):
        if file.is_file():
            with system.open_output_stream(f"{prefix}{path.key}/{file.relative_to(store)}", compression=None) as target:
                target.write(file.read_bytes())
    here, there = (rmqtool("inspect", str(each), "--json") for each in (store, gs.uri("bare/store")))
    assert (there.status, same_here(there.out, gs.uri("bare/store"), store)) == (here.status, here.out)


def test_sql_reads_the_same_tables(golden_store: GoldenStore, s3: Place) -> None:
    store = golden_store("4.9.7-trimmed")
    uri = kept(s3, store)
    of_files = "select path, kind, size, start_offset from files order by path"
    tables = ("messages", "keys", "units", "queues", "groups", "topics", '"index"', "pending", "unread")
    for statement in (*(f"from {name} order by all" for name in tables), of_files):
        here, there = rmqtool("sql", store, statement), rmqtool("sql", uri, statement)
        assert (there.status, there.out) == (here.status, here.out), statement
        assert there.out.count("\n") > 1, statement


def test_queues_and_configuration_in_rocksdb(golden_store: GoldenStore, s3: Place, tmp_path: Path) -> None:
    """Their databases are copied while they are read, and nothing of the copies stays."""
    store = golden_store("more/5.5.0-rocksdb")
    uri = kept(s3, store)
    done = finish(spawn("verify", uri, "--json", "-j", "2", env=environment(TMPDIR=str(tmp_path))))
    assert done.status == Exit.OK
    assert [*tmp_path.iterdir()] == []
    assert str(comparable(done.document)).replace(shown(uri), str(store)) == str(verified(store))
    for command in (("inspect",), ("query", "--topic", "orders", "--queue", "0", "--queue-offset", "0"),
                    ("query", "--group", "billing")):  # fmt: skip
        here, there = (rmqtool(command[0], str(path), *command[1:], "--json") for path in (store, uri))
        assert (there.status, same_here(there.out, uri, store)) == (here.status, here.out)


def test_a_database_that_is_too_large_to_be_copied(
    golden_store: GoldenStore, s3: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands that need it end and say so; the log is still read."""
    uri = kept(s3, golden_store("more/5.5.0-rocksdb"))
    monkeypatch.setattr(rocksdb_copy, "MOST_COPIED", 4000)
    for command in (("verify",), ("query", "--topic", "orders", "--queue", "0", "--queue-offset", "0")):
        answer = rmqtool(command[0], uri, *command[1:])
        assert (answer.status, "where 3.91 KiB at most are copied to here" in answer.err) == (Exit.FAILED, True)
        assert "\n  copy the store to this machine, and name the copy\n" in answer.err
    assert rmqtool("query", uri, "--scan", "--topic", "orders").status == Exit.OK


def test_a_note_of_the_copies(golden_store: GoldenStore, s3: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """One for the first database and one for each large one, however often it is opened; none with --quiet."""
    uri = kept(s3, golden_store("more/5.5.0-rocksdb"))
    monkeypatch.setattr(rocksdb_copy, "_noted", set())
    [note] = [
        line for line in rmqtool("inspect", uri).err.splitlines() if line.startswith("RocksDB is read from a copy")
    ]
    assert re.fullmatch(rf".*: {shown(uri)}/\S+, [\d.]+ KiB, copied to {tempfile.gettempdir()} meanwhile", note)
    assert "RocksDB is read from a copy" not in rmqtool("inspect", uri).err
    for command, least, notes in ((("inspect", "-q"), 1 << 40, 0), (("verify",), 1, 5)):
        monkeypatch.setattr(rocksdb_copy, "_noted", set())
        monkeypatch.setattr(rocksdb_copy, "_WORTH_A_NOTE", least)
        assert rmqtool(*command, uri).err.count("RocksDB is read from a copy") == notes


@pytest.mark.parametrize("full", ["before", "meanwhile"])
def test_a_disk_without_room_for_the_copy(
    golden_store: GoldenStore, s3: Place, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    """The sentence says where, and what to do."""
    uri = kept(s3, golden_store("more/5.5.0-rocksdb"))
    if full == "before":
        monkeypatch.setattr("rmqtool.store.rocksdb.shutil.disk_usage", lambda _: SimpleNamespace(free=8000))
        why = f"would be copied to {tempfile.gettempdir()}, where 3.91 KiB at most may be used: half of what is free"
    else:
        monkeypatch.setattr(rocksdb_copy, "Path", Full)
        why = "no space left on device"
    answer = rmqtool("verify", uri)
    assert (answer.status, why in answer.err) == (Exit.FAILED, True)
    assert "\n  set TMPDIR to a directory with more space, or copy the store to this machine\n" in answer.err


class Full(PosixPath):
    """A path on a full disk."""

    def open(self, *_: object, **__: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_plan_to_take_out_the_timers_files(s3: Place, tmp_path: Path) -> None:
    """It is the same as for a store here."""
    store = store_with_timers(tmp_path / "store")
    (store / "config/timercheck").unlink()
    there = verified(s3.put(store, "timers/store"))
    assert there["result"]["plan"]["steps"]
    assert str(there).replace(shown(s3.uri("timers/store")), str(store)) == str(verified(store))


@pytest.mark.one_in(4)
def test_a_tier(golden_store: GoldenStore, place: Place, tmp_path: Path) -> None:
    """Of a store there or here: verified, and its messages found and exported, as where all is here."""
    store = copied(golden_store("more/5.3.3-tiered"), tmp_path / "store")
    expire(store)
    uri = place.put(store, f"tier-{place.kind}")
    base, _, query = uri.partition("?")
    tier = f"{base}/tiered{'?' if query else ''}{query}"
    here = rmqtool("query", store, "--tiered-path", store / "tiered", "--scan", "--json").lines
    for root in (store, uri):
        found = rmqtool("query", str(root), "--tiered-path", tier, "--scan", "--json").lines
        assert [_plain(each) for each in found] == [_plain(each) for each in here]
        verified = rmqtool("verify", str(root), "--tiered-path", tier, "--only", "tiered", "--json").document
        assert [each["code"] for each in verified["findings"] if each["severity"] != "info"] == []
        output = tmp_path / f"out-{len(str(root))}"
        assert rmqtool("export", str(root), "--tiered-path", tier, "-o", output, "--engine", "local").status == 0
        assert json.loads((output / "_manifest.json").read_bytes())["rows"] == 240


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    """A message without its file."""
    return {name: value for name, value in message.items() if name != "file"}
