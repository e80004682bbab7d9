"""Many log files with little in each: what whole commands take."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.commands import Cost, Row, Table, cpu_seconds, inspect, run_command
from tests.building import write_sparse_log

FILES = 1000
"""Log files of 1 GiB, with three messages and a blank in each, and a hole after them."""

_KIND = "files"


def _make(directory: Path, kind: str, _size: int) -> Path:
    store = directory / kind
    return store if store.exists() else write_sparse_log(store, FILES, 3)


def export(store: Path, *options: str) -> Cost:
    """Write all messages to a directory beside the store."""
    with tempfile.TemporaryDirectory(prefix="output-", dir=store.parent) as output:
        return run_command("export", store, "--engine", "local", "-o", Path(output) / "out", *options)


def _plan(store: Path) -> Cost:
    return export(store, "--dry-run")


def _write(store: Path) -> Cost:
    return export(store, "-j", "1")


def _ms_per_file(costs: Sequence[Cost]) -> float:
    return 1000 * costs[0].cpu_seconds / FILES


MANY_FILES = Table(
    "many files",
    f"{FILES:,} log files of 1 GiB with three messages in each; whole commands, their start included",
    (
        Row("inspect: CPU s", ((inspect, _KIND),), cpu_seconds, 1.0),
        Row("export --dry-run: CPU s", ((_plan, _KIND),), cpu_seconds, 2.0),
        Row("export: CPU ms for each file", ((_write, _KIND),), _ms_per_file, 1.0),
    ),
    _make,
)
"""What a store of many log files takes, and its goals."""
