"""Where one message stands: in the log, its queues and the index, and what has become of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rmqtool.base.errors import UnreadableError
from rmqtool.base.mapped_files import file_at
from rmqtool.base.times import rfc3339
from rmqtool.formats.crc import record_crc, stored_record_crc
from rmqtool.query.by_place import Message
from rmqtool.query.deliveries import Delay, Retry, delay_of, retry_of
from rmqtool.query.groups import passed_by
from rmqtool.query.relatives import Relative, relatives_of
from rmqtool.query.trace_index import IndexPlace, index_places
from rmqtool.query.trace_queues import QueuePlace, dispatched, queue_places
from rmqtool.query.transactions import Transaction, transaction_of
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.record_at import record_at
from rmqtool.store.snapshot import Snapshot

_DEFAULT_RESERVED_HOURS = 72  # MessageStoreConfig.fileReservedTime
_HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Retention:
    """When the cleaner may delete the commit log file of a message; None while it is the last file."""

    file: str
    modified_timestamp: int
    reserved_hours: int
    is_last: bool

    @property
    def expires_timestamp(self) -> int | None:
        """From when on the file is old enough, epoch ms (`MappedFileQueue#deleteExpiredFileByTime`)."""
        return None if self.is_last else self.modified_timestamp + self.reserved_hours * _HOUR_MS

    def as_json(self) -> dict[str, Any]:
        """The object of the machine interface."""
        return {
            "file": self.file,
            "file_modified_timestamp": self.modified_timestamp,
            "file_modified_time": rfc3339(self.modified_timestamp),
            "reserved_hours": self.reserved_hours,
            "is_last_file": self.is_last,
            "expires_timestamp": self.expires_timestamp,
            "expires_time": rfc3339(self.expires_timestamp),
        }


@dataclass(frozen=True)
class Places:
    """All that is known of one message."""

    message: Message
    log: dict[str, Any]
    queues: list[QueuePlace]
    index: list[IndexPlace]
    consumers: list[dict[str, Any]]
    relatives: list[Relative]
    transaction: Transaction | None
    delay: Delay | None
    retry: Retry | None
    retention: Retention
    contradictions: list[str]

    def as_json(self, snapshot: Snapshot) -> dict[str, Any]:
        """The object `places` of the machine interface."""
        relative = snapshot.store.relative
        queues = [place.as_json(relative) for place in self.queues]
        due = self.delay.due_timestamp if self.delay else None
        return {
            "commit_log": self.log,
            "consume_queue": queues[0] if queues else None,
            "further_queues": queues[1:],
            "index": [place.as_json(relative) for place in self.index],
            "consumers": self.consumers,
            "relatives": [other.as_json() for other in self.relatives],
            "transaction": self.transaction.as_json() if self.transaction else None,
            "delay": self.delay.as_json() if self.delay else None,
            "delayed_until_timestamp": due,
            "delayed_until_time": rfc3339(due),
            "retry": self.retry.as_json() if self.retry else None,
            "retention": self.retention.as_json(),
            "contradictions": self.contradictions,
        }


def places_of(snapshot: Snapshot, message: Message) -> Places:
    """Look a message, which has just been read, up everywhere; UnreadableError when it has been deleted since."""
    offset = message["physical_offset"]
    frame = record_at(snapshot.log.files, offset)
    mapped = file_at(snapshot.log.files, offset)
    if frame is None or mapped is None:
        raise UnreadableError("the message has vanished while it was looked up: its file was deleted", offset=offset)
    dispatcher, found = dispatched(snapshot, frame)
    queues = queue_places(snapshot, dispatcher, found)
    index = index_places(snapshot, message, found)
    relatives = relatives_of(snapshot, message)
    transaction = transaction_of(snapshot, message, relatives)
    log = _log_place(snapshot, message, frame)
    place = queues[0] if queues else None
    refused = bool(len(found.refused))
    return Places(
        message=message,
        log=log,
        queues=queues,
        index=index,
        consumers=passed_by(snapshot, place.topic, place.queue_id, place.queue_offset) if place else [],
        relatives=relatives,
        transaction=transaction,
        delay=delay_of(snapshot, message, _due(place), relatives),
        retry=retry_of(snapshot, message),
        retention=_retention(
            snapshot,
            message["file"],
            mapped.path.stat().st_mtime_ns // 1_000_000,
            is_last=mapped == snapshot.log.files[-1],
        ),
        contradictions=list(_contradictions(log, queues, index, transaction, refused=refused)),
    )


def _due(place: QueuePlace | None) -> int | None:
    """The tags code that counts for the broker: that of the unit when it is the message's own."""
    if place is None:
        return None
    return place.unit.tags_code if place.unit and place.state in ("ok", "expired") else place.tags_code


def _log_place(snapshot: Snapshot, message: Message, frame: RecordRun) -> dict[str, Any]:
    offset, size = message["physical_offset"], message["message_size"]
    mapped = file_at(snapshot.log.files, offset)
    start = int(frame.positions[0])
    record = bytes(frame.block.view[start : start + size])
    stored = stored_record_crc(record)
    return {
        "file": message["file"],
        "position": offset - (mapped.start_offset if mapped else 0),
        "physical_offset": offset,
        "next_physical_offset": offset + size,
        "min_offset": snapshot.log_min_offset,
        "max_offset": snapshot.log_range.max_offset,
        "body_crc_ok": message["body_crc_ok"],
        "record_crc_ok": None if stored is None else stored == record_crc(record),
    }


def _retention(snapshot: Snapshot, file: str, modified: int, *, is_last: bool) -> Retention:
    hours = snapshot.store.conf.size("fileReservedTime") or _DEFAULT_RESERVED_HOURS
    return Retention(file, modified, hours, is_last)


def _contradictions(
    log: dict[str, Any],
    queues: list[QueuePlace],
    index: list[IndexPlace],
    transaction: Transaction | None,
    *,
    refused: bool,
) -> Iterator[str]:
    if not log["body_crc_ok"]:
        yield "the body does not have the CRC that is stored with it"
    if log["record_crc_ok"] is False:
        yield "the record does not have the CRC in its property __CRC32#"
    if refused:
        yield "its properties make a broker fail: to a start of the broker the record is damage"
    yield from (place.contradiction for place in queues if place.contradiction)
    missing = [place.key for place in index if place.state == "missing"]
    if missing:
        yield f"the index has no unit for {', '.join(missing)}: queries by that key do not find the message"
    if transaction and transaction.contradiction:
        yield transaction.contradiction
