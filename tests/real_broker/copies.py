"""Copies of running brokers, judged by RocketMQ: ``python -m tests.real_broker.copies [--count N] [VERSION ...]``.

A broker takes messages to many queues, and to more and more topics, while its store is copied. The broker of the same
release starts on each copy, and is asked for each message that was stored when the copy began, and for each later one
that the copy has: by its physical offset, by queue and queue offset, and by key. Prints a row of docs/copy.md for each
release and form.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import rmqtool
from rmqtool.copy.manifest import Manifest, read_manifest
from rmqtool.copy.objects import read_remote_manifest
from rmqtool.copy.order import Step
from rmqtool.copy.run import Copying
from tests.commands.running import rmqtool as run
from tests.commands.running import spawn
from tests.copies import copied
from tests.other_machines.conftest import remote
from tests.other_machines.servers import s3_server, s3_uri
from tests.real_broker.harness import Harness

ROCKSDB = {"storeType": "defaultRocksDB"}
LOAD = {
    **dict.fromkeys(("mappedFileSizeCommitLog", "mapedFileSizeCommitLog"), str(1 << 20)),
    **dict.fromkeys(("mappedFileSizeConsumeQueue", "mapedFileSizeConsumeQueue"), "6000"),
    "maxHashSlotNum": "50000",
    "maxIndexNum": "400000",  # is not full before the copies: in production a file takes hours
    # Instead of 60 s and 10 s: a copy of seconds stands for one of minutes.
    **dict.fromkeys(("flushConsumeQueueThoroughInterval", "flushCommitLogThoroughInterval"), "2000"),
}
CLEANING = {  # two files of the log every few seconds: of those of a minute some are left when a copy is done
    "deleteFileBatchMax": "2",
    "fileReservedTime": "0",
    "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
    "cleanResourceInterval": "3000",
}
RATE = 2000  # messages a second
_VERSIONS = ("4.9.7", "5.3.3", "5.5.0")
_UPDATED_AFTER_S = 3.0
_KILLED_AFTER_S = (0.8, 3.0)  # of which one goes by before it copies
_BEFORE_S, _BEFORE_CLEANING_S = 8.0, 66.0  # between the start of the load, or of the cleaner, and the first copy
_AT_ONCE = 30  # messages of a pull, which ends at the end of a queue file of 300 units
_KEY_ONE_IN = 7


class Sent(NamedTuple):
    """A message that a broker has stored."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_timestamp: int
    key: str


@dataclass
class Judged:
    """What a broker does not give of a copy; `before` messages were stored when it began, `later` ones after that."""

    before: int = 0
    later: int = 0
    wrong: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        found = ", ".join(f"{count} {what}" for what, count in sorted(self.wrong.items()))
        return f"{self.before} before, {self.later} later: {found or 'nothing lost'}"


def sent_messages(root: Path) -> list[Sent]:
    """All messages of a store that is stopped, in the order of its log."""
    found = rmqtool.open(root).messages()
    return [
        Sent(each.topic, each.queue_id, each.queue_offset, each.physical_offset,
             int(each.store_timestamp.timestamp() * 1000), each.keys[0])
        for each in found
    ]  # fmt: skip


def _log_now(root: Path, links: Path) -> Path:
    """The files of the log that a store has now whose broker deletes files: as links, which stay."""
    (links / "commitlog").mkdir(parents=True)
    for file in sorted((root / "commitlog").iterdir()):
        with suppress(FileNotFoundError):
            os.link(file, links / "commitlog" / file.name)
    return links


