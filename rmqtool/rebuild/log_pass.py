"""One pass over the log, in one process or several: for each run of records all that needs no run before it.

So the number of processes does not change the whole, and what one pass has derived may be read by others from a file.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.files import UNLIMITED, RateLimit, ReadPolicy
from rmqtool.base.limits import MemoryNeed, sized
from rmqtool.base.mapped_files import MappedFile
from rmqtool.base.parallel import Job, WorkerPool, packed, receive, send
from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatched_units import QueueName, QueueUnits
from rmqtool.broker.dispatcher import Dispatched, Dispatcher, IndexKeys
from rmqtool.broker.proven_records import ProvenRecords
from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.formats.message import INNER_BATCH
from rmqtool.rebuild.existing import StoredUnits
from rmqtool.rebuild.options import Part, QueueSelection
from rmqtool.rebuild.queue_placement import NEUTRALISED, Extent, Order
from rmqtool.scan.block import Blank, Block, Damage
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.inert_records import inert_rows
from rmqtool.scan.reader import Event, scan_block, scan_files

_REFUSED = "properties"  # the reason for which a broker takes a sound record for damage
_WRONG_BODY = "body-crc"
_LOOK_BACK = 64 << 10  # bytes before a part: to look further costs more than to read again parts that do not meet


@dataclass(frozen=True)
class RunTask:
    """The log to read, and what to derive from it by which rules; can be sent to another process."""

    files: Sequence[MappedFile]
    rules: DispatchRules
    selection: QueueSelection = field(default_factory=QueueSelection)
    order: Order = "stored"
    reading: ReadPolicy = UNLIMITED
    checks_bodies: bool = True
    drops_bodies_from: int | None = None  # wrong ones from there on, since they are about to be neutralised
    drops_refused_from: int = 0  # then, of records that a broker refuses and a queue entry proves
    drops_later: bool = False  # whether that is not known yet
    batch_topics: frozenset[str] = frozenset()
    learns_batch_topics: bool = False
    queues: bool = True
    index: bool = True
    anew: bool = False  # whether nothing of the queues that are there stays
    left_out: int = 0  # messages that the log does not hold on purpose
    plain_topics: frozenset[str] = frozenset()  # those whose queues are there, and are no batch queues
    proven: ProvenRecords = field(default_factory=ProvenRecords)  # what records with damaged fields were


@dataclass(frozen=True)
class RunKeys:
    """Keys, and once for all keys of a record its offset and time: small, to be sent between processes.

    Offsets and timestamps are those of all records of the run, with keys or without.
    """

    key_hashes: NDArray[np.int32]
    kinds: NDArray[np.uint8]
    rows: NDArray[np.int32]
    physical_offsets: NDArray[np.int64]
    store_timestamps: NDArray[np.int64]

    def index_keys(self) -> IndexKeys:
        """The keys, each with the offset and time of its record."""
        offsets, timestamps = self.physical_offsets.take(self.rows), self.store_timestamps.take(self.rows)
        return IndexKeys(self.key_hashes, offsets, timestamps, self.kinds, self.rows)


@dataclass(frozen=True)
class RunResult:
    """Units, keys and damage of one run of records; units hold numbers of queues.

    It is in the log from `physical_offset` on, `size` bytes with the headers of DLedger entries.
    """

    physical_offset: int
    size: int
    last_physical_offset: int  # of its last record
    last_store_timestamp: int
    units: StoredUnits | None
    optional_units: StoredUnits | None  # what only older releases derive
    has_optional_keys: bool  # whether older releases leave out some of the keys
    batch_units: QueueUnits | None  # those of topics that have batch queues
    keys: RunKeys | None
    wrong_bodies: list[int]  # physical offsets of records with another body than was stored, which keep their place
    batch_topics: frozenset[str]  # topics that turn out to have batch queues
    lost: list[Extent]
    dropping: Dropping | None = None  # the same without some records, where that may be asked for

    def dropped_by(self, task: RunTask) -> RunResult:
        """The result without the records that a task drops."""
        if task.drops_bodies_from is None or self.dropping is None:
            return self
        return self.dropping.result(task.drops_bodies_from, task.drops_refused_from)


class Dropping(NamedTuple):
    """Results without the records that a broker refuses, and without `wrong` bodies as well, which are at offsets.

    `proven` are offsets of those refused ones that a queue entry proves.
    """

    wrong: list[int]
    proven: list[int]
    without_refused: RunResult
    without_all: RunResult

    def result(self, physical_offset: int, refused_from: int) -> RunResult:
        """The result where those from an offset on are dropped. Raises PartsDoNotMeetError where it is in between.

        Or where a refused one before `refused_from` is to stay.
        """
        if any(offset < refused_from for offset in self.proven):
            raise PartsDoNotMeetError
        if all(offset < physical_offset for offset in self.wrong):
            return self.without_refused
        if all(offset >= physical_offset for offset in self.wrong):
            return self.without_all
        raise PartsDoNotMeetError


Item = RunResult | Blank | Damage

Derived = tuple[list[Item], list[QueueName]]
"""Items, and the queues that are new to their reader since the last ones."""


class _Held:
    """Items, of which several are handed on at once: that takes less than one by one."""

    def __init__(self, queues: Sequence[QueueName]) -> None:
        """`queues` are those that were met, by number, and grow with the pass."""
        self._queues = queues
        self._sent_queues = 0
        self._held: list[Item] = []
        self._size, self._begun = 0, 0.0

    def new_queues(self) -> list[QueueName]:
        """The queues that were met since the last call, in the order of their numbers."""
        queues = [*self._queues[self._sent_queues :]]
        self._sent_queues += len(queues)
        return queues

    def hold(self, item: Item) -> Derived | None:
        """Keep an item until there are enough."""
        if not self._held:
            self._begun = time.monotonic()
        self._held.append(item)
        self._size += item.size
        is_enough = self._size >= sized(_RESULT_SIZE, _RESULT_SIZE // 4)
        return self.rest() if is_enough or time.monotonic() - self._begun > _RESULT_SECONDS else None

    def rest(self) -> Derived | None:
        """What is held."""
        items, self._held, self._size = self._held, [], 0
        return (items, self.new_queues()) if items else None


class RunReader(_Held):
    """Turns runs of records into results."""

    def __init__(self, task: RunTask) -> None:
        self._task = task
        self._dispatcher = Dispatcher(task.rules, task.batch_topics, task.proven)
        self._is_batch = np.empty(0, dtype=np.bool_)  # of each queue
        super().__init__(self._dispatcher.queues)

    def items(self, start: int = 0, stop: int = MAX_OFFSET, block: Block | None = None) -> Iterator[Item]:
        """The items that begin at physical offsets from `start` to before `stop`; raises UnreadableError."""
        files, reading = self._task.files, self._task.reading
        for event in scan_files(files, start, stop, reading, block=block, look_back=_LOOK_BACK):
            yield self._item_of(event)

    def add(self, event: Event) -> Derived | None:
        """Add the next event of a pass that somebody else makes; what there is to hand on."""
        return self.hold(self._item_of(event))

    def _item_of(self, event: Event) -> Item:
        if not isinstance(event, RecordRun):
            return event
        task = self._task
        dispatched = self._dispatcher.dispatch(event)
        wrong = event.wrong_bodies if task.checks_bodies else np.zeros(len(event), dtype=np.bool_)
        if not task.drops_later:
            return self._result_of(event, dispatched, wrong, task.drops_bodies_from)
        result = self._result_of(event, dispatched, wrong, None)
        if not (wrong.any() or len(dispatched.refused_rows)):
            return result
        without_refused = self._result_of(event, dispatched, wrong, MAX_OFFSET)
        without_all = self._result_of(event, dispatched, wrong, 0)
        proven = [row for row in dispatched.refused_rows.tolist() if dispatched.has_proven_unit(row)]
        at = event.physical_offsets[proven].tolist()
        return replace(result, dropping=Dropping(result.wrong_bodies, at, without_refused, without_all))

    def _result_of(
        self, frames: RecordRun, dispatched: Dispatched, wrong: NDArray[np.bool_], drops_from: int | None
    ) -> RunResult:
        """The result where records with `wrong` bodies are dropped from an offset on, and all that a broker refuses."""
        dropped = None
        if drops_from is not None:
            dropped = wrong & (frames.physical_offsets >= drops_from)
            wrong = wrong & ~dropped
            dropped[self._refused(frames, dispatched)] = True
            dropped = dropped if dropped.any() else None
        task = self._task
        units = dispatched.units if task.queues else None
        optional = dispatched.optional_units if task.queues else None
        if units is not None and dropped is not None:
            units = units[~dropped[units.rows]]
            optional = optional and optional[~dropped[optional.rows]]
        batch = self._of_batch_topics(units) if units is not None and task.batch_topics else None
        if units is not None and batch is not None:
            units, batch_units = units[~batch], units[batch]
        else:
            batch_units = None
        return RunResult(
            physical_offset=frames.begin,
            size=frames.header_size + frames.size,
            last_physical_offset=int(frames.physical_offsets[-1]),
            last_store_timestamp=int(frames.headers.field("store_timestamp")[-1]),
            units=None if units is None else StoredUnits.of(units),
            optional_units=None if optional is None else StoredUnits.of(optional),
            has_optional_keys=task.index and task.rules.may_be_older and dispatched.has_optional_keys,
            batch_units=batch_units,
            keys=self._selected_keys(dispatched, frames, dropped) if task.index else None,
            wrong_bodies=frames.physical_offsets[wrong].tolist(),
            batch_topics=self._batch_topics(frames) if task.queues and task.learns_batch_topics else frozenset(),
            lost=list(self._lost(frames, dispatched, dropped)),
        )

    def _refused(self, frames: RecordRun, dispatched: Dispatched) -> list[int]:
        """The rows that a broker refuses, but for those that stay since a queue entry leads clients to them."""
        stay_until = self._task.drops_refused_from
        return [
            row for row in dispatched.refused_rows.tolist()
            if int(frames.physical_offsets[row]) >= stay_until or not dispatched.has_proven_unit(row)
        ]  # fmt: skip

    def _of_batch_topics(self, units: QueueUnits) -> NDArray[np.bool_] | None:
        """The rows of units that go to batch queues; None without any."""
        topics = self._task.batch_topics
        new = [queue.topic in topics for queue in self._dispatcher.queues[len(self._is_batch) :]]
        if new:
            self._is_batch = np.append(self._is_batch, np.array(new))
        is_batch: NDArray[np.bool_] = self._is_batch[units.queues]
        return is_batch if is_batch.any() else None

    def _selected_keys(self, dispatched: Dispatched, frames: RecordRun, dropped: NDArray[np.bool_] | None) -> RunKeys:
        selection, keys = self._task.selection, dispatched.keys
        if dropped is not None:
            keys = keys[~dropped[keys.rows]]
        records = frames.physical_offsets, frames.headers.field("store_timestamp")
        if selection.is_all:
            return RunKeys(keys.key_hashes, keys.kinds, keys.rows, *records)
        queue_numbers = self._dispatcher.queue_numbers(
            self._dispatcher.topic_numbers(frames), frames.headers.field("queue_id")
        )
        taken = np.array([selection.takes(*name) for name in self._dispatcher.queues])[queue_numbers]
        rows = taken[keys.rows]
        return RunKeys(keys.key_hashes[rows], keys.kinds[rows], keys.rows[rows], *records)

    def _lost(self, frames: RecordRun, dispatched: Dispatched, dropped: NDArray[np.bool_] | None) -> Iterator[Extent]:
        """Records without a message: refused by the broker, dropped for a wrong body, or dummy ones of ours."""
        rows = dict.fromkeys(inert_rows(frames), NEUTRALISED)
        if dropped is not None:
            rows.update(dict.fromkeys(np.flatnonzero(dropped).tolist(), _WRONG_BODY))
        # What is proven keeps its unit, unless the record is replaced.
        refused = [
            row for row in dispatched.refused_rows.tolist()
            if row not in dispatched.proven_rows or (dropped is not None and dropped[row])
        ]  # fmt: skip
        rows.update(dict.fromkeys(refused, _REFUSED))
        timestamps: NDArray[Any] = frames.headers.field("store_timestamp") if rows else np.empty(0)
        for row in sorted(rows):
            location = int(frames.physical_offsets[row]), int(frames.message_sizes[row])
            is_known = rows[row] == _WRONG_BODY
            queues = dispatched.units.queues[dispatched.units.rows == row].tolist() if is_known else ()
            topics = tuple(self._dispatcher.queues[queue].topic for queue in queues)
            yield Extent(*location, rows[row], int(timestamps[row]), topics=topics)

    def _batch_topics(self, frames: RecordRun) -> frozenset[str]:
        flagged = (frames.headers.field("sys_flag") & INNER_BATCH) != 0
        if not flagged.any():
            return frozenset()
        topic_numbers = np.unique(self._dispatcher.topic_numbers(frames)[flagged])
        return (
            frozenset(self._dispatcher.topics[topic_number] for topic_number in topic_numbers.tolist())
            - self._task.batch_topics
            - self._task.plain_topics
        )


REBUILD_NEED: dict[Part, MemoryNeed] = {
    "queues": MemoryNeed(least=145, usual=185, further_least=30, further_usual=60),
    "index": MemoryNeed(least=180, usual=195, further_least=30, further_usual=60),
}
_MAX_AHEAD = 128 << 20  # bytes of the log whose results wait for their turn
_LEAST_AHEAD = 8 << 20
_RESULT_SIZE = 16 << 20  # bytes of the log in a result of one process ...
_RESULT_SECONDS = 0.5  # ... or what it can read in this time


class PartsDoNotMeetError(Exception):
    """A part does not begin where the one before it has ended: bytes before it look like a record but are none.

    Or a recording has no result of a run of which some, but not all wrong bodies are dropped. The log is read again.
    """


class PassNumbers:
    """The numbers of queues in a whole pass; topics that Java decodes to the same text have one number."""

    def __init__(self) -> None:
        self.names: list[QueueName] = []
        self._numbers: dict[QueueName, int] = {}

    def of(self, names: Sequence[QueueName]) -> list[int]:
        """The number of each queue."""
        return [self._number(name) for name in names]

    def _number(self, name: QueueName) -> int:
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.names)
            self.names.append(name)
        return number


class _Renumbering:
    """Maps the queue numbers of one reader to those of the pass."""

    def __init__(self, numbers: PassNumbers) -> None:
        self._numbers = numbers
        self._table = np.empty(0, dtype=np.int32)
        self._is_identity = True

    def learn(self, names: Sequence[QueueName]) -> None:
        """Number the queues that are new to the reader; all of its items before have been used."""
        if names:
            new_numbers = np.array(self._numbers.of(names), dtype=np.int32)
            self._table = np.concatenate([self._table, new_numbers])
            self._is_identity = bool((self._table == np.arange(len(self._table))).all())

    def apply(self, item: Item) -> Item:
        """An item with the pass's numbers."""
        if self._is_identity or not isinstance(item, RunResult):
            return item
        units, optional, batch = item.units, item.optional_units, item.batch_units
        return replace(
            item,
            units=units and units._replace(queues=self._table.take(units.queues)),
            optional_units=optional and optional._replace(queues=self._table.take(optional.queues)),
            batch_units=batch and replace(batch, queues=self._table.take(batch.queues)),
        )


