"""Single messages of a store and the queues that lead to them, for checks that need a few and not all."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from rmqtool.base.errors import RmqtoolError
from rmqtool.formats.layout import struct_of
from rmqtool.formats.message import HEADER_DTYPES, format_message_id, transaction
from rmqtool.formats.properties import KEYS, REAL_QUEUE_ID, REAL_TOPIC, TAGS, UNIQUE_KEY, split_keys
from rmqtool.rules.system_topics import SCHEDULE_TOPIC
from rmqtool.scan.single_record import SingleRecord, single_record_at
from rmqtool.store.config_tables import entries_in, is_deleted
from rmqtool.store.queue_units import LoadedQueue
from rmqtool.store.snapshot import Snapshot

Message = dict[str, Any]
"""Of the fields that the machine interface has, those that checks ask about."""

_NUMBERS = (
    "message_size", "queue_id", "queue_offset", "physical_offset", "sys_flag", "store_timestamp", "reconsume_times",
)  # fmt: skip
_STRUCTS = {layout: struct_of(layout, *_NUMBERS) for layout in HEADER_DTYPES.values()}
_KEPT = 4096


class SingleMessages:
    """Messages by physical offset and by queue offset; None for those that cannot be read."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        # Those of others, too: deliveries are looked up for the checks, the start and the plan.
        self.at = snapshot.kept.setdefault(SingleMessages, lru_cache(_KEPT)(self._at))
        self._unit_at = snapshot.kept.setdefault(LoadedQueue, lru_cache(_KEPT)(LoadedQueue.unit_at))

    def _at(self, physical_offset: int) -> Message | None:
        """The message that begins at a physical offset."""
        with suppress(RmqtoolError):
            record = single_record_at(self.snapshot.log.files, physical_offset)
            return None if record is None else message_of(record)
        return None

    def queue(self, topic: str, queue_id: int) -> LoadedQueue | None:
        """A queue of a topic, None without a unit in it; batch queues are not read."""
        with suppress(RmqtoolError):
            queue = self.snapshot.queue(topic, queue_id)
            if queue and queue.queue.kind == "simple" and queue.range.max_offset > queue.range.min_offset:
                return queue
        return None

    def in_queue(self, queue: LoadedQueue, queue_offset: int) -> Message | None:
        """The message that a unit of a queue points at."""
        return self.waiting(queue, queue_offset)[0]

    def waiting(self, queue: LoadedQueue, queue_offset: int) -> tuple[Message | None, int | None]:
        """A message of a delay level, and when it is due, epoch ms: its unit stores that instead of the tags code."""
        with suppress(RmqtoolError):
            unit = self._unit_at(queue, queue_offset)
            return (None, None) if unit is None else (self.at(unit.physical_offset), unit.tags_code)
        return None, None

    def stored_from(self, queue: LoadedQueue, store_timestamp: int) -> Iterator[Message | None]:
        """The messages of a queue from the first that was stored at a time or later, epoch ms."""

        def is_later(queue_offset: int) -> bool:
            message = self.in_queue(queue, queue_offset)
            return message is None or bool(message["store_timestamp"] >= store_timestamp)

        end = queue.range.max_offset
        first = bisect_left(range(end), True, queue.range.min_offset, key=is_later)
        yield from (self.in_queue(queue, queue_offset) for queue_offset in range(first, end))


def message_of(record: SingleRecord) -> Message:
    """A record as a message."""
    message: Message = dict(zip(_NUMBERS, _STRUCTS[record.layout].unpack_from(record.header), strict=True))
    properties = record.properties
    return message | {
        "topic": record.topic,
        "message_id": format_message_id(record.store_host, message["physical_offset"]),
        "unique_key": properties.get(UNIQUE_KEY),
        "keys": split_keys(properties.get(KEYS)),
        "tags": properties.get(TAGS),
        "properties": properties,
        "transaction": transaction(message["sys_flag"]),
    }


_ROUNDING_MS = 1_000


def proofs_of_topics(lasts: Mapping[str, Iterable[int]], messages: SingleMessages) -> dict[str, dict[str, str | int]]:
    """Facts that show why topics that are not configured were not deleted; one that may have been has none.

    `lasts` are by topic the physical offsets of the last messages of its queues.
    """
    snapshot, proofs, groups = messages.snapshot, dict[str, dict[str, str | int]](), dict[str, str]()
    if "groupTopicMap" in snapshot.committed.file.content:  # written since 5.0, whose deletion takes the offsets along
        for one in snapshot.committed.offsets if lasts else ():
            if one.topic in lasts and one.offset > 0:
                groups[one.topic] = min(one.group, groups.get(one.topic, one.group))
    proofs |= {topic: {"problem": "consumed", "group": group} for topic, group in groups.items()}
    changed = entries_in(snapshot.topics.file.content, "dataVersion").get("timestamp")  # epoch ms
    if type(changed) is not int:
        return proofs
    for topic, offsets in lasts.items():
        newest = max((int(each["store_timestamp"]) for each in map(messages.at, offsets) if each), default=0)
        if newest > changed + _ROUNDING_MS:
            proofs[topic] = {"problem": "stored-since", "changed": changed, "newest": newest}
    return proofs


