"""A store on a file system that is mounted read-only: every command that reads works, and nothing is changed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.running import environment
from tests.unchanged import unchanged
from tests.verify.damages import DAMAGES
from tests.verify.small_store import small_store

# In a mount namespace of its own, so that the mount is gone with the process; 99 when it can be written to.
MOUNTED = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" || exit 98; touch "$0/x" 2>&- && exit 99; exec "$@"'
NOT_MOUNTED, WRITABLE = 98, 99


def may_mount() -> bool:
    """Whether this process may make a mount namespace."""
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(not may_mount(), reason="mounts need root and unshare")


def rmqtool_on_read_only(store: Path, command: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a command on a store that is mounted read-only."""
    program = [sys.executable, "-m", "rmqtool", command, str(store), *options]
    with unchanged(store):
        result = subprocess.run(
            ["unshare", "--mount", "sh", "-c", MOUNTED, str(store), *program],
            capture_output=True, text=True, check=False, env=environment(),
        )  # fmt: skip
    if result.returncode == NOT_MOUNTED:
        pytest.skip(f"cannot mount: {result.stderr.strip()}")
    assert result.returncode != WRITABLE
    return result


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return small_store(tmp_path / "store")


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_verify(jobs: str, store: Path) -> None:
    """A healthy store is clean there, a damaged one is not."""
    result = rmqtool_on_read_only(store, "verify", "--json", "-j", jobs)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["result"]["verdict"] == "clean"
    DAMAGES["body"].apply(store)
    result = rmqtool_on_read_only(store, "verify", "--json", "-j", jobs)
    assert result.returncode == 1, result.stderr
    assert json.loads(result.stdout)["result"]["verdict"] == "corrupt"


@pytest.mark.one_in(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("inspect", ["--scan"]),
        ("query", ["--topic", "orders", "--queue", "0", "--queue-offset", "0"]),
        ("clean", ["--dry-run"]),
        ("pending", ["--list"]),
        ("report", ["--output", "report.html"]),
        ("bundle", ["--output", "case.tar.gz"]),
        ("rebuild-cq", ["--dry-run"]),
        ("rebuild-index", ["--dry-run"]),
    ],
)
def test_others(command: str, options: list[str], store: Path) -> None:
    """Overview, queries, plans, and a page outside of it."""
    options = [str(store.parent / each) if "." in each else each for each in options]
    result = rmqtool_on_read_only(store, command, "--json", *options)
    assert result.returncode == 0, result.stdout + result.stderr
