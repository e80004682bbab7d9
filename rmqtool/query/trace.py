"""The trace of one message: its record in the log, its units in queues and index, and its deliveries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rmqtool.base.errors import UnreadableError
from rmqtool.base.mapped_files import file_at
from rmqtool.base.paths import modified_ms
from rmqtool.base.times import with_times
from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatched_units import QueueUnits
from rmqtool.broker.dispatcher import KEY, REPEATED, TAGS, UNIQUE_KEY, Dispatched, Dispatcher
from rmqtool.clients.queue_view import QueueHole, QueueView, QueueViews
from rmqtool.formats.consume_queue import is_ext_address
from rmqtool.formats.message import record_crc, stored_record_crc
from rmqtool.formats.rocksdb_rows import INDEX_HOUR
from rmqtool.query.by_place import Message
from rmqtool.query.groups import passed_by
from rmqtool.query.lookup import needs_rocksdb
from rmqtool.query.story import Delay, Event, Retry, client_reports, delay_of, retry_of, story_of, with_reports
from rmqtool.query.transactions import Relative, TransactionPart, relatives_of, transaction_of
from rmqtool.rules.system_topics import SCHEDULE_TOPIC
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.single_record import record_at
from rmqtool.store.index_files import MAX_CHAIN_LENGTH, IndexUnit
from rmqtool.store.queue_units import LoadedQueue, Unit
from rmqtool.store.rocksdb import DamagedDatabaseError
from rmqtool.store.side_rows import HeldRows, RocksDbIndex, index_rows
from rmqtool.store.snapshot import Snapshot

IndexState = Literal["ok", "missing", "not-indexed", "no-index", "unknown"]
"""ok: the unit is there. missing: the chain has no such unit. not-indexed: no index file covers the message. no-index:
no index file has a unit. unknown: an index file is damaged."""

_KINDS_OF_PROPERTIES = {UNIQUE_KEY: "unique-key", KEY: "key", TAGS: "tags", REPEATED: "key"}


@dataclass(frozen=True)
class IndexTrace:
    """One key of a message and its unit; `position_in_chain` counts from 1, the newest of the `length` units."""

    key: str
    kind: str
    key_hash: int
    state: IndexState
    unit: IndexUnit | None = None
    position_in_chain: int | None = None
    length: int | None = None

    def as_json(self, relative: Any) -> dict[str, Any]:
        """The object of the machine interface; `relative` shortens a path."""
        unit = self.unit
        return {
            **{name: getattr(self, name) for name in ("key", "kind", "key_hash", "state")},
            "file": None if unit is None else relative(unit.file),
            "number": unit.unit_index if unit else None,
            **{name: getattr(unit, name, None) for name in ("slot", "seconds_since_begin", "previous")},
            "place_in_chain": self.position_in_chain,
            "chain_length": self.length,
        }


def index_traces(snapshot: Snapshot, message: Message, dispatched: Dispatched) -> list[IndexTrace]:
    """The traces of all keys that the broker puts for one record, in the order of the puts."""
    texts = [*([message["unique_key"]] if message["unique_key"] else []), *message["keys"]]
    texts += [message["tags"]] if len(dispatched.keys) > len(texts) and message["tags"] else []
    used: set[tuple[str, int]] = set()
    rows = zip(texts, dispatched.keys.key_hashes.tolist(), dispatched.keys.kinds.tolist(), strict=False)
    offset = message["physical_offset"]
    traces = [
        IndexTrace(text, _KINDS_OF_PROPERTIES[kind], stored_hash, *_find_unit(snapshot, offset, stored_hash, used))
        for text, stored_hash, kind in rows
    ]
    # Only some releases index tags; without --broker-version their unit need not be there.
    return [trace for trace in traces if trace.kind != "tags" or snapshot.version or trace.state == "ok"]


def _find_unit(
    snapshot: Snapshot, offset: int, stored_hash: int, used: set[tuple[str, int]]
) -> tuple[IndexState, IndexUnit | None, int | None, int | None]:
    """State, unit, position and length of the chain; a unit is only found once, equal keys have a unit each."""
    files = [file for file in snapshot.index.files if file.keys]
    if not files:
        return "no-index", None, None, None
    holding = [file for file in files if file.begin_physical_offset <= offset <= file.end_physical_offset]
    for file in holding:
        length, position, unit = 0, None, None
        for length, candidate in enumerate(snapshot.index.chain(file, stored_hash), 1):
            is_it = (candidate.key_hash, candidate.physical_offset) == (stored_hash, offset)
            if is_it and unit is None and (str(candidate.file), candidate.unit_index) not in used:
                unit, position = candidate, length
            if length >= MAX_CHAIN_LENGTH:
                break
        if unit is not None:
            used.add((str(unit.file), unit.unit_index))
            return "ok", unit, position, length
    state: IndexState = "unknown" if snapshot.index.problems else "missing" if holding else "not-indexed"
    return state, None, None, None


RowState = Literal["ok", "missing", "not-indexed"]
"""ok: the row is there. missing: it is not, though the index has come past the message. not-indexed: the index has not
come so far, or begins later."""

_KINDS_OF_ROWS = {"U": "unique-key", "K": "key", "T": "tags"}


@dataclass(frozen=True)
class RowsTrace:
    """The keys of a message with kind and state, none of them where the database cannot be read: `problem`."""

    keys: tuple[tuple[str, str, RowState], ...]
    indexed_to: int | None = None
    problem: str | None = None

    @property
    def missing(self) -> list[str]:
        """Keys without their row, of a message that has others."""
        found = [key for key, _, state in self.keys if state == "missing"]
        return found if any(state == "ok" for *_, state in self.keys) else []

    def as_json(self) -> dict[str, Any]:
        """The object of the machine interface."""
        return {
            "keys": [{"key": key, "kind": kind, "state": state} for key, kind, state in self.keys],
            "indexed_to": self.indexed_to,
            "problem": self.problem,
        }


def rows_trace(snapshot: Snapshot, message: Message) -> RowsTrace | None:
    """The rows of a message; None where the store has no index in RocksDB, or the message no key."""
    rows = tuple(index_rows(message))
    if not rows:
        return None
    index = RocksDbIndex(snapshot.store)
    found = index.held(rows)
    if found is None:
        is_unknown = index.problem and needs_rocksdb(snapshot)
        return RowsTrace((), problem=index.problem) if is_unknown else None
    states = (_row_state(found, held, message) for held in found.held)
    keys = ((row.text, _KINDS_OF_ROWS[row.kind], state) for row, state in zip(rows, states, strict=True))
    return RowsTrace(tuple(keys), found.indexed_to)


def _row_state(found: HeldRows, held: bool, message: Message) -> RowState:  # noqa: FBT001 - of one row
    if held:
        return "ok"
    offset, stored = message["physical_offset"], message["store_timestamp"]
    has_passed = found.indexed_to is not None and offset <= found.indexed_to
    begins_before = found.first_hour is not None and found.first_hour < stored - stored % INDEX_HOUR
    return "missing" if has_passed and (begins_before or any(found.held)) else "not-indexed"


QueueState = Literal["ok", "expired", "deleted", "behind", "differs", "missing", "no-queue", "unread"]
"""ok: the unit is there. expired: it is below the minimum. deleted: with its file. behind: the queue ends before
it. differs: another unit is there. missing: not written. no-queue: no such queue. unread: in RocksDB, which is
damaged, whose library is not installed, or which a running broker has not flushed yet."""

_MISSING: tuple[QueueState, ...] = ("deleted", "behind", "differs", "missing", "no-queue")
_OF_UNIT = ("position", "queue_offset", "physical_offset", "message_size", "tags_code", "batch_size")
_SECOND = 1000  # ms: levels are whole seconds
_LONGEST_DELAY = 366 * 86_400_000  # ms


@dataclass(frozen=True)
class QueueTrace:
    """One queue of a message, and the unit at its queue offset; `elsewhere` is another offset that leads to it.

    `hole` is why consumers do not get it, `repair` the command that makes the queue whole; `is_derived` says that the
    next start derives the unit again.
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    message_size: int
    tags_code: int
    state: QueueState
    queue: LoadedQueue | None
    unit: Unit | None
    elsewhere: int | None = None
    hole: QueueHole | None = None
    is_derived: bool = False
    repair: str | None = None

    @property
    def contradiction(self) -> str | None:
        """How the queue contradicts the log, in a sentence; None when it does not."""
        where = f"queue {self.queue_id} of {self.topic}"
        instead = "" if self.elsewhere is None else f"; queue offset {self.elsewhere} points to it instead"
        if self.is_derived:
            return None
        if self.hole:
            return f"{where}: {self.hole.told}; no consumer gets this message; repair: {self.repair}"
        match self.state:
            case "no-queue":
                return f"{where} does not exist: no consumer gets the message"
            case "behind" if self.queue:
                end = self.queue.range.max_offset
                return f"{where} ends at {end}, before the message's offset {self.queue_offset}{instead}"
            case "differs" if self.unit and self.unit.physical_offset == self.physical_offset:
                stored = f"{self.unit.message_size} bytes and tags code {self.unit.tags_code}"
                return f"{where}: its entry has {stored} instead of {self.message_size} and {self.tags_code}"
            case "differs":
                return f"{where} has the entry of another message at offset {self.queue_offset}{instead}"
            case "missing":
                return f"{where} has no entry at offset {self.queue_offset}{instead}"
            case _:
                return None

    def as_json(self, relative: Any) -> dict[str, Any]:
        """The object of the machine interface; `relative` shortens a path."""
        offsets = self.queue.range if self.queue else None
        unit = self.unit
        return {
            "topic": self.topic,
            "queue_id": self.queue_id,
            "queue_offset": self.queue_offset,
            "state": self.state,
            "kind": self.queue.queue.shown_kind if self.queue else None,
            "min_offset": offsets.min_offset if offsets else None,
            "max_offset": offsets.max_offset if offsets else None,
            "expected_tags_code": self.tags_code,
            "found_at_queue_offset": self.elsewhere,
            "hole": self.hole.as_json() if self.hole else None,
            "after_next_start": self.is_derived,
            "unit": unit and {"file": relative(unit.file), **{name: getattr(unit, name) for name in _OF_UNIT}},
        }


