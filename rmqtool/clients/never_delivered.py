"""Messages that no start delivers: half messages that no broker checks, and what POP consumers held."""

from __future__ import annotations

from rmqtool.base.errors import UnsupportedError
from rmqtool.broker.check_points import ACKNOWLEDGEMENTS, CHECK_POINT, bookkeeping, in_flight
from rmqtool.broker.half_messages import skipped_halves
from rmqtool.broker.prediction import StartPrediction
from rmqtool.clients.timers import timers_never
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.store.side_rows import POP_STORE, held_messages
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import is_rocksdb_directory


def half_messages_unchecked(snapshot: Snapshot) -> int:
    """How many half messages wait for an answer before the committed offset; raises UnreadableError."""
    return sum(len(skipped.offsets) for skipped in skipped_halves(snapshot))


def pop_lost(snapshot: Snapshot) -> int:
    """How many messages in `kvStore` have no queue entry any more; raises UnreadableError for a damaged database.

    A broker that finds none drops the row (`PopConsumerService#revive`). Of a database that is gone nobody knows the
    number: `lacks_pop_store`. Without the library there is nothing to count.
    """
    lost = 0
    try:
        for held in held_messages(snapshot.store):
            lost += not _is_in_queue(snapshot, held.topic, held.queue_id, held.queue_offset)
    except UnsupportedError:
        return 0
    return lost


_MOST = 10_000  # messages of the timer that are read


def pops_in_timer(snapshot: Snapshot, start: StartPrediction, newest: int) -> int:
    """How many messages in flight have a check point in the timer that the `start` never delivers.

    `newest` is the newest store timestamp, epoch ms, right after which it comes. Raises RmqtoolError.
    """
    found = timers_never(snapshot, start, newest, newest)
    if found is None or not len(found[0]):
        return 0
    never, queue = found
    log = snapshot.log.files
    lost = [*bookkeeping(log, never[-_MOST:].tolist(), (CHECK_POINT,))]
    if not lost:
        return 0
    later = queue.physical_offsets[queue.physical_offsets >= never.min()]
    taken, _ = in_flight([*lost, *bookkeeping(log, later[-_MOST:].tolist(), ACKNOWLEDGEMENTS)])
    in_queues = {(*pop[:3], offset) for pop, rest in taken.items() for offset in rest.offsets}
    return sum(_is_in_queue(snapshot, topic, queue_id, offset) for topic, queue_id, _, offset in in_queues)


def _is_in_queue(snapshot: Snapshot, topic: str, queue_id: int, queue_offset: int) -> bool:
    queue = snapshot.queue(topic, queue_id)
    return queue is not None and queue.unit_at(queue_offset) is not None


def lacks_pop_store(snapshot: Snapshot) -> bool:
    """Whether what POP consumers hold is gone: broker.conf keeps it in a database that is not there."""
    store = snapshot.store
    is_used = bool(snapshot.committed.offsets) and any(file.size for file in snapshot.log.files)
    return keeps_pops_in_rocksdb(store.conf) and is_used and not is_rocksdb_directory(store.root / POP_STORE)


def keeps_pops_in_rocksdb(conf: BrokerConf) -> bool:
    """Whether a broker makes the database at its start, since 5.3.2 (`popConsumerKVServiceInit`)."""
    return conf.is_on("popConsumerKVServiceInit")
