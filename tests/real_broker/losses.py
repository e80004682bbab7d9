"""Verdicts against what users lose: ``python -m tests.real_broker.losses [--count N] [--seed S] [VERSION ...]``.

Each case is a store with one to four random losses. The real broker says what its users have before and after; a
verdict that says `clean`, or `dirty` (fixed without loss), where they have less is wrong. ``--matrix`` does so with
every kind of file and everything that may happen to it, on the stores of tests/verify/loss_stores; with ``--record`` it
keeps what was lost for the tests that run without Java. Healthy stores are in `tests.real_broker.healthy`.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.real_broker.harness import VERSIONS, Harness, HarnessError
from tests.real_broker.loss_stores import Source, committed, fresh
from tests.verify import losses_recorded as recorded
from tests.verify.losses_facts import Facts, judged, lost, wrong
from tests.verify.losses_random import apply_some
from tests.verify.losses_together import UNSEEN

BATCH = 20  # stores that one Java process is asked about
_ONE_IN = 10  # cases that a rebuild follows
_COMMANDS = ("rebuild-cq", "rebuild-index")
_PROGRAM = "python -m tests.real_broker.losses"


@dataclass(frozen=True)
class Case:
    """A store that has lost something, and how it is made again."""

    name: str
    what: str
    again: str
    root: Path


@dataclass(frozen=True)
class Result:
    """What rmqtool says about a case, and what the broker's users have lost."""

    case: Case
    verdict: str
    codes: list[str]
    lost: dict[str, str]

    @property
    def wrong(self) -> bool:
        """Whether the verdict says that nothing is lost although something is."""
        return self.case.name not in UNSEEN and wrong(self.verdict, self.lost)

    def __str__(self) -> str:
        """One line."""
        codes = f" | above info: {', '.join(self.codes)}" if self.codes else ""
        differences = "; ".join(f"{area}: {text}" for area, text in self.lost.items())
        return f"{self.verdict} | {self.case.what} | lost: {differences}{codes} | {self.case.again}"


def results(version: str, source: Source, cases: Sequence[Case], facts: dict[str, Facts]) -> Iterator[Result]:
    """Hold the verdict on each case, all of one source, to what the broker says.

    What the users of the undamaged store have is in `facts`; with the first cases it is asked, too.
    """
    verdicts = [judged(case.root) for case in cases]
    roots = [case.root for case in cases]
    before, *surveys = _surveyed(version, source, roots, facts.get(source.name))
    facts[source.name] = before
    for case, (verdict, codes), after in zip(cases, verdicts, surveys, strict=True):
        yield Result(case, verdict, codes, lost(before, after))


def undamaged(version: str, source: Source) -> Facts:
    """What the users of the undamaged store have."""
    (facts,) = _surveyed(version, source, [], None)
    return facts


def _surveyed(version: str, source: Source, roots: Sequence[Path], known: Facts | None) -> list[Facts]:
    """What users have of the undamaged store, if that is not `known`, and of others, asked of one Java process."""
    asked = [(root, source.keys) for root in ([] if known else [source.store]) + [*roots]]
    found = Harness(version).survey_copies(asked, dict(source.settings))
    before, *after = [known, *found] if known else found
    if before["refuses"] is not None:  # on a very busy machine a start may take longer than Survey.java waits
        raise HarnessError(f"the broker does not start on the undamaged {source.name}: {before['refuses']}")
    return [before, *after]


def run_random(version: str, seeds: Iterable[int], found: Sequence[Source]) -> Iterator[Result]:
    """A case for each seed, on one of the stores."""
    facts: dict[str, Facts] = {}
    remaining = iter(seeds)
    while batch := list(islice(remaining, 2 * BATCH)):
        with TemporaryDirectory(prefix="rmqtool-losses-") as scratch:
            cases = [random_case(version, seed, found, Path(scratch)) for seed in batch]
            for source in found:
                chosen = [case for of, case in cases if of is source]
                if not chosen:
                    continue
                yield from results(version, source, chosen, facts)


