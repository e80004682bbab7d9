"""When one call is trusted to bring a whole file system to the disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqtool.transaction import system
from rmqtool.transaction.system import SYSTEM


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is written, and nothing is remembered: the disk may be busy with what others write."""
    monkeypatch.setattr(system, "_sync_file_system", lambda: lambda path: True)
    system._reports_errors.cache_clear()
    yield
    system._reports_errors.cache_clear()


LINE = "29 1 {device} / / rw,relatime shared:1 - {kind} /dev/vda rw\n"


@pytest.mark.parametrize(
    ("kind", "kernel", "trusted"),
    [
        ("ext4", (5, 8), True),
        ("xfs", (6, 1), True),
        ("ext4", (5, 7), False),  # syncfs does not tell of errors yet
        ("fuse.sshfs", (6, 1), False),
        ("overlay", (6, 1), False),
        ("nfs4", (6, 1), False),
    ],
)
def test_local_journalling_file_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, kernel: tuple[int, int], trusted: bool
) -> None:
    """Of a kernel that tells when a write has failed; all others are synced file by file."""
    device = os.lstat(tmp_path).st_dev
    mounts = tmp_path / "mounts"
    other = LINE.format(device="0:99", kind="ext4")
    mounts.write_text(other + LINE.format(device=f"{os.major(device)}:{os.minor(device)}", kind=kind))
    monkeypatch.setattr(system, "_MOUNTS", mounts)
    monkeypatch.setattr(system, "_kernel", lambda: kernel)
    assert SYSTEM.sync_all(str(tmp_path)) == trusted


def test_unknown_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A subvolume of btrfs has a device of its own, which the table of mounts does not tell."""
    mounts = tmp_path / "mounts"
    mounts.write_text(LINE.format(device="0:99", kind="btrfs"))
    monkeypatch.setattr(system, "_MOUNTS", mounts)
    assert not SYSTEM.sync_all(str(tmp_path))
