"""Many queues: what whole commands take above the log alone, and a rebuild of queues that are missing."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.commands import Cost, Row, Table, cpu_seconds, inspect, run_command
from tests.benchmarks.derived import make_derived
from tests.benchmarks.logs import make_log
from tests.benchmarks.messages import KINDS

MANY, HALF, FEW = "D", "D-half", "D-quarter"
"""Logs of 40,000, 20,000 and 10,000 queues, with as many messages."""


def verify(store: Path) -> Cost:
    """Verify log, queues and index."""
    return run_command("verify", store)


def verify_log(store: Path) -> Cost:
    """Verify the log alone."""
    return run_command("verify", store, "--only", "commitlog.body-crc,commitlog.torn")


def rebuild(store: Path) -> Cost:
    """Rebuild all queues in a store beside `store` that has none."""
    empty = store.with_name(f"{store.name}-without-queues")
    shutil.rmtree(empty, ignore_errors=True)
    empty.mkdir()
    try:
        (empty / "commitlog").symlink_to((store / "commitlog").resolve())
        shutil.copy(store / "checkpoint", empty)
        conf = empty / "broker.conf"  # of a broker that sets nothing, so that the size of files is known
        conf.touch()
        return run_command("rebuild-cq", empty, "--broker-version", "5.3.3", "--broker-conf", conf, "--yes")
    finally:
        shutil.rmtree(empty)


def _cpu_above(costs: Sequence[Cost]) -> float:
    return costs[0].cpu_seconds - costs[1].cpu_seconds


def _kib_per_queue(costs: Sequence[Cost]) -> float:
    return (costs[0].peak - costs[1].peak) / (KINDS[MANY].queues - KINDS[FEW].queues)


def _wall_per_cpu(costs: Sequence[Cost]) -> float:
    return costs[0].idle / costs[0].cpu_seconds


_ROWS = (
    Row("verify: the log alone, CPU s", ((verify_log, MANY),), cpu_seconds),
    Row("verify: above the log, CPU s", ((verify, MANY), (verify_log, MANY)), _cpu_above, 6.0),
    Row("inspect: CPU s", ((inspect, MANY),), cpu_seconds, 2.5),
    Row("verify: KiB for each more queue", ((verify, MANY), (verify, FEW)), _kib_per_queue, 1.0),
    Row("inspect: KiB for each more queue", ((inspect, MANY), (inspect, FEW)), _kib_per_queue, 1.0),
    Row("rebuild-cq of 20,000 queues: CPU s", ((rebuild, HALF),), cpu_seconds),
    Row("rebuild-cq of 20,000 queues: wall / CPU", ((rebuild, HALF),), _wall_per_cpu, 2.0),
)


def _make(directory: Path, kind: str, size: int) -> Path:
    return make_derived(make_log(directory / kind, kind, size, size))


MANY_QUEUES = Table(
    "many queues",
    f"{KINDS[MANY].queues:,} in a log of 256 MiB; whole commands, their start included",
    _ROWS,
    _make,
)
"""Whole commands with 40,000 queues, their start included, and a rebuild of 20,000 that are missing."""
