"""The queues against the log: units that match no record, the queues' files, and the database as a whole."""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmqtool.base.errors import RmqtoolError
from rmqtool.base.mapped_files import MappedFile
from rmqtool.base.paths import has_directory, has_file
from rmqtool.broker.dispatch_rules import DispatchRules
from rmqtool.broker.dispatched_record import DecodedDamage, Lookups
from rmqtool.broker.dispatched_units import QueueName
from rmqtool.broker.field_damage import FieldDamage, Suspects, suspect_of
from rmqtool.broker.prediction import StartPrediction
from rmqtool.broker.queue_recovery import KnownQueues, recover_queue
from rmqtool.findings.finding import counted
from rmqtool.findings.report import Report
from rmqtool.formats.consume_queue import PRE_BLANK_HEAD, is_pre_blank
from rmqtool.formats.file_name import MAX_OFFSET
from rmqtool.rules.system_topics import LMQ_PREFIX
from rmqtool.rules.versions import ANY_RELEASE, ROCKSDB_LIGHT_QUEUES, Releases
from rmqtool.store.config_tables import TOPICS
from rmqtool.store.consume_queues import Queue, queue_in
from rmqtool.store.file_findings import queue_findings
from rmqtool.store.lock import has_abort
from rmqtool.store.queue_units import QueueRange, queue_range
from rmqtool.store.rocksdb_queues import QueueDatabase
from rmqtool.store.snapshot import Snapshot
from rmqtool.store.store import BATCH_CONSUME_QUEUE, CONFIG, Store, rocksdb_configs
from rmqtool.store.unit_files import RocksDbUnits, UnitFiles, units_of
from rmqtool.transaction.losses import chosen_until
from rmqtool.verify.bad_extents import TORN, UNREAD, WRONG_MAGIC, Extents
from rmqtool.verify.offset_checks import check_kind
from rmqtool.verify.queue_progress import MAX_LOOKUPS, QueueProgress, is_derived
from rmqtool.verify.task import StoreReader

_MAX_SHOWN = 3
_FIELDS = ("physical_offset", "message_size", "tags_code")


def check_database(
    database: QueueDatabase, states: Mapping[QueueName, QueueProgress], report: Report, *, live: bool
) -> None:
    """Check the rows that belong to no queue, and the tables; `states` are the queues by the log."""
    given: dict[str, Any] = {"file": database.path.name}
    report.check("consumequeue.row")
    report_bad_units(database, report)
    for key, why in database.bad_rows():
        report.add("consumequeue.row", details={"problem": "bad-row", "key": key.hex(), "why": why}, **given)
    if database.rows.left_over and not live:
        count, names = len(database.rows.left_over), [*database.rows.left_over[:_MAX_SHOWN]]
        report.add("consumequeue.left-over-table", count=count, details={"tables": count, "names": names}, **given)
    for topic, queue_id in sorted(database.with_rows() - database.lasts.keys()):
        if QueueName(topic, queue_id) not in states:
            report.add("consumequeue.row", topic=topic, queue_id=queue_id, details={"problem": "no-max-row"}, **given)


def check_copies_alone(snapshot: Snapshot, states: Mapping[QueueName, QueueProgress], report: Report) -> None:
    """Note queues with messages that are in RocksDB alone, though the broker may write files of them, too.

    It may where other queues have files, and where topics are in JSON: a broker without files of queues keeps them in
    RocksDB (`RocksDBMessageStore`). One that left files for RocksDB made no files of later queues. Light queues may be
    in RocksDB alone in any case.
    """
    store, database = snapshot.store, snapshot.database
    if database is None or store.writes_queues_twice or store.reads_only_rocksdb:
        return
    in_files = {QueueName(queue.topic, queue.queue_id) for queue in snapshot.queues if queue.files.files}
    with_messages = {name for name in states if not name.topic.startswith(LMQ_PREFIX)}
    ordinary = with_messages.intersection(QueueName(*queue) for queue in database.lasts)
    alone = sorted(ordinary - in_files)
    with_json = has_file(store.root / CONFIG / TOPICS) and not rocksdb_configs(store)
    if not alone or not (ordinary & in_files or with_json):
        return
    shown = ", ".join(f"{name.topic} {name.queue_id}" for name in alone[:_MAX_SHOWN])
    more = f" and {counted(len(alone) - _MAX_SHOWN, 'more queue')}" if len(alone) > _MAX_SHOWN else ""
    what, why = "whether files of queues are lost", "others in files as well" if in_files else "topics in JSON"
    text = f"{what}: {shown}{more} are in RocksDB alone, and {why}; "
    report.doubt(what, f"{text}they are where broker.conf sets rocksdbCQDoubleWriteEnable=true (--broker-conf)")


