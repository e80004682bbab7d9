"""Repairs held to what users of RocketMQ have: ``python -m tests.real_broker.repairs [--count N] [VERSION ...]``.

Each case is a store with one to four random damages. `rmqtool repair` carries out the plan that verify prints; the real
broker says what its users have of the damaged store, and of the repaired one. A repair is wrong when

- a message that could be read before cannot be read after it;
- the broker refuses to start on the repaired store, and did not before, or the plan does not say what is left to do;
- users miss something, while the verdict afterwards is clean and the plan does not say what is lost;
- something stays that the plan did not speak of, or the plan ends without a word on what stays;
- a second repair finds more to do, or undo does not bring back every byte.

``--catalogue [FAULT ...]`` takes each fault of brokers instead, and ``--matrix [ROW ...]`` each loss of docs/verify.md.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.copies import copied
from tests.real_broker.harness import SETTINGS, SHOP_SETTINGS, VERSIONS
from tests.real_broker.judged_repairs import Case, became, judge, survey
from tests.real_broker.loss_stores import GOLDEN, Source, committed, fresh
from tests.real_broker.losses import undamaged
from tests.real_broker.repairs_of_faults import Judged, run_faults, run_matrix
from tests.repair.checked_repair import checked_repair
from tests.repair.known_faults_page import line_of
from tests.repair.known_faults_page import record as write_page
from tests.verify import losses_recorded as recorded
from tests.verify.losses_facts import Facts
from tests.verify.losses_random import apply_some
from tests.verify.losses_together import UNSEEN

BATCH = 10  # stores that one Java process is asked about
_PROGRAM = "python -m tests.real_broker.repairs"


def cases(version: str, seeds: Iterable[int], sources: Sequence[Source], scratch: Path) -> Iterator[Case]:
    """Damage stores, and repair copies of them."""
    for seed in seeds:
        chance = random.Random(f"{version} {seed}")
        source = chance.choice(sources)
        damaged, repaired = scratch / f"{seed}-damaged", scratch / f"{seed}-repaired"
        names = apply_some(source.store, source.older, damaged, chance, without=UNSEEN)
        conf = scratch / f"{seed}.conf"
        is_golden = source.name.endswith(GOLDEN)
        settings = {**SETTINGS, **({} if is_golden else SHOP_SETTINGS), **source.settings}
        conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
        copied(damaged, repaired)
        done = checked_repair(repaired, conf, version)
        yield Case(str(seed), f"{source.name}: {' + '.join(names)}", source, damaged, repaired, done)


def run(version: str, seeds: Iterable[int], sources: Sequence[Source]) -> Iterator[tuple[Case, list[str], str]]:
    """Each case with what is wrong with it, and a word on what became of it."""
    facts: dict[str, Facts] = {}
    remaining = iter(seeds)
    while batch := list(islice(remaining, BATCH)):
        with TemporaryDirectory(prefix="rmqtool-repairs-") as scratch:
            made = list(cases(version, batch, sources, Path(scratch)))
            for source in sources:
                chosen = [case for case in made if case.source is source]
                if not chosen:
                    continue
                if source.name not in facts:
                    facts[source.name] = undamaged(version, source)
                surveys = iter(
                    survey(version, source, [root for case in chosen for root in (case.damaged, case.repaired)])
                )
                for case in chosen:
                    before, after = next(surveys), next(surveys)
                    yield case, judge(case, facts[source.name], before, after), became(before, after)


def main(arguments: Sequence[str]) -> int:
    """Repair many, print what is wrong, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*")
    parser.add_argument("--count", type=int, default=34, help="stores of each version")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--recorded", action="store_true", help="only the stores of tests/verify/loss_stores")
    parser.add_argument("--catalogue", nargs="*", metavar="FAULT", help="each fault of brokers, or only these")
    parser.add_argument("--record", action="store_true", help="with --catalogue: write docs/faults.md")
    parser.add_argument("--matrix", nargs="*", metavar="ROW", help="each loss of docs/verify.md, or only these")
    options = parser.parse_args(arguments)
    if options.catalogue is not None:
        return _report_faults(run_faults(options.catalogue), record=options.record)
    versions = options.versions or (VERSIONS if options.matrix is None and not options.recorded else recorded.STORES)
    if options.matrix is not None:
        return max([_report_faults(run_matrix(version, options.matrix), record=False) for version in versions])
    return int(sum(_random(version, options) for version in versions) > 0)


def _random(version: str, options: argparse.Namespace) -> int:
    """How many of the randomly damaged stores of a release are repaired wrongly."""
    failed = 0
    with TemporaryDirectory(prefix="rmqtool-repairs-") as scratch:
        directory = Path(scratch)
        sources = [committed(version, directory)] if options.recorded else fresh(version, directory)
        counts: Counter[str] = Counter()
        for case, problems, what in run(version, range(options.seed, options.seed + options.count), sources):
            counts[f"{what}, {(case.repair.result or {}).get('verdict', 'error')}"] += 1
            failed += bool(problems)
            for problem in problems:
                own = " --recorded" if options.recorded else ""
                print(f"WRONG {case.what} | {problem} | {_PROGRAM}{own} --count 1 --seed {case.name} {version}",
                      flush=True)  # fmt: skip
    print(f"{version}: {', '.join(f'{count} {what}' for what, count in sorted(counts.items()))}; {failed} wrong",
          flush=True)  # fmt: skip
    return failed


def _report_faults(found: Iterable[Judged], *, record: bool) -> int:
    failed, lines = 0, []
    for each in found:
        failed += bool(each.problems)
        lines.append(line_of(each.row, each.repair, each.before, each.after))
        print(lines[-1].text, flush=True)
        for problem in each.problems:
            print(f"WRONG {each.row.fault} {each.row.name} | {problem}", flush=True)
    if record:
        write_page(lines)
    print(f"{failed} of {len(lines)} wrong")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
