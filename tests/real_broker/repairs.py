"""Repairs held to what users of RocketMQ have: ``python -m tests.real_broker.repairs [--count N] [VERSION ...]``.

Each case is a store with one to four random damages. `rmqtool repair` carries out the plan that verify prints; the real
broker says what its users have of the damaged store, and of the repaired one. A repair is wrong when

- a message that could be read before cannot be read after it;
- the broker refuses to start on the repaired store, and did not before, or the plan does not say what is left to do;
- users miss something, while the verdict afterwards is clean and the plan does not say what is lost;
- a second repair finds more to do, or undo does not bring back every byte.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.real_broker.harness import SETTINGS, SHOP_SETTINGS, VERSIONS, Harness, HarnessError
from tests.real_broker.loss_stores import GOLDEN, Source, committed, fresh
from tests.real_broker.losses import undamaged
from tests.verify import losses_recorded as recorded
from tests.verify.losses import copy
from tests.verify.losses_facts import Facts, lost, readable
from tests.verify.losses_random import apply_some
from tests.verify.losses_together import UNSEEN

BATCH = 10  # stores that one Java process is asked about
_PROGRAM = "python -m tests.real_broker.repairs"


@dataclass(frozen=True)
class Case:
    """A damaged store, as it is and repaired, and what the repair said."""

    seed: int
    what: str
    source: Source
    damaged: Path
    repaired: Path
    said: list[dict[str, Any]]
    problems: list[str]


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
        copy(damaged, repaired)
        said, problems = repair(repaired, conf, version)
        yield Case(seed, f"{source.name}: {' + '.join(names)}", source, damaged, repaired, said, problems)


def repair(root: Path, conf: Path, version: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Repair, see that a second run has nothing to do and that undo brings all back, and repair again."""
    before, problems = _digest(root), []
    options = ("--yes", "--json", "--broker-conf", str(conf), "--broker-version", version)
    said = [_run("repair", str(root), *options)]
    if said[0].get("result") is None:
        problems.append(f"stopped: {said[0].get('error')}")
    elif said[0]["result"]["state"] == "done":
        again = _run("repair", str(root), *options)
        if again["result"] is None or again["result"]["state"] != "nothing":
            problems.append(f"a second repair: {again.get('error') or again['result']['changes']}")
        while _run("undo", str(root), "--yes", "--json")["result"]["state"] == "rolled_back":
            pass
        if _digest(root) != before:
            problems.append(f"undo changes {sorted(set(before.items()) ^ set(_digest(root).items()))[:3]}")
        said.append(_run("repair", str(root), *options))
    elif _digest(root) != before:
        problems.append("nothing to repair, yet the store has changed")
    return said, problems


def judge(case: Case, undamaged_facts: Facts, before: Facts, after: Facts) -> list[str]:
    """What is wrong with a repair."""
    problems = list(case.problems)
    result = case.said[-1].get("result")
    if result is None:
        return problems
    gone = _served(before) & _served(undamaged_facts) - _served(after)
    if gone and after["refuses"] is None:
        problems.append(f"{len(gone)} messages were readable before: {sorted(gone)[:2]}")
    first = case.said[0]["result"]
    told = [*_told(first["plan"]), *_told(result["plan"]), *(change["lost"] for change in first["changes"])]
    if after["refuses"] is not None:
        if before["refuses"] is None or not any(told):
            problems.append(f"refuses: {after['refuses'][:200]}")
    elif (differences := lost(undamaged_facts, after)) and result["verdict"] == "clean" and not any(told):
        problems.append(f"clean, but lost: {differences}")
    return problems


def _served(facts: Facts) -> set[tuple[Any, ...]]:
    """The messages of each queue, whatever their offsets there, and however often."""
    if facts["refuses"] is not None:
        return set()
    return {(queue, *message) for queue, _, *message in readable(facts["queues"])}


def _told(plan: dict[str, Any]) -> list[str]:
    return [*plan["remaining"], *(text for step in plan["steps"] for text in step["lost"])]


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
                    yield case, judge(case, facts[source.name], before, after), _became(before, after)


def survey(version: str, source: Source, roots: Sequence[Path]) -> list[Facts]:
    """What the users of each store have; a process that dies of one store takes no others along."""
    try:
        return Harness(version).survey([(root, source.keys) for root in roots], dict(source.settings))
    except HarnessError as error:
        if len(roots) == 1:
            return [{"refuses": f"the process ends: {str(error)[:200]}"}]
        half = len(roots) // 2
        return [*survey(version, source, roots[:half]), *survey(version, source, roots[half:])]


def _became(before: Facts, after: Facts) -> str:
    if before["refuses"] is not None:
        return "starts now" if after["refuses"] is None else "refuses as before"
    if after["refuses"] is not None:
        return "REFUSES NOW"
    more = (readable(after["queues"]) - readable(before["queues"])).total()
    return "reads more" if more else "reads the same"


def _run(*arguments: str) -> dict[str, Any]:
    program = [sys.executable, "-m", "rmqtool", *arguments]
    done = subprocess.run(program, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    if b"Traceback" in done.stderr:
        return {"result": None, "error": done.stderr.decode()[-600:]}
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def _digest(root: Path) -> dict[str, str]:
    """Size and content of each file, and the directories, but for what is ours."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if not name.startswith((".rmqtool", "lock")):
            found[name] = "" if path.is_dir() else blake2b(path.read_bytes(), digest_size=8).hexdigest()
    return found


def main(arguments: Sequence[str]) -> int:
    """Repair many, print what is wrong, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*")
    parser.add_argument("--count", type=int, default=34, help="stores of each version")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--recorded", action="store_true", help="only the stores of tests/verify/loss_stores")
    options = parser.parse_args(arguments)
    failed = 0
    for version in options.versions or (recorded.STORES if options.recorded else VERSIONS):
        with TemporaryDirectory(prefix="rmqtool-repairs-") as scratch:
            directory = Path(scratch)
            sources = [committed(version, directory)] if options.recorded else fresh(version, directory)
            counts: Counter[str] = Counter()
            for case, problems, became in run(version, range(options.seed, options.seed + options.count), sources):
                result = case.said[-1].get("result") or {}
                counts[f"{became}, {result.get('verdict', 'error')}"] += 1
                failed += bool(problems)
                for problem in problems:
                    own = " --recorded" if options.recorded else ""
                    print(f"WRONG {case.what} | {problem} | {_PROGRAM}{own} --count 1 --seed {case.seed} {version}",
                          flush=True)  # fmt: skip
        print(f"{version}: {', '.join(f'{count} {what}' for what, count in sorted(counts.items()))}", flush=True)
    print(f"{failed} wrong")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
