"""Random stores that real brokers write, with and without RocksDB, and what these answer, against what we say.

``python -m tests.real_broker.random_rocksdb [--count N] [--seed S] [--killed] [--mode MODE] [VERSION ...]`` compares
many, and prints each difference.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rmqtool.broker.offset_by_time import QueueTimes
from rmqtool.findings.finding import Finding
from rmqtool.findings.report import verdict_of
from rmqtool.query.by_place import Notes
from rmqtool.query.lookup import KeyQuery, by_key
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.system_topics import BUILT_IN_GROUPS, LMQ_PREFIX, is_system_topic
from rmqtool.rules.versions import LITE_TOPICS, parse_version
from rmqtool.store.config_tables import GROUPS, load_table
from rmqtool.store.side_rows import RocksDbIndex
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import open_store
from rmqtool.verify.outcome import Outcome
from tests.commands.running import rmqtool
from tests.real_broker.answers import pull
from tests.real_broker.harness import SETTINGS, Harness
from tests.real_broker.predicted_ranges import PredictedRanges
from tests.unchanged import unchanged
from tests.verify.verifying import codes_of, verify

VERSIONS = ("5.2.0", "5.3.3", "5.4.0", "5.5.0")
_IN_ROCKSDB = {"storeType": "defaultRocksDB"}
_TWICE = {"rocksdbCQDoubleWriteEnable": "true"}
_LIGHT_ROWS = {"combineCQUseRocksdbForLmq": "true"}
"""Without which 5.5.0 does not start where it writes queues to both places."""
_PREFERRED = {  # with light queues 5.4.0 fails, which takes their rows for files
    "combineCQPreferCQType": "defaultRocksDB",
    "combineAssignOffsetCQType": "defaultRocksDB",
    "enableLmq": "false",
    "enableMultiDispatch": "false",
}
_SEPARATE = {"useSeparateStorePathForRocksdbCQ": "true"}
MODES: Mapping[str, tuple[str, dict[str, str]]] = {
    "files": ("5.2.0", {}),
    "rocksdb": ("5.2.0", _IN_ROCKSDB),
    "second-config": ("5.3.3", {**_IN_ROCKSDB, "configManagerVersion": "v2"}),
    "twice": ("5.3.3", _TWICE),
    "twice-second-config": ("5.3.3", {**_TWICE, "configManagerVersion": "v2"}),
    "rocksdb-and-twice": ("5.3.3", {**_IN_ROCKSDB, **_TWICE}),
    "preferred": ("5.4.0", {**_TWICE, **_PREFERRED}),
    "side": ("5.4.0", {**_IN_ROCKSDB, "indexRocksDBEnable": "true", "indexFileReadEnable": "false"}),
    "single": ("5.4.0", {**_IN_ROCKSDB, "useSingleRocksDBForAllConfigs": "true"}),
    "separate": ("5.5.0", {**_IN_ROCKSDB, **_SEPARATE}),
    "separate-twice": ("5.5.0", {**_TWICE, **_SEPARATE}),
}
"""The oldest release that has a mode, and its settings."""
MESSAGES = 700
_EACH = 5  # of the questions also through the command line


def modes_of(version: str) -> list[str]:
    """The modes that a release has; what 5.5.0 needs to start does not go with rows that are preferred."""
    modes = [name for name, (since, _) in MODES.items() if parse_version(version) >= parse_version(since)]
    return [name for name in modes if name != "preferred" or parse_version(version) < LITE_TOPICS]


def settings_of(version: str, mode: str) -> dict[str, str]:
    """The settings of a mode, with what the release needs besides."""
    settings = MODES[mode][1]
    is_newer = parse_version(version) >= LITE_TOPICS and "rocksdbCQDoubleWriteEnable" in settings
    return {**settings, **(_LIGHT_ROWS if is_newer else {})}


def differences(broker: Harness, mode: str, seed: int, scratch: Path, *, killed: bool = False) -> list[str]:
    """What we say otherwise than the release that wrote a store; of a killed one, before and after its next start."""
    version, root, settings = broker.version, scratch / "store", settings_of(broker.version, mode)
    conf_file, conf = scratch / "broker.conf", conf_of(settings)
    conf_file.write_text("".join(f"{name}={value}\n" for name, value in conf.settings.items()))
    root.mkdir()
    facts = broker.write_random(root, settings, seed, MESSAGES, killed=killed)
    found, keys_lost = [], 0
    if killed:
        outcome = verify(root, version=version, conf=conf)
        predicted = PredictedRanges.of(Snapshot(open_store(root, conf), parse_version(version)), outcome.start)
        keys_lost = sum(each.count for each in outcome.findings if each.code == "start.keys-lost")
        facts = broker.write_random(root, settings, seed, 0)
    with unchanged(root):
        snapshot = Snapshot(open_store(root, conf), parse_version(version))
        if killed:
            found += [f"killed: {line}" for line in _wrong_start(outcome, predicted, snapshot, facts)]
        found += _judged(verify(root, version=version, conf=conf), settings, killed=killed, keys_lost=keys_lost)
        found += _wrong_config(snapshot, facts)
        for queue in facts["queues"]:
            found += [f"{queue['topic']}/{queue['queue_id']}: {line}" for line in _wrong_queue(snapshot, queue)]
        found += _wrong_keys(snapshot, facts["keys"], in_rocksdb="indexRocksDBEnable" in settings)
        found += _wrong_commands(root, facts, ("--broker-version", version, "--broker-conf", conf_file))
    return found


def conf_of(settings: dict[str, str]) -> BrokerConf:
    return BrokerConf({name: value for name, value in {**SETTINGS, **settings}.items() if name != "deleteWhen"})


def _judged(outcome: Outcome, settings: Mapping[str, str], *, killed: bool, keys_lost: int) -> Iterator[str]:
    """What is said against a sound store: a finding above information, or the verdict.

    Of the index a start after a kill takes the file that was written last, and may put fewer keys again: `keys_lost`,
    as it was predicted, are missing then, and no others.

    Of queues that are written twice a kill may take rows of light queues, which the next start does not make again, for
    it goes on after the queue files: they are missing, and the verdict says so. Batches in RocksDB may be unread.
    """
    findings = [each for each in outcome.findings if each.severity != "info"]
    loses_rows = killed and "rocksdbCQDoubleWriteEnable" in settings
    others = [each for each in findings if not (loses_rows and _is_of_light_queue(each))]
    missing = [each for each in findings if each.code == "index.missing"]
    if sum(each.count for each in missing) == keys_lost:
        others = [each for each in others if each not in missing]
    elif not missing:
        yield f"verify: no key is missing, {keys_lost} were to be lost"
    if len(others) == len(findings) and outcome.verdict not in ("clean", "unproven"):
        yield f"verify: {outcome.verdict}"
    for finding in others[:2]:
        yield f"verify: {finding}"


_LOST_BY_A_KILL = ("start.rows-lost", "consumequeue.missing-queue")


def _is_of_light_queue(finding: Finding) -> bool:
    return (finding.topic or "").startswith(LMQ_PREFIX)


def _wrong_start(outcome: Outcome, predicted: PredictedRanges, after: Snapshot, said: dict[str, Any]) -> Iterator[str]:
    """What a start leaves other than predicted; a kill makes no store corrupt, but for light queues or keys."""
    others = [
        each for each in outcome.findings
        if each.code != "start.keys-lost" and not (each.code in _LOST_BY_A_KILL and _is_of_light_queue(each))
    ]  # fmt: skip
    if verdict_of(others, is_proven=True) == "corrupt":
        yield f"verify: {outcome.verdict}, {sorted(codes_of(outcome))}, {outcome.findings[:2]}"
    answers = {
        (queue["topic"], queue["queue_id"]): (queue["min_offset"], queue["max_offset"]) for queue in said["queues"]
    }
    for (topic, queue_id), theirs, mine in predicted.compared(after, answers):
        yield from _first(f"start of {topic}/{queue_id}", [(theirs, mine)])


def _wrong_queue(snapshot: Snapshot, said: dict[str, Any]) -> Iterator[str]:
    topic, queue_id = said["topic"], said["queue_id"]
    loaded = snapshot.queue(topic, queue_id)
    if loaded is None:
        yield "no such queue"
        return
    mine = loaded.range.min_offset, loaded.range.max_offset
    if mine != (said["min_offset"], said["max_offset"]):
        yield f"range {mine}, the broker's is {said['min_offset'], said['max_offset']}"
        return
    offsets = range(said["min_offset"], said["max_offset"])
    units = [unit for offset in offsets if (unit := loaded.unit_at(offset)) is not None]
    rows = [[unit.queue_offset, unit.physical_offset, unit.message_size, unit.tags_code] for unit in units]
    yield from _first("unit", zip(said["units"], rows, strict=False))
    if len(rows) != len(said["units"]):
        yield f"{len(rows)} units, the broker has {len(said['units'])}"
    yield from _first("pull", ((answer, pull(snapshot, *asked)) for asked, answer in said["pulls"]))
    times = QueueTimes(loaded, snapshot.log_bytes)
    yield from _first("time", ((answer, times.broker(asked[2], snapshot.release)) for asked, answer in said["times"]))


def _wrong_keys(snapshot: Snapshot, asked: Sequence[Any], *, in_rocksdb: bool) -> Iterator[str]:
    for (topic, key, most, begin, end), answer in asked:
        if in_rocksdb:
            found = {*RocksDbIndex(snapshot.store).offsets([topic], ("K", "U"), key, begin, end)}
        else:
            found = {unit.physical_offset for unit in snapshot.index.query(topic, key, most, begin, end)}
        yield from _first(f"key {key} of {topic}", [(sorted({*answer}), sorted(found))])
        by_client = {each["physical_offset"] for each in by_key(snapshot, KeyQuery(key, (topic,)), "none", Notes())}
        if {*answer} - by_client if in_rocksdb else by_client - {*answer}:  # the index files are asked here, too
            yield f"key {key} of {topic}: {by_client}, the broker gives {answer}"


def _wrong_config(snapshot: Snapshot, said: dict[str, Any]) -> Iterator[str]:
    if snapshot.topics.names_all:
        yield from _only_here_or_there("topics", {*snapshot.topics.by_name}, {*said["topics"]})
    groups = {*load_table(snapshot.store, GROUPS).content.get("subscriptionGroupTable", {})}
    yield from _only_here_or_there("groups", groups, {*said["groups"]})
    committed = {f"{each.topic}@{each.group}/{each.queue_id} {each.offset}" for each in snapshot.committed.offsets}
    answers = {f"{name} {offset}" for name, offset in said["committed"].items() if offset >= 0}
    yield from _only_here_or_there("committed", committed, answers)


def _only_here_or_there(what: str, mine: set[str], theirs: set[str]) -> Iterator[str]:
    """What only we or only the broker name, but for topics and groups that a broker makes by itself."""
    only_mine, only_theirs = (
        sorted(name for name in names if not is_system_topic(name) and not BUILT_IN_GROUPS.fullmatch(name))
        for names in (mine - theirs, theirs - mine)
    )
    if only_mine or only_theirs:
        yield f"{what}: {_short(only_mine)} here, {_short(only_theirs)} there"


def _wrong_commands(root: Path, said: dict[str, Any], broker: Sequence[str | Path]) -> Iterator[str]:
    """The same through the command line: the overview, and a few questions."""
    queues = rmqtool("inspect", root, "--json", *broker[2:]).document["result"]["queues"]
    yield from _first("inspect", [(_ranges(said["queues"]), _ranges(queues))])
    for queue in said["queues"][::_EACH]:
        (topic, queue_id, offset, most, tags), answer = queue["pulls"][-1]
        done = rmqtool(*("query", root, "--pull", "--topic", topic, "--queue", queue_id, "--queue-offset", offset),
                       *("--max", most, "--json", "--body", "none", *broker),
                       *(("--tag", " || ".join(tags)) if tags else ()))  # fmt: skip
        shown = json.loads(done.out)
        sent = [message["physical_offset"] for message in shown["messages"]]
        yield from _first(f"query --pull {topic}/{queue_id} {offset}",
                          [(answer[name], shown[name]) for name in ("status", "next_begin_offset")]
                          + [(answer["physical_offsets"], sent)])  # fmt: skip
    for (topic, key, *_), answer in said["keys"][::_EACH]:
        done = rmqtool(*("query", root, "--key", key, "--topic", topic, "--json", "--body", "none", *broker))
        messages = [json.loads(line) for line in done.out.splitlines()]
        found = [message["physical_offset"] for message in messages]
        fit = all(key in _keys(message) for message in messages)
        if not fit or bool(found) < bool(answer):
            yield f"query --key {key} --topic {topic}: {found}, the broker says {answer}"


def _ranges(queues: Sequence[dict[str, Any]]) -> list[list[Any]]:
    names = "topic", "queue_id", "min_offset", "max_offset"
    return sorted([queue[name] for name in names] for queue in queues if queue["max_offset"])


def _keys(message: dict[str, Any]) -> list[str]:
    return [message["unique_key"], *message["keys"]]


def _first(what: str, pairs: Any) -> Iterator[str]:
    """The first pair of the broker's answer and ours that differ."""
    for theirs, mine in pairs:
        if theirs != mine:
            yield f"{what}: {_short(mine)}, the broker says {_short(theirs)}"
            return


def _short(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)[:300]


def main(arguments: Sequence[str]) -> int:
    """Compare many, and print what differs and the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="*", default=VERSIONS)
    parser.add_argument("--mode", choices=MODES, action="append")
    parser.add_argument("--count", type=int, default=2, help="stores of each release and mode")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--killed", action="store_true", help="kill each broker, and start it again")
    options = parser.parse_args(arguments)
    failed = 0
    for version in options.versions:
        for mode in [mode for mode in modes_of(version) if mode in (options.mode or MODES)]:
            for seed in range(options.seed, options.seed + options.count):
                begin = time.monotonic()
                with TemporaryDirectory(prefix="rmqtool-random-") as scratch:
                    found = differences(Harness(version), mode, seed, Path(scratch), killed=options.killed)
                failed += bool(found)
                for line in found[:8]:
                    print(f"{version} {mode} {seed}: {line}", flush=True)
                took = time.monotonic() - begin
                print(f"{version} {mode} {seed}: {len(found)} differences, {took:.0f} s", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
