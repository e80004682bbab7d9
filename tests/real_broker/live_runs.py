"""Commands in turns beside brokers that take messages: `python -m tests.real_broker.live_runs [--minutes N] [FORM...]`.

What they say of a store that is sound and grows: no finding above information, no damage, each message that they are
asked for; and they need no more memory at the end than at the beginning.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from tests.real_broker.harness import LONG_LIVED, Harness
from tests.trust import results

_RATE = 1000  # messages a second
_CONF = "broker.conf"
_TOPICS = 500  # one for each 8,000 messages: more than an hour
_MORE_MEMORY = 1.25
"""By so much a command may need more memory at the end; its log is several times as long then."""
_CACHE = 16 << 10
"""KiB of data that the reader of RocksDB keeps: none until the broker writes its first table (`store.rocksdb`)."""
_ROCKSDB = {"storeType": "defaultRocksDB", **LONG_LIVED}


@contextmanager
def _alone(broker: Harness, root: Path, settings: dict[str, str]) -> Iterator[list[Path]]:
    store = root / "store"
    (store / "config").mkdir(parents=True)
    topics = {name: {"topicName": name, "readQueueNums": 16, "writeQueueNums": 16, "perm": 6}
              for name in (f"load-{number}" for number in range(_TOPICS))}  # fmt: skip
    # From rows of topics that it does not know, a broker frees RocksDB every hour (`cleanRocksDBDirtyCQIntervalMin`).
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    (root / _CONF).write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    with broker.hold(store, _RATE, settings, many=True):
        yield [store]


@dataclass(frozen=True)
class Form:
    """A release, and what runs of it."""

    version: str
    what: str
    held: Callable[[Harness, Path], Any]
    """Yields the stores, of which the first takes messages."""
    shows_entries: bool = True
    """Whether queue entries are in the store at once: RocksDB has those of a running broker in memory."""


FORMS: Mapping[str, Form] = {
    "files": Form("4.9.7", "queues in files", lambda broker, root: _alone(broker, root, LONG_LIVED)),
    "rocksdb": Form("5.5.0", "queues in RocksDB", lambda broker, root: _alone(broker, root, _ROCKSDB), False),
    "slave": Form("5.3.3", "a master and its slave", lambda broker, root: broker.hold_pair(root, "Slave", _RATE)),
    "controller": Form("5.5.0", "a master and a slave under a controller",
                       lambda broker, root: broker.hold_pair(root, "Pair", _RATE)),
}  # fmt: skip


@dataclass
class Tally:
    """What came out of the runs beside one form: how many of each command, their peaks in KiB, and what was wrong."""

    conf: Path
    runs: Counter[str] = field(default_factory=Counter)
    peaks: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    problems: list[str] = field(default_factory=list)
    drawn: random.Random = field(default_factory=lambda: random.Random(1))

    def run(self, store: Path, command: str, *words: object) -> Any:
        """The lines, or the document, that a command prints as JSON; its status and its memory are counted."""
        conf = ["--broker-conf", str(self.conf)] if self.conf.exists() else []
        line = [sys.executable, "-m", "rmqtool", command, str(store), *map(str, words), *conf, "--json"]
        process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        printed = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.runs[command] += 1
        self.peaks[f"{command} {' '.join(map(str, words[:1]))}".strip()].append(used.ru_maxrss)
        lines = [json.loads(each) for each in printed.splitlines()] if command == "query" else None
        document = json.loads(printed) if lines is None else {}
        gaps = (document.get("result") or {}).get("not_checked")
        found = (_serious(document) or document.get("error") or gaps) if document else lines
        self.check(not process.returncode, f"{command} {store.name}: status {process.returncode}: {found}")
        return document if lines is None else lines

    def check(self, is_right: bool, problem: str) -> None:
        """Note a problem."""
        if not is_right:
            self.problems.append(problem)

    def growth(self, cache: int = 0) -> float:
        """The most that a command needs in the last third of its runs, compared with the first; too much is a problem.

        A `cache`, in KiB, may have been filled since.
        """
        found = []
        for command, peaks in self.peaks.items():
            third = len(peaks) // 3 or 1
            first, last = max(peaks[:third]), max(peaks[-third:])
            found.append(round(last / first, 2))
            is_flat = last - cache <= _MORE_MEMORY * first
            self.check(is_flat, f"{command}: {first >> 10} MiB, {last >> 10} MiB at the end")
        return max(found)


def _turn(store: Path, output: Path, tally: Tally, *, shows_entries: bool) -> None:
    """Each command once."""
    verified = tally.run(store, "verify")
    if serious := _serious(verified):
        # A record may be read while it is written, however unlikely; what is wrong with a store stays wrong.
        again = _serious(tally.run(store, "verify"))
        tally.check(serious.isdisjoint(again), f"verify {store.name}: {sorted(serious & again)}")
    overview = tally.run(store, "inspect", "--scan")["result"]
    damage, end = overview["scan"]["damage"], overview["commit_log"]["max_offset"]
    tally.check(not damage["count"], f"inspect {store.name}: {damage}")
    if end <= 0:
        return  # a slave that has just begun
    start = tally.drawn.randrange(end)
    for found in tally.run(store, "query", "--scan", "--from-offset", start, "--limit", "3"):
        place = "--topic", found["topic"], "--queue", found["queue_id"], "--queue-offset", found["queue_offset"]
        for message in tally.run(store, "query", *place) if shows_entries else ():
            tally.check(message["physical_offset"] == found["physical_offset"], f"query {store.name}: {place}")
        keyed = tally.run(store, "query", "--key", *found["keys"][:1], "--topic", found["topic"])
        is_found = found["physical_offset"] in [each["physical_offset"] for each in keyed]
        tally.check(is_found, f"query {store.name}: key {found['keys']}")
    tally.check(tally.run(store, "status")["result"]["broker"]["running"], f"status {store.name}: does not run")
    _export(store, output, tally)


def _export(store: Path, output: Path, tally: Tally) -> None:
    mode = ("--mode", "incremental") if output.exists() else ()
    tally.run(store, "export", *mode, "--output", output, "--engine", "local")


def _serious(document: dict[str, Any]) -> set[tuple[str, ...]]:
    findings = [finding for finding in document["findings"] if finding["severity"] != "info"]
    return {(finding["code"], str(finding["file"]), str(finding["offset"])) for finding in findings}


def try_form(name: str, minutes: float) -> dict[str, Any]:
    """Run the commands in turns beside one form; the figures."""
    form = FORMS[name]
    with tempfile.TemporaryDirectory(prefix="rmqtool-live-") as directory:
        root = Path(directory)
        tally = Tally(root / _CONF)
        with form.held(Harness(form.version), root) as stores:
            deadline = time.monotonic() + 60 * minutes
            while time.monotonic() < deadline:
                for store in stores:
                    _turn(store, root / f"{store.name}.out", tally, shows_entries=form.shows_entries)
        messages = tally.run(stores[0], "verify")["result"]["messages"]
        for store in stores:
            output = root / f"{store.name}.out"
            _export(store, output, tally)
            rows = ds.dataset(output, exclude_invalid_files=True).count_rows()
            tally.check(rows == messages, f"export {store.name}: {rows} of {messages} messages")
    growth = tally.growth(0 if form.shows_entries else _CACHE)
    return {"form": form.what, "version": form.version, "minutes": minutes, "messages": messages,
            "runs": sum(tally.runs.values()), "memory": growth, "problems": tally.problems}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the forms; print, and with `--record` keep, the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("forms", nargs="*", choices=[[], *FORMS], default=[])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args(arguments)
    begin, rows = time.monotonic(), []
    for name in given.forms or FORMS:
        rows.append(try_form(name, given.minutes))
        print(json.dumps(rows[-1]), flush=True)
    wrong = any(row["problems"] for row in rows)
    if given.record and not wrong:
        words = f"make live LIVE_MINUTES={given.minutes:g}"
        results.record("live", words, time.monotonic() - begin, "1", rows)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
