"""Where the queues of a topic are, as name servers answer (`TopicRouteData`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rmqtool.replay.lenient_json import load_json

_WRITABLE = 2  # PermName
_MASTER = "0"  # MixAll.MASTER_ID
_MAX_QUEUES = 1 << 16


@dataclass(frozen=True, order=True)
class TargetQueue:
    """A queue of a broker."""

    queue_id: int
    broker: str


@dataclass(frozen=True)
class Route:
    """The queues of a topic that may be written, by number and broker, and the addresses of the masters by broker.

    `unwritable` are brokers that have the topic but may not be written, each with the reason.
    """

    topic: str
    queues: tuple[TargetQueue, ...]
    masters: Mapping[str, str]
    unwritable: Mapping[str, str]

    @property
    def why_unwritable(self) -> str:
        """Why there is no queue to write to."""
        reasons = "; ".join(f"{broker}: {reason}" for broker, reason in self.unwritable.items())
        return reasons or "no broker has a queue of it"


def parse_route(topic: str, body: bytes) -> Route:
    """The route in the body of an answer; raises ValueError when it is none."""
    data = load_json(body)
    if not isinstance(data, dict):
        raise ValueError("a route that is not an object")
    masters = dict(_masters(data.get("brokerDatas")))
    queues: list[TargetQueue] = []
    unwritable: dict[str, str] = {}
    for entry in _objects(data.get("queueDatas")):
        broker, count, permission = entry.get("brokerName"), entry.get("writeQueueNums"), entry.get("perm")
        if not (isinstance(broker, str) and type(count) is int and type(permission) is int):
            raise ValueError("a route with queues of no broker, number or permission")
        if not permission & _WRITABLE:
            unwritable[broker] = "the topic is read only there, or the broker is"
        elif broker not in masters:
            unwritable[broker] = "its master is not there"
        elif not 0 < count <= _MAX_QUEUES:
            unwritable[broker] = f"the topic has {count} queues to write there"
        else:
            queues += [TargetQueue(queue_id, broker) for queue_id in range(count)]
    return Route(topic, tuple(sorted(set(queues))), masters, unwritable)


def _masters(brokers: Any) -> Iterator[tuple[str, str]]:
    for entry in _objects(brokers):
        name, addresses = entry.get("brokerName"), entry.get("brokerAddrs")
        address = addresses.get(_MASTER) if isinstance(addresses, dict) else None
        if isinstance(name, str) and isinstance(address, str):
            yield name, address


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if value is not None and not isinstance(value, list):
        raise ValueError("a route without a list of brokers or queues")
    yield from (each for each in value or () if isinstance(each, dict))
