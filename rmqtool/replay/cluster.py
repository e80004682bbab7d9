"""The cluster that messages are sent to: routes, what its brokers allow, and messages that are there already."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rmqtool.base.errors import UsageError
from rmqtool.formats.java import string_hash
from rmqtool.formats.layout import FormatError
from rmqtool.formats.message import format_message_id, parse_message
from rmqtool.formats.properties import UNIQUE_KEY, decode_properties
from rmqtool.replay import connection as codes
from rmqtool.replay.connection import (
    UNIQUE_KEY_QUERY,
    Connection,
    PeerError,
    Request,
    Response,
    Security,
    load_json,
    look_up_refusal,
    refusal,
    whole_number,
)
from rmqtool.replay.journal import Outgoing
from rmqtool.rules.broker_conf import DEFAULT_LEVELS, DelayLevels, parse_delay_levels

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
            raise ValueError("a route with invalid queues")
        if not permission & _WRITABLE:
            unwritable[broker] = "the topic is read-only there, or the broker is"
        elif broker not in masters:
            unwritable[broker] = "its master is not available"
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


REPLAY_OF = "REPLAY_OF"
"""The property of a message that was sent by a replay: the host of the broker that had it, its offset, its time."""

MAX_MESSAGE_SIZE = 4 << 20  # MessageStoreConfig.maxMessageSize
_AT_ONCE = 32  # look-ups that are under way together
_MOST = 64  # messages that one look-up gives: more are not indexed under one hash in practice
_EARLIER = 86_400_000  # ms that the clock of the target may be behind
_MAX_TIME = (1 << 62) - 1
_POLL_S = 0.2
_SIZE_WIDTH = 4  # bytes
_INT_DIGITS = 9  # of a number that is a Java int for sure


@dataclass(frozen=True)
class BrokerFacts:
    """What a broker says about itself; `unknown` names what it does not say, and what is assumed then.

    `timer_max_ms` is how long it keeps timer messages, None where it does not.
    """

    release: str | None = None
    max_message_size: int = MAX_MESSAGE_SIZE
    delay_levels: DelayLevels = field(default_factory=lambda: parse_delay_levels(DEFAULT_LEVELS))
    timer_max_ms: int | None = None
    unknown: tuple[str, ...] = ()

    @property
    def is_4(self) -> bool:
        """Whether it is of 4.x: without timer messages, and with clients that decompress zlib only."""
        return self.release is not None and self.release.startswith("4.")


@dataclass(frozen=True)
class Sought:
    """A message that is looked for in a topic of the target; before `since`, epoch ms, it was not there.

    It was sent to this broker, if it was sent. `waits_in` is the broker's own topic of messages that wait for their
    delivery, when it is looked for there.
    """

    topic: str
    broker: str
    unique_key: str
    since: int
    waits_in: str | None = None

    @property
    def stored_in(self) -> str:
        """The topic that is asked for it."""
        return self.waits_in or self.topic


@dataclass(frozen=True)
class Copy:
    """A message that is on the target."""

    broker: str
    queue_id: int
    queue_offset: int
    message_id: str
    replay_of: str | None


class Cluster:
    """One target cluster; connections are kept, and made again after they failed."""

    def __init__(self, name_servers: Sequence[str], security: Security) -> None:
        self.name_servers = tuple(name_servers)
        self._security = security
        self._connections: dict[str, Connection] = {}
        self._routes: dict[str, Route | None] = {}
        self._facts: dict[str, BrokerFacts] = {}

    @property
    def is_known(self) -> bool:
        """Whether there is a name server to ask."""
        return bool(self.name_servers)

    def route(self, topic: str) -> Route | None:
        """The route of a topic, None when the cluster does not have it; asked for once. Raises PeerError."""
        if topic not in self._routes:
            self._routes[topic] = self._ask_route(topic)
        return self._routes[topic]

    def facts(self, broker: str, address: str) -> BrokerFacts:
        """What the master of a broker says about itself; asked for once. Raises PeerError when it is not there."""
        if broker not in self._facts:
            self._facts[broker] = self._ask_facts(address)
        return self._facts[broker]

    def connection(self, address: str) -> Connection:
        """The connection to a broker."""
        if address not in self._connections:
            self._connections[address] = Connection(address, self._security)
        return self._connections[address]

    def forget(self) -> None:
        """Close all connections and ask for routes again: something has failed."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._routes.clear()

    def find(self, sought: Sequence[Sought]) -> list[list[Copy]]:
        """For each message the copies that are on the target, by its unique key. Raises PeerError.

        A broker that is away might have it: that raises, too.
        """
        found: list[list[Copy]] = [[] for _ in sought]
        by_master: dict[tuple[str, str], list[int]] = {}
        for number, each in enumerate(sought):
            route = self.route(each.topic)
            if route is None or each.broker not in route.masters:
                raise PeerError(f"{each.broker}: the name server knows no master of it, for {each.topic}")
            for broker, address in route.masters.items():
                by_master.setdefault((broker, address), []).append(number)
        for (broker, address), numbers in by_master.items():
            for start in range(0, len(numbers), _AT_ONCE):
                piece = numbers[start : start + _AT_ONCE]
                answers = self._exchange(address, [_query(sought[number]) for number in piece])
                for number, answer in zip(piece, answers, strict=True):
                    found[number] += _copies(broker, address, sought[number], answer)
        return found

    def wait_until_indexed(self, topics: Iterable[str], patience: float) -> bool:
        """Return when the masters of topics have put all that they have stored into their indexes.

        False when one does not say so within `patience` seconds. Raises PeerError.
        """
        deadline = time.monotonic() + patience
        routes = [route for topic in topics if (route := self.route(topic)) is not None]
        for address in dict.fromkeys(address for route in routes for address in route.masters.values()):
            wanted, _ = self._positions(address)
            while True:
                end, behind = self._positions(address)
                if end is None or behind is None or wanted is None:
                    return False
                if end - behind >= wanted:
                    break
                if time.monotonic() > deadline:
                    return False
                time.sleep(_POLL_S)
        return True

    def _positions(self, address: str) -> tuple[int | None, int | None]:
        """Where the log of a broker ends, and how much of it is not in queues and index yet, bytes."""
        table = self._runtime(address)
        return whole_number(table.get("commitLogMaxOffset")), whole_number(table.get("dispatchBehindBytes"))

    def _ask_route(self, topic: str) -> Route | None:
        """The answer of the first name server that has one."""
        failures: list[PeerError] = []
        for address in self.name_servers:
            answer = self._route_from(address, topic)
            if not isinstance(answer, PeerError):
                return answer
            failures.append(answer)
        raise failures[0] if len(failures) == 1 else PeerError("; ".join(map(str, failures)), hint=failures[0].hint)

    def _route_from(self, address: str, topic: str) -> Route | PeerError | None:
        fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
        try:
            with Connection(address, self._security) as connection:
                response = connection.call(Request(codes.GET_ROUTEINFO_BY_TOPIC, fields))
            if response.code == codes.TOPIC_NOT_EXIST:
                return None
            if response.code != codes.SUCCESS:
                return refusal(response, f"name server {address}, asked for {topic}")
            return parse_route(topic, response.body)
        except PeerError as error:
            return error
        except ValueError as error:
            return PeerError(f"name server {address}: its answer is not a route: {error}")

    def _ask_facts(self, address: str) -> BrokerFacts:
        unknown: list[str] = []
        table, settings = self._runtime(address), self._settings(address)
        release = table.get("brokerVersionDesc")
        name = release.removeprefix("V").replace("_", ".") if isinstance(release, str) else None
        if name is None:
            unknown.append("its release")
        size = whole_number(settings.get("maxMessageSize"), _INT_DIGITS)
        if size is None:
            unknown.append("maxMessageSize (4 MiB is assumed)")
        try:
            levels = parse_delay_levels(settings.get("messageDelayLevel", DEFAULT_LEVELS))
        except UsageError:
            levels = parse_delay_levels(DEFAULT_LEVELS)
            unknown.append("messageDelayLevel (the default levels are assumed)")
        seconds = whole_number(settings.get("timerMaxDelaySec"), _INT_DIGITS)  # of 5.x, MessageStoreConfig
        timer_max = seconds * 1000 if seconds is not None and settings.get("timerWheelEnable") == "true" else None
        return BrokerFacts(name, MAX_MESSAGE_SIZE if size is None else size, levels, timer_max, tuple(unknown))

    def _runtime(self, address: str) -> dict[str, Any]:
        response = self._exchange(address, [Request(codes.GET_BROKER_RUNTIME_INFO, {})])[0]
        if response.code != codes.SUCCESS:
            return {}
        try:
            table = load_json(response.body).get("table")
        except (ValueError, AttributeError):
            return {}
        return table if isinstance(table, dict) else {}

    def _settings(self, address: str) -> dict[str, str]:
        response = self._exchange(address, [Request(codes.GET_BROKER_CONFIG, {})])[0]
        if response.code != codes.SUCCESS:
            return {}
        lines = (line.partition("=") for line in response.body.decode("utf-8", "replace").splitlines())
        return {name.strip(): value.strip() for name, separator, value in lines if separator}

    def _exchange(self, address: str, requests: Sequence[Request]) -> list[Response]:
        try:
            return self.connection(address).exchange(requests)
        except PeerError:
            self._connections.pop(address, None)
            raise

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *error: object) -> None:
        self.forget()