def judge(broker: Harness, copy: Path, sent: Sequence[Sent], settings: dict[str, str]) -> Judged:
    """Start the broker on a copy, and ask for each message that it must have."""
    manifest = read_manifest(copy)
    assert manifest
    wanted = [each for each in sent if _must_have(each, manifest)]
    judged = Judged()
    judged.before = sum(each.store_timestamp < manifest.started for each in wanted)
    judged.later = len(wanted) - judged.before
    pulls = [*pulls_of(wanted)]
    with_keys = wanted[::_KEY_ONE_IN]
    questions = {
        "look": [[each.physical_offset] for each in wanted],
        "pull": [[*pull, _AT_ONCE, None] for pull in pulls],
        "query": [[each.topic, each.key, _AT_ONCE, 0, 1 << 50] for each in with_keys],
    }
    with TemporaryDirectory(prefix="rmqtool-judged-") as scratch:
        answers = broker.ask(copied(copy, Path(scratch, "store")), questions, settings)
    judged.wrong = wrong_answers(wanted, pulls, with_keys, answers)
    return judged


def _must_have(sent: Sent, manifest: Manifest) -> bool:
    return sent.store_timestamp < manifest.started or sent.physical_offset < manifest.end_offset


def pulls_of(wanted: Sequence[Sent]) -> Iterator[tuple[str, int, int]]:
    """Topic, queue and offset of pulls that get all of them."""
    offsets: dict[tuple[str, int], list[int]] = {}
    for each in wanted:
        offsets.setdefault((each.topic, each.queue_id), []).append(each.queue_offset)
    for (topic, queue_id), found in sorted(offsets.items()):
        yield from ((topic, queue_id, offset) for offset in range(min(found), max(found) + 1, _AT_ONCE))


def wrong_answers(
    wanted: Sequence[Sent], pulls: Sequence[tuple[str, int, int]], with_keys: Sequence[Sent], answers: dict[str, Any]
) -> Counter[str]:
    """What a broker does not give of the wanted messages, by its answers."""
    wrong: Counter[str] = Counter()
    for each, looked in zip(wanted, answers["look"], strict=True):
        place = (each.topic, each.queue_id, each.queue_offset, each.physical_offset)
        names = ("topic", "queue_id", "queue_offset", "physical_offset")
        wrong["records"] += looked is None or tuple(looked[name] for name in names) != place
    given: dict[tuple[str, int, int], int] = {}
    for (topic, queue_id, offset), pulled in zip(pulls, answers["pull"], strict=True):
        for number, physical_offset in enumerate(pulled["physical_offsets"]):
            given[topic, queue_id, offset + number] = physical_offset
    for each in wanted:
        found = given.get((each.topic, each.queue_id, each.queue_offset))
        wrong["queue entries"] += found is None
        wrong["other messages"] += found is not None and found != each.physical_offset
    for each, queried in zip(with_keys, answers["query"], strict=True):
        if each.physical_offset not in queried and not wrong["keys"]:
            print(f"first lost key: {each}", file=sys.stderr)
        wrong["keys"] += each.physical_offset not in queried
    return +wrong


def copies(
    broker: Harness,
    scratch: Path,
    count: int,
    settings: dict[str, str],
    options: Sequence[str],
    form: str = "full",
    s3: str = "",
) -> Iterator[tuple[Path, int, Path]]:
    """Copy a store while its broker is sent to; the copies with the exit statuses, then nothing more is sent.

    Each with a store that has the log it is compared with: of one that is cleaned meanwhile, the log that it still had
    when the copy was done.

    A copy of the form ``update`` is made earlier, and brought up to date; one that is ``killed`` is made again; one of
    the form ``s3`` is made on the server at `s3`, brought up to date there, and restored.
    """
    root = scratch / "store"
    root.mkdir()
    made: list[tuple[Path, int, Path]] = []
    is_cleaning = settings.keys() >= CLEANING.keys()
    with broker.hold(root, RATE, settings, many=True):
        time.sleep(_BEFORE_CLEANING_S if is_cleaning else _BEFORE_S)
        for number in range(count):
            copy = scratch / f"copy-{number}"
            words: tuple[str | Path, ...] = (
                "copy",
                root,
                "--output",
                copy,
                "--broker-version",
                broker.version,
                *options,
            )
            if form == "s3":
                made.append((copy, _there_and_back(root, copy, s3, words[4:]), root))
                continue
            if form == "update":
                run(*words)
                time.sleep(_UPDATED_AFTER_S)
                words = (*words, "--update")
            elif form == "killed":
                with spawn(*words) as process:
                    time.sleep(random.uniform(*_KILLED_AFTER_S))
                    process.kill()
            found = run(*words) if form != "killed" or not copy.exists() else None
            if found is None:
                print("it was done before it was killed", file=sys.stderr)
                continue
            if found.status:
                print(found.out, found.err, file=sys.stderr)
            made.append((copy, found.status, _log_now(root, scratch / f"log-{number}") if is_cleaning else root))
            time.sleep(1)
    yield from made


