"""What `verify` says that clients lose, against a real broker: ``python -m tests.real_broker.clients [VERSION ...]``.

Each case is a golden store with one to three random damages. The broker of its release is asked before the damage,
after a start on the damaged copy, and after `repair --yes` and a start: for each queue offset, each key, each delayed
message and timer, each group. `result.start.clients` and `result.plan.clients` must be these differences, `clean` and
`dirty` stand only where there is none, and a repair takes away nothing that was served unless its plan says so.

What is gone without a trace cannot be counted by anybody who sees only the damaged store; a number between what left a
trace and all that is gone is right. ``--count N --seed S`` chooses the cases, ``--keep DIR`` keeps the stores of the
last one, ``--record`` writes the table of docs/verify.md.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rmqtool.rules.versions import parse_version
from rmqtool.scan.inert_records import LOST_TOPIC
from tests.commands.running import rmqtool
from tests.copies import copied
from tests.real_broker.classes import class_path
from tests.real_broker.client_damages import apply_named, apply_some, records_of
from tests.real_broker.client_facts import Difference, View, claimed, common, difference, view_of, without
from tests.real_broker.client_stores import VERSIONS, Source, Traces, fresh, sources
from tests.real_broker.harness import Harness, HarnessError
from tests.real_broker.tools import cache
from tests.verify.losses import Scene

BATCH = 24  # stores that are damaged before the broker is asked, in one process for each set of settings
_COUNT = 50
_PROGRAM = "python -m tests.real_broker.clients"
_PAGE = Path(__file__).parents[2] / "docs" / "verify.md"
_HEADING = "## How the numbers of clients are proven\n"
_NEXT = "\n## "
_BY_CHANCE = ("the process ends", "hangs")  # of a busy machine, perhaps
_NOTHING_IN = 15  # one case in so many is not damaged


@dataclass
class Case:
    """A damaged store, as it is and repaired, and what was said about it."""

    version: str
    seed: int
    source: Source
    names: list[str]
    damaged: Path
    repaired: Path
    traces: Traces
    verified: dict[str, Any]
    repair: dict[str, Any]
    dummies: frozenset[int]
    """Physical offsets of the records that the repair has put in the place of damage."""

    @property
    def result(self) -> dict[str, Any]:
        """What verify says; nothing where it ends with an error."""
        return self.verified.get("result") or {}

    @property
    def told_lost(self) -> list[str]:
        """What the plan says that its steps take away."""
        return [text for step in (self.result.get("plan") or {}).get("steps", []) for text in step["lost"]]

    @property
    def again(self) -> str:
        """The command that makes it again."""
        healthy = "" if self.names or not self.source.name.startswith(f"{self.version}-fresh") else " --healthy"
        return f"{_PROGRAM}{healthy} --count 1 --seed {self.seed} {self.version}"


@dataclass
class Judged:
    """A case, and each claim that differs from what the broker says."""

    case: Case
    start: Difference
    after_plan: Difference
    wrong: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def make_case(
    version: str, seed: int, found: Sequence[Source], scratch: Path, chosen: Sequence[str] | None = None
) -> Case:
    """Damage a copy by chance or as `chosen`, verify it, and repair another; without stores a fresh one is made."""
    chance = random.Random(f"{version} {seed} clients")
    source = chance.choice(found) if found else fresh(version, seed, scratch, chance)
    damaged, repaired, conf = scratch / f"{seed}-damaged", scratch / f"{seed}-repaired", scratch / f"{seed}.conf"
    copied(source.store, damaged)
    scene = Scene(damaged, None, chance)
    if chosen is not None:
        names = apply_named(scene, chosen)
    else:
        names = apply_some(scene) if found and chance.randrange(_NOTHING_IN) else []
    conf.write_text(source.conf(), encoding="utf-8")
    copied(damaged, repaired)
    traces = Traces.of(source, damaged, parse_version(version))
    broker = ("--broker-version", version, "--broker-conf", conf, "--json")
    verified = _document("verify", damaged, *broker)
    repair = _document("repair", repaired, "--yes", "--allow-older-release", *broker)
    dummies = frozenset(each.physical_offset for each in records_of(repaired) if each.topic == LOST_TOPIC.decode())
    return Case(version, seed, source, names, damaged, repaired, traces, verified, repair, dummies)


def _document(*arguments: str | Path) -> dict[str, Any]:
    try:
        done = rmqtool(*arguments)
        found: dict[str, Any] = done.document if done.out else {"error": {"message": done.err[-500:]}}
    except Exception as error:  # noqa: BLE001 - a traceback, a hang or invalid JSON is what is judged
        return {"result": None, "error": {"message": f"{type(error).__name__}: {error}"[:500]}}
    return found


def run(
    version: str, seeds: Iterable[int], found: Sequence[Source], chosen: Sequence[str] | None = None
) -> Iterator[Judged]:
    """Judge a case for each seed."""
    remaining = iter(seeds)
    while batch := list(islice(remaining, BATCH)):
        with TemporaryDirectory(prefix="rmqtool-clients-") as scratch:
            cases = [make_case(version, seed, found, Path(scratch), chosen) for seed in batch]
            for same in _by_settings(cases):
                yield from judge_all(version, same)


def _by_settings(cases: Sequence[Case]) -> list[list[Case]]:
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(json.dumps(dict(case.source.settings)), []).append(case)
    return list(groups.values())


def judge_all(version: str, cases: Sequence[Case]) -> Iterator[Judged]:
    """Ask the broker about all stores of some cases with the same settings, and about those before the damage."""
    asked: list[tuple[Source, Path]] = []
    new = {id(case.source): case.source for case in cases if case.source.had is None}
    asked += [(source, source.store) for source in new.values()]
    for case in cases:
        asked += [(case.source, case.damaged), (case.source, case.repaired)]
    views = iter(views_of(version, asked))
    for source in new.values():
        source.had = next(views)
        source.add_unnoted(source.had, parse_version(version))
    for case in cases:
        after, repaired, had = next(views), next(views), case.source.had
        if had is None or had.refuses is None:
            yield judge(case, after, repaired)
        elif case.names:
            raise HarnessError(f"the broker does not start on the undamaged {case.source.name}: {had.refuses}")
        else:
            yield judge_refused(case, had.refuses)


def judge_refused(case: Case, why: str) -> Judged:
    """A store that was killed at a moment after which its own broker does not start: that is to be predicted."""
    judged = Judged(case, Difference(refuses=why), Difference(refuses=why))
    claimed_start = (case.result.get("start") or {}).get("clients") or {}
    if not claimed_start.get("refuses"):
        judged.wrong.append(f"start.refuses: broker {why!r}, claimed {claimed_start.get('refuses')!r}")
    return judged


def views_of(version: str, asked: Sequence[tuple[Source, Path]]) -> list[View]:
    """What clients get of each store; what a broker answered of the same files before is kept for the next run."""
    kept = cache() / "clients"
    kept.mkdir(parents=True, exist_ok=True)
    files = [kept / _digest(version, source, root) for source, root in asked]
    new = [number for number, file in enumerate(files) if not file.exists()]
    answers = dict(zip(new, survey(version, [asked[number] for number in new]) if new else [], strict=True))
    for number, facts in answers.items():
        if not (facts["refuses"] or "").startswith(_BY_CHANCE):
            files[number].write_bytes(zlib.compress(json.dumps(facts).encode()))
    known = (json.loads(zlib.decompress(file.read_bytes())) if file.exists() else None for file in files)
    return [view_of(facts or answers[number]) for number, facts in enumerate(known)]


def _digest(version: str, source: Source, root: Path) -> str:
    """Of the files of a store, of what is asked, and of the program that asks."""
    asked = f"copies {class_path(version, whole=True)} {source.conf()} {source.keys} {source.queues}"
    digest = blake2b(asked.encode(), digest_size=16)
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if not name.startswith((".rmqtool", "lock")):
            digest.update(f"{name}\0".encode() + (path.read_bytes() if path.is_file() else b"/"))
    return digest.hexdigest()


def survey(version: str, asked: Sequence[tuple[Source, Path]]) -> list[dict[str, Any]]:
    """What a broker says of each store."""
    roots = [(root, source.keys) for source, root in asked]
    return Harness(version).survey_copies(roots, dict(asked[0][0].settings), [source.queues for source, _ in asked])


def judge(case: Case, after: View, repaired: View) -> Judged:
    """Hold each claim to what the broker says."""
    had, repaired = case.source.had, without(repaired, case.dummies)
    assert had is not None
    start = difference(had, after, case.source.proof)
    after_plan = difference(had, repaired, case.source.proof)
    judged = Judged(case, start, after_plan)
    if not case.result:
        judged.wrong.append(f"verify: {case.verified.get('error')}")
        return judged
    _compare(judged, "start", (case.result.get("start") or {}).get("clients"), start)
    _compare(judged, "plan", (case.result.get("plan") or {}).get("clients"), after_plan)
    _judge_verdict(judged)
    _judge_repair(judged, after, repaired)
    return judged


def _compare(judged: Judged, what: str, clients: Mapping[str, Any] | None, real: Difference) -> None:
    """Each number, between what left a trace and all."""
    mine = claimed(clients)
    if mine is None:
        judged.notes.append(f"{what}.clients is null")
        return
    had = judged.case.source.had
    assert had is not None
    numbers, traced = real.numbers(), judged.case.traces.count(real, had)
    if numbers["refuses"] or mine["refuses"]:
        if numbers["refuses"] != mine["refuses"]:
            judged.wrong.append(f"{what}.refuses: broker {real.refuses!r}, claimed {(clients or {})['refuses']!r}")
        return
    for name, number in numbers.items():
        if name.startswith("timers.") and not judged.case.source.proof.has_timers:
            continue
        low = traced.get(name, number)
        is_open = name == "keys_not_found" and not judged.case.traces.has_beginning
        if mine[name] < low or (mine[name] > number and not is_open):
            side = "too low" if mine[name] < low else "too high"
            least = "" if low == number else f" ({low} with a trace)"
            judged.wrong.append(f"{what}.{name} {side}: broker {number}{least}, claimed {mine[name]}"
                                f"{_where(name, real, clients or {})}")  # fmt: skip
        elif mine[name] != number:
            judged.notes.append(f"{what}.{name}: broker {number}, {low} with a trace, claimed {mine[name]}")


def _where(name: str, real: Difference, clients: Mapping[str, Any]) -> str:
    """Some of the broker's and of the claimed ones."""
    if name == "unreachable":
        theirs = [f"{topic}/{queue} {len(offsets)} from {offsets[0]}" for (topic, queue), offsets in
                  real.by_queue().items()]  # fmt: skip
        mine = [f"{each['topic']}/{each['queue_id']} {each['messages']} from {each['first_queue_offset']}"
                for each in clients["unreachable"]["queues"]]  # fmt: skip
    elif name == "groups":
        theirs = [f"{group}@{topic}/{queue} {had}->{now}" for (group, topic, queue), had, now in real.groups]
        mine = [f"{each['group']}@{each['topic']}/{each['queue_id']} {each['next_had']}->{each['next_after']}"
                for each in clients["groups"]]  # fmt: skip
    elif name == "keys_not_found":
        return f" [broker: {[(key.replace(chr(9), ' '), offset) for key, offset in real.keys_not_found[:2]]}]"
    else:
        return ""
    only = sorted({*theirs} - {*mine})[:4], sorted({*mine} - {*theirs})[:4]
    return f" [only broker: {'; '.join(only[0]) or '-'} | only claimed: {'; '.join(only[1]) or '-'}]"


