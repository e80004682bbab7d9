"""The undamaged stores of `tests.real_broker.clients`: what clients had, and what of that a damaged copy shows."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rmqtool.clients.groups import next_message
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.system_topics import HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC
from rmqtool.rules.versions import Version, notes_first_of_run, parse_version
from rmqtool.store.config_tables import CONSUMER_OFFSET, counting_file, load_offsets, reads_no_offsets
from rmqtool.store.queue_units import QueueRange
from rmqtool.store.store import Store, open_store
from tests.copies import copied
from tests.golden import stores
from tests.golden.rocksdb import ROCKSDB
from tests.real_broker.client_damages import LogRecord, records_of
from tests.real_broker.client_facts import Difference, Entry, Pair, Proof, View, pairs_of
from tests.real_broker.harness import SETTINGS, SHOP_SETTINGS, Harness, scenarios
from tests.real_broker.healthy import COPIES
from tests.real_broker.tools import cache, cached

VERSIONS = ("4.4.0", "4.7.1", "4.9.7", "5.1.4", "5.3.3", "5.5.0")
LEVELS = {"messageDelayLevel": "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"}
_DRIVEN = ("clean", "trimmed", "killed")
_UNIT = 20
_LOG_FILE = 65536  # bytes
_UNITS = {"s": 1000, "m": 60_000, "h": 3_600_000}
_RATE = 200  # messages per second of a live store
_LONGEST_S = 2.5
_NOTED_MS = 61_000  # a broker writes delayOffset.json every 10 s; as long as `verify` allows slow machines
_CLOCK_MS = 1000


@dataclass
class Source:
    """An undamaged store, the settings of its broker, and what is asked about it."""

    name: str
    store: Path
    settings: Mapping[str, str]
    records: list[LogRecord] = field(default_factory=list)
    had: View | None = None
    begins_again: bool = False
    """Whether the broker reads no committed offsets, so that all groups begin again on any store."""
    come_again: int = 0
    """How many delayed messages it delivers again on any store, since it notes only the first of those of one run."""

    def __post_init__(self) -> None:
        """Read the log."""
        self.records = records_of(self.store)
        settings = {**SHOP_SETTINGS, **self.settings}
        self.proof = Proof(
            pairs=pairs_of([record.as_oracle() for record in self.records]),
            finished={offset for record in self.records for offset in _finished(record)},
            now=max((record.store_timestamp for record in self.records), default=0),
            delays=[_UNITS[text[-1]] * int(text[:-1]) for text in settings["messageDelayLevel"].split()],
        )
        self.keys = sorted({key for key, _ in self.proof.pairs})
        queues = {(record.topic, record.queue_id) for record in self.records}
        for base in ("consumequeue", "batchconsumequeue"):
            found = self.store.glob(f"{base}/*/*")
            queues |= {(path.parent.name, int(path.name)) for path in found if path.name.isdigit()}
        for record in self.records:
            light = record.properties.get("INNER_MULTI_DISPATCH", "")
            queues |= {(name, 0) for name in light.split(",") if name}
        self.queues = sorted(queues)
        self.log = _log(self.store)

    def add_unnoted(self, had: View, version: Version) -> None:
        """Add what a start on any store forgets: the last broker had delivered it, and what its file says."""
        copies: dict[str | None, int] = {}
        for record in self.records if notes_first_of_run(version) else ():
            if record.topic != SCHEDULE_TOPIC:
                copies[record.properties.get("UNIQ_KEY")] = record.physical_offset
        later = {each.physical_offset for each in self.records if each.topic == SCHEDULE_TOPIC
                 and each.physical_offset < copies.get(each.properties.get("UNIQ_KEY"), -1)}  # fmt: skip
        again = {waiting for waiting in had.delayed if waiting[1] in later}
        had.passed |= again
        had.delayed = {each: due for each, due in had.delayed.items() if each not in again}
        self.come_again = len(again)
        self._add_groups(had, version)

    def _add_groups(self, had: View, version: Version) -> None:
        store = open_store(self.store, BrokerConf({**SETTINGS, **SHOP_SETTINGS, **self.settings}))
        offsets: dict[tuple[str, int], list[int]] = {}
        for topic, queue_id, offset in had.entries:
            offsets.setdefault((topic, queue_id), []).append(offset)
        self.begins_again = reads_no_offsets(store, version)
        for each in load_offsets(store).offsets if self.begins_again else ():
            if found := offsets.get((each.topic, each.queue_id)):
                queue = QueueRange(min(found), max(found) + 1)
                place = next_message(each.offset, queue, version)
                if place is not None:
                    had.groups[each.group, each.topic, each.queue_id] = place

    def conf(self) -> str:
        """Its broker.conf."""
        settings = {**SETTINGS, **SHOP_SETTINGS, **self.settings}
        return "".join(f"{name}={value}\n" for name, value in settings.items())


def sources(version: str, scratch: Path) -> list[Source]:
    """The golden stores of a release, those of whole brokers twice as often as driven ones."""
    found = [Source(f"{version}-{name}", _store(version, name, scratch), LEVELS) for name in _DRIVEN]
    shop = Source(f"{version}-shop", _store(version, "shop", scratch), {})
    rows = [
        Source(name, stores.unpack(name, scratch), settings)
        for name, settings in ROCKSDB.items()
        if name in (f"more/{version}-rocksdb", f"more/{version}-rocksdb-twice")
        and parse_version(version) >= parse_version("5.3.3")
    ]
    return [*found, shop, shop, shop, *rows, *rows]


def _store(version: str, name: str, scratch: Path) -> Path:
    """A golden store; of a release without any one that its broker writes, and that is kept in the cache."""
    if version in VERSIONS:
        return stores.unpack(f"{version}-{name}", scratch)

    def fill(root: Path) -> None:
        if name == "shop":
            Harness(version).write_shop(root)
        else:
            Harness(version).write(root, name)

    kept = cached(cache() / version / f"store-{name}", fill, f"lock-of-{version}-{name}")
    return copied(kept, scratch / f"{version}-{name}")


def fresh(version: str, number: int, scratch: Path, chance: random.Random) -> Source:
    """The store of a broker that was killed at a random moment, or a copy of one that runs: healthy, not stopped."""
    root = scratch / f"fresh-{number}"
    root.mkdir()
    if number % 3:
        scenario = chance.choice([name for name in scenarios(version) if name in ("killed", "light-killed")])
        Harness(version).write(root, scenario, chance.uniform(0, _LONGEST_S))
        return Source(f"{version}-fresh-{scenario}", root, LEVELS)
    with Harness(version).hold(root, _RATE):
        time.sleep(chance.uniform(0, _LONGEST_S))
        how = chance.choice(COPIES)
        how(root, scratch / f"copy-{number}")
    return Source(f"{version}-fresh, copied by {how.__name__} while it ran", scratch / f"copy-{number}", LEVELS)


def _finished(record: LogRecord) -> Iterator[int]:
    """Queue offsets of the half messages that an op message names."""
    if record.topic == OP_TOPIC and "body" in record.fields:
        begin, end = record.at + record.fields["body"], record.at + record.fields["topic"] - 1
        yield from (int(text) for text in record.file.read_bytes()[begin:end].decode().split(",") if text.isdigit())


def _log(store: Path) -> dict[int, bytes]:
    found = {}
    for file in sorted(store.glob("commitlog/*")):
        if file.is_file() and file.name.isdigit():
            found[int(file.name)] = file.read_bytes()
    return found


@dataclass(frozen=True)
class Traces:
    """What a damaged copy still shows of what clients had: records that stand in the log, units in the queue files."""

    standing: frozenset[int]
    tail: frozenset[int]
    """Of messages at the end of the log that are zeros now: what was never flushed is no message that clients had."""
    units: frozenset[tuple[Entry, int]]
    began_by: int
    """Where the log begins, or one that is gone began: what entries and keys lead to before it may have expired."""
    indexed: bytes
    committed: str
    unproven: frozenset[int]
    """Delayed messages of which nothing shows that the broker had noted their delivery before it was killed."""
    deleted: frozenset[str]
    """Topics without a queue and a word in config/: `mqadmin deleteTopic` leaves their messages in the log."""
    has_beginning: bool
    """Whether the log or a queue is there: else nothing tells which keys of the index had expired."""

    @classmethod
    def of(cls, source: Source, damaged: Path, version: Version) -> Traces:
        """Compare the files, before a broker starts on them."""
        log = _log(damaged)
        standing, tail = set(), set()
        for record in source.records:
            base = int(record.file.name)
            begin, end = record.at, record.at + record.size
            found = log.get(base, b"")[begin:end]
            if found == source.log[base][begin:end]:
                standing.add(record.physical_offset)
            elif found and not any(found):
                tail.add(record.physical_offset)
        last = max(standing, default=-1)
        indexed = b"".join(file.read_bytes() for file in sorted(damaged.glob("index/*")) if file.is_file())
        committed = "".join(
            file.read_text(encoding="utf-8", errors="replace") for file in damaged.glob("config/*onsumerOffset.json*")
        )
        never_flushed = frozenset(offset for offset in tail if offset > last)
        units = frozenset(_units(damaged))
        began_by = min(log) if log else _began_by(damaged)
        unproven = frozenset(_unproven(source.records, standing, damaged))
        topics = {record.topic for record in source.records}
        store = open_store(damaged, BrokerConf({**SETTINGS, **SHOP_SETTINGS, **source.settings}))
        deleted = frozenset(topic for topic in topics if _is_deleted(topic, store, version))
        return cls(frozenset(standing), never_flushed, units, began_by, indexed, committed, unproven, deleted,
                   bool(log or units))  # fmt: skip

    def count(self, difference: Difference, had: View) -> dict[str, int]:
        """How many of what is gone left a trace, where that can be seen."""
        entries = [entry for entry in difference.unreachable if self._shows(entry, had.entries[entry][0])]
        tags = [entry for entry in difference.missed_by_tag if self._shows(entry, had.entries[entry][0])]
        pairs = [pair for pair in difference.keys_not_found if self._has(pair)]
        groups = [group for (group, topic, _), place, _ in difference.groups
                  if topic not in self.deleted and self._commits(group, topic, place)]  # fmt: skip
        gone = {offset for topic, _, offset in difference.unreachable if topic == HALF_TOPIC}
        levels = {(queue + 1, had.entries[topic, queue, offset][0]) for topic, queue, offset in
                  {*difference.unreachable} - {*entries} if topic == SCHEDULE_TOPIC}  # fmt: skip
        unproven = {offset for _, offset in had.passed} & self.unproven
        passed = [offset for offset in difference.half_messages_unchecked if offset not in gone]
        return {
            "unreachable": len(entries),
            "missed_by_tag": len(tags),
            "keys_not_found": len(pairs),
            "filters_lost": 0,
            "groups": len(groups),
            "delayed.again": max(0, difference.delayed["again"] - len(unproven)),
            "delayed.never": difference.delayed["never"] - len(levels & had.delayed.keys()),
            "half_messages_unchecked": len(passed),  # others are among those out of reach
        }

    def _commits(self, group: str, topic: str, place: object) -> bool:
        """Whether a file of offsets knows the group in the topic, and the number where it went on."""
        is_there = re.search(rf"(?<!\d){place}(?!\d)", self.committed)
        return f"{topic}@{group}" in self.committed and is_there is not None

    def _shows(self, entry: Entry, physical_offset: int) -> bool:
        if physical_offset in self.tail or entry[0] in self.deleted:
            return False
        is_shown = physical_offset >= self.began_by and (entry, physical_offset) in self.units
        return physical_offset in self.standing or is_shown

    def _has(self, pair: Pair) -> bool:
        if pair[1] in self.tail:
            return False
        is_shown = pair[1] >= self.began_by and pair[1].to_bytes(8, "big") in self.indexed
        return pair[1] in self.standing or is_shown


def _unproven(records: list[LogRecord], standing: set[int], damaged: Path) -> Iterator[int]:
    """Those without a copy that stands in the log, or with one that a killed broker may not have noted."""
    newest = max((each.store_timestamp for each in records if each.physical_offset in standing), default=0)
    noted_until = newest - _NOTED_MS if (damaged / "abort").exists() else newest + 1
    for file in sorted(damaged.glob("config/delayOffset.json*"))[:1]:  # since 5.0.0 it says when it last changed
        changed = re.search(r'"timestamp":(\d+)', file.read_text(encoding="utf-8", errors="replace"))
        noted_until = max(noted_until, int(changed[1]) - _CLOCK_MS if changed else 0)
    noted = {each.properties.get("UNIQ_KEY"): each.physical_offset for each in records if each.topic != SCHEDULE_TOPIC
             and each.physical_offset in standing and each.store_timestamp < noted_until}  # fmt: skip
    for each in records:
        if each.topic == SCHEDULE_TOPIC and noted.get(each.properties.get("UNIQ_KEY"), -1) < each.physical_offset:
            yield each.physical_offset


def _is_deleted(topic: str, store: Store, version: Version) -> bool:
    """Whether it looks like a topic that was deleted: no queue, no line; since 5.0.0 no offsets that count either."""
    counting = store.root / "config" / (counting_file(store, version) or CONSUMER_OFFSET)
    texts = [file.read_text(encoding="utf-8", errors="replace") for file in store.root.glob("config/*.json")]
    topics = "".join(text for text in texts if '"topicName"' in text)
    offsets = counting.read_text(encoding="utf-8", errors="replace") if counting.exists() else ""
    is_consumed = version >= Version(5, 0, 0) and '"groupTopicMap"' in offsets and f'"{topic}@' in offsets
    is_known = f'"{topic}"' in topics or is_consumed or any(store.root.glob(f"*queue*/{topic}"))
    return bool(topics) and not is_known


def _began_by(store: Path) -> int:
    """Where the log began at the latest: a first file of a queue that has others holds a message of the log."""
    ends = []
    for queue in store.glob("consumequeue/*/*"):
        files = sorted(path for path in queue.iterdir() if path.is_file() and path.name.isdigit())
        if len(files) > 1:
            unit = files[0].read_bytes()[-_UNIT:]
            ends += [int.from_bytes(unit[:8], "big", signed=True)] if any(unit) else []
    return max(0, min(ends, default=0)) // _LOG_FILE * _LOG_FILE


def _units(store: Path) -> list[tuple[Entry, int]]:
    found = []
    for file in store.glob("consumequeue/*/*/*"):
        if not file.is_file() or not file.name.isdigit() or not file.parent.name.isdigit():
            continue
        data = file.read_bytes()
        entry = file.parent.parent.name, int(file.parent.name)
        for at in range(0, len(data) - _UNIT + 1, _UNIT):
            if any(data[at + 8 : at + 12]):
                offset = (int(file.name) + at) // _UNIT
                found.append(((*entry, offset), int.from_bytes(data[at : at + 8], "big")))
    return found
