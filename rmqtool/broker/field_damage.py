"""Fields of records that no CRC covers, against their witnesses: the queue entry and the index units of the record.

A unit that points to the very beginning of a record, has its size, stands where no other record belongs, and differs
from it in one field, is right: the field is damaged. Body CRC and position prove the rest of the record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.errors import UnreadableError
from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.dispatcher import TAGS as OF_TAGS
from rmqtool.broker.dispatcher import Dispatcher, IndexKeys
from rmqtool.broker.proven_records import ProvenRecord, ProvenRecords
from rmqtool.formats.java import decode_text, string_hash
from rmqtool.formats.message import TRANSACTION_PREPARED
from rmqtool.formats.properties import (
    DELAY,
    INNER_BASE,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    INNER_NUM,
    KEYS,
    NAME_VALUE_SEPARATOR,
    PROPERTY_SEPARATOR,
    TAGS,
    UNIQUE_KEY,
    tags_code,
)
from rmqtool.rules.system_topics import LMQ_PREFIX, SCHEDULE_TOPIC
from rmqtool.scan.frames import RecordRun, wrong_property_crcs
from rmqtool.scan.inert_records import inert_rows
from rmqtool.scan.reader import scan_files
from rmqtool.scan.single_record import properties_at, record_at

MAX_SUSPECTS = 1024
"""Records that are judged; where more are suspected, queues or index are those of another log."""

MAX_DOUBTED = 1 << 16
"""Messages whose keys in the index are doubted; where there are more, the whole index is no witness."""

PROPERTIES = "properties"
"""The name of the field of a record of whose properties none is left."""

_FEW = 16  # units of one queue: more that lead to records of others are no flipped bits
_LONGEST_TAGS = 127
_TEXT = 3  # bytes: changes of one byte in shorter texts give too many hashes
_NEARBY = 16 << 20  # bytes of the log that are searched for another record of the same queue offset


class SuspectUnit(NamedTuple):
    """A unit that is not what the record gives to which it points."""

    name: QueueName
    queue_offset: int
    message_size: int
    tags_code: int
    batch_size: int | None = None  # of a batch queue


def suspect_of(name: QueueName, unit_number: int, unit: np.void) -> SuspectUnit:
    """A unit with a number in its queue; one of a batch queue has a queue offset of its own."""
    fields = int(unit["message_size"]), int(unit["tags_code"])
    if "base_queue_offset" in (unit.dtype.names or ()):
        return SuspectUnit(name, int(unit["base_queue_offset"]), *fields, int(unit["batch_size"]))
    return SuspectUnit(name, unit_number, *fields)


@dataclass
class Suspects:
    """Records, by physical offset, of which some units or keys are not what they give: the first MAX_SUSPECTS.

    `keys` are the hashes of all index units of a record, in their order; of the records `doubted` they may be damaged.
    """

    units: dict[int, list[SuspectUnit]] = field(default_factory=dict)
    keys: dict[int, tuple[int, ...]] = field(default_factory=dict)
    doubted: set[int] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.units or self.keys)

    @property
    def is_full(self) -> bool:
        """Whether no more records are taken."""
        return len(self.units) >= MAX_SUSPECTS or len(self.keys) >= MAX_SUSPECTS

    def add_unit(self, physical_offset: int, unit: SuspectUnit) -> None:
        """Note a unit that points to a record which does not give it."""
        if not self.is_full and unit not in (known := self.units.setdefault(physical_offset, [])):
            known.append(unit)

    def add_keys(self, physical_offset: int, hashes: Sequence[int]) -> None:
        """Note the hashes of a record's index units, some of which are those of none of its keys."""
        if not self.is_full:
            self.keys.setdefault(physical_offset, tuple(hashes))

    def extend(self, other: Suspects) -> None:
        """Add those of a later part of the log."""
        for offset, units in other.units.items():
            for unit in units:
                self.add_unit(offset, unit)
        for offset, hashes in other.keys.items():
            self.add_keys(offset, hashes)
        self.doubted |= other.doubted

    def drop_doubted(self) -> None:
        """Forget keys that may be those of damaged index units."""
        is_all = len(self.doubted) >= MAX_DOUBTED
        self.keys = {offset: keys for offset, keys in self.keys.items() if not is_all and offset not in self.doubted}


