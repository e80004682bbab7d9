"""Copies of a broker with clients of all sorts, judged by RocketMQ: ``python -m tests.real_broker.copies_of_clients``.

Clients send orders, which a group consumes, delayed and timer messages, half messages, which they commit, roll back, or
answer for when they are asked, and tasks, which a POP consumer takes and acknowledges or not. The broker of the same
release starts on each copy: what was sent before the copy began, and not done with when it was complete, has to come to
these clients. Prints a row of docs/copy.md for each release and form.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from rmqtool.copy.manifest import read_manifest
from tests.commands.running import rmqtool as run
from tests.copies import copied
from tests.real_broker.copies import LOAD, ROCKSDB, pausing
from tests.real_broker.harness import Harness
from tests.real_broker.popped_cuts import IN_ROCKSDB as POPS_IN_ROCKSDB
from tests.real_broker.shop_cuts import HALVES_IN_ROCKSDB

SETTINGS = {
    **LOAD,
    "messageDelayLevel": "1s 5s 10s 30s",
    **dict.fromkeys(("transactionTimeOut", "transactionCheckInterval"), "2000"),
    "transactionCheckMax": "1000",  # nobody gives one up
}
SIDE = {**POPS_IN_ROCKSDB, **HALVES_IN_ROCKSDB, "timerRocksDBEnable": "true", "indexRocksDBEnable": "true"}
_VERSIONS = ("4.9.7", "5.3.3", "5.5.0")
_BEFORE_S = 10.0  # between the start of the clients and the first copy
_END = 1 << 62  # after everything
Known = Mapping[str, Mapping[str, int]]
Keys = dict[str, set[str]]


class Made(NamedTuple):
    """A copy, and when it was asked for and complete: ms since the epoch."""

    copy: Path
    began: int
    ended: int


@dataclass
class Judged:
    """What a copy must have for clients, and what of that does not come, or comes though it must not.

    Tasks that the broker of the source does not deliver either are counted apart: its POP loses some without any copy.
    Acknowledged ones may come `again`.
    """

    wanted: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    lost_by_source: int = 0
    again: int = 0

    def __add__(self, other: Judged) -> Judged:
        lost, again = self.lost_by_source + other.lost_by_source, self.again + other.again
        return Judged(self.wanted + other.wanted, self.wrong + other.wrong, lost, again)


def copies(
    broker: Harness, scratch: Path, count: int, settings: Mapping[str, str], options: Sequence[str]
) -> tuple[list[Made], Known]:
    """Copy a store whose clients are at work; what these knew in the end."""
    made = []
    root = scratch / "store"
    root.mkdir()
    with broker.trade(root, {**SETTINGS, **settings}) as known:
        time.sleep(_BEFORE_S)
        for number in range(count):
            copy = scratch / f"copy-{number}"
            done = run("copy", root, "--output", copy, "--broker-version", broker.version, *options)
            assert done.status == 0, (done.out, done.err)
            manifest = read_manifest(copy)
            assert manifest
            made.append(Made(copy, manifest.started, time.time_ns() // 1_000_000))
    return made, known


def _before(times: Mapping[str, int], end: int) -> set[str]:
    return {key for key, at in times.items() if at < end}


def wanted_of(made: Made, known: Known) -> Keys:
    """The keys that have to come: sent before the copy began, and not done with before it was complete."""
    sent = {
        kind: _before(known.get(kind, {}), made.began) for kind in ("orders", "delayed", "timers", "halves", "tasks")
    }
    done = {kind: _before(known.get(kind, {}), made.ended) for kind in ("consumed", "acknowledged", "rolled back")}
    return {
        "orders": sent["orders"] - done["consumed"],
        "reminders": sent["delayed"] | sent["timers"],
        "halves": sent["halves"] - done["rolled back"],
        "tasks": sent["tasks"] - done["acknowledged"],
    }


def _rest(broker: Harness, made: Made, known: Known, settings: Mapping[str, str]) -> tuple[Keys, Keys]:
    """Let the clients go on with a copy, or with the store: all that comes, and what does not come of what has to."""
    wanted = wanted_of(made, known)
    with TemporaryDirectory(prefix="rmqtool-judged-") as scratch:
        root = copied(made.copy, Path(scratch, "store"))
        came = broker.rest_of_trade(root, {**SETTINGS, **settings}, wanted)
    return {kind: {*keys} for kind, keys in came.items()}, {
        kind: keys - came.get(kind, {}).keys() for kind, keys in wanted.items()
    }


def judge(broker: Harness, made: Made, source: Path, known: Known, settings: Mapping[str, str]) -> Judged:
    """What clients lose by a copy of `source`, a store that was stopped later."""
    came, missing = _rest(broker, made, known, settings)
    lost_by_source = set[str]()
    if missing["tasks"]:
        lost_by_source = missing["tasks"] & _rest(broker, Made(source, _END, _END), known, settings)[1]["tasks"]
        missing["tasks"] -= lost_by_source
    wrong = {f"{kind} that do not come": len(keys) for kind, keys in missing.items()}
    rolled_back = _before(known.get("rolled back", {}), made.began)
    wrong["rolled back, and delivered"] = len(rolled_back & came.get("vouchers", set()))
    acknowledged = _before(known.get("acknowledged", {}), made.began)
    wanted = Counter({kind: len(keys) for kind, keys in wanted_of(made, known).items()})
    return Judged(wanted, +Counter(wrong), len(lost_by_source), len(acknowledged & came.get("tasks", set())))


def main() -> None:
    """Judge copies of each release, and print what does not come from them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*", default=_VERSIONS)
    parser.add_argument("--count", type=int, default=3)
    parser.add_argument("--rocksdb", action="store_true", help="queues in RocksDB")
    parser.add_argument("--side", action="store_true", help="what waits is in RocksDB (5.5.0)")
    parser.add_argument("--raw", action="store_true")
    parser.add_argument("--pause", type=float, default=0.5, help="between two steps: stands for a large store (s)")
    given = parser.parse_args()
    settings = {**(ROCKSDB if given.rocksdb else {}), **(SIDE if given.side else {})}
    options = ["--raw"] if given.raw else []
    pausing(given.pause)
    kinds: Collection[str] = ("orders", "reminders", "halves", "tasks")
    print(f"| release, form | copies | {' | '.join(kinds)} | wrong |", flush=True)
    failed = False
    for version in given.versions:
        total, broker = Judged(), Harness(version)
        with TemporaryDirectory(prefix="rmqtool-copies-") as directory:
            made, known = copies(broker, Path(directory), given.count, settings, options)
            for each in made:
                judged = judge(broker, each, Path(directory, "store"), known, settings)
                print(f"{version} {each.copy.name}: {judged}", file=sys.stderr, flush=True)
                total += judged
        form = f"{', RocksDB' if given.rocksdb else ''}{', what waits in RocksDB' if given.side else ''}"
        wrong = ", ".join(f"{count} {what}" for what, count in sorted(total.wrong.items())) or "nothing"
        numbers = " | ".join(str(total.wanted[kind]) for kind in kinds)
        raw = ", --raw" if given.raw else ""
        print(f"| {version}{form}{raw} | {len(made)} | {numbers} | {wrong} |", flush=True)
        failed |= bool(total.wrong)
    sys.exit(failed)


if __name__ == "__main__":
    main()
