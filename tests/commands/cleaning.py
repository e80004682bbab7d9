"""What the tests of `rmqtool clean` that delete share."""

from __future__ import annotations

from pathlib import Path

from tests.commands.running import rmqtool

OPTIONS = ("--now", "2026-11-25T04:00:00Z", "--time-zone", "UTC", "--disk-used-percent", "50")


def files(store: Path) -> set[str]:
    """The paths of all files of a store."""
    return {str(path.relative_to(store)) for path in store.rglob("*") if path.is_file()}


def planned(store: Path, *options: str) -> set[str]:
    """The files that a dry run names."""
    (first,) = rmqtool("clean", store, "--dry-run", "--json", *OPTIONS, *options).document["result"]["passes"]
    return {file["file"] for file in first["commit_log"]} | {*first["consume_queues"], *first["index"]}