class FieldDamage(NamedTuple):
    """A damaged field of the record at a physical offset: what it holds, what it held where that is known, and why."""

    physical_offset: int
    field: str
    found: str | int | None
    expected: str | int | None
    witnesses: tuple[str, ...]
    name: QueueName | None  # the queue that serves the message
    queue_offset: int | None
    key_hashes: tuple[int, ...]  # of index units that no key of the record has any more
    proven: ProvenRecord
    renamed_keys: int = 0  # without tags, which a start that puts them again puts under another topic

    @property
    def facts(self) -> dict[str, Any]:
        """What a finding has of it; the sentence names the hash of a key only where the value is not known."""
        details = {"hash": None, "field": self.field, "found": self.found, "expected": self.expected,
                   "witnesses": list(self.witnesses), "key_hashes": list(self.key_hashes)}  # fmt: skip
        if self.expected is None and self.key_hashes:
            details["hash"] = self.key_hashes[0]
        if self.field == PROPERTIES:
            details["problem"] = PROPERTIES
        return {"offset": self.physical_offset, "topic": self.name and self.name.topic,
                "queue_id": self.name and self.name.queue_id, "queue_offset": self.queue_offset,
                "details": details}  # fmt: skip


class FieldJudge:
    """Judges suspects: which are records with a damaged field. The others are wrong units."""

    def __init__(
        self,
        files: Sequence[MappedFile],
        dispatcher: Dispatcher,
        unit_at: Callable[[QueueName, int], int | None],
        topics: Collection[str] = (),
        *,
        has_tags: bool = False,
    ) -> None:
        """`files` are those of the log; `dispatcher` derives from records as they are; `topics` are those known.

        The index `has_tags` where its broker put them.
        `unit_at` gives the physical offset in the unit of a queue with a number, None without one.
        """
        self._topics = topics
        self._has_tags = has_tags
        self._files = files
        self._dispatcher = dispatcher
        self._unit_at = unit_at
        self._of_queue: Counter[QueueName] = Counter()

    def damages(self, suspects: Suspects) -> list[FieldDamage]:
        """The damaged fields, in the order of the log."""
        if suspects.is_full:
            return []
        self._of_queue = Counter(unit.name for units in suspects.units.values() for unit in units)
        found: list[FieldDamage] = []
        for offset in sorted({*suspects.units, *suspects.keys}):
            with suppress(UnreadableError):
                damage = self._judge(offset, suspects.units.get(offset, []), suspects.keys.get(offset))
                if damage is not None:
                    found.append(damage)
        return found

    def _judge(self, offset: int, units: list[SuspectUnit], hashes: tuple[int, ...] | None) -> FieldDamage | None:
        frames = record_at(self._files, offset)
        if frames is None or len(frames) != 1 or _is_proven(frames):
            return None
        if (properties := _properties_of(frames)) and NAME_VALUE_SEPARATOR not in properties:
            return self._of_properties(frames, units, hashes)
        for unit in units:
            if unit.batch_size is not None and (damage := self._of_batch(frames, unit)):
                return self._with_keys(frames, damage, hashes)
        light = [unit for unit in units if unit.name.topic.startswith(LMQ_PREFIX)]
        if light and (damage := self._of_light_queues(frames, light)):
            return damage
        for unit in units:
            if unit in light:
                continue
            is_agreed = any(other.name != unit.name and other.tags_code == unit.tags_code for other in units)
            damage = self._of_unit(frames, unit, hashes, is_agreed=is_agreed)
            if damage is not None:
                return self._with_keys(frames, damage, hashes)
        return self._of_keys(frames, hashes) if hashes else None

    # ---- what a queue entry proves

    def _of_unit(
        self, frames: RecordRun, unit: SuspectUnit, hashes: tuple[int, ...] | None, *, is_agreed: bool
    ) -> FieldDamage | None:
        if int(frames.message_sizes[0]) != unit.message_size or self._of_queue[unit.name] > _FEW:
            return None
        claim, queue_offset, flags = self._claim_of(frames)
        differs: list[tuple[str, str | int, str | int, ProvenRecord]] = [
            ("topic", claim.topic, unit.name.topic, ProvenRecord(topic=unit.name.topic)),
            ("queue_id", claim.queue_id, unit.name.queue_id, ProvenRecord(queue_id=unit.name.queue_id)),
            ("queue_offset", queue_offset, unit.queue_offset, ProvenRecord(queue_offset=unit.queue_offset)),
        ]
        differs = [each for each in differs if each[1] != each[2]]
        if flags & TRANSACTION_PREPARED:
            flag = flags & ~TRANSACTION_PREPARED
            differs.append(("sys_flag", flags, flag, ProvenRecord(sys_flag=flag)))
        if not differs:
            return self._of_tags(frames, unit, is_agreed=is_agreed)
        if not self._is_its_place(frames, unit, claim, queue_offset, [each[0] for each in differs], hashes):
            return None
        proven = ProvenRecord(tags_code=unit.tags_code)
        for name, _, _, right in differs:
            proven = replace(proven, **{name: getattr(right, name)})
        if len(differs) == 1:
            name, found, expected, _ = differs[0]
            return self._damage(frames, name, found, expected, unit, proven)
        names, found_texts, expected_texts = (", ".join(str(each[column]) for each in differs) for column in range(3))
        return self._damage(frames, names, found_texts, expected_texts, unit, proven)

    def _claim_of(self, frames: RecordRun) -> tuple[QueueName, int, int]:
        """The queue and the queue offset that a record names, and its sys flag."""
        fields, topics = frames.headers.field, self._dispatcher.topic_numbers(frames)
        name = QueueName(self._dispatcher.topics[int(topics[0])], int(fields("queue_id")[0]))
        units = self._dispatcher.dispatch(frames).units
        offset = int(units.queue_offsets[0]) if len(units) else int(fields("queue_offset")[0])
        return name, offset, int(fields("sys_flag")[0])

    def _is_its_place(
        self, frames: RecordRun, unit: SuspectUnit, claim: QueueName, queue_offset: int, names: list[str],
        hashes: tuple[int, ...] | None,
    ) -> bool:  # fmt: skip
        """Whether the unit's place is the record's, and not that which the record names."""
        offset = int(frames.physical_offsets[0])
        if (claim, queue_offset) != (unit.name, unit.queue_offset) and self._unit_at(claim, queue_offset) == offset:
            return False  # record and queue agree: this unit is a second one
        before, after = self._neighbour(unit, -1), self._neighbour(unit, 1)
        if False in (before, after):
            return False
        if len(names) > 1:  # then the unit needs more than itself: both of its neighbours are where they belong
            return before is True and after is True and not self._is_taken(frames, unit)
        field_name = names[0]
        if field_name == "queue_offset":
            # At the end of a queue it may as well be one that a broker has closed up after a gap.
            is_inside = after is True or _is_one_bit(queue_offset, unit.queue_offset)
            return is_inside and not self._is_taken(frames, unit)
        if before or after:
            return True
        # The only message of its queue: a flipped bit leaves the field one byte away, and the index may know more.
        # Where several messages lie in the wrong queue, the files are those of another queue.
        is_alone = self._of_queue[unit.name] == 1
        return field_name == "sys_flag" or (is_alone and self._is_one_byte_apart(claim, unit.name)) or bool(
            hashes and self._gives(frames, ProvenRecord(topic=unit.name.topic), hashes)
        )  # fmt: skip

    def _neighbour(self, unit: SuspectUnit, step: int) -> bool | None:
        """Whether the next unit before or after is of a record that names its place; None where there is none."""
        number = unit.queue_offset + step
        offset = self._unit_at(unit.name, number) if number >= 0 else None
        frames = record_at(self._files, offset) if offset is not None else None
        if frames is None:
            return None
        claim, queue_offset, _ = self._claim_of(frames)
        if claim == unit.name:
            return queue_offset == number
        return None  # it may be damaged itself

    def _is_taken(self, frames: RecordRun, unit: SuspectUnit) -> bool:
        """Whether another record nearby names the unit's place."""
        own = int(frames.physical_offsets[0])
        before = self._unit_at(unit.name, unit.queue_offset - 1) if unit.queue_offset else None
        after = self._unit_at(unit.name, unit.queue_offset + 1)
        low = before if before is not None and own - _NEARBY < before < own else own
        high = after if after is not None and own < after < own + _NEARBY else own + _NEARBY
        for event in scan_files(self._files, low, high):
            if not isinstance(event, RecordRun):
                continue
            units = self._dispatcher.dispatch(event).units
            same = np.flatnonzero((units.queue_offsets == unit.queue_offset) & (units.physical_offsets != own))
            if any(self._dispatcher.queues[units.queues[row]] == unit.name for row in same.tolist()):
                return True
        return False

    @staticmethod
    def _is_one_byte_apart(found: QueueName, expected: QueueName) -> bool:
        if found.topic == expected.topic:
            return _differing_bytes(found.queue_id.to_bytes(4, "big", signed=True),
                                    expected.queue_id.to_bytes(4, "big", signed=True)) == 1  # fmt: skip
        return _differing_bytes(found.topic.encode(), expected.topic.encode()) == 1

    def _of_properties(
        self, frames: RecordRun, units: list[SuspectUnit], hashes: tuple[int, ...] | None
    ) -> FieldDamage | None:
        """A record of whose properties none is left: queue entries show that it had tags, index units its keys."""
        claim, queue_offset, _ = self._claim_of(frames)
        sized = [unit for unit in units if unit.message_size == int(frames.message_sizes[0])]
        own = next((unit for unit in sized if unit.name == claim and
                    (unit.batch_size is not None or unit.queue_offset == queue_offset)), None)  # fmt: skip
        light = sorted((*unit.name, unit.queue_offset) for unit in sized if unit.name.topic.startswith(LMQ_PREFIX))
        if own is None and not hashes and not light:
            return None
        proven = ProvenRecord(
            queue_offset=own.queue_offset if own else None,
            tags_code=own.tags_code if own else None,
            key_hashes=hashes,
            batch_size=own.batch_size if own else None,
            light_queues=tuple(light) or None,
        )
        damage = self._damage(frames, PROPERTIES, None, None, own, proven)
        witnesses = (*(("consume-queue",) if own or light else ()), *(("index",) if hashes else ()))
        return damage._replace(
            witnesses=witnesses, key_hashes=self._without_tags(claim, queue_offset, own, hashes or ())
        )

    def _without_tags(
        self, name: QueueName, queue_offset: int, own: SuspectUnit | None, hashes: tuple[int, ...]
    ) -> tuple[int, ...]:
        """The hashes of a record without that of its tags: no entry of a delayed message shows whether it had any."""
        of_tags = None
        if own and name.topic != SCHEDULE_TOPIC:
            of_tags = _hash_of_tags(name.topic, own.tags_code, hashes)
        elif self._has_tags and (name.topic == SCHEDULE_TOPIC or self._unit_at(name, queue_offset) is None):
            of_tags = hashes[-1] if len(hashes) > 1 else None
        return tuple(each for each in hashes if each != of_tags)

    def _of_batch(self, frames: RecordRun, unit: SuspectUnit) -> FieldDamage | None:
        """A batch whose properties do not have the first queue offset, or the count, of its unit."""
        if int(frames.message_sizes[0]) != unit.message_size or self._claim_of(frames)[0] != unit.name:
            return None
        values = properties_at(self._files, int(frames.physical_offsets[0])) or {}
        proven = ProvenRecord(queue_offset=unit.queue_offset, batch_size=unit.batch_size)
        for name, right in ((INNER_NUM, str(unit.batch_size)), (INNER_BASE, str(unit.queue_offset))):
            found = values.get(name)
            if name == INNER_NUM and found is not None and found.isdecimal():
                continue  # one number against another: either may be the damaged one
            if found is not None and _differing_bytes(found.encode(), right.encode()) == 1:
                return self._damage(frames, name, found, right, unit, proven)
        return None

    def _of_light_queues(self, frames: RecordRun, units: list[SuspectUnit]) -> FieldDamage | None:
        """A record whose properties do not name the light queues any more that lead to it."""
        size, offset = int(frames.message_sizes[0]), int(frames.physical_offsets[0])
        own = [place for place in self._dispatcher.dispatch(frames).places if place[0].topic.startswith(LMQ_PREFIX)]
        others = [unit for unit in units if (unit.name, unit.queue_offset) not in own]  # those have another tags code
        right = [unit for unit in others if unit.message_size == size and self._of_queue[unit.name] <= _FEW]
        if not right or not all(self._is_between_its_own(unit) for unit in right):
            return None
        kept = [(name, number) for name, number in own if self._unit_at(name, number) == offset]
        places = {*kept, *((unit.name, unit.queue_offset) for unit in right)}
        values = properties_at(self._files, offset) or {}
        lost = next((place for place in own if place not in kept), None)
        moved = lost is not None and lost[0] == right[0].name
        field_name = INNER_MULTI_QUEUE_OFFSET if moved else INNER_MULTI_DISPATCH
        expected = right[0].queue_offset if moved else right[0].name.topic
        proven = ProvenRecord(light_queues=tuple((*name, number) for name, number in sorted(places)))
        return self._damage(frames, field_name, values.get(field_name), expected, right[0], proven)

    def _is_between_its_own(self, unit: SuspectUnit) -> bool:
        """Whether a unit next to this one is of a record that names its place, and none is of one that does not."""
        found = []
        for number in (unit.queue_offset - 1, unit.queue_offset + 1):
            offset = self._unit_at(unit.name, number) if number >= 0 else None
            frames = record_at(self._files, offset) if offset is not None else None
            if frames is not None:
                found.append((unit.name, number) in self._dispatcher.dispatch(frames).places)
        return any(found)

    def _of_tags(self, frames: RecordRun, unit: SuspectUnit, *, is_agreed: bool) -> FieldDamage | None:
        """A record whose tags, or whose delay level, are not those of its unit; one of another queue may agree."""
        if unit.tags_code in self._dispatcher.dispatch(frames).units.tags_codes.tolist():
            return None
        properties = _properties_of(frames)
        values = properties_at(self._files, int(frames.physical_offsets[0])) or {}
        proven = ProvenRecord(tags_code=unit.tags_code)
        if unit.name.topic == SCHEDULE_TOPIC:
            level = str(unit.name.queue_id + 1)  # ScheduleMessageService#delayLevel2QueueId
            found = values.get(DELAY)
            is_time = unit.tags_code > int(frames.headers.field("store_timestamp")[0])
            return self._damage(frames, DELAY, found, level, unit, proven) if found != level and is_time else None
        own = tags_code(values.get(TAGS))
        is_broken = len(frames.property_crcs.rows) > 0  # its __CRC32# is wrong: else nothing would be judged
        text = former_tags(properties, own, unit.tags_code, lambda: is_broken or is_agreed or self._is_seen(unit, own))
        return None if text is None else self._damage(frames, TAGS, values.get(TAGS), text, unit, proven)

    def _is_seen(self, unit: SuspectUnit, own: int) -> bool:
        """Whether messages around have the unit's tags, and none has the record's."""
        codes = set()
        for number in range(max(0, unit.queue_offset - _FEW), unit.queue_offset + _FEW + 1):
            offset = self._unit_at(unit.name, number) if number != unit.queue_offset else None
            values = properties_at(self._files, offset) if offset is not None else None
            if values is not None:
                codes.add(tags_code(values.get(TAGS)))
        return unit.tags_code in codes and own not in codes

    # ---- what the index proves

    def _keys_of(self, frames: RecordRun, proven: ProvenRecord) -> IndexKeys:
        """The keys of a record with its `proven` fields."""
        records = ProvenRecords({int(frames.physical_offsets[0]): proven})
        return Dispatcher(self._dispatcher.rules, self._dispatcher.batch_topics, records).dispatch(frames).keys

    def _hashes_of(self, frames: RecordRun, proven: ProvenRecord) -> list[int]:
        """The key hashes of a record with its `proven` fields."""
        hashes: list[int] = self._keys_of(frames, proven).key_hashes.tolist()
        return hashes

    def _gives(self, frames: RecordRun, proven: ProvenRecord, hashes: tuple[int, ...]) -> bool:
        """Whether the keys of a record with its `proven` fields have just these hashes, with its tags or without."""
        keys = self._keys_of(frames, proven)  # tags by the newest rules, whoever wrote the index
        return {*hashes} in ({*keys.key_hashes.tolist()}, {*keys.key_hashes[keys.kinds != OF_TAGS].tolist()})

    def _with_keys(self, frames: RecordRun, damage: FieldDamage, hashes: tuple[int, ...] | None) -> FieldDamage:
        """A damage of which the index is a witness, too, where it has units of the record."""
        if not hashes:
            return damage
        agrees = set(hashes) >= set(self._hashes_of(frames, damage.proven))
        witnesses = (*damage.witnesses, "index") if agrees else damage.witnesses
        return damage._replace(witnesses=witnesses, proven=replace(damage.proven, key_hashes=hashes))

    def _of_keys(self, frames: RecordRun, hashes: tuple[int, ...]) -> FieldDamage | None:
        """A record of whose keys the index has another hash."""
        derived = self._hashes_of(frames, ProvenRecord())
        if not set(hashes) & set(derived) and (by_topic := self._of_topic(frames, hashes)):
            return by_topic
        unknown = [*(Counter(hashes) - Counter(derived)).elements()]
        if not Counter(derived) - Counter(hashes):  # a broker may have put all keys of a message twice
            unknown = [each for each in unknown if each not in derived]
        topic = self._claim_of(frames)[0].topic
        properties = _properties_of(frames)
        found = [_key_of(properties, topic, each) if each not in derived else None for each in unknown]
        known = [each for each in found if each is not None]
        if not unknown or (len(known) < len(unknown) and not set(hashes) & set(derived)):
            return None
        name, text = known[0] if known else (KEYS, None)
        values = properties_at(self._files, int(frames.physical_offsets[0])) or {}
        damage = self._damage(frames, name, values.get(name), text, None, ProvenRecord(key_hashes=hashes))
        return damage._replace(witnesses=("index",), key_hashes=tuple(unknown))

    def _of_topic(self, frames: RecordRun, hashes: tuple[int, ...]) -> FieldDamage | None:
        """A record whose keys the index has under a topic that differs in one byte."""
        own = self._claim_of(frames)[0].topic
        for topic in self._topics:
            is_near = _differing_bytes(own.encode(), topic.encode()) == 1
            if is_near and self._gives(frames, ProvenRecord(topic=topic), hashes):
                proven = ProvenRecord(topic=topic, key_hashes=hashes)
                return self._damage(frames, "topic", own, topic, None, proven)._replace(witnesses=("index",))
        return None

    def _damage(
        self, frames: RecordRun, name: str, found: str | int | None, expected: str | int | None,
        unit: SuspectUnit | None, proven: ProvenRecord,
    ) -> FieldDamage:  # fmt: skip
        crc = ("property-crc",) if len(frames.property_crcs.rows) else ()
        queue = ("consume-queue",) if unit else ()
        renamed_keys = len(self._keys_of(frames, proven).hashes_without_tags) if proven.topic else 0
        return FieldDamage(
            int(frames.physical_offsets[0]), name, found, expected, (*queue, *crc), unit and unit.name,
            unit and unit.queue_offset, (), proven, renamed_keys,
        )  # fmt: skip