def _judge_verdict(judged: Judged) -> None:
    verdict, start = judged.case.result["verdict"], judged.start
    traced = judged.case.traces.count(start, judged.case.source.had or View())
    seen = {**start.numbers(), **{name: number for name, number in traced.items() if not start.refuses}}
    if judged.case.source.begins_again:
        del seen["groups"]
    seen["delayed.again"] = max(0, seen["delayed.again"] - judged.case.source.come_again)
    if verdict in ("clean", "dirty") and any(seen.values()):
        judged.wrong.append(f"verdict {verdict}, but clients lose {_short(start)}")
    if verdict == "corrupt" and not start and not judged.case.names:
        judged.wrong.append("verdict corrupt of a healthy store")
    elif verdict == "corrupt" and not start:
        codes = sorted({each["code"] for each in judged.case.verified["findings"]
                        if each["severity"] not in ("info", "warning")})  # fmt: skip
        judged.notes.append(f"corrupt, but clients lose nothing: {', '.join(codes)}")


def _judge_repair(judged: Judged, after: View, repaired: View) -> None:
    case = judged.case
    if case.repair.get("result") is None:
        judged.notes.append(f"repair: {str((case.repair.get('error') or {}).get('message'))[:200]}")
        return
    if repaired.refuses is not None:
        if after.refuses is None:
            judged.wrong.append(f"repair: the broker refuses now: {repaired.refuses}")
        return
    had = case.source.had
    assert had is not None
    taken = difference(common(had, after), repaired, replace(case.source.proof, pairs=()))
    taken.timers["again"] = 0  # what comes again is not taken
    if taken and not case.told_lost:
        judged.wrong.append(f"repair takes what was served: {_short(taken)}"
                            f" [{taken.unreachable[:2] or taken.keys_not_found[:2] or taken.groups[:2]}]")  # fmt: skip


