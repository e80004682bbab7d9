"""What a start does with consume queues in RocksDB (`RocksDBConsumeQueueStore#recover`).

Rows live in memory until a flush, and a kill takes those that were not flushed. A start makes them again from the log
file on that holds the end of what was dispatched; since 5.4.0 it looks at the last files only, and what lies between
gets no row ever again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.mapped_files import MappedFile
from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatched_units import QueueName, QueueUnits
from rmqtool.broker.dispatcher import Dispatcher
from rmqtool.broker.prediction import Mode, QueueChange, StartRefusal
from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.rules.broker_conf import BrokerConf
from rmqtool.rules.recovery import RecoveryRules
from rmqtool.rules.system_topics import LITE_PREFIX, LMQ_PREFIX
from rmqtool.rules.versions import ROWS_KEPT_PAST_LOG, SELECTED_TWICE, Version
from rmqtool.scan.frames import RecordRun
from rmqtool.scan.reader import scan_files
from rmqtool.store.config_tables import Topics
from rmqtool.store.consume_queues import queue_in
from rmqtool.store.queue_units import QueueRange, queue_range, rows_min_offset
from rmqtool.store.rocksdb_queues import NO_UNIT, LastUnit, QueueDatabase
from rmqtool.store.snapshot import Snapshot


@dataclass
class _NewRows:
    """The records of one queue after its last row: those that get none, and those that do, by queue offset.

    `last_offset` is the physical offset of the last one, `of_batches` are the queue offsets of rows that leave gaps.
    """

    lost: int = 0
    made: int = 0
    first: int = -1
    last: int = -1
    last_offset: int = -1
    of_batches: list[NDArray[np.int64]] = field(default_factory=list)


@dataclass(frozen=True)
class RocksDbRecovery:
    """Predicts what a start by some rules does with the queues of a database."""

    snapshot: Snapshot
    database: QueueDatabase
    rules: RecoveryRules

    @property
    def dispatched_end(self) -> int:
        """Physical offset after the last record that was dispatched."""
        return self.database.dispatched_end or 0

    def changes(
        self, files: Sequence[MappedFile], first_made: int, log_end: int, *, cut: int | None = None
    ) -> Iterator[QueueChange]:
        """The queues that a start changes which ends the log at `log_end`, and makes rows from `first_made` on.

        `cut` is where rows are cut, when that is not the end of the log.
        """
        new = self._new_rows(files, first_made, log_end)
        for name in sorted(new.keys() | {QueueName(*key) for key in self.database.lasts}):
            change = self._change(name, new.get(name, _NewRows()), log_end if cut is None else cut)
            if change.lost or change.dispatched or change.truncated:
                yield change

    def unchanged(self, name: QueueName) -> QueueChange:
        """A queue that a start leaves as it is."""
        return self._change(name, _NewRows(), MAX_OFFSET)

    def dispatched_from(self, mode: Mode, base: int) -> int:
        """Where the first record begins that gets its row; a clean start takes only those past the end."""
        if mode == "abnormal":
            return base
        return max(base, self.dispatched_end + 1) if self.rules.dispatches_when_clean else MAX_OFFSET

    def _new_rows(self, files: Sequence[MappedFile], first_made: int, log_end: int) -> dict[QueueName, _NewRows]:
        snapshot, found = self.snapshot, dict[QueueName, _NewRows]()
        dispatcher = Dispatcher(
            DispatchRules.of_snapshot(snapshot).for_release(self.rules.version), snapshot.topics.with_batch_queues
        )
        for event in scan_files(files, self.dispatched_end, log_end, snapshot.reading):
            if isinstance(event, RecordRun):
                for queue_number, units in dispatcher.dispatch(event).units.by_queue():
                    name = dispatcher.queues[queue_number]
                    self._add(found.setdefault(name, _NewRows()), name, units, first_made)
        return found

    def _add(self, rows: _NewRows, name: QueueName, units: QueueUnits, first_made: int) -> None:
        behind = units[units.queue_offsets > self.database.lasts.get(name, NO_UNIT).queue_offset]
        made = behind[behind.physical_offsets >= first_made]
        rows.lost += len(behind) - len(made)
        if len(made):
            rows.first = int(made.queue_offsets[0]) if rows.first < 0 else rows.first
            rows.last, rows.last_offset = int(made.queue_offsets[-1]), int(made.physical_offsets[-1])
            rows.made += len(made)
            if name.topic in (self.snapshot.topics.with_batch_queues or ()):
                rows.of_batches.append(made.queue_offsets.copy())

    def _change(self, name: QueueName, new: _NewRows, log_end: int) -> QueueChange:
        before = QueueRange(0, 0)
        if name in self.database.lasts:
            queue = queue_in(self.database, *name)
            before = queue_range(queue, self.snapshot.log_min_offset, self.rules.version)
        end = live_end = before.max_offset
        if (before.last_physical_offset or 0) >= log_end:
            live_end = self.database.first_live(name, log_end)
            end = self._cut_end(name, before, log_end)
        return QueueChange(
            "simple",
            *name,
            before.min_offset,
            before.max_offset,
            self._min_offset(name, new) if new.made else before.min_offset,
            max(end, new.last + 1),
            before.max_offset - min(live_end, end),
            new.made,
            new.lost,
            in_rocksdb=True,
        )

    def refusal(self, log_end: int) -> StartRefusal | None:
        """What a broker that cuts the log fails at before 5.3.2: a queue all of whose rows are past the end."""
        if self.rules.version >= ROWS_KEPT_PAST_LOG or log_end >= self.dispatched_end:
            return None
        topics = self.snapshot.topics.by_name
        for name, last in sorted(self.database.lasts.items()):
            topic, queue_id = name
            is_known = topic in topics and queue_id < topics[topic].write_queues
            if is_known and last.physical_offset >= log_end and self._lowest(QueueName(*name)) > log_end:
                why = "all its rows point past the end of the log (RocksDBException: correctMaxCqOffset error)"
                return StartRefusal("queue-end", f"{topic} {queue_id}: {why}", None, topic, queue_id)
        return None

    def _lowest(self, name: QueueName) -> int:
        """The physical offset of a queue's first unit as a broker takes it, which trusts the `min` row."""
        stored = self.database.first_of(name)
        if stored is not None and stored.physical_offset >= self.snapshot.log_min_offset:
            return stored.physical_offset
        before = queue_range(queue_in(self.database, *name), self.snapshot.log_min_offset, self.rules.version)
        known = self.database.physical_offset(name, before.min_offset)
        return MAX_OFFSET if known is None else known

    def _cut_end(self, name: QueueName, before: QueueRange, log_end: int) -> int:
        """Where a queue ends whose last rows lead past the end of the log (`RocksDBConsumeQueueOffsetTable`).

        Rows stay, only the `max` row is changed: to the last row that is found by halves before the log's end, or to
        the first one where none is found. It stays where the first row is past the end, too (`#correctMaxCqOffset`).
        """
        if self._lowest(name) > log_end:
            return before.max_offset
        low, high, found = before.min_offset, before.max_offset - 1, before.min_offset
        while low <= high:
            middle = (low + high) // 2
            physical_offset = self.database.physical_offset(name, middle)
            if physical_offset == log_end:
                break
            if physical_offset is None or physical_offset < log_end:
                low = middle + 1
                found = middle if physical_offset is not None else found
            else:
                high = middle - 1
        return found + 1

    def _min_offset(self, name: QueueName, new: _NewRows) -> int:
        """The minimum of a queue that has got `new` rows."""
        of_batches = np.concatenate(new.of_batches) if new.of_batches else None

        def physical_offset_at(queue_offset: int) -> int | None:
            stored = self.database.physical_offset(name, queue_offset)
            is_made = new.first <= queue_offset <= new.last and (of_batches is None or queue_offset in of_batches)
            return new.last_offset if stored is None and is_made else stored

        last = LastUnit(new.last, new.last_offset)
        return rows_min_offset(self.database.first_of(name), last, self.snapshot.log_min_offset, physical_offset_at)


