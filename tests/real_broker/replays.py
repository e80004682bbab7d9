"""Replays that are killed: ``python -m tests.real_broker.replays [--kills N] [--seed S] [VERSION ...]``.

A store is sent to a real broker; the program is killed at random moments and started again, and now and then the broker
is, too. At the end a real consumer must have each message once, at the place that its receipt names.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.building import LogBuilder
from tests.real_broker.served import NAME_SERVER, Served, served, wait_for
from tests.unchanged import unchanged

VERSIONS = ("4.9.7", "5.1.4", "5.5.0")
TOPIC, QUEUES = "orders", 4
_LATEST_S = 0.6  # after messages have begun to be sent
_PER_KILL = 60  # messages: more than are sent between two kills
_BROKER_ONE_IN = 25


@dataclass
class Outcome:
    """What became of a replay that was killed; each list should be empty."""

    messages: int = 0
    kills: int = 0
    broker_kills: int = 0
    looked_up: int = 0
    lost: list[int] = field(default_factory=list)
    twice: list[int] = field(default_factory=list)
    wrong_receipts: list[int] = field(default_factory=list)
    out_of_order: list[int] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        """Whether each message was sent once, in order, with its receipt."""
        return not (self.lost or self.twice or self.wrong_receipts or self.out_of_order)

    def __str__(self) -> str:
        """One line."""
        wrong = {name: getattr(self, name)[:5] for name in ("lost", "twice", "wrong_receipts", "out_of_order")}
        return (
            f"{self.messages} messages, {self.kills} kills of rmqtool, {self.broker_kills} of the broker, "
            f"{self.looked_up} messages found when looked up; {'all right' if self.is_right else wrong}"
        )


def write_source(root: Path, count: int, chance: random.Random, topic: str = TOPIC, first: int = 0) -> Path:
    """A store of `count` messages in several queues, of several sizes and times; unique keys count from `first` on."""
    log = LogBuilder(file_size=1 << 20)
    offsets: Counter[int] = Counter()
    for number in range(count):
        queue = chance.randrange(QUEUES)
        properties = {
            "UNIQ_KEY": f"{first + number:032X}",
            "KEYS": f"K-{number}",
            "TAGS": chance.choice(("web", "desk")),
        }
        log.add(
            topic=topic,
            queue_id=queue,
            queue_offset=offsets[queue],
            body=chance.randbytes(chance.randrange(1, 300)),
            born_timestamp=1_700_000_000_000 + number // 8,
            store_timestamp=1_700_000_000_001 + number // 8,
            properties=properties,
        )
        offsets[queue] += 1
    return log.write(root)


def killed_replay(version: str, kills: int, seed: int, scratch: Path, per_kill: int = _PER_KILL) -> Outcome:
    """Replay a store, kill rmqtool so many times, let it end, and hold the target to the source."""
    chance = random.Random(seed)
    source = write_source(scratch / "source", kills * per_kill, chance)
    outcome = Outcome(messages=kills * per_kill)
    journal = scratch / "journal.ndjson"
    with unchanged(source), served(version, scratch / "target") as broker:
        broker.declare(TOPIC, QUEUES)
        while outcome.kills < kills:
            if not _kill_once(broker, source, journal, chance, outcome):
                break
        last = broker.replay(source, "--send", "--yes", "--journal", journal, "--patience", "2m")
        if last.returncode != 0:
            raise AssertionError(f"{last.returncode}: {last.stdout}{last.stderr}")
        again = broker.replay(source, "--send", "--yes", "--json", "--journal", journal)
        if json.loads(again.stdout)["result"]["sent"]["messages"]:
            raise AssertionError(again.stdout)
        _judge(broker, journal, outcome)
    return outcome


def _kill_once(broker: Served, source: Path, journal: Path, chance: random.Random, outcome: Outcome) -> bool:
    """Start rmqtool and kill it, or the broker; whether there is still something to send."""
    options = ["--send", "--yes", "--quiet", "--journal", journal, "--batch", chance.choice((1, 4, 16))]
    options += ["--rate", chance.choice(("100/s", "400/s")), *chance.choice(((), ("--no-look-up",)))]
    before = journal.stat().st_size if journal.exists() else 0
    command = broker.command("replay", source, "--nameserver", NAME_SERVER, *options)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        try:
            wait_for(
                "messages that are sent",
                lambda: program.poll() is not None or (journal.exists() and journal.stat().st_size > before),
            )
            time.sleep(chance.uniform(0, _LATEST_S) ** 2)
            if chance.randrange(_BROKER_ONE_IN) == 0 and program.poll() is None:
                outcome.broker_kills += 1
                broker.kill()
                broker.start()
                broker.declare(TOPIC, QUEUES)
                time.sleep(chance.uniform(0, _LATEST_S))
            if program.poll() is not None:
                if program.returncode == 0:
                    return False
                raise AssertionError(f"{program.returncode}: {program.communicate()}")
            outcome.kills += 1
        finally:
            program.kill()
    return True


def _judge(broker: Served, journal: Path, outcome: Outcome) -> None:
    """Compare what a real consumer gets, the source and the receipts."""
    entries = [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]
    outcome.looked_up = sum(entry["kind"] == "sent" and entry["how"] == "found" for entry in entries)
    receipts = {entry["unique_key"]: entry for entry in entries if entry["kind"] == "sent"}
    consumed = broker.consume(TOPIC, outcome.messages)
    counts = Counter(int(each["message_id"], 16) for each in consumed)
    outcome.lost = [number for number in range(outcome.messages) if not counts[number]]
    outcome.twice = [number for number, count in counts.items() if count > 1]
    last: dict[int, int] = {}
    for each in sorted(consumed, key=lambda each: (each["queue_id"], each["queue_offset"])):
        number = int(each["message_id"], 16)
        receipt = receipts.get(each["message_id"], {})
        place = (each["queue_id"], each["queue_offset"])
        if (receipt.get("queue_id"), receipt.get("queue_offset")) != place:
            outcome.wrong_receipts.append(number)
        if last.get(each["queue_id"], -1) > number:
            outcome.out_of_order.append(number)
        last[each["queue_id"]] = number


def main(arguments: Sequence[str]) -> int:
    """Run the command line; 1 when a replay has lost a message or sent one twice."""
    parser = argparse.ArgumentParser(prog="python -m tests.real_broker.replays", description=__doc__)
    parser.add_argument("--kills", type=int, default=70, help="kills of rmqtool for each release")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("versions", nargs="*", default=VERSIONS, metavar="VERSION")
    given = parser.parse_args(arguments)
    is_right = True
    for version in given.versions:
        with TemporaryDirectory(prefix="rmqtool-replays-") as scratch:
            outcome = killed_replay(version, given.kills, given.seed, Path(scratch))
        print(f"{version}: {outcome}", flush=True)
        is_right &= outcome.is_right
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