def random_case(version: str, seed: int, found: Sequence[Source], scratch: Path) -> tuple[Source, Case]:
    """One of the stores with one to four losses; some are rebuilt afterwards."""
    chance = random.Random(f"{version} {seed}")
    source = chance.choice(found)
    root = scratch / str(seed)
    names = apply_some(source.store, source.older, root, chance, without=UNSEEN)
    if chance.randrange(_ONE_IN) == 0:
        names.append(rebuild(root))
    own = "" if len(found) > 1 else " --recorded"
    again = f"{_PROGRAM}{own} --count 1 --seed {seed} {version}"
    return source, Case(str(seed), f"{source.name}: {' + '.join(names)}", again, root)


def rebuild(root: Path) -> str:
    """What an operator may have tried before: queues and index made again, the replaced files thrown away."""
    program = [sys.executable, "-m", "rmqtool"]
    for command in _COMMANDS:
        subprocess.run([*program, command, str(root), "--yes"], capture_output=True, check=False)
        subprocess.run([*program, "undo", "--discard", str(root), "--yes"], capture_output=True, check=False)
    return "rebuilt"


def run_matrix(version: str, wanted: Iterable[str]) -> Iterator[Result]:
    """The rows, on the store of tests/verify/loss_stores; not those for which it has nothing to lose."""
    with TemporaryDirectory(prefix="rmqtool-losses-") as unpacked:
        source = committed(version, Path(unpacked))
        facts: dict[str, Facts] = {}
        remaining = iter(wanted)
        while batch := list(islice(remaining, BATCH)):
            with TemporaryDirectory(prefix="rmqtool-losses-") as scratch:
                roots = [Path(scratch, str(number)) for number in range(len(batch))]
                made = [_matrix_case(version, row, source, root) for row, root in zip(batch, roots, strict=True)]
                if cases := [case for case in made if case is not None]:
                    yield from results(version, source, cases, facts)


def _matrix_case(version: str, row: str, source: Source, root: Path) -> Case | None:
    names = recorded.make(row, source.store, source.older, root)
    again = f"{_PROGRAM} --matrix --row '{row}' {version}"
    return Case(row, f"{source.name}: {' + '.join(names)}", again, root) if names else None


def report(version: str, found: Iterable[Result]) -> list[Result]:
    """Print a line for each wrong one, and the counts."""
    kept, verdicts = [], Counter[str]()
    for result in found:
        kept.append(result)
        verdicts[f"{result.verdict} where {'users lose' if result.lost else 'nothing is lost'}"] += 1
        if result.wrong:
            print(f"WRONG {result}", flush=True)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    print(f"{version}: {sum(result.wrong for result in kept)} of {len(kept)} wrong: {counts}", flush=True)
    return kept


def main(arguments: Sequence[str]) -> int:
    """Judge many, print what is wrong, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*")
    parser.add_argument("--count", type=int, default=50, help="stores of each version")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--recorded", action="store_true", help="only the stores of tests/verify/loss_stores")
    parser.add_argument("--matrix", action="store_true", help="every kind of file and everything that may happen to it")
    parser.add_argument("--row", action="append", help="of the matrix only those that begin so")
    parser.add_argument("--record", action="store_true", help="keep what the matrix says")
    options = parser.parse_args(arguments)
    kept: list[Result] = []
    lost_rows: recorded.Lost = {}
    for version in options.versions or (recorded.STORES if options.matrix or options.recorded else VERSIONS):
        with TemporaryDirectory(prefix="rmqtool-losses-") as scratch:
            if options.matrix:
                found = run_matrix(version, _rows(options.row))
            else:
                seeds = range(options.seed, options.seed + options.count)
                directory = Path(scratch)
                stores = [committed(version, directory)] if options.recorded else fresh(version, directory)
                found = run_random(version, seeds, stores)
            of_version = report(version, found)
        lost_rows[version] = {result.case.name: result.lost for result in of_version}
        kept += of_version
    if options.matrix and options.record:
        recorded.update(lost_rows, whole=not options.row)
    return int(any(result.wrong for result in kept))


def _rows(beginnings: list[str] | None) -> list[str]:
    return [row for row in recorded.rows() if beginnings is None or row.startswith(tuple(beginnings))]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
