"""The units that a start dispatches to the consume queues (`DefaultMessageStore#doDispatch`).

Brokers from 4.5.1 to 4.9.8 also wait until all missing units are dispatched (`ReputMessageService#doReput`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

from rmqtool.base.files import UNLIMITED, InputFile, ReadPolicy
from rmqtool.base.mapped_files import MappedFile, MappedFiles, file_at
from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatched_units import QueueName, columns_by_queue
from rmqtool.broker.dispatcher import Dispatcher
from rmqtool.broker.log_walk import FileWalk, FileWalker
from rmqtool.broker.prediction import StartRefusal
from rmqtool.broker.queue_recovery import QueueKey, RecoveredQueue, RecoveredQueues, SimulatedQueue
from rmqtool.broker.record_parser import parse_at
from rmqtool.formats import message
from rmqtool.formats.message import topic_size_width
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.rules.versions import BATCH_QUEUES
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from rmqtool.scan.single_record import record_in
from rmqtool.store.config_tables import Topics
from rmqtool.store.consume_queues import Kind, Queue
from rmqtool.store.store import CONSUME_QUEUE

_FIRSTS = 2  # records: the physical offset of a single one may be damaged
_MOST_UNITS = 64  # that these records have, but for some of very many queues


@dataclass
class Queues:
    """All queues of a store while a start changes them; those that it creates are added.

    Most starts change few of many queues: only these are simulated, the others stay as their own recovery left them.
    """

    rules: RecoveryRules
    file_sizes: Mapping[Kind, int]  # of new files, bytes
    log_end: int
    recovered: RecoveredQueues
    reading: ReadPolicy = UNLIMITED
    log_start: int = 0
    states: dict[QueueKey, SimulatedQueue] = field(default_factory=dict)

    def __iter__(self) -> Iterator[SimulatedQueue]:
        """All of them, simulated."""
        for key in self.recovered.keys():  # noqa: SIM118 - no mapping
            self.state(key)
        return iter(self.states.values())

    def touched(self) -> Iterator[QueueKey]:
        """Those that are simulated, and those of which their own recovery deletes files."""
        yield from self.states
        yield from (key for key in self.recovered.deleting() if key not in self.states)

    def truncate(self, physical_offset: int) -> None:
        """Cut all of them at the end of the log; those that end before it stay."""
        for key in self.recovered.reaching(physical_offset):
            self.state(key)
        for state in self.states.values():
            state.truncate(physical_offset)

    def min_offset_refusal(self) -> StartRefusal | None:
        """`ConsumeQueue#correctMinOffset` reads the last unit of the last file, and fails when that holds none."""
        for key in self.recovered.without_unit():
            self.state(key)
        ending = (each.queue for each in self.states.values() if each.ends_at_file and each.kind == "simple")
        queue = next(ending, None)
        if queue is None:
            return None
        directory = f"{CONSUME_QUEUE}/{queue.topic}/{queue.queue_id}"
        why = "the last file holds no entry (IllegalArgumentException: newPosition < 0, load exception)"
        return StartRefusal("queue-end", why, directory, queue.topic, queue.queue_id)

    @property
    def topics(self) -> set[str]:
        """The topics of all of them."""
        return self.recovered.topics | {topic for _, topic, _ in self.states}

    @property
    def max_physical(self) -> int:
        """`getMaxPhyOffsetInConsumeQueue`: the greatest of all queues."""
        untouched = self.recovered.max_physical(self.rules, but=self.states)
        return max((untouched, *(state.max_physical for state in self.states.values())))

    def state(self, key: QueueKey) -> SimulatedQueue:
        """The queue of a key, which is created when it does not exist."""
        if key not in self.states:
            kind, topic, queue_id = key
            queue = Queue(topic, queue_id, kind, MappedFiles())
            start = self.recovered.get(key) or RecoveredQueue(queue, (), (), 0, None, -1)
            self.states[key] = SimulatedQueue(start, self.rules, self.file_sizes[kind], self.log_end, self.reading,
                                              log_start=self.log_start)  # fmt: skip
        return self.states[key]


class Dispatching:
    """Dispatches the records of a range of the log to the queues."""

    def __init__(self, queues: Queues, rules: DispatchRules, topics: Topics, above: int | None = None) -> None:
        """Only records that store a physical offset greater than `above` are dispatched."""
        self._queues = queues
        self._rules = replace(queues.rules, check_crc=False)  # the walk before has checked it, and doReput does not
        self._above = above
        known = topics.with_batch_queues if rules.version >= BATCH_QUEUES else None
        self._batch_topics = known or frozenset()
        self._dispatcher = Dispatcher(rules, self._batch_topics)
        self.failure: str | None = None
        """The exception that ends the dispatching, and at which record."""
        self.firsts: list[int] = []
        """The physical offsets that the first two dispatched records give as their own: not their places in a copy."""

    def run(self, files: Sequence[MappedFile], stop: int) -> None:
        """Dispatch the records that a walk through `files` accepts, in the last one to before offset `stop`.

        The others are walked to their ends, also where the next file begins before that.
        """
        for mapped in files:
            limit = stop - mapped.start_offset if mapped is files[-1] else mapped.size
            self._run_file(mapped, 0, limit)

    def reput(self, files: Sequence[MappedFile], start: int, stop: int, file_size: int) -> str | None:
        """Dispatch from physical offset `start` to before `stop`; returns why the broker would wait for ever, or None.

        Bytes that are no record end a file, not the log.
        """
        position = start
        while position < stop and self.failure is None:
            mapped = file_at(files, position)
            if mapped is None:
                return f"no file holds the commit log at offset {position}, and the start waits until it is dispatched"
            limit = min(mapped.size, stop - mapped.start_offset)
            walk = self._run_file(mapped, position - mapped.start_offset, limit)
            position = mapped.start_offset + walk.end
            if walk.outcome == "next":
                position += file_size - position % file_size
            elif walk.end < limit:
                position = mapped.start_offset + self._behind_bad_record(mapped, walk.end, limit)
        return f"{self.failure}, and the start waits until it is dispatched" if self.failure else None

    def _behind_bad_record(self, mapped: MappedFile, position: int, limit: int) -> int:
        with InputFile(mapped.path) as file:
            parsed = parse_at(file, position, self._rules, check_crc=False)
        return min(limit, position + parsed.size) if parsed.size > 0 else limit

    def _run_file(self, mapped: MappedFile, start: int, limit: int) -> FileWalk:
        """Dispatch the records of one file that a walk from `start` to `limit` accepts, positions in the file."""
        reading, rules = self._queues.reading, self._rules
        with InputFile(mapped.path, reading) as file:

            def on_record(position: int, size: int) -> None:
                frames = frames_of(file, position, size, rules)
                if frames is not None:
                    self.add(frames)

            walker = FileWalker(file, mapped, rules, start=start, limit=limit, on_frames=self.add, on_record=on_record)
            base = mapped.start_offset
            for event in scan_files([mapped], start=base + start, stop=base + limit, reading=reading):
                walker.feed(event)
                if walker.is_over:
                    break
            return walker.finish()

    def add(self, frames: RecordRun, broker_only_records: bool = False) -> None:  # noqa: ARG002, FBT001 - a walk hands it over
        """Dispatch a run; whether its records store another physical offset than their own does not matter.

        After a record that ends it with an exception nothing is dispatched.
        """
        if self.failure is not None:
            return
        dispatched = self._dispatcher.dispatch(frames)
        units = dispatched.units
        if failing := dispatched.failure(-1 if self._above is None else self._above):
            row, why = failing
            self.failure = f"the record at offset {int(frames.physical_offsets[row])}: {why}"
            units = units[units.rows < row]
        if self._above is not None:
            units = units[units.physical_offsets > self._above]
        if len(self.firsts) < _FIRSTS:
            offsets = units.physical_offsets[:_MOST_UNITS].tolist()
            self.firsts = [*dict.fromkeys([*self.firsts, *offsets])][:_FIRSTS]
        needed = (units.physical_offsets, units.message_sizes, units.queue_offsets, units.batch_sizes)
        for queue_number, columns in columns_by_queue(units.queues, needed):
            self._add_to_queue(self._dispatcher.queues[queue_number], columns)

    def _add_to_queue(self, name: QueueName, columns: list[NDArray[Any]]) -> None:
        if "/" in name.topic or name.topic in ("", ".", "..") or "\0" in name.topic:
            return  # such a name leads out of the queue's directory, which is not predicted
        state = self._queues.state(("batch" if name.topic in self._batch_topics else "simple", *name))
        state.append_all(*columns)


def frames_of(file: InputFile, position: int, size: int, rules: RecoveryRules) -> RecordRun | None:
    """A record that only the broker takes for one, as a run of one, at the offset that it stores; None if unusable.

    Negative lengths count as 0.
    """
    data = bytearray(file.read(position, size))
    _, magic_code, offset, sys_flag = message.HEAD.unpack_from(data)
    body_at = message.HEADER_DTYPES[sys_flag & message.HOST_BITS if rules.knows_ipv6 else 0].itemsize
    body_size = int.from_bytes(data[body_at - message.BODY_SIZE_WIDTH : body_at], "big", signed=True)
    if body_size < 0:
        data[body_at - message.BODY_SIZE_WIDTH : body_at] = bytes(message.BODY_SIZE_WIDTH)
    topic_at = body_at + max(0, body_size)
    width = topic_size_width(magic_code)
    topic_size = int.from_bytes(data[topic_at : topic_at + width], "big", signed=True)
    properties_at = topic_at + width + topic_size
    if int.from_bytes(data[properties_at : properties_at + message.PROPERTIES_SIZE_WIDTH], "big", signed=True) < 0:
        data[properties_at : properties_at + message.PROPERTIES_SIZE_WIDTH] = bytes(message.PROPERTIES_SIZE_WIDTH)
    return record_in(data, offset)
