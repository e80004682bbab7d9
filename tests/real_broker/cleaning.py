"""Random stores, settings and disk levels for the releases' own cleaner, and what rmqtool predicts for each.

``python -m tests.real_broker.cleaning [N]`` compares N scenarios of each release.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rmqtool.base.times import parse_zone
from rmqtool.broker.cleaner import Cleaner, Rules
from rmqtool.broker.trigger import Disk, Disks, local_time
from rmqtool.clean.plan import Facts, cleaner_of, take_snapshot
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.retention import settings_of
from rmqtool.rules.versions import SEVERAL_LOG_PATHS, STORE_CREATES_DIRECTORIES, Version, parse_version
from rmqtool.store.store import open_store
from tests.copies import copied
from tests.golden import stores
from tests.real_broker.harness import GEOMETRY, VERSIONS, Harness

HOUR = 3_600_000
_MARGIN = 600_000  # no file's age is so near to its limit that the time the run takes could matter, ms
_DISK_SIZE = 48 << 20
_BASES = ("clean", "trimmed")
_LEVELS = (20, 40, 60, 74.4, 75.6, 80, 84.4, 85.6, 88, 89.4, 90.6, 96)
_NOT_SET = "24"


@dataclass
class Scenario:
    """A prepared store below `source` and how the cleaner is to run on it."""

    name: str
    source: Path
    zone: str
    settings: dict[str, str] = field(default_factory=dict)
    jvm_levels: dict[str, float] = field(default_factory=dict)  # name -> percent
    log_paths: str = "{first}/commitlog"
    first_level: float = 0
    second_level: float = 0
    manual: bool = False
    hold_first: bool = False
    without_queues: bool = False
    runs: int = 1

    def for_java(self, leveled: bool) -> dict[str, Any]:
        """As `Cleaner.java` reads it."""
        return {
            "source": str(self.source),
            "zone": f"GMT{self.zone}",
            "settings": {"deleteCommitLogFilesInterval": "0", "deleteConsumeQueueFilesInterval": "0", **self.settings},
            **{name: str(percent / 100) for name, percent in self.jvm_levels.items()},
            "log_paths": self.log_paths,
            "first_level": self.first_level if leveled else 0,
            "second_level": self.second_level if leveled else 0,
            "manual": self.manual,
            "hold_first": self.hold_first,
            "without_queues": self.without_queues,
            "runs": self.runs,
        }


def prepare(version_text: str, number: int, into: Path, now: int) -> Scenario:
    """Scenario `number` of a version: the same for the same number, ages relative to `now`, epoch ms."""
    chance = random.Random(f"{version_text}/{number}")
    version = parse_version(version_text)
    source = into / f"{version_text}-{number}"
    base = stores.unpack(f"{version_text}-{chance.choice(_BASES)}", source)
    base.rename(source / "first")
    (source / "second").mkdir()
    zone = f"{chance.choice('+-')}{chance.randrange(12):02}:{chance.choice(('00', '30', '45'))}"
    found = Scenario(f"{version_text}/{number}", source, zone)
    _choose_settings(found, chance, version, local_time(now, parse_zone(zone)).hour)
    found.first_level, found.second_level = chance.choice(_LEVELS), chance.choice(_LEVELS)
    found.manual, found.hold_first = chance.random() < 0.15, chance.random() < 0.12
    found.without_queues = version < STORE_CREATES_DIRECTORIES and chance.random() < 0.15
    found.runs = chance.randint(1, 4)
    reserved = settings_of(found.settings, {}, version).reserved_ms
    _choose_files(found, chance, version, reserved, now)
    return found


def _choose_settings(found: Scenario, chance: random.Random, version: Version, hour: int) -> None:
    settings = found.settings
    later = (hour + 3) % 24
    due = (str(hour), f"{hour:02}", f"{later};{hour:02};x", f"{later};{hour};;", f"+{hour}", f"0;{later};{hour}")
    odd = (f"{later}; {hour}", f"{hour} ", f" {hour}", f"{later:02};24", _NOT_SET, "", ";", f";{hour}")
    settings["deleteWhen"] = chance.choice(due if chance.random() < 0.6 else (str(later), *odd))
    settings["fileReservedTime"] = chance.choice(["1", "2", "24", "48", "72", "72 ", "0", "-1", "many"])
    for name, values in {
        "diskMaxUsedSpaceRatio": ("75", "75", "60", "5", "88", "92", "99", " 50"),
        "cleanFileForciblyEnable": ("true", "TRUE", "false", "true ", "yes"),
        "deleteFileBatchMax": ("1", "2", "3", "10", "0", "-3", "2 "),
        "diskSpaceWarningLevelRatio": ("90", "95", "50", "20", "80", "80 "),
        "diskSpaceCleanForciblyRatio": ("85", "95", "45", "10", "70"),
        "replicasPerDiskPartition": ("1", "1", "1", "2", "10", "30", "80", "0"),
        "logicalDiskSpaceCleanForciblyThreshold": ("0.8", "0.1", "0.5 ", "x"),
    }.items():
        if chance.random() < 0.5:
            settings[name] = chance.choice(values)
    if version < Version(5, 0, 0) and chance.random() < 0.5:
        found.jvm_levels = {
            "diskSpaceWarningLevelRatio": chance.choice((95.0, 90.0, 80.0, 30.0)),
            "diskSpaceCleanForciblyRatio": chance.choice((95.0, 85.0, 70.0, 15.0)),
        }


def _choose_files(found: Scenario, chance: random.Random, version: Version, reserved: int, now: int) -> None:
    """Give the log files ages, take some of the first away, and spread the rest over several paths."""
    folder = found.source / "first" / "commitlog"
    files = sorted(folder.iterdir())
    for file in files[: min(chance.choice((0, 0, 1, 3)), len(files) - 1)]:
        file.unlink()
    files = sorted(folder.iterdir())
    old = chance.randrange(len(files) + 1)
    for number, file in enumerate(files):
        expired = number < old if chance.random() < 0.85 else chance.random() < 0.5
        distance = chance.randrange(_MARGIN, 90 * HOUR)
        mtime = now - reserved - distance if expired else now - reserved + distance
        mtime = chance.choice((0, now + 500 * HOUR)) if chance.random() < 0.04 else mtime
        os.utime(file, ns=(mtime * 1_000_000, mtime * 1_000_000))
    kind = chance.random()
    if kind < 0.25:
        copied(folder, found.source / "second" / "commitlog")
        shutil.rmtree(folder)
        found.log_paths = "{second}/commitlog"
    elif kind < 0.55 and version >= SEVERAL_LOG_PATHS:
        found.log_paths = "{first}/commitlog,{second}/commitlog"
        (found.source / "second" / "commitlog").mkdir()
        for file in files:
            if chance.random() < 0.5:
                shutil.move(file, found.source / "second" / "commitlog" / file.name)


def predict(found: Scenario, version_text: str, runs: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What rmqtool says of each run, at the time and with the disks that `runs`, the answer of Java, tells."""
    version = parse_version(version_text)
    first, second = found.source / "first", found.source / "second"
    paths = found.log_paths.format(first=first, second=second)
    conf = BrokerConf({"storePathCommitLog": paths, **found.settings})
    facts = take_snapshot(open_store(first, conf), version)
    conf_settings = {"deleteWhen": _NOT_SET, "diskMaxUsedSpaceRatio": "95", **GEOMETRY, **found.settings}
    levels = {name: str(percent) for name, percent in found.jvm_levels.items()}
    rules = Rules(
        settings_of(conf_settings, levels, version), version, parse_zone(found.zone), found.manual, found.hold_first
    )
    cleaner = cleaner_of(_on_disks(found, facts, runs[0]), rules)
    for run in runs:
        predicted = cleaner.run(run["begin"])
        yield {
            "files": _left(cleaner, first, first, found),
            "other_files": _left(cleaner, first, second, found),
            "min_offset": cleaner.log_files[0].start_offset if not _in_use(predicted) else predicted.log.min_offset,
            "queues": {
                (state.queue.topic, state.queue.queue_id): state.range.min_offset
                for state in cleaner.queues.states()
                if not found.without_queues
            },
        }


