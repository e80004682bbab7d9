"""Predicted starts against real ones, on damaged copies of golden stores.

``python -m tests.real_broker.starts [--count N] [--seed S] [VERSION ...]`` judges many and reports each disagreement;
``--record`` keeps what the brokers did for the tests that run without Java.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.broker import recorded
from tests.broker.comparing import Disagreement, compare, files_of, predict
from tests.broker.damages import Case, damaged
from tests.real_broker.harness import VERSIONS, Harness

_SHOWN = 3  # disagreements of one store
BATCH = 40  # stores that one Java process judges


def judge(version: str, cases: Sequence[Case]) -> Iterator[tuple[dict[str, Any], list[Disagreement]]]:
    """Predict each start, then start the real store on the same files: what it did, and what was not predicted."""
    predictions = [predict(version, case.root) for case in cases]
    before = [files_of(case.root) for case in cases]
    answers = Harness(version).judge([case.root for case in cases])
    for case, prediction, files, answer in zip(cases, predictions, before, answers, strict=True):
        real = {**answer, "deleted": sorted(files - files_of(case.root))}
        yield real, list(compare(case.what, prediction, real))


def run(version: str, seeds: Sequence[int]) -> Iterator[tuple[dict[str, Any], list[Disagreement]]]:
    """Judge a damaged store for each seed."""
    for first in range(0, len(seeds), BATCH):
        with TemporaryDirectory(prefix="rmqtool-starts-") as scratch:
            chosen = seeds[first : first + BATCH]
            yield from judge(
                version, [damaged(recorded.name_of(version, seed), seed, Path(scratch)) for seed in chosen]
            )


def main(arguments: Sequence[str]) -> int:
    """Judge many, and print what disagrees and the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*", default=VERSIONS)
    parser.add_argument("--count", type=int, default=200, help="damaged stores of each version")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--record", action="store_true", help="keep what the brokers did")
    options = parser.parse_args(arguments)
    answers: recorded.Answers = {}
    failed = 0
    for version in options.versions:
        seeds = range(options.seed, options.seed + options.count)
        wrong = 0
        for seed, (real, found) in zip(seeds, run(version, seeds), strict=True):
            answers.setdefault(version, {})[str(seed)] = real
            wrong += bool(found)
            for one in found[:_SHOWN]:
                print(f"{one.what}\n    {one.field}: predicted {one.predicted}, real {one.real}", flush=True)
        failed += wrong
        print(f"{version}: {options.count - wrong} of {options.count} starts predicted", flush=True)
    if options.record:
        recorded.save(answers)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
