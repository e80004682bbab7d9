"""Compares rebuilds with those of RocketMQ itself: `python -m tests.benchmarks.java`.

Both derive the same files from the same log, page cache warm, and check all CRCs. Runs of both sides alternate, each
in a process of its own, whose start is not counted; the fastest of each side count. Targets are ratios: how many times
less CPU rmqtool takes, or wall time where it may use both cores. The exit status is 1 when one is missed.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rmqtool.rebuild.options import Part
from rmqtool.rules.versions import parse_version
from tests.benchmarks.cases import rebuild
from tests.benchmarks.logs import log_files, make_log, message_count
from tests.benchmarks.measure import Case, Run, run_once
from tests.benchmarks.messages import KINDS
from tests.real_broker.classes import class_path
from tests.real_broker.jvm import OPENED, QUIET_DISK
from tests.real_broker.tools import require_tools, tool

GIB = 1 << 30
RELEASES = ("5.3.3", "5.5.0")
_TIMEOUT_S = 600
_LOGBACK = Path(__file__).parents[1] / "real_broker" / "logback.xml"


@dataclass(frozen=True)
class Comparison:
    """What both sides derive, how RocketMQ is set up for it, and the least ratio.

    `jobs` above 1 compares wall times over as many log files.
    """

    name: str
    parts: tuple[Part, ...]
    least: float
    settings: dict[str, str] = field(default_factory=dict)
    jobs: int = 1


_MAPPED = {"putConsumeQueueDataByFileChannel": "false"}
_NO_INDEX = {"messageIndexEnable": "false"}

COMPARISONS = (
    Comparison("queues", ("queues",), 5, _NO_INDEX),
    Comparison("queues and index", ("queues", "index"), 4.5),
    Comparison("queues, mapped writes", ("queues",), 2.4, _NO_INDEX | _MAPPED),
    Comparison("queues and index, mapped writes", ("queues", "index"), 2.4, _MAPPED),
    Comparison("queues and index, 2 processes (wall)", ("queues", "index"), 7, jobs=2),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure everything, print the table; 1 when a target is missed."""
    options = _parse(arguments)
    require_tools()
    classes = class_path(options.release)
    met = True
    for kind in ("A", "B"):
        least, most = KINDS[kind].body_sizes
        print(f"{kind}: bodies of {least} to {most} bytes, RocketMQ {options.release}")
        print(f"  {'':40} {'Java s/GiB':>11} {'rmqtool':>8} {'ratio':>6}  target")
        for comparison in COMPARISONS:
            if options.only in comparison.name:
                met &= _compare(comparison, kind, classes, options)
    return 0 if met else 1


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.benchmarks.java", description=__doc__)
    default = Path(tempfile.gettempdir()) / "rmqtool-benchmarks"
    parser.add_argument("--release", choices=RELEASES, default=RELEASES[0], help="(default: %(default)s)")
    parser.add_argument("--dir", type=Path, default=default, help="where the logs are kept (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each side (default: %(default)s)")
    parser.add_argument("--only", default="", metavar="TEXT", help="comparisons with TEXT in their names")
    return parser.parse_args(arguments)


def _compare(comparison: Comparison, kind: str, classes: str, options: argparse.Namespace) -> bool:
    """Run both sides in turn, print a line; whether the target is met."""
    name = kind if comparison.jobs == 1 else f"{kind}{comparison.jobs}"
    store = make_log(options.dir / name, kind, comparison.jobs * GIB)
    version = parse_version(options.release)
    case = Case(comparison.name, partial(rebuild, comparison.parts, version=version, jobs=comparison.jobs))
    ours, theirs = [], []
    for _ in range(options.runs):
        theirs.append(_run_java(store, classes, comparison.settings))
        ours.append(run_once(case, store))
    if comparison.jobs == 1:
        java, python = min(run.cpu_seconds for run in theirs), min(run.cpu_seconds for run in ours)
    else:
        java, python = min(run.seconds for run in theirs), min(run.seconds for run in ours)
    ratio, gib = java / python, comparison.jobs
    missed = "" if ratio >= comparison.least else " MISSED"
    print(
        f"  {comparison.name:40} {java / gib:11.3f} {python / gib:8.3f} {ratio:6.2f}  >= {comparison.least:g}{missed}",
        flush=True,
    )
    return not missed


def _run_java(store: Path, classes: str, settings: dict[str, str]) -> Run:
    """Let RocketMQ derive all from the log of `store`, in a store of its own that has links to the log's files."""
    with tempfile.TemporaryDirectory(prefix="java-", dir=store.parent) as scratch:
        root = Path(scratch, "store")
        (root / "commitlog").mkdir(parents=True)
        for file in log_files(store):
            (root / "commitlog" / file.name).symlink_to(file.resolve())
        wanted = message_count(store)
        cpu, wall, units = _measure(Path(scratch), root, classes, settings, wanted)
        if units != wanted:
            raise ValueError(f"RocketMQ derived {units} units of {wanted} messages")
        shutil.rmtree(root)
        return Run(wall / 1e9, cpu / 1e9, 0)


def _measure(scratch: Path, root: Path, classes: str, settings: dict[str, str], messages: int) -> list[int]:
    file, answer = scratch / "store.properties", scratch / "answer"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
    command = [
        tool("java"),
        "-Xms2g",
        "-Xmx4g",
        "-XX:-UsePerfData",
        *OPENED,
        *QUIET_DISK,
        f"-Duser.home={scratch}",
        f"-Drocketmq.home.dir={scratch}",
        f"-Dlogback.configurationFile={_LOGBACK}",
        f"-Drmq.logback.configurationFile={_LOGBACK}",
        f"-Dharness.settings={file}",
        *("-cp", classes, "Speed", str(root), str(messages), str(answer)),
    ]
    done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"RocketMQ failed:\n{(done.stdout + done.stderr)[-4000:]}")
    return [int(number) for number in answer.read_text().split()]


if __name__ == "__main__":
    sys.exit(main())
