"""Messages that no start delivers: half messages that no broker checks, and what POP consumers held."""

from __future__ import annotations

from rmqtool.base.errors import UnsupportedError
from rmqtool.broker.half_messages import skipped_halves
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
            queue = snapshot.queue(held.topic, held.queue_id)
            lost += queue is None or queue.unit_at(held.queue_offset) is None
    except UnsupportedError:
        return 0
    return lost


def lacks_pop_store(snapshot: Snapshot) -> bool:
    """Whether what POP consumers hold is gone: broker.conf keeps it in a database that is not there."""
    store = snapshot.store
    is_used = bool(snapshot.committed.offsets) and any(file.size for file in snapshot.log.files)
    return keeps_pops_in_rocksdb(store.conf) and is_used and not is_rocksdb_directory(store.root / POP_STORE)


def keeps_pops_in_rocksdb(conf: BrokerConf) -> bool:
    """Whether a broker makes the database at its start, since 5.3.2 (`popConsumerKVServiceInit`)."""
    return conf.is_on("popConsumerKVServiceInit")
