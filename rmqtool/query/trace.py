"""The trace of one message: its record in the log, its units in queues and index, and its deliveries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rmqtool.base.errors import UnreadableError
from rmqtool.base.mapped_files import file_at
from rmqtool.base.paths import modified_ms
from rmqtool.base.times import rfc3339
from rmqtool.formats.crc import record_crc, stored_record_crc
from rmqtool.query.by_place import Message
from rmqtool.query.client_reports import client_reports
from rmqtool.query.deliveries import Delay, Retry, delay_of, retry_of
from rmqtool.query.groups import passed_by
from rmqtool.query.relatives import Relative, relatives_of
from rmqtool.query.story import Event, story_of
from rmqtool.query.time_line import with_reports
from rmqtool.query.trace_index import IndexTrace, index_traces
from rmqtool.query.trace_queues import QueueTrace, dispatched, queue_traces
from rmqtool.query.trace_rows import RowsTrace, rows_trace
from rmqtool.query.transactions import TransactionPart, transaction_of
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.record_at import record_at
from rmqtool.store.snapshot import Snapshot

_DEFAULT_RESERVED_HOURS = 72  # MessageStoreConfig.fileReservedTime
_HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Retention:
    """When the cleaner may delete the commit log file of a message; None while it is the last file.

    `modified_timestamp` is when the broker has last written the file, epoch ms; None where that is not known.
    """

    file: str
    modified_timestamp: int | None
    reserved_hours: int
    is_last: bool

    @property
    def expires_timestamp(self) -> int | None:
        """From when on the file is old enough, epoch ms (`MappedFileQueue#deleteExpiredFileByTime`)."""
        if self.is_last or self.modified_timestamp is None:
            return None
        return self.modified_timestamp + self.reserved_hours * _HOUR_MS

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
class MessageTrace:
    """Everything that the store shows of one message."""

    message: Message
    log: dict[str, Any]
    queues: list[QueueTrace]
    index: list[IndexTrace]
    rows: RowsTrace | None
    consumers: list[dict[str, Any]]
    relatives: list[Relative]
    transaction: TransactionPart | None
    delay: Delay | None
    retry: Retry | None
    retention: Retention
    story: list[Event]
    contradictions: list[str]

    def as_json(self, snapshot: Snapshot) -> dict[str, Any]:
        """The JSON object `places`."""
        relative = snapshot.store.relative
        queues = [trace.as_json(relative) for trace in self.queues]
        due = self.delay.due_timestamp if self.delay else None
        return {
            "commit_log": self.log,
            "consume_queue": queues[0] if queues else None,
            "further_queues": queues[1:],
            "index": [trace.as_json(relative) for trace in self.index],
            "rocksdb_index": self.rows.as_json() if self.rows else None,
            "consumers": self.consumers,
            "relatives": [other.as_json() for other in self.relatives],
            "transaction": self.transaction.as_json() if self.transaction else None,
            "delay": self.delay.as_json() if self.delay else None,
            "delayed_until_timestamp": due,
            "delayed_until_time": rfc3339(due),
            "retry": self.retry.as_json() if self.retry else None,
            "retention": self.retention.as_json(),
            "story": [event.as_json() for event in self.story],
            "contradictions": self.contradictions,
        }


def trace_of(snapshot: Snapshot, message: Message) -> MessageTrace:
    """Trace a message that has just been read; raises UnreadableError when it has been deleted since."""
    offset = message["physical_offset"]
    frame = record_at(snapshot.log.files, offset)
    mapped = file_at(snapshot.log.files, offset)
    if frame is None or mapped is None:
        raise UnreadableError("the message has vanished while it was looked up: its file was deleted", offset=offset)
    dispatcher, dispatched_record = dispatched(snapshot, frame)
    queues = queue_traces(snapshot, dispatcher, dispatched_record)
    index, rows = index_traces(snapshot, message, dispatched_record), rows_trace(snapshot, message)
    relatives = relatives_of(snapshot, message)
    transaction = transaction_of(snapshot, message, relatives)
    log = _in_log(snapshot, message, frame)
    own_queue = queues[0] if queues else None
    refused = bool(len(dispatched_record.malformed_rows))
    return MessageTrace(
        message=message,
        log=log,
        queues=queues,
        index=index,
        rows=rows,
        consumers=passed_by(snapshot, own_queue.topic, own_queue.queue_id, own_queue.queue_offset) if own_queue else [],
        relatives=relatives,
        transaction=transaction,
        delay=delay_of(snapshot, message, _due(own_queue), relatives),
        retry=retry_of(snapshot, message),
        retention=_retention(
            snapshot,
            message["file"],
            modified_ms(mapped.path),
            is_last=mapped == snapshot.log.files[-1],
        ),
        story=with_reports(
            story_of(snapshot, message, relatives, transaction), client_reports(snapshot, message, relatives)
        ),
        contradictions=list(_contradictions(log, queues, index, rows, transaction, refused=refused)),
    )


def _due(trace: QueueTrace | None) -> int | None:
    """The tags code that the broker uses: that of the unit when it is the message's own, else the derived one."""
    if trace is None:
        return None
    return trace.unit.tags_code if trace.unit and trace.state in ("ok", "expired") else trace.tags_code


def _in_log(snapshot: Snapshot, message: Message, frame: RecordRun) -> dict[str, Any]:
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


def _retention(snapshot: Snapshot, file: str, modified: int | None, *, is_last: bool) -> Retention:
    hours = snapshot.store.conf.size("fileReservedTime") or _DEFAULT_RESERVED_HOURS
    return Retention(file, modified, hours, is_last)


def _contradictions(
    log: dict[str, Any],
    queues: list[QueueTrace],
    index: list[IndexTrace],
    rows: RowsTrace | None,
    transaction: TransactionPart | None,
    *,
    refused: bool,
) -> Iterator[str]:
    if not log["body_crc_ok"]:
        yield "the body does not have the CRC that is stored with it"
    if log["record_crc_ok"] is False:
        yield "the record does not have the CRC in its property __CRC32#"
    if refused:
        yield "its properties make a broker fail: to a start of the broker the record is damage"
    yield from (trace.contradiction for trace in queues if trace.contradiction)
    missing = [trace.key for trace in index if trace.state == "missing"]
    if missing:
        yield f"the index has no unit for {', '.join(missing)}: queries by that key do not find the message"
    if rows and rows.missing:
        yield f"the index in RocksDB has no row for {', '.join(rows.missing)}, and rows for its other keys"
    if transaction and transaction.contradiction:
        yield transaction.contradiction
