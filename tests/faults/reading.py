"""Reads of golden stores that fail, end early, come in pieces or change: `python -m tests.faults.reading`.

Whatever a read gives, a command ends by itself, with a documented exit status and no traceback; where something that
it asked for was not read, it says so, and no verdict is clean; and the store is as it was.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rmqtool.base.errors import Exit
from rmqtool.rules.system_topics import is_system_topic
from tests.faults.run import SEED, Trials
from tests.faults.shim import STATUSES, answer, shim
from tests.golden import stores
from tests.unchanged import data_extents, unchanged

Mode = Literal["fails", "ends", "pieces", "changes"]
MODES: tuple[Mode, ...] = ("fails", "ends", "pieces", "changes")
"""What a read does: as a bad sector; as a file that was cut; as a signal may leave it; as if somebody wrote."""
PAGE = 4096
_COUNTS = ("reads", "hits", "maps")
_WHOLE = (0, 1 << 62)
_PER_KIND = 3
"""Of the files of a kind the first, the last and the one between."""
_FAULTS = 20
"""Where one fault in many is tried, about so many of the same file."""


@dataclass(frozen=True)
class Fault:
    """What happens to the bytes from `first` to before `behind` of a file, from its read number `since` on."""

    file: str
    mode: Mode
    first: int = _WHOLE[0]
    behind: int = _WHOLE[1]
    since: int = 0


@dataclass(frozen=True)
class Ended:
    """How a command ended: its status, what it printed, its traceback; reads of the file, and those that were bad."""

    status: int | None
    out: str
    err: str
    problem: str | None
    reads: int
    hits: int
    maps: int


def commands(store: Path) -> dict[str, list[str]]:
    """The command lines that are tried: whether a store is sound, and for the first message of a topic of a client."""
    every = map(json.loads, answer(["query", str(store), "--scan", "--json"]).out.splitlines())
    message = next(each for each in every if not is_system_topic(each["topic"]))
    where = ["--topic", message["topic"], "--queue", str(message["queue_id"])]
    tier = ["--tiered-path", str(store / "tiered")] if (store / "tiered").is_dir() else []
    query = ["query", str(store), "--json", *tier]
    return {
        "verify": ["verify", str(store), "--json", "--jobs", "1", *tier],
        "inspect": ["inspect", str(store), "--json", "--scan"],
        "status": ["status", str(store), "--json"],
        "query --scan": [*query, "--scan", "--where", "no=such"],
        "query --key": [*query, "--topic", message["topic"], "--key", message["unique_key"]],
        "query --queue-offset": [*query, *where, "--queue-offset", str(message["queue_offset"])],
    }


def tried(store: Path, words: Sequence[str], fault: Fault | None) -> Ended:
    """Run a command line in a copy of this process, with a fault; the store itself is looked at by whoever calls."""
    path, number = b"", 0
    first, behind, since = (*_WHOLE, 0)
    if fault is not None:
        path, number = os.fsencode(store / fault.file), 1 + MODES.index(fault.mode)
        first, behind, since = fault.first, fault.behind, fault.since
    assert shim().bad_set(number, path, first, behind, since) == 0
    found = answer(words)
    counts = [shim().bad_count(each) for each in range(len(_COUNTS))]
    shim().bad_set(0, b"", 0, 0, 0)
    return Ended(found.status, found.out, found.err, found.problem, *counts)


def problem_of(command: str, fault: Fault, ended: Ended, sound: Ended) -> str | None:
    """What is wrong with the end of a command; `sound` is that without a fault. None where nothing is."""
    if ended.problem is not None:
        return ended.problem
    if ended.status not in STATUSES:
        return f"exit status {ended.status}"
    if ended.maps:
        return "it maps the file: a bad sector would end the process"
    if fault.mode == "pieces" and command != "status" and (ended.status, ended.out) != (sound.status, sound.out):
        return "reads in pieces change what it says"
    if fault.mode in ("fails", "ends") and ended.hits:
        is_same = _is_of_database(fault) and ended.out == sound.out
        if _is_silent(command, fault, ended) and not is_same:
            return "something was not read, and it does not say so"
        if command == "verify" and _verdict(ended.out) == "clean":
            return "clean, though something was not read"
    return None


def _verdict(out: str) -> str | None:
    result = json.loads(out).get("result") if out else None
    return result["verdict"] if result else None


def _is_silent(command: str, fault: Fault, ended: Ended) -> bool:
    """Whether a command did not say that a read failed, by its status or, where that may be as usual, in words.

    `query` ends with 1 if it finds nothing, and `inspect` with 0 even if there are findings.
    """
    if command.startswith("query") and ended.status == Exit.FINDINGS:
        return Path(fault.file).name not in ended.err
    if command == "inspect" and ended.status == Exit.OK:
        return all(finding["severity"] == "info" for finding in json.loads(ended.out).get("findings", ()))
    return ended.status == Exit.OK


def _is_of_database(fault: Fault) -> bool:
    """Whether RocksDB reads the file, which asks for more than is wanted of it, and may do without."""
    return Path(fault.file).name.startswith(("MANIFEST", "CURRENT", "OPTIONS")) or fault.file.endswith((".sst", ".log"))


def kind_of(name: str) -> str:
    """What a file of a store is for: the first parts of its path, and of a database each kind of its files."""
    path = Path(name)
    top = path.parts[0].partition(".")[0].partition("-n")[0]
    if top in ("config", "tiered", "compaction", "dledger"):
        top = "/".join(path.parts[:-1][:2]) if len(path.parts) > 2 else name
    word = re.match(r"[A-Z]{4,}", path.name)
    part = word[0] if word else path.suffix if path.suffix in (".sst", ".log") else ""
    return f"{top}/{part}"


def files_of(store: Path) -> list[str]:
    """Of each kind of file some, those without a byte left out."""
    kinds: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(store.rglob("*")):
        if path.is_file() and path.stat().st_size:
            name = str(path.relative_to(store))
            kinds[kind_of(name)].append(name)
    chosen = []
    for names in kinds.values():
        middle = [names[len(names) * number // (_PER_KIND - 1) - (number > 0)] for number in range(_PER_KIND)]
        chosen += sorted(set(middle) | {names[0], names[-1]})
    return chosen


def pages_of(path: Path) -> list[int]:
    """Where the pages of a file begin that hold something; the first one always."""
    found = {0}
    with path.open("rb") as file:
        for start, stop in data_extents(file.fileno(), path.stat().st_size):
            for at in range(start - start % PAGE, stop, PAGE):
                if any(os.pread(file.fileno(), PAGE, at)):
                    found.add(at)
    return sorted(found)


def faults_of(store: Path, name: str, reads: int) -> Iterator[Fault]:
    """All faults of one file, which a command reads so many times."""
    yield Fault(name, "pieces")
    missing: tuple[Mode, ...] = ("fails", "ends")
    for page in pages_of(store / name):
        yield from (Fault(name, mode, page, page + PAGE) for mode in missing)
    for since in range(reads):
        yield from (Fault(name, mode, since=since) for mode in (*missing, "changes"))


@dataclass
class Tally:
    """What was tried with one store, how many faults were met, and what came out."""

    store: str
    trials: int = 0
    hits: int = 0
    verdicts: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.store:30} {self.trials:6} faults, {self.hits:6} met: {self.verdicts}"

    def add(self, command: str, fault: Fault, ended: Ended, sound: Ended) -> None:
        """Count one run of a command."""
        self.trials += 1
        self.hits += ended.hits > 0
        if command == "verify" and ended.hits and ended.problem is None:
            came_out = f"{fault.mode}: {_verdict(ended.out) or 'none'}"
            self.verdicts[came_out] = self.verdicts.get(came_out, 0) + 1
        problem = problem_of(command, fault, ended, sound)
        if problem:
            self.problems.append(f"{self.store}: rmqtool {command}, {fault}: {problem}")


def try_store(name: str, store: Path, every: int, drawn: random.Random) -> Tally:
    """One in `every` of all faults of a store."""
    tally, of_files, files = Tally(name), max(1, every // _FAULTS), files_of(store)
    with unchanged(store):
        for command, words in commands(store).items():
            for file in files:
                if drawn.randrange(of_files):
                    continue
                sound = tried(store, words, Fault(file, "changes", since=_WHOLE[1]))
                assert sound.status != Exit.USAGE, words
                for fault in faults_of(store, file, sound.reads) if sound.reads else ():
                    if not drawn.randrange(every // of_files):
                        tally.add(command, fault, tried(store, words, fault), sound)
    return tally


def all_names() -> list[str]:
    """The golden stores, those of whole brokers with other files than log and queues among them."""
    more = sorted(path.name.removesuffix(".tar.xz") for path in (stores.HERE / "more").glob("*.tar.xz"))
    return [*stores.names(), *(f"more/{name}" for name in more)]


def _tally(name: str, given: argparse.Namespace, directory: Path) -> Tally:
    return try_store(name, stores.unpack(name, directory), given.every, random.Random(f"{SEED} {name}"))


if __name__ == "__main__":
    sys.exit(Trials("tests.faults.reading", "of all faults", "reads", all_names, _tally).main())
