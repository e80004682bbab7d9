"""The positions in queues that end earlier: committed offsets, delay levels, half messages, and the timer.

A position past the end of its queue skips the messages that come next. One before it may be too far all the same: what
a broker had delivered from there goes with the end of the log, and is delivered again from an earlier position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rmqtool.broker.check_points import bookkeeping, in_flight
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.half_messages import ended_halves
from rmqtool.clients.groups import next_message
from rmqtool.cut.queues import CutQueue, required_name
from rmqtool.cut.rows import GroupQueue, NewOffsets
from rmqtool.cut.tail import Tail, first_before, first_undone
from rmqtool.findings.finding import counted
from rmqtool.formats.properties import TAGS
from rmqtool.repair.change import Change, FileChange
from rmqtool.repair.proven_entries import levels_in, offsets_in
from rmqtool.rules.system_topics import (
    HALF_TOPIC,
    OP_TOPIC,
    REVIVE_GROUP,
    REVIVE_PREFIX,
    SCHEDULE_TOPIC,
    TRANSACTION_GROUP,
)
from rmqtool.scan.single_record import message_at
from rmqtool.store.config_tables import CONSUMER_OFFSET, DELAYS, OFFSETS, config_database, load_delay_offsets
from rmqtool.store.config_text import Member, bytes_of, text_of, with_values
from rmqtool.store.queue_units import LoadedQueue, QueueRange
from rmqtool.store.single_messages import SingleMessages
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CONFIG
from rmqtool.store.version_signs import PULL_OFFSETS


@dataclass(frozen=True)
class GroupLoss:
    """What a group loses of a queue: messages that it has not read; `read` ones go, too.

    Its committed offset becomes `lowered_to`; None where that stays.
    """

    group: str
    topic: str
    queue_id: int
    committed: int
    unread: int
    read: int
    lowered_to: int | None


@dataclass(frozen=True)
class Positions:
    """Where groups, levels and half messages go on; `halves` of them lose their answer, `again` are delivered again.

    A group without any position left has the offset -1. Queues that are cut have `ends`. `taken` messages of POP
    consumers lose their check point.
    """

    offsets: Mapping[GroupQueue, int]
    groups: tuple[GroupLoss, ...] = ()
    ends: Mapping[QueueName, int] = field(default_factory=dict)
    levels: Mapping[int, int] = field(default_factory=dict)
    halves: int = 0
    again: int = 0
    taken: int = 0


class PositionsAfter:
    """Finds them, for queues that are `cut` and a `tail` that goes."""

    def __init__(self, snapshot: Snapshot, cut: Sequence[CutQueue], tail: Tail) -> None:
        self._snapshot, self._tail = snapshot, tail
        self._cut = {each.name: each for each in cut}
        self._messages = SingleMessages(snapshot)

    def found(self) -> Positions:
        """All of them; raises UnreadableError."""
        halves, taken = dict(self._halves()), self._taken()
        offsets: dict[GroupQueue, int] = {}
        groups = []
        for each in self._snapshot.committed.offsets:
            name = QueueName(each.topic, each.queue_id)
            cut = self._cut.get(name)
            end = each.offset if cut is None else min(each.offset, cut.max_after)
            if each.group == TRANSACTION_GROUP and each.topic == HALF_TOPIC:
                end = min([end, *halves.get(each.queue_id, ())])
                queue = self._messages.queue(*name)
                end = first_undone(queue, end, self._tail, self._messages) if queue else end
            elif each.group == REVIVE_GROUP and each.topic.startswith(REVIVE_PREFIX):
                end = self._revived(name, each.offset)
            end = min([end, *taken.get((each.group, *name), ())])
            if end < each.offset:
                offsets[each.group, each.topic, each.queue_id] = end
            if cut is not None:
                lowered = max(0, end) if end < each.offset else None
                groups.append(self._loss(each.group, cut, each.offset, lowered))
        levels, again = self._levels()
        waiting = sum(len(each) for each in halves.values()) + len(self._tail.ended_halves)
        ends = {name: cut.max_after for name, cut in self._cut.items()}
        return Positions(offsets, tuple(groups), ends, levels, waiting, again, sum(map(len, taken.values())))

    def _loss(self, group: str, cut: CutQueue, committed: int, lowered: int | None) -> GroupLoss:
        served = QueueRange(0, cut.max_before)
        following = next_message(committed, served, self._snapshot.release)
        position = cut.max_after if following is None else max(following, cut.max_after)
        return GroupLoss(group, *cut.name, committed, cut.max_before - position, position - cut.max_after, lowered)

    def _halves(self) -> Iterator[tuple[int, list[int]]]:
        """By queue, the offsets of the half messages before the cut whose answer, or later copy, goes."""
        copied = dict(self._tail.copied_halves)
        for queue_id in self._snapshot.queue_ids(HALF_TOPIC):
            cut = self._cut.get(QueueName(OP_TOPIC, queue_id))
            ended: Iterable[int] = ()
            if cut is not None:
                found = ended_halves(cut.queue, cut.number, cut.max_before, self._snapshot.log.files)
                ended = found.offsets.tolist()
            own = self._cut.get(QueueName(HALF_TOPIC, queue_id))
            queue = self._snapshot.queue(HALF_TOPIC, queue_id)
            end = own.max_after if own else queue.range.max_offset if queue else 0
            offsets = {*ended, *([copied[queue_id]] if queue_id in copied else [])}
            yield queue_id, sorted(each for each in offsets if each < end)

    def _taken(self) -> dict[GroupQueue, set[int]]:
        """The messages before the cut that a POP consumer holds by a check point that was stored after it.

        Nothing would bring them back after the time that the consumer has for them: its group has to go on before them.
        """
        found: dict[GroupQueue, set[int]] = {}
        for pop, rest in in_flight(bookkeeping(self._snapshot.log.files, self._tail.pops))[0].items():
            cut = self._cut.get(QueueName(pop.topic, pop.queue_id))
            left = {offset for offset in rest.offsets if cut is None or offset < cut.max_after}
            if left:
                found.setdefault((pop.group, pop.topic, pop.queue_id), set()).update(left)
        return found

    def _revived(self, name: QueueName, last: int) -> int:
        """The last check point that stays done: of a later one, a message came back after the cut."""
        cut = self._cut.get(name)
        end = min(last + 1, cut.max_after if cut else last + 1)
        queue = self._messages.queue(*name)
        return (first_before(queue, end, lambda offset: self._came_back(queue, offset)) if queue else end) - 1

    def _came_back(self, queue: LoadedQueue, queue_offset: int) -> bool:
        """Whether a message of a check point was stored again after the cut, as a retry."""
        unit = queue.unit_at(queue_offset)
        found = message_at(self._snapshot.log.files, unit.physical_offset) if unit else None
        taken = in_flight([(found[0].get(TAGS, ""), found[1])])[0] if found else {}
        return any(
            message is not None and self._tail.has(message["unique_key"], message["reconsume_times"] + 1)
            for pop, rest in taken.items()
            if (taken_from := self._messages.queue(pop.topic, pop.queue_id))
            for message in (self._messages.in_queue(taken_from, offset) for offset in rest.offsets)
        )

    def _levels(self) -> tuple[dict[int, int], int]:
        """Where delay levels go on, and how many messages they deliver again."""
        levels, again = dict[int, int](), 0
        for level, offset in load_delay_offsets(self._snapshot.store).by_level.items():
            name = QueueName(SCHEDULE_TOPIC, level - 1)
            queue = self._messages.queue(*name)
            if queue is None or self._tail.records == 0:
                continue
            cut = self._cut.get(name)
            end = min(offset, cut.max_after if cut else offset)
            first = first_undone(queue, end, self._tail, self._messages, by_time=True)
            again += end - first
            if first < offset:
                levels[level] = first
        return levels, again


def position_changes(snapshot: Snapshot, positions: Positions) -> Iterator[Change]:
    """The files of offsets with the new ones, each with its ``.bak``, or the database that has them."""
    database = config_database(snapshot.store, CONSUMER_OFFSET)
    if positions.offsets and database is not None:
        what = f"{CONFIG}/{database.name}: {counted(len(positions.offsets), 'offset')} lowered"
        yield NewOffsets(codes=frozenset(), what=what, directory=database, offsets=positions.offsets)

    def offsets(text: str) -> Iterator[tuple[Member, int | None]]:
        committed, pulled = offsets_in(text).items(), offsets_in(text, (PULL_OFFSETS,)).items()
        yield from _lowered((place, offset, positions.offsets.get(key)) for key, (place, offset) in committed)
        yield from _lowered((place, offset, positions.ends.get(QueueName(*key[1:]))) for key, (place, offset) in pulled)

    def levels(text: str) -> Iterator[tuple[Member, int | None]]:
        return _lowered((place, offset, positions.levels.get(key)) for key, (place, offset) in levels_in(text).items())

    for name in OFFSETS:
        yield from _changed(snapshot, name, offsets)
    yield from _changed(snapshot, DELAYS, levels)


def _lowered(found: Iterable[tuple[Member, int, int | None]]) -> Iterator[tuple[Member, int | None]]:
    return ((place, to if to >= 0 else None) for place, offset, to in found if to is not None and to < offset)


def _changed(
    snapshot: Snapshot, name: str, values: Callable[[str], Iterator[tuple[Member, int | None]]]
) -> Iterator[Change]:
    for each in (name, f"{name}.bak"):
        path = snapshot.store.root / CONFIG / each
        text = text_of(path) if path.exists() else None
        found = [*values(text)] if text else []
        if text and found:
            in_store = required_name(snapshot.store, path)
            what = f"{in_store}: {counted(len(found), 'offset')} lowered"
            yield FileChange(codes=frozenset(), what=what, name=in_store, content=bytes_of(with_values(text, found)))
