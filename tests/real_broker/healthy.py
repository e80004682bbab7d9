"""No alarm where all is well: ``python -m tests.real_broker.healthy [--count N] [--seed S] [VERSION ...]``.

Fresh stores of a release, stopped or killed at any moment, copies of them, and stores that a broker runs on, with
copies that were taken meanwhile. `corrupt` is wrong about all of these; so is any finding above information about those
that were stopped.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.copies import copied
from tests.real_broker.harness import VERSIONS, Harness, HarnessError, scenarios
from tests.real_broker.loss_stores import fresh
from tests.verify.losses_facts import judged

_COUNT = 17  # of each release: 100 of six
_KILLED = ("killed", "light-killed")
_NOT_OF_A_BROKER = ("dledger", "extras", "compacted")  # another layout; timers of messages that no queue has
_REFUSED = {"start.refuses", "start.depends-on-release"}  # where a file of log or queue is empty, before 5.1.3
_KEYS_LOST = "start.keys-lost"  # a start deletes the newest index file, and scans the newest log files only
_RATE = 200  # messages per second of a live store
_LONGEST_S = 2.5
_TRIES = 4


@dataclass(frozen=True)
class Healthy:
    """What was verified, and what rmqtool says."""

    what: str
    stopped: bool
    verdict: str
    codes: list[str]

    @property
    def wrong(self) -> bool:
        """Whether it raises an alarm; not where the release refuses to start on what the kill left, or takes keys."""
        is_refused = any(code.endswith(".empty-file") for code in self.codes) and not _REFUSED.isdisjoint(self.codes)
        corrupt = self.verdict == "corrupt" and not is_refused and _KEYS_LOST not in self.codes
        return corrupt or self.verdict.startswith("error") or (self.stopped and bool(self.codes))


def run(version: str, count: int, seed: int, stopped: bool = True) -> Iterator[Healthy]:
    """So many stores of a release: those of brokers that were `stopped`, where wanted, then killed and running ones."""
    chance = random.Random(f"{version} {seed}")
    with TemporaryDirectory(prefix="rmqtool-healthy-") as directory:
        scratch = Path(directory)
        found = list(_stopped(version, scratch)) if stopped else []
        for number, (name, root) in enumerate(found[:count]):
            copied = chance.choice(COPIES) if number % 2 else None
            yield _judge(name, _copied(root, scratch / f"copy-{number}", copied), copied, stopped=True)
        for number in range(len(found), count):
            with TemporaryDirectory(dir=scratch) as own:
                if number % 3:
                    yield from _killed(version, Path(own), chance)
                else:
                    yield from _live(version, Path(own), chance)


def _stopped(version: str, scratch: Path) -> Iterator[tuple[str, Path]]:
    for source in fresh(version, scratch / "golden"):
        if source.older is not None:
            yield source.name, source.store
            yield f"{source.name}, older", source.older
    for scenario in scenarios(version):
        if scenario not in (*_KILLED, *_NOT_OF_A_BROKER):
            yield f"{version}-{scenario}", _written(version, scenario, scratch)


def _written(version: str, scenario: str, scratch: Path) -> Path:
    """On a busy machine a cleaner may not come to its end within its scenario: then again."""
    for number in range(_TRIES):
        root = scratch / f"{scenario}-{number}"
        root.mkdir()
        with suppress(HarnessError):
            Harness(version).write(root, scenario)
            return root
    raise HarnessError(f"{version} cannot write {scenario}")


def _killed(version: str, scratch: Path, chance: random.Random) -> Iterator[Healthy]:
    root = scratch / "store"
    root.mkdir()
    writing_s = chance.uniform(0, _LONGEST_S)
    scenario = chance.choice([name for name in scenarios(version) if name in _KILLED])
    Harness(version).write(root, scenario, writing_s)
    copied = chance.choice((None, *COPIES))
    kept = _copied(root, scratch / "copy", copied)
    yield _judge(f"{version}-{scenario} after {writing_s:.3f} s", kept, copied, stopped=False)


def _live(version: str, scratch: Path, chance: random.Random) -> Iterator[Healthy]:
    """Verified while the broker appends, and copies that were taken meanwhile."""
    root = scratch / "store"
    root.mkdir()
    with Harness(version).hold(root, _RATE):
        time.sleep(chance.uniform(0, _LONGEST_S))
        yield _judge(f"{version}, running", root, None, stopped=False)
        copied = chance.choice(COPIES)
        kept = _copied(root, scratch / "copy", copied)
    yield _judge(f"{version}, copied while it was running", kept, copied, stopped=False)


def _judge(what: str, root: Path, copied: Callable[[Path, Path], None] | None, stopped: bool) -> Healthy:
    name = f"{what}, by {copied.__name__}" if copied else what
    return Healthy(name, stopped, *judged(root))


def cp(source: Path, target: Path) -> None:
    """``cp -r``: every file has the time of the copy."""
    subprocess.run(["cp", "-r", str(source), str(target)], check=True)


def tar(source: Path, target: Path) -> None:
    """``tar``: times are kept, holes are filled."""
    archive = target.with_suffix(".tar")
    # 1: a file changed while it was read, as in a store that is in use
    done = subprocess.run(["tar", "-C", str(source), "-cf", str(archive), "."], capture_output=True, check=False)
    if done.returncode > 1:
        raise RuntimeError(done.stderr.decode())
    target.mkdir()
    subprocess.run(["tar", "-C", str(target), "-xf", str(archive)], check=True)


def rsync(source: Path, target: Path) -> None:
    """As rsync with ``-a --sparse`` copies: file by file, times kept."""
    copied(source, target)


COPIES: tuple[Callable[[Path, Path], None], ...] = (cp, tar, rsync)


def _copied(root: Path, target: Path, how: Callable[[Path, Path], None] | None) -> Path:
    if how is None:
        return root
    shutil.rmtree(target, ignore_errors=True)
    how(root, target)
    return target


def main(arguments: Sequence[str]) -> int:
    """Judge many, and print each alarm and the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*", default=VERSIONS)
    parser.add_argument("--count", type=int, default=_COUNT, help="stores of each version")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    failed = 0
    for version in options.versions:
        verdicts, wrong = Counter[str](), 0
        for healthy in run(version, options.count, options.seed):
            verdicts[healthy.verdict] += 1
            wrong += healthy.wrong
            if healthy.wrong:
                codes = ", ".join(healthy.codes)
                print(
                    f"WRONG {healthy.verdict} | {healthy.what} | {codes} | {_again(options.seed, version)}", flush=True
                )
        failed += wrong
        counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
        print(f"{version}: {wrong} of {verdicts.total()} wrong: {counts}", flush=True)
    return int(failed > 0)


def _again(seed: int, version: str) -> str:
    return f"python -m tests.real_broker.healthy --seed {seed} {version}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