class _ReadParts(Job[Derived]):
    def __init__(self, task: RunTask, parts: Sequence[tuple[int, int]]) -> None:
        self._reader = RunReader(task)
        self._block = scan_block()
        self._parts = parts

    def do(self, part: int) -> Iterator[tuple[int, Derived | None]]:
        for item in self._reader.items(*self._parts[part], self._block):
            yield item.size, self._reader.hold(item)
        yield 0, self._reader.rest()


def items_of(
    task: RunTask,
    numbers: PassNumbers,
    parts: Sequence[tuple[int, int]],
    jobs: int,
    recording: Recording | None = None,
) -> Generator[Item, None, None]:
    """All items of the log in order, with several `jobs` read in `parts`; those of a `recording` that fits, else kept.

    Raises PartsDoNotMeetError, UnreadableError, and what a process raises.
    """
    jobs = min(jobs, len(parts))
    if recording is not None and recording.fits(task):
        yield from _joined(recording.results(task), numbers)
    elif recording is not None and recording.keeps:
        yield from recording.kept(task, items_of(task, numbers, parts, jobs), numbers)
    elif jobs > 1:
        yield from _joined(_of_processes(task, parts, jobs), numbers)
    else:
        reader, renumbering = RunReader(task), _Renumbering(numbers)
        for item in reader.items():
            renumbering.learn(reader.new_queues())
            yield renumbering.apply(item)