def former_tags(properties: bytes, own: int, code: int, is_backed: Callable[[], bool]) -> str | None:
    """The tags that a record had by the `code` in its unit, before one byte of its properties changed.

    None where the unit may as well be what is damaged, and not `is_backed` by something else. `own` is the code of the
    tags that the record has.
    """
    text = _text_of(properties, TAGS, lambda codes, _: codes == code)
    is_weak = text is not None and (len(text) < _TEXT or _is_one_bit(own, code))  # the unit may be as near
    return None if is_weak and not is_backed() else text


def _is_proven(frames: RecordRun) -> bool:
    """Whether it is proven of a record that its fields are right, or that its units serve nobody."""
    if frames.wrong_bodies.any() or inert_rows(frames):
        return True  # nothing of the lost record is in the latter
    return len(frames.property_crcs.rows) > 0 and not [*wrong_property_crcs(frames)]


def _properties_of(frames: RecordRun) -> bytes:
    start, size = int(frames.properties_positions[0]), int(frames.properties_sizes[0])
    return bytes(frames.block.bytes[start : start + size])


def _differing_bytes(found: bytes, expected: bytes) -> int:
    return sum(a != b for a, b in zip(found, expected, strict=True)) if len(found) == len(expected) else -1


def _is_one_bit(first: int, second: int) -> bool:
    return ((first ^ second) & ((1 << 64) - 1)).bit_count() == 1


