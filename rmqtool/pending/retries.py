"""Messages of retry topics that their groups have not consumed, and dead letters, which nobody delivers."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from rmqtool.pending.messages import View, messages_of, part_from
from rmqtool.pending.receivers import DEAD_LETTER_ORIGIN, RETRY_TOPIC, owner_of, receivers
from rmqtool.pending.waiting import Kind, waiting
from rmqtool.rules.system_topics import DEAD_LETTER_PREFIX, RETRY_PREFIX
from rmqtool.store.queue_units import LoadedQueue

_PROPERTIES = (RETRY_TOPIC, DEAD_LETTER_ORIGIN)


def retries(view: View) -> Iterator[pa.RecordBatch]:
    """The retries from the offset on that the group has committed; all of them where it has none."""
    for queue in view.queues(RETRY_PREFIX):
        group, _ = owner_of(queue.queue.topic, view.groups)
        yield from _of_queue(view, "retry", queue, view.committed(group or "", queue) or 0)


def dead_letters(view: View) -> Iterator[pa.RecordBatch]:
    """All dead letters that are in the log."""
    for queue in view.queues(DEAD_LETTER_PREFIX):
        yield from _of_queue(view, "dead-letter", queue, 0)


def _of_queue(view: View, kind: Kind, queue: LoadedQueue, start: int) -> Iterator[pa.RecordBatch]:
    topic, queue_id = queue.queue.topic, queue.queue.queue_id
    for messages in messages_of(view, part_from(queue, start, _PROPERTIES)):
        topics = pa.chunked_array([pa.array([topic] * messages.num_rows, pa.string())])
        yield waiting(kind, messages, **receivers(messages, topics, view.groups), topic=topic, queue_id=queue_id)