def deleted_topics(lasts: Mapping[str, Iterable[int]], messages: SingleMessages) -> frozenset[str]:
    """Those of some topics without a queue that were deleted, and that nothing proves to have been there since."""
    snapshot = messages.snapshot
    found = {
        topic: offsets for topic, offsets in lasts.items() if is_deleted(topic, snapshot.topics, snapshot.releases)
    }
    return frozenset(found.keys() - proofs_of_topics(found, messages).keys())


_EARLY = 2_000  # ms: the tolerance for clocks and rounding; a copy is not stored before its time
_NEXT_RUN = 100  # ms: ScheduleMessageService#DELAY_FOR_A_WHILE, between two runs of a level's task
_MAX_COPIES = 256  # candidates that are compared with one message
_MAX_COUNTED = 512
LEVELS = 64  # more than anyone configures


@dataclass(frozen=True)
class Level:
    """A level whose offset does not fit: `repeated` messages would be delivered twice, `skipped` ones never."""

    level: int
    offset: int
    repeated: int = 0
    skipped: int = 0


@dataclass(frozen=True)
class LoggedLevels:
    """What the log has of the levels, where their queues lack entries.

    `begins` and `ends` are by level the queue offsets of the first message and after the last one, `physical_offset`
    finds the one at a queue offset; `delay` is that of a level, ms, at least. `messages_after` gives the physical
    offsets of a queue's messages after one, None where not all of them are known.
    """

    begins: Mapping[int, int]
    ends: Mapping[int, int]
    messages_after: Callable[[str, int, int], Iterable[int] | None]
    physical_offset: Callable[[int, int], int | None]
    delay: Callable[[int], int]


