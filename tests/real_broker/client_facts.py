"""What clients get of a store by a real broker (ClientView.java), and the difference of two such views, as numbers."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rmqtool.formats.consume_queue import is_ext_address
from rmqtool.rules.system_topics import HALF_TOPIC, SCHEDULE_TOPIC, is_read_by_tag

Entry = tuple[str, int, int]
"""Topic, queue and queue offset."""
Group = tuple[str, str, int]
"""Group, topic and queue."""
Record = tuple[int, int]
"""Physical offset and size of a whole message."""
Pair = tuple[str, int]
"""A key, as "TOPIC tab KEY", and the physical offset of a message that has it."""

_WHEEL_MS = 6 * 24 * 3_600_000  # less than a week: timers are due some time after the last message
_CHECK_GROUP = "CID_RMQ_SYS_TRANS"
_NUMBERS = ("unreachable", "missed_by_tag", "keys_not_found", "groups", "filters_lost", "half_messages_unchecked")
_DUE = ("early", "late", "never", "again")


@dataclass
class View:
    """What clients get: nothing where the broker refuses."""

    refuses: str | None = None
    entries: dict[Entry, Record] = field(default_factory=dict)
    tags: dict[Entry, str] = field(default_factory=dict)
    """The tags of messages that a pull with the tag gives."""
    pairs: set[Pair] = field(default_factory=set)
    groups: dict[Group, int] = field(default_factory=dict)
    """The queue offset from which the group goes on."""
    passed_over: dict[Group, int] = field(default_factory=dict)
    """Of queues without a message: where pulls lead from there, which is the end."""
    delayed: dict[tuple[int, int], int] = field(default_factory=dict)
    """By level and physical offset of what waits: the tags code of its unit, which is its due time."""
    passed: set[tuple[int, int]] = field(default_factory=set)
    """The same of what was delivered."""
    half: set[int] = field(default_factory=set)
    """Queue offsets of half messages that the check has not gone past."""
    timers: Counter[int] = field(default_factory=Counter)
    filters: set[str] = field(default_factory=set)


def view_of(facts: Mapping[str, Any]) -> View:
    """What a survey with queues says."""
    if facts["refuses"] is not None:
        return View(refuses=facts["refuses"])
    clients = facts["clients"]
    view = View(timers=Counter(facts["timers"]), filters={*clients["filters"]})
    for name, queue in clients["queues"].items():
        topic, _, number = name.rpartition("/")
        for asked, offset, physical, *rest in queue["pulls"]:
            if rest and asked == offset:
                size, messages, *tags = rest
                for inner in range(messages):
                    view.entries[topic, int(number), offset + inner] = physical, size
                    if any(tags):
                        view.tags[topic, int(number), offset + inner] = tags[0]
        if topic == SCHEDULE_TOPIC:
            _add_level(view, facts, int(number), queue)
    view.pairs = {(key, offset) for key, offsets in clients["keys"].items() for offset in offsets}
    for name, place in clients["groups"].items():
        topic_and_group, _, number = name.rpartition("/") if "/" in name else (name, "", "0")  # a light queue has none
        topic, _, group = topic_and_group.partition("@")
        view.groups[group, topic, int(number)] = place
        leads = {pull[0]: pull[1] for pull in clients["queues"].get(f"{topic}/{number}", {}).get("pulls", ())}
        if leads and not any(each[:2] == (topic, int(number)) for each in view.entries):
            view.passed_over[group, topic, int(number)] = _followed(leads, place)
    checked = view.groups.get((_CHECK_GROUP, HALF_TOPIC, 0), 0)  # a check follows the answer to its pull, too
    view.half = {offset for topic, _, offset in view.entries if topic == HALF_TOPIC and offset >= checked}
    return view


def _followed(leads: Mapping[int, int], place: int) -> int:
    while leads.get(place, place) > place:
        place = leads[place]
    return place


def _add_level(view: View, facts: Mapping[str, Any], number: int, queue: Mapping[str, Any]) -> None:
    next_offset = facts["delays"].get(str(number + 1), 0)
    for offset, physical, tags_code in queue["units"]:
        if (SCHEDULE_TOPIC, number, offset) not in view.entries:
            continue
        if offset >= next_offset:
            view.delayed[number + 1, physical] = tags_code
        else:
            view.passed.add((number + 1, physical))


@dataclass
class Difference:
    """What clients had and do not have."""

    refuses: str | None = None
    unreachable: list[Entry] = field(default_factory=list)
    missed_by_tag: list[Entry] = field(default_factory=list)
    keys_not_found: list[Pair] = field(default_factory=list)
    groups: list[tuple[Group, Any, Any]] = field(default_factory=list)
    delayed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_DUE, 0))
    timers: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_DUE, 0))
    filters_lost: list[str] = field(default_factory=list)
    half_messages_unchecked: list[int] = field(default_factory=list)

    def numbers(self) -> dict[str, Any]:
        """By name, as `ClientLosses` counts."""
        found: dict[str, Any] = {name: len(getattr(self, name)) for name in _NUMBERS}
        found |= {f"delayed.{kind}": self.delayed[kind] for kind in _DUE}
        found |= {f"timers.{kind}": self.timers[kind] for kind in _DUE}
        return {**found, "refuses": self.refuses is not None}

    def by_queue(self) -> dict[tuple[str, int], list[int]]:
        """The queue offsets of `unreachable`."""
        found: dict[tuple[str, int], list[int]] = {}
        for topic, queue, offset in sorted(self.unreachable):
            found.setdefault((topic, queue), []).append(offset)
        return found

    def __bool__(self) -> bool:
        """Whether anything is gone."""
        return any(self.numbers().values())


@dataclass(frozen=True)
class Proof:
    """What the undamaged log says: keys, half messages with an op, the time of the start; and delays of levels, ms."""

    pairs: Collection[Pair] = ()
    finished: Collection[int] = ()
    now: int = 0
    delays: Sequence[int] = ()

    @property
    def has_timers(self) -> bool:
        """Whether a broker that starts today still has them in its wheel, which goes around in a week."""
        return time.time() * 1000 - self.now < _WHEEL_MS

    def comes(self, level: int, due: int) -> int:
        """When a delayed message comes (`correctDeliverTimestamp`): what is due, or later than its delay, at once."""
        return self.now if due > self.now + self.delays[level - 1] else max(due, self.now)


_NO_LOG = Proof(delays=(0,) * 18)


def difference(had: View, after: View, proof: Proof = _NO_LOG) -> Difference:
    """What of `had`, and of what the log proves, is not in `after`."""
    if after.refuses is not None:
        return Difference(refuses=after.refuses)
    found = Difference()
    found.unreachable = sorted(entry for entry, record in had.entries.items() if after.entries.get(entry) != record)
    left = had.entries.items() & after.entries.items()
    found.missed_by_tag = sorted(entry for entry, _ in left if is_read_by_tag(entry[0]) and
                                 entry in had.tags and after.tags.get(entry) != had.tags[entry])  # fmt: skip
    found.keys_not_found = sorted({*had.pairs, *proof.pairs} - after.pairs)
    for group, place in (had.groups | had.passed_over).items():
        now = after.groups.get(group)
        if group in had.passed_over:
            now = after.passed_over.get(group, now)
        if place != now:
            found.groups.append((group, place, now))
    for waiting, due in had.delayed.items():
        new_due = after.delayed.get(waiting)
        if new_due is None:
            found.delayed["never"] += 1
        elif is_ext_address(new_due):
            continue  # without its ext unit the broker computes the time again (`ScheduleMessageService`)
        elif (comes := proof.comes(waiting[0], new_due)) != max(due, proof.now):
            found.delayed["early" if comes < due else "late"] += 1
    found.delayed["again"] = len(had.passed & after.delayed.keys())
    if proof.has_timers:
        found.timers["never"] = (had.timers - after.timers).total()
        found.timers["again"] = (after.timers - had.timers).total()
    found.filters_lost = sorted(had.filters - after.filters)
    other = {offset for topic, _, offset in found.unreachable if topic == HALF_TOPIC}  # their entries lead elsewhere
    found.half_messages_unchecked = sorted(had.half - (after.half - other) - {*proof.finished})
    return found


def common(had: View, after: View) -> View:
    """What clients had and have: what a repair must not take."""
    return View(
        entries=dict(had.entries.items() & after.entries.items()),
        tags=dict(had.tags.items() & after.tags.items()),
        pairs=had.pairs & after.pairs,
        groups={name: place for name, place in had.groups.items() if after.groups.get(name, ()) == place},
        passed_over=dict(had.passed_over.items() & after.passed_over.items()),
        delayed=dict(had.delayed.items() & after.delayed.items()),
        timers=had.timers & after.timers,
        filters=had.filters & after.filters,
        half=had.half & after.half,
    )


def without(view: View, records: Collection[int]) -> View:
    """The same without records at some physical offsets: a pull gives them, but they are not what clients had."""
    entries = {entry: record for entry, record in view.entries.items() if record[0] not in records}
    delayed = {waiting: due for waiting, due in view.delayed.items() if waiting[1] not in records}
    return replace(view, entries=entries, delayed=delayed)


def claimed(clients: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The numbers of `start.clients` or `plan.clients`, by the same names."""
    if clients is None:
        return None
    found = {
        "unreachable": clients["unreachable"]["messages"],
        "missed_by_tag": clients["missed_by_tag"],
        "keys_not_found": clients["keys_not_found"],
        "groups": len(clients["groups"]),
        "filters_lost": clients["filters_lost"],
        "half_messages_unchecked": clients["half_messages_unchecked"],
        **{f"delayed.{kind}": clients["delayed"][kind] for kind in _DUE},
        **{f"timers.{kind}": clients["timers"][kind] for kind in _DUE},
    }
    return {**found, "refuses": clients["refuses"] is not None}


def pairs_of(records: list[dict[str, Any]]) -> set[Pair]:
    """What the index holds of the records of an oracle: none of a transaction that was rolled back."""
    return {
        (f"{record['topic']}\t{key}", record["physical_offset"])
        for record in records
        if record["sys_flag"] & 0xC != 0xC
        for key in _keys(record)
    }


def _keys(record: Mapping[str, Any]) -> Iterator[str]:
    for key in (record["unique_key"], *(record["keys"] or "").split(" ")):
        if key and "\n" not in key and "\t" not in key:
            yield key
