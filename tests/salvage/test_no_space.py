"""A disk that becomes full while the new store is written: nothing is left there, and it is said."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqtool.base.errors import Exit
from rmqtool.salvage import write_log
from rmqtool.transaction.system import System
from tests.building import LogBuilder
from tests.commands.running import rmqtool
from tests.unchanged import unchanged


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", place], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("a small disk needs the right to mount one")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("is_direct", [False, True])
@pytest.mark.parametrize(
    "options",
    [(), ("--topic", "orders"), ("--from-offset", "1000000"), ("--topic", "orders", "--queue-offsets", "new")],
)
def test_a_disk_that_becomes_full(
    tmp_path: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], *, is_direct: bool
) -> None:
    """Others have written there since the space was checked."""
    chance, log = random.Random(4), LogBuilder(file_size=1 << 20)
    for number in range(400):
        log.add(topic="orders" if number % 4 else "payments", queue_offset=number, body=chance.randbytes(20_000))
    store = log.write(tmp_path / "store")
    checked = rmqtool("salvage", store, "--output", small_disk / "new", *options)
    assert (checked.status, "are needed" in checked.err) == (Exit.FAILED, True)
    monkeypatch.setattr(System, "free_bytes", lambda self, path: 1 << 40)
    monkeypatch.setattr(write_log, "exceeds_page_cache", lambda size: is_direct)
    with unchanged(store):
        found = rmqtool("salvage", store, "--output", small_disk / "new", *options)
    assert found.status == Exit.FAILED
    assert "no space left on device" in found.err
    assert "name a directory on another file system" in found.err
    assert [*small_disk.iterdir()] == []
