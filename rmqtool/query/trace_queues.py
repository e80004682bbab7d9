"""The trace of a message in consume queues: the units that the broker derives, and the stored ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatched_units import QueueUnits
from rmqtool.broker.dispatcher import Dispatched, Dispatcher
from rmqtool.clients.holes import QueueHole, QueueView
from rmqtool.clients.queue_view import QueueViews
from rmqtool.formats.consume_queue import is_ext_address
from rmqtool.rules.system_topics import SCHEDULE_TOPIC
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.record_at import record_at
from rmqtool.store.queue_units import LoadedQueue, Unit
from rmqtool.store.rocksdb import DamagedDatabaseError
from rmqtool.store.snapshot import Snapshot

State = Literal["ok", "expired", "deleted", "behind", "differs", "missing", "no-queue", "unread"]
"""ok: the unit is there. expired: it is below the minimum. deleted: with its file. behind: the queue ends before
it. differs: another unit is there. missing: not written. no-queue: no such queue. unread: in RocksDB, which is
damaged, or whose library is not installed."""

_MISSING: tuple[State, ...] = ("deleted", "behind", "differs", "missing", "no-queue")
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
    state: State
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
        instead = "" if self.elsewhere is None else f"; queue offset {self.elsewhere} leads to it instead"
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
                return f"{where}: its unit has {stored} instead of {self.message_size} and {self.tags_code}"
            case "differs":
                return f"{where} has the unit of another message at offset {self.queue_offset}{instead}"
            case "missing":
                return f"{where} has no unit at offset {self.queue_offset}{instead}"
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
            "unit": None
            if unit is None
            else {
                "file": relative(unit.file),
                "position": unit.position,
                "queue_offset": unit.queue_offset,
                "physical_offset": unit.physical_offset,
                "message_size": unit.message_size,
                "tags_code": unit.tags_code,
                "batch_size": unit.batch_size,
            },
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
    state: State
    for queue_index, queue_offset, physical_offset, size, tags_code, tags_hash, timestamp in rows:
        topic, queue_id = dispatcher.queues[queue_index]
        queue, is_read = _queue(snapshot, views, topic, queue_id)
        unit = queue.unit_at(queue_offset) if queue and queue_offset < queue.range.max_offset else None
        same = unit is not None and (unit.physical_offset, unit.message_size) == (physical_offset, size)
        if same and unit is not None and unit.tags_code not in (tags_code, tags_hash):
            is_delay = topic == SCHEDULE_TOPIC and _is_delay(unit.tags_code - timestamp)
            same = is_delay or is_ext_address(unit.tags_code)
        state = "unread" if not is_read else _state(queue, queue_offset, unit, same=same)
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


def _is_delay(ms: int) -> bool:
    """Whether a level may delay so long: the broker's configuration may have been another one at the time."""
    return 0 < ms <= _LONGEST_DELAY and ms % _SECOND == 0


def _state(queue: LoadedQueue | None, queue_offset: int, unit: Unit | None, *, same: bool) -> State:
    if queue is None:
        return "no-queue"
    if unit is None:
        if queue_offset >= queue.range.max_offset:
            return "behind"
        return "deleted" if queue_offset < queue.range.min_offset else "missing"
    if not same:
        return "differs"
    return "expired" if queue_offset < queue.range.min_offset else "ok"
