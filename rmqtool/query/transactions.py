"""The transaction that a record belongs to (`TransactionalMessageBridge`, `TransactionalMessageServiceImpl`).

A half message waits in a topic of its own. Its end is an op message that names its queue offset; when it is committed,
a copy of it is stored under the real topic and points back at it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from rmqtool.query.by_place import Message, message_at
from rmqtool.rules.system_topics import DEAD_LETTER_PREFIX, DELAYED_TOPICS, HALF_TOPIC, OP_TOPIC, RETRY_PREFIX
from rmqtool.store.index_files import MAX_MATCHES
from rmqtool.store.snapshot import Snapshot

Relation = Literal["half", "commit", "rollback", "delayed", "retry", "dead-letter", "delivered", "original", "copy"]
"""The relation of another record to the one that is traced."""


@dataclass(frozen=True)
class Relative:
    """Another record of the same message."""

    relation: Relation
    record: Message

    def as_json(self) -> dict[str, Any]:
        """The object of the machine interface."""
        names = ("topic", "queue_id", "queue_offset", "physical_offset", "message_id", "store_timestamp", "store_time")
        return {"relation": self.relation, **{name: self.record[name] for name in names}}


def relatives_of(snapshot: Snapshot, message: Message) -> list[Relative]:
    """The other records with the unique key of `message`, in the order of the log; none without a unique key."""
    key = message["unique_key"]
    if not key:
        return []
    topics = {*snapshot.topic_names, message["topic"]}
    offsets = {unit.physical_offset for unit in snapshot.index.query_topics(topics, key, MAX_MATCHES)}
    offsets.discard(message["physical_offset"])
    others = [message_at(snapshot, offset) for offset in sorted(offsets)]
    return [Relative(_relation(message, other), other) for other in others if other and other["unique_key"] == key]


def _relation(message: Message, other: Message) -> Relation:
    topic = other["topic"]
    if other["transaction"] in ("commit", "rollback") and _is_half(message):
        return "commit" if other["transaction"] == "commit" else "rollback"
    if _is_half(other):
        return "half"
    if topic in DELAYED_TOPICS:
        return "delayed"
    if topic.startswith(RETRY_PREFIX):
        return "retry"
    if topic.startswith(DEAD_LETTER_PREFIX):
        return "dead-letter"
    if other["physical_offset"] < message["physical_offset"]:
        return "original"
    return "delivered" if message["topic"] in DELAYED_TOPICS else "copy"


def _is_half(message: Message) -> bool:
    return bool(message["topic"] == HALF_TOPIC or message["transaction"] == "prepared")


State = Literal["pending", "committed", "rolled-back", "ended", "unknown"]
"""pending: no end was found. committed: a committed copy is there. rolled-back: ended without a copy. ended: either of
these, without an index that could show a copy. unknown: too many op messages, or no way to the end."""

_MAX_OPS = 20_000  # op messages after a half message that are read
_OFFSETS = re.compile(r"\d{1,19}", re.ASCII)


@dataclass(frozen=True)
class TransactionPart:
    """A record's part in a transaction; offsets are physical, None where the other record was not found."""

    part: Literal["half", "prepared", "commit", "rollback"]
    state: State
    half: int | None = None
    op: int | None = None
    commit: int | None = None
    real_topic: str | None = None
    real_queue_id: str | None = None
    contradiction: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The object of the machine interface."""
        places = {f"{name}_physical_offset": getattr(self, name) for name in ("half", "op", "commit")}
        real = {"real_topic": self.real_topic, "real_queue_id": self.real_queue_id}
        return {"part": self.part, "state": self.state, **places, **real}


def transaction_of(snapshot: Snapshot, message: Message, relatives: list[Relative]) -> TransactionPart | None:
    """The transaction of a record, None when it has none; `relatives` are the records with its unique key."""
    if message["topic"] == HALF_TOPIC:
        return _half(snapshot, message, relatives)
    match message["transaction"]:
        case "commit":
            return _commit(snapshot, message)
        case "prepared":
            ends = [other for other in relatives if _points_at(other.record, message)]
            commit = next((end.record["physical_offset"] for end in ends if end.relation == "commit"), None)
            # A roll back is not indexed: nothing leads to it.
            return TransactionPart("prepared", "unknown" if commit is None else "committed", commit=commit)
        case "rollback":
            return TransactionPart("rollback", "rolled-back", half=_half_at(snapshot, message))
    return None


def _points_at(other: Message, message: Message) -> bool:
    return bool(other["prepared_transaction_offset"] == message["physical_offset"])


def _half(snapshot: Snapshot, message: Message, relatives: list[Relative]) -> TransactionPart:
    real = message["properties"].get("REAL_TOPIC"), message["properties"].get("REAL_QID")
    commits = (other.record for other in relatives if other.record["transaction"] == "commit")
    commit = next((each["physical_offset"] for each in commits if _points_at(each, message)), None)
    op, complete = _op_of(snapshot, message)
    state: State = "committed" if commit is not None else "pending"
    if commit is None and op is not None:
        indexed = bool(snapshot.index.files) and not snapshot.index.problems and message["unique_key"]
        state = "rolled-back" if indexed else "ended"
    elif commit is None and not complete:
        state = "unknown"
    return TransactionPart("half", state, message["physical_offset"], op, commit, *real)


def _op_of(snapshot: Snapshot, message: Message) -> tuple[int | None, bool]:
    """Physical offset of the op message that ends a half message, and whether all that might were read."""
    queue = snapshot.queue(OP_TOPIC, message["queue_id"])
    if queue is None:
        return None, True
    for read, unit in enumerate(queue.units_behind(message["physical_offset"])):
        if read >= _MAX_OPS:
            return None, False
        op = message_at(snapshot, unit.physical_offset, "decompressed")
        if op and str(message["queue_offset"]) in _OFFSETS.findall(op["body"] or ""):
            return unit.physical_offset, True
    return None, True


def _commit(snapshot: Snapshot, message: Message) -> TransactionPart:
    half = _half_at(snapshot, message)
    contradiction = None
    offset = message["prepared_transaction_offset"]
    if half is None and offset >= snapshot.log_min_offset:
        contradiction = f"the message says that its half is at {offset}, but no such record is there"
    commit = message["physical_offset"]
    return TransactionPart("commit", "committed", half=half, commit=commit, contradiction=contradiction)


def _half_at(snapshot: Snapshot, message: Message) -> int | None:
    """Physical offset of the half of a commit or a roll back; None when it was deleted or another message is there."""
    offset = int(message["prepared_transaction_offset"])
    half = message_at(snapshot, offset)
    if half is None:
        return None
    # Before 4.3 the half is in the topic itself; since then in another, so that the unique key must identify it.
    is_it = half["transaction"] == "prepared" or (
        half["topic"] == HALF_TOPIC and half["unique_key"] == message["unique_key"]
    )
    return offset if is_it else None