def dispatched(snapshot: Snapshot, frame: RecordRun) -> tuple[Dispatcher, Dispatched]:
    """The units and keys that the broker derives from one record, by the store's version and configuration."""
    dispatcher = Dispatcher(DispatchRules.of_snapshot(snapshot), snapshot.topics.with_batch_queues)
    return dispatcher, dispatcher.dispatch(frame)


def queue_traces(snapshot: Snapshot, dispatcher: Dispatcher, dispatched: Dispatched) -> list[QueueTrace]:
    """The queues that one record belongs to: its own first, then those that its properties name.

    Of queues to which only an older release dispatches it, those that hold its unit.
    """
    traces = _traces(snapshot, dispatcher, dispatched.units)
    if dispatched.optional_units is not None:
        optional = _traces(snapshot, dispatcher, dispatched.optional_units)
        traces += [trace for trace in optional if trace.state in ("ok", "expired")]
    return traces


def _traces(snapshot: Snapshot, dispatcher: Dispatcher, units: QueueUnits) -> list[QueueTrace]:
    rows = zip(
        units.queues.tolist(), units.queue_offsets.tolist(), units.physical_offsets.tolist(),
        units.message_sizes.tolist(), units.tags_codes.tolist(), units.tags_hashes.tolist(),
        units.store_timestamps.tolist(), strict=True,
    )  # fmt: skip
    traces, views = [], QueueViews.of_snapshot(snapshot)
    state: QueueState
    for queue_index, queue_offset, physical_offset, size, tags_code, tags_hash, timestamp in rows:
        topic, queue_id = dispatcher.queues[queue_index]
        queue, is_read = _queue(snapshot, views, topic, queue_id)
        unit = queue.unit_at(queue_offset) if queue and queue_offset < queue.range.max_offset else None
        same = unit is not None and (unit.physical_offset, unit.message_size) == (physical_offset, size)
        if same and unit is not None and unit.tags_code not in (tags_code, tags_hash):
            delay = unit.tags_code - timestamp  # by the broker's configuration at the time, which may be another now
            is_delay = topic == SCHEDULE_TOPIC and 0 < delay <= _LONGEST_DELAY and delay % _SECOND == 0
            same = is_delay or is_ext_address(unit.tags_code)
        state = "unread" if not is_read else _unit_state(queue, queue_offset, unit, same=same)
        if state in ("behind", "no-queue") and snapshot.hides_entries:
            state = "unread"
        other = queue.find(physical_offset) if queue and not same else None
        elsewhere = None if other is None or other.queue_offset == queue_offset else other.queue_offset
        is_other = unit is not None and record_at(snapshot.log.files, unit.physical_offset) is not None
        is_missing = state in _MISSING and elsewhere is None and not is_other
        view = views.of(topic, queue_id) if is_missing else QueueView()
        hole = view.hole_at(queue_offset)
        is_derived = not hole and view.derived > 0 and state in ("behind", "no-queue")
        traces.append(
            QueueTrace(
                topic, queue_id, queue_offset, physical_offset, size, tags_code, state, queue, unit, elsewhere,
                hole, is_derived, views.repair_of(topic, queue_id) if hole else None,
            )
        )  # fmt: skip
    return traces


