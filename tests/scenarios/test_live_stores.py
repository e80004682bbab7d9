"""A store that changes while it is read: messages are appended, files come and go."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from rmqtool.base.errors import Exit
from tests.building import LogBuilder, message
from tests.commands.running import ROOT, environment, finish, inspect, listing, rmqtool, spawn
from tests.store.other_process import JAVA, another_process

BODY = bytes(3000)
FILE_SIZE = 1 << 20


class Writer(threading.Thread):
    """Appends records to the last file of a log until it is told to stop, as a broker does."""

    def __init__(self, file: Path, start_offset: int, position: int, *, preallocated: bool) -> None:
        super().__init__()
        self._file = file
        self._start_offset = start_offset
        self._preallocated = preallocated
        self._stopped = threading.Event()
        self.position = position

    def run(self) -> None:
        with self._file.open("r+b") as file:
            file.seek(self.position)
            while not self._stopped.is_set():
                record = message(self._start_offset + self.position, body=BODY)
                if self._preallocated and self.position + len(record) > FILE_SIZE:
                    return
                file.write(record)
                file.flush()
                self.position += len(record)
                time.sleep(0.0002)

    def stop(self) -> None:
        self._stopped.set()
        self.join()


@pytest.mark.slow
@pytest.mark.parametrize("preallocated", [True, False])
@pytest.mark.parametrize("options", [["--json"], ["--json", "--limit", "300"]])
def test_messages_are_appended_while_they_are_listed(tmp_path: Path, options: list[str], preallocated: bool) -> None:
    """Every line is valid, what was there before is all listed, and nothing of the tail is called damage."""
    log = LogBuilder(file_size=FILE_SIZE).add_all([{"body": BODY}] * 500)
    before = len(log.offsets)
    store = log.write(tmp_path / "store")
    file = max((store / "commitlog").iterdir())
    position = len(log.files[-1])
    if not preallocated:
        os.truncate(file, position)
    (store / "lock").touch()
    writer = Writer(file, int(file.name), position, preallocated=preallocated)
    with another_process(store / "lock", JAVA):
        try:
            writer.start()
            process = spawn("inspect", store / "commitlog", *options, "--limit-rate", "8M")
            found = finish(process)
        finally:
            writer.stop()
    offsets = [line["physical_offset"] for line in map(json.loads, found.out.splitlines()) if line["kind"] == "message"]
    assert (found.status, found.err) == (Exit.OK, "")
    assert writer.position > position
    assert offsets[:before] == log.offsets[: len(offsets)]
    assert len(offsets) == 300 if "--limit" in options else len(offsets) >= before


def test_a_torn_tail_is_damage_only_without_a_broker(tmp_path: Path) -> None:
    """Half a record at the end is being written while a broker holds the lock, and is torn when none does."""
    log = LogBuilder().add_all([{}, {}])
    log.files[-1] += message(log.end, body=bytes(200))[:150]
    store = log.write(tmp_path / "store")
    (store / "lock").touch()
    assert listing(store).status == inspect(store, "--scan").status == Exit.LOSSY
    assert listing(store).of_kind("damage")[0]["reason"] == "torn"
    with another_process(store / "lock", JAVA) as pid:
        assert listing(store).status == inspect(store, "--scan").status == Exit.OK
        assert len(listing(store).lines) == 2
        broker = inspect(store, "--json").document["result"]["broker"]
        assert (broker["running"], broker["pid"], broker["last_exit"]) == (True, pid, "unknown")
        assert f"running, process {pid}" in inspect(store).out


@pytest.mark.slow
def test_files_that_vanish_while_they_are_listed(tmp_path: Path) -> None:
    """A file that the broker's cleaner deletes meanwhile ends the listing with an error that names it."""
    store = LogBuilder(file_size=FILE_SIZE).add_all([{"body": BODY}] * 2000).write(tmp_path / "store")
    files = sorted((store / "commitlog").iterdir())
    process = spawn("inspect", store / "commitlog", "--json", "--limit-rate", "1M", env=environment(), cwd=ROOT)
    assert process.stdout is not None
    process.stdout.readline()
    files[-1].unlink()  # which it comes to in 4 s
    found = finish(process)
    last = json.loads(found.out.splitlines()[-1])
    assert found.status == Exit.FAILED
    assert (last["kind"], last["error"], last["file"]) == ("error", "unreadable", str(files[-1]))
    assert found.err == ""


@pytest.mark.parametrize("command", [["inspect", "--scan"], ["query", "--scan", "--topic", "orders"]])
def test_a_record_that_is_read_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    """Its middle was not there yet when its end, and another after it, were: that is no damage, and it is found."""
    log = LogBuilder().add_all([{"topic": "orders", "body": b"b" * 50}] * 3)
    store = log.write(tmp_path / "store")
    file = store / "commitlog" / "00000000000000000000"
    whole = file.read_bytes()
    size = whole[log.offsets[1] : log.offsets[1] + 4]
    file.write_bytes(whole[: log.offsets[1]] + size + bytes(100) + whole[log.offsets[1] + 104 :])
    assert rmqtool(*command[:1], store, *command[1:]).status == Exit.LOSSY
    monkeypatch.setattr(
        "rmqtool.store.commit_log.time", SimpleNamespace(sleep=lambda _seconds: file.write_bytes(whole))
    )
    (store / "lock").touch()
    with another_process(store / "lock", JAVA):
        found = rmqtool(*command[:1], store, *command[1:], "--json")
    assert (found.status, found.err) == (Exit.OK, "")
    messages = found.document["result"]["scan"]["messages"] if command[0] == "inspect" else len(found.lines)
    assert messages == 3
