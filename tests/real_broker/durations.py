"""How long starts take against what verify says: ``python -m tests.real_broker.durations [--cold] [VERSION ...]``.

A store of a given number of messages in log files of 256 MiB starts after a clean stop, after a crash, and after one
without a checkpoint, three times each: the medians of the wall time of its load, without that of an empty store. Is
only true of an idle machine. The log is in memory, unless the starts are cold: then verify measures the disk. With
queues in RocksDB (``--rocksdb``) the broker is killed, which loses their newest rows; else a store that was stopped
gets `abort`. CPU time goes to the standard error. Prints a row of docs/start.md for each release.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from tests.benchmarks.cold import drop
from tests.commands.running import rmqtool as run
from tests.real_broker.copies import ROCKSDB
from tests.real_broker.harness import Harness

_MESSAGES = 850_000  # 1 GiB
_TIMES = 3
_MEMORY_RATE = "100GiB"  # no start waits for such a disk
_SIZES = {
    "mappedFileSizeCommitLog": str(256 << 20),
    "mappedFileSizeConsumeQueue": "6000000",
    "maxHashSlotNum": "5000000",
    "maxIndexNum": "20000000",
}
_VERSIONS = ("4.9.7", "5.3.3", "5.5.0")


def _stopped(_: Path) -> None:
    """Leave a store as it was stopped."""


def _crashed(root: Path) -> None:
    (root / "abort").touch()


def _without_checkpoint(root: Path) -> None:
    _crashed(root)
    (root / "checkpoint").unlink()


_CASES: Mapping[str, Callable[[Path], None]] = {
    "after a clean stop": _stopped,
    "after a crash": _crashed,
    "without checkpoint": _without_checkpoint,
}


def linked(base: Path, root: Path) -> Path:
    """A copy of a store that shares the files of the log, into which a start does not write."""

    def link_or_copy(source: str, target: str) -> None:
        (os.link if "/commitlog/" in source else shutil.copy2)(source, target)

    shutil.copytree(base, root, copy_function=link_or_copy)
    return root


def measured(
    broker: Harness, base: Path, settings: dict[str, str], prepare: Callable[[Path], None], *, cold: bool = False
) -> float:
    """Wall time of a start, seconds: the median."""
    wall = []
    for _ in range(_TIMES):
        with TemporaryDirectory(prefix="rmqtool-start-", dir=base.parent) as scratch:
            root = linked(base, Path(scratch, "store"))
            prepare(root)
            if cold:
                drop(root)
            seconds = broker.duration(root, settings)
        print(f"{broker.version} {prepare.__name__}: {seconds}", file=sys.stderr, flush=True)
        wall.append(seconds["wall"])
    return median(wall)


def predicted(broker: Harness, base: Path, prepare: Callable[[Path], None], *, cold: bool = False) -> float:
    """What verify takes for most likely, seconds: between the bounds of half and double."""
    disk = () if cold else ("--disk-rate", _MEMORY_RATE)
    with TemporaryDirectory(prefix="rmqtool-start-", dir=base.parent) as scratch:
        root = linked(base, Path(scratch, "store"))
        prepare(root)
        start = run("verify", root, "--broker-version", broker.version, *disk, "--json").document["result"]["start"]
    duration = start["duration"]
    print(f"{broker.version} {prepare.__name__}: {duration}", file=sys.stderr, flush=True)
    return float(sum(step["seconds"] for step in duration["steps"]))


def main() -> None:
    """Measure the starts of each release."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*", default=_VERSIONS)
    parser.add_argument("--rocksdb", action="store_true")
    parser.add_argument("--cold", action="store_true", help="drop the store from the page cache before each start")
    parser.add_argument("--messages", type=int, default=_MESSAGES)
    parser.add_argument("--body", type=int, default=1000, help="size of a message's body")
    given = parser.parse_args()
    settings = {**_SIZES, "harnessBodySize": str(given.body), **(ROCKSDB if given.rocksdb else {})}
    print(f"| release | {' | predicted | '.join(_CASES)} | predicted |\n|---|{'---|' * 2 * len(_CASES)}")
    for version in given.versions:
        broker = Harness(version)
        with TemporaryDirectory(prefix="rmqtool-durations-") as directory:
            empty, base = Path(directory, "empty"), Path(directory, "base")
            for root in (empty, base):
                root.mkdir()
            (empty / "commitlog").mkdir()
            broker.fill(base, given.messages, settings)
            least, numbers = measured(broker, empty, settings, _stopped), list[str]()
            for prepare in _CASES.values():
                if given.rocksdb and prepare is _crashed:
                    shutil.rmtree(base)
                    base.mkdir()
                    broker.fill(base, given.messages, settings, killed=True)
                measured_s = measured(broker, base, settings, prepare, cold=given.cold)
                predicted_s = predicted(broker, base, prepare, cold=given.cold)
                numbers += [f"{measured_s - least:.1f}", f"{predicted_s:.1f}"]
        print(f"| {version}{', RocksDB' if given.rocksdb else ''} | {' | '.join(numbers)} |", flush=True)


if __name__ == "__main__":
    main()
