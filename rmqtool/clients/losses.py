"""What clients had and do not get any more: the difference of two states of a store, as numbers."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from typing import Any, Protocol

from rmqtool.findings.finding import counted
from rmqtool.store.config_tables import CommittedOffset

_LISTED = 100  # of each list in JSON; the counts are complete


@dataclass(frozen=True)
class UnreachableQueue:
    """Queue entries of one queue that led to a whole message, and do not any more: the first of them, and how many.

    Of `in_damage` the messages are not whole, so that no queue entry leads to them again.
    """

    topic: str
    queue_id: int
    first_queue_offset: int
    messages: int
    in_damage: int = 0


@dataclass
class Unreachable:
    """Queue entries that consumers do not get any more, by queue."""

    queues: list[UnreachableQueue] = field(default_factory=list)

    @property
    def messages(self) -> int:
        """How many queue entries."""
        return sum(queue.messages for queue in self.queues)


@dataclass
class Due:
    """Delayed or timer messages that come at another time: `early`, `late`, `never`, or once more (`again`)."""

    early: int = 0
    late: int = 0
    never: int = 0
    again: int = 0

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.early or self.late or self.never or self.again)

    def __add__(self, other: Due) -> Due:
        """All of both."""
        return Due(*map(operator.add, astuple(self), astuple(other)))


@dataclass(frozen=True)
class MovedGroup:
    """A group that goes on elsewhere in a queue: queue offsets of its next message, None for none."""

    group: str
    topic: str
    queue_id: int
    next_had: int | None
    next_after: int | None


@dataclass(frozen=True)
class Had:
    """What clients had: of each queue, by topic and queue id, how many queue entries, and how many pairs of a key."""

    entries: Mapping[tuple[str, int], int] = field(default_factory=dict)
    keys: int = 0


@dataclass(frozen=True)
class ServedDamage:
    """What clients get of a damaged message: by which entries (topic, queue id, queue offset), and by so many keys.

    Of these entries consumers of its tag miss `missed_by_tag`.
    """

    entries: tuple[tuple[str, int, int], ...]
    keys: int
    missed_by_tag: int = 0


class ByOffsets(Protocol):
    """What is lost by offsets that a store would have, where all its queues are whole; None: by those that it has."""

    def with_whole(self, names: Sequence[tuple[str, int]]) -> ByOffsets:
        """The same, once messages of some queues are whole again that were not."""

    def kept(self) -> ByOffsets:
        """The same for a repair that leaves committed offsets as they are."""

    def groups(
        self, committed: Iterable[CommittedOffset] | None = None, *, lost: Collection[str] | None = ()
    ) -> list[MovedGroup]:
        """The groups that go on elsewhere; a repair brings those past the end to it in topics that `lost` messages.

        With None these are not known, and may be all.
        """

    def delayed(self, by_level: Mapping[int, int] | None = None, *, are_proven: bool = False) -> Due:
        """The delayed messages that come at another time; raises RmqtoolError.

        Levels go on where the log shows that their deliveries end, if offsets `are_proven`.
        """


@dataclass
class BesideLog:
    """Messages that consumers do not get of compacted queues, and of queues that have a tier.

    Of either so many are `left` after a repair of the files, but for those of queues of the tier that it repairs. Those
    `hidden_by_queue` are in the local store, and no repair makes a broker serve them. Those `missed_by_queue` do not
    reach consumers of their tag, because of their entries in the tier.
    """

    compacted: int = 0
    compacted_left: int = 0
    tiered: int = 0
    tiered_left: int = 0
    tiered_by_queue: dict[tuple[str, int], int] = field(default_factory=dict)
    hidden_by_queue: dict[tuple[str, int], int] = field(default_factory=dict)
    missed_by_queue: dict[tuple[str, int], int] = field(default_factory=dict)

    def lose_tiered(self, topic: str, queue_id: int, count: int) -> None:
        """Count messages of a queue that a repair may bring back."""
        self.tiered, self.tiered_left = self.tiered + count, self.tiered_left + count
        self.tiered_by_queue[topic, queue_id] = self.tiered_by_queue.get((topic, queue_id), 0) + count

    def hide(self, topic: str, queue_id: int, count: int) -> None:
        """Count local messages of a queue that a broker does not look for, because of its tier."""
        self.tiered, self.tiered_left = self.tiered + count, self.tiered_left + count
        self.hidden_by_queue[topic, queue_id] = count

    def with_units(self, topic: str, queue_id: int) -> BesideLog:
        """What is left where all entries of a queue of the tier are right."""
        name = (topic, queue_id)
        return replace(self, missed_by_queue={key: each for key, each in self.missed_by_queue.items() if key != name})

    def tiered_of(self, topic: str, queue_id: int) -> int:
        """How many messages of a queue consumers do not get."""
        return sum(each.get((topic, queue_id), 0) for each in (self.tiered_by_queue, self.hidden_by_queue))


@dataclass
class ClientLosses:
    """What clients lose between two states of a store, of which they `had` more; all zero where they get the same.

    `keys_not_found` counts pairs of a key and a message, `keys_in_damage` those of them whose messages are not whole,
    and `keys_found_in_damage` others of such messages, which queries find until the index is made again.
    `pop_lost` messages in flight that are never delivered again, `pops_in_timer` those of them that the timer would
    have brought back, `filters_lost` filters of groups that it forgets. `missed_by_tag` counts messages that consumers
    get, but not those that ask for their tag, by the local queues; of those `tags_in_damage` it is the message that has
    lost its tag. `beside_log` are messages in other places than the commit log.
    Where `pop_unknown`, the database of those messages in flight is gone or damaged: nobody knows how many there were.
    Where all `groups_begin_again` a release reads no offsets, whatever the store has; so many delayed messages
    `come_again` on any store of a release that does not note all that it delivers.
    `by_offsets` computes what is lost even where the queues are whole, `timers_without_files` is what is where the
    timer's files are taken out, and `timers_with_queue` where its queue, which lacks entries, is made again.
    `served_damage`, by physical offset, is what they get of messages that are not whole, until queues and index are
    made again. `refuses` is why no broker serves anything.
    """

    unreachable: Unreachable = field(default_factory=Unreachable)
    missed_by_tag: int = 0
    tags_in_damage: int = 0
    keys_not_found: int = 0
    keys_in_damage: int = 0
    keys_found_in_damage: int = 0
    delayed: Due = field(default_factory=Due)
    timers: Due = field(default_factory=Due)
    half_messages_unchecked: int = 0
    pop_lost: int = 0
    pops_in_timer: int = 0
    pop_unknown: bool = False
    groups: list[MovedGroup] = field(default_factory=list)
    groups_begin_again: bool = False
    come_again: int = 0
    by_offsets: ByOffsets | None = field(default=None, compare=False, repr=False)
    timers_without_files: Due = field(default_factory=Due)
    timers_with_queue: Due | None = None
    filters_lost: int = 0
    beside_log: BesideLog = field(default_factory=BesideLog)
    refuses: str | None = None
    had: Had = field(default_factory=Had)
    served_damage: Mapping[int, ServedDamage] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether anything is lost."""
        return bool(self.refuses) or any(True for _ in self.parts())

    @property
    def is_of_store(self) -> bool:
        """Whether anything is lost that a start of this release on a whole store would give."""
        again = max(0, self.delayed.again - self.come_again)
        groups = [] if self.groups_begin_again else self.groups
        return bool(replace(self, groups=groups, delayed=replace(self.delayed, again=again)))

    def parts(self) -> Iterator[str]:
        """Each loss in words, the worst first, without what refuses."""
        for kind, count in self.counts().items():
            if kind == "unreachable" and count:
                queues = counted(len(self.unreachable.queues), "queue")
                yield f"{counted(count, 'message')} of {queues} out of consumers' reach"
            elif kind == "groups" and count:
                yield in_words(kind, len({moved.group for moved in self.groups}))
            elif count:
                yield in_words(kind, count)
        if self.pop_unknown:
            yield "an unknown number of messages taken by POP never delivered again"

    @property
    def in_words(self) -> str:
        """All losses but what refuses, in one line; empty where nothing is lost."""
        return ", ".join(self.parts())

    def counts(self) -> dict[str, int]:
        """Each kind of loss and how much of it there is."""
        kinds = {"unreachable": self.unreachable.messages, "missed_by_tag": self._all_missed_by_tag,
                 "keys_not_found": self.keys_not_found}  # fmt: skip
        for name, due in (("delayed", self.delayed), ("timers", self.timers)):
            kinds |= {f"{name}_{how}": count for how, count in asdict(due).items()}
        kinds |= {"half_messages_unchecked": self.half_messages_unchecked, "pop_lost": self.pop_lost}
        kinds |= {"compacted_lost": self.beside_log.compacted, "tiered_lost": self.beside_log.tiered}
        return kinds | {"groups": len(self.groups), "filters_lost": self.filters_lost}

    @property
    def _all_missed_by_tag(self) -> int:
        return self.missed_by_tag + sum(self.beside_log.missed_by_queue.values())

    def healed(self, *, queues: bool, index: bool) -> ClientLosses:
        """What is left where queues, or the index, are made again from all whole messages of the log.

        Raises RmqtoolError.
        """
        in_damage = self.keys_in_damage + (self.keys_found_in_damage if index else 0)
        left = self._in_damage() if queues else self.unreachable
        timers = replace(self.timers, never=0) if self.timers_with_queue is None else self.timers_with_queue
        not_served = sum(each.missed_by_tag for each in self.served_damage.values()) if queues else 0
        return replace(
            self,
            unreachable=left,
            missed_by_tag=(self.tags_in_damage if queues else self.missed_by_tag) - not_served,
            tags_in_damage=self.tags_in_damage - not_served,
            served_damage={
                offset: ServedDamage(
                    () if queues else each.entries, 0 if index else each.keys, 0 if queues else each.missed_by_tag
                )
                for offset, each in self.served_damage.items()
            },
            keys_not_found=in_damage if index else self.keys_not_found,
            keys_in_damage=in_damage,
            keys_found_in_damage=0 if index else self.keys_found_in_damage,
            groups=self.by_offsets.groups(lost=topics_of(left)) if queues and self.by_offsets else self.groups,
            delayed=self.by_offsets.delayed() if queues and self.by_offsets else self.delayed,
            timers=timers if queues else self.timers,
            pop_lost=self.pop_lost - self.pops_in_timer if queues else self.pop_lost,
            pops_in_timer=0 if queues else self.pops_in_timer,
        )

    def _in_damage(self) -> Unreachable:
        """What queues do not lead to that are made again."""
        left = {(each.topic, each.queue_id): replace(each, messages=each.in_damage)
                for each in self.unreachable.queues if each.in_damage}  # fmt: skip
        for topic, queue_id, offset in (entry for each in self.served_damage.values() for entry in each.entries):
            known = left.get((topic, queue_id), UnreachableQueue(topic, queue_id, offset, 0))
            left[topic, queue_id] = replace(
                known,
                first_queue_offset=min(known.first_queue_offset, offset),
                messages=known.messages + 1,
                in_damage=known.in_damage + 1,
            )
        return Unreachable([*left.values()])

    def served_of(self, physical_offset: int) -> ServedDamage:
        """What clients get of a damaged message."""
        return self.served_damage.get(physical_offset, ServedDamage((), 0))

    def with_whole(
        self,
        names: Sequence[tuple[str, int]],
        keys: int,
        *,
        was_damage: bool,
        keys_found: int = 0,
        missed_by_tag: int = 0,
    ) -> ClientLosses:
        """What is left where a message of some queues that was not whole is so again, with so many keys.

        Where it `was_damage` of the log its keys were not found, also where no queue lacked the message; but for those
        that may be found all the same. Consumers of its tag get it again that have missed it.
        """
        if 0 < keys_found <= self.keys_found_in_damage:
            found = replace(self, keys_found_in_damage=self.keys_found_in_damage - keys_found)
            return found.with_whole(names, keys - keys_found, was_damage=was_damage, missed_by_tag=missed_by_tag)
        lost = {(each.topic, each.queue_id): each for each in self.unreachable.queues}
        is_counted = was_damage
        for name in names:
            queue = lost.get(name)
            if queue and queue.in_damage:
                lost[name] = replace(queue, messages=queue.messages - 1, in_damage=queue.in_damage - 1)
                is_counted = True
        return replace(
            self,
            unreachable=Unreachable([each for each in lost.values() if each.messages]),
            missed_by_tag=max(0, self.missed_by_tag - missed_by_tag),
            tags_in_damage=max(0, self.tags_in_damage - missed_by_tag),
            keys_not_found=max(0, self.keys_not_found - keys * is_counted),
            keys_in_damage=max(0, self.keys_in_damage - keys * is_counted),
        )

    def as_json(self) -> dict[str, Any]:
        """The JSON object of the contract; long lists are cut, counts are complete."""
        reach = self.unreachable
        queues = [asdict(queue) for queue in reach.queues[:_LISTED]]
        return {
            "unreachable": {"messages": reach.messages, "queues": queues},
            "missed_by_tag": self._all_missed_by_tag,
            "keys_not_found": self.keys_not_found,
            "keys_in_damage": self.keys_in_damage,
            "delayed": asdict(self.delayed),
            "timers": asdict(self.timers),
            "half_messages_unchecked": self.half_messages_unchecked,
            "pop_lost": self.pop_lost,
            "pop_unknown": self.pop_unknown,
            "compacted_lost": self.beside_log.compacted,
            "tiered_lost": self.beside_log.tiered,
            "groups": [asdict(moved) for moved in self.groups[:_LISTED]],
            "filters_lost": self.filters_lost,
            "refuses": self.refuses,
        }


def topics_of(lost: Unreachable) -> set[str]:
    """The topics of messages that the log has only damage of."""
    return {each.topic for each in lost.queues if each.in_damage}


def in_words(kind: str, count: int) -> str:
    """So many losses of a kind of `ClientLosses.counts`."""
    noun, what = _KINDS[kind]
    return f"{counted(count, noun)} {what}"


_HOW = {"early": "early", "late": "late", "never": "never delivered", "again": "again"}
_KINDS = {
    "unreachable": ("message", "out of consumers' reach"),
    "missed_by_tag": ("message", "missed by consumers of its tag"),
    "keys_not_found": ("key", "not found"),
    **{f"delayed_{how}": ("delayed message", what) for how, what in _HOW.items()},
    **{f"timers_{how}": ("timer message", what) for how, what in _HOW.items()},
    "half_messages_unchecked": ("half message", "never checked"),
    "compacted_lost": ("message", "of compacted topics out of consumers' reach"),
    "tiered_lost": ("message", "of tiered queues out of reach, deleted or overwritten"),
    "pop_lost": ("message", "taken by POP never delivered again"),
    "groups": ("group", "would continue at another offset"),
    "filters_lost": ("filter", "lost"),
}
