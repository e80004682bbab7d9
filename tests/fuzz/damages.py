"""Damage stores, verify, repair and undo, guided by what comes out: `python -m tests.fuzz.damages [STORE...]`.

A damage is a few losses and changes, each with its own chance. What gives a finding, a change of a plan, a loss of
clients or a verdict that no earlier one has given is kept, and changed further. Whatever the damage: commands end as
they should, the plan says what is left, what it promises comes true, a second repair has nothing to do, and undo brings
back every byte.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stderr, suppress
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from io import StringIO
from pathlib import Path

from tests.copies import copied
from tests.fuzz.harness import MEMORY
from tests.golden import stores
from tests.real_broker.client_damages import all_damages
from tests.real_broker.copies import ROCKSDB
from tests.real_broker.harness import SHOP_SETTINGS
from tests.repair.checked_repair import Repair, checked_repair
from tests.trust import results
from tests.verify.losses import Loss, Scene

SEED = 1
STORES = (
    *("4.4.0-killed", "4.4.0-shop", "4.7.1-shop", "4.9.7-killed", "4.9.7-shop", "5.1.4-shop", "5.3.3-shop"),
    *("5.5.0-shop", "5.5.0-trimmed", "5.5.1-crc32-property", "5.5.1-shop", "5.5.1-trimmed"),
    *("more/5.3.3-rocksdb", "more/5.5.0-rocksdb", "more/5.5.1-rocksdb"),
)
_MOST = 4
_NUMBERS = (0, 1, -1, 20, 1 << 20, 1 << 30, (1 << 31) - 1, 1 << 40, (1 << 63) - 1, -(1 << 31))
Edit = tuple[str, int]
"""The name of a loss or a change, and the seed of its chance."""
Damage = tuple[Edit, ...]
Tried = tuple[Damage, Repair | None, list[str]]
"""What of a damage was done, the repair where it ended, and what is wrong."""


@dataclass
class Tally:
    """What was tried with one store, how many different things came out, and what was wrong."""

    store: str
    runs: int = 0
    kept: int = 0
    outcomes: int = 0
    repaired: int = 0
    problems: list[str] = field(default_factory=list)


def _file(scene: Scene) -> Path:
    files = sorted(path for path in scene.store.rglob("*") if path.is_file() and path.stat().st_size)
    return scene.random.choice(files)


def _overwritten(scene: Scene) -> bool:
    """A number, zeros or other bytes somewhere in the part of a file that holds something."""
    path, chance = _file(scene), scene.random
    data = bytearray(path.read_bytes())
    at = chance.randrange(max(1, len(data.rstrip(b"\0"))))
    number = struct.pack(chance.choice((">i", ">q")), chance.choice(_NUMBERS) % (1 << 31))
    new = chance.choice((number, bytes(chance.choice((1, 4, 20, 400))), chance.randbytes(chance.choice((1, 2, 8)))))
    at -= at % chance.choice((1, 4, 20))
    data[at : at + len(new)] = new[: len(data) - at]
    path.write_bytes(data)
    return True


def _resized(scene: Scene) -> bool:
    """A file ends earlier, or has more bytes than it should."""
    path, chance = _file(scene), scene.random
    size = path.stat().st_size
    os.truncate(path, chance.choice((chance.randrange(size), size - size % 20, size + chance.randrange(1, 5000))))
    return True


def _numbered(scene: Scene) -> bool:
    """Another number in a config file."""
    files = sorted(path for path in scene.store.glob("config/*") if path.is_file())
    found = [(path, match) for path in files for match in re.finditer(rb"(?<=[:\[,])-?\d+", path.read_bytes())]
    if not found:
        return False
    path, match = scene.random.choice(found)
    data = path.read_bytes()
    path.write_bytes(data[: match.start()] + b"%d" % scene.random.choice(_NUMBERS) + data[match.end() :])
    return True


@cache
def edits() -> Mapping[str, Loss]:
    """All that can happen to a store, by name."""
    raw = (Loss("bytes of any file", _overwritten), Loss("size of any file", _resized), Loss("a number", _numbered))
    return {loss.name: loss for loss in (*all_damages(), *raw)}


def applied(damage: Damage, store: Path) -> Damage:
    """Those edits for which a store had something; it has them now."""
    done = []
    for name, seed in damage:
        with suppress(OSError, ValueError, IndexError, struct.error):  # of what an earlier one has left
            if edits()[name].apply(Scene(store, None, random.Random(seed))):
                done.append((name, seed))
    return tuple(done)


def changed(damage: Damage, chance: random.Random) -> Damage:
    """One edit more, fewer, in place of another, or done elsewhere."""
    names, new = [*edits()], [*damage]
    how = chance.randrange(4)
    if how == 0 and len(new) > 1:
        new.pop(chance.randrange(len(new)))
    elif how == 1 and new:
        at = chance.randrange(len(new))
        new[at] = new[at][0], chance.getrandbits(32)
    elif how == 2 and new:
        new[chance.randrange(len(new))] = chance.choice(names), chance.getrandbits(32)
    else:
        new.insert(chance.randrange(len(new) + 1), (chance.choice(names), chance.getrandbits(32)))
    return tuple(new[-_MOST:])


def outcomes(repair: Repair) -> Iterator[str]:
    """What came out, without names and numbers: findings, changes and what is left of the plan, losses, verdicts."""
    for step in repair.planned["steps"]:
        yield from (re.sub(r"/\S+|\d+|'[^']*'", "", change) for change in step["changes"])
        yield from (f"leaves {name}" for name in (step["clients"] or {}).get("leaves", ()))
    yield from (text.partition(":")[0] for text in repair.planned["remaining"])
    for said in repair.said:
        result = said.get("result") or {"state": "stopped", "verdict": (said.get("error") or {})["message"][:40]}
        yield f"{result['state']}, {result['verdict']}"
        yield from (finding["code"] for finding in said.get("findings", ()))


def tried(damage: Damage, base: Path, version: str, settings: Mapping[str, str]) -> Tried:
    """What a damage gives in a copy of a store."""
    with tempfile.TemporaryDirectory(dir=base.parent) as directory:
        root, conf = Path(directory, "store"), Path(directory, "broker.conf")
        copied(base, root)
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        done = applied(damage, root)
        try:
            with redirect_stderr(StringIO()):
                repair = checked_repair(root, conf, version)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
            return done, None, [f"{type(error).__name__}: {str(error)[:500]}"]
    return done, repair, [*repair.problems, *_broken_promises(repair)]


def _broken_promises(repair: Repair) -> Iterator[str]:
    """What clients lose by the repaired store though the plan did not say so; a step that takes without a word."""
    for said in repair.said:
        for each in ((said.get("result") or {}).get("proof") or {}).get("more_lost", ()):
            yield f"{each['kind']}: planned {each['planned']}, found {each['found']}"
    for step in repair.planned["steps"]:
        if (step["clients"] or {}).get("takes") and not step["lost"]:
            yield f"takes {step['clients']['takes']} without a word"


def reduced(damage: Damage, problems: list[str], again: Callable[[Damage], Tried]) -> tuple[Damage, list[str]]:
    """The fewest edits that still give a problem, and what is wrong then."""
    for at in range(len(damage)):
        fewer = damage[:at] + damage[at + 1 :]
        if fewer and (left := again(fewer)[2]):
            return reduced(fewer, left, again)
    return damage, problems


def settings_of(name: str) -> Mapping[str, str]:
    """The settings of its broker."""
    return SHOP_SETTINGS if name.endswith("shop") else ROCKSDB if name.endswith("rocksdb") else {}


def fuzz(name: str, seconds: int) -> Tally:
    """Damage one store for some time."""
    tally, chance, seen = Tally(name), random.Random(f"{SEED} {name}"), set[str]()
    until, kept, known = time.monotonic() + seconds, list[Damage]([()]), list[set[str]]()
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as directory:
        base, settings = stores.unpack(name, Path(directory)), settings_of(name)
        attempt = partial(tried, base=base, version=stores.version_of(name), settings=settings)
        while time.monotonic() < until:
            wanted = changed(chance.choice(kept[-50:] if chance.random() < 0.7 else kept), chance)
            damage, repair, problems = attempt(wanted)
            tally.runs += 1
            if problems and not any(names <= {name for name, _ in damage} for names in known):
                least, why = reduced(damage, problems, attempt)
                known.append({name for name, _ in least})
                tally.problems.append(f"{name} {least}: {why}")
                print(tally.problems[-1], file=sys.stderr, flush=True)
            if repair is None:
                continue
            new = {*outcomes(repair)} - seen
            tally.repaired += (repair.result or {}).get("state") == "done"
            if new:
                seen |= new
                kept.append(damage)
    tally.kept, tally.outcomes = len(kept) - 1, len(seen)
    return tally


def main() -> int:
    """Damage stores; print and with `--record` keep the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.damages")
    parser.add_argument("names", nargs="*", default=STORES)
    parser.add_argument("--seconds", type=int, default=3600)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    begin = time.monotonic()
    with ProcessPoolExecutor(given.jobs) as pool:
        tallies = [*pool.map(partial(fuzz, seconds=given.seconds), given.names)]
    for tally in tallies:
        print(f"{tally.store:20} {tally.runs:6} runs, {tally.outcomes} outcomes, {len(tally.problems)} problems")
    wrong = any(tally.problems for tally in tallies)
    if given.record and not wrong:
        command = f"python -m tests.fuzz.damages --seconds {given.seconds}"
        results.record("damages", command, time.monotonic() - begin, str(SEED), [*map(asdict, tallies)])
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
