"""What consumers reach of a queue, found without a scan of the log: holes, and what the next start derives again.

Three witnesses are asked: the queue's recovered end, written units past it in its files or rows, and the newest part of
the log. `verify` compares all of the log with all queues, and comes to the same numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.visible import quote
from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.dispatcher import Dispatcher
from rmqtool.broker.prediction import StartPrediction
from rmqtool.broker.queue_recovery import recover_queue
from rmqtool.broker.recovery import Recovery
from rmqtool.clients.queues import ServedQueue, served_queues
from rmqtool.findings.finding import counted
from rmqtool.formats.consume_queue import is_pre_blank
from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from rmqtool.scan.single_record import record_at
from rmqtool.store.consume_queues import Queue
from rmqtool.store.queue_units import LoadedQueue, QueueRange
from rmqtool.store.single_messages import SingleMessages, deleted_topics
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.unit_files import open_units, written_units


@dataclass(frozen=True)
class QueueHole:
    """Queue entries that are missing from `queue_offset` on, while the log has messages of them or past them.

    `entries` are missing; because of that consumers do not get `messages`, up to `last_queue_offset`. Where the queue
    ends at the hole, `messages_past` of these have written entries past it; else only the missing ones are lost.
    """

    queue_offset: int
    entries: int
    messages: int
    messages_past: int
    last_queue_offset: int
    ends_queue: bool

    def unread_from(self, committed: int) -> int:
        """How many of the messages a group at a committed offset has still to get."""
        if committed <= self.queue_offset:
            return self.messages
        return max(0, min(self.messages, self.last_queue_offset + 1 - committed))

    @property
    def told(self) -> str:
        """The hole in a sentence."""
        last = self.queue_offset + self.entries - 1
        which = f"queue entries {self.queue_offset} to {last} are missing"
        if self.entries <= 1:
            which = f"queue entry {last} is missing" if self.entries else f"the queue ends before entry {last + 1}"
        offsets = f" (queue offsets {self.queue_offset} to {self.last_queue_offset})" if self.messages_past else ""
        are = "is" if self.messages == 1 else "are"
        return f"{which}: {counted(self.messages, 'message')} of the log{offsets} {are} out of consumers' reach"

    def as_json(self) -> dict[str, Any]:
        """The object of the machine interface."""
        return {
            "queue_offset": self.queue_offset,
            "entries": self.entries,
            "messages_past": self.messages_past,
            "unreachable": self.messages,
            "last_queue_offset": self.last_queue_offset,
            "ends_queue": self.ends_queue,
        }


@dataclass(frozen=True)
class QueueView:
    """The holes of a queue in order, and how many messages the next start derives again, which are in none of them."""

    holes: tuple[QueueHole, ...] = ()
    derived: int = 0

    @property
    def unreachable(self) -> int:
        """How many messages of the log consumers do not get."""
        return sum(hole.messages for hole in self.holes)

    @property
    def end(self) -> QueueHole | None:
        """The hole at which the queue ends; None where it does not."""
        return next((hole for hole in self.holes if hole.ends_queue), None)

    def hole_at(self, queue_offset: int) -> QueueHole | None:
        """The hole because of which consumers do not get a queue offset; None where there is none."""
        return next((hole for hole in self.holes if hole.queue_offset <= queue_offset <= hole.last_queue_offset), None)

    def from_offset(self, committed: int) -> tuple[QueueHole | None, int]:
        """The first hole that concerns a group at a committed offset, and how many messages it misses for all."""
        unread = [(hole, hole.unread_from(committed)) for hole in self.holes]
        first = next((hole for hole, messages in unread if messages or hole.ends_queue), None)
        return first, sum(messages for _, messages in unread)


SAMPLE_BYTES = 64 << 20
"""So much of the log is read at most: it takes less than a second."""

_REMOTE_BYTES = 1 << 20  # where each read is a request


class LoggedMessages(NamedTuple):
    """Messages of one queue in log order: queue offsets, how many messages each record has, physical offsets."""

    queue_offsets: NDArray[np.int64]
    counts: NDArray[np.int64]
    physical_offsets: NDArray[np.int64]

    def behind(self, physical_offset: int) -> LoggedMessages:
        """Those that were stored after the record at a physical offset."""
        rows = self.physical_offsets > physical_offset
        return LoggedMessages(*(column[rows] for column in self))

    def within(self, first: int, stop: int) -> LoggedMessages:
        """Those of queue offsets from `first` to before `stop`."""
        rows = (self.queue_offsets >= first) & (self.queue_offsets < stop)
        return LoggedMessages(*(column[rows] for column in self))


NO_MESSAGES = LoggedMessages(*(np.zeros(0, np.int64) for _ in LoggedMessages._fields))


@dataclass(frozen=True)
class LogSample:
    """The messages of a part of the log by queue, from physical offset `begin` on."""

    begin: int
    queues: Mapping[QueueName, LoggedMessages] = field(default_factory=dict)

    def of(self, name: QueueName) -> LoggedMessages:
        """Those of one queue."""
        return self.queues.get(name, NO_MESSAGES)


class LogReader:
    """Reads parts of a log, and single records, as messages of their queues; at most `most` bytes at once."""

    def __init__(self, snapshot: Snapshot, most: int = SAMPLE_BYTES) -> None:
        self._snapshot = snapshot
        self._most = most
        self._dispatcher = Dispatcher(DispatchRules.of_snapshot(snapshot), snapshot.topics.with_batch_queues)

    @property
    def most_bytes(self) -> int:
        """How much of the log is read at most."""
        files = self._snapshot.log.files
        return _REMOTE_BYTES if files and files[0].modified_ns is not None else self._most

    def newest(self) -> LogSample:
        """The newest part of the log, all of it where it is small."""
        snapshot = self._snapshot
        if not snapshot.log.files:
            return LogSample(0)
        end = snapshot.log_range.max_offset
        return self.read(max(snapshot.log_min_offset, end - self.most_bytes), end)

    def read(self, begin: int, end: int) -> LogSample:
        """The messages of the records from physical offset `begin` to before `end`; raises UnreadableError."""
        found: dict[QueueName, list[LoggedMessages]] = {}
        for event in scan_files(self._snapshot.log.files, begin, end, self._snapshot.reading):
            if isinstance(event, RecordRun):
                for name, messages in self._messages(event):
                    found.setdefault(name, []).append(messages)
        queues = {
            name: LoggedMessages(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
            for name, parts in found.items()
        }
        return LogSample(begin, queues)

    def belongs(self, name: QueueName, queue_offset: int, physical_offset: int) -> bool:
        """Whether the record at a physical offset is the message at a queue offset of a queue."""
        frame = record_at(self._snapshot.log.files, physical_offset)
        found = dict(self._messages(frame)).get(name) if frame is not None else None
        return found is not None and queue_offset in found.queue_offsets.tolist()

    def count_at(self, name: QueueName, physical_offset: int) -> int:
        """How many queue offsets the record at a physical offset takes in a queue; 1 where it is none of it."""
        frame = record_at(self._snapshot.log.files, physical_offset)
        found = dict(self._messages(frame)).get(name) if frame is not None else None
        return int(found.counts[0]) if found is not None else 1

    def _messages(self, run: RecordRun) -> Sequence[tuple[QueueName, LoggedMessages]]:
        units = self._dispatcher.dispatch(run).units
        return [
            (
                QueueName(*self._dispatcher.queues[number]),
                LoggedMessages(of_queue.queue_offsets, of_queue.message_counts.astype(np.int64),
                               of_queue.physical_offsets),
            )
            for number, of_queue in units.by_queue()
        ]  # fmt: skip


MOST_UNITS = 1 << 22
"""So many units of a queue are looked at, the last ones: 80 MiB."""

_SEARCHED = 1 << 16  # in files larger than this the end is searched for, and a hole may be passed over, bytes
_FEW_QUEUES = 256
_MOST_PROBED = 64  # units that do not fit their neighbours


class _Entries(NamedTuple):
    """Written units that lead into the log: their numbers in the queue, and what they stand for."""

    numbers: NDArray[np.int64]
    offsets: NDArray[np.int64]
    counts: NDArray[np.int64]
    targets: NDArray[np.int64]

    def __bool__(self) -> bool:
        return bool(len(self.numbers))

    def kept(self, rows: NDArray[Any] | slice) -> _Entries:
        return _Entries(*(column[rows] for column in self))


class QueueViews:
    """The queues of one store as consumers see them; the log's newest part is read once, when it is first needed.

    It and what is read beside it has at most `most` bytes. Of a store on which a broker runs nothing is said: it serves
    what it remembers, and files and log move on.
    """

    def __init__(self, snapshot: Snapshot, most: int = SAMPLE_BYTES) -> None:
        self._snapshot = snapshot
        self._most = most
        self._known: dict[tuple[QueueName, int], QueueView] = {}

    @classmethod
    def of_snapshot(cls, snapshot: Snapshot) -> QueueViews:
        """Those of a snapshot, which are made once."""
        views: QueueViews = snapshot.kept.setdefault(cls, cls(snapshot))
        return views

    def loaded(self, topic: str, queue_id: int) -> LoadedQueue | None:
        """A queue as a broker has loaded it, which reads all of its last files; None without it."""
        queue = self._snapshot.queue(topic, queue_id)
        if queue is None or not queue.queue.files.file_size > _SEARCHED:  # of others the end is known exactly
            return queue
        end = self.of(topic, queue_id).end
        if end is None:
            return queue
        max_offset = min(queue.range.max_offset, end.queue_offset)
        return type(queue)(queue.queue, replace(queue.range, max_offset=max_offset))

    def of(self, topic: str, queue_id: int, first: int = 0) -> QueueView:
        """One queue, whose entries are compared from queue offset `first` on; empty where it cannot be read."""
        name = QueueName(topic, queue_id)
        if (name, first) not in self._known:
            try:
                self._known[name, first] = self._view(name, first)
            except RmqtoolError:  # which whoever reads the queue or the log meets, too
                self._known[name, first] = QueueView()
        return self._known[name, first]

    def with_holes(
        self, queues: Sequence[tuple[Queue, QueueRange]], early: Collection[QueueName]
    ) -> dict[QueueName, QueueView]:
        """The queues of a store that have holes, or of which the next start derives messages.

        All are looked at where that is little to read, else those that end `early`, with bytes past their end, and
        those of which the newest part of the log has messages past it.
        """
        if self._is_silent:
            return {}
        names, is_remote = {*early}, self._snapshot.log.files[0].modified_ns is not None
        if not is_remote:
            names |= self._in_log_only(queues)
            size = sum(file.size for queue, _ in queues for file in queue.files.files)
            if size <= self._most and len(queues) <= _FEW_QUEUES:
                names |= {QueueName(queue.topic, queue.queue_id) for queue, _ in queues}
        views = ((name, self.of(*name)) for name in sorted(names))
        return {name: view for name, view in views if view.holes or view.derived}

    def passed_by_log(self, queue: Queue, reach: QueueRange) -> bool:
        """Whether the newest part of the log has messages of a queue past its end."""
        return not self._is_silent and bool(self._in_log_only([(queue, reach)]) & {(queue.topic, queue.queue_id)})

    def _in_log_only(self, queues: Iterable[tuple[Queue, QueueRange]]) -> set[QueueName]:
        """Queues of which the newest part of the log has messages that the queues do not reach."""
        ends = {QueueName(queue.topic, queue.queue_id): reach.max_offset for queue, reach in queues}
        try:
            return {
                name
                for name, logged in self._sample.queues.items()
                if logged.queue_offsets[-1] + logged.counts[-1] > ends.get(name, 0)
            }
        except RmqtoolError:  # which whoever reads the log meets, too
            return set()

    def logged_at(self, topic: str, queue_id: int, queue_offset: int) -> int | None:
        """The physical offset of the message at a queue offset whose entry is missing; None where it is not found."""
        name, snapshot = QueueName(topic, queue_id), self._snapshot
        found = self._sample.of(name).within(queue_offset, queue_offset + 1)
        if len(found.physical_offsets):
            return int(found.physical_offsets[-1])
        queue = snapshot.queue(topic, queue_id)
        if queue is None or queue.queue.kind == "batch" or not (queue.queue.database or queue.queue.files.files):
            return None
        entries, _, _ = self._entries(name, queue)
        index = int(np.searchsorted(entries.offsets, queue_offset))
        after = entries.kept(slice(index, None))
        if after and after.offsets[0] == queue_offset:
            return int(after.targets[0])
        low = int(entries.targets[index - 1]) if index else snapshot.log_min_offset
        high = int(after.targets[0]) if after else snapshot.log_range.max_offset
        if high - low > self._log.most_bytes:
            return None
        found = self._log.read(low, high).of(name).within(queue_offset, queue_offset + 1)
        return int(found.physical_offsets[-1]) if len(found.physical_offsets) else None

    def logged_after(self, topic: str, queue_id: int, physical_offset: int) -> list[int] | None:
        """The physical offsets of a queue's messages after one; None where that is too much of the log to read."""
        try:
            if physical_offset < self._sample.begin:
                return None
            after = self._sample.of(QueueName(topic, queue_id)).behind(physical_offset)
        except RmqtoolError:  # which whoever reads the log meets, too
            return None
        return [int(each) for each in after.physical_offsets]

    def repair_of(self, topic: str, queue_id: int) -> str:
        """The command that makes a queue whole."""
        store = self._snapshot.store
        conf = f" --broker-conf {quote(store.conf.path)}" if store.conf.path else ""
        return f"rmqtool rebuild-cq {quote(str(store.root))}{conf} --topic {quote(topic)} --queue {queue_id}"

    def missing(self) -> Iterator[QueueName]:
        """Queues of which the newest part of the log has messages, and that are not there."""
        if self._is_silent:
            return
        try:
            known = {(queue.topic, queue.queue_id) for queue in self._snapshot.queues}
            yield from sorted(name for name in self._sample.queues if name not in known)
        except RmqtoolError:
            return

    @property
    def _is_silent(self) -> bool:
        snapshot = self._snapshot
        return snapshot.holder is not None or snapshot.leaves_queues_out or not snapshot.log.files

    @cached_property
    def _log(self) -> LogReader:
        return LogReader(self._snapshot, self._most)

    @cached_property
    def _sample(self) -> LogSample:
        return self._log.newest()

    @cached_property
    def _start(self) -> StartPrediction | None:
        """The next start, where it need not read more of the log than the sample does; None else, or where it fails."""
        snapshot = self._snapshot
        if snapshot.log.size > self._log.most_bytes:
            return None
        start = Recovery(snapshot, RecoveryRules.of(snapshot.release, snapshot.store.conf)).predict()
        return start if start.is_up else None

    @cached_property
    def _served(self) -> Mapping[QueueName, ServedQueue]:
        """The queues that the next start changes."""
        return served_queues({}, self._start, twice=self._snapshot.has_queues_twice)

    def _view(self, name: QueueName, first: int) -> QueueView:
        if self._is_silent:
            return QueueView()
        queue = self._snapshot.queue(*name)
        if queue is None or not (queue.queue.database or queue.queue.files.files):
            holes = [*self._of_missing(name)]
        else:
            holes = [*self._holes(name, queue, first)]
        return self._after_start(name, holes) if holes else QueueView()

    @cached_property
    def _deleted(self) -> frozenset[str]:
        """The deleted ones of the topics of queues that are missing."""
        lasts: dict[str, list[int]] = {}
        for name in self.missing():
            lasts.setdefault(name.topic, []).append(int(self._sample.of(name).physical_offsets[-1]))
        return deleted_topics(lasts, SingleMessages(self._snapshot))

    def _of_missing(self, name: QueueName) -> Iterator[QueueHole]:
        """All messages of a queue that is gone, and was not deleted with its topic."""
        logged = self._sample.of(name)
        if not len(logged.queue_offsets) or name.topic in self._deleted:
            return
        first, messages = int(logged.queue_offsets[0]), int(logged.counts.sum())
        end = int(logged.queue_offsets[-1] + logged.counts[-1])
        yield QueueHole(first, max(end - first, 1), messages, 0, max(end - 1, first), ends_queue=True)

    def _holes(self, name: QueueName, queue: LoadedQueue, first: int) -> Iterator[QueueHole]:
        entries, end, are_all = self._entries(name, queue, first)
        split = int(np.searchsorted(entries.numbers, end))
        if split and self._sample.begin <= self._snapshot.log_min_offset:
            yield from self._before(name, queue, entries, first)
        start = max(first, queue.range.min_offset, 0)
        if entries and not are_all:
            start = max(start, int(entries.offsets[0]))
        for before in self._gaps(name, entries.kept(slice(split)), start):
            offset, stop = _end_of(entries, before, start), int(entries.offsets[before + 1])
            messages = self._logged(name, entries, before, offset)
            if messages:
                yield QueueHole(offset, stop - offset, messages, 0, stop - 1, ends_queue=False)
        begin = end if queue.range.expired else 0  # what led below the log, consumers have no more
        yield from self._past(name, entries, split - 1, min(start, end) if entries else begin)

    def _before(self, name: QueueName, queue: LoadedQueue, entries: _Entries, first: int) -> Iterator[QueueHole]:
        """Messages that the log has, and that are below the queue's minimum: its first files are missing."""
        logged = self._sample.of(name)
        logged = LoggedMessages(*(column[logged.physical_offsets < entries.targets[0]] for column in logged))
        begin = min(int(entries.offsets[0]), queue.range.min_offset)
        logged = logged.within(max(0, first), begin)
        offset = next(iter(logged.queue_offsets.tolist()), None)
        if offset is not None and queue.unit_at(offset) is None:  # a `min` row may come after the first one
            yield QueueHole(offset, begin - offset, int(logged.counts.sum()), 0, begin - 1, ends_queue=False)

    def _past(self, name: QueueName, entries: _Entries, last: int, start: int) -> Iterator[QueueHole]:
        """The hole at which the queue ends, after the entry of index `last`: entries past it, messages in the log."""
        offset = end = _end_of(entries, last, start)
        past = entries.kept(slice(last + 1, None))
        messages, messages_past, stop = 0, int(past.counts.sum()), offset
        if past:
            stop, end = int(past.offsets[0]), int(past.offsets[-1] + past.counts[-1])
            messages = self._logged(name, entries, last, offset)
            messages_past += sum(
                self._logged(name, past, before, _end_of(past, before, stop)) for before in self._gaps(name, past, stop)
            )
        target = int(entries.targets[-1]) if entries else -1
        tail = self._sample.of(name).behind(target).within(end, MAX_OFFSET)
        if len(tail.queue_offsets):
            begin, end = end, int(tail.queue_offsets[-1] + tail.counts[-1])
            is_whole = target >= self._sample.begin or self._sample.begin <= self._snapshot.log_min_offset
            in_tail = int(tail.counts.sum()) if is_whole else end - begin
            if past:
                messages_past += in_tail
            else:
                offset = offset if entries or not is_whole else int(tail.queue_offsets[0])
                messages, stop = in_tail, end
        if messages + messages_past:
            total = messages + messages_past
            yield QueueHole(offset, stop - offset, total, messages_past, end - 1, ends_queue=True)

    def _after_start(self, name: QueueName, holes: list[QueueHole]) -> QueueView:
        """The holes without what the next start derives again from the log."""
        served = self._served.get(name)
        derived = served.derived - served.misplaced if served else 0
        left = []
        for hole in holes:
            if not hole.ends_queue or not derived:
                left.append(hole)
            elif derived < hole.messages:
                left.append(_without(hole, derived))
        return QueueView(tuple(left), derived if any(hole.ends_queue for hole in holes) else 0)

    def _entries(self, name: QueueName, queue: LoadedQueue, first: int = 0) -> tuple[_Entries, int, bool]:
        """The written units that lead into the log, the number at which a start ends the queue, and whether it is all.

        Of many units the older ones are left out.
        """
        stored, found = queue.queue, []
        if stored.database:
            end, stop = queue.range.max_offset, MAX_OFFSET
            wanted = max(first, queue.range.min_offset, 0)
            start = max(wanted, end - MOST_UNITS)
            rows = stored.database.units((stored.topic, stored.queue_id), start, stop, 2 * MOST_UNITS)
            found.append((rows.offsets, rows.values))
        else:
            recovered = recover_queue(stored)
            end = recovered.files[-1].start_offset // stored.unit_size + recovered.written
            with open_units(stored, self._snapshot.reading) as units:
                begin, stop = units.start, units.data_end
            is_batch = stored.kind == "batch"
            wanted = min(begin if is_batch else max(first, queue.range.min_offset, begin), end)
            start = max(wanted, end - MOST_UNITS)
            found.extend(written_units(stored, max(begin, start - (not is_batch)), stop, self._snapshot.reading))
        if not found:
            return _Entries(*(np.zeros(0, np.int64) for _ in _Entries._fields)), end, True
        numbers = np.concatenate([numbers for numbers, _ in found]).astype(np.int64)
        entries = self._sound(name, numbers, np.concatenate([rows for _, rows in found]), stored.kind == "batch")
        return entries, end, start == wanted

    def _sound(self, name: QueueName, numbers: NDArray[np.int64], rows: NDArray[np.void], is_batch: bool) -> _Entries:  # noqa: FBT001
        """Units without those that lead nowhere: out of the log, or out of order and to no message of theirs."""
        targets, sizes = rows["physical_offset"].astype(np.int64), rows["message_size"].astype(np.int64)
        offsets = rows["base_queue_offset"].astype(np.int64) if is_batch else numbers
        counts = rows["batch_size"].astype(np.int64) if is_batch else np.ones(len(numbers), np.int64)
        low, high = self._snapshot.log_min_offset, self._snapshot.log_range.max_offset
        sound = (targets >= low) & (targets < high) & (sizes > 0) & ~is_pre_blank(rows)
        kept = np.flatnonzero(sound)
        steps = np.flatnonzero(targets[kept][1:] <= targets[kept][:-1])
        steps = steps[:_MOST_PROBED]
        probed = sorted({*steps.tolist(), *(steps + 1).tolist()})[:_MOST_PROBED]  # NumPy's search loads masked arrays
        for row in kept[probed].tolist():
            sound[row] = self._log.belongs(name, int(offsets[row]), int(targets[row]))
        return _Entries(numbers, offsets, counts, targets).kept(sound)

    def _gaps(self, name: QueueName, entries: _Entries, start: int) -> Iterator[int]:
        """The entries, by index, after which queue offsets from `start` on have none; -1 for what precedes all."""
        if entries and int(entries.offsets[0]) > start:
            yield -1
        ends = entries.offsets + entries.counts
        for before in np.flatnonzero(entries.offsets[1:] > np.maximum(ends[:-1], start)).tolist():
            if entries.counts[before] == 1:  # in rows batches have one
                entries.counts[before] = self._log.count_at(name, int(entries.targets[before]))
            if _end_of(entries, before, start) < entries.offsets[before + 1]:
                yield before

    def _logged(self, name: QueueName, entries: _Entries, before: int, offset: int) -> int:
        """How many messages from a queue offset to the entry after `before` the log has.

        Where that is far to look, all that are missing.
        """
        low = int(entries.targets[before]) if before >= 0 else self._snapshot.log_min_offset
        high, stop = int(entries.targets[before + 1]), int(entries.offsets[before + 1])
        if low >= self._sample.begin:
            sample = self._sample
        elif high - low > self._log.most_bytes:
            return stop - offset
        else:
            sample = self._log.read(low, high)
        return int(sample.of(name).within(offset, stop).counts.sum())


def _end_of(entries: _Entries, index: int, start: int) -> int:
    """The queue offset after an entry; `start` where nothing precedes."""
    return int(entries.offsets[index] + entries.counts[index]) if index >= 0 else start


def _without(hole: QueueHole, derived: int) -> QueueHole:
    """A hole at the end without the messages that the next start derives, which are the last ones."""
    messages = hole.messages - derived
    past = max(0, hole.messages_past - derived)
    last = hole.last_queue_offset - derived
    return QueueHole(hole.queue_offset, min(hole.entries, last + 1 - hole.queue_offset), messages, past, last, True)
