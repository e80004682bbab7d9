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
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, NamedTuple

import pyarrow as pa

import rmqtool
from rmqtool.copy.manifest import Manifest, read_manifest
from rmqtool.copy.objects import read_remote_manifest
from rmqtool.copy.order import Step
from rmqtool.copy.run import Copying
from rmqtool.salvage.new_store import partial_directory
from tests.commands.running import rmqtool as run
from tests.commands.running import spawn
from tests.copies import copied
from tests.other_machines.conftest import remote
from tests.other_machines.servers import s3_server, s3_uri
from tests.real_broker.harness import Harness, HarnessError

ROCKSDB = {"storeType": "defaultRocksDB"}
LOAD = {
    **dict.fromkeys(("mappedFileSizeCommitLog", "mapedFileSizeCommitLog"), str(1 << 20)),
    **dict.fromkeys(("mappedFileSizeConsumeQueue", "mapedFileSizeConsumeQueue"), "6000"),
    "maxHashSlotNum": "50000",
    "maxIndexNum": "400000",  # is not full before the copies: in production a file takes hours
    # Instead of 60 s and 10 s: a copy of seconds stands for one of minutes.
    **dict.fromkeys(("flushConsumeQueueThoroughInterval", "flushCommitLogThoroughInterval"), "2000"),
}
CLEANING = {  # a few files at a time (4.9.7: ten) of a log that has more than 24: about as many as it gets
    "harnessCleansAbove": "24",
    "deleteFileBatchMax": "2",
    "deleteConsumeQueueFilesInterval": "10",
    "fileReservedTime": "0",
    "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
    "cleanResourceInterval": "3600000",
    # Files of 120 messages: they roll and are deleted, too.
    **dict.fromkeys(("mappedFileSizeConsumeQueue", "mapedFileSizeConsumeQueue"), "2400"),
}
RATE = 2000  # messages a second
_VERSIONS = ("4.9.7", "5.3.3", "5.5.0")
_UPDATED_AFTER_S = 3.0
_KILLED_AFTER_S = (0.0, 2.0)  # once it has begun to copy
_BEFORE_S = 8.0  # between the start of the load and the first copy
_CLEANING_WITHIN_S = 120
_JUDGED_AT_ONCE = 10  # by one process: 4.9.7 closes no files of a store that it has stopped
_AT_ONCE = 30  # messages of a pull, which ends at the end of a queue file
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
    found = rmqtool.open(root).messages().to_arrow([*Sent._fields[:-1], "keys"])
    stored = found["store_timestamp"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    found = found.set_column(Sent._fields.index("store_timestamp"), "store_timestamp", stored)
    *columns, keys = (column.to_pylist() for column in found.columns)
    return [*map(Sent, *columns, (each[0] for each in keys))]


class Made(NamedTuple):
    """A copy, with the exit status; the log of the store when it was done; the files deleted and begun meanwhile."""

    copy: Path
    status: int
    log: Path
    deleted: int
    rolled: int


def _log_files(root: Path) -> set[str]:
    return {file.name for file in (root / "commitlog").iterdir()}


def _log_now(root: Path, links: Path) -> Path:
    """The files of the log that a store has now whose broker deletes files: as links, which stay."""
    (links / "commitlog").mkdir(parents=True)
    for name in sorted(_log_files(root), reverse=True):  # the oldest are deleted first
        with suppress(FileNotFoundError):
            os.link(root / "commitlog" / name, links / "commitlog" / name)
    return links


def judge(broker: Harness, made: Sequence[Made], settings: dict[str, str]) -> list[Judged]:
    """Start the broker on each copy, and ask for each message that it must have."""
    manifests = [_manifest(each.copy) for each in made]
    wanted = [
        [sent for sent in sent_messages(each.log) if _must_have(sent, manifest)]
        for each, manifest in zip(made, manifests, strict=True)
    ]
    answers = []
    for start in range(0, len(made), _JUDGED_AT_ONCE):
        with TemporaryDirectory(prefix="rmqtool-judged-") as scratch:
            some = slice(start, start + _JUDGED_AT_ONCE)
            stores = [copied(each.copy, Path(scratch, each.copy.name)) for each in made[some]]
            answers += broker.ask_each([*zip(stores, map(_questions, wanted[some]), strict=True)], settings)
    found = []
    for sent, manifest, given in zip(wanted, manifests, answers, strict=True):
        before = sum(each.store_timestamp < manifest.started for each in sent)
        wrong = wrong_answers(sent, [*pulls_of(sent)], sent[::_KEY_ONE_IN], given)
        found.append(Judged(before, len(sent) - before, wrong))
    return found


def _manifest(copy: Path) -> Manifest:
    found = read_manifest(copy)
    assert found
    return found


def _must_have(sent: Sent, manifest: Manifest) -> bool:
    return sent.store_timestamp < manifest.started or sent.physical_offset < manifest.end_offset


def _questions(wanted: Sequence[Sent]) -> dict[str, Any]:
    return {
        "look": [[each.physical_offset] for each in wanted],
        "pull": [[*pull, _AT_ONCE, None] for pull in pulls_of(wanted)],
        "query": [[each.topic, each.key, _AT_ONCE, 0, 1 << 50] for each in wanted[::_KEY_ONE_IN]],
    }


def pulls_of(wanted: Sequence[Sent]) -> Iterator[tuple[str, int, int]]:
    """Topic, queue and offset of pulls that get all of them."""
    offsets: dict[tuple[str, int], list[int]] = {}
    for each in wanted:
        offsets.setdefault((each.topic, each.queue_id), []).append(each.queue_offset)
    for (topic, queue_id), found in sorted(offsets.items()):
        starts = {max(min(found), offset // _AT_ONCE * _AT_ONCE) for offset in found}
        yield from ((topic, queue_id, offset) for offset in sorted(starts))


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
) -> list[Made]:
    """Copy a store while its broker is sent to, then send nothing more.

    A copy of the form ``update`` is made earlier, and brought up to date; one that is ``killed`` is made again; one of
    the form ``s3`` is made on the server at `s3`, brought up to date there, and restored.
    """
    root = scratch / "store"
    root.mkdir()
    made: list[Made] = []
    with broker.hold(root, RATE, settings, many=True):
        time.sleep(_BEFORE_S)
        until = time.monotonic() + _CLEANING_WITHIN_S
        while settings.keys() >= CLEANING.keys() and (root / "commitlog" / f"{0:020}").exists():
            assert time.monotonic() < until, "the cleaner has deleted nothing yet"
            time.sleep(1)
        for number in range(count):
            copy = scratch / f"copy-{number}"
            words: list[str | Path] = ["copy", root, "--output", copy, "--broker-version", broker.version, *options]
            if form == "update":
                run(*words)
                time.sleep(_UPDATED_AFTER_S)
                words.append("--update")
            before = _log_files(root)
            if form == "s3":
                status = _there_and_back(root, copy, s3, words[4:])
            elif form == "killed" and not _killed(copy, *words):
                print("it was done before it was killed", file=sys.stderr)
                continue
            else:
                found = run(*words)
                status = found.status
                if status:
                    print(found.out, found.err, file=sys.stderr)
            log = _log_now(root, scratch / f"log-{number}")
            after = _log_files(log)
            made.append(Made(copy, status, log, len(before - after), len(after - before)))
            time.sleep(1)
    return made


def _killed(copy: Path, *words: str | Path) -> bool:
    """Kill a copy that has begun; whether it was not done by then."""
    with spawn(*words) as process:
        while process.poll() is None and not partial_directory(copy).exists():
            time.sleep(0.01)
        time.sleep(random.uniform(*_KILLED_AFTER_S))
        process.kill()
    return not copy.exists()


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


def _keep(directory: Path) -> None:
    print(f"kept: {copied(directory, Path(mkdtemp(prefix='rmqtool-lost-'), 'all'))}", file=sys.stderr)


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
    parser.add_argument("--limit-rate", default="", help="for the copies: they take longer")
    given = parser.parse_args()
    settings = {**LOAD, **(ROCKSDB if given.rocksdb else {}), **(CLEANING if given.cleaning else {})}
    options = [*(["--raw"] if given.raw else []), *(["--limit-rate", given.limit_rate] if given.limit_rate else [])]
    if given.pause:
        pausing(given.pause)
    files = " log files deleted | new meanwhile |" if given.cleaning else ""
    print(f"| release, form | copies | messages before | later ones |{files} lost |")
    print(f"|---|---|---|---|{'---|' * (files.count('|') + 1)}", flush=True)
    failed = False
    for version in given.versions:
        total, broker = Judged(), Harness(version)
        server = s3_server() if given.form == "s3" else nullcontext("")
        with TemporaryDirectory(prefix="rmqtool-copies-") as directory, server as s3:
            made = copies(broker, Path(directory), given.count, settings, options, given.form, s3)
            try:
                found = judge(broker, made, {**settings, "deleteWhen": "24"})
            except HarnessError:
                _keep(Path(directory))
                raise
            # Without messages from before it proves nothing: the cleaner has deleted all of them meanwhile.
            asked = [each for each, judged in zip(made, found, strict=True) if judged.before]
            for each, judged in zip(made, found, strict=True):
                print(f"{version} {each}: {judged}", file=sys.stderr)
                total.before += judged.before
                total.later += judged.later
                total.wrong += judged.wrong
                failed |= bool(each.status)
            if total.wrong:
                _keep(Path(directory))
        lost = ", ".join(f"{count} {what}" for what, count in sorted(total.wrong.items())) or "nothing"
        name = f"{version}{', RocksDB' if given.rocksdb else ''}{', --raw' if given.raw else ''}"
        name += {"full": "", "update": ", --update", "killed": ", killed and continued", "s3": ", S3"}[given.form]
        name += ", beside the cleaner" if given.cleaning else ""
        name += f", {given.pause:g} s between steps" if given.pause else ""
        if given.cleaning:
            files = f" {sum(each.deleted for each in asked)} | {sum(each.rolled for each in asked)} |"
        print(f"| {name} | {len(asked)} | {total.before} | {total.later} |{files} {lost} |", flush=True)
        failed |= bool(total.wrong)
    sys.exit(failed)


if __name__ == "__main__":
    main()
