"""Messages by position: physical offset, message id or queue offset; and why there is no message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rmqtool.base.errors import UnsupportedError
from rmqtool.base.mapped_files import MappedFile, file_at
from rmqtool.base.visible import quote
from rmqtool.broker.pull import compacted_puller
from rmqtool.clients.queue_view import QueueViews
from rmqtool.formats.message import format_host, parse_message_id
from rmqtool.scan.block import REASON_MEANINGS, Blank
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.message_rows import BodyChoice, message_dicts
from rmqtool.scan.reader import LONGEST_BLANK, scan_files
from rmqtool.scan.single_record import record_at
from rmqtool.store.missing import shown_ids, unknown_topic
from rmqtool.store.queue_units import LoadedQueue, Unit
from rmqtool.store.snapshot import Snapshot


@dataclass
class Notes:
    """Sentences for people; `lossy` when damage was met, so that messages may be missing."""

    lines: list[str] = field(default_factory=list)
    lossy: bool = False

    def add(self, line: str, *, lossy: bool = False) -> None:
        """Add a sentence, once."""
        self.lossy |= lossy
        if line not in self.lines:
            self.lines.append(line)


Message = dict[str, Any]
"""The message object of the machine interface."""


COMPACTED = "compacted"


class Elsewhere(NamedTuple):
    """Files of a log that is not the commit log, and what it is called where a message says where it lies."""

    place: str
    files: Sequence[MappedFile]


def message_at(
    snapshot: Snapshot, physical_offset: int, body: BodyChoice = "none", elsewhere: Elsewhere | None = None
) -> Message | None:
    """The message that begins at a physical offset; None when no sound record does.

    `elsewhere` the offset is one of another log. Such a message has no id: ids name the commit log.
    """
    files = elsewhere.files if elsewhere else snapshot.log.files
    frame = record_at(files, physical_offset)
    mapped = file_at(files, physical_offset)
    if frame is None or mapped is None:
        return None
    (message,) = message_dicts(frame, snapshot.store.relative(mapped.path), body)
    return {**message, "message_id": None, "place": elsewhere.place} if elsewhere else message


def by_offset(snapshot: Snapshot, physical_offset: int, body: BodyChoice, notes: Notes) -> Iterator[Message]:
    """The message at a physical offset (`DefaultMessageStore#lookMessageByOffset`)."""
    message = message_at(snapshot, physical_offset, body)
    if message is None:
        why, lossy = why_not_at(snapshot, physical_offset)
        notes.add(why, lossy=lossy)
    else:
        yield message


def by_message_id(snapshot: Snapshot, text: str, body: BodyChoice, notes: Notes) -> Iterator[Message]:
    """The message with an offset message id; raises FormatError for a text that is none."""
    host, physical_offset = parse_message_id(text)
    message = message_at(snapshot, physical_offset, body)
    if message is not None and message["message_id"] == text.upper():
        yield message
        return
    if physical_offset < 0:
        notes.add(f"{text} is not an offset message id: its physical offset would be {physical_offset}")
        return
    where = f"{text} stands for physical offset {physical_offset} of the broker {format_host(host)}"
    if message is not None:
        notes.add(f"{where}; the message there was stored by {message['store_host']}: the id is from another store")
    else:
        why, _ = why_not_at(snapshot, physical_offset)
        notes.add(f"{where}; {why}")


def by_queue_offset(
    snapshot: Snapshot, queue_name: tuple[str, int], queue_offset: int, body: BodyChoice, notes: Notes
) -> Iterator[Message]:
    """The message to which a unit leads; `queue_name` is topic and queue id."""
    queue = QueueViews.of_snapshot(snapshot).loaded(*queue_name)
    unit = queue.unit_at(queue_offset) if queue and queue_offset < queue.range.max_offset else None
    if compacted := compacted_puller(snapshot, *queue_name):
        served = compacted.queue.unit_at(queue_offset) if compacted.queue else None
        is_logged = unit is not None and message_at(snapshot, unit.physical_offset) is not None
        if served and not is_logged:
            message = message_at(snapshot, served.physical_offset, body, Elsewhere(COMPACTED, compacted.files))
            if message is not None:
                yield message
                return
        elif not served:
            notes.add(f"the compacted log does not have queue offset {queue_offset}: consumers do not get this message")
    if queue is None or unit is None:
        if (message := _in_hole(snapshot, queue_name, queue_offset, body, notes)) is not None:
            yield message
        elif not notes.lossy:
            notes.add(_why_no_unit(queue, queue_offset) if queue else why_no_queue(snapshot, *queue_name))
        return
    message = message_at(snapshot, unit.physical_offset, body)
    if message is None:
        why, lossy = why_not_at(snapshot, unit.physical_offset)
        notes.add(f"the entry of queue offset {queue_offset} points to {unit.physical_offset}: {why}", lossy=lossy)
        return
    _compare(queue, unit, queue_offset, message, notes)
    yield message


def _in_hole(
    snapshot: Snapshot, queue_name: tuple[str, int], queue_offset: int, body: BodyChoice, notes: Notes
) -> Message | None:
    """The message at a queue offset whose entry is missing, from the log; notes name the hole."""
    views = QueueViews.of_snapshot(snapshot)
    hole = views.of(*queue_name).hole_at(queue_offset)
    if hole is None:
        return None
    notes.add(f"{hole.told}; repair: {views.repair_of(*queue_name)}", lossy=True)
    physical_offset = views.logged_at(*queue_name, queue_offset)
    return None if physical_offset is None else message_at(snapshot, physical_offset, body)


def why_not_at(snapshot: Snapshot, physical_offset: int) -> tuple[str, bool]:
    """Why no message begins at a physical offset, and whether that is damage."""
    files = snapshot.log.files
    if not files:
        return "the store has no commit log", True
    if physical_offset < snapshot.log_min_offset:
        return f"offset {physical_offset} is below the commit log's minimum {snapshot.log_min_offset}: deleted", False
    if physical_offset >= snapshot.log_range.max_offset:
        return f"offset {physical_offset} is beyond the commit log's end {snapshot.log_range.max_offset}", False
    for event in scan_files(files, max(0, physical_offset), physical_offset + 1, snapshot.reading):
        if isinstance(event, Blank):
            return f"at offset {physical_offset} is the blank that ends a file", False
        if not isinstance(event, RecordRun):
            return f"at offset {physical_offset} is damage: {REASON_MEANINGS[event.reason]}", True
    return _why_inside(snapshot, physical_offset)


def _why_inside(snapshot: Snapshot, physical_offset: int) -> tuple[str, bool]:
    """Why no record begins at an offset, and whether that is damage: the record, blank or damage that covers it."""
    mapped = file_at(snapshot.log.files, physical_offset)
    if mapped is None:
        return f"no file of the commit log has offset {physical_offset}", True
    before = None
    for event in scan_files([mapped], max(0, physical_offset - LONGEST_BLANK), physical_offset, snapshot.reading):
        before = event if not isinstance(event, RecordRun) else event[len(event) - 1 :]
    if isinstance(before, RecordRun):
        return f"no record begins at offset {physical_offset}; one begins at {before.physical_offset}", False
    first = mapped.start_offset + mapped.header_size
    if before is None and physical_offset < first:
        return f"at offset {physical_offset} is the header of a DLedger entry, whose record begins at {first}", False
    if before is None or isinstance(before, Blank):
        return f"at offset {physical_offset} is the rest of a file after its last record", False
    meaning = REASON_MEANINGS[before.reason]
    return f"offset {physical_offset} is in damage that begins at {before.physical_offset}: {meaning}", True


def why_no_queue(snapshot: Snapshot, topic: str, queue_id: int) -> str:
    """Why there is no such queue; raises UnsupportedError when it may be in RocksDB, without the library for it."""
    if snapshot.leaves_queues_out:
        raise UnsupportedError(
            "the consume queues are kept in RocksDB, which needs the package rocksdict",
            file=snapshot.store.root,
            hint=f"pip install 'rmqtool[rocksdb]'; --scan --topic {quote(topic)} looks at the commit log",
        )
    ids = snapshot.queue_ids(topic)
    if ids:
        return f"topic {topic} has no queue {queue_id} here; it has {shown_ids(ids)}"
    why = unknown_topic(snapshot, topic) or f"topic {topic} has no queue here"
    return f"{why}; --scan --topic {quote(topic)} looks for its messages in the commit log"


def _why_no_unit(queue: LoadedQueue, queue_offset: int) -> str:
    offsets = queue.range
    if queue_offset >= offsets.max_offset:
        held = f"offsets {offsets.min_offset} to {offsets.max_offset - 1}"
        there = held if offsets.max_offset > offsets.min_offset else "it is empty"
        return f"queue offset {queue_offset} is beyond the queue's end: {there}"
    return f"queue offset {queue_offset} is below the queue's minimum {offsets.min_offset}: deleted"


def _compare(queue: LoadedQueue, unit: Unit, queue_offset: int, message: Message, notes: Notes) -> None:
    """Note where a unit and the record that it leads to disagree; a light queue shares another topic's records."""
    if queue_offset < queue.range.min_offset:
        notes.add(f"queue offset {queue_offset} is below the queue's minimum {queue.range.min_offset}: not delivered")
    if unit.batch_size > 1:
        batch_index = queue_offset - unit.queue_offset + 1
        notes.add(f"the record is a batch of {unit.batch_size}: offset {queue_offset} is number {batch_index} in it")
    elif (message["topic"], message["queue_id"]) != (queue.queue.topic, queue.queue.queue_id):
        if queue.queue.topic not in message["properties"].get("INNER_MULTI_DISPATCH", "").split(","):
            where = f"topic {message['topic']} queue {message['queue_id']}"
            notes.add(f"the entry points to a message of {where}", lossy=True)
    elif message["queue_offset"] != queue_offset:
        notes.add(f"the entry points to a message with queue offset {message['queue_offset']}", lossy=True)
    if unit.message_size != message["message_size"]:
        notes.add(f"the entry has {unit.message_size} bytes, the record {message['message_size']}", lossy=True)