def _in_use(run: Any) -> bool:
    return any(fate.reason == "in-use" for fate in run.log.decisions)


def _on_disks(found: Scenario, facts: Facts, run: Mapping[str, Any]) -> Facts:
    """The facts with the disks and devices on which Java runs."""
    first, second = found.source / "first", found.source / "second"

    def on(path: Path) -> int:
        return 2 if path.is_relative_to(second) else 1

    def disk(path: Path) -> Disk:
        space = run["second" if on(path) == 2 else "first"]
        return Disk(path, on(path), space["total"], space["free"], space["usable"])

    queues = disk(first / "consumequeue")
    if found.without_queues:
        queues = replace(queues, missing=True)
    disks = Disks(
        [disk(path) for path in facts.snapshot.store.commit_log_directories], queues, facts.disks.major_file_size
    )
    log_files = [replace(log_file, device=on(log_file.file.path)) for log_file in facts.log_files]
    return replace(facts, disks=disks, log_files=log_files)


def _left(cleaner: Cleaner, root: Path, below: Path, found: Scenario) -> set[str]:
    paths = [log_file.file.path for log_file in cleaner.log_files] + [file.path for file in cleaner.index_files]
    if not found.without_queues:
        paths += [file.path for state in cleaner.queues.states() for file in state.queue.files.files]
    return {str(path.relative_to(below)) for path in paths if path.is_relative_to(below)}


