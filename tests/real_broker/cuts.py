"""Cut logs, judged by RocketMQ: ``python -m tests.real_broker.cuts [--count N] [--rocksdb] [VERSION ...]``.

A store of messages of one size is cut at random records, at the ends of its log files and near its end, after a clean
stop and after a kill. The broker of the same release then has to serve all that stands before the cut, and nothing of
the rest: after a start; and after messages of the same size, a kill and two more starts, for that is how a log that the
broker has ended itself goes on into what it had given up. Prints a row of docs/cut.md for each release and form.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.commands.running import rmqtool as run
from tests.copies import copied
from tests.real_broker.copies import LOAD, ROCKSDB, Sent, pulls_of, sent_messages, wrong_answers
from tests.real_broker.harness import Harness

MESSAGES = 6000  # of the store that is cut: several log files
_MORE = 200  # of the same size, after the cut
_FIRST_OF_MORE = 50_000_000
_AT_ONCE = 30  # messages of a pull, which ends at the end of a queue file of 300 units
_KEY_ONE_IN = 7
INDEX_IN_ROCKSDB = {"indexRocksDBEnable": "true", "indexFileReadEnable": "false"}
_VERSIONS = ("4.9.7", "5.3.3", "5.5.0")


def offsets_of(sent: Sequence[Sent], count: int, file_size: int, seed: int) -> list[int]:
    """Where to cut: at the beginnings of log files, near the end, and anywhere between."""
    starts = [each.physical_offset for each in sent]
    borders = [each for each in starts if each and each % file_size == 0]
    chosen = random.Random(seed)
    fixed = [*borders[-2:], starts[-1], starts[-2], starts[len(starts) // 100]][:count]
    return [*fixed, *chosen.sample(starts[1:], count - len(fixed))]


def wrong_after(
    broker: Harness, root: Path, sent: Sequence[Sent], offset: int, settings: dict[str, str], *, has_keys: bool = True
) -> Counter[str]:
    """Start the broker: what it lacks of the messages before an offset, and what it has of those after it."""
    before = [each for each in sent if each.physical_offset < offset]
    after = [each for each in sent if each.physical_offset >= offset]
    pulls, keyed = [*pulls_of(before)], before[::_KEY_ONE_IN] if has_keys else []
    gone = after[::_KEY_ONE_IN]
    last = {(each.topic, each.queue_id): each.queue_offset + 1 for each in before}
    beyond = sorted({(each.topic, each.queue_id) for each in after})
    questions = {
        "look": [[each.physical_offset] for each in before],
        "pull": [
            *([*pull, _AT_ONCE, None] for pull in pulls),
            *([*queue, last.get(queue, 0), len(sent), None] for queue in beyond),
        ],
        "query": [[each.topic, each.key, _AT_ONCE, 0, 1 << 50] for each in (*keyed, *gone)],
    }
    answers = broker.ask(root, questions, settings)
    given = {**answers, "pull": answers["pull"][: len(pulls)], "query": answers["query"][: len(keyed)]}
    wrong = wrong_answers(before, pulls, keyed, given)
    log = {offset for offset, _ in _keys_in(root)}
    for pulled in answers["pull"][len(pulls) :]:  # only what was stored after the cut
        wrong["old messages back in queues"] += sum(each not in log for each in pulled["physical_offsets"])
    wrong["old messages back by key"] += sum(map(len, answers["query"][len(keyed) :]))
    keys = {each.key for each in after}
    wrong["old messages back in the log"] += sum(key in keys for _, key in _keys_in(root))
    return +wrong


def _keys_in(root: Path) -> Iterator[tuple[int, str]]:
    return ((each.physical_offset, each.key) for each in sent_messages(root))


def cut_and_judge(
    broker: Harness, base: Path, sent: Sequence[Sent], offset: int, settings: dict[str, str], *, repeated: bool
) -> Counter[str]:
    """Cut a copy of a store, and start the broker on it: once, or with more messages, a kill and two more starts."""
    with TemporaryDirectory(prefix="rmqtool-cut-") as scratch:
        root = copied(base, Path(scratch, "store"))
        done = run("cut", root, "--at", str(offset), "--yes", "--broker-version", broker.version)
        wrong: Counter[str] = Counter()
        if done.status:
            print(done.out, done.err, file=sys.stderr)
            wrong["cuts that failed"] += 1
        if not repeated:
            return wrong + wrong_after(broker, root, sent, offset, settings)
        broker.write_same(root, _MORE, settings, first=_FIRST_OF_MORE, killed=True)
        for _ in range(2):  # a crash start deletes the newest index file
            wrong += wrong_after(broker, root, sent, offset, settings, has_keys=False)
        return wrong


def main() -> None:
    """Judge cuts of each release, and print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*", default=_VERSIONS)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--rocksdb", action="store_true")
    parser.add_argument("--index", action="store_true", help="keys in RocksDB, from 5.4.0 on")
    given = parser.parse_args()
    settings = {**LOAD, **(ROCKSDB if given.rocksdb else {}), **(INDEX_IN_ROCKSDB if given.index else {})}
    print("| release | cuts | after a clean stop | after a kill | more messages, a kill, two starts |")
    print("|---|---|---|---|---|", flush=True)
    failed = False
    for version in given.versions:
        broker, found = Harness(version), []
        for killed, repeated in ((False, False), (True, False), (False, True)):
            with TemporaryDirectory(prefix="rmqtool-cuts-") as directory:
                base = Path(directory, "store")
                base.mkdir()
                broker.write_same(base, MESSAGES, settings, killed=killed)
                sent = sent_messages(base)
                total: Counter[str] = Counter()
                for offset in offsets_of(sent, given.count, int(settings["mappedFileSizeCommitLog"]), given.count):
                    wrong = cut_and_judge(broker, base, sent, offset, settings, repeated=repeated)
                    print(f"{version} killed={killed} repeated={repeated} {offset}: {dict(wrong)}", file=sys.stderr)
                    total += wrong
                found.append(", ".join(f"{count} {what}" for what, count in sorted(total.items())) or "nothing wrong")
                failed |= bool(total)
        name = f"{version}{', RocksDB' if given.rocksdb else ''}{', index in RocksDB' if given.index else ''}"
        print(f"| {name} | {given.count} | {' | '.join(found)} |", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