def check_light_rows(snapshot: Snapshot, report: Report) -> None:
    """Note that rows of light queues may be lost, where only the release decides whether there ever were some."""
    may_have_some = snapshot.store.conf.is_on("enableMultiDispatch") and snapshot.release >= ROCKSDB_LIGHT_QUEUES
    if may_have_some and not DispatchRules.of_snapshot(snapshot).multi_dispatch:
        what = "whether rows of light queues are lost"
        report.doubt(what, f"{what}: there are none, and brokers before {ROCKSDB_LIGHT_QUEUES} write none "
                           "(--broker-version)")  # fmt: skip


def report_bad_units(database: QueueDatabase, report: Report) -> None:
    """Report rows of another form that were met among the units of queues."""
    for key in sorted(database.bad_units):
        report.add("consumequeue.row", file=database.path.name, details={"problem": "bad-unit", "key": key.hex()})
    database.bad_units.clear()


def check_batches(snapshot: Snapshot, rows: RocksDbUnits, min_offset: int, report: Report) -> None:
    """Report the batches of a queue in RocksDB that consumers do not get who begin at its minimum.

    It is a warning where the queue is in files, too, from which a broker gives them all.
    """
    batches = read = 0
    first, end = rows.start, min_offset  # `end` is the first offset without a row
    while len(offsets := rows.rows(first, rows.data_end, most=_CHUNK).offsets):
        following = offsets[offsets >= end]
        in_a_row = following == np.arange(end, end + len(following))
        count = len(following) if in_a_row.all() else int(np.argmin(in_a_row))
        batches, read, end = batches + len(offsets), read + count, end + count
        first = int(offsets[-1]) + 1
    report.check("consumequeue.unread-batches", batches)
    if read < batches:
        facts: dict[str, Any] = {"problem": "all-rows", "read": read, "batches": batches, "min_offset": min_offset}
        facts |= {"problem": "no-row", "missing_row": end} if end < rows.data_end else {}
        first_unread = rows.start if rows.start < min_offset else end
        queue = rows.queue
        files = snapshot.store.root / BATCH_CONSUME_QUEUE / queue.topic / str(queue.queue_id)
        report.add("consumequeue.unread-batches", details=facts, severity="warning" if has_directory(files) else "info",
                   count=batches - read, topic=queue.topic, queue_id=queue.queue_id,
                   queue_offset=first_unread)  # fmt: skip


def check_minimum(rows: RocksDbUnits, log_start: int, report: Report) -> None:
    """Report the units of a queue before its min row, which a broker trusts unless it leads below the log."""
    minimum = rows.first
    if minimum is None or not minimum.begins_behind(rows.start, log_start):
        return
    count = min(minimum.queue_offset, rows.data_end) - rows.start
    facts = {"problem": "min-row", "begins_at": minimum.queue_offset, "units": count}
    report.add("consumequeue.wrong-end", count=count, topic=rows.queue.topic, queue_id=rows.queue.queue_id,
               queue_offset=rows.start, details=facts)  # fmt: skip


def check_copy(queue: Queue, database: QueueDatabase, reader: StoreReader, report: Report) -> None:
    """Compare the files of a queue with its rows, where a broker writes both (`CombineConsumeQueueStore`).

    Only the units that both hold: rows may begin later, and end where the last flush before a kill was.
    """
    name = queue.topic, queue.queue_id
    if queue.kind != "simple" or name not in database.lasts:
        return
    rows = RocksDbUnits(queue_in(database, *name), database, reader.open_files, reader.log_start)
    files = UnitFiles(queue, reader.open_files, live=reader.task.live)
    start, stop = max(files.start, rows.start), min(files.data_end, rows.data_end)
    report.check("consumequeue.copies-differ", max(0, stop - start))
    for low, high, is_held in files.stretches(start, stop):
        for first in range(low, high, _CHUNK) if is_held else ():
            count = min(_CHUNK, high - first)
            unit, row = files.units(first, count), rows.units(first, count)
            differs = np.any([unit[field] != row[field] for field in _FIELDS], axis=0)
            if differs.any():
                at = int(np.argmax(differs))
                facts: dict[str, Any] = {"problem": "no-row", "in_file": int(unit["physical_offset"][at])}
                if row["message_size"][at]:
                    facts |= {"problem": "other-row", "in_rocksdb": int(row["physical_offset"][at])}
                report.add("consumequeue.copies-differ", count=int(np.count_nonzero(differs)), topic=queue.topic,
                           queue_id=queue.queue_id, queue_offset=first + at, details=facts)  # fmt: skip


