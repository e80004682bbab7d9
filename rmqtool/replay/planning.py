"""What a replay would send, and what it would not: counted, without sending anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rmqtool.formats.properties import UNIQUE_KEY
from rmqtool.replay.cluster import REPLAY_OF, BrokerFacts, Cluster, Copy, Route, Sought, TargetQueue, Targets
from rmqtool.replay.journal import EXPECTED, Done, LeftOut, Outgoing, Ready, Reason
from rmqtool.replay.requests import DELAYED_TOPICS, Rewriting, fit
from rmqtool.replay.sources import Reading, Row

_EXAMPLES = 5
_NOWHERE = ("", 0)  # broker and queue of messages that are counted without a target


class Place(NamedTuple):
    """A queue of the target, and the topic that its messages come from."""

    source_topic: str
    topic: str
    broker: str
    queue_id: int


@dataclass
class Count:
    """Messages and the bytes of their bodies."""

    messages: int = 0
    bytes: int = 0

    def add(self, message: Outgoing) -> None:
        """Count a message."""
        self.messages += 1
        self.bytes += len(message.body)


@dataclass
class Omitted:
    """Messages that are left out for one reason: how many of each topic, and where the first ones stand."""

    topics: dict[str, int] = field(default_factory=dict)
    physical_offsets: list[int] = field(default_factory=list)

    @property
    def messages(self) -> int:
        """How many there are."""
        return sum(self.topics.values())

    def add(self, topic: str, physical_offset: int) -> None:
        """Count a message."""
        self.topics[topic] = self.topics.get(topic, 0) + 1
        if len(self.physical_offsets) < _EXAMPLES:
            self.physical_offsets.append(physical_offset)


@dataclass
class ReplayPlan:
    """What would be sent.

    `done_before` are on the target by the journal, `unknown` were being sent when a run ended; both are not among
    `places`, except those of `unknown`, which may turn out not to be there.
    """

    places: dict[Place, Count] = field(default_factory=dict)
    left_out: dict[Reason, Omitted] = field(default_factory=dict)
    unwritable: dict[str, str] = field(default_factory=dict)
    brokers: dict[str, BrokerFacts] = field(default_factory=dict)
    reading: Reading = field(default_factory=Reading)
    done_before: int = 0
    unknown: int = 0
    looked_up: bool = False

    @property
    def total(self) -> Count:
        """All that would be sent."""
        counts = self.places.values()
        return Count(sum(count.messages for count in counts), sum(count.bytes for count in counts))

    @property
    def by_topic(self) -> dict[tuple[str, str], Count]:
        """All that would be sent, by the topic that it comes from and that on the target."""
        found: dict[tuple[str, str], Count] = {}
        for place, count in sorted(self.places.items()):
            total = found.setdefault((place.source_topic, place.topic), Count())
            total.messages += count.messages
            total.bytes += count.bytes
        return found

    @property
    def unsendable(self) -> int:
        """Messages that are wanted and cannot be sent."""
        return sum(omitted.messages for reason, omitted in self.left_out.items() if reason not in EXPECTED)

    def still_to_send(self, prepared: Iterable[Ready | LeftOut], before: Done) -> list[Ready]:
        """Those that are not on the target by the journal; what is left out, or was done before, is counted."""
        ready: list[Ready] = []
        for found in prepared:
            if isinstance(found, LeftOut):
                self.omit(found)
            elif before.is_done(found.message.origin.identity):
                self.done_before += 1
            else:
                self.unknown += found.message.origin.identity in before.unknown
                ready.append(found)
        return ready

    def omit(self, left_out: LeftOut) -> None:
        """Count a message that is left out."""
        origin = left_out.origin
        self.left_out.setdefault(left_out.reason, Omitted()).add(origin.topic, origin.identity.physical_offset)


class Preparation:
    """Makes messages of rows, each with its queue on the target; raises PeerError.

    A topic's route is asked for once: while a broker is away its queues are missing, and others must not be chosen.
    """

    def __init__(self, cluster: Cluster, rewriting: Rewriting, targets: Targets, now: Callable[[], int]) -> None:
        self.cluster = cluster
        self._rewriting = rewriting
        self._targets = targets
        self._now = now
        self.brokers: dict[str, BrokerFacts] = {}
        self.unwritable: dict[str, str] = {}
        self._routes: dict[str, Route | None] = {}

    def ready(self, rows: Iterable[Row]) -> Iterator[Ready | LeftOut]:
        """What becomes of rows, in their order."""
        for row in rows:
            for found in self._rewriting.messages(row):
                yield found if isinstance(found, LeftOut) else self._ready(found)

    def _ready(self, message: Outgoing) -> Ready | LeftOut:
        if not self.cluster.is_known:
            return Ready(message, *_NOWHERE)
        if message.topic not in self._routes:
            self._routes[message.topic] = self.cluster.route(message.topic)
        route = self._routes[message.topic]
        if route is None:
            self.unwritable[message.topic] = "the target does not have it"
            return LeftOut(message.origin, "no-topic")
        if not route.queues:
            self.unwritable[message.topic] = route.why_unwritable
            return LeftOut(message.origin, "not-writable")
        queue: TargetQueue = self._targets.queue_of(message, route)
        facts = self.cluster.facts(queue.broker, route.masters[queue.broker])
        self.brokers[queue.broker] = facts
        fitting = fit(message, facts, self._now())
        if not isinstance(fitting, Outgoing):
            return LeftOut(message.origin, fitting)
        return Ready(fitting, queue.broker, queue.queue_id)


def look_up(cluster: Cluster, ready: Sequence[Ready]) -> list[list[Copy]]:
    """For each message the copies that are on the target, by its unique key. Raises PeerError.

    What waited in the source may wait on the target as well, even when it is due by now: delay levels are rounded up.
    """
    sought, numbers = [], []
    for number, one in enumerate(ready):
        message = one.message
        key, since = message.properties[UNIQUE_KEY], min(message.origin.store_timestamp, message.born_timestamp)
        for waits_in in (None, *(DELAYED_TOPICS if message.origin.topic in DELAYED_TOPICS else ())):
            sought.append(Sought(message.topic, one.broker, key, since, waits_in))
            numbers.append(number)
    copies: list[list[Copy]] = [[] for _ in ready]
    for number, found in zip(numbers, cluster.find(sought), strict=True):
        copies[number] += found
    return copies


def own_copy(one: Ready, copies: Iterable[Copy]) -> Copy | None:
    """The copy that a replay of this very message has sent."""
    return next((copy for copy in copies if copy.replay_of == one.message.properties[REPLAY_OF]), None)


def other_copy(one: Ready, copies: Iterable[Copy]) -> Copy | None:
    """Another copy with its key; of a retry or a dead letter the original is one, and counts for nothing."""
    return None if one.message.is_copy else next(iter(copies), None)
