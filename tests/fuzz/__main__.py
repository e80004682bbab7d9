"""Fuzz every target, or those that are named, on all cores: `python -m tests.fuzz [--seconds N] [NAME...]`.

Inputs that lead somewhere new are kept outside of the checkout, a few hundred for each target; what fails is left
there, too, with the command that runs it again.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.fuzz.harness import MEMORY
from tests.fuzz.targets import TARGETS
from tests.trust import results

SEED = 1
_CORPUS = Path(tempfile.gettempdir()) / f"rmqtool-fuzz-{os.getuid()}"
_KEPT = 300
_MOST_MIB = 2048
_LONGEST_S = 30
_ROUND_S, _ROUND_RUNS = 1200, 500_000
"""So long one process runs: atheris itself keeps some KiB of each run of ours, which without it keeps nothing."""
_DONE = re.compile(r"Done (\d+) runs? in (\d+) second")
_STATUS = re.compile(r"#(\d+)\s.*?cov: (\d+)")
_FOUND = re.compile(r"Test unit written to (\S+)")


def corpus_of(name: str, base: Path) -> Path:
    """The folder of a target's inputs, with its seeds; of what earlier runs have kept only the smallest."""
    folder = base / name
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(folder.iterdir(), key=lambda path: path.stat().st_size)[_KEPT:]:
        path.unlink()
    for seed in TARGETS[name].seeds():
        (folder / hashlib.sha1(seed, usedforsecurity=False).hexdigest()).write_bytes(seed)
    return folder


def fuzz(name: str, seconds: int, base: Path) -> dict[str, Any]:
    """Run one target, in rounds that go on from what earlier ones have kept; its figures, and the input that fails."""
    begin, runs, coverage, found, number = time.monotonic(), 0, 0, None, 0
    while found is None and (left := round(seconds - (time.monotonic() - begin))) > 0:
        more, coverage, found = _round(name, min(left, _ROUND_S), base, SEED + number)
        runs, number = runs + more, number + 1
        print(f"{name}: {runs} runs after {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    lasted = round(time.monotonic() - begin)
    return {"target": name, "runs": runs, "seconds": lasted, "coverage": coverage, "found": found}


def _round(name: str, seconds: int, base: Path, seed: int) -> tuple[int, int, str | None]:
    """What one process has done: runs, branches, and the input that fails."""
    command = [sys.executable, "-m", "tests.fuzz.one", name, f"-max_total_time={seconds}", f"-seed={seed}"]
    command += [f"-rss_limit_mb={_MOST_MIB}", f"-timeout={_LONGEST_S}", f"-report_slow_units={_LONGEST_S}"]
    command += [f"-runs={_ROUND_RUNS}", f"-artifact_prefix={base}/{name}-"]
    command.append(str(corpus_of(name, base)))
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as own:  # libFuzzer ends without cleaning
        variables = {**os.environ, "TMPDIR": own}
        run = subprocess.run(command, check=False, capture_output=True, text=True, errors="replace", env=variables)
    (base / f"{name}.log").write_text(run.stderr + run.stdout, encoding="utf-8")
    statuses = _STATUS.findall(run.stderr)
    done, found = _DONE.search(run.stderr), _FOUND.search(run.stderr)
    runs, coverage = (int(number) for number in statuses[-1]) if statuses else (0, 0)
    if run.returncode and not found:
        sys.exit(f"{name}: it has ended with {run.returncode}, see {base}/{name}.log")
    return int(done[1]) if done else runs, coverage, found[1] if found else None


def main() -> int:
    """Fuzz; print and with `--record` keep the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("names", nargs="*", choices=[[], *TARGETS], default=[])
    parser.add_argument("--seconds", type=int, default=3600)
    parser.add_argument("--corpus", type=Path, default=_CORPUS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="targets at a time (default: cores)")
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    begin, rows = time.monotonic(), []
    with ThreadPoolExecutor(given.jobs) as pool:
        for row in pool.map(lambda name: fuzz(name, given.seconds, given.corpus), given.names or TARGETS):
            name = row["target"]
            rows.append(row)
            end = f"fails: python -m tests.fuzz.one {name} {row['found']}" if row["found"] else "nothing found"
            print(f"{name:11} {row['runs']:10} runs, {row['seconds']} s, {row['coverage']} branches: {end}", flush=True)
    found = any(row["found"] for row in rows)
    if given.record and not found:
        command = f"make fuzz FUZZ_SECONDS={given.seconds}"
        results.record("fuzz", command, time.monotonic() - begin, str(SEED), rows)
    return int(found)


if __name__ == "__main__":
    sys.exit(main())
