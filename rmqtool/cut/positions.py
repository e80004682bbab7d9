"""The positions in queues that end earlier: committed offsets, delay levels, half messages, and the timer.

A position past the end of its queue skips the messages that come next. One before it may be too far all the same: what
a broker had delivered from there goes with the end of the log, and is delivered again from an earlier position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.half_messages import ended_halves
from rmqtool.clients.groups import next_message
from rmqtool.cut.queues import CutQueue, required_name
from rmqtool.cut.rows import GroupQueue, NewOffsets
from rmqtool.cut.tail import Tail, first_undone
from rmqtool.findings.finding import counted
from rmqtool.repair.change import Change, FileChange
from rmqtool.repair.proven_entries import levels_in, offsets_in
from rmqtool.rules.system_topics import HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, TRANSACTION_GROUP
from rmqtool.store.config_tables import CONSUMER_OFFSET, DELAYS, OFFSETS, config_database, load_delay_offsets
from rmqtool.store.config_text import Member, bytes_of, text_of, with_values
from rmqtool.store.queue_units import QueueRange
from rmqtool.store.single_messages import SingleMessages
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CONFIG


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
    """Where groups, levels and half messages go on; `halves` of them lose their answer, `again` are delivered again."""

    groups: tuple[GroupLoss, ...]
    offsets: Mapping[GroupQueue, int]
    levels: Mapping[int, int]
    halves: int
    again: int


class PositionsAfter:
    """Finds them, for queues that are `cut` and a `tail` that goes."""

    def __init__(self, snapshot: Snapshot, cut: Sequence[CutQueue], tail: Tail) -> None:
        self._snapshot, self._tail = snapshot, tail
        self._cut = {each.name: each for each in cut}
        self._messages = SingleMessages(snapshot)

    def found(self) -> Positions:
        """All of them; raises UnreadableError."""
        halves = dict(self._halves())
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
            if end < each.offset:
                offsets[each.group, each.topic, each.queue_id] = end
            if cut is not None:
                lowered = end if end < each.offset else None
                groups.append(self._loss(each.group, cut, each.offset, lowered))
        levels, again = self._levels()
        waiting = sum(len(each) for each in halves.values())
        return Positions(tuple(groups), offsets, levels, waiting, again)

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

    def offsets(text: str) -> Iterator[tuple[Member, int]]:
        return _lowered(
            (place, offset, positions.offsets.get(key)) for key, (place, offset) in offsets_in(text).items()
        )

    def levels(text: str) -> Iterator[tuple[Member, int]]:
        return _lowered((place, offset, positions.levels.get(key)) for key, (place, offset) in levels_in(text).items())

    for name in OFFSETS:
        yield from _changed(snapshot, name, offsets)
    yield from _changed(snapshot, DELAYS, levels)


def _lowered(found: Iterable[tuple[Member, int, int | None]]) -> Iterator[tuple[Member, int]]:
    return ((place, to) for place, offset, to in found if to is not None and to < offset)


def _changed(snapshot: Snapshot, name: str, values: Callable[[str], Iterator[tuple[Member, int]]]) -> Iterator[Change]:
    for each in (name, f"{name}.bak"):
        path = snapshot.store.root / CONFIG / each
        text = text_of(path) if path.exists() else None
        found = [*values(text)] if text else []
        if text and found:
            in_store = required_name(snapshot.store, path)
            what = f"{in_store}: {counted(len(found), 'offset')} lowered"
            yield FileChange(codes=frozenset(), what=what, name=in_store, content=bytes_of(with_values(text, found)))
