"""Messages that POP consumers took and did not acknowledge (`PopReviveService`).

A check point names the messages of one POP, an acknowledgement takes some of them back. Both wait in a revive topic,
and before that in the timer's; what is left of a check point at its time is delivered again by way of a retry topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtool.base.errors import RmqtoolError, UnreadableError, UnsupportedError
from rmqtool.base.files import list_directory
from rmqtool.broker.check_points import Pop, Taken, in_flight
from rmqtool.clients.never_delivered import lacks_pop_store
from rmqtool.findings.finding import counted
from rmqtool.formats.properties import REAL_TOPIC, TAGS
from rmqtool.pending.messages import RETRY_TOPIC, Part, View, messages_at, messages_of, one_topic, part_from
from rmqtool.pending.timers import Timers
from rmqtool.rules.system_topics import REVIVE_GROUP, REVIVE_PREFIX
from rmqtool.store.rocksdb import holds_rows
from rmqtool.store.side_rows import POP_STORE, HeldMessage, held_messages
from rmqtool.store.store import is_rocksdb_directory


def popped(view: View, timers: Timers) -> Iterator[pa.RecordBatch]:
    """The messages of all check points that are not acknowledged, queue by queue."""
    taken, odd = in_flight(_bookkeeping(view, timers))
    if odd:
        view.notes.add_unread(f"{counted(odd, 'check point')} of POP consumers", "their JSON cannot be read")
    yield from _rows(view, taken, _held(view))


def _bookkeeping(view: View, timers: Timers) -> Iterator[tuple[str, bytes]]:
    """Tag and body of each check point and acknowledgement that is not processed yet."""
    for messages in timers.delivered((TAGS, REAL_TOPIC), bodies=True):
        yield from _tagged(messages.filter(pc.starts_with(messages.column(REAL_TOPIC), REVIVE_PREFIX)))
    for queue in view.queues(REVIVE_PREFIX):
        last = view.committed(REVIVE_GROUP, queue)  # the last one, where others commit the next
        for messages in messages_of(view, part_from(queue, 0 if last is None else last + 1, (TAGS,), bodies=True)):
            yield from _tagged(messages)


def _tagged(messages: pa.Table) -> Iterable[tuple[str, bytes]]:
    return zip(messages.column(TAGS).to_pylist(), messages.column("stored_body").to_pylist(), strict=True)


def _rows(view: View, taken: dict[Pop, Taken], held: Iterable[HeldMessage]) -> Iterator[pa.RecordBatch]:
    """The messages that are left of check points, and those of RocksDB, by queue and group."""
    by_queue: dict[tuple[str, int, str], dict[int, int]] = {}
    for pop, rest in taken.items():
        dues = by_queue.setdefault((pop.topic, pop.queue_id, pop.group), {})
        dues.update(dict.fromkeys(rest.offsets, rest.due))
    for each in held:
        by_queue.setdefault((each.topic, each.queue_id, each.group), {})[each.queue_offset] = each.visible_timestamp
    gone = 0
    for (topic, queue_id, group), dues in sorted(by_queue.items()):
        queue = None
        with view.errors.scope():
            queue = view.snapshot.queue(topic, queue_id)
        kept = sorted(offset for offset in dues if queue and queue.range.min_offset <= offset < queue.range.max_offset)
        gone += len(dues) - len(kept)
        units = [queue.unit_at(offset) for offset in kept] if queue else []
        numbers = np.array([offset for offset, unit in zip(kept, units, strict=True) if unit], dtype=np.int64)
        offsets = np.array([unit.physical_offset for unit in units if unit], dtype=np.int64)
        if not queue or not len(numbers):
            continue
        for messages in messages_at(view, Part(queue.queue, 0, 0, (RETRY_TOPIC,)), numbers, offsets):
            due = [dues[number] for number in messages.column("queue_offset").to_pylist()]
            yield view.rows("pop", queue.queue, messages, one_topic(topic, messages), due_timestamp=due, group=group)
    if gone:
        what = counted(gone, "message") + " that POP consumers took"
        view.notes.add_uncertain(what, "the queue does not hold them any more: they are not delivered again")


def _held(view: View) -> list[HeldMessage]:
    """What is in RocksDB, where brokers since 5.3.2 may keep it (popConsumerKVServiceEnable)."""
    store = view.snapshot.store
    try:
        if is_rocksdb_directory(store.root / POP_STORE):
            return [*held_messages(store)]
        problem = "not a whole database"
    except UnreadableError as error:
        _note_rocksdb(view, error.message)
        return []
    except UnsupportedError as error:
        problem = error.message
    if lacks_pop_store(view.snapshot):
        _note_rocksdb(view, "it is not there, and whatever was in it is never delivered again")
    with suppress(RmqtoolError):
        if any(map(holds_rows, list_directory(store.root / POP_STORE))):
            _note_rocksdb(view, problem)
    return []


def _note_rocksdb(view: View, problem: str) -> None:
    view.notes.add_unread("messages that POP consumers took", f"they are in RocksDB, {POP_STORE}/: {problem}")
