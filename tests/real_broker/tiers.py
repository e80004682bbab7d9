"""Tiers and compacted queues with random damage: ``python -m tests.real_broker.tiers [--count N] [--seed S]``.

What the real broker serves of each store before and after a repair, against what verify and the repair say. A verdict
that is clean where consumers get less, a repair that takes what they got, and one that leaves nothing to be found where
they still get less are wrong.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.commands.running import rmqtool
from tests.copies import copied
from tests.golden.stores import unpack
from tests.real_broker.harness import Harness, tiered_settings
from tests.real_broker.tools import HarnessError
from tests.repair.checked_repair import Repair, checked_repair
from tests.verify.tiered_damages import expire

COMPACTED = {"compactionMappedFileSize": "4600", "compactionCqMappedFileSize": "920"}
TIERS, COMPACTIONS = ("5.1.4", "5.3.3", "5.5.1"), ("5.3.3", "5.5.0")
Served = dict[tuple[int, int], str]
"""What consumers get: by queue and queue offset a digest of the message."""


def _flip(path: Path, chance: random.Random) -> str:
    """Change one to four bytes that lie together."""
    data = bytearray(path.read_bytes())
    held = len(data.rstrip(b"\0")) or len(data)
    at, count = chance.randrange(held), chance.randint(1, 4)
    data[at : at + count] = (byte ^ chance.randint(1, 255) for byte in data[at : at + count])
    path.write_bytes(data)
    return f"{count} bytes at {at}"


def _clear(path: Path, chance: random.Random) -> str:
    """Zeros in place of a part of it."""
    data = bytearray(path.read_bytes())
    at = chance.randrange(len(data.rstrip(b"\0")) or len(data))
    size = chance.randint(1, 600)
    data[at : at + size] = bytes(len(data[at : at + size]))
    path.write_bytes(data)
    return f"{size} zeros at {at}"


def _cut(path: Path, chance: random.Random) -> str:
    size = chance.randrange(path.stat().st_size)
    os.truncate(path, size)
    return f"cut to {size}"


def _extend(path: Path, chance: random.Random) -> str:
    data = chance.randbytes(chance.randint(1, 300)) if chance.random() < 0.5 else bytes(chance.randint(1, 300))
    path.write_bytes(path.read_bytes() + data)
    return f"{len(data)} more bytes"


def _remove(path: Path, chance: random.Random) -> str:
    path.unlink()
    return "removed"


def _rename(path: Path, chance: random.Random) -> str:
    path.rename(path.with_name(f"{path.name}.old"))
    return "renamed"


_DAMAGES: tuple[Callable[[Path, random.Random], str], ...] = (_flip, _flip, _clear, _cut, _extend, _remove, _rename)


@dataclass(frozen=True)
class Scene:
    """A kind of store: where it comes from, which files are damaged, and how a broker is asked."""

    kind: str
    version: str

    @property
    def settings(self) -> dict[str, str]:
        """The settings of the broker, but for the place of the tier."""
        return COMPACTED if self.kind == "compacted" else {}

    def make(self, scratch: Path, *, is_expired: bool) -> Path:
        """The store; where a tier has what `is_expired`, the local log has lost what it had first."""
        store = unpack(f"more/{self.version}-{self.kind}", scratch)
        if self.kind == "tiered" and is_expired:
            expire(store)
        return store

    def damage(self, store: Path, chance: random.Random) -> str:
        """Damage one file, and say what was done."""
        files = [path for path in sorted(self._places(store)) if path.stat().st_size]
        path = chance.choice(files)
        return f"{path.relative_to(store)}: {chance.choice(_DAMAGES)(path, chance)}"

    def _places(self, store: Path) -> Iterator[Path]:
        if self.kind == "compacted":
            yield from (path for path in (store / "compaction").rglob("0*") if path.is_file())
            return
        yield from (path for path in (store / "tiered").rglob("*") if path.is_file() and "rmq_sys" not in str(path))
        yield store / "config" / "tieredStoreMetadata.json"

    def served(self, store: Path) -> Served | None:
        """What consumers get; None where the broker refuses to start."""
        harness = Harness(self.version)
        try:
            if self.kind == "compacted":
                [messages] = harness.ask(store, {"read": [["state", 0]]}, COMPACTED)["read"]
                return {(0, offset): digest for offset, digest in messages}
            queues = harness.read_tiered(store, store / "tiered")
            return {(each["queue_id"], offset): digest for each in queues for offset, digest in each["messages"]}
        except HarnessError:
            return None

    def conf(self, store: Path, path: Path) -> Path:
        """Its broker.conf."""
        settings = COMPACTED if self.kind == "compacted" else tiered_settings(self.version, store / "tiered")
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return path


KINDS = ("tiered", "compacted")
SCENES = [*(Scene("tiered", version) for version in TIERS for _ in range(2)),
          *(Scene("compacted", version) for version in COMPACTIONS)]  # fmt: skip


@dataclass(frozen=True)
class Result:
    """One case: what was done, how many messages consumers got less before and after the repair, and what is wrong."""

    scene: Scene
    what: str
    verdict: str
    predicted: int | None
    lost_before: int | None
    lost_after: int | None
    problems: list[str]

    def __str__(self) -> str:
        told, *served = ("refuses" if each is None else str(each)
                         for each in (self.predicted, self.lost_before, self.lost_after))  # fmt: skip
        lost = " -> ".join(served)
        wrong = f"  WRONG: {'; '.join(self.problems)}" if self.problems else ""
        said = f"{self.verdict}, {'' if self.predicted == self.lost_before else 'NOT AS '}foretold {told}"
        return f"{self.scene.kind} {self.scene.version}: {self.what}: {said}, lost {lost}{wrong}"


_HALF = 0.5
_Known = dict[tuple[Scene, bool], "Served | None"]


def run(seed: int, scratch: Path, known: _Known, kind: str | None = None) -> Result:
    """One case, made again by its seed; `known` is what the broker serves of undamaged stores."""
    chance = random.Random(seed)
    scene = chance.choice([each for each in SCENES if kind in (None, each.kind)])
    is_expired = chance.random() < _HALF
    store = scene.make(scratch, is_expired=is_expired)
    if (scene, is_expired) not in known:
        known[scene, is_expired] = scene.served(copied(store, scratch / "whole"))
    whole = known[scene, is_expired]
    assert whole is not None, "the broker refuses the undamaged store"
    what, conf = scene.damage(store, chance), scene.conf(store, scratch / "broker.conf")
    before = scene.served(copied(store, scratch / "before"))
    verified = rmqtool("verify", store, "--json", "--broker-conf", conf, "--broker-version", scene.version).document
    clients = verified["result"]["start"]["clients"] or {}
    is_refused = verified["result"]["start"]["refuses"] is not None
    predicted = None if is_refused else clients.get("tiered_lost", 0) + clients.get("compacted_lost", 0)
    repair = checked_repair(store, conf, scene.version)
    verdict = repair.said[-1]["result"]["verdict"] if repair.result else "failed"
    after = scene.served(copied(store, scratch / "after"))
    return Result(scene, what, _found(repair), predicted, _lost(whole, before), _lost(whole, after),
                  [*repair.problems, *judge(repair, verdict, whole, before, after)])  # fmt: skip


def _found(repair: Repair) -> str:
    """The codes of what was found first, above information, of these two places."""
    found = repair.said[0]["findings"] if repair.said[0].get("findings") else []
    changes = "repaired" if (repair.result or {}).get("transactions") or len(repair.said) > 1 else "left"
    codes = {each["code"] for each in found if each["severity"] != "info"}
    return f"{changes}{f', {sorted(codes)} left' if codes else ''}"


def _missing(whole: Served, served: Served | None) -> set[tuple[int, int]]:
    """The messages that consumers never get as they were; under which queue offset a broker counts them is the same."""
    got = {(queue, digest) for (queue, _), digest in (served or {}).items()}
    return {name for name, digest in whole.items() if (name[0], digest) not in got}


def _lost(whole: Served, served: Served | None) -> int | None:
    return None if served is None else len(_missing(whole, served))


def judge(repair: Repair, verdict: str, whole: Served, before: Served | None, after: Served | None) -> list[str]:
    """What is wrong with what was said, by what consumers get."""
    problems = []
    planned = repair.planned
    is_said = bool(planned["steps"] or planned["remaining"])
    is_less = bool(_missing(whole, before))
    if is_less and not is_said:
        problems.append("consumers get less, and verify has nothing to say")
    if after is None:
        problems += ["refuses after the repair"] if verdict == "clean" or before is not None else []
        return problems
    left = _missing(whole, after)
    if taken := left - _missing(whole, before):
        problems.append(f"the repair takes {len(taken)} messages: {sorted(taken)[:3]}")
    is_told = any(step["lost"] for step in planned["steps"]) or planned["remaining"]
    if left and verdict == "clean" and not is_told:
        problems.append(f"clean, and {len(left)} messages are not served: {sorted(left)[:3]}")
    return problems


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.real_broker.tiers")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=KINDS)
    given = parser.parse_args(words)
    results, known = list[Result](), _Known()
    for seed in range(given.seed, given.seed + given.count):
        with TemporaryDirectory(prefix="rmqtool-tiers-") as scratch:
            results.append(run(seed, Path(scratch), known, given.kind))
        print(f"{seed}: {results[-1]}", flush=True)
    print("| stores | damaged | foretold as lost | consumers get less, or nothing | healed | in part | not | wrong |")
    print("|---|---|---|---|---|---|---|---|")
    for kind in KINDS:
        own = [each for each in results if each.scene.kind == kind]
        less = [each for each in own if each.lost_before != 0]
        healed = [each for each in less if each.lost_after == 0]
        part = [each for each in less if each not in healed and _less(each.lost_after, each.lost_before)]
        told = sum(each.predicted == each.lost_before for each in own)
        counts = (len(own), told, len(less), len(healed), len(part), len(less) - len(healed) - len(part))
        wrong = sum(bool(each.problems) for each in own)
        print(f"| {kind} | {' | '.join(map(str, counts))} | {wrong} |")
    return 1 if any(each.problems for each in results) else 0


def _less(one: int | None, other: int | None) -> bool:
    """Whether consumers get more than before; nothing where the broker refuses."""
    return one is not None and (other is None or one < other)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
