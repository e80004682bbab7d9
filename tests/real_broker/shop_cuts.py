"""Cut logs with timers or half messages in RocksDB, judged by RocketMQ: ``python -m tests.real_broker.shop_cuts``.

The log of a shop is cut among the timer messages and half messages, and among what the broker has stored about them.
Then each timer message before the cut has to be delivered that waits, or whose delivery was cut off, and producers have
to be asked about each half message whose answer is not before the cut. Nothing of the rest comes. Prints rows of
docs/cut.md.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import rmqtool
from rmqtool.formats.properties import ENDED_HALF, TIMER_DUE
from rmqtool.rules.system_topics import ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC, TIMER_TOPIC
from tests.commands.running import rmqtool as run
from tests.copies import copied
from tests.golden import stores
from tests.golden.rocksdb import ROCKSDB
from tests.real_broker.harness import Harness

SIDE = "more/5.5.0-rocksdb-side"
HALVES_IN_ROCKSDB = {"transRocksDBEnable": "true", "transWriteOriginTransHalfEnable": "false"}
_ASKING = {**HALVES_IN_ROCKSDB, "transactionCheckInterval": "3000"}
_VERSION = "5.5.0"
Places = Callable[[Path], list[int]]
Wrong = Callable[[Harness, Path, int], Counter[str]]


def store_with_timers(scratch: Path) -> Path:
    """One of a broker of days ago: one timer was delivered, two are due by now."""
    return stores.unpack(SIDE, scratch)


def store_with_halves(broker: Harness, scratch: Path) -> Path:
    """Half messages, most of which are answered."""
    root = scratch / "store"
    root.mkdir()
    broker.write_shop(root, HALVES_IN_ROCKSDB)
    return root


def places_of_timers(root: Path) -> list[int]:
    """Where to cut: at timer messages and their deliveries."""
    return [each.physical_offset for each in rmqtool.open(root).messages() if TIMER_DUE in each.properties]


def places_of_halves(root: Path) -> list[int]:
    """Where to cut: at half messages and their answers."""
    topics = ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC
    return [each.physical_offset for each in rmqtool.open(root).messages() if each.topic in topics]


def cut(broker: Harness, root: Path, offset: int) -> Counter[str]:
    """Cut a store; what is wrong with that."""
    done = run("cut", root, "--at", str(offset), "--yes", "--broker-version", broker.version)
    checked = run("verify", root, "--broker-version", broker.version)
    if done.status or checked.status:
        print(done.out, done.err, checked.out, file=sys.stderr)
    return Counter({"cuts that failed": int(done.status != 0), "cuts with findings": int(checked.status != 0)})


def wrong_timers(broker: Harness, source: Path, offset: int) -> Counter[str]:
    """Cut a copy, and let the broker go on: what it delivers then, by its log."""
    with TemporaryDirectory(prefix="rmqtool-cut-") as scratch:
        root = copied(source, Path(scratch, "store"))
        timers, delivered = _timers(root)
        left = {key for key, at in timers.items() if at < offset}
        wrong = cut(broker, root, offset)
        broker.write_shop(root, ROCKSDB[SIDE])
        came = {key for key, at in _timers(root)[1].items() if at >= offset}
    wrong["timers that do not come"] = len(left - came - {key for key, at in delivered.items() if at < offset})
    wrong["cut timers that come"] = len(came & (timers.keys() - left))
    return +wrong


def _timers(root: Path) -> tuple[dict[str, int], dict[str, int]]:
    """The last physical offsets of timer messages, waiting and delivered ones, by their unique keys."""
    found: tuple[dict[str, int], dict[str, int]] = {}, {}
    for each in rmqtool.open(root).messages():
        if TIMER_DUE in each.properties:
            found[each.topic != TIMER_TOPIC][each.unique_key or ""] = each.physical_offset
    return found


def wrong_halves(broker: Harness, source: Path, offset: int) -> Counter[str]:
    """Cut a copy, and let the broker ask."""
    with TemporaryDirectory(prefix="rmqtool-cut-") as scratch:
        root = copied(source, Path(scratch, "store"))
        messages = [*rmqtool.open(root).messages()]
        ended = {int(each.properties[ENDED_HALF]) for each in messages
                 if ENDED_HALF in each.properties and each.physical_offset < offset}  # fmt: skip
        halves = [each for each in messages if each.topic == ROCKSDB_HALF_TOPIC]
        left = {each.unique_key for each in halves if each.physical_offset < offset
                and each.physical_offset not in ended}  # fmt: skip
        gone = {each.unique_key for each in halves if each.physical_offset >= offset}
        wrong = cut(broker, root, offset)
        asked = {*broker.write_shop(root, _ASKING)["keys"].get("asked", [])}
    wrong["half messages that nobody is asked about"] = len(left - asked)
    wrong["cut half messages that somebody is asked about"] = len(gone & asked)
    return +wrong


def main() -> None:
    """Judge cuts of each kind, and print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--step", type=int, default=1, help="cut at every STEP-th place")
    given, broker, failed = parser.parse_args(), Harness(_VERSION), False
    with TemporaryDirectory(prefix="rmqtool-shop-") as timers, TemporaryDirectory(prefix="rmqtool-shop-") as halves:
        kinds: Mapping[str, tuple[Path, Places, Wrong]] = {
            "timers": (store_with_timers(Path(timers)), places_of_timers, wrong_timers),
            "half messages": (store_with_halves(broker, Path(halves)), places_of_halves, wrong_halves),
        }
        for kind, (root, places_of, wrong_of) in kinds.items():
            offsets = places_of(root)[:: given.step]
            total: Counter[str] = Counter()
            for offset in offsets:
                wrong = wrong_of(broker, root, offset)
                print(f"{kind} {offset}: {dict(wrong)}", file=sys.stderr, flush=True)
                total += wrong
            what = ", ".join(f"{count} {what}" for what, count in sorted(total.items())) or "nothing wrong"
            print(f"| {_VERSION}, {kind} in RocksDB | {len(offsets)} | {what} |", flush=True)
            failed |= bool(total)
    sys.exit(failed)


if __name__ == "__main__":
    main()
