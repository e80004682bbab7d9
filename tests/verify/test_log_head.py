"""The first files of a log are gone: the cleaner's work or somebody else's."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from rmqtool.base.errors import Exit
from rmqtool.rules.broker_conf import BrokerConf
from tests.commands.running import rmqtool
from tests.golden import stores
from tests.verify.lost_parts import files_of
from tests.verify.verifying import codes_of, verify

CODE = "commitlog.head-missing"
MINUTE = 60


def without_first_files(store: Path, count: int, seconds: float) -> None:
    """Delete the first log files, so many seconds after the first message that is left was stored."""
    for path in files_of(store, "commitlog")[:count]:
        path.unlink()
    with files_of(store, "commitlog")[0].open("rb") as file:
        stored = int.from_bytes(file.read(64)[56:], "big") / 1000
    os.utime(store / "commitlog", (stored + seconds, stored + seconds))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["4.4.0-clean", "4.9.7-clean", "5.3.3-clean", "5.5.0-clean"])
@pytest.mark.parametrize("count", [1, 2, -1])
def test_deleted_minutes_after_they_were_written(name: str, count: int, tmp_path: Path) -> None:
    """No cleaner deletes that early: the first, the first two, all but the last."""
    store = stores.unpack(name, tmp_path)
    without_first_files(store, count if count > 0 else len(files_of(store, "commitlog")) - 1, 20 * MINUTE)
    outcome = verify(store)
    assert codes_of(outcome) == {CODE}
    assert outcome.verdict == "corrupt"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["4.9.7-clean", "5.5.0-clean"])
@pytest.mark.parametrize("count", [2, 5])
def test_what_the_cleaner_would_have_taken_along(name: str, count: int, tmp_path: Path) -> None:
    """However late they were deleted: queues and index still have files of their messages."""
    store = stores.unpack(name, tmp_path)
    without_first_files(store, count, 30 * 24 * 60 * MINUTE)
    (found,) = [finding for finding in verify(store).findings if finding.code == CODE]
    assert "which the cleaner would have deleted" in found.message
    (store / "abort").touch()  # a crash may have come between the two
    assert CODE not in codes_of(verify(store))


@pytest.mark.slow
def test_the_time_that_broker_conf_tells(tmp_path: Path) -> None:
    """Without it nobody knows how long files are kept."""
    store = stores.unpack("4.9.7-clean", tmp_path)
    without_first_files(store, 1, 50 * 60 * MINUTE)
    assert CODE not in codes_of(verify(store))
    assert CODE in codes_of(verify(store, conf=BrokerConf({"fileReservedTime": "72"})))
    assert CODE not in codes_of(verify(store, conf=BrokerConf({"fileReservedTime": "48"})))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in stores.names() if name.endswith("-trimmed")])
def test_what_the_cleaner_leaves(name: str, tmp_path: Path) -> None:
    """Real cleaners over aged files: nothing is to be seen of somebody else."""
    assert CODE not in codes_of(verify(stores.unpack(name, tmp_path)), info=True)


@pytest.mark.slow
def test_a_disk_that_is_nearly_full(tmp_path: Path) -> None:
    """The cleaner may have made room by deleting what had not expired."""
    store = stores.unpack("5.3.3-clean", tmp_path)
    without_first_files(store, 1, 20 * MINUTE)
    with patch("rmqtool.verify.queue_leftovers.shutil.disk_usage", return_value=SimpleNamespace(total=100, used=80)):
        assert CODE not in codes_of(verify(store))


@pytest.mark.slow
def test_messages_that_were_left_out(tmp_path: Path) -> None:
    """A store of chosen messages begins where they begin, however young they are."""
    source, new = stores.unpack("5.5.0-clean", tmp_path), tmp_path / "new"
    assert rmqtool("salvage", source, "--from-offset", "100000", "--output", new).status == Exit.OK
    without_first_files(new, 0, 20 * MINUTE)
    assert verify(new).verdict == "clean"
    shutil.rmtree(new / ".rmqtool")
    assert codes_of(verify(new)) == {CODE}