def _queue(snapshot: Snapshot, views: QueueViews, topic: str, queue_id: int) -> tuple[LoadedQueue | None, bool]:
    """A queue, None without it, and whether all that may hold it can be read."""
    try:
        queue = views.loaded(topic, queue_id)
    except DamagedDatabaseError:
        return None, False
    return queue, queue is not None or not snapshot.leaves_queues_out


def _unit_state(queue: LoadedQueue | None, queue_offset: int, unit: Unit | None, *, same: bool) -> QueueState:
    if queue is None:
        return "no-queue"
    if unit is None:
        if queue_offset >= queue.range.max_offset:
            return "behind"
        return "deleted" if queue_offset < queue.range.min_offset else "missing"
    if not same:
        return "differs"
    return "expired" if queue_offset < queue.range.min_offset else "ok"


_DEFAULT_RESERVED_HOURS = 72  # MessageStoreConfig.fileReservedTime
_HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Retention:
    """When the cleaner may delete the commit log file of a message; None while it is the last file.

    `file_modified_timestamp` is when the broker has last written the file, epoch ms; None where that is not known.
    """

    file: str
    file_modified_timestamp: int | None
    reserved_hours: int
    is_last_file: bool

    @property
    def expires_timestamp(self) -> int | None:
        """From when on the file is old enough, epoch ms (`MappedFileQueue#deleteExpiredFileByTime`)."""
        if self.is_last_file or self.file_modified_timestamp is None:
            return None
        return self.file_modified_timestamp + self.reserved_hours * _HOUR_MS

    def as_json(self) -> dict[str, Any]:
        """The object of the machine interface."""
        return with_times({**asdict(self), "expires_timestamp": self.expires_timestamp})


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
        return with_times({
            "commit_log": self.log,
            "consume_queue": queues[0] if queues else None,
            "further_queues": queues[1:],
            "index": [trace.as_json(relative) for trace in self.index],
            "rocksdb_index": self.rows.as_json() if self.rows else None,
            "consumers": self.consumers,
            "relatives": [other.as_json() for other in self.relatives],
            "transaction": self.transaction.as_json() if self.transaction else None,
            "delay": self.delay.as_json() if self.delay else None,
            "delayed_until_timestamp": self.delay.due_timestamp if self.delay else None,
            "retry": self.retry.as_json() if self.retry else None,
            "retention": self.retention.as_json(),
            "story": [event.as_json() for event in self.story],
            "contradictions": self.contradictions,
        })  # fmt: skip