def _query(sought: Sought) -> Request:
    fields = {
        "topic": sought.stored_in,
        "key": sought.unique_key,
        "maxNum": str(_MOST),
        "beginTimestamp": str(_begin(sought.since)),
        "endTimestamp": str(_MAX_TIME),
        UNIQUE_KEY_QUERY: "true",
    }
    return Request(codes.QUERY_MESSAGE, fields)


def _begin(since: int) -> int:
    """From when on the target is asked, epoch ms; from the beginning where the source's clock was ahead of ours."""
    return max(0, since - _EARLIER) if since <= time.time_ns() // 1_000_000 else 0


def _copies(broker: str, address: str, sought: Sought, response: Response) -> Iterator[Copy]:
    if response.code == codes.QUERY_NOT_FOUND:
        return
    if response.code != codes.SUCCESS:
        raise look_up_refusal(response, f"{broker}: a look-up in {sought.stored_in}")
    data = response.body
    while data:
        size = int.from_bytes(data[:_SIZE_WIDTH], "big")
        try:
            if not _SIZE_WIDTH < size <= len(data):
                raise FormatError(f"a message of {size} bytes in {len(data)}")
            record = parse_message(data[:size])
            host, position = bytes(record.store_host), int(record.physical_offset)
            message_id = format_message_id(host, position)
        except (FormatError, ValueError) as error:
            raise PeerError(f"{address}: its messages cannot be decoded: {error}") from error
        data = data[size:]
        properties = decode_properties(bytes(record.properties))
        if properties.get(UNIQUE_KEY) == sought.unique_key and bytes(record.topic) == sought.stored_in.encode():
            yield Copy(broker, record.queue_id, record.queue_offset, message_id, properties.get(REPLAY_OF))