def _of_processes(task: RunTask, parts: Sequence[tuple[int, int]], jobs: int) -> Iterator[tuple[int, int, Derived]]:
    """What processes derive, in order: the part, the number of the process, and the result."""
    limit = task.reading.rate_limit
    if limit:
        slower = RateLimit(max(1, limit.bytes_per_second // jobs))
        task = replace(task, reading=replace(task.reading, rate_limit=slower))
    make = partial(_ReadParts, task, parts)
    with WorkerPool[Derived](jobs - 1) as pool:
        pool.begin(make, range(len(parts)), make())
        for step in pool.steps_in_order(sized(_MAX_AHEAD, _LEAST_AHEAD)):
            if step.result is not None:
                yield step.part, step.worker, step.result


def _joined(results: Iterable[tuple[int, int, Derived]], numbers: PassNumbers) -> Iterator[Item]:
    """The items of several parts, each with the number of its reader."""
    renumberings: dict[int, _Renumbering] = defaultdict(partial(_Renumbering, numbers))
    end, last = None, 0
    for part, reader, (items, queues) in results:
        if part != last and end not in (None, items[0].physical_offset):
            raise PartsDoNotMeetError
        last, end = part, items[-1].physical_offset + items[-1].size
        renumberings[reader].learn(queues)
        yield from map(renumberings[reader].apply, items)


class Recording:
    """What a pass has derived, in a file without a name: later passes by the same rules read this, and not the log.

    Parts of the log may come in any order; those of the pass that is recorded each have a reader of their own.
    """

    def __init__(self, task: RunTask, descriptor: int) -> None:
        """`descriptor` is that of the empty file."""
        self.task = task
        self.is_whole = False  # whether all of the log is in it
        self.keeps = True  # whether a pass that reads the log is recorded
        self._descriptor = descriptor
        self._places: dict[int, list[int]] = defaultdict(list)  # where the results of each part are, bytes
        self._begin(task)

    def reader(self, proven: ProvenRecords) -> partial[RunReader]:
        """Begins a pass, in which records with damaged fields count as what they are `proven` to be; makes readers."""
        self._begin(replace(self.task, proven=proven))
        return partial(RunReader, self.task)

    def _begin(self, task: RunTask) -> None:
        self.task, self._log = task, _state_of(task.files)
        self.is_whole = self._is_full = False
        self._places.clear()
        os.ftruncate(self._descriptor, 0)

    def add(self, part: int, derived: Derived | None) -> None:
        """Add the next result of a part, if there is one; without room for it there is no recording."""
        if self._is_full or not derived:
            return
        try:
            self._places[part].append(os.lseek(self._descriptor, 0, os.SEEK_END))
            send(self._descriptor, packed(derived))
        except OSError:
            self._is_full = True
            with suppress(OSError):
                os.ftruncate(self._descriptor, 0)

    def kept(self, task: RunTask, items: Iterable[Item], numbers: PassNumbers) -> Iterator[Item]:
        """The items of a pass, which are recorded on the way; `numbers` are those of its queues."""
        self._begin(task)
        held = _Held(numbers.names)
        for item in items:
            yield item
            self.add(0, held.hold(item))
        self.add(0, held.rest())
        self.is_whole = True

    def fits(self, task: RunTask) -> bool:
        """Whether a pass by this task would derive nothing else: the rules are the same, and so is the log."""
        mine = self.task
        if not self.is_whole or self._is_full or self._log is None or self._log != _state_of(task.files):
            return False
        wanted = replace(task, reading=mine.reading)
        for name in ("queues", "index", "checks_bodies"):  # what is recorded beyond what is wanted does no harm
            wanted = replace(wanted, **{name: getattr(wanted, name) or getattr(mine, name)})
        if mine.drops_later:
            wanted = replace(wanted, drops_later=True, drops_bodies_from=None, drops_refused_from=0)
        return wanted == mine

    def results(self, task: RunTask) -> Iterator[tuple[int, int, Derived]]:
        """All results, as `_of_processes` gives them."""
        for part in sorted(self._places):
            for place in self._places[part]:
                os.lseek(self._descriptor, place, os.SEEK_SET)
                items, queues = receive(self._descriptor)
                chosen = [item.dropped_by(task) if isinstance(item, RunResult) else item for item in items]
                yield part, part, (chosen, queues)


def _state_of(files: Sequence[MappedFile]) -> list[tuple[int, int]] | None:
    """Sizes and times: another process may change the log between two passes. None where a file is gone."""
    try:
        return [(status.st_size, status.st_mtime_ns) for status in (os.stat(file.path) for file in files)]
    except OSError:
        return None