_CHUNK = 1 << 16  # units
_MAX_LED_TO = 100_000  # of one queue; others after them count as often as they are there
_MAX_WITHOUT_TAGS = 1 << 18


@dataclass
class LogBounds:
    """The physical offsets where the log's records begin and end, and its last file ends, and the damage between."""

    start: int
    end: int
    files_end: int
    extents: Extents
    live: bool = False


@dataclass
class UnmatchedUnits:
    """Checks the queues on disk, one after the other.

    `lost` counts units that point into damage, by queue, and `torn` those of them that point into a torn end of the
    log, which was never whole on disk. `alone` counts those that lead to no record, at queue offsets of which the log
    has none. `beyond_files` counts those that point past the last log file. Those that are `decoded` are among the
    lost ones, by unit number: brokers may serve their messages all the same. Lost ones
    at the physical offsets `without_tags` say that their messages have none. `of_light` are those of light queues that
    lead to records of others, which `settle_light` judges. `are_of_another_log` says that the queues prove nothing.
    """

    store: Store
    report: Report
    bounds: LogBounds
    lookups: Lookups
    lost: Counter[QueueName] = field(default_factory=Counter)
    torn: Counter[QueueName] = field(default_factory=Counter)
    alone: Counter[QueueName] = field(default_factory=Counter)
    beyond_files: Counter[QueueName] = field(default_factory=Counter)
    without_tags: set[int] = field(default_factory=set)
    decoded: dict[QueueName, dict[int, DecodedDamage]] = field(default_factory=lambda: defaultdict(dict))
    releases: Releases = ANY_RELEASE
    batch_topics: Collection[str] = ()
    of_light: Suspects = field(default_factory=Suspects)
    _light: dict[int, list[Callable[[], None]]] = field(default_factory=lambda: defaultdict(list))
    are_of_another_log: bool = False
    _lookups_made: int = 0
    _in_log: range = range(0)
    _led_to: set[int] = field(default_factory=set)
    _zero_files: list[tuple[Queue, MappedFile, QueueProgress | None]] = field(default_factory=list)

    @property
    def witnesses(self) -> Counter[QueueName]:
        """Units that show messages of which the log holds nothing, or only damage."""
        return self.lost - self.torn + self.alone + self.beyond_files

    def forget_witnesses(self) -> None:
        """Let no unit count as the trace of a message: the queues are those of another log."""
        self.are_of_another_log = True
        for counts in (self.lost, self.torn, self.alone, self.beyond_files):
            counts.clear()
        self.decoded.clear()

    def check(self, files: UnitFiles, state: QueueProgress | None) -> None:
        """Check one queue that is on disk."""
        queue, self._lookups_made, self._led_to = files.queue, 0, set()
        self._in_log = range(state.first_offset, state.next_offset) if state else range(0)
        self._check_files(queue)
        if not queue.files.files and not queue.database:
            return
        self.report.check("consumequeue.wrong-record", max(0, files.data_end - files.start))
        if isinstance(files, RocksDbUnits):
            self._check_last_row(files)
        else:
            self._check_end(files, state)
        rest = [(files.start, files.data_end)]
        if state is not None:
            rest = state.unproven(files.start, files.data_end)
        if not rest:
            return
        prefix = self._pre_blank_stop(files) if queue.kind == "simple" and queue.files.files else files.start
        for start, stop in rest:
            for low, high, held in files.stretches(max(start, prefix), stop):
                if not held:
                    self._check_hole(files, low, high)
                    continue
                for first in range(low, high, _CHUNK):
                    self._check_units(files, first, files.units(first, min(_CHUNK, high - first)))

    def _check_files(self, queue: Queue) -> None:
        """Check names and sizes of the files, and that they follow each other (`MappedFileQueue#load`)."""
        for code in ("consumequeue.file-size", "consumequeue.gap", "consumequeue.stray"):
            self.report.check(code, len(queue.files.files))
        self.report.add_findings(queue_findings(self.store, queue, self.releases, live=self.bounds.live))

    def _check_end(self, files: UnitFiles, state: QueueProgress | None) -> None:
        """Note a last file of zeros: a file is created when it is needed, and gets its first unit at once."""
        sized = [file for file in files.files if file.size]
        last = sized[-1] if len(sized) > 1 else None
        if last is not None and files.data_end <= last.start_offset // files.size and not self.bounds.live:
            self._zero_files.append((files.queue, last, state))

    def report_zero_files(self, start: StartPrediction | None) -> None:
        """Report the last files of zeros, when the next start is predicted, or is not: it may write into them."""
        for queue, file, state in self._zero_files:
            name = QueueName(queue.topic, queue.queue_id)
            given: dict[str, Any] = {"topic": name.topic, "queue_id": name.queue_id}
            if state is not None and is_derived(start, state):
                given.update(severity="info", effect="the next start writes the entry that was to come into it")
            shown = self.store.relative(file.path)
            self.report.add("consumequeue.zero-file", file=shown, details={"size": file.size}, **given)

    def _pre_blank_stop(self, files: UnitFiles) -> int:
        """Number after the filler that a queue's first file may begin with (`ConsumeQueue#fillPreBlank`)."""
        first = files.start
        if not files.read(first, 1).startswith(PRE_BLANK_HEAD):
            return first
        stop = first + files.queue.files.files[0].size // files.size
        while first < stop:
            blank = is_pre_blank(files.units(first, min(_CHUNK, stop - first)))
            if not blank.all():
                return first + int(np.argmin(blank))
            first += len(blank)
        return stop

    def _check_units(self, files: UnitFiles, first: int, units: NDArray[np.void]) -> None:
        unit_numbers = first + np.arange(len(units))
        written = files.is_written(units)
        offsets = units["physical_offset"]
        blank = is_pre_blank(units) if files.queue.kind == "simple" else np.zeros(len(units), dtype=np.bool_)
        self._check_unwritten(files, unit_numbers[~written])
        self._report_all("consumequeue.pre-blank", {}, files, unit_numbers[blank])
        rest = written & ~blank & (offsets >= self.bounds.start)
        beyond = rest & (offsets >= self.bounds.end)
        if beyond.any() and not self.bounds.live:
            self._check_beyond(files, unit_numbers[beyond], offsets[beyond])
        rest &= ~beyond
        for row in np.flatnonzero(rest).tolist():
            self._check_target(files, int(unit_numbers[row]), int(offsets[row]))

    def _check_hole(self, files: UnitFiles, first: int, stop: int) -> None:
        """Report units without a file."""
        if files.queue.database:
            self._check_no_rows(files, np.arange(first, min(stop, first + _CHUNK)), stop - first)
        elif first < self._last_written(files):
            self._add(_hole_code(files), {"problem": "no-file"}, files, first, stop - first)

    def _check_no_rows(self, files: UnitFiles, unit_numbers: NDArray[np.intp], count: int) -> None:
        """Report queue offsets without a row and without a record; those of a batch have one at its first offset."""
        if files.queue.topic not in self.batch_topics and len(unit_numbers):
            self._add("consumequeue.hole", {"problem": "no-row"}, files, int(unit_numbers[0]), count,
                      effect="a pull that begins here gets nothing, and one before it ends here")  # fmt: skip

    def _check_last_row(self, files: RocksDbUnits) -> None:
        """Check that a queue ends with a row of the message that its `max` row names, and what is behind it."""
        self.report.check("consumequeue.wrong-end")
        if files.last.physical_offset >= max(self.bounds.start, 1):
            rows = files.rows(files.data_end - 1, files.data_end)
            found = [int(offset) for offset in rows.values["physical_offset"]]
            if found != [files.last.physical_offset]:
                facts: dict[str, Any] = {"problem": "no-last-row", "expected": files.last.physical_offset}
                facts |= {"problem": "other-last-row", "found": found[0]} if found else {}
                self._add("consumequeue.wrong-end", facts, files, files.data_end - 1, 1)
        behind = files.rows(files.data_end, MAX_OFFSET, most=_CHUNK)
        stale = int(np.count_nonzero(behind.values["physical_offset"] >= self.bounds.end))
        if stale and not self.bounds.live:
            self._add("consumequeue.stale-row", {"log_end": self.bounds.end}, files, files.data_end, stale)

    def _check_unwritten(self, files: UnitFiles, unit_numbers: NDArray[np.intp]) -> None:
        if not len(unit_numbers):
            return
        if files.queue.database:
            for run in np.split(unit_numbers, np.flatnonzero(np.diff(unit_numbers) != 1) + 1):
                self._check_no_rows(files, run, len(run))
            return
        last = self._last_written(files)
        inside = unit_numbers[unit_numbers < last]
        self._report_all(_hole_code(files), {"problem": "unwritten"}, files, inside)
        garbage = unit_numbers[unit_numbers > last][:1]
        self._report_all("consumequeue.garbage-after-end", {"last_unit": last}, files, garbage)

    def _last_written(self, files: UnitFiles) -> int:
        """Number of the last written unit."""
        for low, high, held in reversed([*files.stretches(files.start, files.data_end)]):
            for stop in range(high, low, -_CHUNK) if held else ():
                first = max(low, stop - _CHUNK)
                written = np.flatnonzero(files.is_written(files.units(first, stop - first)))
                if len(written):
                    return first + int(written[-1])
        return files.start

    def _check_beyond(self, files: UnitFiles, unit_numbers: NDArray[np.intp], offsets: NDArray[np.int64]) -> None:
        """Report units that point past the last record: other bytes have taken its place, or it is in no file."""
        name, bounds = QueueName(files.queue.topic, files.queue.queue_id), self.bounds
        outside = offsets >= bounds.files_end
        self.beyond_files[name] += self._led_to_first({*offsets[outside].tolist()})
        replaced_from = bounds.extents.replaced_from(bounds.end, bounds.files_end)
        if replaced := self._led_to_first({*offsets[(offsets >= replaced_from) & ~outside].tolist()}):
            self.lost[name] += replaced  # without an entry that counts nothing
        self._note_tags(files, unit_numbers)
        self._report_all("consumequeue.ahead", {"log_end": self.bounds.end}, files, unit_numbers)

    def _led_to_first(self, physical_offsets: set[int]) -> int:
        """To how many of these no unit of the queue has led before: a file may be there twice."""
        new = physical_offsets - self._led_to
        self._led_to |= new if len(self._led_to) < _MAX_LED_TO else set()
        return len(new)

    def _check_target(self, files: UnitFiles, unit_number: int, physical_offset: int) -> None:
        queue = files.queue
        reason = self.bounds.extents.reason_at(physical_offset)
        if reason == UNREAD:
            return
        if reason is not None:
            self._check_damage(files, unit_number, physical_offset, reason)
            return
        if queue.database and self.store.has_copy_of(queue.topic):  # whose files are missing
            return
        if self._lookups_made >= MAX_LOOKUPS:
            self.report.count("consumequeue.wrong-record", 1, queue.topic)
            return
        self._lookups_made += 1
        owners, facts = self.lookups.queues_of(physical_offset), dict[str, Any]()
        if owners is None:
            return
        if not owners:
            code, facts = "consumequeue.wrong-record", {"problem": "no-record", "found": physical_offset}
            self.alone[QueueName(queue.topic, queue.queue_id)] += unit_number not in self._in_log
        elif (name := QueueName(queue.topic, queue.queue_id)) in owners:
            if self.bounds.live:
                return  # dispatched after its record was compared
            code, facts = "consumequeue.duplicate-unit", {"found": physical_offset}
            if (
                owners[name] > unit_number
            ):  # for a lost message before the one that it points to (`rebuild.queue_placement`)
                code = "consumequeue.neutral-unit"
        else:
            self._report_of_others(files, unit_number, physical_offset, next(iter(owners)))
            return
        self._report_all(code, facts, files, np.array([unit_number]))

    def _check_damage(self, files: UnitFiles, unit_number: int, physical_offset: int, reason: str) -> None:
        """Count a unit that leads into damage, and note it where clients decode what is there."""
        name = QueueName(files.queue.topic, files.queue.queue_id)
        is_first = self._led_to_first({physical_offset})
        self.lost[name] += is_first
        self.torn[name] += is_first * (reason == TORN)
        self._note_tags(files, np.array([unit_number]))
        may_decode = is_first and reason in WRONG_MAGIC and files.queue.kind == "simple"
        if not may_decode or self._lookups_made >= MAX_LOOKUPS:
            return
        self._lookups_made += 1
        unit = files.units(unit_number, 1)[0]
        fields = int(unit["message_size"]), int(unit["tags_code"])
        if found := self.lookups.decoded_damage(physical_offset, (name, unit_number), *fields):
            self.decoded[name][unit_number] = found

    def _note_tags(self, files: UnitFiles, unit_numbers: NDArray[np.intp]) -> None:
        """Note messages of which neighbouring units show that they have no tags."""
        if files.queue.kind != "simple" or not len(unit_numbers) or len(self.without_tags) >= _MAX_WITHOUT_TAGS:
            return
        first, last = int(unit_numbers[0]), int(unit_numbers[-1])
        units = files.units(first, min(last - first + 1, _CHUNK))
        self.without_tags.update(units["physical_offset"][units["tags_code"] == 0].tolist())

    def _report_of_others(self, files: UnitFiles, unit_number: int, physical_offset: int, owner: QueueName) -> None:
        """Report a unit that leads to a record of another queue; one of a light queue once its record is judged."""
        queue, numbers = files.queue, np.array([unit_number])
        facts = {"problem": "other-queue", "found": physical_offset}
        facts |= {"topic_of_record": owner.topic, "queue_id_of_record": owner.queue_id}
        if not queue.topic.startswith(LMQ_PREFIX):
            self._report_all("consumequeue.wrong-record", facts, files, numbers)
            return
        suspect = suspect_of(QueueName(queue.topic, queue.queue_id), unit_number, files.units(unit_number, 1)[0])
        self.of_light.add_unit(physical_offset, suspect)
        report = partial(self._report_all, "consumequeue.lmq-mismatch", facts, files, numbers)
        self._light[physical_offset].append(report)

    def settle_light(self, damages: Sequence[FieldDamage]) -> None:
        """Report the units of light queues that lead to records of others: where those have `damages`, these."""
        for damage in damages:
            self.report.add("commitlog.field", **damage.facts)
            self._light.pop(damage.physical_offset, None)
        for reports in self._light.values():
            for report in reports:
                report()

    def _report_all(
        self, code: str, facts: Mapping[str, Any], files: UnitFiles, unit_numbers: NDArray[np.intp]
    ) -> None:
        """Report one finding for each run of consecutive units."""
        if not len(unit_numbers):
            return
        starts = np.append(np.flatnonzero(np.diff(unit_numbers, prepend=unit_numbers[0] - 2) != 1), len(unit_numbers))
        for low, high in pairwise(starts.tolist()):
            unit_number, count = int(unit_numbers[low]), high - low
            if not self.report.wants_example(code, files.queue.topic):
                self.report.count(code, len(unit_numbers) - low, files.queue.topic)
                return
            self._add(code, facts, files, unit_number, count)

    def _add(
        self, code: str, facts: Mapping[str, Any], files: UnitFiles, unit_number: int, count: int, **given: Any
    ) -> None:
        path, position = files.location_of(unit_number)
        file = None if path is None else self.store.relative(path)
        self.report.add(code, count=count, file=file, offset=position, topic=files.queue.topic,
                        queue_id=files.queue.queue_id, queue_offset=unit_number,
                        details={**facts, "units": count}, **given)  # fmt: skip