def _there_and_back(root: Path, copy: Path, s3: str, words: Sequence[str | Path]) -> int:
    """Make a copy on an S3 server, bring it up to date, and restore it with its manifest; the exit status."""
    uri = s3_uri(s3, copy.name)
    first = run("copy", root, "--output", uri, *words)
    time.sleep(_UPDATED_AFTER_S)
    found = run("copy", root, "--output", uri, "--update", "--prune", *words)
    print(first.err, found.out, found.err, file=sys.stderr)
    back = run("copy", uri, "--output", copy, "--yes")
    manifest = read_remote_manifest(remote(uri))
    assert manifest
    manifest.write(copy)
    return first.status or found.status or back.status


def pausing(seconds: float) -> None:
    """Let time go by after each step of a copy."""
    step = Copying._copy_step

    def slow(self: Copying, name: Step) -> None:
        step(self, name)
        time.sleep(seconds)

    Copying._copy_step = slow  # type: ignore[assignment,method-assign]


def main() -> None:
    """Judge copies of each release, and print what is missing in them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*", default=_VERSIONS)
    parser.add_argument("--count", type=int, default=3)
    parser.add_argument("--rocksdb", action="store_true")
    parser.add_argument("--raw", action="store_true")
    parser.add_argument("--cleaning", action="store_true", help="the broker deletes old files meanwhile")
    parser.add_argument("--form", choices=["full", "update", "killed", "s3"], default="full")
    parser.add_argument("--pause", type=float, default=0, help="between two steps: stands for a large store (s)")
    given = parser.parse_args()
    settings = {**LOAD, **(ROCKSDB if given.rocksdb else {}), **(CLEANING if given.cleaning else {})}
    if given.pause:
        pausing(given.pause)
    print("| release | copies | messages before | later ones | lost |\n|---|---|---|---|---|")
    failed = False
    for version in given.versions:
        total, broker, asked = Judged(), Harness(version), 0
        server = s3_server() if given.form == "s3" else nullcontext("")
        with TemporaryDirectory(prefix="rmqtool-copies-") as directory, server as s3:
            options = ["--raw"] if given.raw else []
            made = [*copies(broker, Path(directory), given.count, settings, options, given.form, s3)]
            for copy, status, root in made:
                judged = judge(broker, copy, sent_messages(root), {**LOAD, **settings, "deleteWhen": "24"})
                print(f"{version} {copy.name}: {judged}; exit {status}", file=sys.stderr)
                asked += judged.before > 0  # else the cleaner has deleted all of them meanwhile
                total.before += judged.before
                total.later += judged.later
                total.wrong += judged.wrong
                failed |= bool(status)
        lost = ", ".join(f"{count} {what}" for what, count in sorted(total.wrong.items())) or "nothing"
        name = f"{version}{', RocksDB' if given.rocksdb else ''}{', --raw' if given.raw else ''}"
        name += {"full": "", "update": ", --update", "killed": ", killed and continued", "s3": ", S3"}[given.form]
        name += ", beside the cleaner" if given.cleaning else ""
        name += f", {given.pause:g} s between steps" if given.pause else ""
        print(f"| {name} | {asked} | {total.before} | {total.later} | {lost} |", flush=True)
        failed |= bool(total.wrong)
    sys.exit(failed)


if __name__ == "__main__":
    main()
