"""A store without its commit log: lost, or where only broker.conf says it is (`storePathCommitLog`)."""

from __future__ import annotations

from rmqtool.base.errors import UnreadableError
from rmqtool.base.tolerant import skip_unreadable
from rmqtool.store.checkpoint import CHECKPOINT_TIMES, credible
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import CHECKPOINT, Store

WHERE_IT_MAY_BE = "where broker.conf says that it is elsewhere, give that with --broker-conf"


def require_log(store: Store) -> None:
    """Raise UnreadableError for a store without its log."""
    if not store.commit_log().files and (error := missing_log(Snapshot(store))):
        raise error


def missing_log(snapshot: Snapshot) -> UnreadableError | None:
    """The error of a store that has no log file and once held messages; None for others.

    A broker never deletes the newest file of its log (`MappedFileQueue#deleteExpiredFileByTime`).
    """
    if snapshot.log.files:
        return None
    witness = _witness(snapshot)
    if witness is None:
        return None
    directories = snapshot.store.commit_log_directories
    shown = ", ".join(map(snapshot.store.relative, directories))
    message = f"no log file is in {shown}, but {witness} knows messages"
    return UnreadableError(message, file=snapshot.store.root, hint=WHERE_IT_MAY_BE)


def _witness(snapshot: Snapshot) -> str | None:
    """What of a store shows that it held messages."""
    with skip_unreadable():  # whoever reads them meets it again
        for queue in snapshot.queues:
            return f"the queue {queue.queue_id} of {queue.topic}"
    with skip_unreadable():
        checkpoint = credible(snapshot.checkpoint)
        if any(checkpoint.get(name) for name in CHECKPOINT_TIMES):
            return CHECKPOINT
    return None