def _hole_code(files: UnitFiles) -> str:
    return "consumequeue.hole" if files.queue.kind == "simple" else "consumequeue.batch-unit"


_FULL = 0.75  # diskMaxUsedSpaceRatio; cleaning for space leaves a disk about that full
_HOUR = 3_600_000  # ms; fileReservedTime is in whole hours


@dataclass
class LogHead:
    """Traces in the queues of log files before `start`, the physical offset where the log begins.

    `left` counts queues whose first file points only before `start`; `trimmed` is set when a queue does not begin at 0.
    """

    start: int
    left: int = 0
    trimmed: bool = False

    def add_queue(self, opened: UnitFiles) -> None:
        """Check the first file of one queue; a queue's last file is never deleted, and not counted."""
        queue, files = opened.queue, opened.files
        if not self.start or not files or queue.kind != "simple":
            return
        self.trimmed |= files[0].start_offset > 0
        room = files[0].size // queue.unit_size
        if len(files) < 2 or not room:
            return
        units = opened.units_in(files[0], room - 1, 1)
        if len(units) and units["message_size"][0] > 0 and int(units["physical_offset"][0]) < self.start:
            self.left += 1

    def check(self, reader: StoreReader, report: Report) -> None:
        """Report files that no cleaner has deleted, unless after a crash, which may have stopped it half-way."""
        if not reader.files or not self.start or has_abort(reader.store.root):
            return
        report.check("commitlog.head-missing")
        left_index = sum(
            index_file.units > 0 and index_file.file.end_physical_offset < self.start
            for index_file in reader.index.files[:-1]
        )
        is_left_out = self.start < chosen_until(reader.store.root)
        early = None if self.trimmed or is_left_out else _deleted_early(reader)
        signs = [early] if early else []
        if self.left or left_index:
            signs.insert(0, {"problem": "left", "queues": self.left, "index_files": left_index})
        if signs:
            facts = {"log_start": self.start, "queues_left": self.left, "index_files_left": left_index, "signs": signs}
            report.add("commitlog.head-missing", offset=self.start, details=facts)