def _short(found: Difference) -> str:
    return ", ".join(f"{name} {number}" for name, number in found.numbers().items() if number)


@dataclass
class Table:
    """Counts of one release."""

    version: str
    cases: int = 0
    equal: int = 0
    without_trace: int = 0
    unknown: int = 0
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, judged: Judged) -> None:
        """Count a case."""
        self.cases += 1
        self.equal += not judged.wrong
        self.without_trace += any("with a trace" in note for note in judged.notes) and not judged.wrong
        self.unknown += any("is null" in note for note in judged.notes)
        self.kinds.update({wrong.split(":")[0] for wrong in judged.wrong})

    def row(self) -> str:
        """The row of a Markdown table."""
        return (f"| {self.version} | {self.cases} | {self.equal} | {self.without_trace} | {self.unknown} |"
                f" {self.cases - self.equal} |")  # fmt: skip


HEADER = """\
| release | cases | equal | of these partly without a trace | not predicted | different |
|---|---|---|---|---|---|"""


def main(arguments: Sequence[str]) -> int:
    """Judge many, print each that differs, and the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*")
    parser.add_argument("--count", type=int, default=_COUNT, help="cases of each release")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--verbose", action="store_true", help="also the cases that are equal, and notes")
    parser.add_argument("--healthy", action="store_true", help="stores that were killed or copied while they ran")
    parser.add_argument("--damage", action="append", metavar="NAME", help="only this one, or these together")
    parser.add_argument("--store", metavar="PART", help="only stores with this in their name")
    parser.add_argument("--record", action="store_true", help="write the table of docs/verify.md")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the damaged store of the first case in DIR")
    options = parser.parse_args(arguments)
    tables = []
    for version in options.versions or VERSIONS:
        table = Table(version)
        with TemporaryDirectory(prefix="rmqtool-clients-") as scratch:
            found = [] if options.healthy else sources(version, Path(scratch))
            found = [source for source in found if (options.store or "") in source.name]
            chosen = [] if options.healthy else options.damage
            if options.keep:
                keep(make_case(version, options.seed, found, made_in(options.keep), chosen), options.keep)
                continue
            for judged in run(version, range(options.seed, options.seed + options.count), found, chosen):
                table.add(judged)
                report(judged, verbose=options.verbose)
        tables.append(table)
        kinds = ", ".join(f"{count} {kind}" for kind, count in table.kinds.most_common())
        print(f"{version}: {table.equal} of {table.cases} equal; {kinds}", flush=True)
    text = "\n".join([HEADER, *(table.row() for table in tables)])
    print(text)
    if options.record:
        record(text)
    return int(any(table.equal < table.cases for table in tables))


def record(table: str) -> None:
    """Put the table in the place of the present one."""
    page = _PAGE.read_text(encoding="utf-8")
    before, heading, rest = page.partition(_HEADING)
    prose, _, rest = rest.partition("\n| ")
    _, following, rest = rest.partition(_NEXT)
    _PAGE.write_text(f"{before}{heading}{prose}\n{table}\n{following}{rest}", encoding="utf-8")


def made_in(directory: Path) -> Path:
    """A new directory."""
    directory.mkdir(parents=True)
    return directory


def keep(case: Case, directory: Path) -> None:
    """Leave the stores of a case with the undamaged one, and say how they came to be."""
    print(f"{case.source.name}: {' + '.join(case.names)}\n{directory}")
    shutil.copytree(case.source.store, directory / "undamaged")


def report(judged: Judged, *, verbose: bool) -> None:
    """Print a case that differs, with everything that differs."""
    case = judged.case
    if not judged.wrong and not verbose:
        return
    what = "DIFFERS" if judged.wrong else "equal"
    verdict = case.result.get("verdict")
    print(f"{what} {case.source.name}: {' + '.join(case.names) or 'nothing'} | {verdict} | {case.again}", flush=True)
    for wrong in judged.wrong:
        print(f"    {wrong}", flush=True)
    if verbose:
        print(f"    broker: start {_short(judged.start) or 'nothing lost'}; "
              f"after the plan {_short(judged.after_plan) or 'nothing lost'}", flush=True)  # fmt: skip
        for note in judged.notes:
            print(f"    ({note})", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