def differences(found: Scenario, version: str, answer: Mapping[str, Any]) -> list[str]:
    """Where the prediction is not what the release did; none when they agree."""
    wrong = []
    for number, (run, predicted) in enumerate(
        zip(answer["runs"], predict(found, version, answer["runs"]), strict=True)
    ):
        queues = {(topic, queue): minimum for topic, queue, minimum in run["queues"]}
        done = {
            "files": set(run["files"]),
            "other_files": set(run["other_files"]),
            "min_offset": run["min_offset"],
            "queues": queues,
        }
        wrong += [
            f"{found.name} run {number} {name}: predicted {_short(predicted[name], done[name])}"
            for name in done
            if predicted[name] != done[name]
        ]
    return wrong


def _short(predicted: Any, done: Any) -> str:
    if isinstance(done, set):
        return f"too many {sorted(predicted - done)[:4]}, too few {sorted(done - predicted)[:4]}"
    if isinstance(done, dict):
        keys = sorted(key for key in predicted.keys() | done.keys() if predicted.get(key) != done.get(key))
        return ", ".join(f"{key}: {predicted.get(key)} for {done.get(key)}" for key in keys[:4])
    return f"{predicted} for {done}"


@contextmanager
def disks(scratch: Path) -> Iterator[bool]:
    """Two small disks below `scratch`/disks, `first` and `second`; whether they could be mounted."""
    with ExitStack() as stack:
        mounted = True
        for name in ("first", "second"):
            place = scratch / "disks" / name
            place.mkdir(parents=True)
            command = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_SIZE}", "tmpfs", str(place)]
            if subprocess.run(command, capture_output=True, check=False).returncode:
                mounted = False
            else:
                stack.callback(subprocess.run, ["umount", "-l", str(place)], check=False)
        yield mounted


@dataclass
class Outcome:
    """What the runs of one release came to; files by kind, and differences in words."""

    scenarios: int = 0
    runs: int = 0
    deleting_runs: int = 0
    gone: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        gone = ", ".join(f"{count} {kind}" for kind, count in sorted(self.gone.items()))
        agreed = self.runs - len({difference.split(" predicted ")[0] for difference in self.differences})
        return (
            f"{self.scenarios} scenarios, {self.runs} runs, {self.deleting_runs} delete ({gone}); "
            f"{agreed} of {self.runs} as predicted"
        )

    def count(self, scenario: Scenario, answer: Mapping[str, Any]) -> None:
        """Count what the release did in one scenario."""
        self.scenarios += 1
        left = _files_of(scenario)
        for run in answer["runs"]:
            now = set(run["files"]) | {f"second/{file}" for file in run["other_files"]}
            kinds = Counter(file.removeprefix("second/").partition("/")[0] for file in left - now)
            self.runs += 1
            self.deleting_runs += bool(kinds)
            self.gone += kinds
            left = now


def _files_of(scenario: Scenario) -> set[str]:
    found = set()
    for folder, prefix in ((scenario.source / "first", ""), (scenario.source / "second", "second/")):
        for part in ("commitlog", "index", *(() if scenario.without_queues else ("consumequeue", "batchconsumequeue"))):
            files = (path for path in (folder / part).rglob("*") if path.is_file())
            found |= {f"{prefix}{path.relative_to(folder)}" for path in files}
    return found


def compare(harness: Harness, numbers: range, scratch: Path) -> Outcome:
    """Run scenarios of one release in one JVM, and compare with what rmqtool predicts."""
    now = time.time_ns() // 1_000_000
    found = [prepare(harness.version, number, scratch, now) for number in numbers]
    with disks(scratch) as leveled:
        (scratch / "scenarios.json").write_text(json.dumps([scenario.for_java(leveled) for scenario in found]))
        answers = harness.clean(scratch)
    outcome = Outcome()
    for scenario, answer in zip(found, answers, strict=True):
        outcome.count(scenario, answer)
        outcome.differences += differences(scenario, harness.version, answer)
    return outcome


def main(arguments: Sequence[str]) -> int:
    """Compare so many scenarios of each release, by default 100; exit status 1 with a difference."""
    number = int(arguments[0]) if arguments else 100
    failed = False
    for version in VERSIONS:
        with TemporaryDirectory(prefix="rmqtool-cleaning-") as scratch:
            outcome = compare(Harness(version), range(number), Path(scratch))
        print(f"{version}: {outcome}", *outcome.differences, sep="\n  ", flush=True)
        failed = failed or bool(outcome.differences)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