def _key_of(properties: bytes, topic: str, key_hash: int) -> tuple[str, str] | None:
    """The property, and the key in it, whose hash the index has and from which one byte may have changed."""
    for name, kind in ((UNIQUE_KEY, ""), (KEYS, ""), (TAGS, "T#")):
        prefix = string_hash(f"{topic}#{kind}")
        text = _text_of(properties, name, partial(_has_index_hash, prefix, key_hash))
        if text is not None:
            return name, text
    return None


def _has_index_hash(prefix: int, key_hash: int, codes: NDArray[Any], size: int) -> NDArray[np.bool_]:
    """Which texts of one size have a hash after a prefix, by the hashes of both (`IndexFile#indexKeyHashMethod`)."""
    full = (codes + prefix * pow(31, size, 1 << 32) % (1 << 32)) & 0xFFFFFFFF
    absolute = np.abs(np.where(full >= 1 << 31, full - (1 << 32), full))
    matches: NDArray[np.bool_] = np.where(absolute == 1 << 31, 0, absolute) == key_hash
    return matches


def _hash_of_tags(topic: str, code: int, hashes: tuple[int, ...]) -> int | None:
    """Which hash is that of tags with a code, of any length, which brokers put since 5.4; None: they put none."""
    prefix, codes = string_hash(f"{topic}#T#"), np.array([code])
    sizes = range(1, _LONGEST_TAGS + 1)
    return next((each for each in hashes if any(_has_index_hash(prefix, each, codes, size)[0] for size in sizes)), None)


