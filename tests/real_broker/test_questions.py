"""Queries by key, looks by offset, pulls and offsets by time: the same as the real releases, on the same store."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqtool.broker.offset_by_time import QueueTimes
from rmqtool.formats.consume_queue import build_unit
from rmqtool.formats.file_name import file_name
from rmqtool.formats.java import string_hash
from rmqtool.rules.versions import TIME_BY_RECORDS, parse_version
from rmqtool.scan.message_rows import message_dicts
from rmqtool.scan.single_record import record_at
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from tests.building import START_TIME, LogBuilder, message
from tests.copies import copied
from tests.golden import stores
from tests.real_broker.answers import pull
from tests.real_broker.harness import VERSIONS, Harness
from tests.unchanged import unchanged

pytestmark = pytest.mark.broker

Questions = dict[str, list[list[Any]]]

MAXIMA = (1, 2, 3, 7, 32, 64, 900)
TAGS = (None, ["Aa"], ["BB"], ["Aa", "remind"], ["d"], ["nobody"])
LIMITS = (1, 2, 5, 64, 10_000)
_END_OF_TIME = 1 << 60
_KEYS = 120  # of a store that are asked for
_QUEUE_OFFSETS = 14  # of a queue


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("version", "scenario"),
    [
        *((version, scenario) for version in VERSIONS for scenario in ("clean", "trimmed")),
        *((version, "killed") for version in ("4.4.0", "4.9.7", "5.5.0")),
    ],
)
def test_answers_are_those_of_the_release(
    harness: Callable[[str], Harness], version: str, scenario: str, tmp_path: Path
) -> None:
    """Every question has the answer of the release; of a killed store, as its recovery leaves it."""
    root = stores.unpack(f"{version}-{scenario}", tmp_path)
    says = stores.oracle(f"{version}-{scenario}")
    asked = questions(says["recovered" if scenario == "killed" else "queues"], says, version)
    copy = tmp_path / "copy"
    copied(root, copy)  # keeps modification times, by which releases before 5.1.1 choose a file
    expected = harness(version).ask(copy, asked)
    store = copy if scenario == "killed" else root
    with unchanged(store):
        found = answers(store, version, asked)
    assert all(asked.values())
    assert_same(asked, found, expected)


@pytest.mark.parametrize("version", VERSIONS)
def test_long_pulls_and_gaps(harness: Callable[[str], Harness], version: str, tmp_path: Path) -> None:
    """A queue longer than what one pull looks at, over a log of which two files are missing."""
    root = long_store(tmp_path / "store")
    asked: Questions = {"query": [], "look": [], "pull": [], "time": []}
    for offset in (0, 1, 7, 100, 399, 400, 401, 700, 1199, 1200, 2100, LONG - 801, LONG - 2, LONG - 1, LONG, LONG + 1):
        for tags in (None, ["rare"], ["often"], ["nobody"]):
            for most in (1, 32, 33, 799, 800, 801, 1000):
                asked["pull"].append(["orders", 0, offset, most, tags])
    for number in range(0, LONG, 97):
        for moment in (START_TIME + 10 * number, START_TIME + 10 * number + 3):
            for boundary in [None, "LOWER", "UPPER"] if parse_version(version) > TIME_BY_RECORDS else [None]:
                asked["time"].append(["orders", 0, moment, boundary])
    copy = tmp_path / "copy"
    copied(root, copy)
    expected = harness(version).ask(copy, asked, {**LONG_GEOMETRY, "mapedFileSizeConsumeQueue": str(LONG_QUEUE_FILE)})
    with unchanged(root):
        found = answers(root, version, asked)
    assert_same(asked, found, expected)
    statuses = {answer["status"] for answer in found["pull"]}
    assert {"FOUND", "NO_MATCHED_MESSAGE", "MESSAGE_WAS_REMOVING", "OFFSET_OVERFLOW_ONE"} <= statuses


LONG = 2500  # messages
LONG_QUEUE_FILE = 36_000  # bytes: 1,800 units
LONG_GEOMETRY = {"mappedFileSizeConsumeQueue": str(LONG_QUEUE_FILE)}


def long_store(root: Path) -> Path:
    """A log of small messages in one queue, most of them with the same tag, ten milliseconds apart."""
    log = LogBuilder(file_size=65536)
    units = []
    for number in range(LONG):
        tag = "rare" if number % 301 == 300 else "often" if number % 3 else "sometimes"
        fields = {"queue_offset": number, "store_timestamp": START_TIME + 10 * number, "properties": {"TAGS": tag}}
        offset = log.add(topic="orders", **fields)
        units.append(build_unit(offset, len(message(offset, topic="orders", **fields)), string_hash(tag)))
    log.write(root)
    missing = sorted((root / "commitlog").iterdir())[2:4]
    assert len(missing) == 2
    for path in missing:
        path.unlink()
    queue = root / "consumequeue" / "orders" / "0"
    queue.mkdir(parents=True)
    data = b"".join(units)
    for start in range(0, len(data), LONG_QUEUE_FILE):
        part = data[start : start + LONG_QUEUE_FILE].ljust(LONG_QUEUE_FILE, b"\0")
        (queue / file_name(start)).write_bytes(part)
    return root


def assert_same(asked: Questions, found: dict[str, list[Any]], expected: dict[str, list[Any]]) -> None:
    """Each answer is the expected one; the first differences are shown."""
    for kind, arguments in asked.items():
        wrong = [
            (question, mine, theirs)
            for question, mine, theirs in zip(arguments, found[kind], expected[kind], strict=True)
            if mine != theirs
        ]
        assert wrong[:3] == [], f"{kind}: {len(wrong)} of {len(arguments)}"


def questions(queues: Any, says: dict[str, Any], version: str) -> Questions:
    """Questions at and around every edge, and some at random: the same in each run."""
    chance = random.Random(version)
    queues = queues["queues"] if isinstance(queues, dict) else queues
    records = says["records"]
    return {
        "query": list(key_questions(says, records, chance)),
        "look": [[offset] for offset in look_offsets(records, chance)],
        "pull": [question for queue in queues for question in pull_questions(queue, chance)],
        "time": [question for queue in queues for question in time_questions(queue, records, version, chance)],
    }


def key_questions(says: dict[str, Any], records: list[dict[str, Any]], chance: random.Random) -> Iterator[list[Any]]:
    times = sorted({record["store_timestamp"] for record in records})
    queries = says["index"]["queries"]
    frequent = sorted(queries, key=lambda query: -len(query["physical_offsets"]))[:10]
    for query in [*frequent, *chance.sample(queries, min(_KEYS, len(queries)))]:
        place = [query["topic"], query["key"]]
        for limit in LIMITS:
            yield [*place, limit, 0, _END_OF_TIME]
        begin, end = sorted(chance.choices(times, k=2))
        yield [*place, 64, begin, end]
        yield [*place, 64, begin - 1000, end + 1000]
        yield [*place, 64, end, _END_OF_TIME]
        yield [*place, 64, 0, begin]
        yield [*place, 3, 0, times[0] - 1]
    yield ["orders", "no such key", 64, 0, _END_OF_TIME]
    yield ["no such topic", queries[0]["key"], 64, 0, _END_OF_TIME]


def look_offsets(records: list[dict[str, Any]], chance: random.Random) -> list[int]:
    offsets = [record["physical_offset"] for record in records]
    some = chance.sample(offsets, min(200, len(offsets)))
    return [*some, offsets[0], offsets[-1], offsets[-1] + records[-1]["message_size"], 1 << 50]


def pull_questions(queue: dict[str, Any], chance: random.Random) -> Iterator[list[Any]]:
    low, high = queue["min_offset"], queue["max_offset"]
    edges = [0, low - 1, low, low + 1, 29, 30, 31, high - 1, high, high + 1, high + 100]
    inside = [chance.randint(max(low, 0), max(low, high, 0)) for _ in range(_QUEUE_OFFSETS)]
    for offset in {offset for offset in [*edges, *inside] if offset >= 0}:
        for most in chance.sample(MAXIMA, 3):
            yield [queue["topic"], queue["queue_id"], offset, most, chance.choice(TAGS)]
        yield [queue["topic"], queue["queue_id"], offset, 32, None]


def time_questions(
    queue: dict[str, Any], records: list[dict[str, Any]], version: str, chance: random.Random
) -> Iterator[list[Any]]:
    by_offset = {record["physical_offset"]: record["store_timestamp"] for record in records}
    times = [by_offset[unit[0]] for unit in queue["units"] if unit[0] in by_offset]
    moments = {0, 1, _END_OF_TIME}
    for time in chance.sample(times, min(8, len(times))):
        moments |= {time - 1, time, time + 1}
    boundaries = [None, "LOWER", "UPPER"] if parse_version(version) > TIME_BY_RECORDS else [None]
    for moment in sorted(moments):
        for boundary in boundaries:
            yield [queue["topic"], queue["queue_id"], moment, boundary]


def answers(root: Path, version: str, asked: Questions) -> dict[str, list[Any]]:
    """What we say; messages by their physical offsets."""
    snapshot = Snapshot(open_store(root), parse_version(version))
    return {
        "query": [query(snapshot, *question) for question in asked["query"]],
        "look": [look(snapshot, *question) for question in asked["look"]],
        "pull": [pull(snapshot, *question) for question in asked["pull"]],
        "time": [time_offset(snapshot, *question) for question in asked["time"]],
    }


def query(snapshot: Snapshot, topic: str, key: str, limit: int, begin: int, end: int) -> list[int]:
    units = snapshot.index.query(topic, key, limit, begin, end)
    return sorted(unit.physical_offset for unit in units if record_at(snapshot.log.files, unit.physical_offset))


def look(snapshot: Snapshot, offset: int) -> dict[str, Any] | None:
    frame = record_at(snapshot.log.files, offset)
    if frame is None:
        return None
    (message,) = message_dicts(frame, "", "none")
    return {name: message[name] for name in ("topic", "queue_id", "queue_offset", "physical_offset", "message_id")}


def time_offset(snapshot: Snapshot, topic: str, queue_id: int, timestamp: int, boundary: str | None) -> int:
    queue = snapshot.queue(topic, queue_id)
    assert queue is not None
    times = QueueTimes(queue, snapshot.log_bytes)
    if boundary is None:
        return times.broker(timestamp, snapshot.release)
    return times.boundary(timestamp, "lower" if boundary == "LOWER" else "upper")