def _deleted_early(reader: StoreReader) -> dict[str, str | int] | None:
    """The evidence that the log's directory was last changed before its deleted files can have expired, or None.

    A file is written until the next one has its first message. Without broker.conf the shortest retention time counts.
    On a disk that is nearly full the cleaner deletes files that have not expired.
    """
    first = reader.files[0]
    try:
        stored = reader.lookups.store_timestamp_at(first.start_offset + first.header_size)
        changed = first.path.parent.stat().st_mtime_ns // 10**6
        disk = shutil.disk_usage(first.path.parent)
    except (RmqtoolError, OSError):
        return None
    if disk.used > _FULL * disk.total:
        return None
    hours = reader.store.conf.size("fileReservedTime") or 1
    if stored is None or not 0 <= changed - stored < hours * _HOUR:
        return None
    return {"problem": "early", "stored": int(stored), "directory": first.path.parent.name,
            "minutes": int(changed - stored) // 60_000}  # fmt: skip


class QueueVisit:
    """Visits the queues; `ranges` are what a broker reports for them, `recovered` how a start recovers them."""

    def __init__(
        self, snapshot: Snapshot, reader: StoreReader, report: Report, bounds: LogBounds, *, recovers: bool
    ) -> None:
        """Findings go to `report`; with `recovers` a start is predicted after the visits."""
        self.ranges: dict[QueueName, QueueRange] = {}
        self.recovered = KnownQueues(snapshot.queues)
        self.head = LogHead(bounds.start)
        self.unmatched = UnmatchedUnits(snapshot.store, report, bounds, reader.lookups,
                                        releases=snapshot.releases,
                                        batch_topics=snapshot.topics.with_batch_queues or ())  # fmt: skip
        self._snapshot = snapshot
        self._reader = reader
        self._report = report
        self._recovers = recovers

    def visit(self, index: int, queue: Queue, state: QueueProgress | None) -> None:
        """Visit one queue of the snapshot, by its index, of which the log has `state`. Raises UnreadableError."""
        snapshot, start = self._snapshot, self.unmatched.bounds.start
        units = units_of(queue, self._reader.open_files, start, live=self.unmatched.bounds.live)
        self.unmatched.check(units, state)
        check_kind(snapshot.topics, queue, self._report)
        name = state.name if state else QueueName(queue.topic, queue.queue_id)
        self.ranges[name] = queue_range(queue, start, snapshot.release, opened=units)
        if not isinstance(units, RocksDbUnits):
            if snapshot.database:
                check_copy(queue, snapshot.database, self._reader, self._report)
            self.head.add_queue(units)
            if self._recovers:
                self.recovered.add(index, recover_queue(queue, units))
        elif queue.topic in self.unmatched.batch_topics and not self.unmatched.bounds.live:
            check_batches(snapshot, units, self.ranges[name].min_offset, self._report)
        elif not self.unmatched.bounds.live:
            check_minimum(units, start, self._report)
