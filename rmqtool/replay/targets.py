"""Which queue of the target a message is sent to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rmqtool.formats.java import string_hash
from rmqtool.replay.outgoing import Outgoing
from rmqtool.replay.routes import Route, TargetQueue

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
