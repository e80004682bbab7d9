"""`rmqtool repair --times`: a store that was copied without its times gets them back."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from tests.building import LOG, START_TIME
from tests.commands.running import rmqtool
from tests.unchanged import tree, unchanged
from tests.verify.small_store import small_store

_TEN_YEARS = "fileReservedTime=87600\n"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store whose files were all modified just now, as `cp -r` leaves them."""
    root = small_store(tmp_path / "store")
    for path in root.rglob("*"):
        os.utime(path)
    return root


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "broker.conf"
    path.write_text(_TEN_YEARS)
    return path


def times_of(store: Path, directory: str) -> list[float]:
    return [path.stat().st_mtime for path in sorted((store / directory).rglob("0*")) if path.is_file()]


def contents(store: Path) -> dict[str, bytes]:
    """The files of a store without the lock and the program's own."""
    return {name: data for name, data in tree(store).items() if name != "lock" and not name.startswith(".rmqtool/")}


def test_times_come_back(store: Path, conf: Path) -> None:
    """Those of the last messages of log and queue files, and nothing else changes; then there is nothing to do."""
    before = contents(store)
    with unchanged(store):
        planned = rmqtool("repair", store, "--times", "--broker-conf", conf, "--dry-run", "--json")
    assert (planned.document["result"]["state"], planned.status) == ("planned", Exit.OK)
    assert len(planned.document["result"]["changes"]) > 5
    assert rmqtool("repair", store, "--times", "--broker-conf", conf, "--yes").status == Exit.OK
    log = times_of(store, LOG)
    assert log == sorted(log)
    assert START_TIME / 1000 <= log[0] < log[-1] < START_TIME / 1000 + 60
    assert max(times_of(store, "consumequeue")) < START_TIME / 1000 + 60
    assert contents(store) == before
    again = rmqtool("repair", store, "--times", "--broker-conf", conf, "--yes", "--json")
    assert again.document["result"]["state"] == "nothing"


def test_undo_puts_them_back(store: Path, conf: Path) -> None:
    """All but those of files that were written to since, and only while no repair came after it."""
    before = times_of(store, LOG)
    assert rmqtool("repair", store, "--times", "--broker-conf", conf, "--yes").status == Exit.OK
    changed = times_of(store, LOG)
    last = max((store / LOG).iterdir())
    os.utime(last)
    with unchanged(store):
        assert rmqtool("undo", store, "--dry-run").status == Exit.OK
    assert "1 file changed since" in rmqtool("undo", store, "--yes").out
    assert times_of(store, LOG)[:-1] == before[:-1] != changed[:-1]
    assert "nothing to undo" in rmqtool("undo", store, "--yes").out
    assert rmqtool("verify", store, "--json").document["result"]["verdict"] == "clean"


def test_a_repair_after_it_is_taken_back_first(store: Path, conf: Path) -> None:
    rmqtool("repair", store, "--times", "--broker-conf", conf, "--yes")
    assert rmqtool("cut", store, "--at", "last-2", "--yes").status == Exit.OK
    assert "(cut)" in rmqtool("undo", store, "--yes").out
    assert "the times of" in rmqtool("undo", store, "--yes").out


def test_files_that_would_be_deleted_keep_their_times(store: Path) -> None:
    """Messages of years ago are older than fileReservedTime: the log keeps its times, but for the last file."""
    now = time.time()
    done = rmqtool("repair", store, "--times", "--yes")
    assert done.status == Exit.OK
    assert "keep their times" in done.err
    *others, last = times_of(store, LOG)
    assert min(others) > now - 60
    assert last < now - 60


def test_a_store_with_its_times_has_nothing_to_repair(store: Path, conf: Path) -> None:
    rmqtool("repair", store, "--times", "--broker-conf", conf, "--yes")
    with unchanged(store):
        assert "nothing to repair" in rmqtool("repair", store, "--times", "--broker-conf", conf, "--yes").out


def test_nothing_else_goes_with_it(store: Path) -> None:
    refused = rmqtool("repair", store, "--times", "--keep-offsets", "--yes")
    assert (refused.status, "--times does nothing else" in refused.err) == (Exit.USAGE, True)
    assert rmqtool("repair", store, "--times").status == Exit.USAGE  # nobody can be asked