SETTING = "rocksdbCQSelectiveDoubleWriteEnable"


def selects_rows(conf: BrokerConf, version: Version) -> bool:
    """Whether a broker of a release writes only some topics to RocksDB."""
    return version >= SELECTED_TWICE and conf.is_on(SETTING)


def has_rows(topics: Topics, topic: str) -> bool:
    """Whether records of a topic get rows where they are selected, and so those of a light queue."""
    config = topics.by_name.get(_parent(topic))
    return config is not None and config.attributes.get("message.type") == "LITE"


def _parent(topic: str) -> str:
    """The topic whose records are dispatched to a light queue of LITE messages; any other topic itself."""
    if not topic.startswith(LITE_PREFIX):
        return topic
    return topic.removeprefix(LITE_PREFIX).partition("$")[0]


EXTRA_FILES = "combineCQMaxExtraSearchCommitLogFiles"
_DEFAULT_EXTRA_FILES = 3


class LogPart(NamedTuple):
    """What a start scans: the files of the log, and from and to which physical offset."""

    files: Sequence[MappedFile]
    base: int
    end: int


def keeps_light_queues(rules: RecoveryRules, conf: BrokerConf) -> bool:
    """Whether light queues are in RocksDB alone."""
    return rules.skips_new_database and conf.is_on("combineCQUseRocksdbForLmq")


