"""Cut logs with tasks that a POP consumer has taken, judged by RocketMQ: ``python -m tests.real_broker.popped_cuts``.

A consumer takes tasks, acknowledges some, and takes the others again when they come back. The log is cut among the
tasks, and among what the broker has stored about them. Then each task before the cut that was not acknowledged has to
come, and each new one that is sent in place of one after the cut, but none of those. Prints a row of docs/cut.md for
each release and form.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import rmqtool
from tests.copies import copied
from tests.real_broker.harness import Harness
from tests.real_broker.shop_cuts import cut

IN_ROCKSDB = {"popConsumerKVServiceInit": "true", "popConsumerKVServiceEnable": "true"}
_TOPIC, _TASKS = "tasks", 12
_VERSIONS = ("5.3.3", "5.5.0")


class Popped(NamedTuple):
    """A store whose tasks were taken; those that were acknowledged need not come again."""

    root: Path
    acknowledged: frozenset[str]


def taken_once(broker: Harness, root: Path, settings: dict[str, str]) -> Popped:
    """Tasks, eight of which are taken, and three acknowledged."""
    root.mkdir()
    return Popped(root, frozenset(broker.pop(root, settings)["acknowledged"]))


def taken_twice(broker: Harness, once: Popped, root: Path, settings: dict[str, str]) -> Popped:
    """The same with all the others taken, those that come back again among them, and none of them acknowledged."""
    broker.pop(copied(once.root, root), settings, _TASKS - len(once.acknowledged), acknowledges=False)
    return Popped(root, once.acknowledged)


def places(popped: Popped, before: int = 0) -> Iterator[int]:
    """Where to cut what was stored from an offset on: at each record but the first tasks."""
    tasks = 0
    for each in rmqtool.open(popped.root).messages():
        tasks += each.topic == _TOPIC
        if each.physical_offset >= before and tasks > 1:
            yield each.physical_offset


def end_of(popped: Popped) -> int:
    """Where the last record of a store begins."""
    return max(each.physical_offset for each in rmqtool.open(popped.root).messages())


def wrong_after_cut(broker: Harness, popped: Popped, offset: int, settings: dict[str, str]) -> Counter[str]:
    """Cut a copy, and let the consumer go on: the tasks that do not come, and those that come though they were cut."""
    with TemporaryDirectory(prefix="rmqtool-cut-") as scratch:
        root = copied(popped.root, Path(scratch, "store"))
        tasks = {each.keys[0]: each.physical_offset for each in rmqtool.open(root).messages(topic=_TOPIC)}
        wrong = cut(broker, root, offset)
        left = {key for key, at in tasks.items() if at < offset}
        wanted = left - popped.acknowledged
        facts = broker.pop(root, settings, len(wanted) + _TASKS - len(left))
    came = {*facts["taken"]}
    wrong["tasks that do not come"] = len(wanted - came)
    wrong["new tasks that do not come"] = len({*facts["sent"]} - came)
    wrong["cut tasks that come"] = len(came & (tasks.keys() - left))
    return +wrong


def main() -> None:
    """Judge cuts of each release, and print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*", default=_VERSIONS)
    parser.add_argument("--rocksdb", action="store_true", help="what consumers hold is in RocksDB (kvStore)")
    parser.add_argument("--step", type=int, default=1, help="cut at every STEP-th record")
    given = parser.parse_args()
    settings = IN_ROCKSDB if given.rocksdb else {}
    failed = False
    for version in given.versions:
        broker = Harness(version)
        total, count = Counter[str](), 0
        with TemporaryDirectory(prefix="rmqtool-popped-") as directory:
            once = taken_once(broker, Path(directory, "once"), settings)
            cuts = [(once, offset) for offset in [*places(once)][:: given.step]]
            if not given.rocksdb:  # what came back after the cut does not come again from there
                twice = taken_twice(broker, once, Path(directory, "twice"), settings)
                cuts += [(twice, offset) for offset in [*places(twice, end_of(once))][:: given.step]]
            for popped, offset in cuts:
                wrong = wrong_after_cut(broker, popped, offset, settings)
                print(f"{version} {popped.root.name} {offset}: {dict(wrong)}", file=sys.stderr, flush=True)
                total, count = total + wrong, count + 1
        what = ", ".join(f"{count} {what}" for what, count in sorted(total.items())) or "nothing wrong"
        failed |= bool(total)
        print(f"| {version}, POP{' in RocksDB' if given.rocksdb else ''} | {count} | {what} |", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