def trace_of(snapshot: Snapshot, message: Message) -> MessageTrace:
    """Trace a message that has just been read; raises UnreadableError when it has been deleted since."""
    offset = message["physical_offset"]
    frame = record_at(snapshot.log.files, offset)
    mapped = file_at(snapshot.log.files, offset)
    if frame is None or mapped is None:
        raise UnreadableError("the message disappeared during the lookup: its file was deleted", offset=offset)
    dispatcher, dispatched_record = dispatched(snapshot, frame)
    queues = queue_traces(snapshot, dispatcher, dispatched_record)
    index, rows = index_traces(snapshot, message, dispatched_record), rows_trace(snapshot, message)
    relatives = relatives_of(snapshot, message)
    transaction = transaction_of(snapshot, message, relatives)
    log = _in_log(snapshot, message, frame)
    own_queue = queues[0] if queues else None
    refused = bool(len(dispatched_record.malformed_rows))
    due = own_queue.tags_code if own_queue else None
    if own_queue and own_queue.unit and own_queue.state in ("ok", "expired"):
        due = own_queue.unit.tags_code  # which the broker uses
    return MessageTrace(
        message=message,
        log=log,
        queues=queues,
        index=index,
        rows=rows,
        consumers=passed_by(snapshot, own_queue.topic, own_queue.queue_id, own_queue.queue_offset) if own_queue else [],
        relatives=relatives,
        transaction=transaction,
        delay=delay_of(snapshot, message, due, relatives),
        retry=retry_of(snapshot, message),
        retention=Retention(
            message["file"],
            modified_ms(mapped.path),
            snapshot.store.conf.size("fileReservedTime") or _DEFAULT_RESERVED_HOURS,
            mapped == snapshot.log.files[-1],
        ),
        story=with_reports(
            story_of(snapshot, message, relatives, transaction), client_reports(snapshot, message, relatives)
        ),
        contradictions=list(_contradictions(log, queues, index, rows, transaction, refused=refused)),
    )


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
        yield "body CRC mismatch"
    if log["record_crc_ok"] is False:
        yield "the record does not match its __CRC32#"
    if refused:
        yield "a broker cannot parse its properties: a start treats the record as damage"
    yield from (trace.contradiction for trace in queues if trace.contradiction)
    missing = [trace.key for trace in index if trace.state == "missing"]
    if missing:
        yield f"the index has no entry for {', '.join(missing)}: queries by that key do not find the message"
    if rows and rows.missing:
        yield f"the index in RocksDB has no row for {', '.join(rows.missing)}, and rows for its other keys"
    if transaction and transaction.contradiction:
        yield transaction.contradiction