@dataclass(frozen=True)
class TwiceRecovery:
    """Predicts what a start does with the rows of queues that are in files, too."""

    rows: RocksDbRecovery

    @property
    def is_searched(self) -> bool:
        """Whether a start searches older log files for rows; since 5.5.0 not where there are none yet."""
        rules = self.rows.rules
        return rules.combines_queues and not (rules.skips_new_database and self.rows.dispatched_end <= 0)

    def extra_files(self) -> Callable[[MappedFile], bool] | None:
        """Whether the search for rows ends at a file that queues in files need not go beyond, the newest first.

        None before the combined store, which only looks at files.
        """
        if not self.is_searched:
            return None
        rows, conf = self.rows, self.rows.snapshot.store.conf
        given, keeps_light = conf.size(EXTRA_FILES), keeps_light_queues(rows.rules, conf)
        left = count(_DEFAULT_EXTRA_FILES if given is None else given, -1)
        return lambda file: file.start_offset <= rows.dispatched_end or (not keeps_light and next(left) <= 0)

    def serves(self, change: QueueChange) -> bool:
        """Whether consumers read this queue from RocksDB: light queues that are nowhere else."""
        conf = self.rows.snapshot.store.conf
        return change.topic.startswith(LMQ_PREFIX) and keeps_light_queues(self.rows.rules, conf)

    def changes(
        self, cut: LogPart, mode: Mode, in_files: Mapping[QueueName, QueueRange], max_physical: int
    ) -> Iterator[QueueChange]:
        """The queues in RocksDB that a start changes; `in_files` are those in files after it.

        `cut` is what is scanned, `max_physical` is that of the queues in files before it.
        """
        rules = self.rows.rules
        first = cut.base
        if mode == "normal":
            bound = min(max_physical, self.rows.dispatched_end) if rules.combines_queues else max_physical
            first = max(cut.base, bound + 1) if rules.dispatches_when_clean else MAX_OFFSET
        rows_end = cut.end if rules.combines_queues else MAX_OFFSET
        every = self.rows.changes(cut.files, first, cut.end, cut=rows_end)
        changes = {QueueName(each.topic, each.queue_id): each for each in every if not self._is_left_out(each)}
        if rules.combines_queues:
            for name, ended in in_files.items():
                if self._is_left_out(name):
                    continue
                if change := self._initialised(name, ended, changes.get(name)):
                    changes[name] = change
        yield from (changes[name] for name in sorted(changes))

    def _is_left_out(self, queue: QueueName | QueueChange) -> bool:
        """Whether a broker of 5.5.1 writes no rows of a queue (`broker.selected_rows`), or none so far.

        Without broker.conf a queue without rows may be one that it leaves out; where there are no rows at all, the
        light queues, which may be nowhere else, are taken for such as it writes.
        """
        snapshot, rules = self.rows.snapshot, self.rows.rules
        if snapshot.store.conf.text(SETTING):
            return selects_rows(snapshot.store.conf, rules.version) and not has_rows(snapshot.topics, queue.topic)
        is_known = (queue.topic, queue.queue_id) in self.rows.database.lasts
        is_new = self.rows.dispatched_end <= 0 and queue.topic.startswith(LMQ_PREFIX)
        return rules.writes_some_twice and not (is_known or is_new or snapshot.store.writes_queues_twice)

    def _initialised(self, name: QueueName, in_files: QueueRange, change: QueueChange | None) -> QueueChange | None:
        """A queue that is set to end where the files end, since its rows end elsewhere; None for another.

        It is set to begin there, too (`RocksDBConsumeQueue#initializeWithOffset`): rows before it are not read then.
        """
        now = change or self.rows.unchanged(name)
        end = in_files.max_offset
        if end == now.max_offset or (end <= 0 and now.max_offset <= 0):
            return None
        is_light = name.topic.startswith(LMQ_PREFIX)
        if now.max_offset > 0 and is_light and keeps_light_queues(self.rows.rules, self.rows.snapshot.store.conf):
            return None
        truncated = now.truncated + max(0, now.max_offset - end)
        lost = max(0, end - max(in_files.min_offset, 0))
        return replace(now, min_offset=end, max_offset=end, truncated=truncated, lost=lost)
