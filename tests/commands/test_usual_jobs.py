"""How many processes work where nobody says."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.base import limits
from rmqtool.commands.shared_options import processes_for
from rmqtool.store import commit_log, lock
from rmqtool.store.commit_log import WORTH_A_PROCESS, log_bytes


@pytest.mark.parametrize(
    ("cores", "size", "held", "jobs", "processes"),
    [
        (4, 0, False, None, 1),
        (4, 2 * WORTH_A_PROCESS - 1, False, None, 1),
        (4, 2 * WORTH_A_PROCESS, False, None, 2),
        (4, 1 << 40, False, None, 4),
        (64, 1 << 40, False, None, 8),
        (4, 1 << 40, True, None, 1),
        (4, 0, True, 3, 3),
    ],
)
def test_processes(
    monkeypatch: pytest.MonkeyPatch, cores: int, size: int, held: bool, jobs: int | None, processes: int
) -> None:
    """As many as the log is worth, and the machine has; not beside a broker, but as somebody says."""
    monkeypatch.setattr(limits, "usable_cores", lambda: cores)
    monkeypatch.setattr(commit_log, "log_bytes", lambda _: size)
    monkeypatch.setattr(lock, "lock_holder", lambda _: lock.Holder(1, "lock") if held else None)
    assert processes_for(jobs, Path("store")) == processes


def test_bytes_of_a_log(tmp_path: Path) -> None:
    """What the disk holds of it: a hole is nothing, nor is a log that is not there."""
    log = tmp_path / "commitlog"
    assert log_bytes(tmp_path) == 0
    log.mkdir()
    (log / f"{0:020}").write_bytes(bytes(range(256)) * 64)
    with (log / f"{1 << 20:020}").open("wb") as file:
        file.truncate(1 << 20)
    assert 1 << 14 <= log_bytes(tmp_path) < 1 << 16