def _text_of(properties: bytes, name: str, matches: Callable[[NDArray[Any], int], NDArray[Any]]) -> str | None:
    """The value of a property, or a key in it, that matches once one byte of the properties is changed; None: none.

    `matches` takes hashes of texts, as Java has them, and the size of these.
    """
    for value in _values_nearby(properties, name):
        for piece in dict.fromkeys([value, *value.split(b" ")]):
            if piece and (text := _changed(piece, matches)) is not None:
                return text
    return None


def _values_nearby(properties: bytes, name: str) -> Iterator[bytes]:
    """Values that a property may have had: its own, and those once its name or a separator has another byte."""
    wanted = name.encode()
    pieces = [piece.partition(b"\x01") for piece in properties.split(b"\x02")]
    yield from (value for found, _, value in pieces if found == wanted)
    yield from (value for found, _, value in pieces if _differing_bytes(found, wanted) == 1)
    for position in range(len(properties)):
        for separator in (NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR):
            changed = properties[:position] + bytes([separator]) + properties[position + 1 :]
            for piece in changed.split(b"\x02"):
                found, _, value = piece.partition(b"\x01")
                if found == wanted and piece not in properties.split(b"\x02"):
                    yield value


def _changed(piece: bytes, matches: Callable[[NDArray[Any], int], NDArray[Any]]) -> str | None:
    """A text of single bytes, as it is or with one of them changed, that matches; None without one."""
    letters = np.frombuffer(piece, np.uint8).astype(np.int64)
    powers = np.array([pow(31, len(piece) - 1 - at, 1 << 32) for at in range(len(piece))], dtype=np.int64)
    own = int((letters * powers % (1 << 32)).sum()) % (1 << 32)
    steps = (np.arange(256)[None, :] - letters[:, None]) * powers[:, None]
    hashes = (own + steps) % (1 << 32)
    signed = np.where(hashes >= 1 << 31, hashes - (1 << 32), hashes)
    hits = np.argwhere(matches(signed, len(piece)))
    if not len(hits):
        return None
    at, letter = hits[0].tolist()
    return decode_text(piece[:at] + bytes([letter]) + piece[at + 1 :])