@dataclass(frozen=True)
class Deliveries:
    """The deliveries that the log shows.

    `newest` is the newest store timestamp, `known_until` is when the offsets were written, epoch ms.

    The log of a broker that was killed `may_end_early`: what it had delivered by then it may have lost.

    Later deliveries may be missing in the offsets of a broker that was killed. Copies before the
    physical offset `lacks_until` may be missing in the log: left out on purpose, or in damage.
    """

    messages: SingleMessages
    newest: int
    known_until: int
    lacks_until: int = 0
    logged: LoggedLevels | None = None
    may_end_early: bool = False

    @property
    def _ran_until(self) -> int:
        return max(self.newest, self.known_until) if self.may_end_early else self.newest

    def levels(self, offsets: dict[int, int]) -> Iterator[Level]:
        """The levels whose offset, 0 where `offsets` has none, differs from the end of their deliveries."""
        for level in range(1, LEVELS + 1):
            queue = self.messages.queue(SCHEDULE_TOPIC, level - 1)
            low, high = self._range(level, queue)
            if low == high:
                continue
            offset = offsets.get(level, 0)
            at = min(max(offset, low), high)
            ahead = range(at, min(high, at + _MAX_COUNTED))
            behind = range(at - 1, max(low, at - _MAX_COUNTED) - 1, -1)
            repeated = self._count_run(level, queue, ahead, delivered=True)
            skipped = self._count_run(level, queue, behind, delivered=False)
            if repeated or skipped:
                yield Level(level, offset, repeated, skipped)

    def is_one_run(self, level: Level) -> bool:
        """Whether what a level repeats was delivered in one run with the message before its offset.

        A run goes on while the next message is due; each delivery after a later start is a copy, too.
        """
        queue = self.messages.queue(SCHEDULE_TOPIC, level.level - 1)
        low, _ = self._range(level.level, queue)
        if level.offset <= 0 or not level.repeated:
            return False
        followed = range(max(level.offset, low + 1), max(level.offset, low) + level.repeated)
        return all(self._is_followed(level.level, queue, queue_offset) for queue_offset in followed)

    def _is_followed(self, level: int, queue: LoadedQueue | None, queue_offset: int) -> bool:
        """Whether a message was due by the time that the one before it was delivered, once at least."""
        before, (_, due) = self._waiting(level, queue, queue_offset - 1)[0], self._waiting(level, queue, queue_offset)
        if before is None or due is None:
            return False
        copy = find_copy(self.messages, before, due - _NEXT_RUN + _EARLY, self.logged)
        return copy is not None and copy.record is not None

    def end_of(self, level: int) -> int | None:
        """The queue offset after a level's last delivery; None where the log does not prove it.

        A level delivers in the order of its queue: after a message that was not delivered, none was.
        """
        queue = self.messages.queue(SCHEDULE_TOPIC, level - 1)
        low, high = self._range(level, queue)
        if low == high:
            return None
        end = bisect_left(range(high), True, low, key=lambda offset: self._is_due_later(level, queue, offset))
        if end < high and not self._is_due_later(level, queue, high - 1):
            return None  # its times do not ascend
        first = max(low, end - _MAX_COUNTED)
        for queue_offset in reversed(range(first, end)):
            is_delivered = self._is_delivered(level, queue, queue_offset)
            if is_delivered is not False:
                return queue_offset + 1 if is_delivered else None
        return low if first == low else None

    def _range(self, level: int, queue: LoadedQueue | None) -> tuple[int, int]:
        """The queue offsets of a level's messages: those of its queue, and those that the log has past its end."""
        begin, end = (self.logged.begins.get(level, 0), self.logged.ends.get(level, 0)) if self.logged else (0, 0)
        return (queue.range.min_offset, max(queue.range.max_offset, end)) if queue else (begin, end)

    def _is_due_later(self, level: int, queue: LoadedQueue | None, queue_offset: int) -> bool:
        due = self._waiting(level, queue, queue_offset)[1]
        return due is not None and due > self._ran_until

    def _waiting(self, level: int, queue: LoadedQueue | None, queue_offset: int) -> tuple[Message | None, int | None]:
        """A message of a level, and when it is due at the earliest, epoch ms: the time in its unit may be damaged."""
        if queue is not None and (self.logged is None or queue_offset < queue.range.max_offset):
            message, due = self.messages.waiting(queue, queue_offset)
        else:
            physical_offset = self.logged.physical_offset(level, queue_offset) if self.logged else None
            message, due = (None if physical_offset is None else self.messages.at(physical_offset)), None
        delay = self.logged.delay(level) if self.logged else 0
        if message is None or (due is not None and not delay):
            return message, due
        usual = message["store_timestamp"] + delay
        return message, usual if due is None else min(due, usual)

    def _count_run(self, level: int, queue: LoadedQueue | None, queue_offsets: range, *, delivered: bool) -> int:
        """How many messages from the first of `queue_offsets` on were all `delivered`, or all not."""
        for count, queue_offset in enumerate(queue_offsets):
            if self._is_delivered(level, queue, queue_offset) is not delivered:
                return count
        return len(queue_offsets)

    def _is_delivered(self, level: int, queue: LoadedQueue | None, queue_offset: int) -> bool | None:
        """Whether a message of a level has a copy; None when unknown, or delivered after the offsets were written."""
        message, due = self._waiting(level, queue, queue_offset)
        if message is None or due is None or message["unique_key"] is None:
            return None
        not_found = None if message["physical_offset"] < self.lacks_until else False
        if due > self.newest:
            return not_found if due > self._ran_until else None
        copy = find_copy(self.messages, message, due, self.logged)
        if copy is None:
            return None
        if not copy.record:
            return not_found
        return True if copy.record["store_timestamp"] < self.known_until else None


class Copy(NamedTuple):
    """What a search for the copy of a message that waited has found; no message where there is none."""

    record: Message | None


def find_copy(messages: SingleMessages, message: Message, due: int, logged: LoggedLevels | None = None) -> Copy | None:
    """The copy in its real queue of a message that waited until `due`, epoch ms; None where it cannot be known.

    What the queue does not lead to is looked for in the log.
    """
    queue_id = message["properties"].get(REAL_QUEUE_ID, "")
    topic = message["properties"].get(REAL_TOPIC)
    if not topic or not queue_id.isdecimal():
        return None
    target = messages.queue(topic, int(queue_id))
    newest, is_bare = message["physical_offset"], False  # a copy of which no property is left may be any message's
    for count, other in enumerate(messages.stored_from(target, due - _EARLY) if target else ()):
        if other is None or count == _MAX_COPIES:
            return None
        if _is_copy(message, other):
            return Copy(other)
        newest, is_bare = max(newest, other["physical_offset"]), is_bare or not other["properties"]
    if logged is None or is_bare:
        return Copy(None) if target and not is_bare else None
    rest = logged.messages_after(topic, int(queue_id), newest)
    for count, offset in enumerate(rest or ()):
        other = messages.at(offset)
        if count == _MAX_COPIES:
            return None
        if other is not None and other["store_timestamp"] >= due - _EARLY and _is_copy(message, other):
            return Copy(other)
    return Copy(None) if target or rest is not None else None


def _is_copy(message: Message, other: Message) -> bool:
    is_equal = all(other[name] == message[name] for name in ("unique_key", "reconsume_times"))
    return is_equal and bool(other["physical_offset"] > message["physical_offset"])