_SHARDING_KEY = "__SHARDINGKEY"  # MessageConst.PROPERTY_SHARDING_KEY


@dataclass
class Targets:
    """Chooses queues, so that messages of one source queue, or of one sharding key, keep their order.

    The same queue, where the topic has one broker and as many queues as in the source (`queue_count`); else one by the
    sharding key, as producers do (`SelectMessageQueueByHash`); else each source queue goes to one queue, in turn.
    """

    queue_count: Callable[[str], int | None]
    _counts: dict[str, int | None] = field(default_factory=dict)

    def queue_of(self, message: Outgoing, route: Route) -> TargetQueue:
        """The queue of a message; `route` has at least one."""
        if self._keeps_queues(message, route) and message.queue_id < len(route.queues):
            return route.queues[message.queue_id]
        key = message.properties.get(_SHARDING_KEY)
        number = message.queue_id if key is None else abs(string_hash(key))
        return route.queues[number % len(route.queues)]

    def _keeps_queues(self, message: Outgoing, route: Route) -> bool:
        topic = message.source_topic
        if topic not in self._counts:
            self._counts[topic] = self.queue_count(topic)
        count = self._counts[topic]
        has_one_broker = len({queue.broker for queue in route.queues}) == 1
        return has_one_broker and (count is None or count == len(route.queues))
